/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/nvidia/mig.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "model/codec_number.h"
#include "vendor/nvidia/placements.h"

struct mig_instance {
    unsigned part;
    uint32_t memory_mib, cores;
};

_Static_assert(MIG_MAX_GROUPS *MIG_MAX_INSTANCES == DEVICE_PARTS, "each instance is a part");

struct nvidia_facts *nvidia_facts_give(struct device *device, size_t profile_count,
                                       size_t score_count, struct arena *arena)
{
    const size_t size = sizeof(struct nvidia_facts) + profile_count * sizeof(struct mig_profile) +
                        score_count * sizeof(int32_t);
    struct nvidia_facts *facts = arena_alloc(arena, size);

    if (!facts)
        return NULL;
    facts->profile_count = (uint32_t)profile_count;
    facts->score_count = (uint32_t)score_count;
    device->facts = facts;
    device->facts_size = (uint32_t)size;
    return facts;
}

/* Geometries */

static const struct mig_geometry *geometry_of(const struct device *device)
{
    const struct nvidia_facts *facts = device->facts;

    return facts ? facts->geometry : NULL;
}

static uint64_t parts_of_group(unsigned group)
{
    return UINT64_C(0xff) << group * MIG_MAX_INSTANCES;
}

static bool find_in_group(const struct device *device, unsigned group, uint64_t memory_mib,
                          uint64_t barred, struct mig_instance *ret_instance)
{
    const struct mig_geometry *geometry = geometry_of(device);
    const struct mig_group *kinds = &geometry->groups[group];
    unsigned number = 0;

    for (size_t i = 0; i < kinds->kind_count; i++) {
        const struct mig_kind *kind = &kinds->kinds[i];

        for (size_t k = 0; k < kind->count && number < MIG_MAX_INSTANCES; k++, number++) {
            const unsigned part = group * MIG_MAX_INSTANCES + number;

            if (kind->memory_mib < memory_mib || (device->used.parts | barred) >> part & 1)
                continue;
            *ret_instance = (struct mig_instance){part, kind->memory_mib, kind->cores};
            return true;
        }
    }
    return false;
}

/* The first free instance with so much memory, of the group in use, or of the first group that has
 * one. */
static bool find_instance(const struct device *device, uint64_t memory_mib, uint64_t barred,
                          struct mig_instance *ret_instance)
{
    const struct mig_geometry *geometry = geometry_of(device);

    for (unsigned i = 0; geometry && i < geometry->group_count; i++) {
        if (device->used.parts & ~parts_of_group(i))
            continue; /* the card is cut in another way */
        if (find_in_group(device, i, memory_mib, barred, ret_instance))
            return true;
    }
    return false;
}

static bool has_profiles(const struct device *device)
{
    const struct nvidia_facts *facts = device->facts;

    return facts && facts->profile_count;
}

static enum place_reason mig_take(const struct place_step *step, const struct device *device,
                                  struct device_usage *taken)
{
    const struct nvidia_facts *facts = device->facts;
    const uint64_t mib = taken->memory_bytes / MIB;
    struct mig_instance instance;

    if (has_profiles(device))
        return placements_take(facts, device->used.parts, step->request->memory_percent > 0, taken)
                   ? PLACE_REASON_COUNT
                   : PLACE_CARD_CUSTOM_RULE;
    if (!find_instance(device, mib, facts ? facts->barred : 0, &instance))
        return find_instance(device, mib, 0, &instance) ? PLACE_CARD_PART_BARRED
                                                        : PLACE_CARD_CUSTOM_RULE;
    taken->memory_bytes = instance.memory_mib * MIB;
    taken->cores = instance.cores;
    taken->parts = UINT64_C(1) << instance.part;
    return PLACE_REASON_COUNT;
}

static bool mig_is_usable(const struct device *device)
{
    return geometry_of(device) || has_profiles(device);
}

int mig_instance_parse(const char *uuid, int *ret_group, int *ret_instance)
{
    const char *open = strchr(uuid, '['), *close = open ? strchr(open, ']') : NULL;
    const char *rest = open ? open + 1 : NULL, *group, *instance;
    size_t group_len, instance_len;
    int64_t group_value, instance_value;

    if (!close || !codec_piece(&rest, close, '-', &group, &group_len) ||
        !codec_piece(&rest, close, '-', &instance, &instance_len))
        return -EINVAL;
    if (!codec_number(group, group_len, INT32_MIN, INT32_MAX, &group_value) ||
        !codec_number(instance, instance_len, INT32_MIN, INT32_MAX, &instance_value))
        return -EINVAL;
    *ret_group = (int)group_value;
    *ret_instance = (int)instance_value;
    return 0;
}

/* What has its card's name has the parts that placements_recall() found. */
static void mig_count(const struct container_device *granted, struct device_usage *usage)
{
    int group, number;

    if (!strchr(granted->uuid, '['))
        return;
    usage->parts = 0;
    if (mig_instance_parse(granted->uuid, &group, &number) < 0 || group < 0 ||
        group >= MIG_MAX_GROUPS || number < 0 || number >= MIG_MAX_INSTANCES)
        return;
    usage->parts = UINT64_C(1) << (group * MIG_MAX_INSTANCES + number);
}

/* Only a card in MIG mode is used in instances, all of them told in its own way, and in no other
 * way. */
static bool mig_is_misuse(const struct device *device, const char *name,
                          const struct device_usage *usage)
{
    const bool is_named = strchr(name, '[') != NULL;

    if (!device->special)
        return is_named || usage->parts;
    return !usage->parts || is_named == has_profiles(device);
}

static const char *mig_name(const struct device *device, const struct device_usage *taken,
                            struct arena *arena)
{
    const int part = __builtin_ctzll(taken->parts);

    if (has_profiles(device))
        return arena_strdup(arena, device->uuid);
    return arena_printf(arena, "%s[%d-%d]", device->uuid, part / MIG_MAX_INSTANCES,
                        part % MIG_MAX_INSTANCES);
}

static int32_t score_of_pair(const struct device *from, const struct device *to)
{
    const struct nvidia_facts *facts = from->facts, *others = to->facts;

    if (!facts || !others || others->number >= facts->score_count)
        return 0;
    return nvidia_scores(facts)[others->number];
}

const struct place_rules nvidia_rules = {
    .take = mig_take,
    .repeats = true,
    .link = score_of_pair,
    .is_usable = mig_is_usable,
    .count = mig_count,
    .is_misuse = mig_is_misuse,
    .name = mig_name,
};
