/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Moore Threads: cards of 16 cores each, shared by their own agent. It registers nothing but
 * resources of kubelet and finds its pods by annotations of their own: no lock. All containers of a
 * pod that ask for a card have the same one.
 */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "vendor/asking.h"
#include "vendor/counted.h"

#define COMMON_WORD "Mthreads"
#define COUNT_KEY "mthreads.com/request-gpu-num" /* on a pod with several cards */
#define INDEX_KEY "mthreads.com/gpu-index"
#define NODE_KEY "mthreads.com/predicate-node"

enum {
    UNIT_MIB = 512,  /* of memory, requested or a node's */
    CARD_CORES = 16, /* and so many units of memory are asked for with a whole card: */
    CARD_UNITS = 96,
    MAX_TASKS = 100,
    INDEXES_MAX = 8192, /* bytes of the list of cards */
};

/* Section `mthreads` of the device configuration. Names are "" where there is none. */
struct mthreads_config {
    char count_name[SECTION_NAME_SIZE];
    char memory_name[SECTION_NAME_SIZE];
    char cores_name[SECTION_NAME_SIZE];
};

extern const struct vendor mthreads_vendor;

static const struct section_key keys[] = {
#define KEY(key, member)                                                                           \
    {                                                                                              \
        .name = key, .read = section_read_resource,                                                \
        .offset = offsetof(struct mthreads_config, member)                                         \
    }
    KEY("resourceCountName", count_name),
    KEY("resourceMemoryName", memory_name),
    KEY("resourceCoreName", cores_name),
#undef KEY
};

static void set_missing(void *ret_config)
{
    *(struct mthreads_config *)ret_config = (struct mthreads_config){.count_name = ""};
}

static int read_section(const struct section_reading *reading, const struct section *section,
                        void *config)
{
    return section_read_keys(reading, section, "mthreads", keys, ARRAY_SIZE(keys), config);
}

/* Cards are counted by their cores, and whole ones are asked for by cores and memory. */
static int check_section(const struct section_reading *reading, const void *own)
{
    const struct mthreads_config *config = own;
    const struct {
        const char *name, *key;
    } needed[] = {{config->count_name, "resourceCountName"},
                  {config->memory_name, "resourceMemoryName"},
                  {config->cores_name, "resourceCoreName"}};
    const char *missing = NULL;
    bool any = false;

    for (size_t i = ARRAY_SIZE(needed); i-- > 0;) {
        any |= *needed[i].name != '\0';
        missing = *needed[i].name ? missing : needed[i].key;
    }
    if (!any || !missing)
        return 0;
    return error_set(reading->err, -EINVAL,
                     "%s: mthreads.%s: not given; pods could not ask for a device", reading->file,
                     missing);
}

/* Placement. */

/* The cards of the pod's earlier containers, of which there is one. */
static enum place_reason take_the_pods(const struct place_step *step, const struct device *device,
                                       struct device_usage *taken)
{
    (void)taken;
    for (size_t i = 0; step->given && i < step->given->count; i++) {
        const struct container_devices *devices = &step->given->containers[i];

        for (size_t k = 0; k < devices->count; k++) {
            if (strcmp(devices->items[k].uuid, device->uuid) != 0)
                return PLACE_CARD_CUSTOM_RULE;
        }
    }
    return PLACE_REASON_COUNT;
}

static const struct place_rules rules = {.take = take_the_pods};

/* Pods. */

static bool is_a_share(int64_t units)
{
    static const int64_t shares[] = {1, 2, 4, 8, 16, 32, 64, CARD_UNITS};

    for (size_t i = 0; i < ARRAY_SIZE(shares); i++) {
        if (shares[i] == units)
            return true;
    }
    return false;
}

static int set_whole(const struct mthreads_config *config, const struct pod *pod, size_t container,
                     int64_t count, struct mutations *mutations)
{
    const struct container *asking = &pod->containers[container];
    int r = asking_set_amount(asking, container, config->cores_name, CARD_CORES * count, mutations);

    return r < 0 ? r
                 : asking_set_amount(asking, container, config->memory_name, CARD_UNITS * count,
                                     mutations);
}

static int set_count(int64_t count, struct mutations *mutations)
{
    return asking_change(mutations, &(struct mutation){
                                        .kind = MUTATION_ANNOTATION,
                                        .name = COUNT_KEY,
                                        .value = arena_printf(mutations->arena, "%" PRId64, count),
                                    });
}

/* One card: a share of its memory, as large as its agent can make one, or all of it. */
static int complete_one(const struct mthreads_config *config, const struct pod *pod,
                        size_t container, struct mutations *mutations, struct error *err)
{
    const struct resource *memory =
        resource_find(&pod->containers[container].limits, config->memory_name);

    if (!memory)
        return set_whole(config, pod, container, 1, mutations);
    if (is_a_share(memory->quantity.value))
        return 0;
    return asking_refuse_amount(pod, container, "limits", memory,
                                "none of 1, 2, 4, 8, 16, 32, 64, 96", err);
}

static int mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err)
{
    const struct mthreads_config *config = instance->id.config;
    const struct resource *count =
        container_resource(&pod->containers[container], config->count_name);
    int r = asking_check_amounts(pod, container, instance->resources, VENDOR_MAX_RESOURCES, err);

    if (r < 0 || !count)
        return r;
    if (!count->quantity.value)
        return asking_refuse_amount(pod, container, "limits", count, "not above 0", err);
    if (count->quantity.value == 1) {
        r = complete_one(config, pod, container, mutations, err);
        return r < 0 ? r : 1;
    }
    r = set_whole(config, pod, container, count->quantity.value, mutations);
    if (r == 0)
        r = set_count(count->quantity.value, mutations);
    return r < 0 ? r : 1;
}

