/* SPDX-License-Identifier: Apache-2.0 */

/* Parts of a card by a percentage, which becomes slices; memory is counted in percent. */

#include <errno.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "vendor/asking.h"
#include "vendor/counted.h"
#include "vendor/enflame/enflame.h"

/* The agent's own resources. */
#define CARDS_NAME "enflame.com/gcu-count"
#define SLICES_NAME "enflame.com/shared-gcu"

enum {
    CARD_PERCENT = 100, /* as MiB */
    MAX_TASKS = 100,
    INDEXES_MAX = 8192, /* bytes of the list of cards */
};

static int set_slices(const struct enflame_config *config, const struct container *asking,
                      size_t container, int64_t percent, int64_t slices,
                      struct mutations *mutations)
{
    int r = 0;

    if (config->percentage_name[0])
        r = asking_set_amount(asking, container, config->percentage_name, percent, mutations);
    return r < 0 ? r : asking_set_amount(asking, container, SLICES_NAME, slices, mutations);
}

/* The least number of slices that is so much of a card; 0: none is. */
static int64_t slices_of(int64_t percent, int32_t slices)
{
    for (int32_t i = 1; i <= slices; i++) {
        if (percent > (i - 1) * 100 / slices && percent <= i * 100 / slices)
            return i;
    }
    return 0;
}

/* A percentage that is none counts as nothing on a card, and as nothing for kubelet: whoever gave
 * the slices beside it would have them all the same. */
static int check_slices(const struct pod *pod, size_t container, struct error *err)
{
    const struct resource *slices = container_resource(&pod->containers[container], SLICES_NAME);

    if (!slices)
        return 0;
    return asking_refuse_amount(pod, container, "limits", slices,
                                "beside a percentage that is not from 1 to 100", err);
}

static int complete(const struct enflame_config *config, const struct pod *pod, size_t container,
                    int64_t count, struct mutations *mutations, struct error *err)
{
    const struct container *asking = &pod->containers[container];
    const struct resource *percentage = resource_find(&asking->limits, config->percentage_name);
    const int64_t percent = percentage ? percentage->quantity.value : 100;
    const int64_t slices = slices_of(percent, config->slices);

    if (count > 1)
        return set_slices(config, asking, container, 100, count * config->slices, mutations);
    if (!slices)
        return check_slices(pod, container, err);
    return set_slices(config, asking, container, slices * 100 / config->slices, slices, mutations);
}

static int mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err)
{
    const struct enflame_config *config = instance->id.config;
    const struct resource *count =
        resource_find(&pod->containers[container].limits, config->vgcu_name);
    int r = asking_check_amounts(pod, container, instance->resources, VENDOR_MAX_RESOURCES, err);

    if (r < 0 || !count)
        return r;
    r = complete(config, pod, container, count->quantity.value, mutations, err);
    return r < 0 ? r : 1;
}

static int read_request(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request)
{
    const struct container *asking = &pod->containers[container];
    const struct enflame_config *config = instance->id.config;
    struct request request = {.vendor = &instance->id};
    int64_t count = 0, percent = CARD_PERCENT;
    int r;

    if (!asking_amount(asking, config->vgcu_name, &count) || !count)
        return 0;
    (void)asking_amount(asking, config->percentage_name, &percent);
    request.count = (unsigned)count;
    request.memory_bytes = (uint64_t)percent * MIB;
    r = asking_uuids(pod, "enflame.com/use-gpuuuid", "enflame.com/nouse-gpuuuid", arena, &request);
    if (r < 0)
        return r;
    *ret_request = request;
    return 1;
}

/* The numbers of a container's cards, "2,0". */
static const char *list_cards(const struct vendor_instance *instance,
                              const struct vendor_grant *grant,
                              const struct container_devices *devices, struct arena *arena)
{
    struct strbuf text = STRBUF_IN(arena, INDEXES_MAX);

    for (size_t i = 0; i < devices->count; i++) {
        const struct device *device = place_find_device(grant->devices, grant->device_count,
                                                        &instance->id, devices->items[i].uuid);

        strbuf_addf(&text, "%s%u", i ? "," : "", device ? device->index : 0);
    }
    return text.failed ? NULL : strbuf_text(&text);
}

static int annotate(const struct vendor_instance *instance, const struct vendor_grant *grant,
                    struct vendor_annotations *annotations)
{
    int r = vendor_annotate_standard(instance, grant, annotations);

    if (r == 0)
        r = vendor_annotate_add(annotations, ENFLAME_ASSIGNED_KEY, "false");
    return r < 0
               ? r
               : vendor_annotate_add(annotations, ENFLAME_ID_KEY,
                                     list_cards(instance, grant, enflame_first_given(grant->given),
                                                annotations->arena));
}

static int read_node(const struct vendor_instance *instance, const struct node *node,
                     struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                     struct error *err)
{
    const int64_t cards = counted_amount(&node->capacity, CARDS_NAME);
    const bool told = resource_find(&node->allocatable, CARDS_NAME) != NULL;
    const struct counted counted = {
        .resource = CARDS_NAME,
        .word = "enflame",
        .count = cards,
        .healthy = told ? MIN(counted_amount(&node->allocatable, CARDS_NAME), cards) : cards,
        .sample = {.max_tasks = MAX_TASKS,
                   .cores = DEVICE_CORES,
                   .memory_bytes = CARD_PERCENT * MIB,
                   .model = ENFLAME_PART_WORD},
    };

    (void)arena;
    return counted_list(instance, node, &counted, ret_devices, max, ret_count, err);
}

/* The slices are what its agent registers; the cards it writes once. */
static bool is_alive(const struct vendor_instance *instance, const struct node *node)
{
    (void)instance;
    return counted_amount(&node->allocatable, SLICES_NAME) > 0;
}

/* gcushare takes the pod that was bound first, of those that ask for as many slices. */
static const struct vendor_lock *prepare_bind(const struct vendor_instance *instance,
                                              const struct node *node)
{
    (void)instance;
    return counted_amount(&node->capacity, CARDS_NAME) > 0 ? &vendor_turn_lock : NULL;
}

int enflame_shared_add(struct vendor_set *set, const struct enflame_config *config)
{
    static const struct place_rules rules;
    const struct vendor_instance instance = {
        .vendor = &enflame_shared_vendor,
        .id = {ENFLAME_PART_WORD, &rules, config},
        .allocated_key = ENFLAME_PART_ALLOCATED_KEY,
        .written_keys = {ENFLAME_ASSIGNED_KEY, ENFLAME_ID_KEY, ENFLAME_CONTAINERS_KEY},
        .count_resource = config->vgcu_name,
        .memory_resource = config->percentage_name,
        .resources = {config->vgcu_name, config->percentage_name},
    };

    return vendor_set_add(set, &instance);
}

static const char *const annotations[] = {"enflame.com/", ENFLAME_CONTAINERS_KEY, NULL};
static const char *const wishes[] = {"enflame.com/use-gpuuuid", "enflame.com/nouse-gpuuuid", NULL};
static const char *const node_resources[] = {CARDS_NAME, SLICES_NAME, NULL};
static const struct vendor_time times[] = {{ENFLAME_ASSIGNED_TIME_KEY, true}, {NULL, false}};

const struct vendor enflame_shared_vendor = {
    .name = "enflame",
    .annotations = annotations,
    .wishes = wishes,
    .node_resources = node_resources,
    .mutate = mutate,
    .read_request = read_request,
    .read_node = read_node,
    .is_alive = is_alive,
    .prepare_bind = prepare_bind,
    .annotate = annotate,
    .times = times,
};
