/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/code.h"

#include "vgpu/allocations.h"
#include "vgpu/contexts.h"
#include "vgpu/hidden.h"

_Atomic uint64_t code_launched_sets[CODE_SETS][CODE_WAYS];

void code_found_function(void)
{
    hidden_make_due();
}

/* A full set gives up one of its functions, which is new then once more. */
void code_launched(const void *function, CUcontext context, bool success)
{
    const uint64_t key = code_launched_key(function, context);
    _Atomic uint64_t *set = code_launched_set(key);
    static _Atomic unsigned next;
    unsigned way = 0;

    if (code_was_launched(function, context))
        return;
    /* A launch that fails may load code, too; but what it named may be no function any more, or
     * yet. */
    if (!success) {
        hidden_make_due();
        return;
    }
    while (way < CODE_WAYS && atomic_load_explicit(&set[way], memory_order_relaxed))
        way++;
    if (way == CODE_WAYS)
        way = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % CODE_WAYS;
    atomic_store_explicit(&set[way], key, memory_order_relaxed);
    hidden_make_due();
}

/* The driver may give their handles to others. */
void code_forget_functions(void)
{
    for (unsigned i = 0; i < CODE_SETS; i++) {
        for (unsigned j = 0; j < CODE_WAYS; j++)
            atomic_store_explicit(&code_launched_sets[i][j], 0, memory_order_relaxed);
    }
    atomic_fetch_add(&contexts_epoch_now, 1); /* what threads remember of them, too */
}

/* Loading */

CUresult code_begin_loading(struct code_loading *loading, bool anywhere)
{
    CUresult result = vgpu_find_granted(&loading->device);

    if (result != CUDA_SUCCESS && (!anywhere || result == CUDA_ERROR_OUT_OF_MEMORY))
        return result;
    if (!loading->device || overhead_begin(&loading->overhead, loading->device, OVERHEAD_CODE, 0))
        return CUDA_SUCCESS;
    loading->device = NULL; /* nothing has begun that could end */
    return CUDA_ERROR_OUT_OF_MEMORY;
}

enum overhead_outcome code_end_loading(struct code_loading *loading, CUresult result,
                                       const void *handle)
{
    enum overhead_outcome outcome;
    uint64_t units;

    if (!loading->device)
        return OVERHEAD_NOTHING;
    outcome = overhead_end(&loading->overhead, result == CUDA_SUCCESS, &units);
    if (outcome == OVERHEAD_CHARGED)
        code_remember(handle, loading->device, units, context_current());
    return outcome;
}

/* What was charged for it */

void code_remember(const void *handle, const struct vgpu_device *device, uint64_t units,
                   unsigned context)
{
    struct allocation entry = {
        .units = units,
        .device = (unsigned)(device - vgpu.devices),
        .context = context,
    };

    (void)allocations_add(ALLOCATION_MODULE, (uint64_t)(uintptr_t)handle, &entry);
}

struct code code_take(const void *handle)
{
    struct allocation entry;

    if (!allocations_take(ALLOCATION_MODULE, (uint64_t)(uintptr_t)handle, &entry))
        return (struct code){0};
    return (struct code){
        .device = &vgpu.devices[entry.device],
        .units = entry.units,
        .context = entry.context,
    };
}

void code_end(const void *handle, const struct code *code, bool gone)
{
    struct allocation entry;

    if (!code->device)
        return;
    if (gone) {
        overhead_gone(code->device, 0, code->units);
        return;
    }
    entry = (struct allocation){
        .units = code->units,
        .device = (unsigned)(code->device - vgpu.devices),
        .context = code->context,
    };
    (void)allocations_add(ALLOCATION_MODULE, (uint64_t)(uintptr_t)handle, &entry);
}
