/* SPDX-License-Identifier: Apache-2.0 */

/* Captures, in which nothing runs, and into which nothing of ours may go. */

#include "base/glibc.h"
#include "base/lock.h"
#include "vgpu/compute_row.h"
#include "vgpu/real.h"

_Atomic int compute_captures, compute_joins;

/* Held by who puts something into a stream that is captured, and so goes uncharged; alone by who
 * ends a capture. */
static pthread_rwlock_t capturing = PTHREAD_RWLOCK_INITIALIZER;

void compute_captures_after_fork(void)
{
    atomic_store(&compute_captures, 0);
    atomic_store(&compute_joins, 0);
    (void)pthread_rwlock_init(&capturing, NULL);
}

static void forget_capture(void)
{
    int open = atomic_load(&compute_captures);

    while (open > 0 && !atomic_compare_exchange_weak(&compute_captures, &open, open - 1))
        ;
}

void compute_hold_captures(void)
{
    lock_read(&capturing);
}

void compute_end_captured(void)
{
    unlock_rwlock(&capturing);
}

bool compute_begin_captured(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    if (!atomic_load_explicit(&compute_captures, memory_order_relaxed))
        return false;
    compute_hold_captures();
    if (per_thread && HAS(cuStreamIsCapturing_ptsz))
        (void)REAL(cuStreamIsCapturing_ptsz)(stream, &status);
    else if (HAS(cuStreamIsCapturing))
        (void)REAL(cuStreamIsCapturing)(stream, &status);
    if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return true;
    compute_end_captured();
    return false;
}

CUresult compute_stream_device(CUstream stream, bool per_thread, struct vgpu_device **ret_device)
{
    CUcontext context = NULL;
    struct inside inside;
    CUdevice device = -1;
    CUresult result;

    if (per_thread && HAS(cuStreamGetCtx_ptsz))
        result = REAL(cuStreamGetCtx_ptsz)(stream, &context);
    else
        result = REAL(cuStreamGetCtx)(stream, &context);
    if (result != CUDA_SUCCESS)
        return result;
    inside = compute_enter(compute_looked_in(stream, context));
    result = REAL(cuCtxGetDevice)(&device);
    compute_leave(&inside);
    *ret_device = result == CUDA_SUCCESS ? vgpu_device(device) : NULL;
    return result == CUDA_SUCCESS && !*ret_device ? CUDA_ERROR_INVALID_DEVICE : result;
}

/* With its lock held; NULL when nothing is measured in the stream's context. */
struct compute_row *compute_capture_begins(CUstream stream)
{
    const struct launch where = {.stream = stream};
    CUcontext context = vgpu_mode() == VGPU_ON ? compute_context_of(&where) : NULL;
    struct compute_row *row = context ? compute_find_row(context) : NULL;

    if (!row)
        return NULL;
    lock_mutex(&row->lock);
    if (row->context == context)
        return row;
    unlock_mutex(&row->lock);
    return NULL;
}

/* While a capture is open each launch is looked at: one in a captured stream runs nothing. */
void compute_capture_began(struct compute_row *row, CUresult result)
{
    if (result == CUDA_SUCCESS) {
        atomic_fetch_add(&compute_captures, 1);
        atomic_fetch_add(&contexts_epoch_now, 1);
    }
    if (row)
        unlock_mutex(&row->lock);
}

void compute_capture_begins_unlocked(void)
{
    atomic_fetch_add(&compute_captures, 1);
    atomic_fetch_add(&contexts_epoch_now, 1);
}

void compute_capture_began_unlocked(CUresult result)
{
    if (result != CUDA_SUCCESS)
        forget_capture();
}

/* Who looks holds the row's lock: it is done before we go on, or sees us. The lock is not held
 * while the driver is called, for a queue that is full keeps the caller until there is room. */
bool compute_join_begins(CUstream stream)
{
    struct compute_row *row;

    if (!atomic_load(&compute_captures))
        return false;
    lock_hold_cancel();
    atomic_fetch_add(&compute_joins, 1);
    row = compute_capture_begins(stream);
    if (row)
        unlock_mutex(&row->lock);
    return true;
}

void compute_join_ended(bool began)
{
    if (!began)
        return;
    atomic_fetch_sub(&compute_joins, 1);
    lock_release_cancel();
}

void compute_capture_ends(void)
{
    lock_write(&capturing);
}

void compute_capture_ended(bool ended)
{
    unlock_rwlock(&capturing);
    if (ended)
        forget_capture();
}
