/* SPDX-License-Identifier: Apache-2.0 */

/* hami-vgpu-monitor: exports the use of this node's GPUs by its containers. */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/options.h"
#include "base/util.h"
#include "http/server.h"
#include "kube/client.h"
#include "kube/watch.h"
#include "monitor/compare.h"
#include "monitor/containers.h"
#include "monitor/export.h"
#include "monitor/feedback.h"
#include "monitor/podnames.h"
#include "monitor/tell.h"
#include "nvml/find.h"
#include "nvml/watchdog.h"

enum {
    CARDS_MAX = 64,
    NODE_NAME_SIZE = 256,
    METRICS_MAX = 64 << 20,
    CARDS_MS = 5000,
    LATE_TIMES = 2, /* of CARDS_MS, until NVML counts as not answering */
    LOOK_MS = 1000, /* at the containers */
    FEEDBACK_LOOKS = 5,
    REPORT_OLD_S = 30,
};

#define AGENT "hami-vgpu-monitor/" HAMI_VERSION

struct options {
    char node_name[NODE_NAME_SIZE];
    const char *kubeconfig, *hook_path, *address;
    const char *driver_root; /* NULL: where drivers usually are */
    const char *exempt, *procfs;
    bool legacy;
    enum bypass_policy { BYPASS_REPORT, BYPASS_KILL, BYPASS_OFF } bypass;
};

/* A reading of the cards by NVML, ours or the device plugin's. */
struct reading {
    int result;
    struct error err;
    double age_s; /* of the device plugin's report; else 0 */
    size_t count;
    struct nvml_card cards[CARDS_MAX];
};

struct monitor {
    uv_loop_t loop;
    const struct options *options;
    struct containers *containers;
    const struct container_use *uses; /* of the last look that was well */
    size_t use_count;
    int64_t looked_ns; /* when; 0: none yet */
    unsigned looks;
    struct pod_names *names;
    struct nvml *nvml;            /* the thread's, since it may block or hang */
    struct reading found, report; /* the thread's, too */
    struct reading cards;         /* the last reading */
    int64_t cards_ns;             /* when; 0: not yet */
    struct watchdog watchdog;
    int result; /* of the program */

    struct compare *compare; /* NULL: not asked for */
    struct tell *tell;
    struct tell_case cases[256];

    struct kube_client *kube;
    struct kube_watch *watch;
    struct http_server *http;
    struct http_pages pages; /* of metrics */
    uv_timer_t timer;
    uv_signal_t signals[2];
};

/* Cards, which NVML is asked for in a thread of its own */

/* Reads the device plugin's report: the plugin has the device nodes that NVML needs. */
static int read_report(const struct monitor *monitor, struct reading *reading)
{
    AUTOFREE char *text = malloc(NVML_REPORT_MAX);
    char path[PATH_MAX];
    struct stat st;
    ssize_t len;
    int count;

    len = snprintf(path, sizeof(path), "%s/" NVML_REPORT_FILE, monitor->options->hook_path);
    if (!text || len >= (ssize_t)sizeof(path) || file_stat(path, &st) < 0)
        return -ENOENT;
    reading->age_s = (double)(time(NULL) - st.st_mtim.tv_sec);
    if (reading->age_s > REPORT_OLD_S)
        return error_set(&reading->err, -ESTALE, "%s is %.0f s old, and NVML can't be opened here",
                         path, reading->age_s);
    len = file_read(path, text, NVML_REPORT_MAX);
    count = len < 0 ? (int)len : nvml_report_parse(text, (size_t)len, reading->cards, CARDS_MAX);
    if (count < 0)
        return error_set(&reading->err, count, "%s can't be read", path);
    reading->count = (size_t)count;
    return 0;
}

