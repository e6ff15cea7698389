/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Huawei's Ascend chips, each with an instance of this vendor: whole, or cut by templates, of which
 * a request gets the smallest that is large enough. Chips of the 910 know their network; those of a
 * container are taken of one network where they can be.
 */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "model/json.h"
#include "vendor/ascend/config.h"
#include "vendor/asking.h"
#include "vendor/registered.h"

#define WITH_NETWORK "Ascend910"

extern const struct vendor ascend_vendor;

struct ascend_facts {
    bool has_network;
    int64_t network;
};

/* Placement. */

static const struct ascend_facts *facts_of(const struct device *device)
{
    static const struct ascend_facts none = {0};

    return device && device->facts ? device->facts : &none;
}

static bool knows_networks(const struct place_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        const struct device *device = &set->devices[set->order[i]];

        if (!facts_of(device)->has_network ||
            strncmp(device->vendor->word, WITH_NETWORK, strlen(WITH_NETWORK)) != 0)
            return false;
    }
    return true;
}

/* How many of these are of one network. */
static size_t count_network(const struct place_set *set, const size_t *positions, size_t count,
                            int64_t network)
{
    size_t found = 0;

    for (size_t i = 0; i < count; i++)
        found += facts_of(&set->devices[positions[i]])->network == network;
    return found;
}

/* Stable, larger networks first; of equal ones the one whose device is preferred. */
static void sort_by_network(const struct place_set *set, size_t *positions, size_t count)
{
    size_t sorted[PLACE_MAX_DEVICES], done = 0;

    while (done < count) {
        int64_t best = 0;
        size_t most = 0;

        for (size_t i = 0; i < count; i++) {
            const int64_t network = facts_of(&set->devices[positions[i]])->network;
            const size_t size = count_network(set, positions, count, network);

            if (size > most && !count_network(set, sorted, done, network)) {
                most = size;
                best = network;
            }
        }
        for (size_t i = 0; i < count; i++) {
            if (facts_of(&set->devices[positions[i]])->network == best)
                sorted[done++] = positions[i];
        }
    }
    memcpy(positions, sorted, count * sizeof(sorted[0]));
}

static bool choose_network(const struct place_step *step, const struct place_set *set,
                           size_t *ret_chosen, struct place_failure *failure)
{
    size_t fitting[PLACE_MAX_DEVICES], count = 0;

    (void)failure;
    for (size_t i = set->count; i-- > 0;) {
        if (set->fits[set->order[i]])
            fitting[count++] = set->order[i];
    }
    if (step->request->count > 1 && count > step->request->count && knows_networks(set))
        sort_by_network(set, fitting, count);
    memcpy(ret_chosen, fitting, step->request->count * sizeof(fitting[0]));
    return true;
}

/* The largest part of a container's chips that is of one network; -1: one has none. */
static float network_part(const struct place_fitted *fitted,
                          const struct container_devices *devices)
{
    size_t most = 0;

    for (size_t i = 0; i < devices->count; i++) {
        const struct device *device = place_find_device(fitted->devices, fitted->device_count,
                                                        fitted->vendor, devices->items[i].uuid);
        size_t same = 0;

        if (!facts_of(device)->has_network)
            return -1;
        for (size_t k = 0; k < devices->count; k++)
            same += facts_of(place_find_device(fitted->devices, fitted->device_count,
                                               fitted->vendor, devices->items[k].uuid))
                        ->network == facts_of(device)->network;
        most = MAX(most, same);
    }
    return (float)most / (float)devices->count;
}

static float score_networks(const struct place_fitted *fitted)
{
    float score = 0;

    for (size_t i = 0; i < fitted->given->count; i++) {
        const struct container_devices *devices = &fitted->given->containers[i];
        float part;

        if (!devices->count)
            continue;
        if (strncmp(devices->items[0].type, WITH_NETWORK, strlen(WITH_NETWORK)) != 0)
            return 0;
        part = network_part(fitted, devices);
        if (part < 0)
            return 0;
        score += part;
    }
    return 10 * score;
}

