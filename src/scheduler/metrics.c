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
    LABELS_MAX = 8,
    CLASSES_SHOWN = 16,
};

/* One sample with these labels. */
static void add_sample(struct strbuf *buf, const char *name, const struct metric_label *labels,
                       size_t count, double value)
{
    strbuf_add(buf, name);
    metrics_labels(buf, labels, count);
    metrics_sample(buf, "", "", value);
}

/* HAMi's families of devices: each device of each node makes a sample of each. */
struct device_family {
    const char *name, *help;
    bool with_cores; /* label device_cores */
    bool with_limit; /* label device_memory_limit */
    double (*value)(const struct device *device);
};

static double memory_limit(const struct device *device)
{
    return (double)device->memory_bytes;
}

static double core_limit(const struct device *device)
{
    return device->cores;
}

static double memory_allocated(const struct device *device)
{
    return (double)device->used.memory_bytes;
}

static double shared_count(const struct device *device)
{
    return device->used.tasks;
}

static double core_allocated(const struct device *device)
{
    return device->used.cores;
}

static double memory_ratio(const struct device *device)
{
    return device->memory_bytes ? (double)device->used.memory_bytes / (double)device->memory_bytes
                                : 0;
}

static const struct device_family device_families[] = {
    {"hami_gpu_memory_limit_bytes", "Device memory that can be granted", .value = memory_limit},
    {"hami_gpu_core_limit_ratio", "Compute that can be granted, in percent of the card",
     .value = core_limit},
    {"hami_gpu_memory_allocated_bytes", "Device memory granted", .with_cores = true,
     .value = memory_allocated},
    {"hami_gpu_shared_count", "Containers that share the card", .value = shared_count},
    {"hami_gpu_core_allocated_ratio", "Compute granted, in percent of the card",
     .value = core_allocated},
    {"hami_node_gpu_overview", "Device memory granted, with the card's limits as labels",
     .with_cores = true, .with_limit = true, .value = memory_allocated},
    {"hami_node_gpu_memory_allocated_ratio", "Device memory granted, as a part of the card's",
     .value = memory_ratio},
};

static void add_device(struct strbuf *buf, const struct device_family *family, const char *node,
                       const struct device *device)
{
    struct metric_label labels[LABELS_MAX];
    char index[16], cores[16], limit[24];
    size_t count = 0;

    (void)snprintf(index, sizeof(index), "%u", device->index);
    (void)snprintf(cores, sizeof(cores), "%u", device->cores);
    (void)snprintf(limit, sizeof(limit), "%" PRIu64, device->memory_bytes / MIB);
    labels[count++] = (struct metric_label){"zone", "vGPU"};
    labels[count++] = (struct metric_label){"node", node};
    labels[count++] = (struct metric_label){"device_uuid", device->uuid};
    labels[count++] = (struct metric_label){"device_index", index};
    if (family->with_cores)
        labels[count++] = (struct metric_label){"device_cores", cores};
    if (family->with_limit)
        labels[count++] = (struct metric_label){"device_memory_limit", limit};
    labels[count++] = (struct metric_label){"device_type", device->model};
    add_sample(buf, family->name, labels, count, family->value(device));
}

/* HAMi's families of pods' shares. */
struct pod_family {
    const char *name, *help;
    double (*value)(const struct device_usage *usage);
};

static double share_memory(const struct device_usage *usage)
{
    return (double)usage->memory_bytes;
}

static double share_cores(const struct device_usage *usage)
{
    return usage->cores;
}

static const struct pod_family pod_families[] = {
    {"hami_vgpu_memory_allocated_bytes", "Device memory granted to a pod", share_memory},
    {"hami_vgpu_core_allocated_ratio", "Compute granted to a pod, in percent of the card",
     share_cores},
};

static void add_share(struct strbuf *buf, const struct pod_family *family,
                      const struct cluster_pod_view *pod, const struct place_share *share)
{
    const struct metric_label labels[] = {
        {"zone", "vGPU"},   {"namespace", pod->namespace}, {"node", pod->node},
        {"pod", pod->name}, {"container_index", "0"},      {"device_uuid", share->uuid},
    };

    add_sample(buf, family->name, labels, ARRAY_SIZE(labels), family->value(&share->usage));
}

/* What namespaces may have, under HAMi's names. */

