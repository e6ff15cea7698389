/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Managed memory: takes nothing where it is made, and what of it is on a device came there by a
 * prefetch or a kernel that touched it, 2 MiB at a time. What is said of a part of it is said of
 * the pieces of that size that it lies in.
 *
 * Pages give way to other memory of any process, which only sees the sums: so a piece may be gone
 * from its device though its row here does not say so, and is counted to the sums no more than
 * once.
 */

#include <stdlib.h>

#include "base/util.h"
#include "simdriver/addresses.h"
#include "simdriver/guest.h"

#define PIECE (2 * MIB)
#define NOWHERE GUEST_PLACE_NONE
#define HOST GUEST_PLACE_HOST

/* Places are CUdevices. */
struct piece {
    int8_t on; /* a device, else HOST */
    int8_t preferred, prefetched;
    uint8_t read_mostly;
    uint32_t accessed_by; /* a bit a device, and one for the host */
};

struct managed {
    uint64_t address, bytes;
    uint32_t context; /* 0: a pool has it */
    unsigned device;  /* on which it is claimed */
    struct piece *pieces;
};

static struct {
    struct managed *list;
    size_t count, size;
} all; /* under the machine's lock */

#define HOST_BIT (UINT32_C(1) << 31)

static struct managed *find(uint64_t address)
{
    for (size_t i = 0; i < all.count; i++) {
        if (address >= all.list[i].address && address - all.list[i].address < all.list[i].bytes)
            return &all.list[i];
    }
    return NULL;
}

/* The pieces of a range, which lies in one allocation. */
struct range {
    const struct managed *row;
    size_t first, count;
};

static bool find_range(uint64_t address, uint64_t bytes, struct range *ret)
{
    const struct managed *row = find(address);
    uint64_t offset;

    if (!row || !bytes)
        return false;
    offset = address - row->address;
    if (bytes > row->bytes - offset)
        return false;
    ret->row = row;
    ret->first = offset / PIECE;
    ret->count = (offset + bytes + PIECE - 1) / PIECE - ret->first;
    return true;
}

static uint64_t size_of(const struct managed *row, size_t piece)
{
    uint64_t bytes = MIN(PIECE, row->bytes - piece * PIECE);

    return (bytes + SIM_ALIGN - 1) / SIM_ALIGN * SIM_ALIGN;
}

/* Moves */

static void leave(const struct managed *row, size_t piece)
{
    if (row->pieces[piece].on >= 0)
        sim_managed_go(guest.sim, guest.devices[row->pieces[piece].on], size_of(row, piece));
    row->pieces[piece].on = HOST;
}

/* Where there is no room for it, it stays on the host. */
static void move(const struct managed *row, size_t piece, int place)
{
    if (row->pieces[piece].on == place)
        return;
    leave(row, piece);
    if (place >= 0 && sim_managed_come(guest.sim, guest.devices[place], size_of(row, piece)))
        row->pieces[piece].on = (int8_t)place;
}

bool guest_managed_has(uint64_t address)
{
    return find(address) != NULL;
}

/* What is best kept on the host stays there. */
void guest_managed_touch(uint64_t address, unsigned device)
{
    const struct managed *row = find(address);
    int place = 0;

    while ((unsigned)place < guest.device_count && guest.devices[place] != device)
        place++;
    for (size_t i = 0; row && i < (row->bytes + PIECE - 1) / PIECE; i++) {
        if (row->pieces[i].preferred != HOST)
            move(row, i, place);
    }
}

/* Making and freeing */

static void claim(const struct managed *row, uint64_t bytes)
{
    guest_state()->processes[guest.sim->slot].usage[row->device].claimed_bytes += bytes;
}

static void end(struct managed *row)
{
    for (size_t i = 0; i < (row->bytes + PIECE - 1) / PIECE; i++)
        leave(row, i);
    claim(row, -row->bytes);
    free(row->pieces);
    *row = all.list[--all.count];
}

bool guest_managed_free(uint64_t address)
{
    struct managed *row = find(address);
    uint32_t context;
    uint64_t bytes;

    if (!row || row->address != address || !address_give(address, &bytes, &context))
        return false;
    end(row);
    return true;
}

