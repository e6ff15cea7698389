/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A bind to a node whose agents wait for a lock: whether the pod is bound, and the locks
 * afterwards. The state machine of cluster/lock.h runs against the node and the pods of the case
 * for as long as a bind may wait.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "cluster/lock.h"
#include "vectors.h"

#define WALL (INT64_C(1795374000) * NS_PER_S) /* 2026-11-22T19:00:00Z */
#define WAIT_NS (8 * NS_PER_S)
#define STEP_NS (20 * NS_PER_MS)

enum {
    KEYS_MAX = 4,
};

/* The API server of one case. */
struct server {
    struct vector *vector;
    struct text_pair locks[KEYS_MAX];
    size_t count;
    unsigned conflicts; /* patches of the node that will be refused */
    bool bound, refused;
};

static const char *fill_in_time(struct vector *vector, const char *text)
{
    static const struct lock_pod nobody;
    const struct vendor_lock lock = {.names_pod = false};
    struct strbuf time = STRBUF_IN(vector->arena, 64);
    const char *end = strchr(text, '}');
    long long seconds;

    if (!end || sscanf(text, "{now%lld}", &seconds) != 1) // NOLINT
        return text;
    lock_value_write(&lock, &nobody, WALL + seconds * NS_PER_S, &time);
    return arena_printf(vector->arena, "%s%s", strbuf_text(&time), end + 1);
}

static void read_locks(struct server *server)
{
    yyjson_val *node = yyjson_obj_get(server->vector->line, "node"), *key, *value;
    yyjson_val *annotations = yyjson_obj_get(yyjson_obj_get(node, "metadata"), "annotations");
    size_t at, max;

    yyjson_obj_foreach(annotations, at, max, key, value)
    {
        if (server->count < KEYS_MAX)
            server->locks[server->count++] = (struct text_pair){
                yyjson_get_str(key), fill_in_time(server->vector, yyjson_get_str(value))};
    }
}

static void set_lock(struct server *server, const char *key, const char *value)
{
    for (size_t i = 0; i < server->count; i++) {
        if (strcmp(server->locks[i].key, key) == 0)
            server->locks[i] = server->locks[--server->count];
    }
    if (value)
        server->locks[server->count++] = (struct text_pair){key, value};
}

static void carry_out(struct server *server, const struct node_lock *lock, int64_t now)
{
    const struct lock_set *locks = lock->taken ? &lock->turn_locks : &lock->wrote_locks;

    for (size_t i = 0; i < locks->count; i++) {
        struct strbuf value = STRBUF_IN(server->vector->arena, 1024);

        lock_value_write(locks->items[i], &lock->wrote, WALL + now, &value);
        set_lock(server, locks->items[i]->key, lock->taken ? NULL : strbuf_text(&value));
    }
}

static enum lock_progress look(struct server *server, const struct lock_pod *wanted)
{
    const struct vendor_set *vendors = server->vector->vendors;
    yyjson_val *value;
    size_t at, max;

    yyjson_arr_foreach(yyjson_obj_get(server->vector->line, "other_pods"), at, max, value)
    {
        struct pod pod;

        if (pod_read(value, &vendors->kept, server->vector->arena, &pod, NULL) == 0 &&
            strcmp(pod.name, wanted->name) == 0 && strcmp(pod.namespace, wanted->namespace) == 0)
            return lock_pod_progress(vendors, &pod, wanted, "n1");
    }
    return LOCK_GONE;
}

static void do_step(struct server *server, struct node_lock *lock, enum lock_step step, int64_t now)
{
    const struct node node = {
        .name = "n1", .resource_version = "1", .annotations = {server->locks, server->count}};

    switch (step) {
    case LOCK_GET_NODE:
        node_lock_read(lock, &node, now, WALL + now);
        return;
    case LOCK_GET_POD:
        node_lock_looked(lock, look(server, &lock->turn), now);
        return;
    case LOCK_PATCH:
        if (!server->conflicts)
            carry_out(server, lock, now);
        node_lock_patched(lock, !server->conflicts, now);
        server->conflicts -= server->conflicts > 0;
        return;
    case LOCK_BIND:
        server->bound = !server->refused;
        node_lock_bound(lock, server->bound, now);
        return;
    default:
        return;
    }
}

/* Until the pod is bound, or nothing more is left of its try. */
static void run_lock(struct server *server, const struct lock_set *locks)
{
    yyjson_val *metadata = yyjson_obj_get(yyjson_obj_get(server->vector->line, "pod"), "metadata");
    struct node_lock lock = {.listed = true};
    struct lock_pod pod = {.name = ""};
    int64_t until;

    COPY_TEXT(pod.namespace, vector_text(metadata, "namespace"));
    COPY_TEXT(pod.name, vector_text(metadata, "name"));
    COPY_TEXT(pod.uid, vector_text(metadata, "uid"));
    node_lock_want(&lock, &pod, locks, 0);
    for (int64_t now = 0; now < WAIT_NS && !server->bound; now += STEP_NS) {
        enum lock_step step = node_lock_step(&lock, now, &until);

        do_step(server, &lock, step, now);
    }
}

