/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/pods.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/parse.h"
#include "base/util.h"
#include "model/keys.h"
#include "model/pod.h"

enum {
    ARENA_MAX = 4 << 20,
    PRIORITY_MAX = 1000, /* as the limits file takes it */
};

struct entry {
    struct node_pod pod; /* first */
    UT_hash_handle hh;   /* by pod.uid */
};

struct pods {
    char *node, *priority_name;
    const struct node_vendor *vendor;
    unsigned list; /* counts lists; pods of an older one are gone once this one is complete */
    struct entry *entries;
};

static void pod_clear(struct node_pod *pod)
{
    for (size_t i = 0; i < pod->container_count; i++)
        free(pod->containers[i].name);
    free(pod->containers);
    free(pod->namespace);
    free(pod->name);
    free(pod->uid);
    free(pod->allocated);
    free(pod->parts_told);
}

static void entry_free(struct entry *entry)
{
    if (!entry)
        return;
    pod_clear(&entry->pod);
    free(entry);
}
DEFINE_CLEANUP(struct entry *, entry_free);

struct pods *pods_new(const char *node, const struct node_vendor *vendor, const char *priority_name)
{
    CLEANUP(pods_freep) struct pods *pods = calloc(1, sizeof(*pods));

    if (!pods)
        return NULL;
    pods->node = strdup(node);
    pods->priority_name = strdup(priority_name);
    pods->vendor = vendor;
    return pods->node && pods->priority_name ? TAKE(pods) : NULL;
}

static void entry_remove(struct pods *pods, struct entry *entry)
{
    HASH_DEL(pods->entries, entry);
    entry_free(entry);
}

void pods_free(struct pods *pods)
{
    struct entry *entry, *next;

    if (!pods)
        return;
    HASH_ITER(hh, pods->entries, entry, next)
    {
        entry_remove(pods, entry);
    }
    free(pods->node);
    free(pods->priority_name);
    free(pods);
}

static struct entry *entry_find(struct pods *pods, const char *uid)
{
    struct entry *entry;

    HASH_FIND_STR(pods->entries, uid, entry);
    return entry;
}

struct node_pod *pods_find(struct pods *pods, const char *uid)
{
    struct entry *entry = entry_find(pods, uid);

    return entry ? &entry->pod : NULL;
}

struct node_pod *pods_find_name(struct pods *pods, const char *namespace, const char *name)
{
    struct node_pod *found = NULL;
    struct entry *entry, *next;

    HASH_ITER(hh, pods->entries, entry, next)
    {
        struct node_pod *pod = &entry->pod;

        if (strcmp(pod->name, name) != 0 || strcmp(pod->namespace, namespace) != 0)
            continue;
        if (!pod->over && !pod->deleting && !pod->leaving)
            return pod;
        found = pod;
    }
    return found;
}

struct pod_container *pod_container_find(struct node_pod *pod, const char *name)
{
    for (size_t i = 0; i < pod->container_count; i++) {
        if (strcmp(pod->containers[i].name, name) == 0)
            return &pod->containers[i];
    }
    return NULL;
}

/* Reading */

static enum init_state read_state(yyjson_val *status)
{
    yyjson_val *state = yyjson_obj_get(status, "state");
    yyjson_val *terminated = yyjson_obj_get(state, "terminated");
    bool restarted = yyjson_get_uint(yyjson_obj_get(status, "restartCount")) > 0;

    if (yyjson_is_obj(terminated))
        return yyjson_get_int(yyjson_obj_get(terminated, "exitCode")) == 0 ? INIT_DONE
                                                                           : INIT_FAILED;
    if (yyjson_is_obj(yyjson_obj_get(state, "running")))
        return INIT_RUNNING;
    return yyjson_is_obj(yyjson_obj_get(state, "waiting")) && restarted ? INIT_FAILED
                                                                        : INIT_UNKNOWN;
}

