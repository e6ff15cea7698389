/* SPDX-License-Identifier: Apache-2.0 */

/*
 * /metrics. HAMi's names and labels, so that dashboards made for it go on working, and our own
 * about decisions and their time. A cluster of thousands of nodes makes pages of many megabytes:
 * they are written a few nodes, or pods, at a time, as fast as the client takes them, so that no
 * page is ever in memory as a whole, and pods are placed meanwhile.
 */

#include "metrics/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "scheduler/families.h"
#include "scheduler/scheduler.h"

enum {
    STEP_MAX = 8 << 20,
    NAMES_MAX = 256 << 20,
    STEP_NODES = 4, /* at a time: a fraction of a millisecond */
    STEP_PODS = 64,
};

#define ROLL_AGE_NS (5 * NS_PER_S)

#define DURATION "hami_scheduler_request_duration_seconds"

/* Upper bounds of the buckets, in ns. */
static const uint64_t bounds_ns[LATENCY_BUCKETS] = {
    50000,   100000,   250000,   500000,    1000000,    2500000,
    5000000, 10000000, 50000000, 250000000, 1000000000, 5000000000,
};

void latency_note(struct latency *latency, uint64_t begun_ns)
{
    uint64_t taken_ns = (uint64_t)clock_now_ns() - begun_ns;
    unsigned i = 0;

    while (i < LATENCY_BUCKETS && taken_ns > bounds_ns[i])
        i++;
    latency->counts[i]++;
    latency->sum_ns += taken_ns;
}

enum {
    CLASSES_SHOWN = 16,
};

/* What namespaces may have, under HAMi's names. */

enum quota_family {
    QUOTA_USED,
    QUOTA_LIMIT,
    QUOTA_FORMERLY_USED,
};

/* The used amount in the resource's unit, as the limit is. */
static void add_quota(struct strbuf *buf, enum quota_family family, const char *name,
                      const struct cluster_quota_view *quota)
{
    const bool former = family == QUOTA_FORMERLY_USED;
    const int64_t value = family == QUOTA_LIMIT ? quota->bound : quota->used / quota->unit_mib;
    char bound[32];
    const struct metric_label labels[] = {
        {"zone", "vGPU"},
        {former ? "quotanamespace" : "namespace", quota->namespace},
        {former ? "quotaName" : "quota_name", quota->resource},
        {"limit", bound},
    };

    (void)snprintf(bound, sizeof(bound), "%" PRId64, quota->bound);
    metrics_labelled_sample(buf, name, labels, ARRAY_SIZE(labels) - (family == QUOTA_LIMIT),
                            (double)value);
}

static void add_quotas(struct strbuf *buf, const struct scheduler *scheduler)
{
    static const char used[] = "What a namespace's pods have of a resource";
    static const struct {
        const char *name, *help;
    } families[] = {
        [QUOTA_USED] = {"hami_resource_quota_used", used},
        [QUOTA_LIMIT] = {"hami_resource_quota_limit", "What a namespace may have of a resource"},
        [QUOTA_FORMERLY_USED] = {"QuotaUsed", used},
    };
    CLEANUP(arena_freep) struct arena *arena = arena_new(NAMES_MAX);
    struct cluster_quota_view *rows;
    size_t count;

    if (!arena || !leader_leads(scheduler) ||
        cluster_list_quotas(scheduler->cluster, arena, &rows, &count) < 0)
        return;
    for (enum quota_family i = QUOTA_USED; i <= QUOTA_FORMERLY_USED; i++) {
        if (i == QUOTA_FORMERLY_USED && !scheduler->options.legacy_metrics)
            break;
        metrics_family(buf, families[i].name, METRIC_GAUGE, families[i].help);
        for (size_t k = 0; k < count; k++)
            add_quota(buf, i, families[i].name, &rows[k]);
    }
}

/* Our own families. */

