/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Instances of a card, by the profiles that its agent registers: a container asks for slices, or
 * for so much memory and compute, and gets the smallest instance that has them. The agent looks for
 * its pod by annotations that name one card.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "vendor/asking.h"
#include "vendor/enflame/drs_capacity.h"
#include "vendor/enflame/enflame.h"

#define REGISTER_KEY "enflame.com/gcu-drs-capacity"

enum {
    MIB_PER_GIB = 1024,
    NOTE_MAX = 64 << 10, /* bytes of what is told of all containers */
};

struct drs_facts {
    char index[DRS_NAME_SIZE], minor[DRS_NAME_SIZE];
    uint32_t max_slices, max_gib;
    size_t profile_count;
    struct drs_profile profiles[DRS_PROFILES_MAX];
};

/* What a container asks for: slices, or an amount of each. 0: none is asked for. */
struct drs_wish {
    int64_t slices, memory, cores;
};

/* Placement. */

/* In percent of the card. HAMi rounds up, and then six of six slices don't fit. */
static unsigned cores_of(const struct drs_facts *facts, const struct drs_profile *profile)
{
    return profile->slices * DEVICE_CORES / facts->max_slices;
}

/* In GiB; what no card has in GiB was meant in MiB. */
static int64_t gib_of(const struct drs_facts *facts, int64_t memory)
{
    if (memory <= 2 * (int64_t)facts->max_gib)
        return memory;
    return memory / MIB_PER_GIB + (memory % MIB_PER_GIB != 0);
}

static bool has_enough(const struct drs_facts *facts, const struct drs_profile *profile,
                       const struct drs_wish *wish)
{
    if (wish->slices)
        return profile->slices == wish->slices;
    return profile->gib >= gib_of(facts, wish->memory) &&
           (int64_t)profile->slices * DEVICE_CORES + facts->max_slices - 1 >=
               wish->cores * facts->max_slices;
}

/* NULL: there is none. */
static const struct drs_profile *find_profile(const struct drs_facts *facts,
                                              const struct drs_wish *wish)
{
    for (size_t i = 0; i < facts->profile_count; i++) {
        if (has_enough(facts, &facts->profiles[i], wish))
            return &facts->profiles[i];
    }
    return NULL;
}

static void want_profile(const struct place_step *step, const struct device *device,
                         struct device_usage *ret_wanted)
{
    const struct drs_facts *facts = device->facts;
    const struct drs_profile *profile = find_profile(facts, step->request->wishes);

    ret_wanted->cores = profile ? cores_of(facts, profile) : 0;
    ret_wanted->memory_bytes = profile ? (uint64_t)profile->gib * GIB : 0;
}

static bool is_the_pods(const struct place_step *step, const struct device *device)
{
    for (size_t i = 0; step->given && i < step->given->count; i++) {
        for (size_t k = 0; k < step->given->containers[i].count; k++) {
            if (strcmp(step->given->containers[i].items[k].uuid, device->uuid) != 0)
                return false;
        }
    }
    return true;
}

/* There is such a profile, and all containers of a pod have one card: its agent is told of one. */
static enum place_reason take_instance(const struct place_step *step, const struct device *device,
                                       struct device_usage *taken)
{
    (void)taken;
    return find_profile(device->facts, step->request->wishes) && is_the_pods(step, device)
               ? PLACE_REASON_COUNT
               : PLACE_CARD_CUSTOM_RULE;
}

static const struct place_rules rules = {.want = want_profile, .take = take_instance};

/* Pods. */

static int add_amount(struct mutations *mutations, enum mutation_kind kind, size_t container,
                      const struct resource *resource)
{
    return asking_change(mutations, &(struct mutation){.kind = kind,
                                                       .container = container,
                                                       .name = resource->name,
                                                       .value = resource->text});
}

/* Limits and requests have to be the same. */
static int mirror(const struct pod *pod, size_t container, const struct resource *resource,
                  struct mutations *mutations)
{
    const struct container *asking = &pod->containers[container];
    int r = 0;

    if (!resource_find(&asking->limits, resource->name))
        r = add_amount(mutations, MUTATION_LIMIT, container, resource);
    if (r == 0 && !resource_find(&asking->requests, resource->name))
        r = add_amount(mutations, MUTATION_REQUEST, container, resource);
    return r;
}

/* Returns 1 if it is asked for. */
static int check_and_mirror(const struct pod *pod, size_t container, const char *name, int64_t max,
                            struct mutations *mutations, struct error *err)
{
    const struct resource *resource =
        *name ? container_resource(&pod->containers[container], name) : NULL;
    int r;

    if (!resource)
        return 0;
    if (resource->quantity.value <= 0 || resource->quantity.value > max)
        return asking_refuse_amount(pod, container, "limits", resource,
                                    max == DEVICE_CORES ? "not from 1 to 100" : "not above 0", err);
    r = mirror(pod, container, resource, mutations);
    return r < 0 ? r : 1;
}