static uint64_t read_ended(yyjson_val *status)
{
    static const char *const members[] = {"state", "lastState"};

    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        yyjson_val *terminated = yyjson_obj_get(yyjson_obj_get(status, members[i]), "terminated");
        yyjson_val *id = yyjson_obj_get(terminated, "containerID");

        if (yyjson_is_str(id))
            return hash_bytes(yyjson_get_str(id), yyjson_get_len(id));
    }
    return 0;
}

static uint32_t read_refusal(yyjson_val *status)
{
    yyjson_val *waiting = yyjson_obj_get(yyjson_obj_get(status, "state"), "waiting");
    const char *message = yyjson_get_str(yyjson_obj_get(waiting, "message"));
    const char *at = message ? strstr(message, POD_REFUSAL_WORD) : NULL;

    return at ? (uint32_t)strtoul(at + strlen(POD_REFUSAL_WORD), NULL, 16) : 0;
}

static void read_statuses(yyjson_val *statuses, bool are_inits, struct node_pod *pod)
{
    struct pod_container *container;
    size_t index, max;
    yyjson_val *status;

    yyjson_arr_foreach(statuses, index, max, status)
    {
        const char *name = yyjson_get_str(yyjson_obj_get(status, "name"));

        container = name ? pod_container_find(pod, name) : NULL;
        if (!container)
            continue;
        if (are_inits)
            container->state = read_state(status);
        container->ended = read_ended(status);
        container->refusal = read_refusal(status);
    }
}

static void read_states(yyjson_val *object, struct node_pod *pod)
{
    yyjson_val *status = yyjson_obj_get(object, "status");

    read_statuses(yyjson_obj_get(status, "initContainerStatuses"), true, pod);
    read_statuses(yyjson_obj_get(status, "containerStatuses"), false, pod);
}

/*
 * Read from the resource alone: the variable that admission makes of it could be the user's own.
 */
static int read_priority(const struct container *container, const char *name)
{
    const struct resource *priority = *name ? resource_find(&container->limits, name) : NULL;

    if (!priority || priority->quantity.form != QUANTITY_WHOLE || priority->quantity.value < 0 ||
        priority->quantity.value > PRIORITY_MAX)
        return -1;
    return (int)priority->quantity.value;
}

static int copy_containers(struct node_pod *pod, const struct pod *from, const char *priority_name)
{
    pod->containers = calloc(from->container_count + 1, sizeof(*pod->containers));
    if (!pod->containers)
        return -ENOMEM;
    for (size_t i = 0; i < from->container_count; i++) {
        pod->containers[i].name = strdup(from->containers[i].name);
        pod->containers[i].role = from->containers[i].role;
        pod->containers[i].priority = read_priority(&from->containers[i], priority_name);
        if (!pod->containers[i].name)
            return -ENOMEM;
        pod->container_count++;
    }
    return 0;
}

static const char *annotation_of(const struct pod *pod, const char *key)
{
    const char *value = text_pairs_get(&pod->annotations, key);

    return value ? value : "";
}

static char *copy_grant(const struct pod *from, bool is_ours, const struct node_vendor *vendor)
{
    const char *grant = is_ours ? annotation_of(from, vendor->allocated_key) : "";
    const char *parts =
        vendor->parts_key ? text_pairs_get(&from->annotations, vendor->parts_key) : NULL;

    return parts && grant[0] ? vendor->name_parts(grant, parts) : strdup(grant);
}

static int copy_pod(struct node_pod *pod, const struct pod *from, const struct pods *pods)
{
    const char *node = pods->node;
    bool ours = strcmp(annotation_of(from, KEY_NODE), node) == 0;
    const char *label = text_pairs_get(&from->labels, KEY_NODE);

    pod->namespace = strdup(from->namespace);
    pod->name = strdup(from->name);
    pod->uid = strdup(from->uid);
    pod->allocated = copy_grant(from, ours, pods->vendor);
    pod->allocated_key = pods->vendor->allocated_key;
    if (!pod->namespace || !pod->name || !pod->uid || !pod->allocated)
        return -ENOMEM;
    pod->to_allocate = strchr(annotation_of(from, pods->vendor->to_allocate_key), ',') != NULL;
    pod->labelled = label && strcmp(label, node) == 0;
    pod->phase_success = strcmp(annotation_of(from, KEY_BIND_PHASE), BIND_PHASE_SUCCESS) == 0;
    pod->allocating = strcmp(annotation_of(from, KEY_BIND_PHASE), BIND_PHASE_ALLOCATING) == 0;
    pod->phase_failed = strcmp(annotation_of(from, KEY_BIND_PHASE), BIND_PHASE_FAILED) == 0;
    pod->over = pod_is_over(from);
    pod->deleting = from->deleting;
    return copy_containers(pod, from, pods->priority_name);
}