static void add_latency(struct strbuf *buf, const char *verb, const struct latency *latency)
{
    struct metric_label labels[] = {{"verb", verb}, {"le", "+Inf"}};
    uint64_t count = 0;
    char bound[32];

    for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
        count += latency->counts[i];
        (void)snprintf(bound, sizeof(bound), "%g", (double)bounds_ns[i] / 1e9);
        labels[1].value = bound;
        metrics_labelled_sample(buf, DURATION "_bucket", labels, 2, (double)count);
    }
    count += latency->counts[LATENCY_BUCKETS];
    labels[1].value = "+Inf";
    metrics_labelled_sample(buf, DURATION "_bucket", labels, 2, (double)count);
    metrics_labelled_sample(buf, DURATION "_sum", labels, 1, (double)latency->sum_ns / 1e9);
    metrics_labelled_sample(buf, DURATION "_count", labels, 1, (double)count);
}

static void add_latencies(struct strbuf *buf, const struct scheduler *scheduler)
{
    metrics_family(buf, DURATION, METRIC_HISTOGRAM, "Time from a request's arrival to its answer");
    add_latency(buf, "filter", &scheduler->filter);
    add_latency(buf, "bind", &scheduler->bind);
    add_latency(buf, "webhook", &scheduler->webhook);
}

struct outcome {
    const char *name;
    uint64_t count;
};

static void add_outcomes(struct strbuf *buf, const char *name, const char *help,
                         const struct outcome *outcomes, size_t count)
{
    metrics_family(buf, name, METRIC_COUNTER, help);
    for (size_t i = 0; i < count; i++) {
        const struct metric_label label = {"outcome", outcomes[i].name};

        metrics_labelled_sample(buf, name, &label, 1, (double)outcomes[i].count);
    }
}

static void add_number(struct strbuf *buf, const char *name, enum metric_type type,
                       const char *help, double value)
{
    metrics_family(buf, name, type, help);
    metrics_sample(buf, name, "", value);
}

static void add_ages(struct strbuf *buf, const struct scheduler *scheduler)
{
    const char *const name = "hami_scheduler_watch_age_seconds";
    const struct {
        const char *resource;
        const struct kube_watch *watch;
    } rows[] = {{"nodes", scheduler->nodes},
                {"pods", scheduler->pods},
                {"resourcequotas", scheduler->quotas}};

    metrics_family(buf, name, METRIC_GAUGE,
                   "Time for which the API server was not heard; 0 while its watch is open");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct metric_label label = {"resource", rows[i].resource};

        if (rows[i].watch)
            metrics_labelled_sample(buf, name, &label, 1, kube_watch_age(rows[i].watch));
    }
}

/* With the policy scarcity; as counted after the page before, so that none waits for it. */
static void add_classes(struct strbuf *buf, const struct scheduler *scheduler)
{
    struct cluster_class classes[CLASSES_SHOWN];
    const size_t count = cluster_classes(scheduler->cluster, classes, ARRAY_SIZE(classes));

    cluster_count_classes(scheduler->cluster);
    if (!count || !leader_leads(scheduler))
        return;
    metrics_family(buf, "hami_cluster_fillable", METRIC_GAUGE,
                   "How many more pods of this class alone would fit, for those that arrive most");
    for (size_t i = 0; i < count; i++)
        metrics_labelled_sample(buf, "hami_cluster_fillable",
                                &(struct metric_label){"class", classes[i].text}, 1,
                                (double)classes[i].fillable);
    add_number(buf, "hami_cluster_unallocatable_ratio", METRIC_GAUGE,
               "Part of all devices that is free and of no use to the pods that arrive",
               MAX(cluster_unallocatable(scheduler->cluster), 0.0));
}

