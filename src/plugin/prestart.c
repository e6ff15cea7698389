/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/prestart.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/util.h"
#include "grpc/podresources.pb-c.h"
#include "plugin/give.h"
#include "plugin/holder.h"
#include "plugin/pick.h"

enum {
    LIST_TIMEOUT_MS = 5000,
    READ_TIMEOUT_MS = 5000,
    AGAIN_FIRST_MS = 20,
    AGAIN_MAX_MS = 640,
    CHECKPOINT_MAX = 16 << 20,
    ARENA_MAX = 4 << 20,
};

struct prestart {
    struct prestart *next, **link;
    struct plugin *plugin;
    struct grpc_call *call;
    uv_timer_t timer;
    int64_t deadline_ns;
    char **ids;
    size_t count;
    char name[SPEC_NAME_SIZE]; /* of the CDI device */
    const struct node_resource *resource;

    struct holder holder;
    struct grpc_request *listing;
    struct kube_request *reading;
    bool was_read; /* the pod was read from the API server since the last pause */
    unsigned pauses;
    struct error why; /* why the call waits */
};

static void ask_for_holder(struct prestart *prestart);
static void read_pod(struct prestart *prestart, const char *namespace, const char *name);
static void prestart_resolve(struct prestart *prestart);

/* Ends */

static void prestart_on_closed(uv_handle_t *handle)
{
    struct prestart *prestart = handle->data;

    for (size_t i = 0; prestart->ids && i < prestart->count; i++)
        free(prestart->ids[i]);
    free(prestart->ids);
    free(prestart);
}

static void prestart_drop(struct prestart *prestart)
{
    grpc_request_cancel(prestart->listing);
    kube_request_cancel(prestart->reading);
    prestart->listing = NULL;
    prestart->reading = NULL;
    *prestart->link = prestart->next;
    if (prestart->next)
        prestart->next->link = prestart->link;
    uv_close((uv_handle_t *)&prestart->timer, prestart_on_closed);
}

static void prestart_end(struct prestart *prestart, enum grpc_status status, const char *why)
{
    if (status != GRPC_OK)
        log_warn("a container of %s/%s%s%s may not start: %s",
                 prestart->holder.namespace[0] ? prestart->holder.namespace : "?",
                 prestart->holder.pod[0] ? prestart->holder.pod : "?",
                 prestart->holder.container[0] ? ", " : "", prestart->holder.container, why);
    kubelet_prestart_end(prestart->call, status, why);
    prestart_drop(prestart);
}

/* Tries again with what may be known by now. */
static void on_again(uv_timer_t *timer)
{
    struct prestart *prestart = timer->data;

    if (prestart->holder.uid[0] || prestart->holder.pod[0])
        prestart_resolve(prestart);
    else
        ask_for_holder(prestart);
}

static void prestart_again(struct prestart *prestart, const char *why)
{
    (void)error_set(&prestart->why, 0, "%s", why);
    if (clock_now_ns() >= prestart->deadline_ns) {
        prestart_end(prestart, GRPC_UNAVAILABLE, prestart->why.text);
        return;
    }
    prestart->was_read = false;
    (void)uv_timer_start(&prestart->timer, on_again,
                         backoff_ms(prestart->pauses++, AGAIN_FIRST_MS, AGAIN_MAX_MS), 0);
}

/* Cards that kubelet gave out by their own ids */

/* As if an annotation had given the container what its ids name, whole. */
static int grant_ids(const struct prestart *prestart, size_t index, struct arena *arena,
                     struct pod_devices *ret_devices, struct error *err)
{
    struct container_devices *containers = ARENA_ARRAY(arena, struct container_devices, index + 1);
    struct container_device *items = ARENA_ARRAY(arena, struct container_device, prestart->count);

