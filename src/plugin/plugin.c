/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/plugin.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/util.h"
#include "plugin/ordered.h"
#include "plugin/prestart.h"

enum {
    FINISH_MS = 2000, /* for containers that are about to start, when we end */
    FINISH_LOOK_MS = 20,
    GC_MS = 30000,
    TRIM_MS = 1000,
    EXPIRE_AGE = 4, /* times GC_MS */
};

#define AGENT "hami-device-plugin/" HAMI_VERSION

/* Pods */

static void on_pods_begin(void *data)
{
    struct plugin *plugin = data;

    pods_begin(plugin->pods);
}

void plugin_say_altered(const struct plugin *plugin, struct node_pod *pod)
{
    if (!pod->altered || pod->altered_said)
        return;
    pod->altered_said = true;
    log_warn("%s/%s: its annotation %s was changed after it was given its devices: refused, it "
             "keeps what it was given",
             pod->namespace, pod->name, plugin->vendor->allocated_key);
}

/* By its uid alone: the rest of a deleted pod need not be readable. */
static void on_pod_deleted(struct plugin *plugin, const char *uid)
{
    struct node_pod *pod = pods_find(plugin->pods, uid);

    if (!pod)
        return;
    plugin_pod_gone(plugin, pod);
    if (!pod->leaving)
        pods_remove(plugin->pods, uid);
}

static void on_pod(void *data, enum kube_event event, yyjson_val *object)
{
    struct plugin *plugin = data;
    const char *uid = yyjson_get_str(yyjson_obj_get(yyjson_obj_get(object, "metadata"), "uid"));
    struct error err = ERROR_INIT;
    struct node_pod *pod;

    if (!uid)
        return;
    if (event == KUBE_DELETED) {
        on_pod_deleted(plugin, uid);
        return;
    }
    if (pods_put(plugin->pods, object, true, &pod, &err) < 0) {
        log_warn("pod %s can't be read, so what is known of it stays: %s", uid, err.text);
        pods_touch(plugin->pods, uid);
        return;
    }
    plugin_say_altered(plugin, pod);
    if (pod->over)
        plugin_gc_pod(plugin, pod);
    plugin_unlock_check(plugin);
}

static void on_pod_gone(void *data, struct node_pod *pod)
{
    plugin_pod_gone(data, pod);
}

static void check_phase(void *data, struct node_pod *pod)
{
    plugin_phase_check(data, pod);
}

static void on_pods_complete(void *data)
{
    struct plugin *plugin = data;

    pods_complete(plugin->pods, on_pod_gone, plugin);
    if (!plugin->listed)
        plugin_adopt_containers(plugin);
    plugin->listed = true;
    plugin_gc_all(plugin);
    plugin_parts_update(plugin);
    pods_each(plugin->pods, check_phase, plugin);
}

static const struct kube_watch_ops pod_ops = {
    .begin = on_pods_begin,
    .object = on_pod,
    .complete = on_pods_complete,
};

static void on_gc_timer(uv_timer_t *timer)
{
    struct plugin *plugin = timer->data;

    if (!plugin->listed || !kube_watch_is_complete(plugin->pod_watch))
        return;
    pods_expire(plugin->pods, EXPIRE_AGE, on_pod_gone, plugin);
    plugin_gc_all(plugin);
    plugin_parts_update(plugin);
    pods_each(plugin->pods, check_phase, plugin);
    plugin->lock.tried[0] = '\0';
    plugin_unlock_check(plugin);
}

static void on_trim_timer(uv_timer_t *timer)
{
    struct plugin *plugin = timer->data;

    plugin_pods_leave(plugin);
    plugin_trim(plugin);
    if (plugin->parts_wait && plugin->listed)
        plugin_parts_update(plugin);
}

/* The node */

static void on_node_begin(void *data)
{
    (void)data;
}

/* A Node that was made anew lacks what we wrote to the former one. */
static void note_node(struct plugin *plugin, const char *uid)
{
    bool another = plugin->node_uid[0] && strcmp(plugin->node_uid, uid) != 0;

    COPY_TEXT(plugin->node_uid, uid);
    if (!another)
        return;
    plugin_gate_on_timer(&plugin->gate.timer);
    plugin_capacity_write(plugin);
}

