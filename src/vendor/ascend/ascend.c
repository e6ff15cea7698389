/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Huawei's Ascend chips, each with an instance of this vendor: whole, or cut by templates, of which
 * a request gets the smallest that is large enough, or on some nodes, for pods that say so, split
 * softly by memory and cores. Chips of the 910 know their network; those of a container are taken
 * of one network where they can be. Two chips of a 910C stand on one card, and go together.
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
#define IN_PAIRS "Ascend910C"
#define MODE "huawei.com/vnpu-mode" /* on a pod: SOFT_SPLIT */
#define SOFT_SPLIT "hami-core"
#define NODE_MODE "hami-vnpu-core" /* on a node: whether chips are split softly */
#define VISIBLE "ASCEND_VISIBLE_DEVICES"

enum {
    ONE_NETWORK = 10, /* what a node scores for a container whose chips are all on one network */
};

extern const struct vendor ascend_vendor;

struct ascend_facts {
    bool has_network;
    bool splits_softly;
    int64_t network;
};

struct ascend_wishes {
    bool soft; /* split */
};

static bool is_soft(const struct pod *pod)
{
    const char *mode = text_pairs_get(&pod->annotations, MODE);

    return mode && strcmp(mode, SOFT_SPLIT) == 0;
}

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

/* The chip behind it that fits and stands on the same card; false: there is none. */
static bool find_other(const struct place_set *set, const size_t *fitting, size_t count, size_t of,
                       size_t *ret_other)
{
    for (size_t i = of + 1; i < count; i++) {
        if (set->devices[fitting[i]].index / 2 != set->devices[fitting[of]].index / 2)
            continue;
        *ret_other = fitting[i];
        return true;
    }
    return false;
}

static bool is_taken(const size_t *chosen, size_t count, size_t position)
{
    for (size_t i = 0; i < count; i++) {
        if (chosen[i] == position)
            return true;
    }
    return false;
}

/* Whole cards, of which both chips fit. */
static bool choose_pairs(const struct place_step *step, const struct place_set *set,
                         const size_t *fitting, size_t count, size_t *ret_chosen,
                         struct place_failure *failure)
{
    size_t taken = 0, other;

    for (size_t i = 0; i < count && taken + 2 <= step->request->count; i++) {
        if (is_taken(ret_chosen, taken, fitting[i]) || !find_other(set, fitting, count, i, &other))
            continue;
        ret_chosen[taken++] = fitting[i];
        ret_chosen[taken++] = other;
    }
    if (taken == step->request->count)
        return true;
    failure->for_good = step->request->count % 2;
    failure->reasons[PLACE_TOO_FEW_PICKED] = (unsigned)taken;
    return false;
}

static bool choose_network(const struct place_step *step, const struct place_set *set,
                           size_t *ret_chosen, struct place_failure *failure)
{
    size_t fitting[PLACE_MAX_DEVICES], count = 0;

    for (size_t i = set->count; i-- > 0;) {
        if (set->fits[set->order[i]])
            fitting[count++] = set->order[i];
    }
    if (step->request->count > 1 && strcmp(step->request->vendor->word, IN_PAIRS) == 0)
        return choose_pairs(step, set, fitting, count, ret_chosen, failure);
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
    return ONE_NETWORK * score;
}

/* As in HAMi, a pod that doesn't ask for soft split may come to a node that splits softly. */
static enum place_reason suits(const struct place_step *step, const struct device *device)
{
    const struct ascend_wishes *wishes = step->request->wishes;

    return wishes->soft && !facts_of(device)->splits_softly ? PLACE_MODE_NOT_FIT
                                                            : PLACE_REASON_COUNT;
}

/* That the node doesn't split softly is said once. */
static void tell(const struct place_step *step, struct place_failure *failure)
{
    (void)step;
    if (failure->reasons[PLACE_MODE_NOT_FIT])
        failure->reasons[PLACE_MODE_NOT_FIT] = 1;
}

static const struct place_rules rules = {
    .suits = suits,
    .choose = choose_network,
    .tell = tell,
    .score_node = score_networks,
    .score_most = ONE_NETWORK,
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
        mib = is_soft(pod) ? memory->quantity.value
                           : ascend_trim(chip, memory->quantity.value, &name);
    if (memory && (!mib || mib > (int64_t)INT32_MAX))
        return refuse_memory(pod, container, memory, "none, or more than a chip has", err);
    if (!is_soft(pod) && mib != chip->allocatable_mib &&
        resource_find(limits, chip->count_name)->quantity.value > 1)
        return refuse_memory(pod, container, memory,
                             "a part of a chip, which is not given to those that ask for several",
                             err);
    return mib;
}

