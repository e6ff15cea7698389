/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/families.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yyjson.h>

#include "base/cleanup.h"
#include "base/util.h"
#include "metrics/metrics.h"
#include "model/mig_allocations.h"

enum {
    LABELS_MAX = 10,
    MIGS_MAX = 64, /* of a pod */
    NUMBER_SIZE = 24,
};

/* Labels of a device. HAMi's present name of each, and its former one. */
enum label {
    NODE,
    UUID,
    INDEX,
    CORES,
    LIMIT,
    TYPE,
};

static const char *const label_names[][2] = {
    [NODE] = {"node", "nodeid"},
    [UUID] = {"device_uuid", "deviceuuid"},
    [INDEX] = {"device_index", "deviceidx"},
    [CORES] = {"device_cores", "devicecores"},
    [LIMIT] = {"device_memory_limit", "devicememorylimit"},
    [TYPE] = {"device_type", "devicetype"},
};

#define HAS(label) (1u << (label))
#define COMMON (HAS(NODE) | HAS(UUID) | HAS(INDEX) | HAS(TYPE))

struct device_family {
    const char *name, *help;
    unsigned labels;
    double (*value)(const struct device *device);
    bool former;
};

static double memory_limit(const struct device *device)
{
    return (double)device->memory_bytes;
}

static double memory_allocated(const struct device *device)
{
    return (double)device->used.memory_bytes;
}

static double memory_ratio(const struct device *device)
{
    return (double)device->used.memory_bytes / (double)device->memory_bytes;
}

static double shared_count(const struct device *device)
{
    return device->used.tasks;
}

static double cores(const struct device *device)
{
    return device->cores;
}

static double cores_allocated(const struct device *device)
{
    return device->used.cores;
}

/* AMD's are compute units; under the present names HAMi tells percent of the card. */
static double percent(const struct device *device, unsigned part)
{
    if (!device || !device->cores || strncasecmp(device->model, "AMD", 3) != 0)
        return part;
    return (part * DEVICE_CORES + device->cores - 1) / device->cores;
}

static double percent_limit(const struct device *device)
{
    return percent(device, device->cores);
}

static double percent_allocated(const struct device *device)
{
    return percent(device, device->used.cores);
}

#define MEMORY_LIMIT "Device memory that can be granted"
#define CORES_LIMIT "Compute that can be granted, in percent of the card"
#define MEMORY_ALLOCATED "Device memory granted"
#define SHARED_COUNT "Containers that share the card"
#define CORES_ALLOCATED "Compute granted, in percent of the card"
#define OVERVIEW "Device memory granted, with the card's limits as labels"
#define MEMORY_RATIO "Device memory granted, as a part of the card's"

static const struct device_family device_families[] = {
    {"hami_gpu_memory_limit_bytes", MEMORY_LIMIT, COMMON, memory_limit, false},
    {"hami_gpu_core_limit_ratio", CORES_LIMIT, COMMON, percent_limit, false},
    {"hami_gpu_memory_allocated_bytes", MEMORY_ALLOCATED, COMMON | HAS(CORES), memory_allocated,
     false},
    {"hami_gpu_shared_count", SHARED_COUNT, COMMON, shared_count, false},
    {"hami_gpu_core_allocated_ratio", CORES_ALLOCATED, COMMON, percent_allocated, false},
    {"hami_node_gpu_overview", OVERVIEW, COMMON | HAS(CORES) | HAS(LIMIT), memory_allocated, false},
    {"hami_node_gpu_memory_allocated_ratio", MEMORY_RATIO, COMMON, memory_ratio, false},

    {"GPUDeviceMemoryLimit", MEMORY_LIMIT, COMMON, memory_limit, true},
    {"GPUDeviceCoreLimit", CORES_LIMIT, COMMON, cores, true},
    {"GPUDeviceMemoryAllocated", MEMORY_ALLOCATED, COMMON | HAS(CORES), memory_allocated, true},
    {"GPUDeviceSharedNum", SHARED_COUNT, COMMON, shared_count, true},
    {"GPUDeviceCoreAllocated", CORES_ALLOCATED, COMMON, cores_allocated, true},
    {"nodeGPUOverview", OVERVIEW, COMMON | HAS(CORES) | HAS(LIMIT), memory_allocated, true},
    {"nodeGPUMemoryPercentage", MEMORY_RATIO, COMMON & ~HAS(TYPE), memory_ratio, true},
};

