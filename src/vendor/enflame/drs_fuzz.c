/* SPDX-License-Identifier: Apache-2.0 */

/* Any text is cards with profiles, all within their bounds, or an error with a reason. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"
#include "model/codec.h"
#include "vendor/enflame/drs_capacity.h"
#include "vendor/enflame/enflame.h"

static void check(const struct drs_capacity *capacity)
{
    if (!capacity->card_count || capacity->card_count > DRS_CARDS_MAX || !capacity->profile_count ||
        capacity->profile_count > DRS_PROFILES_MAX || !capacity->max_slices || !capacity->max_gib)
        abort();
    for (size_t i = 0; i < capacity->card_count; i++) {
        if (!capacity->cards[i].index[0] || !capacity->cards[i].minor[0] ||
            strpbrk(capacity->cards[i].index, ",:;[]"))
            abort();
    }
    for (size_t i = 0; i < capacity->profile_count; i++) {
        const struct drs_profile *profile = &capacity->profiles[i];

        if (!profile->slices || profile->slices > capacity->max_slices ||
            profile->gib > capacity->max_gib ||
            (i && profile->slices < capacity->profiles[i - 1].slices))
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(64 << 20);
    char *text = strndup((const char *)data, size);
    struct drs_capacity capacity;
    struct error err = ERROR_INIT;
    int r;

    if (!text || !arena)
        abort();
    r = drs_capacity_parse(text, arena, &capacity, &err);
    if (r != CODEC_EXACT && !err.text[0])
        abort();
    if (r > 0)
        check(&capacity);
    free(text);
    return 0;
}