    if (!containers || !items)
        return error_set(err, -ENOMEM, "no memory");
    for (size_t i = 0; i <= index; i++)
        containers[i] = (struct container_devices){.count = 0};
    for (size_t i = 0; i < prestart->count; i++) {
        const struct card *card = cards_get(&prestart->plugin->cards, prestart->ids[i]);

        if (!card)
            return error_set(err, -ENODEV, "%.96s is not here any more", prestart->ids[i]);
        items[i] =
            (struct container_device){.uuid = card->uuid, .memory_mib = (int32_t)card->memory_mib};
    }
    containers[index].count = prestart->count;
    containers[index].items = items;
    *ret_devices = (struct pod_devices){.count = index + 1, .containers = containers};
    return 0;
}

/* One container has one set of limits, and so devices of one resource. */
static int check_alone(const struct prestart *prestart, const struct node_pod *pod, size_t index,
                       struct arena *arena, struct error *err)
{
    const struct pod_container *container = &pod->containers[index];
    struct pod_devices devices = {.count = 0};
    bool is_given = false;

    if (pod->allocated[0] && pod_grants(pod, arena, &devices, NULL) == 0)
        is_given = index < devices.count && devices.containers[index].count;
    if (is_given || (container->cdi_name[0] && strcmp(container->cdi_name, prestart->name) != 0))
        return error_set(err, -EINVAL,
                         "container %s asks for %s and for another kind of device as well; a "
                         "container may have one of them",
                         container->name, prestart->resource->name);
    return 0;
}

static int start_with_ids(struct prestart *prestart, struct node_pod *pod, struct error *err)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_MAX);
    const struct giving giving = {
        .plugin = prestart->plugin, .resource = prestart->resource, .name = prestart->name};
    struct pod_devices devices;
    size_t index = 0;
    int r;

    if (!arena)
        return error_set(err, -ENOMEM, "no memory");
    while (index < pod->container_count &&
           strcmp(pod->containers[index].name, prestart->holder.container) != 0)
        index++;
    if (index == pod->container_count)
        return error_set(err, -EINVAL, "which container is to start is not known");
    r = check_alone(prestart, pod, index, arena, err);
    if (r == 0)
        r = grant_ids(prestart, index, arena, &devices, err);
    return r < 0 ? r : give_devices(&giving, pod, index, &devices, arena, err);
}

/* Of a plain init container kubelet's API does not tell: it is a later container's holder, or none.
 * Then the first init container stands for it: all get the same. */
static void name_container(const struct node_pod *pod, struct holder *holder)
{
    if (!holder->container[0] && pod->container_count)
        COPY_TEXT(holder->container, pod->containers[0].name);
}

static void resolve_ids(struct prestart *prestart, struct node_pod *pod)
{
    struct holder *holder = &prestart->holder;
    struct error err = ERROR_INIT;
    int r;

    if (!pod && !prestart->was_read && prestart->plugin->listed && holder->pod[0]) {
        read_pod(prestart, holder->namespace, holder->pod);
        return;
    }
    if (!pod) {
        prestart_again(prestart, "the pod is not known here yet");
        return;
    }
    COPY_TEXT(holder->namespace, pod->namespace);
    COPY_TEXT(holder->pod, pod->name);
    name_container(pod, holder);
    r = start_with_ids(prestart, pod, &err);
    prestart_end(prestart, r < 0 ? GRPC_FAILED_PRECONDITION : GRPC_OK, r < 0 ? err.text : NULL);
}

/* Which pod, which container */

static void on_pod_read(void *data, const struct kube_answer *answer)
{
    struct prestart *prestart = data;
    struct error err = ERROR_INIT;
    struct node_pod *pod;
    yyjson_doc *doc;

    prestart->reading = NULL;
    if (!kube_answer_ok(answer)) {
        (void)error_set(&err, 0, "the pod can't be read: %s", answer->why);
        prestart_again(prestart, err.text);
        return;
    }
    doc = yyjson_read(answer->body, answer->len, 0);
    prestart->was_read = true;
    if (pods_put(prestart->plugin->pods, yyjson_doc_get_root(doc), false, &pod, &err) < 0) {
        prestart_end(prestart, GRPC_FAILED_PRECONDITION, err.text);
    } else {
        plugin_say_altered(prestart->plugin, pod);
        prestart_resolve(prestart);
    }
    yyjson_doc_free(doc);
}

