/* SPDX-License-Identifier: Apache-2.0 */
#include "place/fit.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "place/connected.h"
#include "place/place.h"

/* A request on its way over the devices. */
struct walk {
    struct place_step step;
    const struct device_vendor *vendor;
    const struct place_rules *rules;
    unsigned waived;
    unsigned cores;            /* as asked for, at most 100 */
    uint64_t memory_mib;       /* 0: a percentage is asked for */
    bool selects;              /* by uuid */
    struct place_budget *left; /* of the namespace's; NULL: no bound */
};

static bool list_has_part_of(const struct text_list *list, const char *text)
{
    for (size_t i = 0; i < list->count; i++) {
        if (text_contains(text, list->items[i]))
            return true;
    }
    return false;
}

static enum type_verdict find_type(const struct request *request, const struct device *device)
{
    if (request->use_types.count && !list_has_part_of(&request->use_types, device->model))
        return TYPE_MISMATCH;
    if (request->modes && !strstr(request->modes, device->mode))
        return TYPE_MISMATCH;
    return list_has_part_of(&request->avoid_types, device->model) ? TYPE_MISMATCH : TYPE_MATCHES;
}

static enum type_verdict type_of(const struct request *request, const struct device *device)
{
    struct type_memo *memo = request->memo;
    size_t entry = device->kind % ARRAY_SIZE(memo->entries);

    if (!memo || !device->kind)
        return find_type(request, device);
    if (memo->entries[entry].kind != device->kind) {
        memo->entries[entry].kind = device->kind;
        memo->entries[entry].verdict = find_type(request, device);
    }
    return memo->entries[entry].verdict;
}

static bool uuid_matches(const struct request *request, const char *uuid)
{
    if (request->use_uuids.count && !text_list_has(&request->use_uuids, uuid))
        return false;
    return !request->avoid_uuids.count || !text_list_has(&request->avoid_uuids, uuid);
}

/* The request's memory on this card, in MiB. */
static inline uint64_t memory_wanted(const struct walk *walk, const struct device *device)
{
    if (walk->memory_mib)
        return walk->memory_mib;
    return device->memory_bytes / MIB * walk->step.request->memory_percent / 100;
}

static inline struct device_usage wanted_of(const struct walk *walk, const struct device *device)
{
    struct device_usage wanted = {
        .tasks = 1,
        .cores = walk->cores,
        .memory_bytes = memory_wanted(walk, device) * MIB,
    };

    if (walk->rules->want)
        walk->rules->want(&walk->step, device, &wanted);
    return wanted;
}

static inline bool holds(const struct walk *walk, enum place_reason reason)
{
    return !(walk->waived & 1u << reason);
}

static bool is_over_budget(const struct walk *walk, const struct device_usage *wanted)
{
    const struct place_budget *left = walk->left;

    return left && ((int64_t)(wanted->memory_bytes / MIB) > left->memory_mib ||
                    (int64_t)cores_counted(walk->rules, wanted) > left->cores);
}

/* The rule that its vendor has for it. */
static enum place_reason check_special(const struct walk *walk, const struct device *device,
                                       struct device_usage *taken)
{
    enum place_reason reason = PLACE_REASON_COUNT;

    if (walk->rules->take)
        reason = walk->rules->take(&walk->step, device, taken);
    return reason == PLACE_REASON_COUNT && is_over_budget(walk, taken) ? PLACE_QUOTA : reason;
}

/*
 * The rules, in HAMi's order; PLACE_REASON_COUNT when the device will do. A refusal asks this of
 * all devices there are: inlined it costs a third less.
 */
