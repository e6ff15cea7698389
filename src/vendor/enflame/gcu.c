/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "vendor/asking.h"
#include "vendor/counted.h"
#include "vendor/enflame/enflame.h"

#define COMMON_WORD "GCU"

/* HAMi's figures of a card, of which nobody tells the memory. */
enum {
    CARD_MIB = 100,
    DEFAULT_SLICES = 6, /* gcushare's own */
};

/* Configuration. */

_Static_assert(ENFLAME_SLICES_MAX == 100, "read_slices() says so");

static const char *read_slices(const char *text, void *to)
{
    int32_t slices = 0;
    const char *wrong = section_read_int32(text, &slices);

    if (!wrong && (slices < 1 || slices > ENFLAME_SLICES_MAX))
        wrong = "out of range, 1 to 100";
    if (!wrong)
        *(int32_t *)to = slices;
    return wrong;
}

static const struct section_key keys[] = {
#define KEY(key, reader, member)                                                                   \
    {                                                                                              \
        .name = key, .read = reader, .offset = offsetof(struct enflame_config, member)             \
    }
    KEY("resourceNameGCU", section_read_resource, gcu_name),
    KEY("resourceNameVGCU", section_read_resource, vgcu_name),
    KEY("resourceNameVGCUPercentage", section_read_resource, percentage_name),
    KEY("slicesPerCard", read_slices, slices),
    KEY("resourceNameDRSGCU", section_read_resource, drs_name),
    KEY("resourceNameGCUMemory", section_read_resource, memory_name),
    KEY("resourceNameGCUCore", section_read_resource, cores_name),
#undef KEY
};

static void set_missing(void *ret_config)
{
    *(struct enflame_config *)ret_config = (struct enflame_config){.slices = DEFAULT_SLICES};
}

static int read_section(const struct section_reading *reading, const struct section *section,
                        void *config)
{
    return section_read_keys(reading, section, "enflame", keys, ARRAY_SIZE(keys), config);
}

static int refuse_missing(const struct section_reading *reading, const char *key, const char *other)
{
    return error_set(reading->err, -EINVAL,
                     "%s: enflame.%s: not given, and enflame.%s is; pods could not ask for a part",
                     reading->file, key, other);
}

/* Shares can't be asked for by their size alone. */
static int check_section(const struct section_reading *reading, const void *own)
{
    const struct enflame_config *config = own;

    if (config->percentage_name[0] && !config->vgcu_name[0])
        return refuse_missing(reading, "resourceNameVGCU", "resourceNameVGCUPercentage");
    if (config->memory_name[0] && !config->drs_name[0])
        return refuse_missing(reading, "resourceNameDRSGCU", "resourceNameGCUMemory");
    if (config->cores_name[0] && !config->drs_name[0])
        return refuse_missing(reading, "resourceNameDRSGCU", "resourceNameGCUCore");
    return 0;
}

/* Placement: a card goes to one container, whatever it is worth. */

static const struct place_rules rules = {
    .waived = 1 << PLACE_CARD_TASKS_EXHAUSTED | 1 << PLACE_CARD_INSUFFICIENT_MEMORY |
              1 << PLACE_CARD_INSUFFICIENT_CORE | 1 << PLACE_CARD_CORES_EXHAUSTED,
};

/* Pods. */

static int mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err)
{
    const struct resource_list *limits = &pod->containers[container].limits;
    int r = asking_check_amounts(pod, container, instance->resources, VENDOR_MAX_RESOURCES, err);

    (void)mutations;
    return r < 0 ? r : resource_find(limits, instance->count_resource) != NULL;
}

static int read_request(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request)
{
    int64_t count = 0;

    (void)arena;
    if (!asking_amount(&pod->containers[container], instance->count_resource, &count) || !count)
        return 0;
    *ret_request = (struct request){
        .vendor = &instance->id,
        .count = (unsigned)count,
        .memory_bytes = CARD_MIB * MIB,
        .memory_percent = 100,
        .cores = DEVICE_CORES,
    };
    return 1;
}

const struct container_devices *enflame_first_given(const struct pod_devices *given)
{
    for (size_t i = 0; i < given->count; i++) {
        if (given->containers[i].count)
            return &given->containers[i];
    }
    return NULL;
}

/* Nodes. */

static int read_node(const struct vendor_instance *instance, const struct node *node,
                     struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                     struct error *err)
{
    static const struct device sample = {
        .max_tasks = 1,
        .cores = DEVICE_CORES,
        .memory_bytes = CARD_MIB * MIB,
        .model = COMMON_WORD,
    };

    (void)arena;
    return counted_read(instance, node, COMMON_WORD, &sample, ret_devices, max, ret_count, err);
}

static int add_whole(struct vendor_set *set, const struct enflame_config *config)
{
    const struct vendor_instance instance = {
        .vendor = &enflame_vendor,
        .id = {COMMON_WORD, &rules, config},
        .to_allocate_key = "hami.io/enflame-gcu-devices-to-allocate",
        .allocated_key = "hami.io/enflame-gcu-devices-allocated",
        .count_resource = config->gcu_name,
        .resources = {config->gcu_name},
    };

    return vendor_set_add(set, &instance);
}

/* Parts are of one agent or the other: with its own name, the newer one's. */
static int add_instances(struct vendor_set *set, const void *own)
{
    const struct enflame_config *config = own;
    int r = config->gcu_name[0] ? add_whole(set, config) : 0;

    if (r == 0 && config->drs_name[0])
        return enflame_drs_add(set, config);
    if (r == 0 && config->vgcu_name[0])
        return enflame_shared_add(set, config);
    return r;
}

const struct vendor enflame_vendor = {
    .name = "enflame",
    .section = "enflame",
    .config_size = sizeof(struct enflame_config),
    .set_missing = set_missing,
    .read_section = read_section,
    .check_section = check_section,
    .add_instances = add_instances,
    .counts_resources = true,
    .mutate = mutate,
    .read_request = read_request,
    .read_node = read_node,
};