size_t families_of_devices(bool former)
{
    size_t count = 0;

    while (count < ARRAY_SIZE(device_families) && (former || !device_families[count].former))
        count++;
    return count;
}

void families_begin_devices(struct strbuf *buf, size_t family)
{
    metrics_family(buf, device_families[family].name, METRIC_GAUGE, device_families[family].help);
}

static void add_device(struct strbuf *buf, const struct device_family *family, const char *node,
                       const struct device *device)
{
    struct metric_label labels[LABELS_MAX] = {{"zone", "vGPU"}};
    char index[NUMBER_SIZE], all_cores[NUMBER_SIZE], limit[NUMBER_SIZE];
    const char *const values[] = {
        [NODE] = node,       [UUID] = device->uuid, [INDEX] = index,
        [CORES] = all_cores, [LIMIT] = limit,       [TYPE] = device->model,
    };
    size_t count = 1;

    (void)snprintf(index, sizeof(index), "%u", device->index);
    (void)snprintf(all_cores, sizeof(all_cores), "%u", device->cores);
    (void)snprintf(limit, sizeof(limit), "%" PRIu64, device->memory_bytes / MIB);
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        if (family->labels & HAS(i))
            labels[count++] = (struct metric_label){label_names[i][family->former], values[i]};
    }
    metrics_labelled_sample(buf, family->name, labels, count, family->value(device));
}

void families_add_devices(struct strbuf *buf, size_t family, const struct place_node *node)
{
    const struct device_family *row = &device_families[family];

    for (uint32_t i = 0; i < node->device_count; i++) {
        /* As HAMi, nothing where there is no memory. */
        if (row->value != memory_ratio || node->devices[i].memory_bytes)
            add_device(buf, row, node->name, &node->devices[i]);
    }
}

/* Pods */

/* What a family tells of a pod on a node. */
struct pod_sample {
    const struct cluster_pod_view *pod;
    const struct place_node *node; /* NULL: not known */
    const char *name;              /* the family's */
    bool former;
};

struct pod_family {
    const char *name, *help;
    void (*add)(struct strbuf *buf, const struct pod_sample *sample);
    bool former;
};

static void add_share(struct strbuf *buf, const struct pod_sample *sample,
                      const struct place_share *share, double value)
{
    const bool former = sample->former;
    const struct metric_label labels[] = {
        {"zone", "vGPU"},
        {former ? "podnamespace" : "namespace", sample->pod->namespace},
        {former ? "nodename" : "node", sample->pod->node},
        {former ? "podname" : "pod", sample->pod->name},
        {former ? "containeridx" : "container_index", "0"},
        {former ? "deviceuuid" : "device_uuid", share->uuid},
    };

    metrics_labelled_sample(buf, sample->name, labels, ARRAY_SIZE(labels), value);
}

static void add_memory(struct strbuf *buf, const struct pod_sample *sample)
{
    for (size_t i = 0; i < sample->pod->usage->count; i++) {
        const struct place_share *share = &sample->pod->usage->shares[i];

        add_share(buf, sample, share, (double)share->usage.memory_bytes);
    }
}

static void add_cores(struct strbuf *buf, const struct pod_sample *sample)
{
    for (size_t i = 0; i < sample->pod->usage->count; i++) {
        const struct place_share *share = &sample->pod->usage->shares[i];
        const struct device *device = NULL;

        if (sample->node && !sample->former)
            device = place_find_device(sample->node->devices, sample->node->device_count,
                                       share->vendor, share->uuid);
        add_share(buf, sample, share, percent(device, share->usage.cores));
    }
}

static const struct device *device_of(const struct place_node *node, const char *uuid)
{
    for (uint32_t i = 0; node && i < node->device_count; i++) {
        if (strcmp(node->devices[i].uuid, uuid) == 0)
            return &node->devices[i];
    }
    return NULL;
}

