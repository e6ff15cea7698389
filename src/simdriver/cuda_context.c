/* SPDX-License-Identifier: Apache-2.0 */

/* Contexts: primary ones, counted by their users, and others; the stack of each thread. */

#include "base/util.h"
#include "simdriver/addresses.h"
#include "simdriver/guest.h"

enum {
    LIMIT_STACK_SIZE = 0,
    LIMIT_PRINTF_FIFO_SIZE = 1,
    LIMIT_MALLOC_HEAP_SIZE = 2,
    LIMIT_COUNT = 16,
    API_VERSION = 3020,
};

static size_t heap_bytes[SIM_CONTEXTS]; /* the device heap, beyond what every context has */

/* Under the machine's lock: what the context would be charged for with so much more in pieces. */
static uint64_t granules(uint32_t context, uint64_t bytes)
{
    uint64_t granule = (uint64_t)guest_state()->header.driver.granule_bytes;
    uint64_t small = guest.small_bytes[context];

    bytes = (bytes + SIM_ALIGN - 1) / SIM_ALIGN * SIM_ALIGN;
    if (bytes >= granule)
        return (bytes + granule - 1) / granule * granule;
    return (small + bytes + granule - 1) / granule * granule -
           (small + granule - 1) / granule * granule;
}

static uint64_t small_part(uint64_t bytes)
{
    bytes = (bytes + SIM_ALIGN - 1) / SIM_ALIGN * SIM_ALIGN;
    return bytes < (uint64_t)guest_state()->header.driver.granule_bytes ? bytes : 0;
}

bool guest_charge(uint32_t context, uint64_t bytes)
{
    uint64_t more;
    bool fits;

    (void)sim_lock(guest.sim);
    more = granules(context, bytes);
    fits = sim_charge(guest.sim, guest_context(context)->device, more);
    if (fits) {
        guest.charged_bytes[context] += more;
        guest.small_bytes[context] += small_part(bytes);
    }
    sim_unlock(guest.sim);
    return fits;
}

void guest_discharge(uint32_t context, uint64_t bytes)
{
    uint64_t less;

    (void)sim_lock(guest.sim);
    guest.small_bytes[context] -= small_part(bytes);
    less = granules(context, bytes);
    sim_discharge(guest.sim, guest_context(context)->device, less);
    guest.charged_bytes[context] -= less;
    sim_unlock(guest.sim);
}

static CUresult begin_context(unsigned device, uint32_t *ret_context)
{
    struct sim_state *s = guest_state();
    uint32_t context;

    (void)sim_lock(guest.sim);
    context = sim_context_new(s, (unsigned)guest.sim->slot, device, guest.queues);
    sim_unlock(guest.sim);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;

    guest.charged_bytes[context] = 0;
    guest.small_bytes[context] = 0;
    guest.users[context] = 1;
    heap_bytes[context] = 0;
    if (!guest_charge(context, s->header.gpus[device].context_bytes)) {
        (void)sim_lock(guest.sim);
        sim_context_free(s, context);
        sim_unlock(guest.sim);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_context = context;
    return CUDA_SUCCESS;
}

/* With everything in it. */
static void end_context(uint32_t context)
{
    struct sim_state *s = guest_state();
    unsigned device = s->contexts[context].device;
    int64_t now_ns;

    guest_drop_modules(context);
    now_ns = sim_lock(guest.sim);
    sim_advance(s, device, now_ns);
    address_drop(context);
    sim_discharge(guest.sim, device, guest.charged_bytes[context]);
    for (uint32_t i = s->contexts[context].streams; i; i = s->streams[i].sibling)
        guest_drop_capture(i);
    sim_context_free(s, context);
    sim_unlock(guest.sim);
}

/* Primary contexts */

PUBLIC CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult r = guest_check_device(device);
    struct guest_primary *primary;
    uint32_t i;

    if (r != CUDA_SUCCESS)
        return r;
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;

    primary = &guest.primaries[device];
    (void)pthread_mutex_lock(&guest.lock);
    if (!primary->context) {
        r = guest_check_safe();
        if (r == CUDA_SUCCESS)
            r = begin_context(guest.devices[device], &i);
        if (r == CUDA_SUCCESS)
            __atomic_store_n(&primary->context, i, __ATOMIC_RELEASE);
    }
    if (r == CUDA_SUCCESS) {
        primary->users++;
        *context = guest_primary_handle(device);
    }
    (void)pthread_mutex_unlock(&guest.lock);
    return r;
}

