/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Vastai: cards, or the dies of cards where the agent registers those; the card of a die is its
 * AIC. Dies of a container are taken of one card where they can be.
 */

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "model/json.h"
#include "vendor/asking.h"
#include "vendor/registered.h"
#include "vendor/vendor.h"

#define COMMON_WORD "Vastai"

enum {
    AIC_SIZE = 32,
};

/* Section `vastai` of the device configuration. */
struct vastai_config {
    char count_name[SECTION_NAME_SIZE]; /* "": there is none */
};

struct vastai_facts {
    bool is_die;
    char aic[AIC_SIZE]; /* "": not told */
};

extern const struct vendor vastai_vendor;

static const struct section_key keys[] = {
    {.name = "resourceCountName",
     .read = section_read_resource,
     .offset = offsetof(struct vastai_config, count_name)},
};

static void set_missing(void *ret_config)
{
    *(struct vastai_config *)ret_config = (struct vastai_config){.count_name = ""};
}

static int read_section(const struct section_reading *reading, const struct section *section,
                        void *config)
{
    return section_read_keys(reading, section, "vastai", keys, ARRAY_SIZE(keys), config);
}

/* Placement: what a device has is not counted, only who has it. */

static const struct vastai_facts *facts_of(const struct device *device)
{
    static const struct vastai_facts none = {0};

    return device && device->facts ? device->facts : &none;
}

static void want_a_device(const struct place_step *step, const struct device *device,
                          struct device_usage *ret_wanted)
{
    (void)step;
    (void)device;
    ret_wanted->memory_bytes = 0;
}

static bool is_of(const struct place_set *set, size_t position, const char *aic)
{
    return strcmp(facts_of(&set->devices[position])->aic, aic) == 0;
}

static size_t count_of(const struct place_set *set, const size_t *positions, size_t count,
                       const char *aic)
{
    size_t found = 0;

    for (size_t i = 0; i < count; i++)
        found += is_of(set, positions[i], aic);
    return found;
}

/* Whether some die of its card is in use. */
static bool is_shared(const struct place_set *set, size_t position)
{
    for (size_t i = 0; i < set->count; i++) {
        if (set->devices[set->order[i]].used.tasks &&
            is_of(set, set->order[i], facts_of(&set->devices[position])->aic))
            return true;
    }
    return false;
}

/* Those that fit, the most preferred first; with mutex no die of a card that others use. */
static size_t find_fitting(const struct place_step *step, const struct place_set *set, bool dies,
                           size_t *ret_positions)
{
    size_t count = 0;

    for (size_t i = set->count; i-- > 0;) {
        const size_t position = set->order[i];

        if (set->fits[position] && !(dies && step->policy->mutex && is_shared(set, position)))
            ret_positions[count++] = position;
    }
    return count;
}

/* Stable, cards with more dies first; of equal ones the one whose die is preferred. */
static void sort_by_card(const struct place_set *set, size_t *positions, size_t count)
{
    size_t sorted[PLACE_MAX_DEVICES], done = 0;

    while (done < count) {
        const char *best = "";
        size_t most = 0;

        for (size_t i = 0; i < count; i++) {
            const char *aic = facts_of(&set->devices[positions[i]])->aic;
            const size_t size = count_of(set, positions, count, aic);

            if (size > most && !count_of(set, sorted, done, aic)) {
                most = size;
                best = aic;
            }
        }
        for (size_t i = 0; i < count; i++) {
            if (is_of(set, positions[i], best))
                sorted[done++] = positions[i];
        }
    }
    memcpy(positions, sorted, count * sizeof(sorted[0]));
}

static bool choose_card(const struct place_step *step, const struct place_set *set,
                        size_t *ret_chosen, struct place_failure *failure)
{
    const bool dies = facts_of(&set->devices[set->order[0]])->is_die;
    size_t fitting[PLACE_MAX_DEVICES], count = find_fitting(step, set, dies, fitting), all = 0;

    for (size_t i = 0; i < set->count; i++)
        all += set->fits[set->order[i]];
    if (count < step->request->count) {
        failure->reasons[PLACE_CARD_EXCLUSIVE] += (unsigned)(all - count);
        failure->reasons[PLACE_TOO_FEW_PICKED] = (unsigned)count;
        return false;
    }
    if (dies && step->request->count > 1 && count > step->request->count)
        sort_by_card(set, fitting, count);
    memcpy(ret_chosen, fitting, step->request->count * sizeof(fitting[0]));
    return true;
}