/* Health is the device plugin's word: NVML alone does not remember what befell a card. */
static void add_health(struct monitor *monitor, struct reading *reading)
{
    struct reading *told = &monitor->report;

    *told = (struct reading){.count = 0};
    if (read_report(monitor, told) < 0)
        return;
    for (size_t i = 0; i < reading->count; i++) {
        struct nvml_card *card = &reading->cards[i];

        for (size_t k = 0; k < told->count; k++) {
            if (strcmp(told->cards[k].device.uuid, card->device.uuid) == 0)
                nvml_card_take_health(card, &told->cards[k]);
        }
    }
}

/* Cards that NVML does not list any more are left out; one that does not answer has no samples. */
static int read_cards(struct monitor *monitor, struct reading *reading)
{
    int count, r;

    *reading = (struct reading){.count = 0};
    r = monitor->nvml ? 0
                      : nvml_find(monitor->options->driver_root, driver_usual_roots, &monitor->nvml,
                                  &reading->err);
    if (r < 0) {
        int report = read_report(monitor, reading);

        return report == -ENOENT ? r : report;
    }
    count = nvml_read_cards(monitor->nvml, reading->cards, CARDS_MAX, &reading->err);
    reading->count = (size_t)MAX(count, 0);
    add_health(monitor, reading);
    return MIN(count, 0);
}

static void ask_cards(void *data)
{
    struct monitor *monitor = data;

    monitor->found.result = read_cards(monitor, &monitor->found);
}

static void on_cards(void *data)
{
    struct monitor *monitor = data;

    if (monitor->found.result < 0 && strcmp(monitor->found.err.text, monitor->cards.err.text) != 0)
        log_warn("the cards can't be read: %s", monitor->found.err.text);
    monitor->cards = monitor->found;
    monitor->cards_ns = clock_now_ns() - (int64_t)(monitor->found.age_s * (double)NS_PER_S);
}

static void on_cards_late(void *data)
{
    (void)data;
    log_warn("NVML does not answer; what is said of the cards is what it said last");
}

static const struct watchdog_ops cards_ops = {
    .ask = ask_cards,
    .done = on_cards,
    .late = on_cards_late,
};

/*
 * Containers, which are looked at whether we are scraped or not, since utilisation is over the time
 * between two looks. What a scrape is told is what the last look found: it costs the writing of it
 * alone, however many containers there are and however many ask. The comparison sees the containers
 * in the same looks.
 */
static int look_at_containers(void *data, const struct containers_visitor *visitor,
                              struct error *err)
{
    struct monitor *monitor = data;
    struct feedback *feedback = monitor->looks++ % FEEDBACK_LOOKS == 0 ? feedback_new() : NULL;
    struct containers_visitor visitors[2];
    struct containers_look look = {.now_ns = clock_now_ns(), .visitors = visitors};
    int r;

    if (visitor)
        visitors[look.visitor_count++] = *visitor;
    if (feedback)
        visitors[look.visitor_count++] = feedback_visitor(feedback);
    r = containers_look(monitor->containers, &look, err);
    if (r < 0) {
        log_warn("the containers can't be read: %s", err->text);
        monitor->use_count = 0; /* they were read over */
    } else {
        monitor->uses = look.uses;
        monitor->use_count = look.use_count;
        monitor->looked_ns = look.now_ns;
        r = look.missed;
        if (r < 0)
            (void)error_set(err, r, "a container can't be looked into: %s", strerror(-r));
    }
    if (feedback && r == 0)
        feedback_tell(feedback);
    feedback_free(feedback);
    return r;
}

/* Where there is a comparison it looks each second as well, once the driver has answered it. */
static void on_look(uv_timer_t *timer)
{
    struct monitor *monitor = timer->data;
    struct error err = ERROR_INIT;

    if (!monitor->looked_ns || !monitor->compare || compare_is_asking(monitor->compare))
        (void)look_at_containers(monitor, NULL, &err);
}

/* Metrics */

static double age_s(int64_t when_ns)
{
    return when_ns ? (double)(clock_now_ns() - when_ns) / (double)NS_PER_S : -1;
}

