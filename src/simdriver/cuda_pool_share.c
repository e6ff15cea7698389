/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Sharing pools. A descriptor that stands for a pool is one of an anonymous file that says of which
 * device and whose it is; a pointer is given out as the piece of memory that its chunk is, on which
 * whoever imports it has a hold (physical.h): so it lasts until the last of them has let go of it.
 */

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/util.h"
#include "simdriver/physical.h"
#include "simdriver/shared_pool.h"

#define POOL_MAGIC UINT64_C(0x6c6f6f7065726168)    /* "harepool" */
#define POINTER_MAGIC UINT64_C(0x7265746e696f7061) /* "apointer" */

struct label {
    uint64_t magic;
    uint64_t dev, ino; /* the machine's */
    uint32_t device;
    uint32_t maker; /* slot of the process */
    uint64_t pool;
};

/* What the 64 bytes say. */
struct ticket {
    uint64_t magic;
    uint64_t dev, ino;
    uint32_t physical, gen;
    uint64_t offset, bytes;
    uint32_t device;
    uint32_t reserved[3];
};

_Static_assert(sizeof(struct ticket) == sizeof(CUmemPoolPtrExportData), "all of it");

struct imported {
    uint64_t address, bytes; /* as the piece was asked for */
    uint32_t hold;
    struct heap *heap; /* whose figures count it */
    struct imported *next;
};

static struct imported *imports;

static void enter(void)
{
    (void)pthread_mutex_lock(&guest.lock);
    (void)sim_lock(guest.sim);
}

static void leave(void)
{
    sim_unlock(guest.sim);
    (void)pthread_mutex_unlock(&guest.lock);
}

/* What the pool's figures count of it. */
static uint64_t counted_bytes(const struct imported *row)
{
    return (row->bytes + SIM_ALIGN - 1) / SIM_ALIGN * SIM_ALIGN;
}

/* Pools */

static CUresult make_file(const struct label *label, int *ret_fd)
{
    AUTOCLOSE int fd = memfd_create("hami-sim-pool", MFD_CLOEXEC);

    if (fd < 0 || pwrite(fd, label, sizeof(*label), 0) != sizeof(*label))
        return CUDA_ERROR_OPERATING_SYSTEM;
    *ret_fd = take_fd(&fd);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool handle,
                                                 CUmemAllocationHandleType type,
                                                 unsigned long long flags)
{
    struct label label = {.magic = POOL_MAGIC, .pool = (uint64_t)(uintptr_t)handle};
    const struct heap *heap;
    CUresult r = guest_check();
    bool imported;

    if (r != CUDA_SUCCESS)
        return r;
    if (!shareable || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    enter();
    heap = shared_pool_find(handle, &imported);
    if (heap && heap->shared && !imported) {
        label.dev = guest.sim->dev;
        label.ino = guest.sim->ino;
        label.device = heap->place.device;
        label.maker = (uint32_t)guest.sim->slot;
    } else {
        r = CUDA_ERROR_INVALID_VALUE;
    }
    leave();
    return r == CUDA_SUCCESS ? make_file(&label, shareable) : r;
}

static bool is_pool(int fd, struct label *ret_label)
{
    return fd >= 0 && pread(fd, ret_label, sizeof(*ret_label), 0) == sizeof(*ret_label) &&
           ret_label->magic == POOL_MAGIC && ret_label->dev == guest.sim->dev &&
           ret_label->ino == guest.sim->ino && sim_is_device(guest_state(), ret_label->device);
}

PUBLIC CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *shareable,
                                                   CUmemAllocationHandleType type,
                                                   unsigned long long flags)
{
    CUmemoryPool made;
    struct label label;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!pool || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !is_pool((int)(intptr_t)shareable, &label))
        return CUDA_ERROR_INVALID_VALUE;
    enter();
    made = shared_pool_new(label.device);
    leave();
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pool = made;
    return CUDA_SUCCESS;
}

/* Pointers */

PUBLIC CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr ptr)
{
    struct ticket ticket = {.magic = POINTER_MAGIC};
    CUresult r = guest_check();
    bool found;

    if (r != CUDA_SUCCESS)
        return r;
    if (!data)
        return CUDA_ERROR_INVALID_VALUE;
    enter();
    ticket.dev = guest.sim->dev;
    ticket.ino = guest.sim->ino;
    found = heap_locate(ptr, &ticket.physical, &ticket.offset, &ticket.bytes);
    if (found) {
        ticket.gen = guest_state()->physicals[ticket.physical].gen;
        ticket.device = guest_state()->physicals[ticket.physical].device;
    }
    leave();
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(data, &ticket, sizeof(ticket));
    return CUDA_SUCCESS;
}

static bool is_alive(const struct ticket *ticket, const struct heap *heap)
{
    const struct sim_physical *p = &guest_state()->physicals[ticket->physical % SIM_PHYSICALS];

    return ticket->magic == POINTER_MAGIC && ticket->dev == guest.sim->dev &&
           ticket->ino == guest.sim->ino && ticket->physical && ticket->physical < SIM_PHYSICALS &&
           p->owner && p->gen == ticket->gen && ticket->device == heap->place.device;
}

static CUresult import(struct heap *heap, const struct ticket *ticket, CUdeviceptr *ret)
{
    AUTOFREE struct imported *row = calloc(1, sizeof(*row));

    if (!is_alive(ticket, heap))
        return CUDA_ERROR_INVALID_VALUE;
    if (!row)
        return CUDA_ERROR_OUT_OF_MEMORY;
    row->bytes = ticket->bytes;
    row->address = heap_addresses(counted_bytes(row));
    row->hold = row->address ? sim_hold_new(guest.sim, ticket->physical) : 0;
    if (!row->hold)
        return CUDA_ERROR_OUT_OF_MEMORY;
    row->heap = heap;
    row->next = imports;
    heap->used_bytes += counted_bytes(row);
    heap->used_high = MAX(heap->used_high, heap->used_bytes);
    *ret = row->address;
    imports = TAKE(row);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemPoolImportPointer(CUdeviceptr *ptr, CUmemoryPool pool,
                                       CUmemPoolPtrExportData *data)
{
    struct ticket ticket;
    CUresult r = guest_check();
    struct heap *heap;
    bool imported;

    GUEST_CLEAR(ptr);
    if (r != CUDA_SUCCESS)
        return r;
    if (!ptr || !data)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&ticket, data, sizeof(ticket));
    enter();
    heap = shared_pool_find(pool, &imported);
    r = heap && imported ? import(heap, &ticket, ptr) : CUDA_ERROR_INVALID_VALUE;
    leave();
    return r;
}

bool shared_pool_free(uint64_t address)
{
    struct imported **at = &imports, *row;

    while (*at && (*at)->address != address)
        at = &(*at)->next;
    row = *at;
    if (!row)
        return false;
    *at = row->next;
    row->heap->used_bytes -= MIN(row->heap->used_bytes, counted_bytes(row));
    sim_hold_drop(guest_state(), row->hold);
    free(row);
    return true;
}

bool shared_pool_range(uint64_t address, uint64_t *ret_from, uint64_t *ret_bytes)
{
    const struct imported *row = imports;

    while (row && address - row->address >= row->bytes)
        row = row->next;
    if (!row)
        return false;
    *ret_from = row->address;
    *ret_bytes = row->bytes;
    return true;
}