void guest_managed_drop(uint32_t context)
{
    for (size_t i = all.count; i > 0; i--) {
        if (all.list[i - 1].context == context)
            end(&all.list[i - 1]);
    }
}

static bool grow(void)
{
    size_t size = all.size ? 2 * all.size : 64;
    void *list;

    if (all.count < all.size)
        return true;
    list = realloc(all.list, size * sizeof(*all.list));
    if (!list)
        return false;
    all.list = list;
    all.size = size;
    return true;
}

/* What has its address; it is on the host. */
static bool add(struct managed row, int preferred)
{
    size_t count = (row.bytes + PIECE - 1) / PIECE;

    if (!grow())
        return false;
    row.pieces = calloc(count, sizeof(*row.pieces));
    if (!row.pieces)
        return false;
    for (size_t i = 0; i < count; i++)
        row.pieces[i] =
            (struct piece){.on = HOST, .preferred = (int8_t)preferred, .prefetched = NOWHERE};
    claim(&row, row.bytes);
    all.list[all.count++] = row;
    return true;
}

uint64_t guest_managed_make(uint64_t bytes, uint32_t context)
{
    struct managed row = {
        .bytes = (bytes + SIM_ALIGN - 1) / SIM_ALIGN * SIM_ALIGN,
        .address = address_take(bytes, context),
        .context = context,
        .device = guest_context(context)->device,
    };

    if (!row.address)
        return 0;
    if (add(row, NOWHERE))
        return row.address;
    (void)address_give(row.address, &bytes, &context);
    return 0;
}

bool guest_managed_add(uint64_t address, uint64_t bytes, unsigned device, int preferred)
{
    return add((struct managed){.address = address, .bytes = bytes, .device = device}, preferred);
}

void guest_managed_remove(uint64_t address)
{
    end(find(address));
}

PUBLIC CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t bytes, unsigned int flags)
{
    uint32_t context;
    CUresult r = guest_current_safe(&context);
    uint64_t address;

    GUEST_CLEAR(ptr);
    if (r != CUDA_SUCCESS)
        return r;
    if (!ptr || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > UINT64_MAX - SIM_ALIGN)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (void)sim_lock(guest.sim);
    address = guest_managed_make(bytes, context);
    sim_unlock(guest.sim);
    if (!address)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ptr = address;
    return CUDA_SUCCESS;
}

/* What memory is */

static CUresult tell_ordinal(int *ret_device, uint64_t address)
{
    unsigned device = SIM_DEVICES, ordinal = 0;
    uint32_t context;

    if (address_context(address, &context))
        device = guest_context(context)->device;
    else
        (void)guest_pool_of(address, &device);
    while (ordinal < guest.device_count && guest.devices[ordinal] != device)
        ordinal++;
    if (ordinal == guest.device_count)
        return CUDA_ERROR_NOT_SUPPORTED; /* of other kinds it is not simulated */
    *ret_device = (int)ordinal;
    return CUDA_SUCCESS;
}

static CUresult tell_of(void *data, int attribute, CUdeviceptr ptr)
{
    const enum guest_kind kind = guest_kind_of(ptr);
    unsigned device;
    bool managed;

    (void)sim_lock(guest.sim);
    managed = guest_managed_has(ptr);
    sim_unlock(guest.sim);
    if (kind == GUEST_NOTHING)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return tell_ordinal(data, ptr);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = guest_pool_of(ptr, &device);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned int *)data = managed;
        return CUDA_SUCCESS;
    default:
        *(unsigned int *)data = kind == GUEST_DEVICE ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        return CUDA_SUCCESS;
    }
}

static bool is_told(int attribute)
{
    return attribute == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
           attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
           attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ||
           attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
}

PUBLIC CUresult cuPointerGetAttribute(void *data, int attribute, CUdeviceptr ptr)
{
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!is_told(attribute))
        return CUDA_ERROR_NOT_SUPPORTED; /* no others are simulated */
    return data ? tell_of(data, attribute, ptr) : CUDA_ERROR_INVALID_VALUE;
}

