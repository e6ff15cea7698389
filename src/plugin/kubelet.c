/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/kubelet.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/backoff.h"
#include "base/file.h"
#include "base/log.h"
#include "base/util.h"
#include "grpc/deviceplugin.pb-c.h"
#include "node/spec.h"
#include "plugin/handover.h"
#include "plugin/holder.h"

enum {
    CHECKPOINT_MAX = 16 << 20,
    STREAMS_MAX = 16,
    LOOK_MS = 2000, /* a change that the folder's events miss is seen by then */
    REGISTER_TIMEOUT_MS = 5000,
    RETRY_FIRST_MS = 100,
    RETRY_MAX_MS = 5000,
    DROPPED_MS = 5,    /* from the loss of the last listener to registering again */
    SILENCE_LOOKS = 2, /* without a listener, after which we register again */
};

/* Any key of this prefix is read by the runtime. */
#define CDI_ANNOTATION "cdi.k8s.io/hami-device-plugin"

struct kubelet {
    uv_loop_t *loop;
    struct kubelet_config config;
    const struct kubelet_ops *ops;
    void *data;
    char folder[PATH_MAX], path[PATH_MAX]; /* of our socket */

    char handover_path[PATH_MAX + 16];
    struct handover *handover;

    struct grpc_server *server;
    struct grpc_call *streams[STREAMS_MAX]; /* calls that listen to the list */
    size_t stream_count;

    uv_fs_event_t events;
    uv_timer_t look; /* looks at the folder, whose events may be missed */
    uv_timer_t retry;
    bool watching; /* the folder's events */
    unsigned open_handles;
    bool closing;
    bool is_ready; /* as ops->ready() was told */

    struct grpc_request *registering;
    uint64_t known; /* identity of kubelet's socket with which we are registered; 0: none */
    uint64_t asked; /* identity of the socket with which we are registering */
    unsigned failures, silence;

    V1beta1__Device *devices;
    size_t device_count;
    V1beta1__Device **list; /* for a message, which has an array of pointers */

    char **held; /* ids that kubelet had given to containers when we began */
    size_t held_count;
};

/* Devices */

static void free_devices(struct kubelet *kubelet)
{
    for (size_t i = 0; i < kubelet->device_count; i++)
        free(kubelet->devices[i].id);
    free(kubelet->devices);
    free(kubelet->list);
    kubelet->devices = NULL;
    kubelet->list = NULL;
    kubelet->device_count = 0;
}

static void free_held(struct kubelet *kubelet)
{
    for (size_t i = 0; i < kubelet->held_count; i++)
        free(kubelet->held[i]);
    free(kubelet->held);
}

static bool is_held(const struct kubelet *kubelet, const char *id)
{
    for (size_t i = 0; i < kubelet->held_count; i++) {
        if (strcmp(kubelet->held[i], id) == 0)
            return true;
    }
    return false;
}

/*
 * "UUID::n", which DCGM's exporter knows. Earlier versions had "UUID-n". An id of that form that a
 * container has is kept: after a restart, kubelet would not admit a container whose device is gone.
 */
static char *make_id(const struct kubelet *kubelet, const struct card *card, unsigned share)
{
    char *id;

    if (kubelet->config.is_direct)
        return strdup(card->uuid);
    if (asprintf(&id, "%s-%u", card->uuid, share) < 0)
        return NULL;
    if (is_held(kubelet, id))
        return id;
    free(id);
    return asprintf(&id, "%s::%u", card->uuid, share) < 0 ? NULL : id;
}

/*
 * kubelet takes any of the ids, whichever card the scheduler chose: an id stands for a share of
 * some card of the node, and is healthy while there is one. The card itself is judged when the
 * container starts.
 */
static int make_device(struct kubelet *kubelet, const struct card *card, unsigned share,
                       bool healthy)
{
    V1beta1__Device *device = &kubelet->devices[kubelet->device_count];

    v1beta1__device__init(device);
    device->health = (char *)(healthy ? "Healthy" : "Unhealthy");
    device->id = make_id(kubelet, card, share);
    if (!device->id)
        return -ENOMEM;
    kubelet->list[kubelet->device_count++] = device;
    return 0;
}