/* What the vendor's agent waits for on a node that it serves. HAMi 2.8.2 knows of AMD's own plugin
 * only, which registers nothing. */
static const struct vendor_lock *find_lock(const struct vendor_instance *instance)
{
    const bool registers = instance->register_key && strcmp(instance->id.word, "AMDGPU") != 0;
    const struct text_pair registered = {instance->register_key, ""};
    struct resource some[VENDOR_MAX_RESOURCES];
    struct node node = {.name = "n1", .annotations = {&registered, registers}};
    size_t count = 0;

    for (; count < VENDOR_MAX_RESOURCES && instance->resources[count]; count++)
        some[count] = (struct resource){
            instance->resources[count], "100", {.form = QUANTITY_WHOLE, .value = 100}};
    node.allocatable = node.capacity = (struct resource_list){some, count};
    return vendor_prepare_bind(instance, &node);
}

/* The locks of the agents whose devices the pod asks for. */
static int find_locks(struct vector *vector, struct lock_set *ret_locks)
{
    struct demand demand;
    struct pod pod;

    if (pod_read(yyjson_obj_get(vector->line, "pod"), &vector->vendors->kept, vector->arena, &pod,
                 NULL) < 0 ||
        vendor_read_demand(vector->vendors, &pod, vector->arena, &demand) < 0)
        return -EINVAL;
    for (size_t i = 0; i < demand.count; i++) {
        for (size_t k = 0; k < demand.containers[i].request_count; k++) {
            const struct vendor_lock *lock =
                find_lock(vendor_of(demand.containers[i].requests[k].vendor));

            if (lock && !lock_set_add(ret_locks, lock))
                return -E2BIG;
        }
    }
    return 0;
}

static bool has_lock(const struct server *server, const char *key, const char *wanted)
{
    const struct text_pairs locks = {server->locks, server->count};
    const char *value = text_pairs_get(&locks, key);

    if (strncmp(wanted, "@time", 5) != 0 || !value)
        return value && strcmp(value, wanted) == 0;
    value = strchr(value, ',');
    return strcmp(value ? value : "", wanted + 5) == 0;
}

static void compare(struct vector *vector, const struct server *server)
{
    yyjson_val *accept = yyjson_arr_get_first(yyjson_obj_get(vector->line, "accept"));
    yyjson_val *locks = yyjson_obj_get(accept, "locks"), *key, *value;
    size_t at, max;

    if (!vector_equal_number(vector, "bound", server->bound,
                             yyjson_get_bool(yyjson_obj_get(accept, "bound"))))
        return;
    vector_equal_number(vector, "locks", (int64_t)server->count, (int64_t)yyjson_obj_size(locks));
    yyjson_obj_foreach(locks, at, max, key, value)
    {
        if (!has_lock(server, yyjson_get_str(key), yyjson_get_str(value)))
            vector_fail(vector, "%s is not \"%s\"", yyjson_get_str(key), yyjson_get_str(value));
    }
}

static void check_bind(struct vector *vector)
{
    const char *failure = vector_text(vector->line, "api_failure");
    struct lock_set locks = {.count = 0};
    struct server server = {.vector = vector};

    read_locks(&server);
    server.refused = strcmp(failure, "binding") == 0;
    server.conflicts = strcmp(failure, "node-patch") == 0        ? UINT32_MAX
                       : strcmp(failure, "node-patch-once") == 0 ? 1
                                                                 : 0;
    if (find_locks(vector, &locks) < 0) {
        vector_fail(vector, "the pod can't be read");
        return;
    }
    if (locks.count)
        run_lock(&server, &locks);
    else
        server.bound = !server.refused;
    compare(vector, &server);
}

static bool is_served(const struct vendor_set *vendors, const char *resource)
{
    for (size_t i = 0; i < vendors->count; i++) {
        const char *const *names = vendors->instances[i].resources;

        for (size_t k = 0; k < VENDOR_MAX_RESOURCES && names[k]; k++) {
            if (strcmp(names[k], resource) == 0)
                return true;
        }
    }
    return false;
}

/* The pod asks for devices of a vendor that is not served. */
static bool is_foreign(const struct vector *vector)
{
    struct pod pod;

    if (pod_read(yyjson_obj_get(vector->line, "pod"), &vector->vendors->kept, vector->arena, &pod,
                 NULL) < 0)
        return false;
    for (size_t i = 0; i < pod.container_count; i++) {
        const struct resource_list *limits = &pod.containers[i].limits;

        for (size_t k = 0; k < limits->count; k++) {
            if (!is_served(vector->vendors, limits->items[k].name))
                return true;
        }
    }
    return false;
}

static const char *left_out(const struct vector *vector)
{
    if (vector_has_tag(vector, "missing"))
        return "without a pod or a node nothing is reserved, and no bind begins";
    if (strcmp(vector_text(vector->line, "api_failure"), "pod-patch") == 0)
        return "the pod is not patched, its annotations are the Binding's";
    return is_foreign(vector) ? "other vendors" : NULL;
}

const struct family bind_family = {
    .name = "bind",
    .check = check_bind,
    .left_out = left_out,
};