/* Memory and cores are those of all cards together. */
static int read_request(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request)
{
    const struct mthreads_config *config = instance->id.config;
    const struct asking_share share = {
        .count = config->count_name,
        .memory = config->memory_name,
        .cores = config->cores_name,
        .memory_factor = UNIT_MIB,
    };
    struct request request = {.vendor = &instance->id};
    int r;

    if (!asking_read_share(&pod->containers[container], &share, &request))
        return 0;
    request.memory_bytes = request.memory_bytes / MIB / request.count * MIB;
    request.cores /= request.count;
    r = asking_uuids(pod, "mthreads.ai/use-gpuuuid", "mthreads.ai/nouse-gpuuuid", arena, &request);
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

/* The agent knows one list for all of a pod: as in HAMi, that of the last container. */
static int annotate(const struct vendor_instance *instance, const struct vendor_grant *grant,
                    struct vendor_annotations *annotations)
{
    const struct container_devices *last = NULL;
    int r = vendor_annotate_standard(instance, grant, annotations);

    for (size_t i = 0; i < grant->given->count; i++)
        last = grant->given->containers[i].count ? &grant->given->containers[i] : last;
    if (r == 0 && last)
        r = vendor_annotate_add(annotations, INDEX_KEY,
                                list_cards(instance, grant, last, annotations->arena));
    return r < 0 ? r : vendor_annotate_add(annotations, NODE_KEY, grant->node);
}

/* Nodes: cards of 16 cores each, the last one perhaps of less. */

static int64_t count_cards(int64_t cores)
{
    return cores / CARD_CORES + (cores % CARD_CORES != 0);
}

static int64_t count_healthy(const struct node *node, const char *cores_name, int64_t count)
{
    if (!resource_find(&node->allocatable, cores_name))
        return count;
    return MIN(count_cards(counted_amount(&node->allocatable, cores_name)), count);
}

static int read_node(const struct vendor_instance *instance, const struct node *node,
                     struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                     struct error *err)
{
    const struct mthreads_config *config = instance->id.config;
    const int64_t cores = counted_amount(&node->capacity, config->cores_name);
    const int64_t units =
        MIN(counted_amount(&node->capacity, config->memory_name), (int64_t)DEVICE_MAX_MIB + 1);
    const int64_t mib = cores ? units * UNIT_MIB * CARD_CORES / cores : 0;
    const struct counted counted = {
        .resource = config->cores_name,
        .word = "mthreads",
        .count = count_cards(cores),
        .healthy = count_healthy(node, config->cores_name, count_cards(cores)),
        .sample = {.special = true,
                   .max_tasks = MAX_TASKS,
                   .cores = CARD_CORES,
                   .memory_bytes = (uint64_t)MIN(mib, (int64_t)DEVICE_MAX_MIB) * MIB,
                   .model = COMMON_WORD},
    };

    (void)arena;
    if (units > DEVICE_MAX_MIB || mib > DEVICE_MAX_MIB)
        return error_set(err, -EINVAL, "status.capacity[%s]: more memory than there is",
                         config->memory_name);
    return counted_list(instance, node, &counted, ret_devices, max, ret_count, err);
}

/* Nobody registers the counted resource. */
static bool is_alive(const struct vendor_instance *instance, const struct node *node)
{
    const struct mthreads_config *config = instance->id.config;

    return counted_amount(&node->allocatable, config->cores_name) > 0;
}

/* The agent takes the pod that was bound first. */
static const struct vendor_lock *prepare_bind(const struct vendor_instance *instance,
                                              const struct node *node)
{
    const struct mthreads_config *config = instance->id.config;

    return counted_amount(&node->capacity, config->cores_name) > 0 ? &vendor_turn_lock : NULL;
}

static int add_instances(struct vendor_set *set, const void *own)
{
    const struct mthreads_config *config = own;
    const struct vendor_instance instance = {
        .vendor = &mthreads_vendor,
        .id = {COMMON_WORD, &rules, config},
        .allocated_key = "hami.io/mthreads-vgpu-devices-allocated",
        .written_keys = {INDEX_KEY, NODE_KEY},
        .count_resource = config->count_name,
        .memory_resource = config->memory_name,
        .cores_resource = config->cores_name,
        .memory_unit_mib = UNIT_MIB,
        .resources = {config->count_name, config->memory_name, config->cores_name},
    };

    return config->count_name[0] ? vendor_set_add(set, &instance) : 0;
}

static const char *const annotations[] = {"mthreads.com/", "mthreads.ai/", NULL};
static const char *const wishes[] = {"mthreads.ai/use-gpuuuid", "mthreads.ai/nouse-gpuuuid", NULL};
static const struct vendor_time times[] = {{"mthreads.com/predicate-time", true}, {NULL, false}};

const struct vendor mthreads_vendor = {
    .name = "mthreads",
    .section = "mthreads",
    .config_size = sizeof(struct mthreads_config),
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
    .is_alive = is_alive,
    .prepare_bind = prepare_bind,
    .annotate = annotate,
    .times = times,
};