static inline __attribute__((always_inline)) enum place_reason
check_device(const struct walk *walk, const struct device *device, enum type_verdict type)
{
    const struct device_usage *used = &device->used;
    const unsigned cores_free = device_free_cores(device);
    struct device_usage wanted;

    if (!device->healthy || device->misused)
        return PLACE_CARD_NOT_HEALTHY;
    if (device->cordoned)
        return PLACE_CARD_CORDONED;
    if (type == TYPE_MISMATCH)
        return PLACE_CARD_TYPE_MISMATCH;
    if (device->special && walk->rules->suits) {
        const enum place_reason reason = walk->rules->suits(&walk->step, device);

        if (reason != PLACE_REASON_COUNT)
            return reason;
    }
    if (walk->selects && !uuid_matches(walk->step.request, device->uuid))
        return PLACE_CARD_UUID_MISMATCH;
    wanted = wanted_of(walk, device);
    if (used->tasks + wanted.tasks > device->max_tasks && holds(walk, PLACE_CARD_TASKS_EXHAUSTED))
        return PLACE_CARD_TASKS_EXHAUSTED;
    if (walk->step.policy->mutex && used->tasks > 0)
        return PLACE_CARD_EXCLUSIVE;
    if (is_over_budget(walk, &wanted))
        return PLACE_QUOTA;
    if (device_free_mib(device) < wanted.memory_bytes / MIB &&
        holds(walk, PLACE_CARD_INSUFFICIENT_MEMORY))
        return PLACE_CARD_INSUFFICIENT_MEMORY;
    if (cores_free < wanted.cores && holds(walk, PLACE_CARD_INSUFFICIENT_CORE))
        return PLACE_CARD_INSUFFICIENT_CORE;
    if (device->cores == DEVICE_CORES && wanted.cores == DEVICE_CORES && used->tasks > 0 &&
        holds(walk, PLACE_CARD_EXCLUSIVE))
        return PLACE_CARD_EXCLUSIVE;
    if (device->cores && !cores_free && !wanted.cores && holds(walk, PLACE_CARD_CORES_EXHAUSTED))
        return PLACE_CARD_CORES_EXHAUSTED;
    return device->special ? check_special(walk, device, &wanted) : PLACE_REASON_COUNT;
}

/* Whether one request may be given the device several times. */
static inline bool repeats(const struct walk *walk, const struct device *device)
{
    return device->special && walk->rules->repeats;
}

/* Whether a device that was passed over would fit if it were unused, as far as the general rules
 * can tell. */
static bool is_only_full(const struct walk *walk, const struct device *device,
                         enum place_reason reason)
{
    struct device_usage wanted;

    if (reason == PLACE_QUOTA || reason == PLACE_CARD_CORDONED ||
        reason == PLACE_CARD_TYPE_MISMATCH || reason == PLACE_CARD_UUID_MISMATCH ||
        !device->healthy)
        return false;
    wanted = wanted_of(walk, device);
    if (wanted.tasks > device->max_tasks && holds(walk, PLACE_CARD_TASKS_EXHAUSTED))
        return false;
    if (wanted.cores > device->cores && holds(walk, PLACE_CARD_INSUFFICIENT_CORE))
        return false;
    return wanted.memory_bytes / MIB <= device->memory_bytes / MIB ||
           !holds(walk, PLACE_CARD_INSUFFICIENT_MEMORY);
}

/* The devices that fit, in the list's order; of the others the reasons are counted. */
static size_t find_fitting(const struct walk *walk, const struct device *devices, size_t count,
                           size_t *ret_positions, struct place_failure *failure)
{
    size_t fitting = 0, most = 0;

    for (size_t i = 0; i < count; i++) {
        enum place_reason reason;

        if (devices[i].vendor != walk->vendor)
            continue;
        failure->candidates++;
        reason = check_device(walk, &devices[i], type_of(walk->step.request, &devices[i]));
        if (reason == PLACE_REASON_COUNT)
            ret_positions[fitting++] = i;
        else
            failure->reasons[reason]++;
        if (reason == PLACE_REASON_COUNT || is_only_full(walk, &devices[i], reason))
            most += repeats(walk, &devices[i]) ? walk->step.request->count : 1;
    }
    failure->for_good = most < walk->step.request->count;
    return fitting;
}

static struct walk walk_of(const struct place_ask *ask, const struct place_policy *policy)
{
    const struct request *request = ask->request;
    const struct place_rules *rules = rules_of(request->vendor);

    return (struct walk){
        .step = {request, policy, ask->given, ask->container},
        .vendor = request->vendor,
        .rules = rules,
        .waived = rules->waived,
        .cores = MIN(request->cores, (unsigned)DEVICE_CORES),
        .memory_mib = (request->memory_bytes + MIB - 1) / MIB,
        .selects = request->use_uuids.count || request->avoid_uuids.count,
    };
}

/* All of the vendor's devices, whether they fit or not. */
static size_t list_all(const struct walk *walk, const struct device *devices, size_t count,
                       size_t *ret_positions, struct place_failure *failure)
{
    size_t listed = 0;

    for (size_t i = 0; i < count; i++) {
        if (devices[i].vendor == walk->vendor)
            ret_positions[listed++] = i;
    }
    failure->candidates = (unsigned)listed;
    return listed;
}

