/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/heaps.h"

#include "base/glibc.h"
#include "base/lock.h"
#include "region/ledger.h"
#include "vgpu/code.h"
#include "vgpu/contexts.h"
#include "vgpu/hidden.h"
#include "vgpu/real.h"

enum {
    STACK_STEP = 16,
};

/*
 * Held by whoever makes stacks grow or sets their size, in the driver's call as well: what a launch
 * will take was else reckoned from a size that another thread changes. The driver may wait there
 * for what the context has to do. A handler of a signal may launch meanwhile, and so may one launch
 * on several devices.
 */
static pthread_mutex_t stacks = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

void heaps_after_fork(void)
{
    stacks = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

/* Stacks, heaps and the printf buffer live as long as the context, and are charged to it. */

static uint64_t threads_of(const struct vgpu_device *device)
{
    int multiprocessors = 0, threads = 0;

    (void)REAL(cuDeviceGetAttribute)(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                     device->handle);
    (void)REAL(cuDeviceGetAttribute)(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                                     device->handle);
    return (uint64_t)MAX(multiprocessors, 0) * (uint64_t)MAX(threads, 0);
}

/*
 * What a limit will take, in units, when it is raised to this value: each thread that there can be
 * has a stack, the heaps are what they say. What a larger heap took once is likely still there.
 */
static uint64_t heap_units(const struct vgpu_device *device, CUlimit limit, size_t old,
                           size_t value)
{
    uint64_t more = value - MIN(value, old), bytes;

    if (limit == CU_LIMIT_STACK_SIZE) {
        if (__builtin_mul_overflow(more, threads_of(device), &bytes))
            return LEDGER_UNITS_MAX + 1;
        return ledger_units(bytes);
    }
    if (limit == CU_LIMIT_PRINTF_FIFO_SIZE || limit == CU_LIMIT_MALLOC_HEAP_SIZE)
        return ledger_units(more);
    return 0;
}

static CUresult set_limit(struct vgpu_device *device, CUlimit limit, size_t value)
{
    unsigned context = context_current();
    enum overhead_outcome outcome;
    uint64_t units, less = 0;
    struct overhead overhead;
    CUresult result;
    size_t old, had;

    /* Asked first, so that it can be put back; and what the driver doesn't know it refuses. */
    if (REAL(cuCtxGetLimit)(&old, limit) != CUDA_SUCCESS)
        return REAL(cuCtxSetLimit)(limit, value);
    had = limit == CU_LIMIT_STACK_SIZE ? old : MAX(old, context_largest_heap(context, limit));
    units = heap_units(device, limit, had, value);
    if (!overhead_begin(&overhead, device, OVERHEAD_HEAP, units))
        return CUDA_ERROR_OUT_OF_MEMORY;

    result = REAL(cuCtxSetLimit)(limit, value);
    outcome = overhead_end(&overhead, result == CUDA_SUCCESS, &units);
    if (outcome == OVERHEAD_REFUSED) {
        UNDO(cuCtxSetLimit, limit, old);
        overhead_undone(&overhead, 0);
        value = old;
    }
    if (result != CUDA_SUCCESS)
        return result;
    if (limit == CU_LIMIT_STACK_SIZE)
        less = heap_units(device, limit, value, had);
    context_heap_grew(context, limit, value, (int64_t)(units - less));
    if (value < had) {
        code_forget_functions(); /* of those that need more stack the next launch takes it again */
        overhead_gone(device, less, 0);
    }
    return outcome == OVERHEAD_REFUSED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

PUBLIC CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct vgpu_device *device;
    CUresult result = vgpu_find_granted(&device);

    if (result != CUDA_SUCCESS)
        return result;
    if (!device)
        return REAL(cuCtxSetLimit)(limit, value);
    if (limit != CU_LIMIT_STACK_SIZE)
        return set_limit(device, limit, value);
    lock_mutex(&stacks);
    result = set_limit(device, limit, value);
    unlock_mutex(&stacks);
    return result;
}

/* Launches */

/* What each thread needs of the stack, as the driver rounds it. A kernel of a library is none of
 * its functions. */
static size_t stack_of(const void *function, const struct vgpu_device *device)
{
    CUfunction handle = (CUfunction)(uintptr_t)function;
    int bytes = 0;

    if (REAL(cuFuncGetAttribute)(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, handle) !=
            CUDA_SUCCESS &&
        REAL(cuKernelGetAttribute)(&bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, (CUkernel)handle,
                                   device->handle) != CUDA_SUCCESS)
        return 0;
    return ((size_t)MAX(bytes, 0) + STACK_STEP - 1) / STACK_STEP * STACK_STEP;
}

/* Units that the current context lacks. */
static uint64_t lacking(const struct vgpu_device *device, size_t stack)
{
    size_t had = stack;

    (void)REAL(cuCtxGetLimit)(&had, CU_LIMIT_STACK_SIZE);
    return heap_units(device, CU_LIMIT_STACK_SIZE, had, stack);
}

/* What is charged for what has gone meanwhile is no reason to refuse. */
static bool charge(struct heap_growth *growth, struct vgpu_device *device, uint64_t units)
{
    (void)hidden_settle(device);
    if (overhead_begin(&growth->overhead, device, OVERHEAD_HEAP, units))
        return true;
    vgpu_say(VGPU_WORD_STACK,
             "%s: a kernel's local memory, for which the driver would take %llu MiB, exceeds the "
             "limit: it is not launched",
             device->uuid, (unsigned long long)(units * LEDGER_UNIT >> 20));
    return false;
}

CUresult heaps_begin_launch(struct heap_growth *growth, const void *function)
{
    struct vgpu_device *device;
    uint64_t units;
    size_t stack;

    if (vgpu_find_granted(&device) == CUDA_ERROR_OUT_OF_MEMORY)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!device || atomic_load(&device->limit_units) == LEDGER_UNITS_MAX)
        return CUDA_SUCCESS;
    stack = stack_of(function, device);
    if (!stack || !lacking(device, stack))
        return CUDA_SUCCESS;

    lock_mutex(&stacks);
    growth->context = context_current();
    units = lacking(device, stack);
    growth->grows = units && charge(growth, device, units);
    if (growth->grows)
        return CUDA_SUCCESS;
    unlock_mutex(&stacks);
    return units ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* What was taken after all stays. */
void heaps_end_launch(struct heap_growth *growth, bool launched)
{
    uint64_t units;

    if (!growth->grows)
        return;
    if (overhead_end(&growth->overhead, launched, &units) == OVERHEAD_REFUSED)
        overhead_undone(&growth->overhead, 0);
    context_heap_grew(growth->context, CU_LIMIT_STACK_SIZE, 0, (int64_t)units);
    growth->grows = false;
    unlock_mutex(&stacks);
}