/* The largest part of a container's dies that is of one card; -1: they are not dies of cards. */
static float card_part(const struct place_fitted *fitted, const struct container_devices *devices)
{
    size_t most = 0;

    for (size_t i = 0; i < devices->count; i++) {
        const struct vastai_facts *facts = facts_of(place_find_device(
            fitted->devices, fitted->device_count, fitted->vendor, devices->items[i].uuid));
        size_t same = 0;

        if (!facts->is_die || !facts->aic[0])
            return -1;
        for (size_t k = 0; k < devices->count; k++)
            same += strcmp(facts_of(place_find_device(fitted->devices, fitted->device_count,
                                                      fitted->vendor, devices->items[k].uuid))
                               ->aic,
                           facts->aic) == 0;
        most = MAX(most, same);
    }
    return (float)most / (float)devices->count;
}

static float score_cards(const struct place_fitted *fitted)
{
    float score = 0;

    for (size_t i = 0; i < fitted->given->count; i++) {
        float part;

        if (!fitted->given->containers[i].count)
            continue;
        part = card_part(fitted, &fitted->given->containers[i]);
        if (part < 0)
            return 0;
        score += part;
    }
    return score;
}

static const struct place_rules rules = {
    .want = want_a_device,
    .choose = choose_card,
    .score_node = score_cards,
    .score_most = 1,
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
    struct request request = {.vendor = &instance->id, .memory_percent = 100};
    int64_t count = 0;
    int r;

    if (!asking_amount(&pod->containers[container], instance->count_resource, &count) || !count)
        return 0;
    request.count = (unsigned)count;
    r = asking_uuids(pod, "vastaitech.com/use-gpuuuid", "vastaitech.com/nouse-gpuuuid", arena,
                     &request);
    if (r < 0)
        return r;
    *ret_request = request;
    return 1;
}

/* Nodes. */

static void read_custom(yyjson_val *custom, struct vastai_facts *facts)
{
    const char *aic = yyjson_get_str(yyjson_obj_get(custom, "AIC"));

    facts->is_die = yyjson_equals_str(yyjson_obj_get(custom, "DeviceStrategy"), "die");
    if (aic && strlen(aic) < AIC_SIZE)
        COPY_TEXT(facts->aic, aic);
}

/* As in HAMi, a device whose model does not name the vendor is counted, and not given out. */
static int finish_device(const struct node *node, const struct registered_device *registered,
                         struct arena *arena, struct device *device)
{
    struct vastai_facts *facts = ARENA_NEW(arena, struct vastai_facts);
    yyjson_val *custom;

    (void)node;
    if (!facts)
        return -ENOMEM;
    device->cores = DEVICE_CORES;
    device->facts = facts;
    device->facts_size = sizeof(*facts);
    if (!text_contains(device->model, COMMON_WORD))
        device->vendor = NULL;
    if (registered->custom &&
        json_parse(registered->custom, strlen(registered->custom), arena, &custom, NULL) == 0)
        read_custom(custom, facts);
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

static int add_instances(struct vendor_set *set, const void *own)
{
    const struct vastai_config *config = own;
    const struct vendor_instance instance = {
        .vendor = &vastai_vendor,
        .id = {COMMON_WORD, &rules, config},
        .register_key = "hami.io/node-va-register",
        .handshake_key = "hami.io/node-handshake-va",
        .to_allocate_key = "hami.io/Vastai-devices-to-allocate",
        .allocated_key = "hami.io/Vastai-devices-allocated",
        .count_resource = config->count_name,
        .resources = {config->count_name},
    };

    return config->count_name[0] ? vendor_set_add(set, &instance) : 0;
}

static const char *const annotations[] = {"vastaitech.com/", NULL};
static const char *const wishes[] = {"vastaitech.com/use-gpuuuid", "vastaitech.com/nouse-gpuuuid",
                                     NULL};

const struct vendor vastai_vendor = {
    .name = "vastai",
    .section = "vastai",
    .config_size = sizeof(struct vastai_config),
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