/* What is not so of an address, or of what is none, is zero. */
PUBLIC CUresult cuPointerGetAttributes(unsigned int count, int *attributes, void **data,
                                       CUdeviceptr ptr)
{
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!count || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        if (!is_told(attributes[i]))
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    for (unsigned i = 0; i < count; i++) {
        if (tell_of(data[i], attributes[i], ptr) == CUDA_SUCCESS)
            continue;
        if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
            *(CUmemoryPool *)data[i] = NULL;
        else
            *(unsigned int *)data[i] = 0;
    }
    return CUDA_SUCCESS;
}

/* Prefetching */

static CUresult read_location(const CUmemLocation *location, int *ret_place)
{
    switch (location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        *ret_place = location->id;
        return guest_check_device(location->id);
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        *ret_place = HOST;
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        *ret_place = HOST;
        return location->id == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult read_device(CUdevice device, int *ret_place)
{
    *ret_place = HOST;
    if (device == CU_DEVICE_CPU)
        return guest_check();
    *ret_place = device;
    return guest_check_device(device);
}

/* It is done as it is asked for; in a capture it is not simulated. */
static CUresult prefetch(CUdeviceptr ptr, size_t bytes, int place, CUstream handle, bool per_thread)
{
    struct range range;
    uint32_t stream;
    CUresult r = guest_enter_stream(handle, per_thread, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!find_range(ptr, bytes, &range))
        r = CUDA_ERROR_INVALID_VALUE;
    else if (guest_is_capturing(stream))
        r = CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; r == CUDA_SUCCESS && i < range.count; i++) {
        range.row->pieces[range.first + i].prefetched = (int8_t)place;
        move(range.row, range.first + i, place);
    }
    sim_unlock(guest.sim);
    return r;
}

static CUresult prefetch_to_device(CUdeviceptr ptr, size_t bytes, CUdevice device, CUstream stream,
                                   bool per_thread)
{
    int place;
    CUresult r = read_device(device, &place);

    return r == CUDA_SUCCESS ? prefetch(ptr, bytes, place, stream, per_thread) : r;
}

PUBLIC CUresult cuMemPrefetchAsync(CUdeviceptr ptr, size_t bytes, CUdevice device, CUstream stream)
{
    return prefetch_to_device(ptr, bytes, device, stream, false);
}

PUBLIC CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr ptr, size_t bytes, CUdevice device,
                                        CUstream stream)
{
    return prefetch_to_device(ptr, bytes, device, stream, true);
}

static CUresult prefetch_to_location(CUdeviceptr ptr, size_t bytes, const CUmemLocation *location,
                                     unsigned int flags, CUstream stream, bool per_thread)
{
    int place;
    CUresult r = guest_check();

    if (r == CUDA_SUCCESS)
        r = flags ? CUDA_ERROR_INVALID_VALUE : read_location(location, &place);
    return r == CUDA_SUCCESS ? prefetch(ptr, bytes, place, stream, per_thread) : r;
}

PUBLIC CUresult cuMemPrefetchAsync_v2(CUdeviceptr ptr, size_t bytes, CUmemLocation location,
                                      unsigned int flags, CUstream stream)
{
    return prefetch_to_location(ptr, bytes, &location, flags, stream, false);
}

PUBLIC CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr ptr, size_t bytes, CUmemLocation location,
                                           unsigned int flags, CUstream stream)
{
    return prefetch_to_location(ptr, bytes, &location, flags, stream, true);
}

/* Advice */

static uint32_t bit_of(int place)
{
    return place == HOST ? HOST_BIT : UINT32_C(1) << place;
}

static void advise_piece(struct piece *piece, CUmem_advise advice, int place)
{
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        piece->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        return;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        piece->preferred = (int8_t)place;
        return;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        piece->preferred = NOWHERE;
        return;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        piece->accessed_by |= bit_of(place);
        return;
    default:
        piece->accessed_by &= ~bit_of(place);
    }
}

/* Where a place says nothing the driver does not look at it. */
static bool has_place(CUmem_advise advice)
{
    return advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
           advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
}

