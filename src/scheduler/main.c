/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/util.h"
#include "scheduler/scheduler.h"

enum {
    TICK_MS = 1000,
    STOP_MS = 10000,      /* for binds under way, and the lease */
    AGE_MAX_S = 45,       /* of our knowledge of nodes and pods, to be ready */
    FILTER_MAX = 8 << 20, /* 65,000 nodes of long names, and the largest pod there is */
    BIND_MAX = 64 << 10,
    WEBHOOK_HELD = ADMIT_MAX_BODY + (64 << 10), /* of bodies and answers, of all reviews together */
    JSON_MAX = 64 << 20, /* for reading one body; a body with more values is refused */
    JSON_KEPT = 8 << 20,
    HEAP_KEPT = 4 << 20,    /* of free memory at the heap's end */
    HEAP_PIECE = 256 << 10, /* larger ones are mapped: they grow uncopied and leave no hole */
    VIEW_MAX = 512 << 20,
};

/* Requests and small answers. */

yyjson_doc *read_body(struct scheduler *scheduler, struct http_request *request, struct error *err)
{
    yyjson_read_err why;
    yyjson_alc pool;
    yyjson_doc *doc;
    size_t len;
    char *body;

    (void)yyjson_alc_pool_init(&pool, scheduler->json, JSON_MAX);
    body = http_request_body(request, &len);
    doc = yyjson_read_opts(body, len, 0, &pool, &why);
    if (!doc)
        (void)error_set(err, -EINVAL, "the body is not JSON: %s at byte %zu", why.msg, why.pos);
    return doc;
}

/* Keeps as much memory as ordinary bodies need; gives the rest back after a large one. */
void free_body(struct scheduler *scheduler, yyjson_doc *doc)
{
    if (!doc || yyjson_doc_get_val_count(doc) > JSON_KEPT / sizeof(yyjson_val))
        (void)madvise(scheduler->json, JSON_MAX, MADV_DONTNEED);
}

void answer_error(struct http_request *request, const char *text)
{
    struct strbuf body = STRBUF_INIT(4096);

    wire_write_error(&body, text);
    http_answer(request, 200, HTTP_JSON, strbuf_text(&body), body.len);
    strbuf_deinit(&body);
}

static void handle_healthz(void *data, struct http_request *request)
{
    (void)data;
    http_answer(request, 200, HTTP_TEXT, "ok\n", 3);
}

static void handle_readyz(void *data, struct http_request *request)
{
    const struct scheduler *scheduler = data;
    const double age = watches_age(scheduler);
    const bool complete = cluster_is_ready(scheduler->cluster);
    char text[128] = "ok\n";

    if (!complete)
        COPY_TEXT(text, "nodes, pods and resource quotas are not all read yet\n");
    else if (age > AGE_MAX_S)
        (void)snprintf(text, sizeof(text), "the API server has not been heard for %.0f s\n", age);
    http_answer(request, complete && age <= AGE_MAX_S ? 200 : 503, HTTP_TEXT, text, strlen(text));
}

static void handle_view(void *data, struct http_request *request)
{
    const struct scheduler *scheduler = data;
    struct strbuf view = STRBUF_INIT(VIEW_MAX);

    cluster_view(scheduler->cluster, &view);
    http_answer(request, view.failed ? 503 : 200, HTTP_JSON, strbuf_text(&view), view.len);
    strbuf_deinit(&view);
}

static void handle_objects(void *data, struct http_request *request)
{
    const struct scheduler *scheduler = data;
    struct strbuf objects = STRBUF_INIT(VIEW_MAX);

    cluster_objects(scheduler->cluster, &objects);
    http_answer(request, objects.failed ? 503 : 200, HTTP_JSON, strbuf_text(&objects), objects.len);
    strbuf_deinit(&objects);
}

static const struct http_route routes[] = {
    {.method = "POST",
     .path = "/filter",
     .max_body = FILTER_MAX,
     .max_held = 4 * FILTER_MAX,
     .loopback_only = true,
     .handle = handle_filter},
    {.method = "POST",
     .path = "/bind",
     .max_body = BIND_MAX,
     .max_held = 256 * BIND_MAX,
     .loopback_only = true,
     .handle = handle_bind},
    {.method = "POST",
     .path = "/preempt",
     .max_body = FILTER_MAX,
     .max_held = 4 * FILTER_MAX,
     .loopback_only = true,
     .handle = handle_preempt},
    {.method = "POST",
     .path = "/webhook",
     .max_body = ADMIT_MAX_BODY,
     .max_held = WEBHOOK_HELD,
     .handle = handle_webhook},
    {.method = "GET", .path = "/healthz", .handle = handle_healthz},
    {.method = "GET", .path = "/readyz", .handle = handle_readyz},
    {.method = "GET", .path = "/debug/view", .loopback_only = true, .handle = handle_view},
    {.method = "GET", .path = "/debug/objects", .loopback_only = true, .handle = handle_objects},
    {0},
};

