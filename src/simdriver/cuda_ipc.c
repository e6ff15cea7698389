/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory and events that one process gives another by 64 bytes.
 *
 * Memory that is shared so is counted as a piece of its own from then on (physical.h), on which its
 * maker and whoever opened it have a hold each: so it lasts until the last of them has freed or
 * closed it, or is dead. Until it is shared it is its context's as all that cuMemAlloc gives out.
 */

#include <stdlib.h>

#include "base/util.h"
#include "simdriver/addresses.h"
#include "simdriver/guest.h"
#include "simdriver/physical.h"
#include "simdriver/ranges.h"

#define MEMORY_MAGIC UINT64_C(0x79726f6d656d6970) /* "pimemory" */
#define RANGE_PAGE 4096u                          /* of the host */
#define EVENT_MAGIC UINT64_C(0x746e657665637069)  /* "ipcevent" */

/* What the 64 bytes say. */
struct ticket {
    uint64_t magic;
    uint64_t dev, ino; /* the machine's */
    uint32_t index, gen;
    uint32_t maker; /* slot of the process */
    uint32_t reserved[5];
    uint64_t bytes; /* of memory, as it was asked for */
};

_Static_assert(sizeof(struct ticket) == sizeof(CUipcMemHandle), "all of it");

/* What this process shares. Under the machine's lock. */
struct shared {
    uint64_t address, bytes;
    uint32_t context, hold;
    uint32_t opens; /* 0: it is ours */
};

static struct {
    struct shared *list;
    size_t count, size;
} shared;

static struct shared *find_address(uint64_t address)
{
    for (size_t i = 0; i < shared.count; i++) {
        if (shared.list[i].address == address)
            return &shared.list[i];
    }
    return NULL;
}

/* Ours, or opened in a context. */
static struct shared *find_physical(uint32_t physical, uint32_t context)
{
    for (size_t i = 0; i < shared.count; i++) {
        const struct shared *row = &shared.list[i];

        if (guest_state()->holds[row->hold].physical == physical &&
            (!row->opens || row->context == context))
            return &shared.list[i];
    }
    return NULL;
}

static bool grow(void)
{
    size_t size = shared.size ? 2 * shared.size : 64;
    void *list;

    if (shared.count < shared.size)
        return true;
    list = realloc(shared.list, size * sizeof(*shared.list));
    if (!list)
        return false;
    shared.list = list;
    shared.size = size;
    return true;
}

static void end(struct shared *row)
{
    sim_hold_drop(guest_state(), row->hold);
    *row = shared.list[--shared.count];
}

bool guest_free_locked(uint64_t address)
{
    struct shared *row = find_address(address);
    uint32_t context;
    uint64_t bytes;

    if ((row && row->opens) || guest_graphics_has(address))
        return false;
    if (guest_managed_free(address) || guest_external_free(address))
        return true;
    if (!address_give(address, &bytes, &context))
        return false;
    if (row)
        end(row);
    else
        guest_discharge_locked(context, bytes);
    return true;
}

void guest_ipc_drop(uint32_t context)
{
    for (size_t i = shared.count; i > 0; i--) {
        if (shared.list[i - 1].context == context)
            end(&shared.list[i - 1]);
    }
}

/* Memory */

static struct ticket make_ticket(uint64_t magic, uint32_t index, uint32_t gen)
{
    return (struct ticket){
        .magic = magic,
        .dev = guest.sim->dev,
        .ino = guest.sim->ino,
        .index = index,
        .gen = gen,
        .maker = (uint32_t)guest.sim->slot,
    };
}

static bool is_of_machine(const struct ticket *ticket, uint64_t magic)
{
    return ticket->magic == magic && ticket->dev == guest.sim->dev && ticket->ino == guest.sim->ino;
}

/* From its context's count to that of pieces. */
static CUresult move_out(uint64_t address, uint64_t bytes, uint32_t context,
                         struct shared **ret_row)
{
    uint64_t granule = (uint64_t)guest_state()->header.driver.granule_bytes;
    struct sim_physical asked = {
        .device = guest_context(context)->device,
        .location_type = CU_MEM_LOCATION_TYPE_DEVICE,
        .bytes = (bytes + granule - 1) / granule * granule,
    };
    uint32_t hold;

