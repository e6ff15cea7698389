/* SPDX-License-Identifier: Apache-2.0 */

/*
 * /metrics. HAMi's names and labels, so that dashboards made for it go on working, and our own
 * about decisions and their time.
 */

#include "metrics/metrics.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "scheduler/scheduler.h"

enum {
    METRICS_MAX = 256 << 20,
};

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
    return device->used.slots;
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

struct device_walk {
    struct strbuf *buf;
    const struct device_family *family;
};

static void add_device(struct device_walk *walk, const char *node, const struct device *device)
{
    char index[16], cores[16], limit_mib[24];
    struct metric_label labels[8] = {
        {"zone", "vGPU"},
        {"node", node},
        {"device_uuid", device->uuid},
        {"device_index", index},
    };
    size_t count = 4;

    (void)snprintf(index, sizeof(index), "%u", device->index);
    (void)snprintf(cores, sizeof(cores), "%u", device->cores);
    (void)snprintf(limit_mib, sizeof(limit_mib), "%" PRIu64, device->memory_bytes / MIB);
    if (walk->family->with_cores)
        labels[count++] = (struct metric_label){"device_cores", cores};
    if (walk->family->with_limit)
        labels[count++] = (struct metric_label){"device_memory_limit", limit_mib};
    labels[count++] = (struct metric_label){"device_type", device->model};
    add_sample(walk->buf, walk->family->name, labels, count, walk->family->value(device));
}

static void add_node(void *data, const struct place_node *node)
{
    for (uint32_t i = 0; i < node->device_count; i++)
        add_device(data, node->name, &node->devices[i]);
}

static void add_devices(struct strbuf *buf, const struct cluster *cluster)
{
    for (size_t i = 0; i < ARRAY_SIZE(device_families); i++) {
        struct device_walk walk = {buf, &device_families[i]};

        metrics_family(buf, walk.family->name, METRIC_GAUGE, walk.family->help);
        cluster_each_node(cluster, add_node, &walk);
    }
}

/* HAMi's families of pods' shares. */
struct pod_walk {
    struct strbuf *buf;
    const char *name;
    bool cores;
};

static void add_pod(void *data, const struct cluster_pod_view *pod)
{
    const struct pod_walk *walk = data;

    for (size_t i = 0; i < pod->usage->count; i++) {
        const struct place_share *share = &pod->usage->shares[i];

        const struct metric_label labels[] = {
            {"zone", "vGPU"},   {"namespace", pod->namespace}, {"node", pod->node},
            {"pod", pod->name}, {"container_index", "0"},      {"device_uuid", share->uuid},
        };

        add_sample(walk->buf, walk->name, labels, ARRAY_SIZE(labels),
                   walk->cores ? (double)share->usage.cores : (double)share->usage.memory_bytes);
    }
}

static void add_pods(struct strbuf *buf, const struct cluster *cluster)
{
    struct pod_walk memory = {buf, "hami_vgpu_memory_allocated_bytes", false};
    struct pod_walk cores = {buf, "hami_vgpu_core_allocated_ratio", true};

    metrics_family(buf, memory.name, METRIC_GAUGE, "Device memory granted to a pod");
    cluster_each_pod(cluster, add_pod, &memory);
    metrics_family(buf, cores.name, METRIC_GAUGE,
                   "Compute granted to a pod, in percent of the card");
    cluster_each_pod(cluster, add_pod, &cores);
}

static void add_latency(struct strbuf *buf, const char *verb, const struct latency *latency)
{
    const char *name = "hami_scheduler_request_duration_seconds";
    uint64_t count = 0;

    for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
        count += latency->counts[i];
        strbuf_addf(buf, "%s_bucket{verb=\"%s\",le=\"%g\"} %" PRIu64 "\n", name, verb,
                    (double)bounds_ns[i] / 1e9, count);
    }
    count += latency->counts[LATENCY_BUCKETS];
    strbuf_addf(buf, "%s_bucket{verb=\"%s\",le=\"+Inf\"} %" PRIu64 "\n", name, verb, count);
    strbuf_addf(buf, "%s_sum{verb=\"%s\"} %.9f\n", name, verb, (double)latency->sum_ns / 1e9);
    strbuf_addf(buf, "%s_count{verb=\"%s\"} %" PRIu64 "\n", name, verb, count);
}

static void add_own(struct strbuf *buf, const struct scheduler *scheduler)
{
    struct cluster_counts counts = cluster_count(scheduler->cluster);
    struct kube_counts kube;

    kube_client_counts(scheduler->kube, &kube);
    metrics_family(buf, "hami_scheduler_request_duration_seconds", METRIC_HISTOGRAM,
                   "Time from a request's arrival to its answer");
    add_latency(buf, "filter", &scheduler->filter);
    add_latency(buf, "bind", &scheduler->bind);
    add_latency(buf, "webhook", &scheduler->webhook);
    metrics_family(buf, "hami_scheduler_filters_total", METRIC_COUNTER,
                   "Decisions, by their outcome");
    strbuf_addf(buf, "hami_scheduler_filters_total{outcome=\"placed\"} %" PRIu64 "\n",
                scheduler->filters_placed);
    strbuf_addf(buf, "hami_scheduler_filters_total{outcome=\"refused\"} %" PRIu64 "\n",
                scheduler->filters_refused);
    strbuf_addf(buf, "hami_scheduler_filters_total{outcome=\"failed\"} %" PRIu64 "\n",
                scheduler->filters_failed);
    metrics_family(buf, "hami_scheduler_binds_total", METRIC_COUNTER, "Binds, by their outcome");
    strbuf_addf(buf, "hami_scheduler_binds_total{outcome=\"done\"} %" PRIu64 "\n",
                scheduler->binds_done);
    strbuf_addf(buf, "hami_scheduler_binds_total{outcome=\"failed\"} %" PRIu64 "\n",
                scheduler->binds_failed);
    metrics_family(buf, "hami_scheduler_nodes", METRIC_GAUGE, "Nodes with devices");
    strbuf_addf(buf, "hami_scheduler_nodes %zu\n", counts.nodes);
    metrics_family(buf, "hami_scheduler_pods", METRIC_GAUGE, "Pods that hold devices");
    strbuf_addf(buf, "hami_scheduler_pods %zu\n", counts.pods);
    metrics_family(buf, "hami_scheduler_reservations", METRIC_GAUGE,
                   "Pods whose devices are promised and not yet seen in force");
    strbuf_addf(buf, "hami_scheduler_reservations %zu\n", counts.reserved);
    metrics_family(buf, "hami_scheduler_api_retries_total", METRIC_COUNTER,
                   "Requests to the API server that were sent again");
    strbuf_addf(buf, "hami_scheduler_api_retries_total %" PRIu64 "\n", kube.retried);
}

void handle_metrics(void *data, struct http_request *request)
{
    const struct scheduler *scheduler = data;
    struct strbuf buf = STRBUF_INIT(METRICS_MAX);

    metrics_family(&buf, "hami_build_info", METRIC_GAUGE, "Always 1; the version is a label");
    strbuf_add(&buf, "hami_build_info{version=\"" HAMI_VERSION "\"} 1\n");
    add_devices(&buf, scheduler->cluster);
    add_pods(&buf, scheduler->cluster);
    add_own(&buf, scheduler);
    if (buf.failed)
        http_answer(request, 503, HTTP_TEXT, "out of memory\n", 14);
    else
        http_answer(request, 200, HTTP_METRICS, strbuf_text(&buf), buf.len);
    strbuf_deinit(&buf);
}