static const struct http_route metrics_routes[] = {
    {.method = "GET", .path = "/metrics", .handle = handle_metrics},
    {0},
};

/* Start and stop. */

static void on_stopped_late(uv_timer_t *timer)
{
    struct scheduler *scheduler = timer->data;

    uv_stop(&scheduler->loop);
}

static void on_signal(uv_signal_t *signal, int number)
{
    struct scheduler *scheduler = signal->data;

    log_info("stopping: %s", strsignal(number));
    if (scheduler->stopping) {
        uv_stop(&scheduler->loop);
        return;
    }
    scheduler->stopping = true;
    (void)uv_timer_start(&scheduler->tick, on_stopped_late, STOP_MS, 0);
    hand_back(scheduler);
}

static void on_tick(uv_timer_t *timer)
{
    struct scheduler *scheduler = timer->data;

    cluster_expire(scheduler->cluster, clock_now_ns());
    metrics_tick(scheduler);
    ask_about_unseen(scheduler);
    locks_tick(scheduler->locks);
    if (leader_may_decide(scheduler))
        requeue_pods(scheduler);
    evictions_look(scheduler);
}

/* HAMi's flags for two vendors of many chips. */
static void leave_out_disabled(struct scheduler *scheduler)
{
    if (!scheduler->options.enable_ascend)
        device_config_leave_out(&scheduler->config, "vnpus");
    if (!scheduler->options.enable_iluvatar)
        device_config_leave_out(&scheduler->config, "iluvatars");
}

static int make_state(struct scheduler *scheduler, struct error *err)
{
    const struct options *options = &scheduler->options;
    struct cluster_options cluster = {
        .vendors = &scheduler->vendors,
        .has_quotas = true,
        .evicts = options->evict_for_devices,
        .node_lock_ns = options->node_lock_timeout_ms * NS_PER_MS,
    };
    int r;

    r = device_config_load(options->device_config_file, &scheduler->config, err);
    if (r < 0)
        return error_wrap(err, r, "--device-config-file");
    leave_out_disabled(scheduler);
    r = device_config_vendors(&scheduler->config, &scheduler->vendors);
    if (r < 0)
        return error_set(err, r, "--device-config-file: %s: more vendors than can be served",
                         options->device_config_file);
    (void)place_node_order_read(options->node_policy, &cluster.defaults.node_order);
    place_policy_read(options->device_policy, &cluster.defaults.policy);
    scheduler->vendors.kept.amounts = work_has_view(scheduler);
    scheduler->cluster = cluster_new(&cluster);
    scheduler->request_arena = arena_new(REQUEST_ARENA_MAX);
    scheduler->webhook_arena = arena_new(WEBHOOK_ARENA_MAX);
    scheduler->object_arena = arena_new(OBJECT_ARENA_MAX);
    scheduler->locks = locks_new(scheduler);
    scheduler->json = mmap(NULL, JSON_MAX, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!scheduler->cluster || !scheduler->locks || !scheduler->request_arena ||
        !scheduler->webhook_arena || !scheduler->object_arena || scheduler->json == MAP_FAILED)
        return error_set(err, -ENOMEM, "out of memory");
    return 0;
}

static int connect_kube(struct scheduler *scheduler, struct error *err)
{
    CLEANUP(kube_config_freep) struct kube_config *config = NULL;
    int r;

    r = kube_config_load(scheduler->options.kubeconfig, &config, err);
    if (r < 0)
        return r;
    r = kube_client_new(&scheduler->loop, config, "hami-scheduler/" HAMI_VERSION, &scheduler->kube,
                        err);
    if (r < 0)
        return r;
    log_info("the API server is %s", config->server);
    scheduler->events = events_new(scheduler->kube, scheduler->options.scheduler_name);
    return scheduler->events ? 0 : error_set(err, -ENOMEM, "out of memory");
}

/* Of an address HOST:PORT that is listened on. */
static int host_len(const char *address)
{
    return (int)(strrchr(address, ':') - address);
}