/* Limit and request of a resource become this value, where they are another. */
static int set_amount(const struct pod *pod, size_t container, const char *name, int64_t value,
                      bool adds_request, struct mutations *mutations)
{
    const struct container *asking = &pod->containers[container];
    const struct resource *limit = resource_find(&asking->limits, name);
    const struct resource *request = resource_find(&asking->requests, name);
    struct mutation change = {
        .kind = MUTATION_LIMIT,
        .container = container,
        .name = name,
        .value = arena_printf(mutations->arena, "%" PRId64, value),
    };
    int r = 0;

    if (!change.value)
        return -ENOMEM;
    if (!limit || limit->quantity.value != value)
        r = asking_change(mutations, &change);
    change.kind = MUTATION_REQUEST;
    if (r == 0 && (request ? request->quantity.value != value : adds_request))
        r = asking_change(mutations, &change);
    return r;
}

/* Chips of a super pod go by the card, which has two. */
static int round_count(const struct ascend_chip *chip, const struct pod *pod, size_t container,
                       struct mutations *mutations, struct error *err)
{
    const struct resource *count =
        resource_find(&pod->containers[container].limits, chip->count_name);

    if (!chip->is_super_pod || strcmp(chip->word, IN_PAIRS) != 0 || count->quantity.value % 2 == 0)
        return 0;
    if (count->quantity.value != 1)
        return asking_refuse_amount(pod, container, "limits", count, "neither 1 nor even", err);
    return set_amount(pod, container, chip->count_name, 2, false, mutations);
}

static int check_cores(const struct ascend_chip *chip, const struct pod *pod, size_t container,
                       struct error *err)
{
    const struct resource *cores =
        *chip->cores_name ? container_resource(&pod->containers[container], chip->cores_name)
                          : NULL;

    if (!cores || !cores->quantity.value)
        return 0;
    if (!is_soft(pod))
        return asking_refuse_amount(pod, container, "limits", cores,
                                    "for pods with the annotation " MODE "=" SOFT_SPLIT, err);
    if (cores->quantity.value > DEVICE_CORES)
        return asking_refuse_amount(pod, container, "limits", cores, "more than 100 percent", err);
    return 0;
}

static bool asks_for_any(const struct ascend_config *config, const struct container *asking)
{
    for (size_t i = 0; i < config->count; i++) {
        if (resource_find(&asking->limits, config->chips[i].count_name))
            return true;
    }
    return false;
}

static bool is_hidden(const struct mutations *mutations, size_t container)
{
    for (size_t i = 0; i < mutations->count; i++) {
        const struct mutation *change = &mutations->items[i];

        if (change->kind == MUTATION_ENV && change->container == container &&
            strcmp(change->name, VISIBLE) == 0)
            return true;
    }
    return false;
}

/* A container without any chip sees none, whatever its image's environment says. */
static int hide_chips(const struct ascend_chip *chip, const struct pod *pod, size_t container,
                      struct mutations *mutations)
{
    if (!chip->hides_chips || asks_for_any(chip->config, &pod->containers[container]) ||
        is_hidden(mutations, container))
        return 0;
    return asking_change(
        mutations, &(struct mutation){
                       .kind = MUTATION_ENV, .container = container, .name = VISIBLE, .value = ""});
}

static int mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err)
{
    const struct ascend_chip *chip = instance->id.config;
    int64_t mib = 0;
    int r = asking_check_amounts(pod, container, instance->resources, VENDOR_MAX_RESOURCES, err);

    if (r == 0 && !resource_find(&pod->containers[container].limits, chip->count_name))
        return hide_chips(chip, pod, container, mutations);
    if (r == 0)
        r = round_count(chip, pod, container, mutations, err);
    if (r == 0)
        r = check_cores(chip, pod, container, err);
    if (r == 0 && chip->memory_name[0])
        mib = find_memory(chip, pod, container, err);
    if (r < 0 || mib < 0)
        return r < 0 ? r : (int)mib;
    if (mib)
        r = set_amount(pod, container, chip->memory_name, mib, true, mutations);
    if (r == 0 && chip->runtime_class[0] && !pod->runtime_class[0])
        r = asking_change(mutations, &(struct mutation){.kind = MUTATION_RUNTIME_CLASS,
                                                        .name = "",
                                                        .value = chip->runtime_class});
    return r < 0 ? r : 1;
}

