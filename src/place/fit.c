/* SPDX-License-Identifier: Apache-2.0 */
#include "place/fit.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"
#include "place/mig.h"
#include "place/place.h"

/* A request on its way over the devices. */
struct walk {
    const struct request *request;
    const struct place_policy *policy;
    unsigned cores;      /* as asked for, at most 100 */
    uint64_t memory_mib; /* 0: a percentage is asked for */
    bool selects;        /* by uuid */
};

static bool text_contains(const char *text, const char *part)
{
    size_t len = strlen(part);

    for (; *text; text++) {
        if (strncasecmp(text, part, len) == 0)
            return true;
    }
    return len == 0;
}

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
    if (!text_contains(device->model, request->type))
        return TYPE_OTHER;
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
    return device->memory_bytes / MIB * walk->request->memory_percent / 100;
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
    struct mig_instance instance;

    if (!device->healthy || device->misused)
        return PLACE_CARD_NOT_HEALTHY;
    if (device->cordoned)
        return PLACE_CARD_CORDONED;
    if (type == TYPE_MISMATCH)
        return PLACE_CARD_TYPE_MISMATCH;
    if (walk->selects && !uuid_matches(walk->request, device->uuid))
        return PLACE_CARD_UUID_MISMATCH;
    if (used->tasks >= device->max_tasks)
        return PLACE_CARD_TASKS_EXHAUSTED;
    if (walk->policy->mutex && used->tasks > 0)
        return PLACE_CARD_EXCLUSIVE;
    if (device_free_mib(device) < memory_wanted(walk, device))
        return PLACE_CARD_INSUFFICIENT_MEMORY;
    if (cores_free < walk->cores)
        return PLACE_CARD_INSUFFICIENT_CORE;
    if (device->cores == DEVICE_CORES && walk->cores == DEVICE_CORES && used->tasks > 0)
        return PLACE_CARD_EXCLUSIVE;
    if (device->cores && !cores_free && !walk->cores)
        return PLACE_CARD_CORES_EXHAUSTED;
    if (mig_is_on(device) && !mig_instance_find(device, memory_wanted(walk, device), &instance))
        return PLACE_CARD_NO_INSTANCE;
    return PLACE_REASON_COUNT;
}

/* Whether a device that was passed over would fit if it were unused. */
static bool is_only_full(const struct walk *walk, const struct device *device,
                         enum place_reason reason)
{
    if (reason == PLACE_CARD_CORDONED || reason == PLACE_CARD_TYPE_MISMATCH ||
        reason == PLACE_CARD_UUID_MISMATCH)
        return false;
    return device->healthy && device->max_tasks && walk->cores <= device->cores &&
           memory_wanted(walk, device) <= device->memory_bytes / MIB;
}

/* The devices that fit, in the list's order; of the others the reasons are counted. */
static size_t find_fitting(const struct walk *walk, const struct device *devices, size_t count,
                           size_t *ret_positions, struct place_failure *failure)
{
    size_t fitting = 0, full = 0;

    for (size_t i = 0; i < count; i++) {
        enum type_verdict type = type_of(walk->request, &devices[i]);
        enum place_reason reason;

        if (type == TYPE_OTHER)
            continue;
        failure->candidates++;
        reason = check_device(walk, &devices[i], type);
        if (reason == PLACE_REASON_COUNT) {
            ret_positions[fitting++] = i;
            continue;
        }
        failure->reasons[reason]++;
        full += is_only_full(walk, &devices[i], reason);
    }
    failure->for_good = fitting + full < walk->request->count;
    return fitting;
}

/* The device, or in MIG mode an instance of it. */
static struct place_pick pick_of(const struct walk *walk, const struct device *devices,
                                 size_t position)
{
    uint64_t memory_mib = memory_wanted(walk, &devices[position]);
    struct place_pick pick = {
        .device = position,
        .mig_group = -1,
        .mig_instance = -1,
        .memory_bytes = memory_mib * MIB,
        .cores = walk->cores,
    };
    struct mig_instance instance;

    if (!mig_is_on(&devices[position]) ||
        !mig_instance_find(&devices[position], memory_mib, &instance))
        return pick;
    pick.mig_group = instance.group;
    pick.mig_instance = instance.number;
    pick.memory_bytes = instance.memory_mib * MIB;
    pick.cores = instance.cores;
    return pick;
}

/* Takes the most preferred devices, which are last. */
static void take_picks(const struct walk *walk, const struct device *devices,
                       const size_t *positions, size_t count, struct place_decision *decision)
{
    while (decision->pick_count < walk->request->count)
        decision->picks[decision->pick_count++] = pick_of(walk, devices, positions[--count]);
}

static struct walk walk_of(const struct request *request, const struct place_policy *policy)
{
    return (struct walk){
        .request = request,
        .policy = policy,
        .cores = MIN(request->cores, (unsigned)DEVICE_CORES),
        .memory_mib = (request->memory_bytes + MIB - 1) / MIB,
        .selects = request->use_uuids.count || request->avoid_uuids.count,
    };
}

int place_fit(const struct device *devices, size_t count, const struct request *request,
              const struct place_policy *policy, struct place_decision *ret_decision)
{
    const struct walk walk = walk_of(request, policy);
    struct place_failure *failure = &ret_decision->failure;
    size_t positions[PLACE_MAX_DEVICES], fitting;
    float scores[PLACE_MAX_DEVICES];

    if (count > PLACE_MAX_DEVICES)
        return -E2BIG;

    /* The picks need no clearing: each is written before it is counted. */
    ret_decision->pick_count = 0;
    *failure = (struct place_failure){0};
    fitting = find_fitting(&walk, devices, count, positions, failure);
    if (request->count > count || !failure->candidates) {
        *failure = (struct place_failure){
            .for_good = true, .too_few_devices = true, .candidates = failure->candidates};
        return PLACE_NO_FIT;
    }
    if (fitting < request->count) {
        failure->reasons[PLACE_TOO_FEW_PICKED] = (unsigned)fitting;
        return PLACE_NO_FIT;
    }

    for (size_t i = 0; i < fitting; i++)
        scores[positions[i]] = place_score(&devices[positions[i]], request, 1);
    place_sort(devices, scores, policy->order, positions, fitting);
    take_picks(&walk, devices, positions, fitting, ret_decision);
    return PLACE_FITS;
}

bool fit_may_take(const struct device *devices, size_t count, const struct request *request,
                  const struct place_policy *policy)
{
    const struct walk walk = walk_of(request, policy);
    size_t fitting = 0;

    /* Until it is decided: there are enough, or too few are left. */
    for (size_t i = 0; fitting < request->count; i++) {
        enum type_verdict type;

        if (fitting + (count - i) < request->count)
            return false;
        type = type_of(request, &devices[i]);
        fitting +=
            type != TYPE_OTHER && check_device(&walk, &devices[i], type) == PLACE_REASON_COUNT;
    }
    return true;
}

void place_charge(struct device *devices, const struct place_decision *decision)
{
    for (size_t i = 0; i < decision->pick_count; i++) {
        const struct place_pick *pick = &decision->picks[i];
        struct device_usage *used = &devices[pick->device].used;

        used->tasks++;
        used->cores += pick->cores;
        used->memory_bytes += pick->memory_bytes;
        if (pick->mig_instance >= 0)
            (void)mig_instance_use(&devices[pick->device], pick->mig_group, pick->mig_instance, 1);
    }
}