static void plugin_on_node(void *data, enum kube_event event, yyjson_val *object)
{
    struct plugin *plugin = data;
    yyjson_val *metadata = yyjson_obj_get(object, "metadata");
    yyjson_val *annotations = yyjson_obj_get(metadata, "annotations");
    const char *uid = yyjson_get_str(yyjson_obj_get(metadata, "uid"));

    if (event == KUBE_DELETED)
        return;
    if (uid)
        note_node(plugin, uid);
    plugin_register_seen(plugin, annotations);
    plugin_unlock_seen(plugin, metadata);
}

static void on_node_complete(void *data)
{
    (void)data;
}

static const struct kube_watch_ops node_ops = {
    .begin = on_node_begin,
    .object = plugin_on_node,
    .complete = on_node_complete,
};

/* kubelet */

static const struct node_resource *resource_of(const struct serving *serving)
{
    return &serving->plugin->offer.resources[serving - serving->plugin->servings];
}

static void plugin_on_prestart(void *data, struct grpc_call *call, const char *const *ids,
                               size_t count)
{
    struct serving *serving = data;

    prestart_begin(serving->plugin, resource_of(serving), call, ids, count);
}

static bool plugin_on_allocate(void *data, struct grpc_call *call, const char *const *ids,
                               size_t count)
{
    const struct serving *serving = data;

    if (serving->plugin->way != WAY_ORDERED)
        return false;
    ordered_begin(serving->plugin, resource_of(serving), call, ids, count);
    return true;
}

static bool plugin_annotates(void *data)
{
    const struct serving *serving = data;

    return serving->plugin->way == WAY_ANNOTATED;
}

static void on_call_gone(void *data, struct grpc_call *call)
{
    const struct serving *serving = data;

    ordered_gone(serving->plugin, call);
    prestart_gone(serving->plugin, call);
}

/* Nobody binds pods with devices that kubelet chooses, one at a time or else. */
static bool is_served(const struct plugin *plugin, const struct node_resource *resource)
{
    return !resource->is_direct || way_is_late(plugin->way);
}

static bool all_ready(const struct plugin *plugin)
{
    for (size_t i = 0; i < plugin->offer.resource_count; i++) {
        if (!plugin->servings[i].is_ready && is_served(plugin, &plugin->offer.resources[i]))
            return false;
    }
    return true;
}

/* For --check: a rolling update goes on when the new plugin can serve. */
static void say_ready(struct plugin *plugin)
{
    const char *path = plugin->options->ready_file;
    bool is_ready = all_ready(plugin);

    if (is_ready == plugin->is_ready)
        return;
    plugin->is_ready = is_ready;
    if (is_ready)
        plugin_capacity_write(plugin);
    if (path && !is_ready)
        (void)unlink(path);
    if (path && is_ready && file_replace(path, "", 0, 0644) < 0)
        log_warn("%s can't be made, so nobody learns that the plugin is ready", path);
}

static void on_ready(void *data, bool is_ready)
{
    struct serving *serving = data;

    serving->is_ready = is_ready;
    say_ready(serving->plugin);
}

static const struct kubelet_ops kubelet_ops = {
    .prestart = plugin_on_prestart,
    .allocate = plugin_on_allocate,
    .annotates = plugin_annotates,
    .gone = on_call_gone,
    .ready = on_ready,
};

/* Starting */

void plugin_offer(struct plugin *plugin)
{
    size_t before = plugin->offer.resource_count;

    if (plugin->vendor->offer)
        plugin->vendor->offer(plugin->node, &plugin->offer);
    for (size_t i = before; i < plugin->offer.resource_count; i++)
        log_info("serving %s as well", plugin->offer.resources[i].name);
}

static int open_cards(struct plugin *plugin, struct error *err)
{
    int r = plugin->vendor->find(plugin->node, NULL, &plugin->cards, err);

    plugin->has_cards = r == 0;
    if (r == 0)
        plugin_offer(plugin);
    if (r == 0 || !plugin->options->keep_trying)
        return r;
    plugin->why_none = *err;
    return 0;
}