static int mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err)
{
    const struct enflame_config *config = instance->id.config;
    int r = asking_check_amounts(pod, container, instance->resources, VENDOR_MAX_RESOURCES, err);
    int cores;

    if (r == 0)
        r = check_and_mirror(pod, container, config->drs_name, INT32_MAX, mutations, err);
    if (r != 0)
        return r;
    r = check_and_mirror(pod, container, config->memory_name, INT32_MAX, mutations, err);
    if (r < 0)
        return r;
    cores = check_and_mirror(pod, container, config->cores_name, DEVICE_CORES, mutations, err);
    return cores < 0 ? cores : r || cores;
}

static int read_request(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request)
{
    const struct container *asking = &pod->containers[container];
    const struct enflame_config *config = instance->id.config;
    struct drs_wish *wish = ARENA_NEW(arena, struct drs_wish);
    struct request request = {
        .vendor = &instance->id,
        .count = 1,
        .wishes = wish,
        .wishes_size = sizeof(*wish),
    };
    int r;

    if (!wish)
        return -ENOMEM;
    (void)asking_amount(asking, config->drs_name, &wish->slices);
    (void)asking_amount(asking, config->memory_name, &wish->memory);
    (void)asking_amount(asking, config->cores_name, &wish->cores);
    if (!wish->slices && !wish->memory && !wish->cores)
        return 0;
    r = asking_uuids(pod, "enflame.com/use-gpuuuid", "enflame.com/nouse-gpuuuid", arena, &request);
    if (r < 0)
        return r;
    *ret_request = request;
    return 1;
}

/* What is told of a grant. */

/* Of what memory and cores a grant has. */
static const struct drs_profile *profile_of(const struct drs_facts *facts,
                                            const struct container_device *given)
{
    for (size_t i = 0; i < facts->profile_count; i++) {
        const struct drs_profile *profile = &facts->profiles[i];

        if ((int64_t)profile->gib * MIB_PER_GIB == given->memory_mib &&
            (int32_t)cores_of(facts, profile) == given->cores)
            return profile;
    }
    return NULL;
}

static const struct drs_facts *facts_of(const struct vendor_instance *instance,
                                        const struct vendor_grant *grant, const char *uuid)
{
    const struct device *device =
        place_find_device(grant->devices, grant->device_count, &instance->id, uuid);

    return device ? device->facts : NULL;
}

static void note_container(struct strbuf *text, const char *name, const struct drs_profile *profile)
{
    strbuf_add(text, text->len ? "," : "{");
    strbuf_add_json(text, name);
    strbuf_addf(text, ":{\"allocated\":false,\"request\":%u,\"profileID\":", profile->slices);
    strbuf_add_json(text, profile->id);
    strbuf_add(text, ",\"profileName\":");
    strbuf_add_json(text, profile->name);
    strbuf_add(text, "}");
}

/* {"main":{"allocated":false,"request":3,"profileID":"1","profileName":"3g.21gb"}} */
static const char *note_containers(const struct vendor_instance *instance,
                                   const struct vendor_grant *grant, struct arena *arena)
{
    struct strbuf text = STRBUF_IN(arena, NOTE_MAX);

    for (size_t i = 0; i < grant->given->count && i < grant->pod->container_count; i++) {
        const struct container_devices *devices = &grant->given->containers[i];
        const struct drs_facts *facts =
            devices->count ? facts_of(instance, grant, devices->items[0].uuid) : NULL;
        const struct drs_profile *profile = facts ? profile_of(facts, &devices->items[0]) : NULL;

        if (profile)
            note_container(&text, grant->pod->containers[i].name, profile);
    }
    strbuf_add(&text, text.len ? "}" : "{}");
    return text.failed ? NULL : strbuf_text(&text);
}

static int annotate_card(const struct drs_facts *facts, const struct container_device *given,
                         struct vendor_annotations *annotations)
{
    const struct drs_profile *profile = profile_of(facts, given);
    const struct text_pair pairs[] = {
        {ENFLAME_INDEX_KEY, arena_strdup(annotations->arena, facts->index)},
        {ENFLAME_ID_KEY, arena_strdup(annotations->arena, facts->index)},
        {ENFLAME_MINOR_KEY, arena_strdup(annotations->arena, facts->minor)},
        {ENFLAME_SIZE_KEY, arena_printf(annotations->arena, "%u", profile ? profile->slices : 0)},
    };
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(pairs) && r == 0; i++)
        r = vendor_annotate_add(annotations, pairs[i].key, pairs[i].value);
    return r;
}

static int annotate(const struct vendor_instance *instance, const struct vendor_grant *grant,
                    struct vendor_annotations *annotations)
{
    const struct container_device *given = &enflame_first_given(grant->given)->items[0];
    const struct drs_facts *facts = facts_of(instance, grant, given->uuid);
    int r = vendor_annotate_standard(instance, grant, annotations);

