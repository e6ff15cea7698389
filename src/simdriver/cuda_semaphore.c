/* SPDX-License-Identifier: Apache-2.0 */

/* Semaphores of other interfaces, imported by a file descriptor: shared_semaphore.h says what takes
 * the part of theirs. A stream waits for them, and signals them, as it does with values in memory.
 */

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"
#include "simdriver/graph.h"
#include "simdriver/guest.h"
#include "simdriver/semaphores.h"
#include "simdriver/shared_semaphore.h"

enum {
    IMPORTS = 1024,
};

#define HANDLE_KIND (UINT64_C(13) << 44)

/* Under the machine's lock. */
static struct import {
    uint32_t gen;
    bool used, is_timeline;
    struct sim_semaphore semaphore;
} imports[IMPORTS];

static CUexternalSemaphore handle_of(const struct import *import)
{
    return (CUexternalSemaphore)(uintptr_t)(HANDLE_KIND | (uint64_t)(import->gen & 0xfffff) << 24 |
                                            (uint64_t)(import - imports) << 4);
}

static struct import *find(CUexternalSemaphore handle)
{
    size_t i = (uintptr_t)handle >> 4 & 0xfffff;

    return i < IMPORTS && imports[i].used && handle_of(&imports[i]) == handle ? &imports[i] : NULL;
}

static CUresult take_in(int fd, bool is_timeline, CUexternalSemaphore *ret)
{
    struct import *one = imports;
    int r;

    while (one < imports + IMPORTS && one->used)
        one++;
    if (one == imports + IMPORTS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = sim_semaphore_open(guest.sim, fd, &one->semaphore);
    if (r < 0)
        return r == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_HANDLE;
    one->used = true;
    one->is_timeline = is_timeline;
    *ret = handle_of(one);
    return CUDA_SUCCESS;
}

/* The descriptor is the driver's, if it is taken in. */
PUBLIC CUresult cuImportExternalSemaphore(CUexternalSemaphore *semaphore,
                                          const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc)
{
    CUresult r = guest_check_safe();
    bool is_timeline;

    if (r != CUDA_SUCCESS)
        return r;
    if (!semaphore || !desc)
        return CUDA_ERROR_INVALID_VALUE;
    is_timeline = desc->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
    if (!is_timeline && desc->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (desc->flags)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    r = take_in(desc->handle.fd, is_timeline, semaphore);
    sim_unlock(guest.sim);
    if (r == CUDA_SUCCESS)
        (void)close(desc->handle.fd);
    return r;
}

PUBLIC CUresult cuDestroyExternalSemaphore(CUexternalSemaphore handle)
{
    struct import *one;
    CUresult r = guest_check_safe();

    if (r != CUDA_SUCCESS)
        return r;
    (void)sim_lock(guest.sim);
    one = find(handle);
    if (one) {
        sim_semaphore_close(guest.sim, &one->semaphore);
        one->used = false;
        one->gen++;
    }
    sim_unlock(guest.sim);
    return one ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Several at once */

static bool are_there(const CUexternalSemaphore *list, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (!find(list[i]))
            return false;
    }
    return true;
}

static CUresult check(const CUexternalSemaphore *list,
                      const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned count)
{
    bool known;

    if (!list || !params || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        if (params[i].flags)
            return CUDA_ERROR_INVALID_VALUE;
    }
    (void)sim_lock(guest.sim);
    known = are_there(list, count);
    sim_unlock(guest.sim);
    return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult semaphores_new(bool signals, const CUexternalSemaphore *list,
                        const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned count,
                        struct semaphores **ret)
{
    CUresult r = check(list, params, count);
    struct semaphores *made;

    if (r != CUDA_SUCCESS)
        return r;
    made = malloc(sizeof(*made) + count * (sizeof(*params) + sizeof(CUexternalSemaphore)));
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (struct semaphores){.holds = 1, .signals = signals, .count = count};
    made->params = (CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *)(made + 1);
    made->list = (CUexternalSemaphore *)(made->params + count);
    memcpy(made->params, params, count * sizeof(*params));
    memcpy(made->list, list, count * sizeof(CUexternalSemaphore));
    *ret = made;
    return CUDA_SUCCESS;
}

void semaphores_hold(struct semaphores *semaphores)
{
    (void)__atomic_add_fetch(&semaphores->holds, 1, __ATOMIC_RELAXED);
}

void semaphores_drop(struct semaphores *semaphores)
{
    if (semaphores && __atomic_sub_fetch(&semaphores->holds, 1, __ATOMIC_ACQ_REL) == 0)
        free(semaphores);
}

CUresult semaphores_enqueue(uint32_t stream, const struct semaphores *semaphores)
{
    CUresult r = CUDA_SUCCESS;

    if (!are_there(semaphores->list, semaphores->count))
        return CUDA_ERROR_INVALID_HANDLE;
    for (unsigned i = 0; i < semaphores->count && r == CUDA_SUCCESS; i++) {
        const struct import *one = find(semaphores->list[i]);
        struct sim_op op = {
            .kind = semaphores->signals ? SIM_OP_WRITE_VALUE : SIM_OP_WAIT_VALUE,
            .seq = semaphores->params[i].params.fence.value,
        };

        /* Another thread may have ended it, while the stream was full. */
        if (!one)
            return CUDA_ERROR_INVALID_HANDLE;
        op.target = one->semaphore.value;
        op.gen = one->is_timeline ? SIM_VALUE_TIMELINE : SIM_VALUE_BINARY;
        r = guest_append(stream, &op);
    }
    return r;
}

/* In a stream */

static CUresult capture(uint32_t stream, struct semaphores *semaphores)
{
    struct graph_node like = {.type = semaphores->signals ? CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL
                                                          : CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
                              .semaphores = semaphores};

    return guest_capture_node(stream, &like);
}

static CUresult put(CUstream handle, bool per_thread, struct semaphores *semaphores)
{
    uint32_t stream;
    CUresult r = guest_enter_stream(handle, per_thread, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    r = guest_check_legacy(stream, false);
    if (r == CUDA_SUCCESS)
        r = guest_is_capturing(stream) ? capture(stream, semaphores)
                                       : semaphores_enqueue(stream, semaphores);
    sim_unlock(guest.sim);
    return r;
}

static CUresult enqueue(bool signals, const CUexternalSemaphore *list,
                        const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned count,
                        CUstream stream, bool per_thread)
{
    struct semaphores *semaphores;
    CUresult r = guest_check();

    if (r == CUDA_SUCCESS)
        r = semaphores_new(signals, list, params, count, &semaphores);
    if (r != CUDA_SUCCESS)
        return r;
    r = put(stream, per_thread, semaphores);
    semaphores_drop(semaphores);
    return r;
}

PUBLIC CUresult cuSignalExternalSemaphoresAsync(const CUexternalSemaphore *list,
                                                const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params,
                                                unsigned int count, CUstream stream)
{
    return enqueue(true, list, params, count, stream, false);
}

PUBLIC CUresult cuSignalExternalSemaphoresAsync_ptsz(
    const CUexternalSemaphore *list, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params,
    unsigned int count, CUstream stream)
{
    return enqueue(true, list, params, count, stream, true);
}

PUBLIC CUresult cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *list,
                                              const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params,
                                              unsigned int count, CUstream stream)
{
    return enqueue(false, list, params, count, stream, false);
}

PUBLIC CUresult cuWaitExternalSemaphoresAsync_ptsz(
    const CUexternalSemaphore *list, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params,
    unsigned int count, CUstream stream)
{
    return enqueue(false, list, params, count, stream, true);
}
