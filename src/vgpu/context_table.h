/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The table of this process' contexts, for the files that make and end them: contexts.c,
 * context_make.c, context_end.c, primary.c and green.c.
 */

#include "vgpu/allocations.h"
#include "vgpu/contexts.h"

/* A row's number is the context's; 0 is none. */
struct context {
    CUcontext handle; /* NULL: free, or ending */
    struct vgpu_device *device;
    uint64_t units; /* charged for the context itself, and its heaps */
    size_t heaps[CONTEXT_HEAPS];
    unsigned users; /* of one that is not primary: cuCtxCreate's, and all cuCtxAttach's */
    bool primary;
    bool ending; /* its handle may be another's already */
    unsigned
        now; /* of a free row: the number that its context has since an end was refused; or 0 */
    bool refused; /* it can't be held to the limit */
};

struct contexts {
    pthread_mutex_t lock;
    struct context rows[CONTEXTS_MAX];
    unsigned last; /* in use, or has been */
};
extern struct contexts contexts;

/* With the lock held: one context more or less lives. The number before. */
unsigned contexts_count(struct vgpu_device *device, int more);

/* With the lock held; 0: none. */
unsigned contexts_find_row(CUcontext handle);

/* Its number, 0 when it is not known. */
unsigned contexts_find(CUcontext handle, struct context *ret_context);

/* Its number, 0 when the table is full, which is said then. */
unsigned contexts_add(const struct context *context);
bool contexts_are_full(void);

/* A context that was made unseen: the CUDA runtime has a way of its own to make primary ones. */
unsigned contexts_adopt(CUcontext handle, struct vgpu_device *device, bool primary);

/* A user of a context more or less. Of a primary one, who retained it are its users. */
void contexts_add_users(CUcontext handle, int more);

/* What to answer instead of making a context here; CUDA_SUCCESS to go on. No device: nothing to
 * account. */
CUresult contexts_may_create(CUdevice handle, struct vgpu_device **ret_device);

/*
 * What goes with a context: itself, its heaps and code, and every allocation made in it. All of it
 * is taken out before the driver ends the context, for the moment it has, another thread may be
 * given the same handles and addresses; what is charged stays charged until the driver has agreed.
 */
struct context_ending {
    unsigned row; /* 0: it is not known */
    struct context context;
    struct allocations_bag bags[ALLOCATION_KINDS];
    bool holds_managed; /* managed memory stays where it is until the end is over */
    struct context_ending *next;
};

/* It stays where it is until its end is finished: others look into its bags (context_take()). */
void context_begin_end(CUcontext handle, struct context_ending *ret_ending);

/* Around the driver's call: whether the context has gone. */
void context_finish_end(struct context_ending *ending, bool gone);

void context_ends_after_fork(void);

/* The pieces in the bag are another context's from now on. */
void context_give_back_data(struct context_ending *ending, unsigned row);
