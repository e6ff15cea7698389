/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Getting a lease for a request out of the ledger: at once, or by waiting for room. */

#include "ctl/local.h"
#include "ctl/registry.h"
#include "place/place.h"

enum room_outcome {
    ROOM_GRANTED = 1,
    ROOM_NONE,      /* not now */
    ROOM_NEVER,     /* not on this machine, even with nothing granted; */
    ROOM_TOO_MUCH,  /* but oversubscribed it would be */
    ROOM_AILING,    /* not while a card of it is lost or in MIG mode */
    ROOM_TIMED_OUT, /* not within the time */
};

enum {
    ROOM_TEXT_SIZE = PLACE_REASON_TEXT_SIZE + 512,
};

struct room {
    struct registry *registry;
    const struct local *local;
    const struct request *request;
    struct place_policy policy;
    bool oversubscribes; /* it may exceed a card that nobody else holds, and has it alone then */

    int fd;                   /* ROOM_GRANTED: keeps the lease */
    char why[ROOM_TEXT_SIZE]; /* otherwise: the reasons, and what there is */
};

/* Tries once. Sets the lease's id and devices. */
int room_take(struct room *room, struct lease *lease, struct error *err);

/*
 * Waits in the order of arrival, at most timeout_ns unless that is negative. Calls tell() with why
 * once, when there is no room at first.
 */
int room_wait(struct room *room, struct lease *lease, int64_t timeout_ns,
              void (*tell)(const struct room *room), struct error *err);
