/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One pool, for the files that know it from the inside; pools.c keeps the table of them. */

#include "vgpu/pools.h"

#define POOL_LEAST_CHUNK (2 * MIB) /* that a pool grows by; what it grew by is remembered */

/* Never freed, but used again. */
struct pool {
    _Atomic(CUmemoryPool) handle; /* NULL: none */
    struct vgpu_device *device;   /* NULL: of the host */
    bool shared;                  /* others may have its memory: it gives nothing back */
    bool bounded;                 /* by a size of its own */
    bool on_host;                 /* ours, of what the device has no room for, or the limit */
    bool managed;                 /* its memory moves between host and device */
    bool roams;                   /* managed, by whatever policy, and best on no device */
    bool made;                    /* by the program, and not the driver's own */
    bool ending;                  /* the program destroyed it, and it has memory given out yet */
    bool of_graphs;               /* what graphs of this process allocate on the device */
    _Atomic uint64_t charged;     /* units */
    _Atomic uint64_t room;        /* bytes: no more than it had, to give out, when it was asked */
    uint64_t advance;             /* units that allocations on their way have charged beside */
    uint64_t chunk_bytes;         /* that it was seen to grow by */
    /* What it could not give without growing, at the limit, and what room it had then: bytes. */
    _Atomic uint64_t failed_bytes, failed_room;
};

/* The pool of a handle, NULL when it is not known. No lock: what is there stays in its slot
 * while it lives. */
struct pool *pool_find(CUmemoryPool handle);

/* With the lock: the next pool that lives, from a place on; NULL: there is none. */
struct pool *pool_next(unsigned *at);

/* With the lock: the device is the one that it is charged to, NULL for nobody. NULL when there are
 * too many pools. */
struct pool *pool_add(CUmemoryPool handle, struct vgpu_device *device);

/* With the lock. */
void pool_remove(struct pool *pool, CUmemoryPool handle);

/* One that we did not see made is a device's own. NULL: it is none that anybody knew of. */
struct pool *pool_meet(CUmemoryPool handle);

/* What graphs allocate is the device's graph memory, for which the driver has no handle. NULL:
 * there are too many pools. */
struct pool *pool_of_graphs(struct vgpu_device *device);

/* One of the host, or one that stands for another process': nothing of it is charged. False: there
 * are too many. */
bool pool_add_uncharged(CUmemoryPool handle);

/*
 * The one that holds on the host what an oversubscribed device has no room for: charged to the
 * device as its memory would be, and within reach of all of the container's devices. What is taken
 * from it keeps the order of streams, and outlives its context, as any pool's. NULL where the
 * driver has no pools there.
 */
struct pool *pool_on_host(struct vgpu_device *device);

/* The one that holds managed memory which the limit has no room for: charged to nobody. NULL where
 * there are too many pools. */
struct pool *pool_managed_on_host(void);

/* Units that it has; what is charged where the driver does not say. */
uint64_t pool_reserved_units(const struct pool *pool);

/* Bytes that it has and nobody else, in whatever pieces. */
uint64_t pool_room(const struct pool *pool);

/* Bytes of it that are given out, or POOL_UNKNOWN. */
#define POOL_UNKNOWN UINT64_MAX
uint64_t pool_used(const struct pool *pool);

/* Whether it has all back, and the device as well: what is freed may wait for its stream. */
bool pool_is_empty(const struct pool *pool);

/* With the lock: so many units are charged for it. */
void pool_set_charged(struct pool *pool, uint64_t units);

/* With the lock: it may have less than is charged. True when something was given back. */
bool pool_give_back(struct pool *pool);

/*
 * With the lock: it may have more than is charged. That is taken from what the allocation charged
 * in advance; what is beyond is another one's that is on its way, or charged now. False when there
 * is no room for it.
 */
bool pool_take_in(struct pool *pool, uint64_t *advance);

/* With the lock: what can't be undone is charged all the same. */
void pool_charge_anyway(struct pool *pool);

void pool_alloc_after_fork(void);