static const struct place_rules rules = {
    .choose = choose_network,
    .score_node = score_networks,
};

/* Pods. */

static int refuse_memory(const struct pod *pod, size_t container, const struct resource *memory,
                         const char *why, struct error *err)
{
    return asking_refuse_amount(pod, container, "limits", memory, why, err);
}

/* The memory that the container's limit becomes; -EINVAL. */
static int64_t find_memory(const struct ascend_chip *chip, const struct pod *pod, size_t container,
                           struct error *err)
{
    const struct resource_list *limits = &pod->containers[container].limits;
    const struct resource *memory = resource_find(limits, chip->memory_name);
    int64_t mib = chip->allocatable_mib;
    const char *name;

    if (memory)
        mib = ascend_trim(chip, memory->quantity.value, &name);
    if (!mib)
        return refuse_memory(pod, container, memory, "more than a chip has", err);
    if (mib != chip->allocatable_mib && resource_find(limits, chip->count_name)->quantity.value > 1)
        return refuse_memory(pod, container, memory,
                             "a part of a chip, which is not given to those that ask for several",
                             err);
    return mib;
}

static int add_mutation(struct mutations *mutations, const struct mutation *mutation)
{
    if (mutations->count == MUTATIONS_MAX)
        return -ENOMEM;
    mutations->items[mutations->count++] = *mutation;
    return 0;
}

static int set_memory(const struct ascend_chip *chip, const struct pod *pod, size_t container,
                      int64_t mib, struct mutations *mutations)
{
    const struct container *asking = &pod->containers[container];
    const struct resource *limit = resource_find(&asking->limits, chip->memory_name);
    const struct resource *request = resource_find(&asking->requests, chip->memory_name);
    struct mutation mutation = {
        .kind = MUTATION_LIMIT,
        .container = container,
        .name = chip->memory_name,
        .value = arena_printf(mutations->arena, "%" PRId64, mib),
    };
    int r = 0;

    if (!mutation.value)
        return -ENOMEM;
    if (!limit || limit->quantity.value != mib)
        r = add_mutation(mutations, &mutation);
    mutation.kind = MUTATION_REQUEST;
    if (r == 0 && (!request || request->quantity.value != mib))
        r = add_mutation(mutations, &mutation);
    return r;
}

static int mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err)
{
    const struct ascend_chip *chip = instance->id.config;
    int64_t mib;
    int r = asking_check_amounts(pod, container, instance->resources, VENDOR_MAX_RESOURCES, err);

    if (r < 0 || !resource_find(&pod->containers[container].limits, chip->count_name))
        return r;
    mib = chip->memory_name[0] ? find_memory(chip, pod, container, err) : 0;
    if (mib < 0)
        return (int)mib;
    if (mib)
        r = set_memory(chip, pod, container, mib, mutations);
    if (r == 0 && chip->runtime_class[0] && !pod->runtime_class[0])
        r = add_mutation(mutations, &(struct mutation){.kind = MUTATION_RUNTIME_CLASS,
                                                       .name = "",
                                                       .value = chip->runtime_class});
    return r < 0 ? r : 1;
}

static int read_request(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request)
{
    const struct container *asking = &pod->containers[container];
    const struct ascend_chip *chip = instance->id.config;
    struct request request = {.vendor = &instance->id};
    int64_t count = 0, mib = 0;
    const char *name;
    int r;

    if (!asking_amount(asking, chip->count_name, &count) || !count)
        return 0;
    if (asking_amount(asking, chip->memory_name, &mib)) {
        mib *= MAX(chip->memory_factor, 1);
        mib = ascend_trim(chip, mib, &name);
    }
    request.count = (unsigned)count;
    request.memory_bytes = (uint64_t)mib * MIB;
    request.memory_percent = mib ? 0 : 100;
    r = asking_list(pod, chip->use_key, arena, &request.use_uuids);
    if (r == 0)
        r = asking_list(pod, chip->avoid_key, arena, &request.avoid_uuids);
    if (r < 0)
        return r;
    /* As in HAMi, chips that are asked for by name are not avoided. */
    if (request.use_uuids.count)
        request.avoid_uuids.count = 0;
    *ret_request = request;
    return 1;
}