/* In a chain of keys; without one, devices are sorted by their NUMA node first anyway. */
static void put_numa_first(enum place_key *keys)
{
    size_t last = 0;

    if (keys[0] == PLACE_KEY_NONE)
        return;
    while (last + 1 < PLACE_MAX_KEYS && keys[last] != PLACE_KEY_NONE &&
           keys[last] != PLACE_KEY_NUMA)
        last++;
    memmove(keys + 1, keys, last * sizeof(keys[0]));
    keys[0] = PLACE_KEY_NUMA;
}

/* By costs, the least first; of equal ones the first of the list. */
static void sort_by_cost(const float *costs, size_t *positions, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        size_t moved = positions[i], at = i;

        for (; at > 0 && costs[moved] < costs[positions[at - 1]]; at--)
            positions[at] = positions[at - 1];
        positions[at] = moved;
    }
}

/* By preference, the most preferred last. */
static void sort_positions(const struct place_ask *ask, const struct device *devices,
                           const struct place_policy *policy, size_t *positions, size_t count)
{
    const struct request *requests = ask->requests ? ask->requests : ask->request;
    const size_t request_count = ask->requests ? ask->request_count : 1;
    struct place_policy by_node = *policy;
    float scores[PLACE_MAX_DEVICES];

    for (size_t i = 0; i < count; i++)
        scores[positions[i]] =
            place_score(&devices[positions[i]], requests, request_count, &policy->weights);
    if (ask->request->one_numa_node)
        put_numa_first(by_node.keys);
    place_sort(devices, scores, &by_node, positions, count);
}

/* The vendor chooses: it sees all of its devices, in their order, and which of them fit. What it
 * chose is all that is left to choose from. */
static bool choose_set(const struct walk *walk, const struct place_ask *ask,
                       const struct device *devices, size_t count, size_t *positions,
                       size_t *fitting, struct place_failure *failure)
{
    bool fits[PLACE_MAX_DEVICES] = {false};
    size_t order[PLACE_MAX_DEVICES], ordered = 0;

    for (size_t i = 0; i < *fitting; i++)
        fits[positions[i]] = true;
    *fitting = ask->request->count;
    for (size_t i = 0; i < count; i++) {
        if (devices[i].vendor == walk->vendor)
            order[ordered++] = i;
    }
    sort_positions(ask, devices, walk->step.policy, order, ordered);
    return walk->rules->choose(&walk->step,
                               &(struct place_set){
                                   .devices = devices,
                                   .count = ordered,
                                   .order = order,
                                   .fits = fits,
                               },
                               positions, failure);
}

static void reverse(size_t *positions, size_t count)
{
    for (size_t i = 0; i < count / 2; i++) {
        size_t moved = positions[i];

        positions[i] = positions[count - 1 - i];
        positions[count - 1 - i] = moved;
    }
}

/* Of a row that is sorted by NUMA node: moves the devices of the last node that has enough to the
 * front, as HAMi ends up with that one. Returns how many these are; all, where no node has enough.
 */
static size_t put_enough_first(const struct device *devices, size_t *positions, size_t count,
                               size_t wanted)
{
    for (size_t from, to = count; to > 0; to = from) {
        from = to - 1;
        while (from > 0 &&
               devices[positions[from - 1]].numa_node == devices[positions[to - 1]].numa_node)
            from--;
        if (to - from < wanted)
            continue;
        memmove(positions, positions + from, (to - from) * sizeof(positions[0]));
        return to - from;
    }
    return count;
}

/* Puts what fits in the order of preference, the most preferred first. Returns how many are left to
 * choose from. */
static size_t prefer(const struct walk *walk, const struct place_ask *ask,
                     const struct device *devices, size_t *positions, size_t fitting)
{
    const struct request *request = ask->request;

    if (ask->costs && !request->one_numa_node) {
        sort_by_cost(ask->costs, positions, fitting);
    } else {
        sort_positions(ask, devices, walk->step.policy, positions, fitting);
        reverse(positions, fitting);
    }
    if (!walk->step.policy->connected)
        return fitting;
    if (request->one_numa_node)
        fitting = put_enough_first(devices, positions, fitting, request->count);
    connected_choose(walk->rules, devices, positions, fitting, request->count,
                     walk->step.policy->looks_left);
    return fitting;
}

static void add_pick(const struct walk *walk, size_t position, const struct device_usage *taken,
                     struct place_decision *decision)
{
    decision->picks[decision->pick_count++] = (struct place_pick){position, *taken};
    if (!walk->left)
        return;
    if (walk->left->memory_mib != INT64_MAX)
        walk->left->memory_mib -= (int64_t)(taken->memory_bytes / MIB);
    if (walk->left->cores != INT64_MAX)
        walk->left->cores -= cores_counted(walk->rules, taken);
}