static bool names_devices(const struct node_pod *pod)
{
    CLEANUP(arena_freep) struct arena *arena = pod->allocated[0] ? arena_new(ARENA_MAX) : NULL;
    struct pod_devices devices;
    size_t count = 0;

    if (!arena || pod_grants(pod, arena, &devices, NULL) < 0)
        return false;
    for (size_t i = 0; i < devices.count; i++)
        count += devices.containers[i].count;
    return count > 0;
}

/* Takes allocated. */
static void keep_first(struct node_pod *pod, char *allocated)
{
    pod->altered = strcmp(pod->allocated, allocated) != 0;
    free(pod->allocated);
    pod->allocated = allocated;
    pod->final = true;
}

int pod_keep(struct node_pod *pod, const char *allocated)
{
    struct node_pod kept = {.container_count = pod->container_count};
    AUTOFREE char *text = strdup(allocated);

    if (!text)
        return -ENOMEM;
    kept.allocated = text;
    if (names_devices(&kept))
        keep_first(pod, TAKE(text));
    return 0;
}

void pod_container_adopt(struct pod_container *container)
{
    container->ready = container->adopted = true;
    container->ended_before = container->ended;
}

/* Keeps what is known from earlier readings of the pod. */
static void pod_inherit(struct node_pod *pod, struct node_pod *before)
{
    pod->confirmed |= before->confirmed;
    pod->refusal = before->refusal;
    pod->turns = before->turns;
    pod->parts_told = TAKE(before->parts_told);
    if (before->final) {
        keep_first(pod, TAKE(before->allocated));
        pod->altered_said = pod->altered && before->altered_said;
    }
    for (size_t i = 0; i < pod->container_count; i++) {
        struct pod_container *container = &pod->containers[i];
        const struct pod_container *old = pod_container_find(before, container->name);

        if (!old)
            continue;
        container->ready = old->ready;
        container->ended_before = old->adopted ? container->ended : old->ended_before;
        container->starting = old->starting;
        container->turn = old->turn;
        container->ordered = old->ordered;
        container->started = old->started;
        COPY_TEXT(container->cdi_name, old->cdi_name);
    }
}

/* Whether another vendor's annotation of the kind still names devices. */
static bool others_allocate(yyjson_val *object, const char *own_key)
{
    static const char suffix[] = "-devices-to-allocate";
    yyjson_val *annotations = yyjson_obj_get(yyjson_obj_get(object, "metadata"), "annotations");
    yyjson_val *key, *value;
    size_t index, max;

    yyjson_obj_foreach(annotations, index, max, key, value)
    {
        const char *name = yyjson_get_str(key), *text = yyjson_get_str(value);
        size_t len = yyjson_get_len(key);

        if (text && strchr(text, ',') && strcmp(name, own_key) != 0 && len >= sizeof(suffix) &&
            strcmp(name + len - strlen(suffix), suffix) == 0)
            return true;
    }
    return false;
}

static int entry_read(struct pods *pods, yyjson_val *object, struct entry **ret_entry,
                      struct error *err)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_MAX);
    CLEANUP(entry_freep) struct entry *entry = calloc(1, sizeof(*entry));
    const struct kept_names kept = {
        .annotations = {pods->vendor->allocated_key, pods->vendor->to_allocate_key},
        .annotation_count = 2,
    };
    struct pod pod;
    int r;

    if (!arena || !entry)
        return error_set(err, -ENOMEM, "no memory");
    r = pod_read(object, &kept, arena, &pod, err);
    if (r < 0)
        return r;
    if (!pod.uid[0] || !pod.name[0] || !pod.has_spec)
        return error_set(err, -EINVAL, "a pod without uid, name or spec");
    r = copy_pod(&entry->pod, &pod, pods);
    if (r < 0)
        return error_set(err, r, "no memory");
    entry->pod.others_allocate = others_allocate(object, pods->vendor->to_allocate_key);
    read_states(object, &entry->pod);
    *ret_entry = TAKE(entry);
    return 0;
}