    if (!grow())
        return CUDA_ERROR_OUT_OF_MEMORY;
    guest_discharge_locked(context, bytes);
    hold = sim_physical_new(guest.sim, &asked);
    if (!hold) {
        (void)guest_charge_locked(context, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_row = &shared.list[shared.count++];
    **ret_row = (struct shared){address, bytes, context, hold, 0};
    return CUDA_SUCCESS;
}

static CUresult get_memory(CUdeviceptr ptr, struct ticket *ret)
{
    uint64_t from, bytes;
    struct shared *row;
    uint32_t context, physical;
    CUresult r = CUDA_SUCCESS;

    if (guest_managed_has(ptr) || !address_find(ptr, &from, &bytes) ||
        !address_context(from, &context))
        return CUDA_ERROR_INVALID_VALUE;
    row = find_address(from);
    if (row && row->opens)
        return CUDA_ERROR_INVALID_VALUE;
    if (!row)
        r = move_out(from, bytes, context, &row);
    if (r != CUDA_SUCCESS)
        return r;
    physical = guest_state()->holds[row->hold].physical;
    *ret = make_ticket(MEMORY_MAGIC, physical, guest_state()->physicals[physical].gen);
    ret->bytes = bytes;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
    struct ticket ticket;
    uint32_t context;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    r = get_memory(ptr, &ticket);
    sim_unlock(guest.sim);
    if (r == CUDA_SUCCESS)
        memcpy(handle, &ticket, sizeof(ticket));
    return r;
}

/* dma-bufs, for network cards and the like */

static CUresult find_piece(CUdeviceptr ptr, size_t bytes, uint32_t *ret_physical)
{
    const struct mapping *mapping = range_find(ptr);
    uint64_t from, size;
    struct ticket ticket;
    CUresult r;

    if (mapping) {
        *ret_physical = guest_state()->holds[mapping->hold].physical;
        return ptr - mapping->from + bytes <= mapping->bytes ? CUDA_SUCCESS
                                                             : CUDA_ERROR_INVALID_VALUE;
    }
    if (!address_find(ptr, &from, &size) || ptr - from + bytes > size)
        return CUDA_ERROR_INVALID_VALUE;
    r = get_memory(ptr, &ticket);
    *ret_physical = ticket.index;
    return r;
}

static CUresult give_range(CUdeviceptr ptr, size_t bytes, int *ret_fd)
{
    const struct sim_physical *piece;
    uint32_t physical = 0;
    CUresult r = find_piece(ptr, bytes, &physical);

    if (r != CUDA_SUCCESS)
        return r;
    piece = &guest_state()->physicals[physical];
    if (piece->device >= SIM_DEVICES)
        return piece->team ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    *ret_fd = sim_export_new(guest.sim, physical, true);
    return *ret_fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

PUBLIC CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr ptr, size_t bytes,
                                              CUmemRangeHandleType type, unsigned long long flags)
{
    uint32_t context;
    CUresult r = guest_current(&context);
    int fd;

    if (r != CUDA_SUCCESS)
        return r;
    if (!handle || !bytes || bytes > SIZE_MAX / 2 || ptr % RANGE_PAGE || bytes % RANGE_PAGE ||
        type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags)
        return CUDA_ERROR_INVALID_VALUE;
    (void)pthread_mutex_lock(&guest.lock);
    (void)sim_lock(guest.sim);
    r = give_range(ptr, bytes, &fd);
    sim_unlock(guest.sim);
    (void)pthread_mutex_unlock(&guest.lock);
    if (r == CUDA_SUCCESS)
        *(int *)handle = fd;
    return r;
}

static bool is_living_memory(const struct ticket *ticket)
{
    const struct sim_physical *p = &guest_state()->physicals[ticket->index % SIM_PHYSICALS];

    return is_of_machine(ticket, MEMORY_MAGIC) && ticket->index && ticket->index < SIM_PHYSICALS &&
           p->owner && p->gen == ticket->gen && ticket->bytes && ticket->bytes <= p->bytes;
}

static CUresult open_anew(const struct ticket *ticket, uint32_t context, CUdeviceptr *ret_ptr)
{
    uint32_t hold = grow() ? sim_hold_new(guest.sim, ticket->index) : 0;
    uint64_t address;

    if (!hold)
        return CUDA_ERROR_OUT_OF_MEMORY;
    address = address_take(ticket->bytes, context);
    if (!address) {
        sim_hold_drop(guest_state(), hold);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    shared.list[shared.count++] = (struct shared){address, ticket->bytes, context, hold, 1};
    *ret_ptr = address;
    return CUDA_SUCCESS;
}

static CUresult open_memory(const struct ticket *ticket, uint32_t context, CUdeviceptr *ret_ptr)
{
    struct shared *row;

    if (!is_living_memory(ticket))
        return CUDA_ERROR_INVALID_VALUE;
    row = find_physical(ticket->index, context);
    if (row && !row->opens)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (guest_state()->physicals[ticket->index].device != guest_context(context)->device)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (!row)
        return open_anew(ticket, context, ret_ptr);
    row->opens++;
    *ret_ptr = row->address;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
{
    struct ticket ticket;
    uint32_t context;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    /* What is no handle is found out first, whether a context is current or not. */
    memcpy(&ticket, &handle, sizeof(ticket));
    if (!is_of_machine(&ticket, MEMORY_MAGIC))
        return CUDA_ERROR_INVALID_VALUE;
    r = guest_current_safe(&context);
    if (r != CUDA_SUCCESS)
        return r;
    if (!ptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    r = open_memory(&ticket, context, ptr);
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuIpcOpenMemHandle(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
{
    return cuIpcOpenMemHandle_v2(ptr, handle, flags);
}

static CUresult close_memory(CUdeviceptr ptr)
{
    struct shared *row = find_address(ptr);
    uint32_t context;
    uint64_t bytes;

    if (!row || !row->opens)
        return CUDA_ERROR_INVALID_VALUE;
    if (--row->opens)
        return CUDA_SUCCESS;
    (void)address_give(ptr, &bytes, &context);
    end(row);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuIpcCloseMemHandle(CUdeviceptr ptr)
{
    uint32_t context;
    CUresult r = guest_current_safe(&context);

    if (r != CUDA_SUCCESS)
        return r;
    (void)sim_lock(guest.sim);
    r = close_memory(ptr);
    sim_unlock(guest.sim);
    return r;
}

/* Events */

PUBLIC CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event)
{
    struct ticket ticket;
    CUresult r = guest_check();
    uint32_t i;

    if (r != CUDA_SUCCESS)
        return r;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    if (guest_find_own_event(event, &i) && (guest_state()->events[i].flags & CU_EVENT_INTERPROCESS))
        ticket = make_ticket(EVENT_MAGIC, i, guest_state()->events[i].gen);
    else
        r = CUDA_ERROR_INVALID_HANDLE;
    sim_unlock(guest.sim);
    if (r == CUDA_SUCCESS)
        memcpy(handle, &ticket, sizeof(ticket));
    return r;
}

static bool is_living_event(const struct ticket *ticket)
{
    const struct sim_event *event = &guest_state()->events[ticket->index % SIM_EVENTS];

    return is_of_machine(ticket, EVENT_MAGIC) && ticket->index && ticket->index < SIM_EVENTS &&
           event->owner && event->gen == ticket->gen && !(event->flags & SIM_EVENT_OPENED);
}

/* It is the other one in all but its end. */
static CUresult open_event(const struct ticket *ticket, uint32_t context, CUevent *ret_event)
{
    struct sim_event *event;
    uint32_t i;

    if (!is_of_machine(ticket, EVENT_MAGIC))
        return CUDA_ERROR_MAP_FAILED;
    if (!is_living_event(ticket))
        return CUDA_ERROR_INVALID_HANDLE;
    if (ticket->maker == (uint32_t)guest.sim->slot)
        return CUDA_ERROR_INVALID_CONTEXT;
    i = sim_event_new(guest_state(), context, CU_EVENT_DISABLE_TIMING | (unsigned)SIM_EVENT_OPENED);
    if (!i)
        return CUDA_ERROR_OUT_OF_MEMORY;
    event = &guest_state()->events[i];
    event->stream = ticket->index;
    event->stream_gen = ticket->gen;
    *ret_event = guest_event_handle(i, guest_state()->events[i].gen);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle)
{
    struct ticket ticket;
    uint32_t context;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!event)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&ticket, &handle, sizeof(ticket));
    (void)sim_lock(guest.sim);
    r = open_event(&ticket, context, event);
    sim_unlock(guest.sim);
    return r;
}
