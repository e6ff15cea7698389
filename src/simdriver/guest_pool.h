/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * This process' pools of memory that is given out in the order of streams. A pool is its process',
 * and of a device, whatever context is current. One that is destroyed keeps what is still given
 * out.
 */

#include "simdriver/guest.h"
#include "simdriver/heap.h"

#define REUSES 3 /* attributes that allow one way of it each */

struct guest_pool {
    bool in_use;
    bool destroyed; /* and its memory stays till the last piece is free */
    bool is_default;
    bool imported;
    unsigned gen;
    int reuse[REUSES];
    uint64_t threshold;
    uint32_t access; /* of the host's: the devices that have it, a bit each */
    struct heap heap;
};

/* All of these under guest.lock and the machine's, which the first takes; devices are at now. */
void guest_pools_enter(void);
void guest_pools_leave(void);

/* NULL: the handle is none. */
struct guest_pool *guest_pool_find(CUmemoryPool handle);
/* Of a device. */
struct guest_pool *guest_pool_current(unsigned device);
/* Gives back what is free by now; the host has waited for some. */
void guest_pools_look(bool waited);

/* Whether pools have given out anything since the process began; no lock need be held. */
void guest_pools_note_given(void);
bool guest_pools_gave(void);