/* Takes one device, or of one that may be given several times as much as is still wanted. Where
 * there is a budget, what was taken before may have used it up. */
static void take_device(const struct walk *walk, const struct device *device, size_t position,
                        struct place_decision *decision)
{
    const enum type_verdict type = type_of(walk->step.request, device);
    struct device_usage taken = wanted_of(walk, device);
    struct device rest;

    if (!device->special && !walk->left) {
        add_pick(walk, position, &taken, decision);
        return;
    }
    rest = *device;
    for (;;) {
        enum place_reason reason = check_device(walk, &rest, type);

        if (reason != PLACE_REASON_COUNT) {
            decision->failure.reasons[reason]++;
            return;
        }
        taken = wanted_of(walk, &rest);
        if (device->special)
            (void)check_special(walk, &rest, &taken);
        add_pick(walk, position, &taken, decision);
        if (!repeats(walk, device) || decision->pick_count == walk->step.request->count)
            return;
        device_charge(&rest, &taken, 1);
    }
}

/* Whether a NUMA node comes after this one in the order of preference, though nothing of it fits.
 * HAMi gives up what it has when it comes to one. */
static bool has_later_node(const struct walk *walk, const struct device *devices, size_t count,
                           int numa_node)
{
    const struct place_policy *policy = walk->step.policy;
    const bool ascending = policy->order == PLACE_BINPACK && policy->keys[0] == PLACE_KEY_NONE;

    for (size_t i = 0; i < count; i++) {
        const struct device *device = &devices[i];

        if (device->vendor == walk->vendor && device->healthy && !device->cordoned &&
            device->numa_node != numa_node && (device->numa_node > numa_node) == ascending &&
            type_of(walk->step.request, device) != TYPE_MISMATCH)
            return true;
    }
    return false;
}

static void give_up_node(const struct walk *walk, struct place_decision *decision)
{
    for (size_t i = 0; walk->left && i < decision->pick_count; i++) {
        const struct device_usage *taken = &decision->picks[i].taken;

        if (walk->left->memory_mib != INT64_MAX)
            walk->left->memory_mib += (int64_t)(taken->memory_bytes / MIB);
        if (walk->left->cores != INT64_MAX)
            walk->left->cores += cores_counted(walk->rules, taken);
    }
    decision->failure.reasons[PLACE_NUMA_NOT_FIT] += (unsigned)decision->pick_count;
    decision->pick_count = 0;
}

/* Goes through a row of devices, the most preferred first, until there are enough. Where all have
 * to be of one NUMA node, what was taken of another is given up. */
static bool take_in_order(const struct walk *walk, const struct device *devices, size_t count,
                          const size_t *positions, size_t fitting, struct place_decision *decision)
{
    const struct request *request = walk->step.request;

    for (size_t i = 0; i < fitting; i++) {
        const struct device *device = &devices[positions[i]];

        if (request->one_numa_node && i > 0 && decision->pick_count &&
            device->numa_node != devices[positions[i - 1]].numa_node)
            give_up_node(walk, decision);
        take_device(walk, device, positions[i], decision);
        if (decision->pick_count == request->count)
            return true;
    }
    if (request->one_numa_node && decision->pick_count &&
        has_later_node(walk, devices, count, devices[positions[fitting - 1]].numa_node))
        give_up_node(walk, decision);
    decision->failure.reasons[PLACE_TOO_FEW_PICKED] = (unsigned)decision->pick_count;
    decision->pick_count = 0;
    return false;
}

/* Evicting pods makes room on devices; it is not what raises a quota. */
static bool is_for_good(const struct walk *walk, const struct device *devices, size_t count,
                        const struct place_failure *failure)
{
    struct walk unbounded = *walk;
    struct place_failure alone = {0};
    size_t positions[PLACE_MAX_DEVICES];

    if (failure->reasons[PLACE_QUOTA])
        return true;
    unbounded.left = NULL;
    (void)find_fitting(&unbounded, devices, count, positions, &alone);
    return alone.for_good;
}

static int refuse(const struct walk *walk, struct place_failure *failure)
{
    if (walk->rules->tell && !failure->reasons[PLACE_QUOTA])
        walk->rules->tell(&walk->step, failure);
    return PLACE_NO_FIT;
}