static void describe_bypass(struct monitor *monitor, struct exported *what)
{
    struct compare_state state;

    if (!monitor->compare || !monitor->tell)
        return;
    compare_read_state(monitor->compare, &state);
    what->compares = true;
    what->compare_up = state.up;
    what->compare_age_s = age_s(state.looked_ns);
    what->case_count =
        tell_read(monitor->tell, monitor->cases, ARRAY_SIZE(monitor->cases), &what->counts);
    what->cases = monitor->cases;
}

/* NULL: no memory. */
static struct http_page *write_page(struct monitor *monitor)
{
    struct strbuf buf = STRBUF_INIT(METRICS_MAX);
    struct http_page *page = NULL;
    struct exported what = {
        .node = monitor->options->node_name,
        .version = HAMI_VERSION,
        .legacy = monitor->options->legacy,
        .now = (int64_t)time(NULL),
        .card_count = monitor->cards.count,
        .cards = monitor->cards.cards,
        .nvml_answers = monitor->cards_ns && monitor->cards.result == 0 &&
                        !watchdog_is_late(&monitor->watchdog),
        .cards_age_s = age_s(monitor->cards_ns),
        .names = monitor->names,
        .use_count = monitor->use_count,
        .uses = monitor->uses,
        .uses_age_s = age_s(monitor->looked_ns),
    };

    describe_bypass(monitor, &what);
    what.pods_age_s = kube_watch_is_complete(monitor->watch) ? kube_watch_age(monitor->watch) : -1;
    export_metrics(&what, &buf);
    if (!buf.failed)
        page = http_page_new(TAKE(buf.text), buf.len);
    strbuf_deinit(&buf);
    return page;
}

static void on_metrics(void *data, struct http_request *request)
{
    struct monitor *monitor = data;
    struct http_page *page = http_pages_get(&monitor->pages);
    bool made = !page;

    if (made)
        page = write_page(monitor);
    if (!page) {
        http_answer(request, 503, HTTP_TEXT, "no memory\n", 10);
        return;
    }
    http_answer_page(request, HTTP_METRICS, page);
    if (made)
        http_pages_put(&monitor->pages, page);
}

static void on_health(void *data, struct http_request *request)
{
    (void)data;
    http_answer(request, 200, HTTP_TEXT, "ok\n", 3);
}

static const struct http_route routes[] = {
    {.method = "GET", .path = "/metrics", .handle = on_metrics},
    {.method = "GET", .path = "/healthz", .handle = on_health},
    {.method = NULL},
};

/* Pods */

static void on_begin(void *data)
{
    struct monitor *monitor = data;

    pod_names_begin(monitor->names);
}

static void on_pod(void *data, enum kube_event event, yyjson_val *object)
{
    struct monitor *monitor = data;

    if (event == KUBE_DELETED)
        pod_names_remove(monitor->names, object);
    else
        pod_names_put(monitor->names, object);
}

static void on_complete(void *data)
{
    struct monitor *monitor = data;

    pod_names_complete(monitor->names);
}

static const struct kube_watch_ops pod_ops = {
    .begin = on_begin,
    .object = on_pod,
    .complete = on_complete,
};

static int watch_pods(struct monitor *monitor, struct error *err)
{
    CLEANUP(kube_config_freep) struct kube_config *config = NULL;
    char on_node[512];
    struct kube_watch_spec spec = {.path = "/api/v1/pods", .field_selector = on_node};
    int r;

    (void)snprintf(on_node, sizeof(on_node), "spec.nodeName=%s", monitor->options->node_name);
    r = kube_config_load(monitor->options->kubeconfig, &config, err);
    if (r == 0)
        r = kube_client_new(&monitor->loop, config, AGENT, &monitor->kube, err);
    if (r == 0)
        r = kube_watch_new(monitor->kube, &spec, &pod_ops, monitor, &monitor->watch, err);
    return r;
}

/* Starting and ending */

