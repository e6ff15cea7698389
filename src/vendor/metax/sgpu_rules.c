/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How shares of MetaX's cards are placed. A card is shared by one policy, and by pods of a class or
 * by pods without one. What pods are on a card is counted as parts of it.
 */

#include <string.h>

#include "base/util.h"
#include "vendor/metax/metax.h"

enum part {
    PART_ONLINE,
    PART_OFFLINE,
    PART_QOS,                                     /* the first of three */
    PART_TOPOLOGY = PART_QOS + METAX_BURST_SHARE, /* the pod's nodes are scored by their links */
};

enum {
    PAIR_SCORE = 10, /* of two cards of a zone */
    NODE_WEIGHT = 10000,
};

static uint64_t bit(unsigned part)
{
    return UINT64_C(1) << part;
}

uint64_t metax_parts(const struct metax_wishes *wishes, unsigned cores)
{
    uint64_t parts = wishes->topology ? bit(PART_TOPOLOGY) : 0;

    if (wishes->app_class == METAX_ONLINE)
        return parts | bit(PART_ONLINE);
    if (wishes->app_class == METAX_OFFLINE)
        parts |= bit(PART_OFFLINE);
    if (wishes->qos >= METAX_BEST_EFFORT && wishes->qos <= METAX_BURST_SHARE &&
        cores != DEVICE_CORES)
        parts |= bit(PART_QOS + wishes->qos - METAX_BEST_EFFORT);
    return parts;
}

static const struct metax_facts *facts_of(const struct device *device)
{
    static const struct metax_facts none = {0};

    return device && device->facts ? device->facts : &none;
}

/* Which cards. */

static void want(const struct place_step *step, const struct device *device,
                 struct device_usage *ret_wanted)
{
    const struct metax_wishes *wishes = step->request->wishes;

    (void)device;
    if (wishes->app_class == METAX_ONLINE)
        ret_wanted->cores = 0;
    ret_wanted->parts = metax_parts(wishes, ret_wanted->cores);
}

static bool suits_class(const struct metax_wishes *wishes, const struct device *device)
{
    const bool has_class = device->part_users[PART_ONLINE] || device->part_users[PART_OFFLINE];

    if (!device->used.tasks)
        return true;
    if (has_class != (wishes->app_class != METAX_NO_CLASS))
        return false;
    return wishes->app_class != METAX_OFFLINE || !device->part_users[PART_ONLINE];
}

static bool is_given(const struct place_step *step, const struct device *device)
{
    for (size_t i = 0; step->given && i < step->given->count; i++) {
        const struct container_devices *container = &step->given->containers[i];

        for (size_t k = 0; k < container->count; k++) {
            if (strcmp(container->items[k].uuid, device->uuid) == 0)
                return true;
        }
    }
    return false;
}

/* Pods of another policy may be on a card before its agent says so. */
static bool has_other_policy(const struct device *device, enum metax_qos qos)
{
    for (unsigned i = METAX_BEST_EFFORT; i <= METAX_BURST_SHARE; i++) {
        if (i != qos && device->part_users[PART_QOS + i - METAX_BEST_EFFORT])
            return true;
    }
    return false;
}

static bool suits_policy(const struct place_step *step, const struct device *device)
{
    const struct metax_wishes *wishes = step->request->wishes;
    const enum metax_qos qos = facts_of(device)->qos;

    if (!device->used.tasks || step->request->cores == DEVICE_CORES ||
        wishes->app_class == METAX_ONLINE)
        return true;
    if (has_other_policy(device, wishes->qos))
        return false;
    return qos == METAX_NO_QOS || qos == wishes->qos || is_given(step, device);
}

static enum place_reason suits(const struct place_step *step, const struct device *device)
{
    if (!suits_class(step->request->wishes, device))
        return PLACE_CARD_APP_CLASS_MISMATCH;
    return suits_policy(step, device) ? PLACE_REASON_COUNT : PLACE_CARD_QOS_MISMATCH;
}

/* Pods of class online take no compute, so that a card without any is as good. */
static enum place_reason take(const struct place_step *step, const struct device *device,
                              struct device_usage *taken)
{
    const struct metax_wishes *wishes = step->request->wishes;

