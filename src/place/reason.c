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
    [PLACE_CARD_TASKS_EXHAUSTED] = "CardTimeSlicingExhausted",
    [PLACE_CARD_EXCLUSIVE] = "ExclusiveDeviceAllocateConflict",
    [PLACE_CARD_INSUFFICIENT_MEMORY] = "CardInsufficientMemory",
    [PLACE_CARD_INSUFFICIENT_CORE] = "CardInsufficientCore",
    [PLACE_CARD_CORES_EXHAUSTED] = "CardComputeUnitsExhausted",
    [PLACE_CARD_CORDONED] = "CardCordoned",
    [PLACE_CARD_APP_CLASS_MISMATCH] = "CardAppClassMismatch",
    [PLACE_CARD_QOS_MISMATCH] = "CardQosPolicyMismatch",
    [PLACE_MODE_NOT_FIT] = "ModeNotFit",
    [PLACE_NUMA_NOT_FIT] = "NumaNotFit",
    [PLACE_QUOTA] = "ResourceQuotaNotFit",
    [PLACE_CARD_CUSTOM_RULE] = "CardNotFoundCustomFilterRule",
    [PLACE_CARD_PART_BARRED] = "CardMigProfileNotAllowed",
    [PLACE_TOO_FEW_PICKED] = "AllocatedCardsInsufficientRequest",
};

#define TOO_FEW_DEVICES "NodeInsufficientDevice"

enum {
    ENTRY_SIZE = 72,
};

const char *place_reason_name(enum place_reason reason)
{
    return reason_names[reason];
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Sorted and joined; the texts of all reasons fit, see the assertion. */
static void join_entries(char entries[][ENTRY_SIZE], size_t count,
                         char ret_text[PLACE_REASON_TEXT_SIZE])
{
    size_t len = 0;

    qsort(entries, count, ENTRY_SIZE, compare_entries);
    ret_text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        len += (size_t)snprintf(ret_text + len, PLACE_REASON_TEXT_SIZE - len, "%s%s", i ? ", " : "",
                                entries[i]);
}

static size_t add_reasons(const unsigned reasons[PLACE_REASON_COUNT], unsigned candidates,
                          char entries[][ENTRY_SIZE])
{
    size_t count = 0;

    for (size_t i = 0; i < PLACE_REASON_COUNT; i++) {
        if (reasons[i])
            (void)snprintf(entries[count++], ENTRY_SIZE, "%u/%u %s", reasons[i], candidates,
                           reason_names[i]);
    }
    return count;
}

_Static_assert((PLACE_REASON_COUNT + 1) * (ENTRY_SIZE + 2) < PLACE_REASON_TEXT_SIZE,
               "all reasons fit the text");

void place_reasons_format(const struct place_failure *failure,
                          char ret_text[PLACE_REASON_TEXT_SIZE])
{
    char entries[PLACE_REASON_COUNT + 1][ENTRY_SIZE];

    if (failure->too_few_devices) {
        (void)snprintf(ret_text, PLACE_REASON_TEXT_SIZE, "%s", TOO_FEW_DEVICES);
        return;
    }
    join_entries(entries, add_reasons(failure->reasons, failure->candidates, entries), ret_text);
}

void place_totals_add(struct place_totals *totals, const struct place_failure *failure,
                      unsigned nodes)
{
    totals->nodes += nodes;
    if (failure->too_few_devices) {
        totals->too_few += nodes;
        return;
    }
    totals->candidates += failure->candidates * nodes;
    for (size_t i = 0; i < PLACE_REASON_COUNT; i++) {
        totals->reasons[i] += failure->reasons[i] * nodes;
        totals->reason_nodes[i] += failure->reasons[i] ? nodes : 0;
    }
}

void place_totals_format(const struct place_totals *totals, char ret_text[PLACE_REASON_TEXT_SIZE])
{
    char entries[PLACE_REASON_COUNT + 1][ENTRY_SIZE];
    size_t count = add_reasons(totals->reasons, totals->candidates, entries);

    if (totals->too_few)
        (void)snprintf(entries[count++], ENTRY_SIZE, "%u/%u %s", totals->too_few, totals->nodes,
                       TOO_FEW_DEVICES);
    join_entries(entries, count, ret_text);
}