static CUresult advise(CUdeviceptr ptr, size_t bytes, CUmem_advise advice, int place)
{
    struct range range;
    CUresult r = CUDA_SUCCESS;

    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    if (!find_range(ptr, bytes, &range))
        r = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; r == CUDA_SUCCESS && i < range.count; i++)
        advise_piece(&range.row->pieces[range.first + i], advice, place);
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuMemAdvise(CUdeviceptr ptr, size_t bytes, CUmem_advise advice, CUdevice device)
{
    int place = HOST;
    CUresult r = has_place(advice) ? read_device(device, &place) : guest_check();

    return r == CUDA_SUCCESS ? advise(ptr, bytes, advice, place) : r;
}

PUBLIC CUresult cuMemAdvise_v2(CUdeviceptr ptr, size_t bytes, CUmem_advise advice,
                               CUmemLocation location)
{
    int place = HOST;
    CUresult r = guest_check();

    if (r == CUDA_SUCCESS && has_place(advice))
        r = read_location(&location, &place);
    return r == CUDA_SUCCESS ? advise(ptr, bytes, advice, place) : r;
}

/* Questions */

static int one_of(const struct piece *piece, CUmem_range_attribute attribute)
{
    if (attribute == CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY)
        return piece->read_mostly;
    return attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION ? piece->preferred
                                                                  : piece->prefetched;
}

/* What is not the same for the whole range is so for none. */
static int same_of(const struct range *range, CUmem_range_attribute attribute)
{
    int value = one_of(&range->row->pieces[range->first], attribute);

    for (size_t i = 1; i < range->count; i++) {
        if (one_of(&range->row->pieces[range->first + i], attribute) != value)
            return attribute == CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY ? 0 : NOWHERE;
    }
    return value;
}

static void list_accessing(const struct range *range, int *list, size_t count)
{
    uint32_t by = UINT32_MAX;
    size_t at = 0;

    for (size_t i = 0; i < range->count; i++)
        by &= range->row->pieces[range->first + i].accessed_by;
    for (unsigned i = 0; i < guest.device_count && at < count; i++) {
        if (by & bit_of((int)i))
            list[at++] = (int)i;
    }
    if ((by & HOST_BIT) && at < count)
        list[at++] = HOST;
    while (at < count)
        list[at++] = NOWHERE;
}

static CUresult tell(void *data, size_t size, CUmem_range_attribute attribute,
                     const struct range *range)
{
    bool is_list = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;

    if (!data || size < sizeof(int) || size % sizeof(int) || (!is_list && size != sizeof(int)) ||
        attribute < CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY ||
        attribute > CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_list)
        list_accessing(range, data, size / sizeof(int));
    else
        *(int *)data = same_of(range, attribute);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemRangeGetAttributes(void **data, size_t *sizes,
                                        CUmem_range_attribute *attributes, size_t count,
                                        CUdeviceptr ptr, size_t bytes)
{
    struct range range;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!data || !sizes || !attributes || !count)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    if (!find_range(ptr, bytes, &range))
        r = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; r == CUDA_SUCCESS && i < count; i++)
        r = tell(data[i], sizes[i], attributes[i], &range);
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute,
                                       CUdeviceptr ptr, size_t bytes)
{
    return cuMemRangeGetAttributes(&data, &size, &attribute, 1, ptr, bytes);
}

/* Streams: nothing depends on whose it is. */

static CUresult attach(CUstream handle, CUdeviceptr ptr, size_t bytes, unsigned int flags,
                       bool per_thread)
{
    const struct managed *row;
    uint32_t stream;
    CUresult r = guest_enter_stream(handle, per_thread, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    row = find(ptr);
    if (!row || row->address != ptr || (bytes && bytes != row->bytes))
        r = CUDA_ERROR_INVALID_VALUE;
    else if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
             (flags != CU_MEM_ATTACH_SINGLE || !handle))
        r = CUDA_ERROR_INVALID_VALUE;
    else if (guest_is_capturing(stream))
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr ptr, size_t bytes,
                                       unsigned int flags)
{
    return attach(stream, ptr, bytes, flags, false);
}

PUBLIC CUresult cuStreamAttachMemAsync_ptsz(CUstream stream, CUdeviceptr ptr, size_t bytes,
                                            unsigned int flags)
{
    return attach(stream, ptr, bytes, flags, true);
}
