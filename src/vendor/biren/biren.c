/* SPDX-License-Identifier: Apache-2.0 */

/* Biren: whole cards, which their agent registers in HAMi's JSON form. */

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "vendor/asking.h"
#include "vendor/registered.h"
#include "vendor/vendor.h"

#define COMMON_WORD "Biren"

/* Section `biren` of the device configuration. */
struct biren_config {
    char count_name[SECTION_NAME_SIZE]; /* "": there is none */
};

extern const struct vendor biren_vendor;

static const struct section_key keys[] = {
    {.name = "resourceCountName",
     .read = section_read_resource,
     .offset = offsetof(struct biren_config, count_name)},
};

static void set_missing(void *ret_config)
{
    *(struct biren_config *)ret_config = (struct biren_config){.count_name = ""};
}

static int read_section(const struct section_reading *reading, const struct section *section,
                        void *config)
{
    return section_read_keys(reading, section, "biren", keys, ARRAY_SIZE(keys), config);
}

/* Placement: what a card has is not counted, only who has it. */

static void want_a_card(const struct place_step *step, const struct device *device,
                        struct device_usage *ret_wanted)
{
    (void)step;
    (void)device;
    ret_wanted->memory_bytes = 0;
}

static const struct place_rules rules = {.want = want_a_card};

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
    struct request request = {.vendor = &instance->id, .memory_percent = 100};
    int64_t count = 0;
    int r;

    if (!asking_amount(&pod->containers[container], instance->count_resource, &count) || !count)
        return 0;
    request.count = (unsigned)count;
    r = asking_uuids(pod, "birentech.com/use-gpuuuid", "birentech.com/nouse-gpuuuid", arena,
                     &request);
    if (r < 0)
        return r;
    *ret_request = request;
    return 1;
}

/* Nodes. */

/* As in HAMi, a device whose model does not name the vendor is counted, and not given out. */
static int finish_device(const struct node *node, const struct registered_device *registered,
                         struct arena *arena, struct device *device)
{
    (void)node;
    (void)registered;
    (void)arena;
    device->cores = DEVICE_CORES;
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

/* Its agent looks for the pod of an allocation by the node's lock. */
static const struct vendor_lock *prepare_bind(const struct vendor_instance *instance,
                                              const struct node *node)
{
    return text_pairs_get(&node->annotations, instance->register_key) ? &vendor_mutex_lock : NULL;
}

/*
 * Its agent takes what it has handed out from the annotation that says -allocated and leaves the
 * other one as it is: here they have changed places. Both are written with the same text.
 */
static int add_instances(struct vendor_set *set, const void *own)
{
    const struct biren_config *config = own;
    const struct vendor_instance instance = {
        .vendor = &biren_vendor,
        .id = {COMMON_WORD, &rules, config},
        .register_key = "hami.io/node-biren-register",
        .handshake_key = "hami.io/node-handshake-biren",
        .to_allocate_key = "hami.io/Biren-devices-allocated",
        .allocated_key = "hami.io/Biren-devices-to-allocate",
        .count_resource = config->count_name,
        .resources = {config->count_name},
    };

    return config->count_name[0] ? vendor_set_add(set, &instance) : 0;
}

static const char *const annotations[] = {"birentech.com/", NULL};
static const char *const wishes[] = {"birentech.com/use-gpuuuid", "birentech.com/nouse-gpuuuid",
                                     NULL};

const struct vendor biren_vendor = {
    .name = "biren",
    .section = "biren",
    .config_size = sizeof(struct biren_config),
    .set_missing = set_missing,
    .read_section = read_section,
    .add_instances = add_instances,
    .annotations = annotations,
    .wishes = wishes,
    .mutate = mutate,
    .read_request = read_request,
    .read_node = read_node,
    .prepare_bind = prepare_bind,
    .shares_lock = true,
};
