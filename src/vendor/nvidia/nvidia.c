/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/nvidia/nvidia.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "model/codec_number.h"
#include "model/keys.h"
#include "vendor/asking.h"
#include "vendor/nvidia/admission.h"
#include "vendor/nvidia/allowance.h"
#include "vendor/nvidia/config.h"
#include "vendor/nvidia/placements.h"
#include "vendor/nvidia/score.h"
#include "vendor/registered.h"

void nvidia_config_defaults(struct nvidia_config *ret_config)
{
    *ret_config = (struct nvidia_config){
        .count_name = "nvidia.com/gpu",
        .memory_name = "nvidia.com/gpumem",
        .memory_percent_name = "nvidia.com/gpumem-percentage",
        .cores_name = "nvidia.com/gpucores",
        .priority_name = "nvidia.com/priority",
        .default_count = 1,
        .memory_factor = 1,
        .core_policy = "default",
        .split_count = DEVICE_DEFAULT_MAX_TASKS,
        .memory_scaling = 1,
        .cores_scaling = 1,
        .log_level = "1",
    };
}

int nvidia_add_instance(struct vendor_set *set, const struct nvidia_config *config)
{
    const struct vendor_instance instance = {
        .vendor = &nvidia_vendor,
        .id = {NVIDIA_COMMON_WORD, &nvidia_rules, config},
        .register_key = NVIDIA_REGISTER_KEY,
        .to_allocate_key = NVIDIA_TO_ALLOCATE_KEY,
        .allocated_key = NVIDIA_ALLOCATED_KEY,
        .changes_all_pods = config->overwrite_env ||
                            (*config->core_policy && strcmp(config->core_policy, "default") != 0),
        .count_resource = config->count_name,
        .memory_resource = config->memory_name,
        .cores_resource = config->cores_name,
        .memory_unit_mib = config->memory_factor,
        .resources = {config->count_name, config->memory_name, config->memory_percent_name,
                      config->cores_name, config->priority_name},
        .hint_resource = config->priority_name,
        .written_keys = {MIG_ALLOCATIONS_KEY},
    };

    return vendor_set_add(set, &instance);
}

/* Requests. */

/* Memory that is asked for neither in MiB nor in percent is the configured default, else the whole
 * card's. */
static void read_memory(const struct nvidia_config *config, const struct container *container,
                        struct request *request)
{
    int64_t mib = 0, percent = 0;
    bool has_percent;

    if (asking_amount(container, config->memory_name, &mib) && config->memory_factor > 1)
        mib = MIN(mib * config->memory_factor, (int64_t)INT32_MAX);
    has_percent = asking_amount(container, config->memory_percent_name, &percent);
    /* Admission denies 0. Past it, a share without memory would be placed, and never start. */
    if (has_percent && (percent == NVIDIA_NO_PERCENT || (percent == 0 && !mib)))
        has_percent = false;
    if (!mib && !has_percent && config->default_memory_mib > 0)
        mib = config->default_memory_mib;

    request->memory_bytes = (uint64_t)mib * MIB;
    request->memory_percent = has_percent ? (unsigned)percent : mib ? 0 : 100;
}

static int check_lists(const struct pod *pod, struct error *err)
{
    static const char *const keys[] = {NVIDIA_USE_UUID_KEY, NVIDIA_AVOID_UUID_KEY,
                                       NVIDIA_USE_TYPE_KEY, NVIDIA_AVOID_TYPE_KEY};

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        const char *text = text_pairs_get(&pod->annotations, keys[i]);

        if (text && !asking_list_is_bounded(text))
            return error_set(err, -EINVAL,
                             "metadata.annotations[%s]: more than %d pieces or %d bytes", keys[i],
                             ASKING_LIST_MAX, ASKING_LIST_TEXT_MAX);
    }
    return 0;
}

/* As in HAMi, the list may name several modes: a card's own mode must be one of them. */
static int check_mode(const struct pod *pod, struct error *err)
{
    static const char *const modes[] = {"hami-core", "mig", "mps", NULL};
    const char *text = text_pairs_get(&pod->annotations, NVIDIA_MODE_KEY);

    if (!text || text_is_made_of(text, modes))
        return 0;
    return error_set(err, -EINVAL,
                     "metadata.annotations[%s]: \"%.64s\" is not made of hami-core, mig, mps",
                     NVIDIA_MODE_KEY, text);
}

/* HAMi reads other words as false; such a pod would be spread over NUMA nodes unnoticed. */
static int check_numa_bind(const struct pod *pod, struct error *err)
{
    const char *text = text_pairs_get(&pod->annotations, NVIDIA_NUMA_BIND_KEY);
    bool is_bound;

    if (!text || codec_bool(text, strlen(text), &is_bound))
        return 0;
    return error_set(err, -EINVAL, "metadata.annotations[%s]: \"%.64s\" is neither true nor false",
                     NVIDIA_NUMA_BIND_KEY, text);
}