static int read_request(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request)
{
    const struct container *asking = &pod->containers[container];
    const struct ascend_chip *chip = instance->id.config;
    struct ascend_wishes *wishes = ARENA_NEW(arena, struct ascend_wishes);
    struct request request = {
        .vendor = &instance->id, .wishes = wishes, .wishes_size = sizeof(*wishes)};
    int64_t count = 0, mib = 0, cores = 0;
    const char *name;
    int r;

    if (!wishes)
        return -ENOMEM;
    if (!asking_amount(asking, chip->count_name, &count) || !count)
        return 0;
    wishes->soft = is_soft(pod);
    if (asking_mib(asking, chip->memory_name, chip->memory_factor, &mib) && !wishes->soft)
        mib = ascend_trim(chip, mib, &name);
    if (wishes->soft && chip->cores_name[0])
        (void)asking_amount(asking, chip->cores_name, &cores);
    request.cores = (unsigned)cores;
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

static void add_template(struct strbuf *text, const struct ascend_chip *chip,
                         const struct container_device *device)
{
    const char *name;

    (void)ascend_trim(chip, device->memory_mib, &name);
    if (!*name)
        return;
    strbuf_add(text, ",\"temp\":");
    strbuf_add_json(text, name);
}

static void add_amounts(struct strbuf *text, const struct container_device *device)
{
    if (device->memory_mib)
        strbuf_addf(text, ",\"memory\":%d", (int)device->memory_mib);
    if (device->cores)
        strbuf_addf(text, ",\"core\":%d", (int)device->cores);
}

/* For the chip's agent: which chips, and by which template each is cut; or, where it is split
 * softly, how much of it. */
static int annotate(const struct vendor_instance *instance, const struct vendor_grant *grant,
                    struct vendor_annotations *annotations)
{
    const struct ascend_chip *chip = instance->id.config;
    struct strbuf text = STRBUF_IN(annotations->arena, CODEC_MAX_TEXT);
    int r = vendor_annotate_standard(instance, grant, annotations);
    const char *comma = "";

    strbuf_add(&text, "[");
    for (size_t i = 0; i < grant->given->count; i++) {
        for (size_t k = 0; k < grant->given->containers[i].count; k++) {
            const struct container_device *device = &grant->given->containers[i].items[k];

            strbuf_addf(&text, "%s{\"UUID\":", comma);
            strbuf_add_json(&text, device->uuid);
            if (grant->pod && is_soft(grant->pod))
                add_amounts(&text, device);
            else
                add_template(&text, chip, device);
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
    const struct ascend_chip *chip = device->vendor->config;
    const char *mode = text_pairs_get(&node->annotations, NODE_MODE);
    struct ascend_facts *facts = ARENA_NEW(arena, struct ascend_facts);
    yyjson_val *custom, *network;

    if (!facts)
        return -ENOMEM;
    facts->splits_softly = mode ? strcmp(mode, "true") == 0 : chip->config->soft_split;
    device->facts = facts;
    device->facts_size = sizeof(*facts);
    device->special = true;
    if (facts->splits_softly)
        device->cores = DEVICE_CORES;
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
            .changes_all_pods = chip->hides_chips,
            .memory_resource = chip->memory_name,
            .cores_resource = chip->cores_name,
            .memory_unit_mib = chip->memory_factor,
            .resources = {chip->count_name, chip->memory_name, chip->cores_name},
        };

        r = vendor_set_add(set, &instance);
    }
    return r;
}

static const char *const annotations[] = {"huawei.com/", "predicate-time", NODE_MODE, NULL};
static const char *const node_annotations[] = {NODE_MODE, NULL};
static const struct vendor_time times[] = {{"predicate-time", false}, {NULL, false}};

const struct vendor ascend_vendor = {
    .name = "ascend",
    .section = "vnpus",
    .config_size = sizeof(struct ascend_config),
    .set_missing = ascend_config_missing,
    .read_section = ascend_config_read,
    .add_instances = add_instances,
    .annotations = annotations,
    .node_annotations = node_annotations,
    .mutate = mutate,
    .read_request = read_request,
    .read_node = read_node,
    .prepare_bind = prepare_bind,
    .shares_lock = true,
    .annotate = annotate,
    .times = times,
};
