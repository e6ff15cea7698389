/* SPDX-License-Identifier: Apache-2.0 */

/* Contexts: primary ones, counted by their users, and others; the stack of each thread. */

#include "base/util.h"
#include "simdriver/addresses.h"
#include "simdriver/green.h"
#include "simdriver/guest.h"

enum {
    LIMIT_STACK_SIZE = 0,
    LIMIT_PRINTF_FIFO_SIZE = 1,
    LIMIT_MALLOC_HEAP_SIZE = 2,
    LIMIT_MAX_L2_FETCH_GRANULARITY = 5,
    LIMIT_COUNT = 9,
    LIMIT_END = 10, /* one is known besides, and not supported */
    L2_FETCH_MAX = 128,
    MAP_HOST = 8,         /* CU_CTX_MAP_HOST, a flag that each context has */
    STACK_THREADS = 2048, /* of a multiprocessor, each with a stack */
    STACK_STEP = 16,      /* in which its limit is kept */
    CREATION_STEPS = 4,   /* in which a context takes its memory */
    API_VERSION = 3020,
};

/* A limit that was set, and what it took beyond what every context has. */
struct limit {
    bool set;
    size_t value;
    uint64_t taken_bytes;
};

static struct limit limits[SIM_CONTEXTS][LIMIT_COUNT];

static uint64_t round_to(uint64_t bytes, uint64_t granule)
{
    return (bytes + granule - 1) / granule * granule;
}

/* With the machine's lock: what the context is charged for so much more in pieces, of which these
 * are small ones. */
static uint64_t granules(uint64_t small, uint64_t bytes)
{
    uint64_t granule = (uint64_t)guest_state()->header.driver.granule_bytes;

    if (bytes > granule / 2)
        return round_to(bytes, granule);
    return round_to(small + bytes, granule) - round_to(small, granule);
}

static uint64_t small_part(uint64_t bytes)
{
    return bytes <= (uint64_t)guest_state()->header.driver.granule_bytes / 2 ? bytes : 0;
}

static bool charge_locked(uint32_t context, uint64_t *small, uint64_t bytes)
{
    uint64_t more;

    bytes = round_to(bytes, SIM_ALIGN);
    more = granules(*small, bytes);
    if (!sim_charge(guest.sim, guest_context(context)->device, more))
        return false;
    guest.charged_bytes[context] += more;
    *small += small_part(bytes);
    return true;
}

static void discharge_locked(uint32_t context, uint64_t *small, uint64_t bytes)
{
    uint64_t less;

    bytes = round_to(bytes, SIM_ALIGN);
    *small -= small_part(bytes);
    less = granules(*small, bytes);
    sim_discharge(guest.sim, guest_context(context)->device, less);
    guest.charged_bytes[context] -= less;
}

bool guest_charge_locked(uint32_t context, uint64_t bytes)
{
    return charge_locked(context, &guest.small_bytes[context], bytes);
}

void guest_discharge_locked(uint32_t context, uint64_t bytes)
{
    discharge_locked(context, &guest.small_bytes[context], bytes);
}

bool guest_charge(uint32_t context, uint64_t bytes)
{
    bool fits;

    (void)sim_lock(guest.sim);
    fits = guest_charge_locked(context, bytes);
    sim_unlock(guest.sim);
    return fits;
}

void guest_discharge(uint32_t context, uint64_t bytes)
{
    (void)sim_lock(guest.sim);
    guest_discharge_locked(context, bytes);
    sim_unlock(guest.sim);
}

bool guest_charge_own_locked(uint32_t context, uint64_t bytes)
{
    return charge_locked(context, &guest.small_own_bytes[context], bytes);
}

bool guest_charge_own(uint32_t context, uint64_t bytes)
{
    bool fits;

    (void)sim_lock(guest.sim);
    fits = guest_charge_own_locked(context, bytes);
    sim_unlock(guest.sim);
    return fits;
}