/* Those who retained it still have to release it. */
static void end_primary(struct guest_primary *primary)
{
    uint32_t context = primary->context;

    __atomic_store_n(&primary->context, 0, __ATOMIC_RELEASE);
    if (context)
        end_context(context);
}

PUBLIC CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUresult r = guest_check_device(device);
    struct guest_primary *primary;

    if (r != CUDA_SUCCESS)
        return r;

    primary = &guest.primaries[device];
    (void)pthread_mutex_lock(&guest.lock);
    if (primary->users == 0)
        r = CUDA_ERROR_INVALID_CONTEXT;
    else if (primary->users == 1)
        r = guest_check_safe();
    if (r == CUDA_SUCCESS && --primary->users == 0)
        end_primary(primary);
    (void)pthread_mutex_unlock(&guest.lock);
    return r;
}

PUBLIC CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return cuDevicePrimaryCtxRelease_v2(device);
}

PUBLIC CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    CUresult r = guest_check_device(device);

    if (r != CUDA_SUCCESS)
        return r;
    r = guest_check_safe();
    if (r != CUDA_SUCCESS)
        return r;
    (void)pthread_mutex_lock(&guest.lock);
    end_primary(&guest.primaries[device]);
    (void)pthread_mutex_unlock(&guest.lock);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return cuDevicePrimaryCtxReset_v2(device);
}

PUBLIC CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
    CUresult r = guest_check_device(device);

    if (r != CUDA_SUCCESS)
        return r;
    guest.primaries[device].flags = flags;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
    CUresult r = guest_check_device(device);

    if (r != CUDA_SUCCESS)
        return r;
    if (guest.primaries[device].context)
        return CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE;
    return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

PUBLIC CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    CUresult r = guest_check_device(device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!flags || !active)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = guest.primaries[device].flags;
    *active = guest.primaries[device].context != 0;
    return CUDA_SUCCESS;
}

/* Other contexts, and the thread's stack */

PUBLIC CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    CUresult r = guest_check_device(device);
    uint32_t i;

    (void)flags;
    if (r != CUDA_SUCCESS)
        return r;
    r = guest_check_safe();
    if (r != CUDA_SUCCESS)
        return r;
    if (!context || guest_thread.depth == GUEST_STACK)
        return CUDA_ERROR_INVALID_VALUE;

    (void)pthread_mutex_lock(&guest.lock);
    r = begin_context(guest.devices[device], &i);
    (void)pthread_mutex_unlock(&guest.lock);
    if (r != CUDA_SUCCESS)
        return r;
    *context = guest_context_handle(i);
    guest_thread.stack[guest_thread.depth++] = *context;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    return cuCtxCreate_v2(context, flags, device);
}

PUBLIC CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int affinities,
                               unsigned int flags, CUdevice device)
{
    (void)affinity;
    (void)affinities;
    return cuCtxCreate_v2(context, flags, device);
}

PUBLIC CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags,
                               CUdevice device)
{
    (void)params;
    return cuCtxCreate_v2(context, flags, device);
}

PUBLIC CUresult cuCtxDestroy_v2(CUcontext context)
{
    CUresult r = guest_check_safe();
    uint32_t i;

    if (r != CUDA_SUCCESS)
        return r;
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;

    (void)pthread_mutex_lock(&guest.lock);
    if (guest_primary_device(context) >= 0 || !guest_find_context(context, &i))
        r = CUDA_ERROR_INVALID_CONTEXT;
    else
        end_context(i);
    (void)pthread_mutex_unlock(&guest.lock);
    if (r == CUDA_SUCCESS && guest_thread.depth &&
        guest_thread.stack[guest_thread.depth - 1] == context)
        guest_thread.depth--;
    return r;
}

PUBLIC CUresult cuCtxDestroy(CUcontext context)
{
    return cuCtxDestroy_v2(context);
}

static unsigned *users_of(CUcontext context, uint32_t index)
{
    CUdevice device = guest_primary_device(context);

    return device >= 0 ? &guest.primaries[device].users : &guest.users[index];
}

PUBLIC CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
    CUcontext current;
    uint32_t i;
    CUresult r = guest_current(&i);

    if (r != CUDA_SUCCESS)
        return r;
    if (!context || flags)
        return CUDA_ERROR_INVALID_VALUE;
    current = guest_thread.stack[guest_thread.depth - 1];
    (void)pthread_mutex_lock(&guest.lock);
    ++*users_of(current, i);
    (void)pthread_mutex_unlock(&guest.lock);
    *context = current;
    return CUDA_SUCCESS;
}

/* Under guest.lock. The last user ends it. */
static void detach(CUcontext context, uint32_t index)
{
    CUdevice device = guest_primary_device(context);

    if (--*users_of(context, index))
        return;
    if (device >= 0)
        end_primary(&guest.primaries[device]);
    else
        end_context(index);
}