/* Whether taking one device after the other ends with too few whatever their order: many nodes have
 * some of what is asked for, and each pending pod is told so by each of them. */
static bool is_too_few(const struct walk *walk, const struct device *devices,
                       const size_t *positions, size_t fitting)
{
    if (fitting >= walk->step.request->count || walk->step.request->one_numa_node || walk->left)
        return false;
    for (size_t i = 0; i < fitting; i++) {
        if (repeats(walk, &devices[positions[i]]))
            return false;
    }
    return true;
}

int place_fit(const struct device *devices, size_t count, const struct place_ask *ask,
              const struct place_policy *policy, struct place_decision *ret_decision)
{
    struct walk walk = walk_of(ask, policy);
    struct place_failure *failure = &ret_decision->failure;
    size_t positions[PLACE_MAX_DEVICES], fitting;
    struct place_budget left;

    if (count > PLACE_MAX_DEVICES)
        return -E2BIG;
    if (ask->budget) {
        left = *ask->budget;
        walk.left = &left;
    }

    /* The picks need no clearing: each is written before it is counted. */
    ret_decision->pick_count = 0;
    *failure = (struct place_failure){0};
    /* As the picks use up a budget, what fits depends on the order. */
    if (ask->budget && !walk.rules->choose && !policy->connected)
        fitting = list_all(&walk, devices, count, positions, failure);
    else
        fitting = find_fitting(&walk, devices, count, positions, failure);
    if (ask->request->count > count || !failure->candidates) {
        *failure = (struct place_failure){
            .for_good = true, .too_few_devices = true, .candidates = failure->candidates};
        return PLACE_NO_FIT;
    }
    if (is_too_few(&walk, devices, positions, fitting)) {
        failure->reasons[PLACE_TOO_FEW_PICKED] = (unsigned)fitting;
        return refuse(&walk, failure);
    }
    if (!walk.rules->choose)
        fitting = prefer(&walk, ask, devices, positions, fitting);
    else if (fitting >= ask->request->count &&
             !choose_set(&walk, ask, devices, count, positions, &fitting, failure))
        return refuse(&walk, failure);
    if (take_in_order(&walk, devices, count, positions, fitting, ret_decision))
        return PLACE_FITS;
    if (ask->budget)
        failure->for_good = is_for_good(&walk, devices, count, failure);
    return refuse(&walk, failure);
}

bool fit_may_take(const struct device *devices, size_t count, const struct request *request,
                  const struct place_policy *policy)
{
    const struct place_ask ask = {.request = request};
    const struct walk walk = walk_of(&ask, policy);
    size_t fitting = 0;

    /* Until it is decided: there are enough, or too few are left. */
    for (size_t i = 0; fitting < request->count; i++) {
        if (i == count || (fitting + (count - i) < request->count && !walk.rules->repeats))
            return false;
        if (devices[i].vendor != walk.vendor ||
            check_device(&walk, &devices[i], type_of(request, &devices[i])) != PLACE_REASON_COUNT)
            continue;
        fitting += repeats(&walk, &devices[i]) ? request->count : 1;
    }
    return true;
}

bool fit_want(const struct request *request, const struct device *device,
              struct device_usage *ret_wanted)
{
    const struct place_policy policy = {0};
    const struct place_ask ask = {.request = request};
    const struct walk walk = walk_of(&ask, &policy);

    if (type_of(request, device) == TYPE_MISMATCH)
        return false;
    *ret_wanted = wanted_of(&walk, device);
    return true;
}

void fit_explain(const struct device *devices, size_t count, const struct place_ask *ask,
                 const struct place_policy *policy, struct place_verdict *ret_verdicts)
{
    struct place_budget left = ask->budget ? *ask->budget : (struct place_budget){0};
    struct walk walk = walk_of(ask, policy);

    walk.left = ask->budget ? &left : NULL;
    for (size_t i = 0; i < count; i++) {
        struct place_verdict *verdict = &ret_verdicts[i];

        *verdict = (struct place_verdict){.used = devices[i].used};
        if (devices[i].vendor != walk.vendor)
            continue;
        verdict->is_candidate = true;
        verdict->wanted = wanted_of(&walk, &devices[i]);
        verdict->reason = check_device(&walk, &devices[i], type_of(ask->request, &devices[i]));
    }
}

void place_charge(struct device *devices, const struct place_decision *decision)
{
    for (size_t i = 0; i < decision->pick_count; i++)
        device_charge(&devices[decision->picks[i].device], &decision->picks[i].taken, 1);
}
