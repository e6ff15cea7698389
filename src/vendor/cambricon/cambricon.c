/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Cambricon: MLUs, shared by its own device plugin in the mode dynamic-smlu. It registers nothing
 * but resources of kubelet, 100 of cores a card, and it finds the pod of an allocation as the only
 * pending one of the node whose annotation says that it is not assigned yet: one pod at a time,
 * with one container that has one card.
 */

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "vendor/asking.h"
#include "vendor/counted.h"

#define COMMON_WORD "MLU"

/* HAMi has named it so since 2.7.1. The plugin, all its versions up to 2.0.23, reads the name that
 * is spelt wrong. */
#define ASSIGNED_KEY "CAMBRICON_DSMLU_ASSIGNED"
#define ASSIGNED_KEY_READ "CAMBRICON_DSMLU_ASSIGHED"
#define PROFILE_KEY "CAMBRICON_DSMLU_PROFILE"
#define INSTANCE_KEY "CAMBRICON_DSMLU_PROFILE_INSTANCE" /* the plugin writes it */

enum {
    UNIT_MIB = 256, /* of memory, requested or a node's */
    MAX_TASKS = 100,
};

/* Section `cambricon` of the device configuration. Names are "" where there is none. */
struct cambricon_config {
    char count_name[SECTION_NAME_SIZE];
    char memory_name[SECTION_NAME_SIZE];
    char cores_name[SECTION_NAME_SIZE];
};

extern const struct vendor cambricon_vendor;

static const struct section_key keys[] = {
#define KEY(key, member)                                                                           \
    {                                                                                              \
        .name = key, .read = section_read_resource,                                                \
        .offset = offsetof(struct cambricon_config, member)                                        \
    }
    KEY("resourceCountName", count_name),
    KEY("resourceMemoryName", memory_name),
    KEY("resourceCoreName", cores_name),
#undef KEY
};

static void set_missing(void *ret_config)
{
    *(struct cambricon_config *)ret_config = (struct cambricon_config){.count_name = ""};
}

static int read_section(const struct section_reading *reading, const struct section *section,
                        void *config)
{
    return section_read_keys(reading, section, "cambricon", keys, ARRAY_SIZE(keys), config);
}

/* Cards are counted by their cores. An empty section is none. */
static int check_section(const struct section_reading *reading, const void *own)
{
    const struct cambricon_config *config = own;
    const char *missing = config->count_name[0] ? "resourceCoreName" : "resourceCountName";

    if (!config->count_name[0] == !config->cores_name[0] &&
        (config->count_name[0] || !config->memory_name[0]))
        return 0;
    return error_set(reading->err, -EINVAL,
                     "%s: cambricon.%s: not given; pods could not ask for a device", reading->file,
                     missing);
}

/* Pods. */

static int mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err)
{
    const struct resource_list *limits = &pod->containers[container].limits;
    int r = asking_check_amounts(pod, container, instance->resources, VENDOR_MAX_RESOURCES, err);

    (void)mutations;
    return r < 0 ? r : resource_find(limits, instance->count_resource) != NULL;
}

/* What the agent can't serve. It learns of the pod by two allocations of one container, of cores
 * and of memory, and of one card. HAMi lets such pods pass, which then wait until they are deleted.
 */

static int warn_of(const struct pod *pod, size_t container, const char *resource, const char *why,
                   struct arena *arena, const char **ret_text)
{
    const struct container_place place = pod_container_place(pod, container);

    *ret_text = arena_printf(arena,
                             "spec.%s[%zu].resources.limits[%s]: %s; Cambricon's agent will not "
                             "start the pod",
                             place.list, place.position, resource, why);
    return *ret_text ? 1 : -ENOMEM;
}

static bool lacks(const struct container *container, const char *resource)
{
    int64_t amount;

    return *resource && (!asking_amount(container, resource, &amount) || !amount);
}

static int warn(const struct vendor_instance *instance, const struct pod *pod, struct arena *arena,
                const char **ret_text)
{
    const struct cambricon_config *config = instance->id.config;
    bool found = false;

    for (size_t i = 0; i < pod->container_count; i++) {
        const struct container *container = &pod->containers[i];
        int64_t count;

        if (!asking_amount(container, config->count_name, &count) || !count)
            continue;
        if (found)
            return warn_of(pod, i, config->count_name,
                           "only one container of a pod can have a card", arena, ret_text);
        if (count > 1)
            return warn_of(pod, i, config->count_name, "a pod can have only one card", arena,
                           ret_text);
        if (lacks(container, config->cores_name))
            return warn_of(pod, i, config->cores_name, "is missing", arena, ret_text);
        if (lacks(container, config->memory_name))
            return warn_of(pod, i, config->memory_name, "is missing", arena, ret_text);
        found = true;
    }
    return 0;
}

/* Memory that is not given is the whole card's, and so are cores. */
static int read_request(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request)
{
    const struct cambricon_config *config = instance->id.config;
    const struct asking_share share = {
        .count = config->count_name,
        .memory = config->memory_name,
        .cores = config->cores_name,
        .memory_factor = UNIT_MIB,
        .missing_cores = DEVICE_CORES,
    };
    struct request request = {.vendor = &instance->id};
    int r;

    if (!asking_read_share(&pod->containers[container], &share, &request))
        return 0;
    r = asking_uuids(pod, "cambricon.com/use-gpuuuid", "cambricon.com/nouse-gpuuuid", arena,
                     &request);
    if (r < 0)
        return r;
    *ret_request = request;
    return 1;
}