int pods_put(struct pods *pods, yyjson_val *object, bool from_watch, struct node_pod **ret_pod,
             struct error *err)
{
    struct entry *entry = NULL, *before;
    int r;

    r = entry_read(pods, object, &entry, err);
    if (r < 0)
        return r;
    entry->pod.confirmed = from_watch;
    entry->pod.list = pods->list;
    before = entry_find(pods, entry->pod.uid);
    if (before) {
        pod_inherit(&entry->pod, &before->pod);
        entry_remove(pods, before);
    }
    entry->pod.final = entry->pod.final || names_devices(&entry->pod);
    HASH_ADD_KEYPTR(hh, pods->entries, entry->pod.uid, strlen(entry->pod.uid), entry);
    if (ret_pod)
        *ret_pod = &entry->pod;
    return 0;
}

/* Records */

static void add_member(struct strbuf *record, const char *key, const char *text)
{
    strbuf_addf(record, "\"%s\":", key);
    strbuf_add_json(record, text);
}

static void record_container(const struct pods *pods, const struct pod_container *container,
                             struct strbuf *record)
{
    strbuf_add(record, "{");
    add_member(record, "name", container->name);
    if (container->role == CONTAINER_SIDECAR)
        strbuf_add(record, ",\"restartPolicy\":\"Always\"");
    if (container->priority >= 0) {
        strbuf_add(record, ",\"resources\":{\"limits\":{");
        strbuf_add_json(record, pods->priority_name);
        strbuf_addf(record, ":\"%d\"}}", container->priority);
    }
    strbuf_add(record, "}");
}

static bool is_init(const struct pod_container *container)
{
    return container->role == CONTAINER_INIT || container->role == CONTAINER_SIDECAR;
}

static void record_containers(const struct pods *pods, const struct node_pod *pod, bool init,
                              struct strbuf *record)
{
    const char *separator = "";

    strbuf_add(record, init ? ",\"initContainers\":[" : ",\"containers\":[");
    for (size_t i = 0; i < pod->container_count; i++) {
        if (is_init(&pod->containers[i]) != init)
            continue;
        strbuf_add(record, separator);
        record_container(pods, &pod->containers[i], record);
        separator = ",";
    }
    strbuf_add(record, "]");
}

static void record_states(const struct node_pod *pod, struct strbuf *record)
{
    const char *separator = "";

    strbuf_add(record, ",\"status\":{\"initContainerStatuses\":[");
    for (size_t i = 0; i < pod->container_count; i++) {
        if (pod->containers[i].state != INIT_DONE)
            continue;
        strbuf_add(record, separator);
        strbuf_add(record, "{");
        add_member(record, "name", pod->containers[i].name);
        strbuf_add(record, ",\"state\":{\"terminated\":{\"exitCode\":0}}}");
        separator = ",";
    }
    strbuf_add(record, "]}");
}

void pods_record(const struct pods *pods, const struct node_pod *pod, struct strbuf *record)
{
    strbuf_add(record, "{\"metadata\":{");
    add_member(record, "namespace", pod->namespace);
    strbuf_add(record, ",");
    add_member(record, "name", pod->name);
    strbuf_add(record, ",");
    add_member(record, "uid", pod->uid);
    strbuf_add(record, ",\"annotations\":{");
    add_member(record, KEY_NODE, pods->node);
    strbuf_add(record, ",");
    add_member(record, pods->vendor->allocated_key, pod->allocated);
    strbuf_add(record, "}},\"spec\":{");
    add_member(record, "nodeName", pods->node);
    record_containers(pods, pod, true, record);
    record_containers(pods, pod, false, record);
    strbuf_add(record, "}");
    record_states(pod, record);
    strbuf_add(record, "}\n");
}