static void add_own(struct strbuf *buf, const struct scheduler *scheduler)
{
    const struct outcome filters[] = {{"placed", scheduler->filters_placed},
                                      {"refused", scheduler->filters_refused},
                                      {"failed", scheduler->filters_failed}};
    const struct outcome binds[] = {{"done", scheduler->binds_done},
                                    {"failed", scheduler->binds_failed}};
    const struct outcome evictions[] = {{"done", scheduler->evictions_done},
                                        {"refused", scheduler->evictions_refused},
                                        {"unknown", scheduler->evictions_unknown}};
    struct cluster_counts counts = cluster_count(scheduler->cluster);
    double lease_age_s = leader_lease_age_s(scheduler);
    struct kube_counts kube;

    kube_client_counts(scheduler->kube, &kube);
    add_quotas(buf, scheduler);
    add_classes(buf, scheduler);
    add_latencies(buf, scheduler);
    add_outcomes(buf, "hami_scheduler_filters_total", "Decisions", filters, ARRAY_SIZE(filters));
    add_outcomes(buf, "hami_scheduler_binds_total", "Binds", binds, ARRAY_SIZE(binds));
    if (scheduler->options.evict_for_devices) {
        add_outcomes(buf, "hami_scheduler_evictions_total",
                     "Evictions of pods for the devices that they hold", evictions,
                     ARRAY_SIZE(evictions));
        add_number(buf, "hami_scheduler_rooms_made_total", METRIC_COUNTER,
                   "Pods that were placed where others were evicted for them",
                   (double)scheduler->rooms_made);
    }
    add_ages(buf, scheduler);
    add_number(buf, "hami_scheduler_nodes", METRIC_GAUGE, "Nodes with devices",
               (double)counts.nodes);
    add_number(buf, "hami_scheduler_pods", METRIC_GAUGE, "Pods that hold devices",
               (double)counts.pods);
    add_number(buf, "hami_scheduler_reservations", METRIC_GAUGE,
               "Pods whose devices are promised and not yet seen in force",
               (double)counts.reserved);
    add_number(buf, "hami_scheduler_leader", METRIC_GAUGE, "1 while this replica decides",
               leader_may_decide(scheduler));
    if (lease_age_s >= 0)
        add_number(buf, "hami_scheduler_lease_age_seconds", METRIC_GAUGE,
                   "Time since the lease was seen to be renewed, by whoever holds it", lease_age_s);
    add_number(buf, "hami_scheduler_reminders_total", METRIC_COUNTER,
               "Pods of which kube-scheduler was told that there may be room for them now",
               (double)scheduler->requeues);
    add_number(buf, "hami_scheduler_api_retries_total", METRIC_COUNTER,
               "Requests to the API server that were sent again", (double)kube.retried);
}

/* The names of all nodes and pods when a page began; pages that begin soon after share it. */
struct roll {
    unsigned refs;
    int64_t made_ns;
    struct arena *arena;
    struct text_list nodes, pods;
};

/* A page being written, a piece ahead of its reader. */
struct scrape {
    struct scheduler *scheduler;
    struct roll *roll;
    struct strbuf page;      /* bytes that are written and not yet taken */
    size_t taken;            /* bytes of the page */
    size_t family, position; /* how far it is written */
    bool complete;
};

static bool add_nodes(struct scrape *scrape, size_t family)
{
    const size_t end = MIN(scrape->position + STEP_NODES, scrape->roll->nodes.count);

    if (scrape->position == 0)
        families_begin_devices(&scrape->page, family);
    for (; scrape->position < end; scrape->position++) {
        const char *name = scrape->roll->nodes.items[scrape->position];
        const struct place_node *node = cluster_find_node(scrape->scheduler->cluster, name);

        if (node)
            families_add_devices(&scrape->page, family, node);
    }
    return end == scrape->roll->nodes.count;
}

static bool add_pods(struct scrape *scrape, size_t family)
{
    const struct cluster *cluster = scrape->scheduler->cluster;
    const size_t end = MIN(scrape->position + STEP_PODS, scrape->roll->pods.count);

    if (scrape->position == 0)
        families_begin_pods(&scrape->page, family);
    for (; scrape->position < end; scrape->position++) {
        const char *uid = scrape->roll->pods.items[scrape->position];
        struct cluster_pod_view pod;

        if (cluster_find_pod(cluster, uid, &pod))
            families_add_pod(&scrape->page, family, &pod, cluster_find_node(cluster, pod.node));
    }
    return end == scrape->roll->pods.count;
}