/* Reads the pod from the API server: the watch has not shown it, or is behind. */
static void read_pod(struct prestart *prestart, const char *namespace, const char *name)
{
    char path[KUBE_PATH_SIZE];
    const struct kube_call call = {
        .method = KUBE_GET,
        .path = kube_pod_path(namespace, name, "", path),
        .timeout_ms = READ_TIMEOUT_MS,
    };
    int r = -EINVAL;

    if (call.path)
        r = kube_request(prestart->plugin->kube, &call, on_pod_read, prestart, &prestart->reading);
    if (r < 0)
        prestart_end(prestart, GRPC_INTERNAL, strerror(-r));
}

static struct node_pod *find_pod(const struct prestart *prestart)
{
    struct pods *pods = prestart->plugin->pods;

    if (prestart->holder.uid[0])
        return pods_find(pods, prestart->holder.uid);
    return pods_find_name(pods, prestart->holder.namespace, prestart->holder.pod);
}

/* A container of another pod that was handed these ids without CDI. */
struct owner {
    const struct prestart *prestart;
    const struct node_pod *but;
    const struct node_pod *found;
};

static void look_for_owner(void *data, struct node_pod *pod)
{
    struct owner *owner = data;

    for (size_t i = 0; i < pod->container_count && pod != owner->but && !pod->over; i++) {
        if (pod->containers[i].ordered &&
            strcmp(pod->containers[i].cdi_name, owner->prestart->name) == 0)
            owner->found = pod;
    }
}

/*
 * kubelet has the answer of Allocate, which may have been meant for another container: this one
 * starts only if it was its own, or named a CDI device. -EAGAIN: the other container's pod may be
 * gone by now.
 */
static int check_way(const struct prestart *prestart, struct node_pod *pod, size_t index,
                     struct error *err)
{
    const struct pod_container *container = &pod->containers[index];
    struct owner owner = {.prestart = prestart, .but = pod};

    if (container->ordered && strcmp(container->cdi_name, prestart->name) == 0)
        return 0;
    pods_each(prestart->plugin->pods, look_for_owner, &owner);
    if (owner.found)
        return error_set(err, way_is_late(prestart->plugin->way) ? -EAGAIN : -EINVAL,
                         "its allocation was taken for one of %s/%s: it does not start with "
                         "another pod's devices; delete it",
                         owner.found->namespace, owner.found->name);
    if (!way_is_late(prestart->plugin->way))
        return error_set(err, -EINVAL,
                         "container %s was not handed these devices by Allocate, and CDI devices "
                         "do not reach containers here: delete the pod",
                         container->name);
    return 0;
}

/* Handed over without CDI: the files are made anew, and the rest is as Allocate answered it. */
static int give_again(const struct prestart *prestart, struct node_pod *pod, size_t index,
                      const struct pod_devices *devices, struct arena *arena, struct error *err)
{
    CLEANUP(spec_edits_deinit) struct spec_edits edits = SPEC_EDITS_INIT;
    const struct giving giving = {
        .plugin = prestart->plugin,
        .resource = prestart->resource,
        .name = prestart->name,
        .laid_out = &edits,
        .again = true,
    };

    return give_devices(&giving, pod, index, devices, arena, err);
}

static int give_once(const struct prestart *prestart, struct node_pod *pod, size_t index,
                     const struct pod_devices *devices, struct arena *arena, struct error *err)
{
    const struct giving giving = {
        .plugin = prestart->plugin, .resource = prestart->resource, .name = prestart->name};
    int r = check_way(prestart, pod, index, err);

    if (r < 0)
        return r;
    if (pod->containers[index].ordered &&
        strcmp(pod->containers[index].cdi_name, prestart->name) == 0)
        return give_again(prestart, pod, index, devices, arena, err);
    return give_devices(&giving, pod, index, devices, arena, err);
}

/*
 * An init container was handed its devices, and whether it has run since can't be told: its start
 * may have been cut short. Where the status stays as it is kubelet is refused, and names in it the
 * container that was to start, with our number (pick.h).
 */
