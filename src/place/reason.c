/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "place/place.h"

static const char *const reason_names[PLACE_REASON_COUNT] = {
    [PLACE_CARD_NOT_HEALTHY] = "CardNotHealth",
    [PLACE_CARD_TYPE_MISMATCH] = "CardTypeMismatch",
    [PLACE_CARD_UUID_MISMATCH] = "CardUuidMismatch",
    [PLACE_CARD_SLOTS_EXHAUSTED] = "CardTimeSlicingExhausted",
    [PLACE_CARD_EXCLUSIVE] = "ExclusiveDeviceAllocateConflict",
    [PLACE_CARD_INSUFFICIENT_MEMORY] = "CardInsufficientMemory",
    [PLACE_CARD_INSUFFICIENT_CORE] = "CardInsufficientCore",
    [PLACE_CARD_CORES_EXHAUSTED] = "CardComputeUnitsExhausted",
    [PLACE_CARD_CORDONED] = "CardCordoned",
    [PLACE_CARD_MODE] = "CardNotFoundCustomFilterRule",
    [PLACE_TOO_FEW_PICKED] = "AllocatedCardsInsufficientRequest",
};

enum {
    ENTRY_SIZE = 80,
};

const char *place_reason_name(enum place_reason reason)
{
    return reason_names[reason];
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(a, b);
}

void place_reasons_format(const struct place_decision *decision,
                          char ret_text[PLACE_REASON_TEXT_SIZE])
{
    char entries[PLACE_REASON_COUNT][ENTRY_SIZE];
    size_t count = 0, len = 0;

    _Static_assert(sizeof(entries) + 2 * ARRAY_SIZE(entries) < PLACE_REASON_TEXT_SIZE,
                   "all reasons fit the text");

    if (decision->too_few_devices) {
        (void)snprintf(ret_text, PLACE_REASON_TEXT_SIZE, "NodeInsufficientDevice");
        return;
    }

    for (size_t i = 0; i < PLACE_REASON_COUNT; i++) {
        if (decision->reasons[i])
            (void)snprintf(entries[count++], ENTRY_SIZE, "%u/%u %s", decision->reasons[i],
                           decision->candidates, reason_names[i]);
    }
    qsort(entries, count, ENTRY_SIZE, compare_entries);

    ret_text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        len += (size_t)snprintf(ret_text + len, PLACE_REASON_TEXT_SIZE - len, "%s%s", i ? ", " : "",
                                entries[i]);
}