/* For the chip's agent: which chips, and by which template each is cut. */
static int annotate(const struct vendor_instance *instance, const struct vendor_grant *grant,
                    struct vendor_annotations *annotations)
{
    const struct ascend_chip *chip = instance->id.config;
    struct strbuf text = STRBUF_IN(annotations->arena, CODEC_MAX_TEXT);
    int r = vendor_annotate_standard(instance, grant, annotations);
    const char *name, *comma = "";

    strbuf_add(&text, "[");
    for (size_t i = 0; i < grant->given->count; i++) {
        for (size_t k = 0; k < grant->given->containers[i].count; k++) {
            const struct container_device *device = &grant->given->containers[i].items[k];

            strbuf_addf(&text, "%s{\"UUID\":", comma);
            strbuf_add_json(&text, device->uuid);
            (void)ascend_trim(chip, device->memory_mib, &name);
            if (*name) {
                strbuf_add(&text, ",\"temp\":");
                strbuf_add_json(&text, name);
            }
            strbuf_add(&text, "}");
            comma = ",";
        }
    }
    strbuf_add(&text, "]");
    return r < 0 ? r
                 : vendor_annotate_add(annotations, chip->chip_key,
                                       text.failed ? NULL : strbuf_text(&text));
}

/* Nodes. */

static int read_facts(const struct node *node, const struct registered_device *registered,
                      struct arena *arena, struct device *device)
{
    struct ascend_facts *facts = ARENA_NEW(arena, struct ascend_facts);
    yyjson_val *custom, *network;

    (void)node;
    if (!facts)
        return -ENOMEM;
    device->facts = facts;
    device->facts_size = sizeof(*facts);
    if (!registered->custom ||
        json_parse(registered->custom, strlen(registered->custom), arena, &custom, NULL) < 0)
        return 0;
    network = yyjson_obj_get(custom, "NetworkID");
    facts->has_network = yyjson_is_int(network);
    facts->network = yyjson_get_sint(network);
    return 0;
}

static int read_node(const struct vendor_instance *instance, const struct node *node,
                     struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                     struct error *err)
{
    return registered_read(instance, node, arena, ret_devices, max, ret_count, err, read_facts);
}

static const struct vendor_lock *prepare_bind(const struct vendor_instance *instance,
                                              const struct node *node)
{
    return text_pairs_get(&node->annotations, instance->register_key) ? &vendor_mutex_lock : NULL;
}

static int add_instances(struct vendor_set *set, const void *own)
{
    const struct ascend_config *config = own;
    int r = 0;

    for (size_t i = 0; i < config->count && r == 0; i++) {
        const struct ascend_chip *chip = &config->chips[i];
        const struct vendor_instance instance = {
            .vendor = &ascend_vendor,
            .id = {chip->word, &rules, chip},
            .register_key = chip->register_key,
            .handshake_key = chip->handshake_key,
            .to_allocate_key = chip->allocate_key,
            .allocated_key = chip->allocated_key,
            .written_keys = {chip->chip_key},
            .count_resource = chip->count_name,
            .memory_resource = chip->memory_name,
            .memory_unit_mib = chip->memory_factor,
            .resources = {chip->count_name, chip->memory_name},
        };

        r = vendor_set_add(set, &instance);
    }
    return r;
}

static const char *const annotations[] = {"huawei.com/", "predicate-time", NULL};
static const struct vendor_time times[] = {{"predicate-time", false}, {NULL, false}};

const struct vendor ascend_vendor = {
    .name = "ascend",
    .section = "vnpus",
    .config_size = sizeof(struct ascend_config),
    .set_missing = ascend_config_missing,
    .read_section = ascend_config_read,
    .add_instances = add_instances,
    .annotations = annotations,
    .mutate = mutate,
    .read_request = read_request,
    .read_node = read_node,
    .prepare_bind = prepare_bind,
    .annotate = annotate,
    .times = times,
};
