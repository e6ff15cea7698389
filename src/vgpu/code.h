/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Code of programs on a device. It is loaded with its module or library, or as late as at the first
 * launch of a function: so it is remembered which functions were launched, and a launch of another
 * one makes the account of hidden memory (hidden.h) due. What code was charged as it was loaded by
 * a call is remembered with its handle, to be given back where NVML can't be asked.
 */

#include "vgpu/overhead.h"
#include "vgpu/vgpu.h"

/* A function is there to be launched that was not before; a launch of a function was tried, in that
 * context, or elsewhere: in a capture, or nobody knows where. */
#define CODE_ELSEWHERE ((CUcontext)1)
void code_found_function(void);
void code_launched(const void *function, CUcontext context, bool success);
void code_forget_functions(void);

enum {
    CODE_SETS = 4096,
    CODE_WAYS = 4,
};

extern _Atomic uint64_t code_launched_sets[CODE_SETS][CODE_WAYS];

/* Code is loaded in each context by itself, also of a kernel that has one handle in all of them. No
 * context is named while only one lives. */
static inline uint64_t code_launched_key(const void *function, CUcontext context)
{
    return (uint64_t)(uintptr_t)function +
           (uint64_t)(uintptr_t)context * UINT64_C(0xd6e8feb86659fd93);
}

static inline _Atomic uint64_t *code_launched_set(uint64_t key)
{
    return code_launched_sets[key * UINT64_C(0x9e3779b97f4a7c15) >> 52];
}

/* Whether a function was launched before, so that its code is loaded. False of some that were. */
static inline bool code_was_launched(const void *function, CUcontext context)
{
    const uint64_t key = code_launched_key(function, context);
    _Atomic uint64_t *set = code_launched_set(key);

    for (unsigned i = 0; i < CODE_WAYS; i++) {
        if (atomic_load_explicit(&set[i], memory_order_relaxed) == key)
            return true;
    }
    return false;
}

/*
 * Around a call that loads code, or something else that is charged as such, into the current
 * context; anywhere: where none is current, into others or none. An error is the call's answer.
 * OVERHEAD_REFUSED: it is there, and to be undone, which overhead_undone() is told.
 */
struct code_loading {
    struct vgpu_device *device; /* NULL: nothing to account */
    struct overhead overhead;
};

CUresult code_begin_loading(struct code_loading *loading, bool anywhere);
enum overhead_outcome code_end_loading(struct code_loading *loading, CUresult result,
                                       const void *handle);

/* What was charged for the code behind a handle (a module, a library, a green context, an
 * executable graph): remembered, taken out. It goes with its context, if it has one. */
void code_remember(const void *handle, const struct vgpu_device *device, uint64_t units,
                   unsigned context);
struct code {
    struct vgpu_device *device; /* NULL: nothing was remembered */
    uint64_t units;
    unsigned context;
};
struct code code_take(const void *handle);
void code_end(const void *handle, const struct code *code, bool gone);
