/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/nvidia/placements.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "model/json.h"

_Static_assert(MIG_SLICES *MIG_SLICES == DEVICE_PARTS, "each place is a part");

/* Places as parts */

static unsigned part_of(unsigned start, unsigned size)
{
    return start * MIG_SLICES + size - 1;
}

static unsigned start_of(unsigned part)
{
    return part / MIG_SLICES;
}

static unsigned size_of(unsigned part)
{
    return part % MIG_SLICES + 1;
}

/* A bit for each slice of a place. */
static unsigned slices_of(unsigned part)
{
    return ((1u << size_of(part)) - 1) << start_of(part);
}

static unsigned slices_of_all(uint64_t parts)
{
    unsigned slices = 0;

    for (; parts; parts &= parts - 1)
        slices |= slices_of((unsigned)__builtin_ctzll(parts));
    return slices;
}

/* Profiles */

static bool read_amount(yyjson_val *object, const char *key, uint64_t least, uint64_t most,
                        uint32_t *ret_amount)
{
    yyjson_val *value = yyjson_obj_get(object, key);
    const uint64_t amount = yyjson_get_uint(value);

    *ret_amount = (uint32_t)amount;
    return (!value || yyjson_is_uint(value)) && amount >= least && amount <= most;
}

static uint64_t read_places(yyjson_val *list)
{
    yyjson_val *place;
    size_t at, max;
    uint64_t places = 0;

    yyjson_arr_foreach(list, at, max, place)
    {
        uint32_t start, size;

        if (read_amount(place, "start", 0, MIG_SLICES - 1, &start) &&
            read_amount(place, "size", 1, MIG_SLICES - start, &size))
            places |= UINT64_C(1) << part_of(start, size);
    }
    return places;
}

static bool read_profile(yyjson_val *object, struct mig_profile *profile)
{
    const char *name = yyjson_get_str(yyjson_obj_get(object, "name"));

    if (!name || !*name || strlen(name) >= sizeof(profile->name))
        return false;
    *profile = (struct mig_profile){.places = read_places(yyjson_obj_get(object, "placements"))};
    COPY_TEXT(profile->name, name);
    return read_amount(object, "memoryMB", 1, DEVICE_MAX_MIB, &profile->memory_mib) &&
           read_amount(object, "core", 0, DEVICE_CORES, &profile->cores) &&
           read_amount(object, "sliceCount", 0, MIG_SLICES, &profile->slices);
}

static bool is_smaller(const struct mig_profile *a, const struct mig_profile *b)
{
    return a->memory_mib != b->memory_mib ? a->memory_mib < b->memory_mib : a->slices < b->slices;
}

/* Behind those that are as large. */
static void insert(struct mig_profile *profiles, size_t count, const struct mig_profile *profile)
{
    size_t at = count;

    for (; at > 0 && is_smaller(profile, &profiles[at - 1]); at--)
        profiles[at] = profiles[at - 1];
    profiles[at] = *profile;
}

int placements_read_profiles(const char *profiles, struct arena *arena,
                             struct mig_profile ret_profiles[PLACEMENTS_PROFILES_MAX])
{
    yyjson_val *list, *object;
    size_t at, max;
    int count = 0;
    int r = json_parse(profiles, strlen(profiles), arena, &list, NULL);

    if (r < 0)
        return r == -ENOMEM ? r : 0;
    yyjson_arr_foreach(list, at, max, object)
    {
        struct mig_profile profile;

        if (count < PLACEMENTS_PROFILES_MAX && read_profile(object, &profile))
            insert(ret_profiles, (size_t)count++, &profile);
    }
    return count;
}

/* Choosing */

/* HAMi keeps the beginning of a card free for profiles that can lie nowhere else. */
static bool prefers_high(const char *name)
{
    return strncmp(name, "1g.", 3) == 0 || strncmp(name, "3g.", 3) == 0;
}

/* False: all its places have a slice that is in use. */
static bool find_place(const struct mig_profile *profile, unsigned used_slices, unsigned *ret_part)
{
    bool found = false;

    for (uint64_t left = profile->places; left; left &= left - 1) {
        const unsigned part = (unsigned)__builtin_ctzll(left);

        if (slices_of(part) & used_slices)
            continue;
        *ret_part = part;
        found = true;
        if (!prefers_high(profile->name))
            break;
    }
    return found;
}

/* What all of the card is, by its profiles: the largest of them, if it leaves no place beside it.
 */