static void prestart_in_doubt(struct prestart *prestart, struct node_pod *pod)
{
    struct error why = ERROR_INIT;

    while (!pod->refusal)
        if (getrandom(&pod->refusal, sizeof(pod->refusal), 0) < 0)
            pod->refusal = (uint32_t)clock_now_ns();
    (void)error_set(&why, 0,
                    "the pod's status does not tell which of its init containers is to start "
                    "(" POD_REFUSAL_WORD "%08x)",
                    pod->refusal);
    prestart_again(prestart, why.text);
}

static void start_container(struct prestart *prestart, struct node_pod *pod)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_MAX);
    const char *holder = prestart->holder.container[0] ? prestart->holder.container : NULL;
    struct error err = ERROR_INIT;
    struct pod_devices devices;
    size_t index;
    int r;

    if (!arena) {
        prestart_end(prestart, GRPC_RESOURCE_EXHAUSTED, "no memory");
        return;
    }
    r = pod_grants(pod, arena, &devices, &err);
    if (r == 0)
        r = pick_container(pod, &devices, prestart->count, holder, &index, &err);
    if (r == PICK_BEHIND && !prestart->was_read) {
        read_pod(prestart, pod->namespace, pod->name);
        return;
    }
    if (r == PICK_BEHIND) {
        prestart_in_doubt(prestart, pod);
        return;
    }
    if (r == PICK_FOUND) {
        COPY_TEXT(prestart->holder.container, pod->containers[index].name);
        pod->containers[index].starting = true;
        plugin_parts_update(prestart->plugin);
        r = give_once(prestart, pod, index, &devices, arena, &err);
        if (r == -EAGAIN) {
            prestart_again(prestart, err.text);
            return;
        }
        pod->containers[index].starting = false;
        if (r < 0)
            plugin_parts_update(prestart->plugin);
    }
    if (r < 0) {
        prestart_end(prestart, GRPC_FAILED_PRECONDITION, err.text);
        return;
    }
    /* For a pod that is known from our own record only, it is not known which phase its annotation
     * has. */
    if (prestart->plugin->listed)
        plugin_phase_check(prestart->plugin, pod);
    prestart_end(prestart, GRPC_OK, NULL);
}

/*
 * Before the API server has answered: all pods that have devices are known from the disk, and
 * kubelet says by the uid which one it is.
 */
static bool is_adopted(const struct prestart *prestart, const struct node_pod *pod)
{
    return pod && prestart->holder.uid[0] && pod->allocated[0] && pod_holds_devices(pod);
}

static void prestart_resolve(struct prestart *prestart)
{
    struct holder *holder = &prestart->holder;
    struct node_pod *pod;

    plugin_pods_leave(prestart->plugin);
    pod = find_pod(prestart);
    if (prestart->resource->is_direct) {
        resolve_ids(prestart, pod);
        return;
    }
    if (!prestart->plugin->listed && !is_adopted(prestart, pod)) {
        prestart_again(prestart, "this node's pods could not be listed yet");
        return;
    }
    if (pod && pod->allocated[0]) {
        COPY_TEXT(holder->namespace, pod->namespace);
        COPY_TEXT(holder->pod, pod->name);
        start_container(prestart, pod);
        return;
    }
    if (prestart->was_read && pod) {
        prestart_end(
            prestart, GRPC_FAILED_PRECONDITION,
            "the scheduler gave this pod nothing here; it must be scheduled by hami-scheduler");
        return;
    }
    if (!prestart->was_read && (pod || holder->pod[0]))
        read_pod(prestart, pod ? pod->namespace : holder->namespace, pod ? pod->name : holder->pod);
    else
        prestart_again(prestart, "the pod is not known here yet");
}

/* Finds the pod's uid, since an earlier pod may have had the same name. */
static void read_checkpoint(struct prestart *prestart)
{
    const struct plugin_options *options = prestart->plugin->options;
    const char *slash = strrchr(options->kubelet_socket, '/');
    AUTOFREE char *text = NULL;
    char path[PATH_MAX];
    struct stat st;
    ssize_t len;
    int n;

    n = snprintf(path, sizeof(path), "%.*s/kubelet_internal_checkpoint",
                 (int)(slash - options->kubelet_socket), options->kubelet_socket);
    if (n < 0 || (size_t)n >= sizeof(path) || file_stat(path, &st) < 0 ||
        st.st_size > CHECKPOINT_MAX)
        return;
    text = malloc((size_t)st.st_size + 4096);
    len = text ? file_read(path, text, (size_t)st.st_size + 4096) : -ENOMEM;
    if (len < 0 || holder_of_checkpoint(text, (size_t)len, prestart->resource->name,
                                        (const char *const *)prestart->ids, prestart->count,
                                        &prestart->holder) < 0)
        log_debug("%s can't be read; going by the pods' names", path);
}

