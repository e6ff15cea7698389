/* SPDX-License-Identifier: Apache-2.0 */

/* Parts of Kunlunxin's cards: quarters, halves or whole ones, all parts of a card of one size. */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/util.h"
#include "vendor/asking.h"
#include "vendor/kunlun/kunlun.h"
#include "vendor/registered.h"

#define COMMON_WORD "XPU"

/* The size of part that so much memory gets; what is more than a card has gets a card. */
static int64_t round_up(int64_t mib)
{
    static const int64_t sizes[] = {KUNLUN_CARD_MIB / 4, KUNLUN_CARD_MIB / 2};

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        if (mib <= sizes[i])
            return sizes[i];
    }
    return KUNLUN_CARD_MIB;
}

static int set_memory(const struct container *asking, size_t container, const char *name,
                      int64_t mib, struct mutations *mutations)
{
    const struct resource *limit = resource_find(&asking->limits, name);
    const struct resource *request = resource_find(&asking->requests, name);
    struct mutation change = {
        .kind = MUTATION_LIMIT,
        .container = container,
        .name = name,
        .value = arena_printf(mutations->arena, "%" PRId64, mib),
    };
    int r = 0;

    if (!change.value)
        return -ENOMEM;
    if (limit->quantity.value != mib)
        r = asking_change(mutations, &change);
    change.kind = MUTATION_REQUEST;
    if (r == 0 && (!request || request->quantity.value != mib))
        r = asking_change(mutations, &change);
    return r;
}

static int mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err)
{
    const struct kunlun_config *config = instance->id.config;
    const struct container *asking = &pod->containers[container];
    const struct resource *memory = NULL;
    int r = asking_check_amounts(pod, container, instance->resources, VENDOR_MAX_RESOURCES, err);

    if (r < 0 || !resource_find(&asking->limits, config->vcount_name))
        return r;
    if (config->vmemory_name[0])
        memory = resource_find(&asking->limits, config->vmemory_name);
    if (memory)
        r = set_memory(asking, container, config->vmemory_name, round_up(memory->quantity.value),
                       mutations);
    return r < 0 ? r : 1;
}

static int read_request(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request)
{
    const struct kunlun_config *config = instance->id.config;
    const struct container *asking = &pod->containers[container];
    struct request request = {.vendor = &instance->id};
    int64_t count = 0, mib = KUNLUN_CARD_MIB;
    int r;

    if (!asking_amount(asking, config->vcount_name, &count) || !count)
        return 0;
    if (asking_amount(asking, config->vmemory_name, &mib))
        mib = round_up(mib);
    else
        request.memory_percent = 100;
    request.count = (unsigned)count;
    request.memory_bytes = (uint64_t)mib * MIB;
    request.cores = (unsigned)(mib * DEVICE_CORES / KUNLUN_CARD_MIB);
    r = kunlun_read_uuids(pod, arena, &request);
    if (r < 0)
        return r;
    *ret_request = request;
    return 1;
}

/* All parts of a card are of one size. */
static enum place_reason take(const struct place_step *step, const struct device *device,
                              struct device_usage *taken)
{
    const struct device_usage *used = &device->used;

    (void)step;
    if (used->tasks && used->memory_bytes / used->tasks != taken->memory_bytes)
        return PLACE_CARD_CUSTOM_RULE;
    return PLACE_REASON_COUNT;
}

/* Memory decides: parts are as large in compute. */
static const struct place_rules rules = {
    .waived = 1u << PLACE_CARD_INSUFFICIENT_CORE | 1u << PLACE_CARD_EXCLUSIVE |
              1u << PLACE_CARD_CORES_EXHAUSTED,
    .take = take,
    .choose = kunlun_choose,
    .tell = kunlun_tell,
};

/* As in HAMi, a device whose type does not name the vendor is counted, and not given out. */
static int finish_device(const struct node *node, const struct registered_device *registered,
                         struct arena *arena, struct device *device)
{
    (void)node;
    (void)registered;
    (void)arena;
    device->special = true;
    if (!text_contains(device->model, COMMON_WORD))
        device->vendor = NULL;
    return 0;
}

static int read_node(const struct vendor_instance *instance, const struct node *node,
                     struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                     struct error *err)
{
    return registered_read(instance, node, arena, ret_devices, max, ret_count, err, finish_device);
}

static const struct vendor_lock *prepare_bind(const struct vendor_instance *instance,
                                              const struct node *node)
{
    return text_pairs_get(&node->annotations, instance->register_key) ? &vendor_mutex_lock : NULL;
}

struct vendor_instance kunlun_vxpu_instance(const struct kunlun_config *config)
{
    return (struct vendor_instance){
        .vendor = &kunlun_vxpu_vendor,
        .id = {COMMON_WORD, &rules, config},
        .register_key = "hami.io/node-register-xpu",
        .handshake_key = "hami.io/node-handshake-xpu",
        .to_allocate_key = "hami.io/xpu-devices-to-allocate",
        .allocated_key = "hami.io/xpu-devices-allocated",
        .count_resource = config->vcount_name,
        .memory_resource = config->vmemory_name,
        .resources = {config->vcount_name, config->vmemory_name},
    };
}

static const char *const annotations[] = {"baidu.com/", NULL};

/* The section is kunlun_vendor's. */
const struct vendor kunlun_vxpu_vendor = {
    .name = "kunlun",
    .annotations = annotations,
    .mutate = mutate,
    .read_request = read_request,
    .read_node = read_node,
    .prepare_bind = prepare_bind,
    .shares_lock = true,
};