/* Writes a few more samples. */
static void take_step(struct scrape *scrape)
{
    const bool former = scrape->scheduler->options.legacy_metrics;
    const size_t devices = families_of_devices(former), pods = families_of_pods(former);
    bool over;

    if (scrape->family < devices)
        over = add_nodes(scrape, scrape->family);
    else
        over = add_pods(scrape, scrape->family - devices);
    if (over) {
        scrape->family++;
        scrape->position = 0;
    }
    if (scrape->family < devices + pods)
        return;
    add_own(&scrape->page, scrape->scheduler);
    scrape->complete = true;
}

static ssize_t read_page(void *data, char *to, size_t size)
{
    struct scrape *scrape = data;
    size_t len;

    if (scrape->taken == scrape->page.len) {
        scrape->page.len = scrape->taken = 0;
        while (scrape->page.len < size && !scrape->complete)
            take_step(scrape);
    }
    if (scrape->page.failed)
        return -ENOMEM;
    len = MIN(size, scrape->page.len - scrape->taken);
    if (len)
        memcpy(to, scrape->page.text + scrape->taken, len);
    scrape->taken += len;
    return (ssize_t)len;
}

static void roll_unref(struct roll *roll)
{
    if (!roll || --roll->refs)
        return;
    arena_free(roll->arena);
    free(roll);
}

static struct roll *roll_new(const struct scheduler *scheduler)
{
    struct roll *roll = calloc(1, sizeof(*roll));

    if (!roll)
        return NULL;
    roll->refs = 1;
    roll->made_ns = clock_now_ns();
    roll->arena = arena_new(NAMES_MAX);
    /* Only the leader exports grants, so that sums over the replicas count them once. */
    if (!roll->arena || (leader_leads(scheduler) && cluster_list(scheduler->cluster, roll->arena,
                                                                 &roll->nodes, &roll->pods) < 0)) {
        roll_unref(roll);
        return NULL;
    }
    return roll;
}

static bool is_stale(const struct roll *roll)
{
    return roll->refs == 1 || clock_now_ns() - roll->made_ns > ROLL_AGE_NS;
}

/* A page that begins while others are read shares their roll. A reader has half a minute, so there
 * are never many rolls. */
static struct roll *take_roll(struct scheduler *scheduler)
{
    metrics_tick(scheduler);
    if (!scheduler->roll)
        scheduler->roll = roll_new(scheduler);
    if (scheduler->roll)
        scheduler->roll->refs++;
    return scheduler->roll;
}

void metrics_tick(struct scheduler *scheduler)
{
    if (scheduler->roll && is_stale(scheduler->roll))
        metrics_free(scheduler);
}

void metrics_free(struct scheduler *scheduler)
{
    roll_unref(scheduler->roll);
    scheduler->roll = NULL;
}

static void scrape_free(void *data)
{
    struct scrape *scrape = data;

    strbuf_deinit(&scrape->page);
    roll_unref(scrape->roll);
    free(scrape);
}

void handle_metrics(void *data, struct http_request *request)
{
    struct scheduler *scheduler = data;
    struct scrape *scrape = calloc(1, sizeof(*scrape));
    struct roll *roll = scrape ? take_roll(scheduler) : NULL;

    if (!roll) {
        free(scrape);
        http_answer(request, 503, HTTP_TEXT, "out of memory\n", 14);
        return;
    }
    scrape->scheduler = scheduler;
    scrape->roll = roll;
    scrape->page = (struct strbuf)STRBUF_INIT(STEP_MAX);
    metrics_family(&scrape->page, "hami_build_info", METRIC_GAUGE,
                   "Always 1; the version is a label");
    metrics_labelled_sample(&scrape->page, "hami_build_info",
                            &(struct metric_label){"version", HAMI_VERSION}, 1, 1);
    http_answer_source(
        request, HTTP_METRICS,
        &(struct http_source){.read = read_page, .free = scrape_free, .data = scrape});
}