static int start_node(struct plugin *plugin, const void *own, struct error *err)
{
    const struct node_setup setup = {
        .node_name = plugin->options->node_name,
        .device_config_file = plugin->options->device_config_file,
        .node_config_file = plugin->options->node_config_file,
        .host = &plugin->host,
        .own = own,
    };
    int r;

    COPY_TEXT(plugin->host.hook_path, plugin->options->hook_path);
    COPY_TEXT(plugin->host.cdi_folder, plugin->options->cdi_dir);
    r = host_install(&plugin->host, err);
    if (r == 0)
        r = plugin->vendor->start(&setup, &plugin->node, &plugin->offer, err);
    return r;
}

static int watch_api(struct plugin *plugin, struct error *err)
{
    CLEANUP(kube_config_freep) struct kube_config *config = NULL;
    char plugin_on_node[512], node_name[512];
    struct kube_watch_spec pods = {.path = "/api/v1/pods", .field_selector = plugin_on_node};
    struct kube_watch_spec node = {
        .path = "/api/v1/nodes", .field_selector = node_name, .metadata_only = true};
    int r;

    (void)snprintf(plugin_on_node, sizeof(plugin_on_node), "spec.nodeName=%s",
                   plugin->options->node_name);
    (void)snprintf(node_name, sizeof(node_name), "metadata.name=%s", plugin->options->node_name);
    r = kube_config_load(plugin->options->kubeconfig, &config, err);
    if (r == 0)
        r = kube_client_new(plugin->loop, config, AGENT, &plugin->kube, err);
    if (r == 0)
        r = kube_watch_new(plugin->kube, &pods, &pod_ops, plugin, &plugin->pod_watch, err);
    if (r == 0)
        r = kube_watch_new(plugin->kube, &node, &node_ops, plugin, &plugin->node_watch, err);
    return r;
}

static void serve_one(struct plugin *plugin, struct serving *serving)
{
    const struct node_resource *resource;
    struct error err = ERROR_INIT;
    struct kubelet_config config;

    serving->plugin = plugin;
    resource = resource_of(serving);
    config = (struct kubelet_config){
        .socket = plugin->options->kubelet_socket,
        .endpoint = resource->endpoint,
        .resource = resource->name,
        .resource_index = (unsigned)(serving - plugin->servings),
        .is_direct = resource->is_direct,
        .variables = plugin->vendor->variables,
        .variable_count = plugin->vendor->variable_count,
    };
    if (kubelet_new(plugin->loop, &config, &kubelet_ops, serving, &serving->kubelet, &err) < 0)
        log_error("%s", err.text); /* tried again at the next look at the cards */
    else if (kubelet_set_cards(serving->kubelet, &plugin->cards) < 0)
        log_error("no memory for the list of devices");
}

void plugin_serve(struct plugin *plugin)
{
    if (!plugin->has_cards || plugin->way == WAY_UNKNOWN || plugin->way == WAY_CLOSED)
        return;
    for (size_t i = 0; i < plugin->offer.resource_count; i++) {
        if (!plugin->servings[i].kubelet && is_served(plugin, &plugin->offer.resources[i]))
            serve_one(plugin, &plugin->servings[i]);
    }
}

static void plugin_stop(struct plugin *plugin)
{
    if (plugin->ending)
        return;
    plugin->ending = true;
    prestart_stop(plugin);
    ordered_stop(plugin);
    plugin_unlock_stop(plugin);
    plugin_phase_stop(plugin);
    plugin_register_stop(plugin);
    plugin_condition_stop(plugin);
    plugin_capacity_stop(plugin);
    plugin_gate_stop(plugin);
    for (size_t i = 0; i < plugin->offer.resource_count; i++)
        kubelet_free(plugin->servings[i].kubelet);
    kube_watch_free(plugin->pod_watch);
    kube_watch_free(plugin->node_watch);
    kube_client_free(plugin->kube);
    plugin_health_stop(plugin);
    uv_close((uv_handle_t *)&plugin->gc_timer, NULL);
    uv_close((uv_handle_t *)&plugin->trim_timer, NULL);
    uv_close((uv_handle_t *)&plugin->finish_timer, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(plugin->signals); i++)
        uv_close((uv_handle_t *)&plugin->signals[i], NULL);
}

