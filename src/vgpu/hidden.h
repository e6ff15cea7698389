/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Hidden memory: what the driver takes for itself, for contexts, code, heaps, and tells nobody. Its
 * account is what NVML says of this process (usage.h) less what the ledger has of its allocations:
 *
 *     NVML's figure = allocations, charged as they are made + hidden memory
 *
 * That is settled after every call that is known to take or to give back hidden memory
 * (overhead.h), about once a second while there is work, at the first allocation after a launch of
 * a function not seen before (code.h), and before an allocation is refused. What has grown is
 * charged, also beyond the limit: then nothing more is given; but while a call is under way that
 * may yet undo it, only as far as the limit goes.
 *
 * Where calls that are not accounted for are let pass, what they take can't be told from hidden
 * memory: then only what grows during our calls is charged, and given back as it was charged.
 */

#include "vgpu/vgpu.h"

/* For whoever allocates. */
struct hidden_moment {
    _Alignas(64) _Atomic unsigned moving; /* allocations that are on their way in or out */
    _Atomic int64_t due_ns;               /* when to settle; coarse clock */
    _Atomic int64_t again_ns;             /* when it may be worth while before a refusal */
    _Atomic unsigned returns;             /* how often something was given back */
};
extern struct hidden_moment hidden_moments[REGION_DEVICES];

static inline struct hidden_moment *hidden_moment(const struct vgpu_device *device)
{
    return &hidden_moments[device - vgpu.devices];
}

/* Brings the account to what NVML says. True when something was given back. */
bool hidden_settle(struct vgpu_device *device);

/* The same for who is refused. True also after a short wait, where something moved meanwhile, so
 * that it is not known whether what this process let go of has gone: threads that are all refused
 * move nothing soon. */
bool hidden_settle_refused(struct vgpu_device *device);

/* The same; returns the units that are hidden. */
uint64_t hidden_settled_units(struct vgpu_device *device);

/* The same if it is due, once for all threads that find it so. */
void hidden_settle_due(struct vgpu_device *device);

/* From now on it is due on every device; or in a tenth of a second, where the driver told what a
 * call takes: a look is a call of NVML's, and programs make arrays by the thousand. */
void hidden_make_due(void);
void hidden_make_due_soon(void);

/* The same, also where the program does nothing more. */
void hidden_look_soon(void);

/* Settles what is due; the watching thread's call. */
void hidden_tick(void);

/* Before a program is told what is in use: what may have become less is looked at. */
void hidden_look(struct vgpu_device *device);

/* Of an allocation nothing is left in this process, but others may hold its memory: it is hidden
 * memory from now on, as far as NVML does not say that it has gone. Or something that nobody counts
 * may hold it in this process, of which NVML says all. */
void hidden_left(struct vgpu_device *device, uint64_t units);
void hidden_kept(struct vgpu_device *device, uint64_t units); /* by descriptors (given.h) */
void hidden_held(struct vgpu_device *device, uint64_t units);
bool hidden_is_left(const struct vgpu_device *device);

/* Whether there is such memory on any device: when it has gone is to be seen without a call of the
 * program's. */
bool hidden_waits(void);

/* Whether more is charged than the limit, now. */
bool hidden_is_exceeded(const struct vgpu_device *device);

/* And still so when NVML has been asked. */
bool hidden_is_full(struct vgpu_device *device);

void hidden_after_fork(void);

/*
 * The account itself, for calls that change it (overhead.c). Its lock is held over questions to
 * NVML, and to the driver how large its pools are; never over another call of the driver's.
 */
void hidden_lock(void);
void hidden_unlock(void);

/* This process' hidden memory on a device, as it is charged. */
struct hidden_account {
    uint64_t units[VGPU_MODULE + 1]; /* by kind */
    uint64_t advance;                /* of it, for calls that are under way */
    unsigned under_way;
    unsigned begun;     /* calls, ever */
    uint64_t tolerated; /* not charged: of calls that are let pass */
    uint64_t left;    /* of what is charged: what others may hold, of whom some may not have been */
    uint64_t waiting; /* charged for it yet; of it, what waits for this round (region/orphans.h): */
    uint32_t since;   /* the rest waits for the next one */
    uint64_t taken;   /* charged while memory of others was held: it may be that */
    uint64_t held;    /* of allocations that something in this process may hold */
    bool found;       /* by NVML, when it was last asked */
    uint64_t exceeding; /* charged beyond the limit, and not yet said; looked at again then: */
    int64_t exceeding_ns;
};

struct hidden_measure {
    bool found;     /* this process, or for sure that it has nothing */
    bool listed;    /* by name */
    bool quiet;     /* no allocation was on its way in or out: nothing is hidden by one */
    uint64_t units; /* hidden, at least */
};

struct hidden_settled {
    struct hidden_measure by;
    uint64_t grown; /* charged as of the kind; of code, as far as the limit has room while a call is
                       under way */
    uint64_t surplus; /* still charged: to be given back */
    bool seen;        /* what others have left for us may be given back */
};

/* All below with the lock held. */
struct hidden_account *hidden_account(const struct vgpu_device *device);

struct hidden_measure hidden_measure(struct vgpu_device *device);

/* What is there and not charged. */
uint64_t hidden_growth(const struct hidden_account *account, const struct hidden_measure *measure);

/* What is charged and not there, leaving what calls under way have in advance; 0 while it can't be
 * told. */
uint64_t hidden_surplus(const struct hidden_account *account, const struct hidden_measure *measure);

/* Before that is charged, which may be memory of others: returns what may be. And if it is not
 * charged after all. */
uint64_t hidden_take(struct vgpu_device *device, uint64_t units);
void hidden_untake(struct vgpu_device *device, uint64_t taken);

/* False when it would exceed the limit. */
bool hidden_charge(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units);

/*
 * It is there, whatever the limit. What was another process', which died, may still be charged to
 * that one, and NVML may know of its death before its locks are gone: then it is looked at once
 * more before a word is said.
 */
void hidden_charge_anyway(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units);

/* No more than is charged of that kind; or of any kind, what is charged for code first. */
void hidden_discharge(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units);
void hidden_give_back(struct vgpu_device *device, uint64_t units);

/* Charges what has grown, of that kind; or that, as code, and gives back what is charged too much.
 */
struct hidden_settled hidden_settle_growth(struct vgpu_device *device, enum vgpu_kind kind);
struct hidden_settled hidden_settle_locked(struct vgpu_device *device);

/* Whether calls that are not accounted for are let pass. */
bool hidden_tolerates(void);
