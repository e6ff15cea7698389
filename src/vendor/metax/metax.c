/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/metax/metax.h"

#include <errno.h>
#include <string.h>

#include "base/parse.h"
#include "base/util.h"
#include "model/json.h"
#include "vendor/asking.h"
#include "vendor/counted.h"

#define COMMON_WORD "Metax-GPU"
#define LOSSES "metax-tech.com/gpu.topology.losses"
#define SCORES "metax-tech.com/gpu.topology.scores"

enum {
    SETS_MAX = 64,     /* cards of a pod that the agent tells of */
    BEST_SCORE = 2000, /* less what the agent says */
    WHOLE_CARD_MIB = 65536,
};

/* What the agent says of a node: of sets of so many cards, the least that is lost by taking one,
 * and how well one is connected. All cards of a node have the same facts. */
struct topology {
    bool has_losses, has_scores;
    int32_t losses[SETS_MAX + 1], scores[SETS_MAX + 1];
};

/* Configuration. */

static const struct section_key keys[] = {
#define KEY(key, reader, member)                                                                   \
    {                                                                                              \
        .name = key, .read = reader, .offset = offsetof(struct metax_config, member)               \
    }
    KEY("resourceCountName", section_read_resource, count_name),
    KEY("resourceVCountName", section_read_resource, vcount_name),
    KEY("resourceVMemoryName", section_read_resource, vmemory_name),
    KEY("resourceVCoreName", section_read_resource, vcore_name),
    KEY("sgpuTopologyAware", section_read_switch, sgpu_topology),
#undef KEY
};

static void set_missing(void *ret_config)
{
    *(struct metax_config *)ret_config = (struct metax_config){0};
}

static int read_section(const struct section_reading *reading, const struct section *section,
                        void *config)
{
    return section_read_keys(reading, section, "metax", keys, ARRAY_SIZE(keys), config);
}

static int check_section(const struct section_reading *reading, const void *own)
{
    const struct metax_config *config = own;

    if (config->vcount_name[0] || (!config->vmemory_name[0] && !config->vcore_name[0]))
        return 0;
    return error_set(reading->err, -EINVAL,
                     "%s: metax.resourceVCountName: not given; pods could not ask for a share",
                     reading->file);
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

static int read_request(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request)
{
    struct request request = {
        .vendor = &instance->id, .memory_percent = 100, .cores = DEVICE_CORES};
    int64_t count = 0;

    (void)arena;
    if (!asking_amount(&pod->containers[container], instance->count_resource, &count) || !count)
        return 0;
    request.count = (unsigned)count;
    *ret_request = request;
    return 1;
}

/* Placement. */

/* As in HAMi, all containers of a pod that ask for cards are given the same one: so it is one
 * container that can have any. */
static enum place_reason take(const struct place_step *step, const struct device *device,
                              struct device_usage *taken)
{
    (void)taken;
    for (size_t i = 0; step->given && i < step->given->count; i++) {
        const struct container_devices *container = &step->given->containers[i];

        for (size_t k = 0; k < container->count; k++) {
            if (strcmp(container->items[k].uuid, device->uuid) != 0)
                return PLACE_CARD_CUSTOM_RULE;
        }
    }
    return PLACE_REASON_COUNT;
}

static const struct topology *topology_of(const struct place_fitted *fitted)
{
    for (size_t i = 0; i < fitted->device_count; i++) {
        if (fitted->devices[i].vendor == fitted->vendor)
            return fitted->devices[i].facts;
    }
    return NULL;
}

static float score_node(const struct place_fitted *fitted)
{
    const struct topology *topology = topology_of(fitted);
    const bool spread = fitted->node_order == PLACE_SPREAD;
    size_t count = 0;

    if (!topology || !(spread ? topology->has_scores : topology->has_losses))
        return 0;
    for (size_t i = 0; i < fitted->given->count; i++)
        count += fitted->given->containers[i].count;
    count = count > SETS_MAX ? 0 : count;
    return (float)(BEST_SCORE - (spread ? topology->scores : topology->losses)[count]);
}

static const struct place_rules rules = {.take = take, .score_node = score_node};

/* Nodes. */

/* {"1":0,"2":40}: of one card, of two. What can't be read is as if it were all 0. */
static bool read_sets(const struct node *node, const char *key, struct arena *arena,
                      int32_t ret_values[static SETS_MAX + 1])
{
    const char *text = text_pairs_get(&node->annotations, key);
    yyjson_val *sets, *name, *value;
    size_t at, max;
    uint64_t count;

    if (!text)
        return false;
    if (json_parse(text, strlen(text), arena, &sets, NULL) < 0)
        return true;
    yyjson_obj_foreach(sets, at, max, name, value)
    {
        if (parse_u64(yyjson_get_str(name), &count) < 0 || !count || count > SETS_MAX)
            continue;
        ret_values[count] =
            (int32_t)MAX(MIN(yyjson_get_sint(value), (int64_t)INT16_MAX), (int64_t)INT16_MIN);
    }
    return true;
}

static int read_node(const struct vendor_instance *instance, const struct node *node,
                     struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                     struct error *err)
{
    struct topology *topology = ARENA_NEW(arena, struct topology);
    const struct device sample = {
        .model = COMMON_WORD,
        .memory_bytes = WHOLE_CARD_MIB * MIB,
        .cores = DEVICE_CORES,
        .max_tasks = 1,
        .special = true,
        .facts = topology,
        .facts_size = sizeof(*topology),
    };

    if (!topology)
        return error_set(err, -ENOMEM, "out of memory");
    topology->has_losses = read_sets(node, LOSSES, arena, topology->losses);
    topology->has_scores = read_sets(node, SCORES, arena, topology->scores);
    return counted_read(instance, node, "metax", &sample, ret_devices, max, ret_count, err);
}

static int add_instances(struct vendor_set *set, const void *own)
{
    const struct metax_config *config = own;
    const struct vendor_instance whole = {
        .vendor = &metax_vendor,
        .id = {COMMON_WORD, &rules, config},
        .to_allocate_key = "hami.io/metax-gpu-devices-to-allocate",
        .allocated_key = "hami.io/metax-gpu-devices-allocated",
        .count_resource = config->count_name,
        .resources = {config->count_name},
    };
    const struct vendor_instance shares = metax_sgpu_instance(config);
    int r = config->count_name[0] ? vendor_set_add(set, &whole) : 0;

    return r == 0 && config->vcount_name[0] ? vendor_set_add(set, &shares) : r;
}

static const char *const annotations[] = {"metax-tech.com/", NULL};
static const char *const node_annotations[] = {LOSSES, SCORES, NULL};

const struct vendor metax_vendor = {
    .name = "metax",
    .section = "metax",
    .config_size = sizeof(struct metax_config),
    .set_missing = set_missing,
    .read_section = read_section,
    .check_section = check_section,
    .add_instances = add_instances,
    .annotations = annotations,
    .node_annotations = node_annotations,
    .counts_resources = true,
    .mutate = mutate,
    .read_request = read_request,
    .read_node = read_node,
};
