/* SPDX-License-Identifier: Apache-2.0 */

/* Memory: accounted for, not backed. Host memory is the process' own. */

#include <stdlib.h>

#include "base/util.h"
#include "simdriver/addresses.h"
#include "simdriver/guest.h"
#include "simdriver/ranges.h"

enum {
    PITCH = 512,
    HOST_ALIGN = 4096,
    HOST_FLAGS_END = 8, /* behind CU_MEMHOSTALLOC_WRITECOMBINED */
};

static CUresult allocate(uint64_t bytes, bool below_4g, CUdeviceptr *ret_ptr)
{
    uint32_t context;
    CUresult r = guest_current_safe(&context);
    uint64_t address;

    if (r != CUDA_SUCCESS)
        return r;
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > UINT64_MAX - SIM_ALIGN)
        return CUDA_ERROR_OUT_OF_MEMORY;

    if (!guest_charge(context, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    address = below_4g ? address_take_low(bytes, context) : address_take(bytes, context);
    if (!address) {
        guest_discharge(context, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_ptr = address;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
    GUEST_CLEAR(ptr);
    if (!ptr)
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    return allocate(bytes, false, ptr);
}

PUBLIC CUresult cuMemAlloc(CUdeviceptr_v1 *ptr, unsigned int bytes)
{
    CUdeviceptr wide;
    CUresult r = guest_check();

    GUEST_CLEAR(ptr);
    if (r != CUDA_SUCCESS)
        return r;
    if (!ptr)
        return CUDA_ERROR_INVALID_VALUE;
    r = allocate(bytes, true, &wide);
    if (r == CUDA_SUCCESS)
        *ptr = (CUdeviceptr_v1)wide;
    return r;
}

/* The pitch is told as soon as it is known, also where there is no room. */
static CUresult allocate_pitched(size_t width, size_t height, unsigned int element_bytes,
                                 bool below_4g, CUdeviceptr *ret_ptr, size_t *ret_pitch)
{
    size_t pitch, bytes;
    uint32_t context;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!width || !height || (element_bytes != 4 && element_bytes != 8 && element_bytes != 16))
        return CUDA_ERROR_INVALID_VALUE;
    if (width > SIZE_MAX - PITCH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret_pitch = pitch = (width + PITCH - 1) / PITCH * PITCH;
    if (__builtin_mul_overflow(pitch, height, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return allocate(bytes, below_4g, ret_ptr);
}

PUBLIC CUresult cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height,
                                   unsigned int element_bytes)
{
    GUEST_CLEAR(ptr);
    GUEST_CLEAR(pitch);
    if (!ptr || !pitch)
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    return allocate_pitched(width, height, element_bytes, false, ptr, pitch);
}

PUBLIC CUresult cuMemAllocPitch(CUdeviceptr_v1 *ptr, unsigned int *pitch, unsigned int width,
                                unsigned int height, unsigned int element_bytes)
{
    CUdeviceptr wide = 0;
    size_t wide_pitch = 0;
    CUresult r = guest_check();

    GUEST_CLEAR(ptr);
    GUEST_CLEAR(pitch);
    if (r != CUDA_SUCCESS)
        return r;
    if (!ptr || !pitch)
        return CUDA_ERROR_INVALID_VALUE;
    r = allocate_pitched(width, height, element_bytes, true, &wide, &wide_pitch);
    *ptr = (CUdeviceptr_v1)wide;
    *pitch = (unsigned int)wide_pitch;
    return r;
}

/* What is freed needs no context; what is none may have been one's that is gone. */
static CUresult refuse_free(void)
{
    uint32_t context;

    return guest_current(&context) == CUDA_ERROR_CONTEXT_IS_DESTROYED
               ? CUDA_ERROR_CONTEXT_IS_DESTROYED
               : CUDA_ERROR_INVALID_VALUE;
}

PUBLIC CUresult cuMemFree_v2(CUdeviceptr ptr)
{
    CUresult r = guest_check_safe();
    bool found;

    if (r != CUDA_SUCCESS || !ptr)
        return r;
    (void)sim_lock(guest.sim);
    found = guest_free_locked(ptr) || guest_graph_free(ptr);
    sim_unlock(guest.sim);
    return found || guest_pool_free(ptr) ? CUDA_SUCCESS : refuse_free();
}

PUBLIC CUresult cuMemFree(CUdeviceptr_v1 ptr)
{
    return cuMemFree_v2(ptr);
}

static bool find_mapping(uint64_t address, uint64_t *ret_from, uint64_t *ret_bytes)
{
    const struct mapping *mapping;

    (void)pthread_mutex_lock(&guest.lock);
    mapping = range_find(address);
    if (mapping) {
        *ret_from = mapping->from;
        *ret_bytes = mapping->bytes;
    }
    (void)pthread_mutex_unlock(&guest.lock);
    return mapping != NULL;
}

bool guest_range(uint64_t address, uint64_t *ret_from, uint64_t *ret_bytes)
{
    return address_find(address, ret_from, ret_bytes) ||
           find_mapping(address, ret_from, ret_bytes) ||
           guest_pool_range(address, ret_from, ret_bytes) ||
           guest_graph_range(address, ret_from, ret_bytes);
}

bool guest_has(uint64_t address)
{
    uint64_t from, bytes;

    return guest_range(address, &from, &bytes);
}

static bool is_mapped_of_host(uint64_t address)
{
    const struct sim_physical *p = NULL;
    const struct mapping *mapping;
    bool of_host;

    (void)pthread_mutex_lock(&guest.lock);
    (void)sim_lock(guest.sim);
    mapping = range_find(address);
    if (mapping)
        p = &guest_state()->physicals[guest_state()->holds[mapping->hold].physical];
    of_host = p && p->device == SIM_DEVICES && !p->team;
    sim_unlock(guest.sim);
    (void)pthread_mutex_unlock(&guest.lock);
    return of_host;
}

enum guest_kind guest_kind_of(uint64_t address)
{
    unsigned device;
    bool managed;

    (void)sim_lock(guest.sim);
    managed = guest_managed_has(address);
    sim_unlock(guest.sim);
    if (managed)
        return GUEST_DEVICE;
    if (!guest_has(address))
        return GUEST_NOTHING;
    if (guest_pool_of(address, &device) && device == SIM_DEVICES)
        return GUEST_HOST_POOL;
    return is_mapped_of_host(address) ? GUEST_HOST : GUEST_DEVICE;
}

PUBLIC CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr)
{
    uint64_t from, size;
    CUresult r = guest_check();

    GUEST_CLEAR(base);
    GUEST_CLEAR(bytes);
    if (r != CUDA_SUCCESS)
        return r;
    if (!guest_range(ptr, &from, &size))
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = from;
    if (bytes)
        *bytes = size;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    uint32_t context;
    CUresult r = guest_current(&context);
    uint64_t all, used;
    unsigned device;

    if (r != CUDA_SUCCESS)
        return r;
    if (!free_bytes && !total)
        return CUDA_ERROR_INVALID_VALUE;

    device = guest_context(context)->device;
    (void)sim_lock(guest.sim);
    all = sim_spec_of(guest_state(), device)->memory_bytes;
    used = guest_state()->devices[device].used_bytes;
    sim_unlock(guest.sim);
    if (free_bytes)
        *free_bytes = all - MIN(all, used);
    if (total)
        *total = all;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total)
{
    size_t wide_free, wide_total;
    CUresult r = cuMemGetInfo_v2(&wide_free, &wide_total);

    if (r != CUDA_SUCCESS)
        return r;
    if (!free_bytes || !total)
        return CUDA_ERROR_INVALID_VALUE;
    *free_bytes = (unsigned int)MIN(wide_free, (size_t)UINT32_MAX);
    *total = (unsigned int)MIN(wide_total, (size_t)UINT32_MAX);
    return CUDA_SUCCESS;
}

/* Host memory */

PUBLIC CUresult cuMemHostAlloc(void **ptr, size_t bytes, unsigned int flags)
{
    uint32_t context;
    CUresult r = guest_current_safe(&context);

    GUEST_CLEAR(ptr);
    if (r != CUDA_SUCCESS)
        return r;
    if (!ptr || flags >= HOST_FLAGS_END)
        return CUDA_ERROR_INVALID_VALUE;
    if (!bytes)
        return CUDA_SUCCESS;
    return posix_memalign(ptr, HOST_ALIGN, bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

PUBLIC CUresult cuMemAllocHost_v2(void **ptr, size_t bytes)
{
    return cuMemHostAlloc(ptr, bytes, 0);
}

PUBLIC CUresult cuMemAllocHost(void **ptr, unsigned int bytes)
{
    return cuMemHostAlloc(ptr, bytes, 0);
}

PUBLIC CUresult cuMemFreeHost(void *ptr)
{
    CUresult r = guest_check_safe();

    if (r != CUDA_SUCCESS)
        return r;
    free(ptr);
    return CUDA_SUCCESS;
}

/* What is registered, in a process of any context; it stays the program's own memory. */

enum {
    REGISTERED_MAX = 4096,
};

static struct {
    pthread_mutex_t lock;
    unsigned count;
    struct {
        uintptr_t from, bytes;
    } list[REGISTERED_MAX];
} registered = {.lock = PTHREAD_MUTEX_INITIALIZER};

static CUresult enter_registered(uintptr_t from, uintptr_t bytes)
{
    for (unsigned i = 0; i < registered.count; i++) {
        if (from < registered.list[i].from + registered.list[i].bytes &&
            registered.list[i].from < from + bytes)
            return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    if (registered.count == REGISTERED_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    registered.list[registered.count].from = from;
    registered.list[registered.count++].bytes = bytes;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemHostRegister_v2(void *ptr, size_t bytes, unsigned int flags)
{
    uint32_t context;
    CUresult r = guest_current_safe(&context);

    (void)flags;
    if (r != CUDA_SUCCESS)
        return r;
    if (!ptr || !bytes || bytes > UINTPTR_MAX - (uintptr_t)ptr)
        return CUDA_ERROR_INVALID_VALUE;
    (void)pthread_mutex_lock(&registered.lock);
    r = enter_registered((uintptr_t)ptr, bytes);
    (void)pthread_mutex_unlock(&registered.lock);
    return r;
}

PUBLIC CUresult cuMemHostRegister(void *ptr, size_t bytes, unsigned int flags)
{
    return cuMemHostRegister_v2(ptr, bytes, flags);
}

PUBLIC CUresult cuMemHostUnregister(void *ptr)
{
    uint32_t context;
    CUresult r = guest_current_safe(&context);
    unsigned i = 0;

    if (r != CUDA_SUCCESS)
        return r;
    (void)pthread_mutex_lock(&registered.lock);
    while (i < registered.count && registered.list[i].from != (uintptr_t)ptr)
        i++;
    if (i < registered.count)
        registered.list[i] = registered.list[--registered.count];
    else
        r = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    (void)pthread_mutex_unlock(&registered.lock);
    return r;
}
