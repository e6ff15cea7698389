/* SPDX-License-Identifier: Apache-2.0 */

/*
 * AWS' Neuron devices, whole or by their cores. Their agent registers nothing: what a node has is
 * told by its capacity and its instance type. In the books a device's cores are a bit mask, and a
 * grant names the cores that it holds.
 */

#include <errno.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "vendor/asking.h"
#include "vendor/counted.h"
#include "vendor/vendor.h"

#define COMMON_WORD "AWSNeuron"
#define INSTANCE_TYPE "node.kubernetes.io/instance-type"

/* What is written for the agent, beside its times. */
#define IDS "AWS_NEURON_IDS"
#define ALLOCATED "NEURON_ALLOCATED"
#define RESOURCE_TYPE "NEURON_RESOURCE_TYPE"
#define PREDICATE_NODE "aws.amazon.com/predicate-node"

enum {
    CORES_MAX = 30,     /* of a device: the mask is written as a number of 32 bits */
    ASKED_TOGETHER = 2, /* cores beyond the first are asked for in pairs, each of one device */
};

/* Section `awsneuron` of the device configuration. Names are "" where there is none. */
struct neuron_config {
    char count_name[SECTION_NAME_SIZE];
    char core_name[SECTION_NAME_SIZE];
};

/* What a node's devices have in common. */
struct neuron_facts {
    unsigned cores; /* of each device */
    bool slides;    /* several devices may begin anywhere in the row */
};

struct neuron_wishes {
    unsigned cores; /* of each device; 0: all */
};

extern const struct vendor awsneuron_vendor;

/* Configuration. */

static const struct section_key keys[] = {
#define KEY(key, member)                                                                           \
    {                                                                                              \
        .name = key, .read = section_read_resource,                                                \
        .offset = offsetof(struct neuron_config, member)                                           \
    }
    KEY("resourceCountName", count_name),
    KEY("resourceCoreName", core_name),
#undef KEY
};

static void set_missing(void *ret_config)
{
    *(struct neuron_config *)ret_config = (struct neuron_config){0};
}

static int read_section(const struct section_reading *reading, const struct section *section,
                        void *config)
{
    return section_read_keys(reading, section, "awsneuron", keys, ARRAY_SIZE(keys), config);
}

/* Without the devices' resource it is not known how many a node has. */
static int check_section(const struct section_reading *reading, const void *own)
{
    const struct neuron_config *config = own;

    if (config->count_name[0] || !config->core_name[0])
        return 0;
    return error_set(reading->err, -EINVAL,
                     "%s: awsneuron.resourceCountName: not given; devices could not be counted",
                     reading->file);
}

/* Pods. */

/* Cores are asked for as one, or in pairs. */
static int check_cores(const struct pod *pod, size_t container, const struct resource *cores,
                       struct error *err)
{
    if (cores->quantity.value <= 1 || cores->quantity.value % ASKED_TOGETHER == 0)
        return 0;
    return asking_refuse_amount(pod, container, "limits", cores, "neither 1 nor a multiple of 2",
                                err);
}

static int mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err)
{
    const struct neuron_config *config = instance->id.config;
    const struct resource_list *limits = &pod->containers[container].limits;
    const struct resource *count = resource_find(limits, config->count_name);
    const struct resource *cores =
        config->core_name[0] ? resource_find(limits, config->core_name) : NULL;
    int r = asking_check_amounts(pod, container, instance->resources, VENDOR_MAX_RESOURCES, err);

    (void)mutations;
    if (r == 0 && !count && cores)
        r = check_cores(pod, container, cores, err);
    return r < 0 ? r : count || cores;
}

/* Whether the container asks for devices, 1, or for cores, 0. -ENOENT: for neither. */
static int read_count(const struct neuron_config *config, const struct container *asking,
                      int64_t *ret_count)
{
    if (asking_amount(asking, config->count_name, ret_count) && *ret_count)
        return 1;
    if (config->core_name[0] && asking_amount(asking, config->core_name, ret_count) && *ret_count)
        return 0;
    return -ENOENT;
}

static int read_request(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request)
{
    struct neuron_wishes *wishes = ARENA_NEW(arena, struct neuron_wishes);
    struct request request = {
        .vendor = &instance->id, .wishes = wishes, .wishes_size = sizeof(*wishes)};
    int64_t count = 0;
    int r;

    if (!wishes)
        return -ENOMEM;
    r = read_count(instance->id.config, &pod->containers[container], &count);
    if (r < 0)
        return 0;
    if (r == 0) {
        wishes->cores = count > 1 ? ASKED_TOGETHER : 1;
        count = MAX(count / ASKED_TOGETHER, (int64_t)1);
    }
    request.count = (unsigned)count;
    request.cores = wishes->cores;
    r = asking_uuids(pod, "aws.amazon.com/use-neuron-uuid", "aws.amazon.com/nouse-neuron-uuid",
                     arena, &request);
    if (r < 0)
        return r;
    *ret_request = request;
    return 1;
}