    if (r == 0)
        r = vendor_annotate_add(annotations, ENFLAME_ASSIGNED_KEY, "false");
    if (r == 0 && facts)
        r = annotate_card(facts, given, annotations);
    return r < 0 ? r
                 : vendor_annotate_add(annotations, ENFLAME_CONTAINERS_KEY,
                                       note_containers(instance, grant, annotations->arena));
}

/* Nodes. */

static int fill_device(const struct vendor_instance *instance, const struct node *node,
                       const struct drs_capacity *capacity, size_t number, struct arena *arena,
                       struct device *ret_device)
{
    const struct drs_card *card = &capacity->cards[number];
    struct drs_facts *facts = ARENA_NEW(arena, struct drs_facts);

    if (!facts)
        return -ENOMEM;
    COPY_TEXT(facts->index, card->index);
    COPY_TEXT(facts->minor, card->minor);
    facts->max_slices = capacity->max_slices;
    facts->max_gib = capacity->max_gib;
    facts->profile_count = capacity->profile_count;
    memcpy(facts->profiles, capacity->profiles, sizeof(facts->profiles));
    *ret_device = (struct device){
        .vendor = &instance->id,
        .healthy = true,
        .special = true,
        .index = (unsigned)number,
        .max_tasks = card->slices,
        .cores = DEVICE_CORES,
        .memory_bytes = (uint64_t)capacity->max_gib * GIB,
        .model = ENFLAME_PART_WORD,
        .facts = facts,
        .facts_size = sizeof(*facts),
    };
    /* Of a long name the first part is enough: an id tells apart the devices of one node. */
    (void)snprintf(ret_device->uuid, sizeof(ret_device->uuid), "%.*s-enflame-drs-%s",
                   DEVICE_UUID_SIZE - DRS_NAME_SIZE - (int)sizeof("-enflame-drs-"), node->name,
                   card->index);
    return 0;
}

static int read_node(const struct vendor_instance *instance, const struct node *node,
                     struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                     struct error *err)
{
    const char *text = text_pairs_get(&node->annotations, REGISTER_KEY);
    struct drs_capacity capacity;
    size_t count;
    int r;

    if (!text)
        return error_set(err, -ENOENT, "no annotation %s", REGISTER_KEY);
    r = drs_capacity_parse(text, arena, &capacity, err);
    if (r != CODEC_EXACT)
        (void)error_wrap(err, r, "%s", REGISTER_KEY);
    if (r < 0)
        return r;
    count = MIN(capacity.card_count, max);
    for (size_t i = 0; i < count; i++) {
        if (fill_device(instance, node, &capacity, i, arena, &ret_devices[i]) < 0)
            return error_set(err, -ENOMEM, "no memory");
    }
    *ret_count = count;
    return r;
}

/* gcushare takes the pod that was bound first, of those that ask for as many slices. */
static const struct vendor_lock *prepare_bind(const struct vendor_instance *instance,
                                              const struct node *node)
{
    return text_pairs_get(&node->annotations, instance->register_key) ? &vendor_turn_lock : NULL;
}

int enflame_drs_add(struct vendor_set *set, const struct enflame_config *config)
{
    const struct vendor_instance instance = {
        .vendor = &enflame_drs_vendor,
        .id = {ENFLAME_PART_WORD, &rules, config},
        .register_key = REGISTER_KEY,
        .allocated_key = ENFLAME_PART_ALLOCATED_KEY,
        .written_keys = {ENFLAME_ASSIGNED_KEY, ENFLAME_ID_KEY, ENFLAME_INDEX_KEY, ENFLAME_MINOR_KEY,
                         ENFLAME_SIZE_KEY, ENFLAME_CONTAINERS_KEY},
        .count_resource = config->drs_name,
        .memory_resource = config->memory_name,
        .cores_resource = config->cores_name,
        .memory_unit_mib = MIB_PER_GIB,
        .resources = {config->drs_name, config->memory_name, config->cores_name},
    };

    return vendor_set_add(set, &instance);
}

static const char *const annotations[] = {"enflame.com/", ENFLAME_CONTAINERS_KEY, NULL};
static const char *const wishes[] = {"enflame.com/use-gpuuuid", "enflame.com/nouse-gpuuuid", NULL};
static const struct vendor_time times[] = {{ENFLAME_ASSIGNED_TIME_KEY, true}, {NULL, false}};

const struct vendor enflame_drs_vendor = {
    .name = "enflame",
    .annotations = annotations,
    .wishes = wishes,
    .mutate = mutate,
    .read_request = read_request,
    .read_node = read_node,
    .prepare_bind = prepare_bind,
    .annotate = annotate,
    .times = times,
};