static void monitor_stop(struct monitor *monitor)
{
    if (uv_is_closing((uv_handle_t *)&monitor->signals[0]))
        return;
    compare_stop(monitor->compare);
    http_server_free(monitor->http);
    http_pages_deinit(&monitor->pages);
    tell_free(monitor->tell);
    monitor->tell = NULL;
    kube_watch_free(monitor->watch);
    kube_client_free(monitor->kube);
    watchdog_stop(&monitor->watchdog);
    uv_close((uv_handle_t *)&monitor->timer, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(monitor->signals); i++)
        uv_close((uv_handle_t *)&monitor->signals[i], NULL);
}

static void on_signal(uv_signal_t *handle, int number)
{
    log_info("ending on signal %d", number);
    monitor_stop(handle->data);
}

static void start_handles(struct monitor *monitor)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    const struct watchdog_options options = {
        .ops = &cards_ops,
        .data = monitor,
        .period_ms = CARDS_MS,
        .late_periods = LATE_TIMES,
    };

    watchdog_start(&monitor->watchdog, &monitor->loop, &options);
    (void)uv_timer_init(&monitor->loop, &monitor->timer);
    monitor->timer.data = monitor;
    (void)uv_timer_start(&monitor->timer, on_look, 0, LOOK_MS);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        (void)uv_signal_init(&monitor->loop, &monitor->signals[i]);
        monitor->signals[i].data = monitor;
        (void)uv_signal_start(&monitor->signals[i], on_signal, numbers[i]);
    }
}

static void on_compared(void *data, struct bypass *bypass, const struct bypass_look *look)
{
    struct monitor *monitor = data;

    if (monitor->tell)
        tell_act(monitor->tell, bypass, look);
}

static int start_compare(struct monitor *monitor, struct error *err)
{
    const struct options *options = monitor->options;
    const struct compare_options compare = {
        .driver_root = options->driver_root,
        .procfs = options->procfs,
        .look = look_at_containers,
        .done = on_compared,
        .data = monitor,
    };
    const struct tell_options tell = {
        .node_name = options->node_name,
        .exempt = options->exempt,
        .procfs = options->procfs ? options->procfs : "/proc",
        .kills = options->bypass == BYPASS_KILL,
        .kube = monitor->kube,
        .names = monitor->names,
    };

    if (options->bypass == BYPASS_OFF)
        return 0;
    monitor->tell = tell_new(&tell);
    monitor->compare = monitor->tell ? compare_new(&monitor->loop, &compare) : NULL;
    return monitor->compare ? 0 : error_set(err, -ENOMEM, "no memory");
}

static int monitor_start(struct monitor *monitor, struct error *err)
{
    const struct http_options http = {
        .address = monitor->options->address, .routes = routes, .data = monitor};
    int r;

    monitor->containers = containers_new(monitor->options->hook_path);
    monitor->names = pod_names_new();
    if (!monitor->containers || !monitor->names)
        return error_set(err, -ENOMEM, "no memory");
    r = watch_pods(monitor, err);
    if (r == 0)
        r = start_compare(monitor, err);
    if (r == 0)
        r = http_server_new(&monitor->loop, &http, &monitor->http, err);
    return r;
}

static int monitor_run(const struct options *options)
{
    struct monitor *monitor = calloc(1, sizeof(*monitor));
    struct error err = ERROR_INIT;
    int r;

    if (!monitor || uv_loop_init(&monitor->loop) < 0)
        return -ENOMEM;
    (void)signal(SIGPIPE, SIG_IGN);
    monitor->options = options;
    start_handles(monitor);
    r = monitor_start(monitor, &err);
    if (r < 0) {
        log_error("%s", err.text);
        monitor->result = r;
        monitor_stop(monitor);
    } else {
        log_info("node %s: serving metrics on %s", options->node_name, options->address);
    }
    (void)uv_run(&monitor->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&monitor->loop);
    r = monitor->result;
    nvml_close(monitor->nvml);
    compare_free(monitor->compare);
    containers_free(monitor->containers);
    pod_names_free(monitor->names);
    free(monitor);
    return r;
}