static int make_devices(struct kubelet *kubelet, const struct cards *cards)
{
    unsigned resource = kubelet->config.resource_index;
    bool healthy = cards_any_healthy(cards, resource);
    size_t count = 0;
    int r = 0;

    for (size_t i = 0; i < cards->count; i++)
        count += cards->items[i].max_tasks;
    kubelet->devices = calloc(count + 1, sizeof(*kubelet->devices));
    kubelet->list = calloc(count + 1, sizeof(*kubelet->list));
    if (!kubelet->devices || !kubelet->list)
        return -ENOMEM;
    for (size_t i = 0; i < cards->count && r == 0; i++) {
        const struct card *card = &cards->items[i];

        for (unsigned share = 0; share < card->max_tasks && r == 0; share++) {
            if (card->resource == resource)
                r = make_device(kubelet, card, share,
                                kubelet->config.is_direct ? card->healthy : healthy);
        }
    }
    return r;
}

static void send_list(struct kubelet *kubelet, struct grpc_call *stream)
{
    V1beta1__ListAndWatchResponse list = V1BETA1__LIST_AND_WATCH_RESPONSE__INIT;

    list.n_devices = kubelet->device_count;
    list.devices = kubelet->list;
    if (grpc_call_send(stream, &list.base) < 0)
        log_warn("kubelet: no memory for the list of devices");
}

int kubelet_set_cards(struct kubelet *kubelet, const struct cards *cards)
{
    int r;

    free_devices(kubelet);
    r = make_devices(kubelet, cards);
    if (r < 0) {
        free_devices(kubelet);
        return r;
    }
    for (size_t i = 0; i < kubelet->stream_count; i++)
        send_list(kubelet, kubelet->streams[i]);
    return 0;
}

static bool has_device(const struct kubelet *kubelet, const char *id)
{
    for (size_t i = 0; i < kubelet->device_count; i++) {
        if (strcmp(kubelet->devices[i].id, id) == 0)
            return true;
    }
    return false;
}

static void say_ready(struct kubelet *kubelet)
{
    bool is_ready = kubelet->known && kubelet->stream_count;

    if (is_ready == kubelet->is_ready || kubelet->closing)
        return;
    kubelet->is_ready = is_ready;
    kubelet->ops->ready(kubelet->data, is_ready);
}

/* The methods that kubelet calls */

static void on_options(void *data, struct grpc_call *call, const uint8_t *message, size_t len)
{
    V1beta1__DevicePluginOptions options = V1BETA1__DEVICE_PLUGIN_OPTIONS__INIT;

    (void)data;
    (void)message;
    (void)len;
    options.pre_start_required = 1;
    (void)grpc_call_send(call, &options.base);
    grpc_call_end(call, GRPC_OK, NULL);
}

static void on_list_and_watch(void *data, struct grpc_call *call, const uint8_t *message,
                              size_t len)
{
    struct kubelet *kubelet = data;

    (void)message;
    (void)len;
    if (kubelet->stream_count == STREAMS_MAX) {
        grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "too many listen already");
        return;
    }
    kubelet->streams[kubelet->stream_count++] = call;
    kubelet->silence = 0;
    log_info("kubelet listens to the list of %zu devices", kubelet->device_count);
    send_list(kubelet, call);
    say_ready(kubelet);
}

static const char *find_unknown(const struct kubelet *kubelet,
                                const V1beta1__ContainerAllocateRequest *request)
{
    for (size_t i = 0; i < request->n_devices_ids; i++) {
        if (!has_device(kubelet, request->devices_ids[i]))
            return request->devices_ids[i];
    }
    return NULL;
}

/*
 * The container is not known yet: the answer is only a CDI device's name, whose specification is
 * written when the container starts, and the vendor's variables.
 */