PUBLIC CUresult cuCtxDetach(CUcontext context)
{
    uint32_t i;
    CUresult r = guest_current_safe(&i);
    bool last;

    if (r != CUDA_SUCCESS)
        return r;
    if (context != guest_thread.stack[guest_thread.depth - 1])
        return CUDA_ERROR_INVALID_CONTEXT;
    (void)pthread_mutex_lock(&guest.lock);
    last = *users_of(context, i) == 1;
    detach(context, i);
    (void)pthread_mutex_unlock(&guest.lock);
    guest_thread.depth -= last;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult r = guest_check();
    uint32_t i;

    if (r != CUDA_SUCCESS)
        return r;
    if (!guest_find_context(context, &i))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (guest_thread.depth == GUEST_STACK)
        return CUDA_ERROR_INVALID_VALUE;
    guest_thread.stack[guest_thread.depth++] = context;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuCtxPushCurrent(CUcontext context)
{
    return cuCtxPushCurrent_v2(context);
}

PUBLIC CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!guest_thread.depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    guest_thread.depth--;
    if (context)
        *context = guest_thread.stack[guest_thread.depth];
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuCtxPopCurrent(CUcontext *context)
{
    return cuCtxPopCurrent_v2(context);
}

PUBLIC CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult r = guest_check();
    uint32_t i;

    if (r != CUDA_SUCCESS)
        return r;
    if (!context) {
        guest_thread.depth -= guest_thread.depth > 0;
        return CUDA_SUCCESS;
    }
    if (!guest_find_context(context, &i))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!guest_thread.depth)
        guest_thread.depth = 1;
    guest_thread.stack[guest_thread.depth - 1] = context;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuCtxGetCurrent(CUcontext *context)
{
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    *context = guest_thread.depth ? guest_thread.stack[guest_thread.depth - 1] : NULL;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuCtxGetDevice(CUdevice *device)
{
    uint32_t context;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < guest.device_count; i++) {
        if (guest.devices[i] == guest_context(context)->device)
            *device = (CUdevice)i;
    }
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuCtxGetFlags(unsigned int *flags)
{
    uint32_t context;
    CUresult r = guest_current(&context);
    CUdevice device;

    if (r != CUDA_SUCCESS)
        return r;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    device = guest_primary_device(guest_thread.stack[guest_thread.depth - 1]);
    *flags = device >= 0 ? guest.primaries[device].flags : 0;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
    uint32_t i;
    CUresult r = context ? guest_check() : guest_current(&i);

    if (r != CUDA_SUCCESS)
        return r;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    if (context && !guest_find_context(context, &i))
        return CUDA_ERROR_INVALID_CONTEXT;
    *version = API_VERSION;
    return CUDA_SUCCESS;
}

/* A larger device heap takes memory; the other limits mean nothing here. */
static const size_t default_limits[LIMIT_COUNT] = {
    [LIMIT_STACK_SIZE] = 1024,
    [LIMIT_PRINTF_FIFO_SIZE] = 1 * MIB,
    [LIMIT_MALLOC_HEAP_SIZE] = 8 * MIB,
};

PUBLIC CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    uint32_t context;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!value || limit < 0 || limit >= LIMIT_COUNT)
        return CUDA_ERROR_INVALID_VALUE;
    *value = default_limits[limit];
    if (limit == LIMIT_MALLOC_HEAP_SIZE)
        *value += heap_bytes[context];
    return CUDA_SUCCESS;
}

static CUresult set_heap(uint32_t context, size_t bytes)
{
    size_t more = bytes - MIN(bytes, default_limits[LIMIT_MALLOC_HEAP_SIZE]);
    CUresult r = CUDA_SUCCESS;

    (void)pthread_mutex_lock(&guest.lock);
    if (guest_charge(context, more)) {
        guest_discharge(context, heap_bytes[context]);
        heap_bytes[context] = more;
    } else {
        r = CUDA_ERROR_OUT_OF_MEMORY;
    }
    (void)pthread_mutex_unlock(&guest.lock);
    return r;
}

PUBLIC CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    uint32_t context;
    CUresult r = guest_current_safe(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (limit < 0 || limit >= LIMIT_COUNT)
        return CUDA_ERROR_INVALID_VALUE;
    return limit == LIMIT_MALLOC_HEAP_SIZE ? set_heap(context, value) : CUDA_SUCCESS;
}

PUBLIC CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    uint32_t context;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = 0;
    return CUDA_SUCCESS;
}