    if (wishes->app_class != METAX_ONLINE && device->cores && !device_free_cores(device) &&
        !taken->cores)
        return PLACE_CARD_CORES_EXHAUSTED;
    return PLACE_REASON_COUNT;
}

/* Which set of them. */

/* How much a pod of class online is disturbed on a card: most by pods of its class; the cards where
 * only pods of class offline are come last of all. */
static unsigned disturbance(const struct device *device)
{
    const unsigned online = device->part_users[PART_ONLINE];
    const unsigned offline = device->part_users[PART_OFFLINE];

    return (unsigned)(offline && !online) << 16 | online << 8 | offline;
}

static void sort_by_disturbance(const struct place_set *set, size_t *positions, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        const size_t moved = positions[i];
        size_t k = i;

        for (; k > 0 &&
               disturbance(&set->devices[positions[k - 1]]) > disturbance(&set->devices[moved]);
             k--)
            positions[k] = positions[k - 1];
        positions[k] = moved;
    }
}

static size_t count_zone(const struct place_set *set, const size_t *positions, size_t count,
                         int32_t zone)
{
    size_t found = 0;

    for (size_t i = 0; i < count; i++)
        found += facts_of(&set->devices[positions[i]])->zone == zone;
    return found;
}

/* Appends the cards of a zone. */
static size_t add_zone(const struct place_set *set, const size_t *positions, size_t count,
                       int32_t zone, size_t *ret_sorted, size_t sorted)
{
    for (size_t i = 0; i < count; i++) {
        if (facts_of(&set->devices[positions[i]])->zone == zone)
            ret_sorted[sorted++] = positions[i];
    }
    return sorted;
}

/* The smallest zone with at least so many cards that is not among the sorted ones; 0: none. */
static int32_t find_zone(const struct place_set *set, const size_t *positions, size_t count,
                         size_t least, const size_t *sorted, size_t sorted_count)
{
    size_t smallest = SIZE_MAX;
    int32_t zone = 0;

    for (size_t i = 0; i < count; i++) {
        const int32_t other = facts_of(&set->devices[positions[i]])->zone;
        const size_t size = count_zone(set, positions, count, other);

        if (other <= 0 || size < least || size >= smallest ||
            count_zone(set, sorted, sorted_count, other))
            continue;
        smallest = size;
        zone = other;
    }
    return zone;
}

/* The smallest zone that holds them all first; else zone after zone, and those of none at last. */
static void sort_by_zone(const struct place_set *set, size_t wanted, size_t *positions,
                         size_t count)
{
    size_t sorted[PLACE_MAX_DEVICES] = {0}, done = 0;
    int32_t zone = find_zone(set, positions, count, wanted, sorted, 0);

    if (!zone)
        zone = find_zone(set, positions, count, 1, sorted, 0);
    for (; zone; zone = find_zone(set, positions, count, 1, sorted, done))
        done = add_zone(set, positions, count, zone, sorted, done);
    for (size_t i = 0; i < count; i++) {
        if (facts_of(&set->devices[positions[i]])->zone <= 0)
            sorted[done++] = positions[i];
    }
    memcpy(positions, sorted, count * sizeof(sorted[0]));
}

static bool choose(const struct place_step *step, const struct place_set *set, size_t *ret_chosen,
                   struct place_failure *failure)
{
    const struct metax_wishes *wishes = step->request->wishes;
    size_t fitting[PLACE_MAX_DEVICES], count = 0;

    (void)failure;
    for (size_t i = set->count; i-- > 0;) {
        if (set->fits[set->order[i]])
            fitting[count++] = set->order[i];
    }
    if (count > step->request->count && wishes->app_class == METAX_ONLINE)
        sort_by_disturbance(set, fitting, count);
    else if (count > step->request->count && wishes->app_class == METAX_NO_CLASS &&
             step->request->cores == DEVICE_CORES)
        sort_by_zone(set, step->request->count, fitting, count);
    memcpy(ret_chosen, fitting, step->request->count * sizeof(fitting[0]));
    return true;
}