static void answer_by_name(const struct kubelet *kubelet, struct grpc_call *call,
                           const V1beta1__AllocateRequest *request)
{
    size_t count = request->n_container_requests;
    AUTOFREE struct answer {
        V1beta1__ContainerAllocateResponse response;
        V1beta1__CDIDevice device, *devices[1];
        V1beta1__EnvsEntry annotation, *annotations[1];
        char name[sizeof(SPEC_KIND) + 1 + SPEC_NAME_SIZE];
    } *answers = calloc(count + 1, sizeof(*answers));
    AUTOFREE V1beta1__ContainerAllocateResponse **list = calloc(count + 1, sizeof(*list));
    AUTOFREE V1beta1__EnvsEntry *entries =
        calloc(kubelet->config.variable_count + 1, sizeof(*entries));
    AUTOFREE V1beta1__EnvsEntry **variables =
        calloc(kubelet->config.variable_count + 1, sizeof(*variables));
    V1beta1__AllocateResponse response = V1BETA1__ALLOCATE_RESPONSE__INIT;
    bool annotates = kubelet->ops->annotates(kubelet->data);

    if (!answers || !list || !entries || !variables) {
        grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "no memory");
        return;
    }
    for (size_t i = 0; i < kubelet->config.variable_count; i++) {
        v1beta1__envs_entry__init(&entries[i]);
        entries[i].key = (char *)kubelet->config.variables[i].name;
        entries[i].value = (char *)kubelet->config.variables[i].value;
        variables[i] = &entries[i];
    }
    for (size_t i = 0; i < count; i++) {
        struct answer *answer = &answers[i];
        char name[SPEC_NAME_SIZE];

        spec_device_name((const char *const *)request->container_requests[i]->devices_ids,
                         request->container_requests[i]->n_devices_ids, name);
        (void)snprintf(answer->name, sizeof(answer->name), SPEC_KIND "=%s", name);
        v1beta1__cdidevice__init(&answer->device);
        v1beta1__container_allocate_response__init(&answer->response);
        answer->device.name = answer->name;
        answer->devices[0] = &answer->device;
        v1beta1__envs_entry__init(&answer->annotation);
        answer->annotation.key = (char *)CDI_ANNOTATION;
        answer->annotation.value = answer->name;
        answer->annotations[0] = &answer->annotation;
        answer->response.n_cdi_devices = !annotates;
        answer->response.cdi_devices = answer->devices;
        answer->response.n_annotations = annotates;
        answer->response.annotations = answer->annotations;
        answer->response.n_envs = kubelet->config.variable_count;
        answer->response.envs = variables;
        list[i] = &answer->response;
    }
    response.n_container_responses = count;
    response.container_responses = list;
    if (grpc_call_send(call, &response.base) < 0)
        grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "no memory");
    else
        grpc_call_end(call, GRPC_OK, NULL);
}

void kubelet_allocate_end(struct grpc_call *call, V1beta1__ContainerAllocateResponse *response,
                          enum grpc_status status, const char *why)
{
    V1beta1__AllocateResponse answer = V1BETA1__ALLOCATE_RESPONSE__INIT;

    answer.n_container_responses = 1;
    answer.container_responses = &response;
    if (status == GRPC_OK && grpc_call_send(call, &answer.base) < 0) {
        status = GRPC_RESOURCE_EXHAUSTED;
        why = "no memory";
    }
    grpc_call_end(call, status, why);
}

/* kubelet asks for one container at a time; who guesses whose turn it is must not do so twice. */
static void answer_allocate(const struct kubelet *kubelet, struct grpc_call *call,
                            const V1beta1__AllocateRequest *request)
{
    const V1beta1__ContainerAllocateRequest *only =
        request->n_container_requests == 1 ? request->container_requests[0] : NULL;
    const char *const *ids = only ? (const char *const *)only->devices_ids : NULL;

    if (!kubelet->ops->allocate(kubelet->data, call, ids, only ? only->n_devices_ids : 0))
        answer_by_name(kubelet, call, request);
}

static void on_allocate(void *data, struct grpc_call *call, const uint8_t *message, size_t len)
{
    V1beta1__AllocateRequest *request = v1beta1__allocate_request__unpack(NULL, len, message);
    const char *unknown = NULL;
    char why[256];

    if (!request) {
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "not an AllocateRequest");
        return;
    }
    for (size_t i = 0; i < request->n_container_requests && !unknown; i++)
        unknown = find_unknown(data, request->container_requests[i]);
    if (unknown) {
        (void)snprintf(why, sizeof(why), "there is no device %.120s here", unknown);
        log_warn("refusing an allocation: %s", why);
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, why);
    } else {
        answer_allocate(data, call, request);
    }
    v1beta1__allocate_request__free_unpacked(request, NULL);
}