int nvidia_check_annotations(const struct pod *pod, struct error *err)
{
    int r = check_lists(pod, err);

    if (r == 0)
        r = check_mode(pod, err);
    return r < 0 ? r : check_numa_bind(pod, err);
}

static int read_mode(const struct pod *pod, struct arena *arena, struct request *request)
{
    const char *modes = text_pairs_get(&pod->annotations, NVIDIA_MODE_KEY);

    if (!modes)
        return 0;
    request->modes = arena_strdup(arena, modes);
    return request->modes ? 0 : -ENOMEM;
}

static int read_selection(const struct pod *pod, struct arena *arena, struct request *request)
{
    const struct {
        const char *key;
        struct text_list *list;
    } lists[] = {
        {NVIDIA_USE_UUID_KEY, &request->use_uuids},
        {NVIDIA_AVOID_UUID_KEY, &request->avoid_uuids},
        {NVIDIA_USE_TYPE_KEY, &request->use_types},
        {NVIDIA_AVOID_TYPE_KEY, &request->avoid_types},
    };
    int r;

    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        r = asking_list(pod, lists[i].key, arena, lists[i].list);
        if (r < 0)
            return r;
    }
    /* As in HAMi, cards that are asked for by name are not avoided. */
    if (request->use_uuids.count)
        request->avoid_uuids.count = 0;
    return read_mode(pod, arena, request);
}

static bool wants_one_numa_node(const struct pod *pod)
{
    const char *text = text_pairs_get(&pod->annotations, NVIDIA_NUMA_BIND_KEY);
    bool is_bound = false;

    return text && codec_bool(text, strlen(text), &is_bound) && is_bound;
}

static int read_request(const struct vendor_instance *instance, const struct pod *pod,
                        size_t position, struct arena *arena, struct request *ret_request)
{
    const struct container *container = &pod->containers[position];
    const struct nvidia_config *config = instance->id.config;
    struct request request = {.vendor = &instance->id, .memo = ARENA_NEW(arena, struct type_memo)};
    const struct resource *counted = container_resource(container, config->count_name);
    int64_t count = 0, cores = config->default_cores;
    int r;

    if (!request.memo)
        return -ENOMEM;
    if (!asking_amount(container, config->count_name, &count) || !count)
        return 0;
    if (counted->quantity.value > INT32_MAX)
        return 0;
    request.count = (unsigned)count;
    read_memory(config, container, &request);
    (void)asking_amount(container, config->cores_name, &cores);
    request.cores = (unsigned)MAX(cores, (int64_t)0);
    request.one_numa_node = wants_one_numa_node(pod);
    r = read_selection(pod, arena, &request);
    if (r < 0)
        return r;
    *ret_request = request;
    return 1;
}

/* Devices of a node. */

/* "a, b": blanks around the pieces don't count. */
static bool is_cordoned(const struct node *node, const char *uuid)
{
    const char *p = text_pairs_get(&node->annotations, KEY_CORDON);
    size_t len = strlen(uuid);

    for (; p && *p; p += strspn(p, ",")) {
        size_t piece;

        p += strspn(p, " \t");
        piece = strcspn(p, ", \t");
        if (piece == len && memcmp(p, uuid, len) == 0)
            return true;
        p += strcspn(p, ",");
    }
    return false;
}

const struct mig_geometry *nvidia_find_geometry(const struct nvidia_config *config,
                                                const char *model)
{
    for (size_t i = 0; i < config->mig_count; i++) {
        const struct nvidia_mig *mig = &config->migs[i];

        for (size_t k = 0; k < mig->name_count; k++) {
            if (strstr(model, mig->names[k]))
                return &mig->geometry;
        }
    }
    return NULL;
}

uint32_t nvidia_find_context(const struct nvidia_config *config, const char *model)
{
    if (config->context_mib)
        return config->context_mib;
    for (size_t i = 0; i < config->context_count; i++) {
        const struct nvidia_context *context = &config->contexts[i];

        for (size_t k = 0; k < context->name_count; k++) {
            if (strstr(model, context->names[k]))
                return context->mib;
        }
    }
    return 0;
}

/* Whether the registration has "lock": word, which our plugin says of each card (NVIDIA_CUSTOM).
 * A quote within a text of JSON is escaped, so no other text there reads like this. */
static bool has_lock_word(const char *registered, const char *word)
{
    const char *at = strstr(registered, "\"lock\"");
    size_t len = strlen(word);

    if (!at)
        return false;
    at += strlen("\"lock\"");
    at += strspn(at, " :");
    return at[0] == '"' && strncmp(at + 1, word, len) == 0 && at[1 + len] == '"';
}