/* Options */

static int read_node_name(char *text, void *member, struct error *err)
{
    if (strlen(text) >= NODE_NAME_SIZE)
        return error_set(err, -EINVAL, "\"%.64s...\" is no node's name", text);
    copy_text(member, NODE_NAME_SIZE, text);
    return 0;
}

static int check_together(void *data, struct error *err)
{
    const struct options *options = data;

    if (!options->node_name[0])
        return error_set(err, -EINVAL, "which node is this? Set NODE_NAME or --node-name");
    return 0;
}

static int read_bypass(char *text, void *member, struct error *err)
{
    static const char *const words[] = {
        [BYPASS_REPORT] = "report", [BYPASS_KILL] = "kill", [BYPASS_OFF] = "off"};

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (strcmp(text, words[i]) != 0)
            continue;
        *(enum bypass_policy *)member = (enum bypass_policy)i;
        return 0;
    }
    return error_set(err, -EINVAL, "\"%s\" is none of report, kill and off", text);
}

#define AT(member) offsetof(struct options, member)

static const struct option_row rows[] = {
    {"node-name", 0, 0, "NAME", read_node_name, AT(node_name),
     "This node's name (default: $NODE_NAME)"},
    {"kubeconfig", 0, 0, "FILE", option_text, AT(kubeconfig),
     "How to reach the API server (default: $KUBECONFIG, the pod's own, ~/.kube/config)"},
    {"hook-path", 0, 0, "FOLDER", option_text, AT(hook_path),
     "Where the device plugin keeps the containers' files (default: $HOOK_PATH, /usr/local/vgpu)"},
    {"metrics-bind-address", 0, 0, "ADDRESS", http_read_address, AT(address),
     "Where /metrics and /healthz are served (default: :9394)"},
    {"legacy-metrics", 0, OPTION_MAY_STAND_ALONE, "BOOL", option_bool, AT(legacy),
     "Serve the metrics under HAMi's older names, too"},
    {"bypass", 0, 0, "report|kill|off", read_bypass, AT(bypass),
     "What is done about processes that hold memory of a card past the library: an event, a metric "
     "and a condition of the Node (default), SIGKILL as well, or nothing is looked at. Needs the "
     "pids of the host (hostPID) and the driver"},
    {"bypass-exempt", 0, 0, "NAMESPACES", option_text, AT(exempt),
     "Namespaces whose pods may use cards that they were not given (default: " TELL_EXEMPT ")"},
    {"procfs", 0, OPTION_UNLISTED, "FOLDER", option_text, AT(procfs),
     "What tells of the host's processes (default: /proc, with the host's pids)"},
    {"nvidia-driver-root", 0, 0, "FOLDER", option_root, AT(driver_root),
     "Below which the driver is, as this program sees it (default: where drivers usually are)"},
    {"v", 'v', 0, "LEVEL", option_verbosity, 0, "How much to say; 5: everything"},
};

static const struct option_table table = {
    .rows = rows,
    .count = ARRAY_SIZE(rows),
    .version = "hami-vgpu-monitor " HAMI_VERSION,
    .doc = "Serves Prometheus metrics of this node's GPUs and of what its containers use of them.\v"
           "With HAMI_SIM naming a simulated machine, and LD_LIBRARY_PATH the folder of the "
           "simulated driver, the node's cards are simulated.",
    .check = check_together,
};

int main(int argc, char **argv)
{
    const char *name = getenv("NODE_NAME"), *hook_path = getenv("HOOK_PATH");
    struct options options = {
        .hook_path = hook_path && *hook_path ? hook_path : "/usr/local/vgpu",
        .address = ":9394",
        .exempt = TELL_EXEMPT,
    };

    file_hold_standard();
    if (name)
        COPY_TEXT(options.node_name, name);
    options_read(&table, argc, argv, &options);
    return monitor_run(&options) < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
