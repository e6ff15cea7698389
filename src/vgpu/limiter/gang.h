/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Devices of a container whose kernels wait for one another, as those of an all-reduce do. Each
 * device has its own bucket, and what one waits for is held while the other spins: that is charged,
 * so that the first one is held later than the other, and so on; under half of each the waits grow
 * for ever. So devices that were found to wait for one another are held and let go together:
 *
 *   - all while one is in debt, until none is,
 *   - but for a launch that does not bring its device ahead of the one that is furthest since all
 *     were let go last: a step that one began, the others end;
 *   - and for all launches while another one waits longer than its work should take. The debt that
 *     comes of it is bounded, and repaid;
 *   - while a debt takes long to repay, as that of a kernel which waited for a late rank does, only
 *     for launches that are surely waited for, one at a time.
 *
 * They are found by what ended such waits: launches on the other device that had been held
 * meanwhile. A wait that ends though those are held on was for something else. For what waits for a
 * tenth of a second launches go before that is known. Devices that are bound for nothing lose
 * little: who is behind is not held.
 *
 * The words are the region's (struct region_gang), for ranks may be processes; amounts in ns of the
 * device, times CLOCK_MONOTONIC. Pure but for waking who is held.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"
#include "region/region.h"

/* A context's work is late by so much before it counts as waiting. */
#define GANG_LATE_NS INT64_C(1500000)

/* A device may have such a debt for letting another one go on. */
#define GANG_DEBT_NS NS_PER_S

/* What a context's waits say of each device. Zeroed to begin with. */
struct gang_wait {
    int64_t since_ns;                /* 0: it does not wait */
    int64_t held_ns[REGION_DEVICES]; /* for how long launches had been held there by then */
    unsigned found[REGION_DEVICES];  /* waits in turn that ended by what was let go there */
};

/* A launch is held for its share; one goes, for which so much is charged. */
void gang_note_held(struct region *region, unsigned device, int64_t now_ns);
void gang_note_gone(struct region *region, unsigned device, int64_t price_ns, int64_t now_ns);

/* Whether a launch may go, which its own device alone would let go or not. If not, it is looked at
 * again at until_ns, or when somebody wakes those who wait for the bucket. */
bool gang_allows(struct region *region, unsigned device, bool allowed, int64_t price_ns,
                 int64_t now_ns, int64_t *ret_until_ns);

/* A look at each tick: whether a context's work on the device is late by more than GANG_LATE_NS. */
void gang_look(struct region *region, unsigned device, struct gang_wait *wait, bool is_late,
               int64_t now_ns);
