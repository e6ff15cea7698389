/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"
#include "place/instance.h"
#include "place/place.h"

/* What looking at the devices one by one needs to know. */
struct walk {
    const struct request *request;
    const struct place_policy *policy;
    unsigned cores; /* as asked for, at most 100 */
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

static bool find_type(const struct request *request, const struct device *device)
{
    if (request->use_types.count && !list_has_part_of(&request->use_types, device->model))
        return false;
    if (request->modes && !strstr(request->modes, device->mode))
        return false;
    return !list_has_part_of(&request->avoid_types, device->model);
}

static bool type_matches(const struct request *request, const struct device *device)
{
    struct type_memo *memo = request->memo;

    if (!request->use_types.count && !request->avoid_types.count && !request->modes)
        return true;
    if (!memo)
        return find_type(request, device);
    if (!memo->known || strcmp(memo->model, device->model) != 0 ||
        strcmp(memo->mode, device->mode) != 0) {
        COPY_TEXT(memo->model, device->model);
        COPY_TEXT(memo->mode, device->mode);
        memo->matches = find_type(request, device);
        memo->known = true;
    }
    return memo->matches;
}

static bool uuid_matches(const struct request *request, const char *uuid)
{
    if (request->use_uuids.count && !text_list_has(&request->use_uuids, uuid))
        return false;
    return !text_list_has(&request->avoid_uuids, uuid);
}

/* What the request means on this card, in MiB. */
static uint64_t memory_wanted(const struct request *request, const struct device *device)
{
    if (request->memory_bytes)
        return (request->memory_bytes + MIB - 1) / MIB;
    return device->memory_bytes / MIB * request->memory_percent / 100;
}

static uint64_t memory_free(const struct device *device)
{
    uint64_t total = device->memory_bytes / MIB;
    uint64_t used = (device->used.memory_bytes + MIB - 1) / MIB;

    return used < total ? total - used : 0;
}

/* The rules, in HAMi's order; PLACE_REASON_COUNT when the device will do. */
static enum place_reason check_device(const struct walk *walk, const struct device *device)
{
    const struct device_usage *used = &device->used;
    unsigned cores_free = used->cores < device->cores ? device->cores - used->cores : 0;
    struct instance instance;

    if (!device->healthy || device->misused)
        return PLACE_CARD_NOT_HEALTHY;
    if (device->cordoned)
        return PLACE_CARD_CORDONED;
    if (!type_matches(walk->request, device))
        return PLACE_CARD_TYPE_MISMATCH;
    if (!uuid_matches(walk->request, device->uuid))
        return PLACE_CARD_UUID_MISMATCH;
    if (used->slots >= device->slots)
        return PLACE_CARD_SLOTS_EXHAUSTED;
    if (walk->policy->mutex && used->slots > 0)
        return PLACE_CARD_EXCLUSIVE;
    if (memory_free(device) < memory_wanted(walk->request, device))
        return PLACE_CARD_INSUFFICIENT_MEMORY;
    if (cores_free < walk->cores)
        return PLACE_CARD_INSUFFICIENT_CORE;
    if (device->cores == DEVICE_CORES && walk->cores == DEVICE_CORES && used->slots > 0)
        return PLACE_CARD_EXCLUSIVE;
    if (device->cores && !cores_free && !walk->cores)
        return PLACE_CARD_CORES_EXHAUSTED;
    if (instance_is_needed(device) &&
        !instance_find(device, memory_wanted(walk->request, device), &instance))
        return PLACE_CARD_NO_INSTANCE;
    return PLACE_REASON_COUNT;
}

/* All but the picks, which are written before they are counted. */
static void clear(struct place_decision *decision)
{
    decision->pick_count = 0;
    decision->too_few_devices = false;
    decision->candidates = 0;
    memset(decision->reasons, 0, sizeof(decision->reasons));
}

/* The devices that will do, in the list's order; reasons are counted of the others. */
static size_t find_fitting(const struct walk *walk, const struct device *devices, size_t count,
                           size_t *ret_positions, struct place_decision *decision)
{
    size_t fitting = 0;

    for (size_t i = 0; i < count; i++) {
        enum place_reason reason;

        if (!text_contains(devices[i].model, walk->request->type))
            continue;
        decision->candidates++;
        reason = check_device(walk, &devices[i]);
        if (reason == PLACE_REASON_COUNT)
            ret_positions[fitting++] = i;
        else
            decision->reasons[reason]++;
    }
    return fitting;
}

/* The device, or the instance of it that will do. */
static struct place_pick pick_of(const struct walk *walk, const struct device *devices,
                                 size_t position)
{
    uint64_t memory_mib = memory_wanted(walk->request, &devices[position]);
    struct place_pick pick = {
        .device = position,
        .group = -1,
        .instance = -1,
        .memory_bytes = memory_mib * MIB,
        .cores = walk->cores,
    };
    struct instance instance;

    if (!instance_is_needed(&devices[position]) ||
        !instance_find(&devices[position], memory_mib, &instance))
        return pick;
    pick.group = instance.group;
    pick.instance = instance.number;
    pick.memory_bytes = instance.memory_mib * MIB;
    pick.cores = instance.cores;
    return pick;
}

/* The most preferred ones, which are last. */
static void pick(const struct walk *walk, const struct device *devices, const size_t *positions,
                 size_t count, struct place_decision *decision)
{
    while (decision->pick_count < walk->request->count)
        decision->picks[decision->pick_count++] = pick_of(walk, devices, positions[--count]);
}

int place_fit(const struct device *devices, size_t count, const struct request *request,
              const struct place_policy *policy, struct place_decision *ret_decision)
{
    struct walk walk = {request, policy, MIN(request->cores, (unsigned)DEVICE_CORES)};
    size_t positions[PLACE_MAX_DEVICES], fitting;
    float scores[PLACE_MAX_DEVICES];

    if (count > PLACE_MAX_DEVICES)
        return -E2BIG;

    clear(ret_decision);
    fitting = find_fitting(&walk, devices, count, positions, ret_decision);
    if (request->count > count || !ret_decision->candidates) {
        memset(ret_decision->reasons, 0, sizeof(ret_decision->reasons));
        ret_decision->too_few_devices = true;
        return PLACE_NO_FIT;
    }
    if (fitting < request->count) {
        ret_decision->reasons[PLACE_TOO_FEW_PICKED] = (unsigned)fitting;
        return PLACE_NO_FIT;
    }

    for (size_t i = 0; i < fitting; i++)
        scores[positions[i]] = place_score(&devices[positions[i]], request, 1);
    place_sort(devices, scores, policy->order, positions, fitting);
    pick(&walk, devices, positions, fitting, ret_decision);
    return PLACE_FITS;
}

void place_charge(struct device *devices, const struct place_decision *decision)
{
    for (size_t i = 0; i < decision->pick_count; i++) {
        const struct place_pick *pick = &decision->picks[i];
        struct device_usage *used = &devices[pick->device].used;

        used->slots++;
        used->cores += pick->cores;
        used->memory_bytes += pick->memory_bytes;
        if (pick->instance >= 0)
            (void)instance_use(&devices[pick->device], pick->group, pick->instance, 1);
    }
}