/* Which node. */

static const struct device *device_of(const struct place_fitted *fitted,
                                      const struct container_device *granted)
{
    return place_find_device(fitted->devices, fitted->device_count, fitted->vendor, granted->uuid);
}

static int disturbance_of(const struct device *device)
{
    const int online = device->part_users[PART_ONLINE];
    const int offline = device->part_users[PART_OFFLINE];

    return offline && !online ? 100 * offline : 20 * online + 2 * offline;
}

static int score_online(const struct place_fitted *fitted)
{
    int score = 0;

    for (size_t i = 0; i < fitted->given->count; i++) {
        for (size_t k = 0; k < fitted->given->containers[i].count; k++) {
            const struct device *device = device_of(fitted, &fitted->given->containers[i].items[k]);

            score -= device ? disturbance_of(device) : 0;
        }
    }
    return score;
}

static int score_pairs(const struct device *const *devices, size_t count)
{
    int score = 0;

    for (size_t i = 0; i < count; i++) {
        for (size_t k = i + 1; k < count; k++) {
            const int32_t zone = facts_of(devices[i])->zone;

            score += zone > 0 && zone == facts_of(devices[k])->zone ? PAIR_SCORE : 0;
        }
    }
    return score;
}

static bool is_exclusive(const struct place_fitted *fitted, const struct device *device)
{
    for (size_t i = 0; i < fitted->given->count; i++) {
        for (size_t k = 0; k < fitted->given->containers[i].count; k++) {
            const struct container_device *granted = &fitted->given->containers[i].items[k];

            if (granted->cores == DEVICE_CORES && device_of(fitted, granted) == device)
                return true;
        }
    }
    return false;
}

/* How well the cards that are taken whole are connected, less the connections that they break. */
static int score_links(const struct place_fitted *fitted)
{
    const struct device *idle[PLACE_MAX_DEVICES], *taken[PLACE_MAX_DEVICES];
    const struct device *rest[PLACE_MAX_DEVICES];
    size_t idle_count = 0, taken_count = 0, rest_count = 0;
    int links;

    for (size_t i = 0; i < fitted->device_count && idle_count < PLACE_MAX_DEVICES; i++) {
        const struct device *device = &fitted->devices[i];

        if (device->vendor != fitted->vendor)
            continue;
        if (is_exclusive(fitted, device))
            taken[taken_count++] = device;
        else if (!device->used.tasks)
            rest[rest_count++] = device;
        if (!device->used.tasks)
            idle[idle_count++] = device;
    }
    links = score_pairs(taken, taken_count);
    return 10 * links - (score_pairs(idle, idle_count) - links - score_pairs(rest, rest_count));
}

/* All parts of the pod's shares; and whether one is a whole card. */
static uint64_t parts_of(const struct place_fitted *fitted, bool *ret_exclusive)
{
    uint64_t parts = 0;

    *ret_exclusive = false;
    for (size_t i = 0; i < fitted->given->count; i++) {
        for (size_t k = 0; k < fitted->given->containers[i].count; k++) {
            const struct container_device *granted = &fitted->given->containers[i].items[k];

            parts |= granted->parts;
            *ret_exclusive |= granted->cores == DEVICE_CORES;
        }
    }
    return parts;
}

/* In either order of nodes the best connected one is preferred, before all other scores. */
static float score_node(const struct place_fitted *fitted)
{
    bool exclusive;
    const uint64_t parts = parts_of(fitted, &exclusive);
    int score = 0;

    if (parts & bit(PART_ONLINE))
        score = score_online(fitted);
    else if (exclusive && parts & bit(PART_TOPOLOGY))
        score = score_links(fitted);
    return (float)score * (fitted->node_order == PLACE_SPREAD ? -NODE_WEIGHT : NODE_WEIGHT);
}

const struct place_rules metax_sgpu_rules = {
    .want = want,
    .suits = suits,
    .waived = 1u << PLACE_CARD_CORES_EXHAUSTED,
    .take = take,
    .choose = choose,
    .score_node = score_node,
};
