/* SPDX-License-Identifier: Apache-2.0 */

/*
 * /metrics. HAMi's names and labels, so that dashboards made for it go on working, and our own
 * about decisions and their time.
 */

#include "metrics/metrics.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "scheduler/scheduler.h"

enum {
    METRICS_MAX = 256 << 20,
};

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
};

/* One sample, its labels given. */
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

static void add_device(const struct device_walk *walk, const char *node,
                       const struct device *device)
{
    const struct device_family *family = walk->family;
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
    add_sample(walk->buf, family->name, labels, count, family->value(device));
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

static void add_own(struct strbuf *buf, const struct scheduler *scheduler)
{
    const struct outcome filters[] = {{"placed", scheduler->filters_placed},
                                      {"refused", scheduler->filters_refused},
                                      {"failed", scheduler->filters_failed}};
    const struct outcome binds[] = {{"done", scheduler->binds_done},
                                    {"failed", scheduler->binds_failed}};
    struct cluster_counts counts = cluster_count(scheduler->cluster);
    struct kube_counts kube;

    kube_client_counts(scheduler->kube, &kube);
    add_latencies(buf, scheduler);
    add_outcomes(buf, "hami_scheduler_filters_total", "Decisions", filters, ARRAY_SIZE(filters));
    add_outcomes(buf, "hami_scheduler_binds_total", "Binds", binds, ARRAY_SIZE(binds));
    add_number(buf, "hami_scheduler_nodes", METRIC_GAUGE, "Nodes with devices",
               (double)counts.nodes);
    add_number(buf, "hami_scheduler_pods", METRIC_GAUGE, "Pods that hold devices",
               (double)counts.pods);
    add_number(buf, "hami_scheduler_reservations", METRIC_GAUGE,
               "Pods whose devices are promised and not yet seen in force",
               (double)counts.reserved);
    add_number(buf, "hami_scheduler_api_retries_total", METRIC_COUNTER,
               "Requests to the API server that were sent again", (double)kube.retried);
}

void handle_metrics(void *data, struct http_request *request)
{
    const struct scheduler *scheduler = data;
    struct strbuf buf = STRBUF_INIT(METRICS_MAX);

    metrics_family(&buf, "hami_build_info", METRIC_GAUGE, "Always 1; the version is a label");
    add_sample(&buf, "hami_build_info", &(struct metric_label){"version", HAMI_VERSION}, 1, 1);
    add_devices(&buf, scheduler->cluster);
    add_pods(&buf, scheduler->cluster);
    add_own(&buf, scheduler);
    if (buf.failed)
        http_answer(request, 503, HTTP_TEXT, "out of memory\n", 14);
    else
        http_answer_take(request, 200, HTTP_METRICS, TAKE(buf.text), buf.len);
    strbuf_deinit(&buf);
}