static const struct container_device *first_given(const struct pod_devices *given)
{
    for (size_t i = 0; i < given->count; i++) {
        if (given->containers[i].count)
            return &given->containers[i].items[0];
    }
    return NULL;
}

/* "2_30_64": a card's number, cores, and memory in units. */
static const char *profile_of(const struct vendor_instance *instance,
                              const struct vendor_grant *grant, struct arena *arena)
{
    const struct container_device *given = first_given(grant->given);
    const struct device *device =
        place_find_device(grant->devices, grant->device_count, &instance->id, given->uuid);

    return arena_printf(arena, "%u_%d_%d", device ? device->index : 0, (int)given->cores,
                        (int)given->memory_mib / UNIT_MIB);
}

static int annotate(const struct vendor_instance *instance, const struct vendor_grant *grant,
                    struct vendor_annotations *annotations)
{
    int r = vendor_annotate_standard(instance, grant, annotations);

    if (r == 0)
        r = vendor_annotate_add(annotations, ASSIGNED_KEY, "false");
    if (r == 0)
        r = vendor_annotate_add(annotations, ASSIGNED_KEY_READ, "false");
    return r < 0 ? r
                 : vendor_annotate_add(annotations, PROFILE_KEY,
                                       profile_of(instance, grant, annotations->arena));
}

/* Nodes: cards of 100 cores each, the last one perhaps of less. */

static int64_t count_cards(int64_t cores)
{
    return cores / DEVICE_CORES + (cores % DEVICE_CORES != 0);
}

static int64_t card_mib(int64_t units, int64_t cores)
{
    if (units > DEVICE_MAX_MIB)
        return (int64_t)DEVICE_MAX_MIB + 1;
    return units * UNIT_MIB * DEVICE_CORES / cores;
}

static int read_node(const struct vendor_instance *instance, const struct node *node,
                     struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                     struct error *err)
{
    const struct cambricon_config *config = instance->id.config;
    const int64_t cores = counted_amount(&node->capacity, config->cores_name);
    const int64_t units = counted_amount(&node->capacity, config->memory_name);
    const int64_t mib = cores ? card_mib(units, cores) : 0;
    const bool told = resource_find(&node->allocatable, config->cores_name) != NULL;
    const struct counted counted = {
        .resource = config->cores_name,
        .word = "cambricon-mlu",
        .count = count_cards(cores),
        .healthy = told ? MIN(count_cards(counted_amount(&node->allocatable, config->cores_name)),
                              count_cards(cores))
                        : count_cards(cores),
        .sample = {.max_tasks = MAX_TASKS,
                   .cores = DEVICE_CORES,
                   .memory_bytes = (uint64_t)mib * MIB,
                   .model = COMMON_WORD},
    };

    (void)arena;
    if (mib > DEVICE_MAX_MIB)
        return error_set(err, -EINVAL, "status.capacity[%s]: more memory than there is",
                         config->memory_name);
    return counted_list(instance, node, &counted, ret_devices, max, ret_count, err);
}

/* Nobody registers the counted resource. */
static bool is_alive(const struct vendor_instance *instance, const struct node *node)
{
    const struct cambricon_config *config = instance->id.config;

    return counted_amount(&node->allocatable, config->cores_name) > 0;
}

static const struct vendor_lock *prepare_bind(const struct vendor_instance *instance,
                                              const struct node *node)
{
    static const struct vendor_lock lock = {"cambricon.com/dsmlu.lock", false, 120 * NS_PER_S};
    const struct cambricon_config *config = instance->id.config;

    return counted_amount(&node->capacity, config->cores_name) > 0 ? &lock : NULL;
}

static int add_instances(struct vendor_set *set, const void *own)
{
    static const struct place_rules rules;
    const struct cambricon_config *config = own;
    const struct vendor_instance instance = {
        .vendor = &cambricon_vendor,
        .id = {COMMON_WORD, &rules, config},
        .to_allocate_key = "hami.io/cambricon-mlu-devices-to-allocate",
        .allocated_key = "hami.io/cambricon-mlu-devices-allocated",
        .written_keys = {ASSIGNED_KEY, ASSIGNED_KEY_READ, PROFILE_KEY, INSTANCE_KEY},
        .count_resource = config->count_name,
        .memory_resource = config->memory_name,
        .cores_resource = config->cores_name,
        .memory_unit_mib = UNIT_MIB,
        .resources = {config->count_name, config->memory_name, config->cores_name},
    };

    return config->count_name[0] ? vendor_set_add(set, &instance) : 0;
}

static const char *const annotations[] = {"cambricon.com/", "CAMBRICON_DSMLU_", NULL};
static const char *const wishes[] = {"cambricon.com/use-gpuuuid", "cambricon.com/nouse-gpuuuid",
                                     NULL};

const struct vendor cambricon_vendor = {
    .name = "cambricon",
    .section = "cambricon",
    .config_size = sizeof(struct cambricon_config),
    .set_missing = set_missing,
    .read_section = read_section,
    .check_section = check_section,
    .add_instances = add_instances,
    .annotations = annotations,
    .wishes = wishes,
    .counts_resources = true,
    .mutate = mutate,
    .warn = warn,
    .read_request = read_request,
    .read_node = read_node,
    .is_alive = is_alive,
    .prepare_bind = prepare_bind,
    .annotate = annotate,
};