/* HAMi's plugin since 2.10, which is to be told which profile goes where: names of instances, as
 * 2.8's, say nothing to it. */
static bool wants_placements(const struct node *node)
{
    const char *registered = text_pairs_get(&node->annotations, NVIDIA_REGISTER_KEY);

    return registered && strstr(registered, "\"migProfiles\"") &&
           !has_lock_word(registered, "none") && !has_lock_word(registered, "turn");
}

static int finish_device(const struct node *node, const struct registered_device *registered,
                         struct arena *arena, struct device *device)
{
    const struct nvidia_config *config = device->vendor->config;
    const struct mig_geometry *geometry;
    struct mig_profile profiles[PLACEMENTS_PROFILES_MAX];
    struct nvidia_facts *facts;
    int count = 0;

    /* As in HAMi, a card whose model does not name the vendor is counted, and not given out. */
    if (!text_contains(device->model, NVIDIA_COMMON_WORD))
        device->vendor = NULL;
    device->cordoned = is_cordoned(node, device->uuid);
    device->special = strcmp(device->mode, MIG_MODE) == 0;
    if (!device->special)
        return 0;
    /* Our own plugin takes either way. */
    geometry = wants_placements(node) ? NULL : nvidia_find_geometry(config, device->model);
    if (!geometry && registered->profiles)
        count = placements_read_profiles(registered->profiles, arena, profiles);
    facts = count < 0 ? NULL : nvidia_facts_give(device, (size_t)count, 0, arena);
    if (!facts)
        return -ENOMEM;
    facts->geometry = geometry;
    facts->barred = geometry ? allowance_barred(config, device->model) : 0;
    memcpy(facts->profiles, profiles, (size_t)count * sizeof(profiles[0]));
    return 0;
}

static int read_node(const struct vendor_instance *instance, const struct node *node,
                     struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                     struct error *err)
{
    const char *scores = text_pairs_get(&node->annotations, NVIDIA_SCORE_KEY);
    int r = registered_read(instance, node, arena, ret_devices, max, ret_count, err, finish_device);
    int scored = 0;

    if (r >= 0 && scores)
        scored = nvidia_read_scores(scores, ret_devices, *ret_count, arena, err);
    return scored < 0 ? scored : r;
}

/* HAMi's own plugin looks for its pod by the node's lock; ours, where CDI does not reach
 * containers, for the one that is being bound. */
static const struct vendor_lock *prepare_bind(const struct vendor_instance *instance,
                                              const struct node *node)
{
    const char *registered = text_pairs_get(&node->annotations, instance->register_key);

    if (!registered || has_lock_word(registered, "none"))
        return NULL;
    return has_lock_word(registered, "turn") ? &vendor_turn_lock : &vendor_mutex_lock;
}

static int annotate(const struct vendor_instance *instance, const struct vendor_grant *grant,
                    struct vendor_annotations *annotations)
{
    int r = vendor_annotate_standard(instance, grant, annotations);

    return r < 0 ? r : placements_annotate(instance, grant, annotations);
}

static int recall(const struct vendor_instance *instance, const struct text_pairs *annotations,
                  struct arena *arena, struct pod_devices *devices)
{
    (void)instance;
    return placements_recall(annotations, arena, devices);
}

static int add_instances(struct vendor_set *set, const void *config)
{
    return nvidia_add_instance(set, config);
}

static const char *const annotations[] = {"nvidia.com/", NULL};
static const char *const wishes[] = {NVIDIA_USE_UUID_KEY,
                                     NVIDIA_AVOID_UUID_KEY,
                                     NVIDIA_USE_TYPE_KEY,
                                     NVIDIA_AVOID_TYPE_KEY,
                                     NVIDIA_NUMA_BIND_KEY,
                                     NVIDIA_MODE_KEY,
                                     NULL};
static const char *const recalled[] = {MIG_ALLOCATIONS_KEY, NULL};
static const char *const variables[] = {"CUDA_", NULL};
static const char *const node_annotations[] = {KEY_CORDON, NVIDIA_SCORE_KEY, NULL};

const struct vendor nvidia_vendor = {
    .name = "nvidia",
    .section = "nvidia",
    .config_size = sizeof(struct nvidia_config),
    .set_missing = nvidia_config_missing,
    .read_section = nvidia_config_read,
    .check_section = nvidia_config_check,
    .add_instances = add_instances,
    .annotations = annotations,
    .wishes = wishes,
    .variables = variables,
    .node_annotations = node_annotations,
    .mutate = nvidia_mutate,
    .read_request = read_request,
    .read_node = read_node,
    .prepare_bind = prepare_bind,
    .annotate = annotate,
    .recall = recall,
    .recalled = recalled,
};
