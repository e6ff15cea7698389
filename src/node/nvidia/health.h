/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether cards are well: a state machine without clock or driver. Its inputs are what NVML answers
 * now and what it told as events.
 *
 * What NVML says now rules. A card is sick while NVML does not answer for it, while the driver says
 * that it needs anything (a reset, a reboot, to be drained), and while its events can't be watched;
 * all cards are while nobody can wait for events. It is well as soon as that is over.
 *
 * An error is a moment: an XID that counts (xids.h), an uncorrected memory error told by an event
 * or seen in the count. It makes the card sick at once. NVML does not say when it is over, so:
 *
 * - a driver that tells what a card needs has said "nothing" without a break for HEALTH_TOLD_NS
 *   since the error: the card is well;
 * - with another driver, the card is well when it had no further error for HEALTH_QUIET_NS. If it
 *   fails again within HEALTH_TRIED_NS after that, it stays out twice as long, HEALTH_LONGEST_NS at
 *   most: a card that only looked well takes fewer and fewer pods with it.
 *
 * A card in MIG mode, or whose compute mode lets nobody use it, is of no use either. One that lets
 * a single process use it is given to a single container.
 *
 * What runs on a sick card runs on; the card takes nothing new.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "node/card.h"
#include "node/nvidia/xids.h"
#include "nvml/nvml.h"

#define HEALTH_TOLD_NS (30 * INT64_C(1000000000))
#define HEALTH_QUIET_NS (300 * INT64_C(1000000000))
#define HEALTH_TRIED_NS (3600 * INT64_C(1000000000))
#define HEALTH_LONGEST_NS (4 * HEALTH_TRIED_NS)

struct health_card {
    char uuid[DEVICE_UUID_SIZE];
    char why[CARD_WHY_SIZE]; /* its last error */
    bool failed;             /* an error is not over yet */
    int64_t failed_ns;       /* when the last one came */
    int64_t asked_for_ns; /* when the driver last said that it needs something, or told nothing */
    int64_t well_ns;      /* when it was well again */
    unsigned relapses;
    uint64_t errors; /* so far */
    bool has_uncorrected;
    uint64_t uncorrected; /* count at the last reading */
};

/* What cards in MIG mode are good for. */
enum health_split {
    HEALTH_SPLIT_UNUSED = 0, /* for nothing */
    HEALTH_SPLIT_SERVED,     /* their instances are served */
    HEALTH_SPLIT_WANTED,     /* no others are */
};

/* Zero but for the rules. */
struct health {
    enum health_split split;
    struct xid_rules rules;
    int64_t quiet_ns;              /* in place of HEALTH_QUIET_NS, if not 0 */
    char unwatched[CARD_WHY_SIZE]; /* why nobody waits for events; "": somebody does */
    size_t count;
    struct health_card cards[CARDS_MAX];
};

/* An event befell a card, or, with uuid NULL, one that is not known: then all count as hit. Whether
 * it is an error that counts. */
bool health_event(struct health *health, const char *uuid, uint64_t type, uint64_t data,
                  int64_t now_ns);

/* Judges a card that NVML answers for, and sets healthy and why. */
void health_judge(struct health *health, const struct nvml_health *reading, int64_t now_ns,
                  struct card *card);

/* The record of a card; NULL: nothing is known of it. */
const struct health_card *health_find(const struct health *health, const char *uuid);
