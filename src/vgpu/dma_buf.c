/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/dma_buf.h"

#include <fcntl.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/kept.h"
#include "base/lock.h"
#include "vgpu/ipc.h"
#include "vgpu/real.h"
#include "vgpu/virtual.h"

enum {
    COPIES = 256, /* descriptors are a program's to count on */
};

/* Over the copies; and over the driver giving one out. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, giving = PTHREAD_MUTEX_INITIALIZER;
static struct kept copies[COPIES];
static unsigned count;
static _Atomic bool any, unseen; /* kept; not kept, and so open for ever */

void dma_bufs_after_fork(void)
{
    (void)pthread_mutex_init(&lock, NULL);
    (void)pthread_mutex_init(&giving, NULL);
    for (unsigned i = 0; i < count; i++)
        kept_close(&copies[i]);
    count = 0;
    atomic_store(&any, false);
    atomic_store(&unseen, false);
}

static long users_of(const struct kept *copy)
{
    char path[64], text[1024];

    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", copy->fd);
    return file_read(path, text, sizeof(text)) < 0 ? -1 : dma_buf_users(text);
}

/* With the lock. False: it is forgotten. */
static bool look_at(struct kept *copy)
{
    if (!kept_is_open(copy)) {
        atomic_store(&unseen, true);
        return false;
    }
    if (users_of(copy) != 1)
        return true;
    kept_close(copy);
    return false;
}

static void look_locked(void)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < count; i++) {
        if (look_at(&copies[i]))
            copies[kept++] = copies[i];
    }
    count = kept;
    atomic_store(&any, count > 0);
}

void dma_bufs_look(void)
{
    if (!atomic_load(&any))
        return;
    lock_mutex(&lock);
    look_locked();
    unlock_mutex(&lock);
}

bool dma_bufs_are_open(void)
{
    return atomic_load(&any) || atomic_load(&unseen);
}

/* With the lock. */
static bool keep_locked(int fd)
{
    look_locked();
    if (count == COPIES || kept_take(&copies[count], fcntl(fd, F_DUPFD_CLOEXEC, 3)) < 0)
        return false;
    count++;
    atomic_store(&any, true);
    return true;
}

static void keep(int fd)
{
    lock_mutex(&lock);
    if (!keep_locked(fd))
        atomic_store(&unseen, true);
    unlock_mutex(&lock);
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
    keep(fd);
    *(int *)handle = take_fd(&fd);
    return CUDA_SUCCESS;
}
