/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

static uint64_t apart(uint64_t one, uint64_t other)
{
    return one > other ? one - other : other - one;
}

int layout_find_profile(const char *name, uint64_t memory_mib, const struct nvml_profile *profiles,
                        size_t count)
{
    unsigned long slices = strtoul(name, NULL, 10);
    int found = -1;

    for (size_t i = 0; i < count; i++) {
        if (strcmp(profiles[i].name, name) == 0)
            return (int)i;
    }
    for (size_t i = 0; i < count; i++) {
        if (strchr(profiles[i].name, '+') || (slices && profiles[i].slices != slices))
            continue;
        if (found < 0 || apart(profiles[i].memory_mib, memory_mib) <
                             apart(profiles[found].memory_mib, memory_mib))
            found = (int)i;
    }
    return found;
}

struct search {
    const struct nvml_profile *profiles;
    struct layout_place *places;
    size_t count;
    size_t order[MIG_MAX_INSTANCES]; /* the large ones first */
};

static bool place_rest(const struct search *search, size_t at, unsigned taken)
{
    const struct nvml_profile *profile;
    struct layout_place *place;

    if (at == search->count)
        return true;
    place = &search->places[search->order[at]];
    profile = &search->profiles[place->profile];
    for (size_t i = 0; i < profile->start_count; i++) {
        unsigned slices = ((1u << profile->size) - 1) << profile->starts[i];

        place->start = profile->starts[i];
        if (!(slices & taken) && place_rest(search, at + 1, taken | slices))
            return true;
    }
    return false;
}

static void order_by_size(struct search *search)
{
    size_t count = 0;

    for (unsigned size = NVML_SLICES; size > 0; size--) {
        for (size_t i = 0; i < search->count; i++) {
            if (search->profiles[search->places[i].profile].size == size)
                search->order[count++] = i;
        }
    }
    search->count = count;
}

int layout_group(const struct mig_group *group, const struct nvml_profile *profiles, size_t count,
                 struct layout_place ret_places[MIG_MAX_INSTANCES], struct error *err)
{
    struct layout_place places[MIG_MAX_INSTANCES];
    struct search search = {.profiles = profiles, .places = places};
    size_t wanted = 0;

    for (size_t i = 0; i < group->kind_count; i++) {
        const struct mig_kind *kind = &group->kinds[i];
        int profile = layout_find_profile(kind->name, kind->memory_mib, profiles, count);

        if (profile < 0)
            return error_set(err, -ENOENT, "the card has no MIG profile like \"%s\" of %u MiB",
                             kind->name, kind->memory_mib);
        for (unsigned k = 0; k < kind->count && wanted < MIG_MAX_INSTANCES; k++)
            places[wanted++].profile = (unsigned)profile;
    }
    search.count = wanted;
    order_by_size(&search);
    if (search.count < wanted || !place_rest(&search, 0, 0))
        return error_set(err, -ENOSPC,
                         "the instances of this group do not fit on the card together");
    memcpy(ret_places, places, wanted * sizeof(*places));
    return (int)wanted;
}
