/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which devices of one machine a request gets.
 *
 * A list of devices with their usage and a request go in, a decision with its reasons comes out.
 * Pure: no clock, no log, no allocation, no state. Amounts are compared in whole MiB, as HAMi does,
 * and scores are its 32-bit floats, so that the answers are HAMi's.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/device.h"
#include "model/request.h"

enum {
    PLACE_MAX_DEVICES = 256, /* of one machine */
    PLACE_MAX_PICKS = 64,    /* of one request */
    PLACE_REASON_TEXT_SIZE = 1024,
};

enum place_outcome {
    PLACE_FITS = 1,
    PLACE_NO_FIT,
};

/* Which device is preferred among those that fit. */
enum place_order {
    PLACE_SPREAD = 0, /* the least used */
    PLACE_BINPACK,    /* the most used */
};

struct place_policy {
    enum place_order order;
    bool mutex; /* take only devices that nobody uses */
};

/* Why a device was passed over. The texts are in place_reason_name(). */
enum place_reason {
    PLACE_CARD_NOT_HEALTHY,
    PLACE_CARD_TYPE_MISMATCH,
    PLACE_CARD_UUID_MISMATCH,
    PLACE_CARD_SLOTS_EXHAUSTED,
    PLACE_CARD_EXCLUSIVE,
    PLACE_CARD_INSUFFICIENT_MEMORY,
    PLACE_CARD_INSUFFICIENT_CORE,
    PLACE_CARD_CORES_EXHAUSTED,
    PLACE_TOO_FEW_PICKED, /* counts the devices that did fit */
    PLACE_REASON_COUNT,
};

struct place_pick {
    size_t device; /* position in the list that was given */
    uint64_t memory_bytes;
    unsigned cores;
};

struct place_decision {
    /* PLACE_FITS: in the order in which they were taken. */
    size_t pick_count;
    struct place_pick picks[PLACE_MAX_PICKS];

    /* PLACE_NO_FIT. */
    bool too_few_devices; /* more were asked for than there are of this type */
    unsigned candidates;
    unsigned reasons[PLACE_REASON_COUNT];
};

/*
 * One device's score: its usage together with all that the container requests, whichever vendor's
 * it is, as a part of its slots, cores and memory. Infinite or not a number when it has none of one
 * of them: such devices are never preferred for sure, and never break the sort.
 */
float place_score(const struct device *device, const struct request *requests, size_t count);

/*
 * Sorts positions, ascending, the most preferred device last; scores are indexed by position.
 * Stable: of equal devices the last one of the list stays last.
 */
void place_sort(const struct device *devices, const float *scores, enum place_order order,
                size_t *positions, size_t count);

/*
 * Finds devices for one request. PLACE_FITS and PLACE_NO_FIT fill the decision; -E2BIG when there
 * are more devices or more are asked for than the bounds above.
 */
int place_fit(const struct device *devices, size_t count, const struct request *request,
              const struct place_policy *policy, struct place_decision *ret_decision);

/* Adds what was picked to the devices' usage. */
void place_charge(struct device *devices, const struct place_decision *decision);

/* HAMi's word for a reason, "CardInsufficientMemory". */
const char *place_reason_name(enum place_reason reason);

/* All reasons of a PLACE_NO_FIT: "2/8 CardInsufficientMemory, 6/8 CardTypeMismatch". */
void place_reasons_format(const struct place_decision *decision,
                          char ret_text[PLACE_REASON_TEXT_SIZE]);
