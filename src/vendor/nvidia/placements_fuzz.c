/* SPDX-License-Identifier: Apache-2.0 */

/* Profiles as anybody may have registered them: what is given out until nothing is left has no
 * slice in common, and at least what was asked for. */

#include "vendor/nvidia/placements.h"

#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"
#include "base/util.h"

static void check(const struct nvidia_facts *facts)
{
    uint64_t used = 0;

    for (uint64_t mib = 1; used != UINT64_MAX; mib *= 2) {
        struct device_usage taken = {.memory_bytes = mib * MIB};
        const uint64_t before = used;

        if (!placements_take(facts, used, false, &taken))
            break;
        if (taken.memory_bytes < mib * MIB || !taken.parts || taken.parts & (taken.parts - 1))
            abort();
        used |= taken.parts;
        taken.memory_bytes = MIB;
        if (placements_take(facts, used, true, &taken) && taken.parts & used)
            abort();
        if (used == before)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(8 << 20);
    char *text = strndup((const char *)data, size);
    struct mig_profile profiles[PLACEMENTS_PROFILES_MAX];
    struct nvidia_facts *facts;
    struct device device;
    int count;

    if (!arena || !text)
        abort();
    count = placements_read_profiles(text, arena, profiles);
    free(text);
    if (count > PLACEMENTS_PROFILES_MAX)
        abort();
    for (int i = 0; i < count; i++) {
        if (!profiles[i].name[0] || !profiles[i].memory_mib ||
            (i && profiles[i].memory_mib < profiles[i - 1].memory_mib))
            abort();
    }
    if (count <= 0)
        return 0;
    facts = nvidia_facts_give(&device, (size_t)count, 0, arena);
    if (!facts)
        return 0;
    memcpy(facts->profiles, profiles, (size_t)count * sizeof(profiles[0]));
    check(facts);
    return 0;
}