int pods_adopt(struct pods *pods, yyjson_val *record, struct error *err)
{
    const char *uid = yyjson_get_str(yyjson_obj_get(yyjson_obj_get(record, "metadata"), "uid"));
    CLEANUP(entry_freep) struct entry *again = NULL;
    struct entry *known = uid ? entry_find(pods, uid) : NULL;
    int r;

    if (!known)
        return pods_put(pods, record, false, NULL, err);
    r = entry_read(pods, record, &again, err);
    for (size_t i = 0; r == 0 && i < again->pod.container_count; i++) {
        const struct pod_container *container = &again->pod.containers[i];
        struct pod_container *old = pod_container_find(&known->pod, container->name);

        if (old && container->state == INIT_DONE)
            old->state = INIT_DONE;
    }
    return r;
}

void pods_touch(struct pods *pods, const char *uid)
{
    struct entry *entry = entry_find(pods, uid);

    if (!entry)
        return;
    entry->pod.list = pods->list;
    entry->pod.confirmed = true;
}

void pods_remove(struct pods *pods, const char *uid)
{
    struct entry *entry = entry_find(pods, uid);

    if (entry)
        entry_remove(pods, entry);
}

void pods_begin(struct pods *pods)
{
    pods->list++;
}

void pods_complete(struct pods *pods, void (*gone)(void *data, struct node_pod *pod), void *data)
{
    struct entry *entry, *next;

    HASH_ITER(hh, pods->entries, entry, next)
    {
        /* A pod that was read by a GET since this list began may be younger than the list. */
        if (entry->pod.list == pods->list || entry->pod.leaving)
            continue;
        gone(data, &entry->pod);
        if (!entry->pod.leaving)
            entry_remove(pods, entry);
    }
}

void pods_expire(struct pods *pods, unsigned age, void (*gone)(void *data, struct node_pod *pod),
                 void *data)
{
    struct entry *entry, *next;

    HASH_ITER(hh, pods->entries, entry, next)
    {
        if (entry->pod.confirmed || entry->pod.leaving || ++entry->pod.age < age)
            continue;
        gone(data, &entry->pod);
        if (!entry->pod.leaving)
            entry_remove(pods, entry);
    }
}

void pods_leave(struct pods *pods, bool (*has_left)(void *data, struct node_pod *pod), void *data)
{
    struct entry *entry, *next;

    HASH_ITER(hh, pods->entries, entry, next)
    {
        if (entry->pod.leaving && has_left(data, &entry->pod))
            entry_remove(pods, entry);
    }
}

void pods_each(struct pods *pods, void (*fn)(void *data, struct node_pod *pod), void *data)
{
    struct entry *entry, *next;

    HASH_ITER(hh, pods->entries, entry, next)
    {
        fn(data, &entry->pod);
    }
}

int pod_grants(const struct node_pod *pod, struct arena *arena, struct pod_devices *ret_devices,
               struct error *err)
{
    int r = pod_devices_decode(pod->allocated, arena, ret_devices, err);

    if (r < 0)
        return error_wrap(err, r, "%s", pod->allocated_key);
    if (r == CODEC_MENDED)
        return error_wrap(err, -EINVAL, "%s", pod->allocated_key);
    if (ret_devices->count > pod->container_count)
        ret_devices->count = pod->container_count; /* empty ones at the end, in HAMi's */
    return 0;
}

bool pod_is_ready(const struct node_pod *pod, const struct pod_devices *devices)
{
    for (size_t i = 0; i < devices->count; i++) {
        const struct pod_container *container = &pod->containers[i];

        if (devices->containers[i].count && !container->ready && container->state != INIT_DONE)
            return false;
    }
    return devices->count > 0;
}

bool pod_holds_devices(const struct node_pod *pod)
{
    for (size_t i = 0; i < pod->container_count; i++) {
        if (pod->containers[i].ready)
            return !pod->over;
    }
    return false;
}