static void on_prestart_container(void *data, struct grpc_call *call, const uint8_t *message,
                                  size_t len)
{
    struct kubelet *kubelet = data;
    V1beta1__PreStartContainerRequest *request;

    request = v1beta1__pre_start_container_request__unpack(NULL, len, message);
    if (!request || !request->n_devices_ids || request->n_devices_ids > KUBELET_IDS_MAX)
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "not a PreStartContainerRequest");
    else
        kubelet->ops->prestart(kubelet->data, call, (const char *const *)request->devices_ids,
                               request->n_devices_ids);
    if (request)
        v1beta1__pre_start_container_request__free_unpacked(request, NULL);
}

void kubelet_prestart_end(struct grpc_call *call, enum grpc_status status, const char *why)
{
    V1beta1__Empty empty = V1BETA1__EMPTY__INIT;

    if (status == GRPC_OK && grpc_call_send(call, &empty.base) < 0) {
        status = GRPC_RESOURCE_EXHAUSTED;
        why = "no memory";
    }
    grpc_call_end(call, status, why);
}

static void on_retry(uv_timer_t *timer);

static void on_gone(void *data, struct grpc_call *call)
{
    struct kubelet *kubelet = data;

    for (size_t i = 0; i < kubelet->stream_count; i++) {
        if (kubelet->streams[i] != call)
            continue;
        kubelet->streams[i] = kubelet->streams[--kubelet->stream_count];
        log_info("kubelet no longer listens");
        say_ready(kubelet);
        if (!kubelet->stream_count && !kubelet->closing)
            (void)uv_timer_start(&kubelet->retry, on_retry, DROPPED_MS, 0);
        return;
    }
    kubelet->ops->gone(kubelet->data, call);
}

static const struct grpc_method methods[] = {
    {"/v1beta1.DevicePlugin/GetDevicePluginOptions", on_options},
    {"/v1beta1.DevicePlugin/ListAndWatch", on_list_and_watch},
    {"/v1beta1.DevicePlugin/Allocate", on_allocate},
    {"/v1beta1.DevicePlugin/PreStartContainer", on_prestart_container},
};

static const struct grpc_service service = {
    .methods = methods,
    .method_count = ARRAY_SIZE(methods),
    .gone = on_gone,
};

/* Registration */

static void kubelet_look(struct kubelet *kubelet);

/*
 * When an earlier plugin ends, kubelet drops us, too, and calls the cards unhealthy until we
 * register again: it knows plugins by the resource's name alone.
 */
static void on_retry(uv_timer_t *timer)
{
    struct kubelet *kubelet = timer->data;

    if (!kubelet->stream_count)
        kubelet->known = 0;
    kubelet_look(kubelet);
}

static void on_registered(void *data, const struct grpc_answer *answer)
{
    struct kubelet *kubelet = data;
    unsigned pause_ms;

    kubelet->registering = NULL;
    if (answer->error == 0 && answer->status == GRPC_OK) {
        kubelet->known = kubelet->asked;
        kubelet->failures = kubelet->silence = 0;
        log_info("registered with kubelet for %s", kubelet->config.resource);
        say_ready(kubelet);
        return;
    }
    pause_ms = backoff_ms(kubelet->failures++, RETRY_FIRST_MS, RETRY_MAX_MS);
    log_warn("cannot register with kubelet: %s; trying again in %u ms", answer->why, pause_ms);
    (void)uv_timer_start(&kubelet->retry, on_retry, pause_ms, 0);
}

/* The time is part of it, since inode numbers are used again at once. */
static uint64_t identity_of(const struct stat *st)
{
    uint64_t time_ns =
        (uint64_t)st->st_mtim.tv_sec * UINT64_C(1000000000) + (uint64_t)st->st_mtim.tv_nsec;

    return (time_ns * UINT64_C(0x9e3779b97f4a7c15) ^ st->st_ino) | 1;
}