static void on_pod_resources(void *data, const struct grpc_answer *answer)
{
    struct prestart *prestart = data;
    char why[sizeof(prestart->why.text)];
    int r;

    prestart->listing = NULL;
    if (answer->error || answer->status != GRPC_OK) {
        (void)snprintf(why, sizeof(why), "kubelet does not list its pods' devices: %s",
                       answer->why);
        prestart_again(prestart, why);
        return;
    }
    r = holder_of_list(answer->message, answer->len, prestart->resource->name,
                       (const char *const *)prestart->ids, prestart->count, &prestart->holder);
    if (r < 0) {
        prestart_end(prestart, GRPC_INTERNAL, "kubelet's list of its pods' devices can't be read");
        return;
    }
    read_checkpoint(prestart);
    if (r == HOLDER_NONE && !prestart->holder.uid[0])
        prestart_again(prestart, "kubelet names no pod for these devices");
    else
        prestart_resolve(prestart);
}

static void ask_for_holder(struct prestart *prestart)
{
    Podresources__V1__ListPodResourcesRequest request =
        PODRESOURCES__V1__LIST_POD_RESOURCES_REQUEST__INIT;
    int r;

    r = grpc_request(prestart->plugin->loop, prestart->plugin->options->pod_resources_socket,
                     "/v1.PodResourcesLister/List", &request.base, LIST_TIMEOUT_MS,
                     on_pod_resources, prestart, &prestart->listing);
    if (r < 0)
        prestart_end(prestart, GRPC_INTERNAL, strerror(-r));
}

static int copy_ids(struct prestart *prestart, const char *const *ids, size_t count)
{
    prestart->ids = calloc(count + 1, sizeof(*prestart->ids));
    if (!prestart->ids)
        return -ENOMEM;
    prestart->count = count;
    for (size_t i = 0; i < count; i++) {
        prestart->ids[i] = strdup(ids[i]);
        if (!prestart->ids[i])
            return -ENOMEM;
    }
    return 0;
}

void prestart_begin(struct plugin *plugin, const struct node_resource *resource,
                    struct grpc_call *call, const char *const *ids, size_t count)
{
    struct prestart *prestart = calloc(1, sizeof(*prestart));

    if (!prestart) {
        kubelet_prestart_end(call, GRPC_RESOURCE_EXHAUSTED, "no memory");
        return;
    }
    prestart->plugin = plugin;
    prestart->resource = resource;
    prestart->call = call;
    prestart->deadline_ns = clock_now_ns() + PRESTART_TIMEOUT_MS * NS_PER_MS;
    prestart->next = plugin->prestarts;
    prestart->link = &plugin->prestarts;
    if (prestart->next)
        prestart->next->link = &prestart->next;
    plugin->prestarts = prestart;
    (void)uv_timer_init(plugin->loop, &prestart->timer);
    prestart->timer.data = prestart;
    spec_device_name(ids, count, prestart->name);
    if (copy_ids(prestart, ids, count) < 0)
        prestart_end(prestart, GRPC_RESOURCE_EXHAUSTED, "no memory");
    else
        ask_for_holder(prestart);
}

void prestart_gone(struct plugin *plugin, struct grpc_call *call)
{
    for (struct prestart *it = plugin->prestarts; it; it = it->next) {
        if (it->call == call) {
            prestart_drop(it);
            return;
        }
    }
}

void prestart_stop(struct plugin *plugin)
{
    while (plugin->prestarts)
        prestart_end(plugin->prestarts, GRPC_UNAVAILABLE, "the device plugin is ending");
}