/* Grants, as the agent reads them. */

static const struct neuron_facts *facts_of(const struct device *device)
{
    static const struct neuron_facts none = {0};

    return device && device->facts ? device->facts : &none;
}

static void add_number(struct strbuf *text, unsigned number)
{
    strbuf_addf(text, "%s%u", text->len ? "," : "", number);
}

/* A device's number, or those of its cores, which are counted through all devices of the node. */
static void add_ids(struct strbuf *text, const struct device *device,
                    const struct container_device *granted, bool whole)
{
    const unsigned cores = facts_of(device)->cores;

    if (whole) {
        add_number(text, device->index);
        return;
    }
    for (unsigned i = 0; i < cores; i++) {
        if ((unsigned)granted->cores >> i & 1)
            add_number(text, device->index * cores + i);
    }
}

static int annotate(const struct vendor_instance *instance, const struct vendor_grant *grant,
                    struct vendor_annotations *annotations)
{
    const struct neuron_config *config = instance->id.config;
    struct strbuf text = STRBUF_IN(annotations->arena, CODEC_MAX_TEXT);
    int r = vendor_annotate_standard(instance, grant, annotations);
    bool by_cores = false;
    int64_t unused;

    for (size_t i = 0; i < grant->given->count; i++) {
        const bool whole = i >= grant->pod->container_count ||
                           read_count(config, &grant->pod->containers[i], &unused) != 0;

        for (size_t k = 0; k < grant->given->containers[i].count; k++) {
            const struct container_device *granted = &grant->given->containers[i].items[k];
            const struct device *device = place_find_device(grant->devices, grant->device_count,
                                                            &instance->id, granted->uuid);

            by_cores |= !whole;
            if (device)
                add_ids(&text, device, granted, whole);
        }
    }
    if (r == 0)
        r = vendor_annotate_add(annotations, IDS, text.failed ? NULL : strbuf_text(&text));
    if (r == 0)
        r = vendor_annotate_add(annotations, ALLOCATED, "false");
    if (r == 0 && by_cores)
        r = vendor_annotate_add(annotations, RESOURCE_TYPE, config->core_name);
    return r < 0 ? r : vendor_annotate_add(annotations, PREDICATE_NODE, grant->node);
}

/* Placement. */

/* So many of the free cores, the first ones; all that are free where there are fewer. */
static uint64_t pick_cores(const struct device *device, unsigned wanted)
{
    const uint64_t free = device->cores & ~device->used.parts;
    uint64_t picked = 0;

    for (unsigned i = 0; i < CORES_MAX && wanted; i++) {
        if (!(free >> i & 1))
            continue;
        picked |= UINT64_C(1) << i;
        wanted--;
    }
    return picked;
}

static unsigned wanted_of(const struct place_step *step, const struct device *device)
{
    const struct neuron_wishes *wishes = step->request->wishes;

    return wishes->cores ? wishes->cores : facts_of(device)->cores;
}

static void want(const struct place_step *step, const struct device *device,
                 struct device_usage *ret_wanted)
{
    ret_wanted->parts = pick_cores(device, wanted_of(step, device));
    ret_wanted->cores = (unsigned)ret_wanted->parts;
}

static enum place_reason take(const struct place_step *step, const struct device *device,
                              struct device_usage *taken)
{
    const unsigned wanted = wanted_of(step, device);

    return wanted && (unsigned)__builtin_popcountll(taken->parts) == wanted
               ? PLACE_REASON_COUNT
               : PLACE_CARD_INSUFFICIENT_CORE;
}

static void count(const struct container_device *granted, struct device_usage *usage)
{
    usage->parts = (uint64_t)MAX(granted->cores, 0);
}

static bool is_free(const struct place_set *set, size_t place)
{
    const size_t position = set->order[place];

    return set->fits[position] && !set->devices[position].used.tasks;
}

/* Of several devices every one is unused, and they stand in a row. */
static bool take_row(const struct place_set *set, size_t first, size_t count, size_t *ret_chosen)
{
    if (first + count > set->count)
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!is_free(set, first + i))
            return false;
        ret_chosen[i] = set->order[first + i];
    }
    return true;
}