static void register_with(struct kubelet *kubelet, uint64_t socket)
{
    V1beta1__DevicePluginOptions options = V1BETA1__DEVICE_PLUGIN_OPTIONS__INIT;
    V1beta1__RegisterRequest request = V1BETA1__REGISTER_REQUEST__INIT;
    int r;

    options.pre_start_required = 1;
    request.version = (char *)"v1beta1";
    request.endpoint = (char *)kubelet->config.endpoint;
    request.resource_name = (char *)kubelet->config.resource;
    request.options = &options;
    kubelet->asked = socket;
    r = grpc_request(kubelet->loop, kubelet->config.socket, "/v1beta1.Registration/Register",
                     &request.base, REGISTER_TIMEOUT_MS, on_registered, kubelet,
                     &kubelet->registering);
    if (r < 0)
        log_error("cannot register with kubelet: %s", strerror(-r));
}

static bool takes_over(void *data)
{
    const struct kubelet *kubelet = data;

    return kubelet->is_ready;
}

/* kubelet is a new process, or was not seen before: connections that were handed over ended with
 * the former one. */
static int kubelet_serve(struct kubelet *kubelet, struct error *err)
{
    struct error why = ERROR_INIT;

    grpc_server_free(kubelet->server);
    kubelet->server = NULL;
    handover_free(kubelet->handover);
    kubelet->handover = NULL;
    if (handover_new(kubelet->loop, kubelet->handover_path, takes_over, kubelet, &kubelet->handover,
                     &why) < 0)
        log_warn("%s", why.text);
    return grpc_server_new(kubelet->loop, kubelet->path, &service, kubelet, &kubelet->server, err);
}

/* Whether kubelet has dropped us: no stream is left, and its socket is still the same. */
static bool is_silent(struct kubelet *kubelet)
{
    if (kubelet->stream_count || !kubelet->known) {
        kubelet->silence = 0;
        return false;
    }
    return kubelet->silence++ >= SILENCE_LOOKS;
}

static void on_event(uv_fs_event_t *events, const char *name, int what, int status)
{
    (void)name;
    (void)what;
    if (status == 0)
        kubelet_look(events->data);
}

static void kubelet_look(struct kubelet *kubelet)
{
    struct error err = ERROR_INIT;
    struct stat ours, theirs;

    if (kubelet->closing)
        return;
    if (!kubelet->watching)
        kubelet->watching = uv_fs_event_start(&kubelet->events, on_event, kubelet->folder, 0) == 0;
    if (stat(kubelet->config.socket, &theirs) < 0) {
        kubelet->known = 0;
        say_ready(kubelet);
        return;
    }
    if (!kubelet->server || lstat(kubelet->path, &ours) < 0) {
        kubelet->known = 0;
        if (kubelet_serve(kubelet, &err) < 0) {
            log_error("%s", err.text);
            return;
        }
    }
    /* A newer plugin has taken our place: in an update it starts before the older one ends. */
    if (!grpc_server_is_reachable(kubelet->server))
        return;
    if (kubelet->known != identity_of(&theirs) && !kubelet->registering &&
        !uv_is_active((uv_handle_t *)&kubelet->retry))
        register_with(kubelet, identity_of(&theirs));
}

static void on_look(uv_timer_t *timer)
{
    struct kubelet *kubelet = timer->data;

    if (is_silent(kubelet))
        kubelet->known = 0;
    kubelet_look(kubelet);
}

/* Making and freeing */

static void keep_held(void *data, const char *id)
{
    struct kubelet *kubelet = data;
    char **held;

    if (kubelet->held_count == KUBELET_IDS_MAX || strstr(id, "::"))
        return;
    held = realloc(kubelet->held, (kubelet->held_count + 1) * sizeof(*held));
    if (!held)
        return;
    kubelet->held = held;
    held[kubelet->held_count] = strdup(id);
    kubelet->held_count += held[kubelet->held_count] != NULL;
}

static void read_held(struct kubelet *kubelet)
{
    char path[PATH_MAX + 32];
    AUTOFREE char *text = NULL;
    struct stat st;
    ssize_t len;

    (void)snprintf(path, sizeof(path), "%s/kubelet_internal_checkpoint", kubelet->folder);
    if (file_stat(path, &st) < 0 || st.st_size > CHECKPOINT_MAX)
        return;
    text = malloc((size_t)st.st_size + 4096);
    len = text ? file_read(path, text, (size_t)st.st_size + 4096) : -ENOMEM;
    if (len < 0 ||
        holder_each_id(text, (size_t)len, kubelet->config.resource, keep_held, kubelet) < 0)
        log_warn(
            "%s can't be read: containers of an earlier version may not outlive kubelet's next "
            "restart",
            path);
}

