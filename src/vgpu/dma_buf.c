/* SPDX-License-Identifier: Apache-2.0 */

/*
 * dma-bufs: descriptors of the kernel's by which network cards and other devices reach the memory
 * of this one. Such a descriptor, and whatever has it mapped, keeps the memory (given.h).
 */

#include "base/cleanup.h"
#include "base/lock.h"
#include "vgpu/ipc.h"
#include "vgpu/real.h"
#include "vgpu/virtual.h"

/* Over the driver giving one out. */
static pthread_mutex_t giving = PTHREAD_MUTEX_INITIALIZER;

void dma_bufs_after_fork(void)
{
    (void)pthread_mutex_init(&giving, NULL);
}

struct range {
    CUdeviceptr ptr;
    size_t bytes;
    CUmemRangeHandleType type;
    unsigned long long flags;
};

static CUresult ask_driver(void *ret_fd, const void *data)
{
    const struct range *range = data;

    return REAL(cuMemGetHandleForAddressRange)(ret_fd, range->ptr, range->bytes, range->type,
                                               range->flags);
}

/* What the range is of stays charged after its end. *ret_known: it is something of ours. */
static CUresult give(int *ret_fd, const struct range *range, bool *ret_known)
{
    CUresult result;

    *ret_known = true;
    if (virtual_give_dma_buf(range->ptr, range->bytes, ask_driver, ret_fd, range, &result))
        return result;
    lock_mutex(&giving);
    result = ipc_give_dma_buf(range->ptr, ask_driver, ret_fd, range, ret_known);
    unlock_mutex(&giving);
    return result;
}

PUBLIC CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr ptr, size_t bytes,
                                              CUmemRangeHandleType type, unsigned long long flags)
{
    const struct range range = {ptr, bytes, type, flags};
    AUTOCLOSE int fd = -1;
    CUresult result;
    bool known;

    if (vgpu_mode() != VGPU_ON || !handle || type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
        return REAL(cuMemGetHandleForAddressRange)(handle, ptr, bytes, type, flags);
    result = give(&fd, &range, &known);
    if (result != CUDA_SUCCESS)
        return result;
    if (!known && vgpu_refuses(VGPU_WORD_UNACCOUNTED, "cuMemGetHandleForAddressRange",
                               "nobody could tell when that memory has gone"))
        return CUDA_ERROR_NOT_SUPPORTED;
    *(int *)handle = take_fd(&fd);
    return CUDA_SUCCESS;
}