static void add_quota(struct strbuf *buf, const char *name, const struct cluster_quota_view *quota,
                      int64_t value)
{
    char bound[32];
    const struct metric_label labels[] = {
        {"namespace", quota->namespace},
        {"quota_name", quota->resource},
        {"limit", bound},
    };

    (void)snprintf(bound, sizeof(bound), "%" PRId64, quota->bound);
    add_sample(buf, name, labels, ARRAY_SIZE(labels), (double)value);
}

/* The used amount in the resource's unit, as the limit is. */
static void add_quotas(struct strbuf *buf, const struct scheduler *scheduler)
{
    const char *const used = "hami_resource_quota_used", *const bound = "hami_resource_quota_limit";
    CLEANUP(arena_freep) struct arena *arena = arena_new(NAMES_MAX);
    struct cluster_quota_view *rows;
    size_t count;

    if (!arena || !leader_leads(scheduler) ||
        cluster_list_quotas(scheduler->cluster, arena, &rows, &count) < 0)
        return;
    metrics_family(buf, used, METRIC_GAUGE, "What a namespace's pods have of a resource");
    for (size_t i = 0; i < count; i++)
        add_quota(buf, used, &rows[i], rows[i].used / rows[i].unit_mib);
    metrics_family(buf, bound, METRIC_GAUGE, "What a namespace may have of a resource");
    for (size_t i = 0; i < count; i++)
        add_quota(buf, bound, &rows[i], rows[i].bound);
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
        add_sample(buf, DURATION "_bucket", labels, 2, (double)count);
    }
    count += latency->counts[LATENCY_BUCKETS];
    labels[1].value = "+Inf";
    add_sample(buf, DURATION "_bucket", labels, 2, (double)count);
    add_sample(buf, DURATION "_sum", labels, 1, (double)latency->sum_ns / 1e9);
    add_sample(buf, DURATION "_count", labels, 1, (double)count);
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

        add_sample(buf, name, &label, 1, (double)outcomes[i].count);
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
            add_sample(buf, name, &label, 1, kube_watch_age(rows[i].watch));
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
        add_sample(buf, "hami_cluster_fillable", &(struct metric_label){"class", classes[i].text},
                   1, (double)classes[i].fillable);
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

static bool add_nodes(struct scrape *scrape, const struct device_family *family)
{
    const size_t end = MIN(scrape->position + STEP_NODES, scrape->roll->nodes.count);

    if (scrape->position == 0)
        metrics_family(&scrape->page, family->name, METRIC_GAUGE, family->help);
    for (; scrape->position < end; scrape->position++) {
        const char *name = scrape->roll->nodes.items[scrape->position];
        const struct place_node *node = cluster_find_node(scrape->scheduler->cluster, name);

        for (uint32_t i = 0; node && i < node->device_count; i++)
            add_device(&scrape->page, family, node->name, &node->devices[i]);
    }
    return end == scrape->roll->nodes.count;
}

static bool add_pods(struct scrape *scrape, const struct pod_family *family)
{
    const size_t end = MIN(scrape->position + STEP_PODS, scrape->roll->pods.count);

    if (scrape->position == 0)
        metrics_family(&scrape->page, family->name, METRIC_GAUGE, family->help);
    for (; scrape->position < end; scrape->position++) {
        const char *uid = scrape->roll->pods.items[scrape->position];
        struct cluster_pod_view pod;

        if (!cluster_find_pod(scrape->scheduler->cluster, uid, &pod))
            continue;
        for (size_t i = 0; i < pod.usage->count; i++)
            add_share(&scrape->page, family, &pod, &pod.usage->shares[i]);
    }
    return end == scrape->roll->pods.count;
}

/* Writes a few more samples. */
static void take_step(struct scrape *scrape)
{
    const size_t devices = ARRAY_SIZE(device_families), pods = ARRAY_SIZE(pod_families);
    bool over;

    if (scrape->family < devices)
        over = add_nodes(scrape, &device_families[scrape->family]);
    else
        over = add_pods(scrape, &pod_families[scrape->family - devices]);
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
    add_sample(&scrape->page, "hami_build_info", &(struct metric_label){"version", HAMI_VERSION}, 1,
               1);
    http_answer_source(
        request, HTTP_METRICS,
        &(struct http_source){.read = read_page, .free = scrape_free, .data = scrape});
}