void guest_discharge_own(uint32_t context, uint64_t bytes)
{
    (void)sim_lock(guest.sim);
    discharge_locked(context, &guest.small_own_bytes[context], bytes);
    sim_unlock(guest.sim);
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
    guest_ipc_drop(context);
    guest_external_drop(context);
    guest_graphics_drop(context);
    guest_managed_drop(context);
    guest_array_drop(context);
    address_drop(context);
    sim_discharge(guest.sim, device, guest.charged_bytes[context]);
    for (uint32_t i = s->contexts[context].streams; i; i = s->streams[i].sibling)
        guest_drop_capture(i);
    sim_context_free(s, context);
    sim_unlock(guest.sim);
}

/* On the machine's clock; whoever else allocates and frees meanwhile does so. */
static void sleep_for(int64_t ns)
{
    int64_t until_ns = sim_now(guest_state()) + ns;

    while (sim_now(guest_state()) < until_ns)
        sim_sleep_until(guest.sim, until_ns);
}

static CUresult take_memory(uint32_t context, uint64_t bytes)
{
    int64_t time_ns = guest_state()->header.driver.context_time_ns;
    const uint64_t granule = (uint64_t)guest_state()->header.driver.granule_bytes;

    if (!time_ns)
        return guest_charge_own(context, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < CREATION_STEPS; i++) {
        uint64_t part = bytes / CREATION_STEPS / granule * granule;

        if (i + 1 == CREATION_STEPS)
            part = bytes - part * i;
        if (!guest_charge_own(context, part))
            return CUDA_ERROR_OUT_OF_MEMORY;
        sleep_for(time_ns / CREATION_STEPS);
    }
    return CUDA_SUCCESS;
}