static uint64_t whole_mib(const struct nvidia_facts *facts)
{
    const struct mig_profile *largest = &facts->profiles[facts->profile_count - 1];
    unsigned slices = 0;

    for (size_t i = 0; i < facts->profile_count; i++)
        slices |= slices_of_all(facts->profiles[i].places);
    for (uint64_t left = largest->places; left; left &= left - 1) {
        if (slices_of((unsigned)__builtin_ctzll(left)) == slices)
            return largest->memory_mib;
    }
    return UINT64_MAX;
}

bool placements_take(const struct nvidia_facts *facts, uint64_t used_parts, bool is_percentage,
                     struct device_usage *taken)
{
    const unsigned used_slices = slices_of_all(used_parts);
    uint64_t mib = taken->memory_bytes / MIB;

    if (is_percentage)
        mib = MIN(mib, whole_mib(facts));
    for (size_t i = 0; i < facts->profile_count; i++) {
        const struct mig_profile *profile = &facts->profiles[i];
        unsigned part;

        if (profile->memory_mib < mib || !find_place(profile, used_slices, &part))
            continue;
        taken->memory_bytes = profile->memory_mib * MIB;
        taken->cores = profile->cores;
        taken->parts = UINT64_C(1) << part;
        return true;
    }
    return false;
}

/* The annotation */

static size_t count_devices(const struct pod_devices *devices)
{
    size_t count = 0;

    for (size_t i = 0; i < devices->count; i++)
        count += devices->containers[i].count;
    return count;
}

static void recall_one(const struct mig_allocation *allocation, struct pod_devices *devices)
{
    struct container_device *device;

    if (allocation->container >= devices->count ||
        allocation->device >= devices->containers[allocation->container].count)
        return;
    device = &devices->containers[allocation->container].items[allocation->device];
    if (strcmp(device->uuid, allocation->gpu_uuid) == 0)
        device->parts = UINT64_C(1) << part_of(allocation->start, allocation->size);
}

int placements_recall(const struct text_pairs *annotations, struct arena *arena,
                      struct pod_devices *devices)
{
    const char *text = text_pairs_get(annotations, MIG_ALLOCATIONS_KEY);
    const size_t max = count_devices(devices);
    struct mig_allocation *allocations;
    int count;

    if (!text || !*text)
        return 0;
    allocations = ARENA_ARRAY(arena, struct mig_allocation, max);
    if (!allocations)
        return -ENOMEM;
    count = mig_allocations_decode(text, strlen(text), allocations, max);
    for (int i = 0; i < count; i++)
        recall_one(&allocations[i], devices);
    return 0;
}

/* The profile that was taken; NULL: what was taken is no instance, or one of a geometry. */
static const struct mig_profile *profile_of(const struct nvidia_facts *facts,
                                            const struct container_device *given)
{
    for (size_t i = 0; facts && i < facts->profile_count; i++) {
        const struct mig_profile *profile = &facts->profiles[i];

        if (profile->memory_mib == (uint32_t)given->memory_mib &&
            profile->cores == (uint32_t)given->cores && profile->places & given->parts)
            return profile;
    }
    return NULL;
}

static void add_allocation(const struct mig_profile *profile, const struct container_device *given,
                           size_t container, size_t number, struct strbuf *text)
{
    const unsigned part = (unsigned)__builtin_ctzll(given->parts);
    struct mig_allocation allocation = {
        .container = (unsigned)container,
        .device = (unsigned)number,
        .start = start_of(part),
        .size = size_of(part),
    };

    COPY_TEXT(allocation.gpu_uuid, given->uuid);
    COPY_TEXT(allocation.profile, profile->name);
    mig_allocations_add(text, &allocation);
}

int placements_annotate(const struct vendor_instance *instance, const struct vendor_grant *grant,
                        struct vendor_annotations *annotations)
{
    struct strbuf text = STRBUF_IN(annotations->arena, MIG_ALLOCATIONS_TEXT_MAX);

    for (size_t i = 0; i < grant->given->count; i++) {
        const struct container_devices *devices = &grant->given->containers[i];

        for (size_t k = 0; k < devices->count; k++) {
            const struct device *device = place_find_device(grant->devices, grant->device_count,
                                                            &instance->id, devices->items[k].uuid);
            const struct mig_profile *profile =
                profile_of(device ? device->facts : NULL, &devices->items[k]);

            if (profile)
                add_allocation(profile, &devices->items[k], i, k, &text);
        }
    }
    if (!text.len && !text.failed)
        return 0;
    strbuf_add(&text, "]");
    return vendor_annotate_add(annotations, MIG_ALLOCATIONS_KEY,
                               text.failed ? NULL : strbuf_text(&text));
}