/*
 * Waits until containers that are about to start have their files, which takes a moment. Else
 * kubelet would wait for an answer that never comes, since its connection to us may outlive us
 * (handover.h).
 */
static void on_finish(uv_timer_t *timer)
{
    struct plugin *plugin = timer->data;

    if ((plugin->prestarts || plugin->ordered) && uv_now(plugin->loop) < plugin->finish_until_ms)
        return;
    plugin_stop(plugin);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct plugin *plugin = handle->data;

    if (plugin->ending || uv_is_active((uv_handle_t *)&plugin->finish_timer))
        return;
    plugin->again = number == SIGHUP;
    log_info(plugin->again ? "beginning anew on signal %d" : "ending on signal %d", number);
    plugin->finish_until_ms = uv_now(plugin->loop) + FINISH_MS;
    (void)uv_timer_start(&plugin->finish_timer, on_finish, 0, FINISH_LOOK_MS);
}

static void start_timers(struct plugin *plugin)
{
    (void)uv_timer_init(plugin->loop, &plugin->gc_timer);
    (void)uv_timer_init(plugin->loop, &plugin->trim_timer);
    (void)uv_timer_init(plugin->loop, &plugin->gate.timer);
    (void)uv_timer_init(plugin->loop, &plugin->finish_timer);
    plugin->gc_timer.data = plugin->trim_timer.data = plugin;
    plugin->gate.timer.data = plugin->finish_timer.data = plugin;
    for (size_t i = 0; i < ARRAY_SIZE(plugin->signals); i++) {
        (void)uv_signal_init(plugin->loop, &plugin->signals[i]);
        plugin->signals[i].data = plugin;
    }
    plugin_health_start(plugin);
    (void)uv_timer_start(&plugin->gc_timer, on_gc_timer, GC_MS, GC_MS);
    (void)uv_timer_start(&plugin->trim_timer, on_trim_timer, TRIM_MS, TRIM_MS);
}

/* Not before everything is started: while a driver hangs in start-up, the default action of a
 * signal ends the plugin; a handler would never run. */
static void start_signals(struct plugin *plugin)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};

    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
        (void)uv_signal_start(&plugin->signals[i], on_signal, numbers[i]);
}

static int load_pods(struct plugin *plugin, struct error *err)
{
    plugin->pods =
        pods_new(plugin->options->node_name, plugin->vendor, plugin->offer.priority_resource);
    if (!plugin->pods)
        return error_set(err, -ENOMEM, "no memory");
    plugin_adopt_pods(plugin);
    return 0;
}

static int plugin_start(struct plugin *plugin, const void *own, struct error *err)
{
    int r;

    r = start_node(plugin, own, err);
    if (r == 0)
        r = open_cards(plugin, err);
    if (r == 0)
        r = load_pods(plugin, err);
    if (r == 0)
        r = watch_api(plugin, err);
    if (r == 0)
        plugin_parts_update(plugin);
    if (r == 0)
        plugin_health_watch(plugin);
    if (r == 0)
        plugin_gate_start(plugin);
    return r;
}

static void plugin_free(struct plugin *plugin)
{
    pods_free(plugin->pods);
    if (plugin->node)
        plugin->vendor->stop(plugin->node);
    free(plugin);
}

int plugin_run(const struct plugin_options *options, const struct node_vendor *vendor,
               const void *own)
{
    struct plugin *plugin = calloc(1, sizeof(*plugin));
    struct error err = ERROR_INIT;
    uv_loop_t loop;
    int r;

    if (!plugin || uv_loop_init(&loop) < 0)
        return -ENOMEM;
    (void)signal(SIGPIPE, SIG_IGN);
    if (options->ready_file)
        (void)unlink(options->ready_file);
    plugin->loop = &loop;
    plugin->options = options;
    plugin->vendor = vendor;
    start_timers(plugin);
    r = plugin_start(plugin, own, &err);
    if (r < 0) {
        log_error("%s", err.text);
        plugin_stop(plugin);
    } else {
        start_signals(plugin);
        log_info("node %s: %zu cards", options->node_name, plugin->cards.count);
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&loop);
    r = r < 0 ? r : plugin->again;
    plugin_free(plugin);
    return r;
}