static void add_mig(struct strbuf *buf, const struct pod_sample *sample,
                    const struct mig_allocation *mig)
{
    const struct device *device = device_of(sample->node, mig->gpu_uuid);
    char index[NUMBER_SIZE], gpu[NUMBER_SIZE], compute[NUMBER_SIZE], start[NUMBER_SIZE];
    char size[NUMBER_SIZE], name[sizeof(mig->profile) + NUMBER_SIZE];
    const struct metric_label labels[] = {
        {"zone", "vGPU"},         {"node", sample->pod->node},      {"device_uuid", mig->gpu_uuid},
        {"device_index", index},  {"mig_uuid", mig->mig_uuid},      {"profile", mig->profile},
        {"gpu_instance_id", gpu}, {"compute_instance_id", compute}, {"placement_start", start},
        {"placement_size", size},
    };
    const struct metric_label former[] = {
        {"zone", "vGPU"},
        {"nodeid", sample->pod->node},
        {"deviceuuid", mig->gpu_uuid},
        {"deviceidx", index},
        {"migname", name},
    };

    if (!device)
        return;
    (void)snprintf(index, sizeof(index), "%u", device->index);
    (void)snprintf(gpu, sizeof(gpu), "%u", mig->gpu_instance);
    (void)snprintf(compute, sizeof(compute), "%u", mig->compute_instance);
    (void)snprintf(start, sizeof(start), "%u", mig->start);
    (void)snprintf(size, sizeof(size), "%u", mig->size);
    (void)snprintf(name, sizeof(name), "%s-%u", mig->profile, mig->gpu_instance);
    if (sample->former)
        metrics_labelled_sample(buf, sample->name, former, ARRAY_SIZE(former), 1);
    else
        metrics_labelled_sample(buf, sample->name, labels, ARRAY_SIZE(labels), 1);
}

/* The instances that the node's plugin says it has made. */
static void add_migs(struct strbuf *buf, const struct pod_sample *sample)
{
    AUTOFREE char *object = NULL;
    struct mig_allocation migs[MIGS_MAX];
    const char *text;
    yyjson_doc *doc;
    int count = 0;

    if (!strstr(sample->pod->text, MIG_ALLOCATIONS_KEY) ||
        asprintf(&object, "{%s}", sample->pod->text) < 0)
        return;
    doc = yyjson_read(object, strlen(object), 0);
    text = yyjson_get_str(yyjson_obj_get(yyjson_doc_get_root(doc), MIG_ALLOCATIONS_KEY));
    if (text)
        count = mig_allocations_decode(text, strlen(text), migs, MIGS_MAX);
    for (int i = 0; i < count; i++) {
        if (migs[i].made)
            add_mig(buf, sample, &migs[i]);
    }
    yyjson_doc_free(doc);
}

#define POD_MEMORY "Device memory granted to a pod"
#define POD_CORES "Compute granted to a pod, in percent of the card"
#define MIGS "1 for each MIG instance that was made for a pod"

static const struct pod_family pod_families[] = {
    {"hami_vgpu_memory_allocated_bytes", POD_MEMORY, add_memory, false},
    {"hami_vgpu_core_allocated_ratio", POD_CORES, add_cores, false},
    {"hami_node_gpu_mig_instance_info", MIGS, add_migs, false},

    {"vGPUMemoryAllocated", POD_MEMORY, add_memory, true},
    {"vGPUCoreAllocated", POD_CORES, add_cores, true},
    {"nodeGPUMigInstance", MIGS, add_migs, true},
};

size_t families_of_pods(bool former)
{
    size_t count = 0;

    while (count < ARRAY_SIZE(pod_families) && (former || !pod_families[count].former))
        count++;
    return count;
}

void families_begin_pods(struct strbuf *buf, size_t family)
{
    metrics_family(buf, pod_families[family].name, METRIC_GAUGE, pod_families[family].help);
}

void families_add_pod(struct strbuf *buf, size_t family, const struct cluster_pod_view *pod,
                      const struct place_node *node)
{
    const struct pod_family *row = &pod_families[family];
    const struct pod_sample sample = {pod, node, row->name, row->former};

    row->add(buf, &sample);
}
