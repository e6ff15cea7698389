/* SPDX-License-Identifier: Apache-2.0 */

/*
 * AMD's GPUs, which two agents offer under one resource. ROCm's own registers nothing: kubelet's
 * count is all that is known, cards are whole, and kubelet chooses among them. HAMi's registers its
 * cards in the JSON form, and shares them by memory and by compute units, of which a percentage is
 * asked for.
 */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/util.h"
#include "vendor/asking.h"
#include "vendor/counted.h"
#include "vendor/registered.h"
#include "vendor/vendor.h"

#define COMMON_WORD "AMDGPU"

enum {
    WHOLE_CARD_MIB = 192000, /* as HAMi takes it, for cards of which only the number is known */
    PERCENT_MAX = 100,
};

/* Section `amd` of the device configuration. Names are "" where there is none. */
struct amd_config {
    char count_name[SECTION_NAME_SIZE];
    char memory_name[SECTION_NAME_SIZE]; /* MiB */
    char cores_name[SECTION_NAME_SIZE];  /* percent of a card's compute units */
};

/* Parts of a card that are asked for, for cards that are shared. */
struct amd_wishes {
    uint64_t mib;     /* 0: the whole card's */
    unsigned percent; /* of its compute units */
};

extern const struct vendor amd_vendor;

static const struct section_key keys[] = {
#define KEY(key, member)                                                                           \
    {                                                                                              \
        .name = key, .read = section_read_resource, .offset = offsetof(struct amd_config, member)  \
    }
    KEY("resourceCountName", count_name),
    KEY("resourceMemoryName", memory_name),
    KEY("resourceCoreName", cores_name),
#undef KEY
};

static void set_missing(void *ret_config)
{
    *(struct amd_config *)ret_config = (struct amd_config){0};
}

static int read_section(const struct section_reading *reading, const struct section *section,
                        void *config)
{
    return section_read_keys(reading, section, "amd", keys, ARRAY_SIZE(keys), config);
}

/* An empty section is none. */
static int check_section(const struct section_reading *reading, const void *own)
{
    const struct amd_config *config = own;

    if (config->count_name[0] || (!config->memory_name[0] && !config->cores_name[0]))
        return 0;
    return error_set(reading->err, -EINVAL,
                     "%s: amd.resourceCountName: not given; pods could not ask for a device",
                     reading->file);
}

/* Pods. */

static int check_percent(const struct amd_config *config, const struct pod *pod, size_t container,
                         struct error *err)
{
    const struct resource *cores =
        resource_find(&pod->containers[container].limits, config->cores_name);

    if (!cores || !config->cores_name[0] ||
        (cores->quantity.value >= 1 && cores->quantity.value <= PERCENT_MAX))
        return 0;
    return asking_refuse_amount(pod, container, "limits", cores, "not a percentage from 1 to 100",
                                err);
}

static int mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err)
{
    int r = asking_check_amounts(pod, container, instance->resources, VENDOR_MAX_RESOURCES, err);

    (void)mutations;
    if (r < 0 || !resource_find(&pod->containers[container].limits, instance->count_resource))
        return r;
    r = check_percent(instance->id.config, pod, container, err);
    return r < 0 ? r : 1;
}

static int read_lists(const struct pod *pod, struct arena *arena, struct request *request)
{
    const struct {
        const char *key;
        struct text_list *list;
    } lists[] = {
        {"amd.com/use-gpu-uuid", &request->use_uuids},
        {"amd.com/nouse-gpu-uuid", &request->avoid_uuids},
        {"amd.com/use-gputype", &request->use_types},
        {"amd.com/nouse-gputype", &request->avoid_types},
    };
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(lists) && r == 0; i++)
        r = asking_list(pod, lists[i].key, arena, lists[i].list);
    return r;
}

/* The request's own figures are those of a whole card; what it wishes of a shared one stands
 * beside. */
static int read_request(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request)
{
    const struct container *asking = &pod->containers[container];
    const struct amd_config *config = instance->id.config;
    struct amd_wishes *wishes = ARENA_NEW(arena, struct amd_wishes);
    struct request request = {
        .vendor = &instance->id,
        .memory_bytes = WHOLE_CARD_MIB * MIB,
        .memo = ARENA_NEW(arena, struct type_memo),
        .wishes = wishes,
        .wishes_size = sizeof(*wishes),
    };
    int64_t count = 0, mib = 0, percent = PERCENT_MAX;
    int r;

    if (!request.memo || !wishes)
        return -ENOMEM;
    if (!asking_amount(asking, config->count_name, &count) || !count)
        return 0;
    (void)asking_amount(asking, config->memory_name, &mib);
    (void)asking_amount(asking, config->cores_name, &percent);
    request.count = (unsigned)count;
    wishes->mib = (uint64_t)mib;
    wishes->percent = (unsigned)MIN(MAX(percent, (int64_t)1), (int64_t)PERCENT_MAX);
    r = read_lists(pod, arena, &request);
    if (r < 0)
        return r;
    *ret_request = request;
    return 1;
}

/* Placement. */

/* Cards that their agent registers can be shared; they are special. */
static void want(const struct place_step *step, const struct device *device,
                 struct device_usage *ret_wanted)
{
    const struct amd_wishes *wishes = step->request->wishes;
    uint64_t units;