static CUresult begin_context(unsigned device, uint32_t *ret_context)
{
    struct sim_state *s = guest_state();
    uint32_t context;
    CUresult r;

    (void)sim_lock(guest.sim);
    context = sim_context_new(s, (unsigned)guest.sim->slot, device, guest.queues);
    sim_unlock(guest.sim);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;

    guest.charged_bytes[context] = 0;
    guest.small_bytes[context] = guest.small_own_bytes[context] = 0;
    guest.spare_streams[context] = 0;
    guest.users[context] = 1;
    memset(limits[context], 0, sizeof(limits[context]));
    r = take_memory(context, sim_spec_of(s, device)->context_bytes);
    if (r == CUDA_SUCCESS)
        r = guest_add_libraries(context);
    if (r != CUDA_SUCCESS)
        end_context(context);
    else
        *ret_context = context;
    return r;
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
        r = guest_pass_fault(guest_check_safe());
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
    r = guest_pass_fault(guest_check_safe());
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
    if (flags & MAP_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    guest.primaries[device].flags = flags;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
    CUresult r = guest_check_device(device);

    if (r != CUDA_SUCCESS)
        return r;
    if (guest.primaries[device].context && !(flags & MAP_HOST))
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
    CUresult r = guest_pass_fault(guest_check());
    uint32_t i;

    if (r != CUDA_SUCCESS)
        return r;
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    if (guest_primary_device(context) >= 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    r = guest_pass_fault(guest_check_safe());
    if (r != CUDA_SUCCESS)
        return r;

    (void)pthread_mutex_lock(&guest.lock);
    if (!guest_find_context(context, &i))
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
    CUresult r = guest_pass_fault(guest_check());
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
    CUresult r = guest_pass_fault(guest_check());

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
    CUresult r = guest_pass_fault(guest_check());
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
    CUresult r = guest_pass_fault(guest_check());

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
    CUresult r = guest_pass_fault(guest_current(&context));

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
    *flags = MAP_HOST | (device >= 0 ? guest.primaries[device].flags : 0);
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

/* Its place and how often that was used: a primary context that was reset is another one, behind
 * the same handle. A green one's handle is its own. */
PUBLIC CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
    uint32_t i;
    CUresult r = context ? guest_check() : guest_current(&i);

    if (r == CUDA_SUCCESS && !context)
        r = cuCtxGetCurrent(&context);
    if (r != CUDA_SUCCESS)
        return r;
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    if (!guest_find_context(context, &i))
        return CUDA_ERROR_INVALID_CONTEXT;
    *id = green_is_context(context) ? (unsigned long long)(uintptr_t)context
                                    : (unsigned long long)guest_context(i)->gen << 32 | (i + 1);
    return CUDA_SUCCESS;
}

static const size_t default_limits[LIMIT_COUNT] = {
    [LIMIT_STACK_SIZE] = 1024,
    [LIMIT_PRINTF_FIFO_SIZE] = 1 * MIB,
    [LIMIT_MALLOC_HEAP_SIZE] = 8 * MIB,
    [LIMIT_MAX_L2_FETCH_GRANULARITY] = 64,
};

static CUresult check_limit(CUlimit limit)
{
    if (limit < 0 || limit >= LIMIT_END)
        return CUDA_ERROR_INVALID_VALUE;
    return limit < LIMIT_COUNT ? CUDA_SUCCESS : CUDA_ERROR_UNSUPPORTED_LIMIT;
}

static size_t limit_value(uint32_t context, CUlimit limit)
{
    const struct limit *l = &limits[context][limit];

    return l->set ? l->value : default_limits[limit];
}

PUBLIC CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    uint32_t context;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    r = check_limit(limit);
    if (r == CUDA_SUCCESS)
        *value = limit_value(context, limit);
    return r;
}

/* What a limit takes beyond its default: the heaps what they say, the stack that for each thread.
 */
static bool limit_bytes(uint32_t context, CUlimit limit, size_t value, uint64_t *ret_bytes)
{
    unsigned device = guest_context(context)->device;
    uint64_t multiprocessors = sim_spec_of(guest_state(), device)->multiprocessors;
    uint64_t more = value - MIN(value, default_limits[limit]);

    if (limit == LIMIT_STACK_SIZE)
        return !__builtin_mul_overflow(more, multiprocessors * STACK_THREADS, ret_bytes);
    *ret_bytes = limit > LIMIT_MALLOC_HEAP_SIZE ? 0 : more;
    return more <= UINT64_MAX / 2;
}

/* Under guest.lock. */
static CUresult set_limit(uint32_t context, CUlimit limit, size_t value)
{
    struct limit *l = &limits[context][limit];
    /* The stack is always as large as the limit was last set to. */
    bool keeps = limit != LIMIT_STACK_SIZE && guest_state()->header.driver.heaps == SIM_HEAPS_KEEP;
    uint64_t bytes, more;

    if (limit == LIMIT_STACK_SIZE && value <= SIZE_MAX - STACK_STEP)
        value = round_to(value, STACK_STEP);
    if (!limit_bytes(context, limit, value, &bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    more = bytes - MIN(bytes, l->taken_bytes);
    if (!guest_charge_own(context, keeps ? more : bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!keeps)
        guest_discharge_own(context, l->taken_bytes);
    *l = (struct limit){
        .set = true,
        .value = value,
        .taken_bytes = keeps ? MAX(bytes, l->taken_bytes) : bytes,
    };
    return CUDA_SUCCESS;
}

static CUresult grow_stack_locked(uint32_t context, uint32_t gen, uint64_t bytes)
{
    if (!guest_context_is_ours(context) || guest_context(context)->gen != gen)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (bytes <= limit_value(context, LIMIT_STACK_SIZE))
        return CUDA_SUCCESS;
    return set_limit(context, LIMIT_STACK_SIZE, bytes);
}

CUresult guest_grow_stack(uint32_t context, uint32_t gen, uint64_t bytes)
{
    CUresult r;

    if (!bytes)
        return CUDA_SUCCESS;
    (void)pthread_mutex_lock(&guest.lock);
    r = grow_stack_locked(context, gen, bytes);
    (void)pthread_mutex_unlock(&guest.lock);
    return r;
}

/* The stack's changes at once, and waits for what is running on the old one. */
PUBLIC CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    uint32_t context;
    CUresult r = guest_current_safe(&context);

    if (r != CUDA_SUCCESS)
        return r;
    r = check_limit(limit);
    if (r != CUDA_SUCCESS)
        return r;
    if (limit == LIMIT_MAX_L2_FETCH_GRANULARITY && value > L2_FETCH_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit == LIMIT_STACK_SIZE)
        guest_wait_context(context);
    (void)pthread_mutex_lock(&guest.lock);
    r = set_limit(context, limit, value);
    (void)pthread_mutex_unlock(&guest.lock);
    return r;
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
        *greatest = GUEST_PRIORITY_GREATEST;
    return CUDA_SUCCESS;
}
