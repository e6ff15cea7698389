/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The node's cards, watched: one thread reads how they are whenever it looks at them, another one
 * waits for NVML's events. Here is the I/O and what the two share; health.h judges.
 */

#include <pthread.h>

#include "node/nvidia/health.h"
#include "nvml/events.h"

struct watched {
    struct nvml_events *events; /* watched_wait()'s; NULL: not opened yet */
    bool stale;                 /* watched_wait()'s: the events are to be opened again */

    pthread_mutex_t lock; /* for what follows; the rules stay as they were at the start */
    struct health health;
    enum nvml_watch watches[NVML_EVENTS_MAX];      /* 0: not known yet */
    char uuids[NVML_EVENTS_MAX][DEVICE_UUID_SIZE]; /* by NVML's index, as judged last */
};

/* In zeroed storage; before the first judgement the caller sets the rules in health. */
void watched_init(struct watched *watched);

/* When neither thread is in a call. */
void watched_deinit(struct watched *watched);

/* Sets health and why of a card that NVML answers for; of another one why alone. */
void watched_judge(struct watched *watched, struct nvml *nvml, struct card *card);

/* How many errors of a card were seen so far. */
uint64_t watched_errors(struct watched *watched, const char *uuid);

/*
 * Waits for events, half a second at most, or a second after a failure. Positive: the cards are to
 * be looked at; 0: they are not; a negative errno where nobody can wait for events, which makes all
 * cards sick (health.unwatched).
 */
int watched_wait(struct watched *watched, struct nvml *nvml, struct error *err);
