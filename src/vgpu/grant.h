/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * An allocation on its way: charged before the driver is asked, and either remembered then by
 * whoever asked, or cancelled. From the charge to the end the account and the device do not agree,
 * so that hidden memory is not measured.
 */

#include "vgpu/contexts.h"
#include "vgpu/vgpu.h"

struct grant {
    struct vgpu_device *device; /* NULL: nothing to account */
    unsigned context, epoch;    /* and as of when (contexts.h) */
    uint64_t units;             /* charged */
    uint64_t piece;             /* of linear memory and arrays: what is remembered (pages.h) */
};

/* Where the calling thread's current context is. False: it has none, or on no device that is known.
 */
static inline bool grant_place(struct grant *grant)
{
    grant->epoch = contexts_epoch();
    grant->context = context_current();
    grant->device = grant->context ? vgpu_likely_device() : NULL;
    return grant->device;
}

/*
 * The same, for what is about to be made in that context. An error is the answer: where no context
 * is current the driver says so, and is not asked for memory, since a signal's handler could make
 * one current before it looks. The device is NULL where nobody accounts for the context's.
 */
CUresult grant_find_place(struct grant *grant);

/*
 * Asked after what was made is remembered: whether it is where it was placed. Its context may have
 * ended meanwhile, and another one come in its place, and a signal's handler could make a context
 * of another device current. An end that begins later finds it.
 */
static inline bool grant_is_in_place(const struct grant *grant)
{
    return (vgpu.device_count == 1 && contexts_epoch() == grant->epoch) ||
           context_current() == grant->context;
}

/* Charges it; hidden memory that is due is in the account first. False: there is no room. */
bool grant_take(const struct grant *grant);

/* The same, where something else may do if there is no room: no refusal is counted. */
bool grant_try(const struct grant *grant);

/* It was made, and is remembered. */
void grant_end(const struct grant *grant);

/* It was not made, or was undone. */
void grant_cancel(const struct grant *grant);

/* Between the driver's call that gives memory back and its discharge. */
void grant_begin_moving(const struct vgpu_device *device);
void grant_end_moving(const struct vgpu_device *device);