static int start_servers(struct scheduler *scheduler, struct error *err)
{
    const struct options *options = &scheduler->options;
    const struct http_options server = {
        .address = options->http_bind,
        .cert_file = options->cert_file,
        .key_file = options->key_file,
        .routes = routes,
        .data = scheduler,
    };
    const struct http_options metrics = {
        .address = options->metrics_bind,
        .routes = metrics_routes,
        .data = scheduler,
    };
    int r;

    r = http_server_new(&scheduler->loop, &server, &scheduler->server, err);
    if (r < 0)
        return r;
    r = http_server_new(&scheduler->loop, &metrics, &scheduler->metrics, err);
    if (r < 0)
        return r;
    /* The ports are those that are listened on: the options may say 0. */
    log_info("serving on %.*s:%u, metrics on %.*s:%u", host_len(options->http_bind),
             options->http_bind, http_server_port(scheduler->server),
             host_len(options->metrics_bind), options->metrics_bind,
             http_server_port(scheduler->metrics));
    return 0;
}

static void start_clocks(struct scheduler *scheduler)
{
    (void)uv_signal_init(&scheduler->loop, &scheduler->terminate);
    (void)uv_signal_init(&scheduler->loop, &scheduler->interrupt);
    (void)uv_timer_init(&scheduler->loop, &scheduler->tick);
    (void)uv_timer_init(&scheduler->loop, &scheduler->waiting.until);
    (void)uv_timer_init(&scheduler->loop, &scheduler->leader.look);
    (void)uv_timer_init(&scheduler->loop, &scheduler->leader.settled);
    scheduler->terminate.data = scheduler->interrupt.data = scheduler;
    scheduler->tick.data = scheduler->waiting.until.data = scheduler;
    (void)uv_signal_start(&scheduler->terminate, on_signal, SIGTERM);
    (void)uv_signal_start(&scheduler->interrupt, on_signal, SIGINT);
    (void)uv_timer_start(&scheduler->tick, on_tick, TICK_MS, TICK_MS);
    work_start(scheduler);
}

static int scheduler_start(struct scheduler *scheduler, struct error *err)
{
    int r;

    r = make_state(scheduler, err);
    if (r == 0)
        r = connect_kube(scheduler, err);
    if (r == 0)
        r = start_servers(scheduler, err);
    if (r == 0)
        r = watches_start(scheduler, err);
    if (r == 0)
        r = leader_start(scheduler, err);
    return r;
}

static void free_handles(struct scheduler *scheduler)
{
    filter_end_wait(scheduler);
    binds_abandon(scheduler);
    leader_stop(scheduler);
    work_stop(scheduler);
    uv_close((uv_handle_t *)&scheduler->terminate, NULL);
    uv_close((uv_handle_t *)&scheduler->interrupt, NULL);
    uv_close((uv_handle_t *)&scheduler->tick, NULL);
    uv_close((uv_handle_t *)&scheduler->waiting.until, NULL);
    http_server_free(scheduler->metrics);
    metrics_free(scheduler);
    http_server_free(scheduler->server);
    kube_watch_free(scheduler->pods);
    kube_watch_free(scheduler->nodes);
    kube_watch_free(scheduler->quotas);
    events_free(scheduler->events);
    locks_free(scheduler->locks);
    kube_client_free(scheduler->kube);
    unseen_abandon(scheduler);
    evictions_abandon(scheduler);
    (void)uv_run(&scheduler->loop, UV_RUN_NOWAIT);
}

int main(int argc, char **argv)
{
    static struct scheduler scheduler;
    struct error err = ERROR_INIT;
    int r;

    file_hold_standard();
    (void)mallopt(M_MMAP_THRESHOLD, HEAP_PIECE);
    (void)mallopt(M_TRIM_THRESHOLD, HEAP_KEPT);
    options_parse(argc, argv, &scheduler.options);
    (void)signal(SIGPIPE, SIG_IGN);
    if (uv_loop_init(&scheduler.loop) < 0)
        return 1;

    start_clocks(&scheduler);
    r = scheduler_start(&scheduler, &err);
    if (r < 0)
        log_error("%s", err.text[0] ? err.text : strerror(-r));
    else if (!scheduler.stopping)
        (void)uv_run(&scheduler.loop, UV_RUN_DEFAULT);

    free_handles(&scheduler);
    cluster_free(scheduler.cluster);
    device_config_deinit(&scheduler.config);
    arena_free(scheduler.request_arena);
    arena_free(scheduler.webhook_arena);
    arena_free(scheduler.object_arena);
    return r < 0 ? 1 : 0;
}