/* Trainium's devices are connected in rings of four: several are 4, 8 or 16, and begin where a row
 * of as many begins. Inferentia's may begin anywhere. */
static bool choose(const struct place_step *step, const struct place_set *set, size_t *ret_chosen,
                   struct place_failure *failure)
{
    const size_t count = step->request->count;
    const bool slides = set->count && facts_of(&set->devices[set->order[0]])->slides;

    for (size_t i = set->count; count == 1 && i-- > 0;) {
        if (set->fits[set->order[i]]) {
            ret_chosen[0] = set->order[i];
            return true;
        }
    }
    if (!slides && count != 4 && count != 8 && count != 16) {
        failure->for_good = true;
        return false;
    }
    for (size_t i = 0; i < set->count; i += slides ? 1 : count) {
        if (take_row(set, i, count, ret_chosen))
            return true;
    }
    return false;
}

/* A row is there or not; what is wrong with each device tells little. */
static void tell(const struct place_step *step, struct place_failure *failure)
{
    if (step->request->count == 1)
        return;
    memset(failure->reasons, 0, sizeof(failure->reasons));
    failure->reasons[PLACE_NUMA_NOT_FIT] = 1;
}

static const struct place_rules rules = {
    .cores_are_parts = true,
    .want = want,
    .waived = 1u << PLACE_CARD_INSUFFICIENT_CORE | 1u << PLACE_CARD_EXCLUSIVE |
              1u << PLACE_CARD_CORES_EXHAUSTED,
    .take = take,
    .choose = choose,
    .tell = tell,
    .count = count,
};

/* Nodes. */

static int read_node(const struct vendor_instance *instance, const struct node *node,
                     struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                     struct error *err)
{
    const struct neuron_config *config = instance->id.config;
    const char *type = text_pairs_get(&node->labels, INSTANCE_TYPE);
    const int64_t count = counted_amount(&node->capacity, config->count_name);
    const int64_t cores = count ? counted_amount(&node->capacity, config->core_name) / count : 0;
    struct neuron_facts *facts = ARENA_NEW(arena, struct neuron_facts);
    struct device sample = {
        .model = COMMON_WORD,
        .special = true,
        .facts = facts,
        .facts_size = sizeof(*facts),
    };

    if (!facts)
        return error_set(err, -ENOMEM, "out of memory");
    facts->cores = (unsigned)MIN(cores, (int64_t)CORES_MAX);
    facts->slides = type && text_contains(type, "inf");
    sample.max_tasks = facts->cores;
    sample.cores = (1u << facts->cores) - 1;
    return counted_read(instance, node, COMMON_WORD, &sample, ret_devices, max, ret_count, err);
}

/* The agent takes the pod that was bound first. */
static const struct vendor_lock *prepare_bind(const struct vendor_instance *instance,
                                              const struct node *node)
{
    return counted_amount(&node->capacity, instance->count_resource) > 0 ? &vendor_turn_lock : NULL;
}

static int add_instances(struct vendor_set *set, const void *own)
{
    const struct neuron_config *config = own;
    const struct vendor_instance instance = {
        .vendor = &awsneuron_vendor,
        .id = {COMMON_WORD, &rules, config},
        .allocated_key = "hami.io/aws-neuron-devices-allocated",
        .written_keys = {IDS, ALLOCATED, RESOURCE_TYPE, PREDICATE_NODE},
        .count_resource = config->count_name,
        .cores_resource = config->core_name,
        .resources = {config->count_name, config->core_name},
    };

    return config->count_name[0] ? vendor_set_add(set, &instance) : 0;
}

static const char *const annotations[] = {"aws.amazon.com/", "AWS_NEURON_", "NEURON_", NULL};
static const char *const wishes[] = {"aws.amazon.com/use-neuron-uuid",
                                     "aws.amazon.com/nouse-neuron-uuid", NULL};
static const char *const node_labels[] = {INSTANCE_TYPE, NULL};
static const struct vendor_time times[] = {{"NEURON_ALLOC_TIME", true}, {NULL, false}};

const struct vendor awsneuron_vendor = {
    .name = "awsneuron",
    .section = "awsneuron",
    .config_size = sizeof(struct neuron_config),
    .set_missing = set_missing,
    .read_section = read_section,
    .check_section = check_section,
    .add_instances = add_instances,
    .annotations = annotations,
    .wishes = wishes,
    .node_labels = node_labels,
    .counts_resources = true,
    .mutate = mutate,
    .read_request = read_request,
    .read_node = read_node,
    .prepare_bind = prepare_bind,
    .annotate = annotate,
    .times = times,
};
