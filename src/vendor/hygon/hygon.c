/* SPDX-License-Identifier: Apache-2.0 */

/* Hygon: DCUs, shared by their own agent, which registers them in HAMi's colon form. */

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "vendor/asking.h"
#include "vendor/registered.h"
#include "vendor/vendor.h"

#define COMMON_WORD "DCU"

/* Section `hygon` of the device configuration. Names are "" where there is none. */
struct hygon_config {
    char count_name[SECTION_NAME_SIZE];
    char memory_name[SECTION_NAME_SIZE];
    char cores_name[SECTION_NAME_SIZE];
    int32_t memory_factor; /* MiB in a unit of requested memory; 0 and 1: one */
};

extern const struct vendor hygon_vendor;

static const struct section_key keys[] = {
#define KEY(key, reader, member)                                                                   \
    {                                                                                              \
        .name = key, .read = reader, .offset = offsetof(struct hygon_config, member)               \
    }
    KEY("resourceCountName", section_read_resource, count_name),
    KEY("resourceMemoryName", section_read_resource, memory_name),
    KEY("resourceCoreName", section_read_resource, cores_name),
    KEY("memoryFactor", section_read_int32, memory_factor),
#undef KEY
};

static void set_missing(void *ret_config)
{
    *(struct hygon_config *)ret_config = (struct hygon_config){.memory_factor = 1};
}

static int read_section(const struct section_reading *reading, const struct section *section,
                        void *config)
{
    return section_read_keys(reading, section, "hygon", keys, ARRAY_SIZE(keys), config);
}

/* An empty section is none. */
static int check_section(const struct section_reading *reading, const void *own)
{
    const struct hygon_config *config = own;

    if (config->count_name[0] || (!config->memory_name[0] && !config->cores_name[0]))
        return 0;
    return error_set(reading->err, -EINVAL,
                     "%s: hygon.resourceCountName: not given; pods could not ask for a device",
                     reading->file);
}

static int mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err)
{
    const struct resource_list *limits = &pod->containers[container].limits;
    int r = asking_check_amounts(pod, container, instance->resources, VENDOR_MAX_RESOURCES, err);

    (void)mutations;
    return r < 0 ? r : resource_find(limits, instance->count_resource) != NULL;
}

/* Memory that is not given is the whole device's, and so are cores. */
static int read_request(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request)
{
    const struct hygon_config *config = instance->id.config;
    const struct asking_share share = {
        .count = config->count_name,
        .memory = config->memory_name,
        .cores = config->cores_name,
        .memory_factor = config->memory_factor,
        .missing_cores = DEVICE_CORES,
    };
    struct request request = {
        .vendor = &instance->id,
        .memo = ARENA_NEW(arena, struct type_memo),
    };
    int r;

    if (!request.memo)
        return -ENOMEM;
    if (!asking_read_share(&pod->containers[container], &share, &request))
        return 0;
    r = asking_uuids(pod, "hygon.com/use-gpuuuid", "hygon.com/nouse-gpuuuid", arena, &request);
    if (r == 0)
        r = asking_list(pod, "hygon.com/use-dcutype", arena, &request.use_types);
    if (r == 0)
        r = asking_list(pod, "hygon.com/nouse-dcutype", arena, &request.avoid_types);
    if (r < 0)
        return r;
    *ret_request = request;
    return 1;
}

/* As in HAMi, a device whose model does not name the vendor is counted, and not given out. */
static int finish_device(const struct node *node, const struct registered_device *registered,
                         struct arena *arena, struct device *device)
{
    (void)node;
    (void)registered;
    (void)arena;
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
    (void)node;
    return text_pairs_get(&node->annotations, instance->register_key) ? &vendor_mutex_lock : NULL;
}

static int add_instances(struct vendor_set *set, const void *own)
{
    static const struct place_rules rules;
    const struct hygon_config *config = own;
    const struct vendor_instance instance = {
        .vendor = &hygon_vendor,
        .id = {COMMON_WORD, &rules, config},
        .register_key = "hami.io/node-dcu-register",
        .handshake_key = "hami.io/node-handshake-dcu",
        .to_allocate_key = "hami.io/dcu-devices-to-allocate",
        .allocated_key = "hami.io/dcu-devices-allocated",
        .count_resource = config->count_name,
        .memory_resource = config->memory_name,
        .cores_resource = config->cores_name,
        .memory_unit_mib = config->memory_factor,
        .resources = {config->count_name, config->memory_name, config->cores_name},
    };

    return config->count_name[0] ? vendor_set_add(set, &instance) : 0;
}

static const char *const annotations[] = {"hygon.com/", NULL};
static const char *const wishes[] = {"hygon.com/use-gpuuuid", "hygon.com/nouse-gpuuuid",
                                     "hygon.com/use-dcutype", "hygon.com/nouse-dcutype", NULL};

const struct vendor hygon_vendor = {
    .name = "hygon",
    .section = "hygon",
    .config_size = sizeof(struct hygon_config),
    .set_missing = set_missing,
    .read_section = read_section,
    .check_section = check_section,
    .add_instances = add_instances,
    .annotations = annotations,
    .wishes = wishes,
    .mutate = mutate,
    .read_request = read_request,
    .read_node = read_node,
    .prepare_bind = prepare_bind,
    .shares_lock = true,
};