    if (!device->special)
        return;
    units = (uint64_t)device->cores * wishes->percent / PERCENT_MAX;
    ret_wanted->memory_bytes = wishes->mib ? wishes->mib * MIB : device->memory_bytes;
    ret_wanted->cores = (unsigned)MAX(units, (uint64_t)1);
}

/* As in HAMi, a card is never left to one container for the compute that it asks for: the rules of
 * exclusive and exhausted cards are waived, and compute units that are gone are gone. */
static const struct place_rules rules = {
    .want = want,
    .waived = 1u << PLACE_CARD_CORES_EXHAUSTED | 1u << PLACE_CARD_EXCLUSIVE,
};

/* The devices as the agent reads them: with the product's name. */
static int name_products(const struct vendor_instance *instance, const struct vendor_grant *grant,
                         struct arena *arena, struct pod_devices *ret_named)
{
    struct container_devices *containers =
        ARENA_ARRAY(arena, struct container_devices, grant->given->count);

    if (!containers)
        return -ENOMEM;
    for (size_t i = 0; i < grant->given->count; i++) {
        const struct container_devices *from = &grant->given->containers[i];

        containers[i].count = from->count;
        containers[i].items = ARENA_ARRAY(arena, struct container_device, from->count);
        if (!containers[i].items)
            return -ENOMEM;
        for (size_t k = 0; k < from->count; k++) {
            const struct device *device = place_find_device(grant->devices, grant->device_count,
                                                            &instance->id, from->items[k].uuid);

            containers[i].items[k] = from->items[k];
            if (device && device->special && !strpbrk(device->model, ",:;"))
                containers[i].items[k].type = device->model;
        }
    }
    *ret_named = (struct pod_devices){.count = grant->given->count, .containers = containers};
    return 0;
}

static bool is_shared(const struct vendor_instance *instance, const struct vendor_grant *grant)
{
    for (size_t i = 0; i < grant->device_count; i++) {
        if (grant->devices[i].vendor == &instance->id)
            return grant->devices[i].special;
    }
    return false;
}

/* ROCm's agent pops nothing, so nothing is left for it to pop. */
static int annotate(const struct vendor_instance *instance, const struct vendor_grant *grant,
                    struct vendor_annotations *annotations)
{
    struct vendor_instance written = *instance;
    struct vendor_grant named = *grant;
    struct pod_devices given;
    int r;

    if (!is_shared(instance, grant)) {
        written.to_allocate_key = NULL;
        return vendor_annotate_standard(&written, grant, annotations);
    }
    r = name_products(instance, grant, annotations->arena, &given);
    named.given = &given;
    return r < 0 ? r : vendor_annotate_standard(instance, &named, annotations);
}

/* Nodes. */

static bool registers(const struct vendor_instance *instance, const struct node *node)
{
    return text_pairs_get(&node->annotations, instance->register_key) != NULL;
}

static int finish_device(const struct node *node, const struct registered_device *registered,
                         struct arena *arena, struct device *device)
{
    (void)node;
    (void)registered;
    (void)arena;
    device->special = true;
    return 0;
}

static int read_node(const struct vendor_instance *instance, const struct node *node,
                     struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                     struct error *err)
{
    const struct device sample = {
        .model = COMMON_WORD,
        .memory_bytes = WHOLE_CARD_MIB * MIB,
        .cores = DEVICE_CORES,
        .max_tasks = 1,
    };

    if (registers(instance, node))
        return registered_read(instance, node, arena, ret_devices, max, ret_count, err,
                               finish_device);
    return counted_read(instance, node, COMMON_WORD, &sample, ret_devices, max, ret_count, err);
}

/* HAMi's agent gives nothing away unless the lock names the pod; ROCm's knows no lock. */
static const struct vendor_lock *prepare_bind(const struct vendor_instance *instance,
                                              const struct node *node)
{
    return registers(instance, node) ? &vendor_mutex_lock : NULL;
}

static int add_instances(struct vendor_set *set, const void *own)
{
    const struct amd_config *config = own;
    const struct vendor_instance instance = {
        .vendor = &amd_vendor,
        .id = {COMMON_WORD, &rules, config},
        .register_key = "hami.io/node-amd-register",
        .to_allocate_key = "hami.io/amd-devices-to-allocate",
        .allocated_key = "hami.io/amd-devices-allocated",
        .written_keys = {"hami.io/amd-cu-allocated"}, /* the agent's: which units a pod has */
        .count_resource = config->count_name,
        .memory_resource = config->memory_name,
        .cores_resource = config->cores_name,
        .resources = {config->count_name, config->memory_name, config->cores_name},
    };

    return config->count_name[0] ? vendor_set_add(set, &instance) : 0;
}

static const char *const annotations[] = {"amd.com/", NULL};
static const char *const wishes[] = {"amd.com/use-gpu-uuid", "amd.com/nouse-gpu-uuid",
                                     "amd.com/use-gputype", "amd.com/nouse-gputype", NULL};

const struct vendor amd_vendor = {
    .name = "amd",
    .section = "amd",
    .config_size = sizeof(struct amd_config),
    .set_missing = set_missing,
    .read_section = read_section,
    .check_section = check_section,
    .add_instances = add_instances,
    .annotations = annotations,
    .wishes = wishes,
    .counts_resources = true,
    .mutate = mutate,
    .read_request = read_request,
    .read_node = read_node,
    .prepare_bind = prepare_bind,
    .shares_lock = true,
    .annotate = annotate,
};