static int make_paths(struct kubelet *kubelet, struct error *err)
{
    const char *socket = kubelet->config.socket;
    const char *slash = strrchr(socket, '/');
    int len;

    if (!slash || slash == socket || (size_t)(slash - socket) >= sizeof(kubelet->folder))
        return error_set(err, -EINVAL, "%s is no path of kubelet's socket", socket);
    copy_text(kubelet->folder, (size_t)(slash - socket) + 1, socket);
    len = snprintf(kubelet->path, sizeof(kubelet->path), "%s/%s", kubelet->folder,
                   kubelet->config.endpoint);
    (void)snprintf(kubelet->handover_path, sizeof(kubelet->handover_path), "%s.handover",
                   kubelet->path);
    return len < (int)sizeof(kubelet->path)
               ? 0
               : error_set(err, -ENAMETOOLONG, "%s is too long", socket);
}

int kubelet_new(uv_loop_t *loop, const struct kubelet_config *config, const struct kubelet_ops *ops,
                void *data, struct kubelet **ret_kubelet, struct error *err)
{
    struct kubelet *kubelet = calloc(1, sizeof(*kubelet));
    int r;

    if (!kubelet)
        return error_set(err, -ENOMEM, "no memory");
    kubelet->loop = loop;
    kubelet->config = *config;
    kubelet->ops = ops;
    kubelet->data = data;
    r = make_paths(kubelet, err);
    if (r == 0)
        read_held(kubelet);
    if (r == 0)
        r = kubelet_serve(kubelet, err);
    if (r < 0) {
        free_held(kubelet);
        free(kubelet);
        return r;
    }
    (void)uv_fs_event_init(loop, &kubelet->events);
    (void)uv_timer_init(loop, &kubelet->look);
    (void)uv_timer_init(loop, &kubelet->retry);
    kubelet->events.data = kubelet->look.data = kubelet->retry.data = kubelet;
    kubelet->open_handles = 3;
    (void)uv_timer_start(&kubelet->look, on_look, 0, LOOK_MS);
    *ret_kubelet = kubelet;
    return 0;
}

static void kubelet_on_closed(uv_handle_t *handle)
{
    struct kubelet *kubelet = handle->data;

    if (--kubelet->open_handles)
        return;
    free_devices(kubelet);
    free_held(kubelet);
    free(kubelet);
}

/* A newer plugin has our place: gives it the streams that kubelet must not see ending. */
static void give_streams(struct kubelet *kubelet)
{
    struct stat st;
    int fds[HANDOVER_MAX + STREAMS_MAX], r;
    size_t count;

    if (!kubelet->stream_count || !kubelet->server || lstat(kubelet->path, &st) < 0 ||
        grpc_server_is_reachable(kubelet->server))
        return;
    count = kubelet->handover ? handover_held(kubelet->handover, fds) : 0;
    for (size_t i = 0; i < kubelet->stream_count; i++)
        fds[count++] = grpc_call_fd(kubelet->streams[i]);
    r = handover_give(kubelet->handover_path, fds, MIN(count, (size_t)HANDOVER_MAX));
    if (r == 0)
        log_info("handed over to the one that follows");
    else
        log_warn("the one that follows does not take over: %s", strerror(-r));
}

void kubelet_free(struct kubelet *kubelet)
{
    if (!kubelet || kubelet->closing)
        return;
    give_streams(kubelet);
    kubelet->closing = true;
    grpc_request_cancel(kubelet->registering);
    grpc_server_free(kubelet->server);
    handover_free(kubelet->handover);
    uv_close((uv_handle_t *)&kubelet->events, kubelet_on_closed);
    uv_close((uv_handle_t *)&kubelet->look, kubelet_on_closed);
    uv_close((uv_handle_t *)&kubelet->retry, kubelet_on_closed);
}
