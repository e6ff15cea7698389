/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/contexts.h"

#include <string.h>

#include "region/ledger.h"
#include "vgpu/allocations.h"
#include "vgpu/code.h"
#include "vgpu/compute.h"
#include "vgpu/host.h"
#include "vgpu/ipc.h"
#include "vgpu/managed.h"
#include "vgpu/overhead.h"
#include "vgpu/pages.h"
#include "vgpu/real.h"

/* A row's number is the context's; 0 is none. */
struct context {
    CUcontext handle; /* NULL: free, or ending */
    struct vgpu_device *device;
    uint64_t units; /* charged for the context itself, and its heaps */
    size_t heaps[CONTEXT_HEAPS];
    unsigned users; /* of one that is not primary: cuCtxCreate's, and all cuCtxAttach's */
    bool primary;
    bool ending;  /* its handle may be another's already */
    bool refused; /* it can't be held to the limit */
};

static struct {
    pthread_mutex_t lock;
    struct context rows[CONTEXTS_MAX];
    unsigned last; /* in use, or has been */
} contexts = {.lock = PTHREAD_MUTEX_INITIALIZER};

_Atomic unsigned contexts_live;

/* Held over what may make or end a primary context, so that its coming and going are seen in
 * order. */
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;

/* How often the driver counts each primary context as retained, as far as we have seen: what was
 * retained before a reset stays owed. */
static unsigned retained[REGION_DEVICES];

/* The thread's last context, valid while no context has come or gone. */
static __thread struct {
    CUcontext handle;
    unsigned number;
    unsigned epoch;
} last;
_Atomic unsigned contexts_epoch_now = 1;

void contexts_after_fork(void)
{
    memset(&contexts, 0, sizeof(contexts));
    memset(retained, 0, sizeof(retained));
    (void)pthread_mutex_init(&contexts.lock, NULL);
    (void)pthread_mutex_init(&primary_lock, NULL);
    overhead_after_fork();
    atomic_store(&contexts_live, 0);
    atomic_fetch_add(&contexts_epoch_now, 1);
}

/* With the lock held; 0: none. */
static unsigned find_row(CUcontext handle)
{
    for (unsigned i = 1; handle && i <= contexts.last; i++) {
        if (contexts.rows[i].handle == handle)
            return i;
    }
    return 0;
}

/* With the lock held; 0 when the table is full. */
static unsigned free_row(void)
{
    for (unsigned i = 1; i <= contexts.last; i++) {
        if (!contexts.rows[i].handle && !contexts.rows[i].ending)
            return i;
    }
    return contexts.last + 1 < CONTEXTS_MAX ? contexts.last + 1 : 0;
}

static void say_full(void)
{
    vgpu_say(VGPU_WORD_CONTEXTS,
             "%d contexts at once are more than can be accounted for: no more are made",
             CONTEXTS_MAX - 1);
}

static bool table_is_full(void)
{
    bool full;

    (void)pthread_mutex_lock(&contexts.lock);
    full = !free_row();
    (void)pthread_mutex_unlock(&contexts.lock);
    if (full)
        say_full();
    return full;
}

/* With the lock held. The row that it has or gets; 0 when the table is full. */
static unsigned enter(const struct context *context)
{
    unsigned row = find_row(context->handle);

    if (row)
        return row;
    row = free_row();
    if (!row)
        return 0;
    contexts.last = MAX(contexts.last, row);
    contexts.rows[row] = *context;
    /* Functions were noted without a context as long as there was one only. */
    if (atomic_fetch_add(&contexts_live, 1) == 1)
        code_forget_functions();
    atomic_fetch_add(&contexts_epoch_now, 1);
    return row;
}

static unsigned add_context(const struct context *context)
{
    unsigned row;

    (void)pthread_mutex_lock(&contexts.lock);
    row = enter(context);
    (void)pthread_mutex_unlock(&contexts.lock);
    if (!row)
        say_full();
    return row;
}

/* Its number, 0 when it is not known. */
static unsigned find_context(CUcontext handle, struct context *ret_context)
{
    unsigned row;

    (void)pthread_mutex_lock(&contexts.lock);
    row = find_row(handle);
    if (row)
        *ret_context = contexts.rows[row];
    (void)pthread_mutex_unlock(&contexts.lock);
    return row;
}

/*
 * What goes with a context: itself, its heaps and code, and every allocation made in it. All of it
 * is taken out before the driver ends the context, for the moment it has, another thread may be
 * given the same handles and addresses; what is charged stays charged until the driver has agreed.
 */
struct ending {
    unsigned row; /* 0: it is not known */
    struct context context;
    struct allocations_bag data, managed, host, code, imports, graphics;
};

static struct ending begin_end(CUcontext handle)
{
    struct ending ending = {0};

    (void)pthread_mutex_lock(&contexts.lock);
    ending.row = find_row(handle);
    if (ending.row) {
        ending.context = contexts.rows[ending.row];
        contexts.rows[ending.row].handle = NULL;
        contexts.rows[ending.row].ending = true;
        atomic_fetch_add(&contexts_epoch_now, 1);
    }
    (void)pthread_mutex_unlock(&contexts.lock);
    if (!ending.row)
        return ending;

    allocations_take_context(ALLOCATION_ADDRESS, ending.row, &ending.data);
    allocations_take_context(ALLOCATION_MANAGED, ending.row, &ending.managed);
    allocations_take_context(ALLOCATION_HOST, ending.row, &ending.host);
    allocations_take_context(ALLOCATION_MODULE, ending.row, &ending.code);
    allocations_take_context(ALLOCATION_IMPORT, ending.row, &ending.imports);
    allocations_take_context(ALLOCATION_GRAPHICS, ending.row, &ending.graphics);
    return ending;
}

/* The pieces in the bag are another context's from now on. */
static void give_back_data(struct ending *ending, unsigned row)
{
    struct vgpu_device *device = ending->context.device;
    const uint64_t small = ending->data.small_units;

    allocations_give_back(ALLOCATION_ADDRESS, row, &ending->data);
    if (row == ending->row || !device)
        return;
    vgpu_charge_anyway(device, VGPU_DATA, page_take_small(row, small));
    vgpu_discharge(device, VGPU_DATA, page_give_small(ending->row, small));
}

/* It did not end. Should it have been met again meanwhile, as one unseen, that row is its row. */
static void take_back(struct ending *ending)
{
    unsigned row;

    (void)pthread_mutex_lock(&contexts.lock);
    row = find_row(ending->context.handle);
    if (row) {
        contexts.rows[row].units += ending->context.units;
        contexts.rows[ending->row].ending = false;
        atomic_fetch_sub(&contexts_live, 1);
    } else {
        row = ending->row;
        contexts.rows[row] = ending->context;
    }
    atomic_fetch_add(&contexts_epoch_now, 1);
    (void)pthread_mutex_unlock(&contexts.lock);
    give_back_data(ending, row);
    allocations_give_back(ALLOCATION_MANAGED, row, &ending->managed);
    allocations_give_back(ALLOCATION_HOST, row, &ending->host);
    allocations_give_back(ALLOCATION_MODULE, row, &ending->code);
    allocations_give_back(ALLOCATION_IMPORT, row, &ending->imports);
    allocations_give_back(ALLOCATION_GRAPHICS, row, &ending->graphics);
}

static void finish_end(struct ending *ending, bool gone)
{
    struct vgpu_device *device = ending->context.device;

    if (!ending->row)
        return;
    if (!gone) {
        take_back(ending);
        return;
    }

    (void)pthread_mutex_lock(&contexts.lock);
    contexts.rows[ending->row].ending = false;
    atomic_fetch_sub(&contexts_live, 1);
    atomic_fetch_add(&contexts_epoch_now, 1);
    (void)pthread_mutex_unlock(&contexts.lock);
    code_forget_functions();
    if (device) {
        const uint64_t managed = ending->managed.units + ending->managed.shared_units;

        atomic_fetch_sub(&device->managed_units, managed);
        managed_count_spilled(-(int64_t)ending->managed.shared_units);
        vgpu_discharge(device, VGPU_DATA,
                       ending->data.units + managed +
                           page_give_small(ending->row, ending->data.small_units));
        host_count(-(int64_t)ending->host.units);
        virtual_count_imports(-(int64_t)(ending->imports.units + ending->graphics.units));
        if (ending->data.shared_units)
            ipc_context_ended(device, ending->data.shared_units);
        overhead_gone(device, ending->context.units, ending->code.units);
    }
    allocations_drop(&ending->data);
    allocations_drop(&ending->managed);
    allocations_drop(&ending->host);
    allocations_drop(&ending->code);
    allocations_drop(&ending->imports);
    allocations_drop(&ending->graphics);
}

static bool primary_is_active(CUdevice device)
{
    unsigned int flags;
    int active = 0;

    return REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) == CUDA_SUCCESS && active;
}

/* With the primary contexts' lock held. Retaining an active one makes nothing; nobody's capture
 * minds. */
static bool is_primary(CUcontext handle, const struct vgpu_device *device)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUcontext primary = NULL;
    bool relaxed;

    if (!primary_is_active(device->handle))
        return false;
    relaxed = REAL(cuThreadExchangeStreamCaptureMode) &&
              REAL(cuThreadExchangeStreamCaptureMode)(&mode) == CUDA_SUCCESS;
    if (REAL(cuDevicePrimaryCtxRetain)(&primary, device->handle) == CUDA_SUCCESS)
        (void)REAL(cuDevicePrimaryCtxRelease_v2)(device->handle);
    if (relaxed)
        (void)REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return primary == handle;
}

/* A context that was made unseen: the CUDA runtime has a way of its own to make primary ones. */
static unsigned adopt(CUcontext handle, struct vgpu_device *device, bool primary)
{
    struct context context = {.handle = handle, .device = device, .users = 1, .primary = primary};

    if (device)
        context.refused = !device->granted || !overhead_adopt(device, &context.units);
    return add_context(&context);
}

static unsigned adopt_current(CUcontext handle, struct context *ret_context)
{
    struct vgpu_device *device = vgpu_current_device();
    unsigned row;

    (void)pthread_mutex_lock(&primary_lock);
    row = find_context(handle, ret_context);
    /* One that has ended is on no device; a new one may have its handle. */
    if (!row && device) {
        row = adopt(handle, device, is_primary(handle, device));
        (void)find_context(handle, ret_context);
    }
    (void)pthread_mutex_unlock(&primary_lock);
    return row;
}

static unsigned known_or_new(CUcontext handle)
{
    struct context context = {0};
    unsigned row = find_context(handle, &context);

    if (!row)
        row = adopt_current(handle, &context);
    return context.refused ? CONTEXTS_MAX : row;
}

unsigned context_current(void)
{
    unsigned now = contexts_epoch();
    CUcontext handle;
    unsigned number;

    if (REAL(cuCtxGetCurrent)(&handle) != CUDA_SUCCESS || !handle)
        return 0;
    if (last.handle == handle && last.epoch == now)
        return last.number;

    number = known_or_new(handle);
    if (!number)
        return CONTEXTS_MAX;
    last.number = number;
    last.handle = handle;
    last.epoch = contexts_epoch();
    return number;
}

void context_heap_grew(unsigned number, CUlimit limit, size_t value, uint64_t units)
{
    struct context *context;

    if (!number || number >= CONTEXTS_MAX)
        return;
    (void)pthread_mutex_lock(&contexts.lock);
    context = &contexts.rows[number];
    context->units += units;
    if ((unsigned)limit < CONTEXT_HEAPS)
        context->heaps[limit] = MAX(context->heaps[limit], value);
    (void)pthread_mutex_unlock(&contexts.lock);
}

size_t context_largest_heap(unsigned number, CUlimit limit)
{
    size_t value;

    if (!number || number >= CONTEXTS_MAX || (unsigned)limit >= CONTEXT_HEAPS)
        return 0;
    (void)pthread_mutex_lock(&contexts.lock);
    value = contexts.rows[number].heaps[limit];
    (void)pthread_mutex_unlock(&contexts.lock);
    return value;
}

/* What to answer instead of making a context here; CUDA_SUCCESS to go on. No device: nothing to
 * account. */
static CUresult may_create(CUdevice handle, struct vgpu_device **ret_device)
{
    enum vgpu_mode mode = vgpu_mode();

    *ret_device = NULL;
    if (mode == VGPU_DENIED)
        return CUDA_ERROR_SYSTEM_NOT_READY;
    if (mode != VGPU_ON)
        return CUDA_SUCCESS;

    *ret_device = vgpu_device(handle);
    return *ret_device && !(*ret_device)->granted ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

/* The five functions that make a context differ in their arguments only. */
struct making {
    CUcontext *context;
    CUcontext made;
    struct vgpu_device *device;
    struct overhead overhead;
};

static CUresult begin_context(struct making *making, CUcontext *context, CUdevice handle)
{
    CUresult result;

    *making = (struct making){.context = context};
    result = may_create(handle, &making->device);
    if (result != CUDA_SUCCESS)
        return result;

    if (!context)
        making->device = NULL;
    if (making->device && (table_is_full() ||
                           !overhead_begin(&making->overhead, making->device, OVERHEAD_CONTEXT, 0)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

/* Where the driver shall put the context: not before it is granted into the caller's variable. */
static CUcontext *context_target(struct making *making)
{
    return making->device ? &making->made : making->context;
}

static CUresult end_context(struct making *making, CUresult result)
{
    enum overhead_outcome outcome;
    uint64_t units;

    if (!making->device)
        return result;

    outcome = overhead_end(&making->overhead, result == CUDA_SUCCESS, &units);
    if (outcome == OVERHEAD_NOTHING)
        return result;
    if (outcome == OVERHEAD_CHARGED) {
        struct context context = {
            .handle = making->made,
            .device = making->device,
            .units = units,
            .users = 1,
        };

        if (add_context(&context)) {
            *making->context = making->made;
            return result;
        }
    }
    (void)REAL(cuCtxDestroy_v2)(making->made);
    overhead_undone(&making->overhead, units);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

PUBLIC CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    struct making making;
    CUresult result = begin_context(&making, context, device);

    if (result != CUDA_SUCCESS)
        return result;
    return end_context(&making, REAL(cuCtxCreate)(context_target(&making), flags, device));
}

PUBLIC CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    struct making making;
    CUresult result = begin_context(&making, context, device);

    if (result != CUDA_SUCCESS)
        return result;
    return end_context(&making, REAL(cuCtxCreate_v2)(context_target(&making), flags, device));
}

PUBLIC CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int affinities,
                               unsigned int flags, CUdevice device)
{
    struct making making;
    CUresult result = begin_context(&making, context, device);

    if (result != CUDA_SUCCESS)
        return result;
    return end_context(&making, REAL(cuCtxCreate_v3)(context_target(&making), affinity, affinities,
                                                     flags, device));
}

PUBLIC CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags,
                               CUdevice device)
{
    struct making making;
    CUresult result = begin_context(&making, context, device);

    if (result != CUDA_SUCCESS)
        return result;
    return end_context(&making,
                       REAL(cuCtxCreate_v4)(context_target(&making), params, flags, device));
}

static unsigned device_number(const struct vgpu_device *device)
{
    return (unsigned)(device - vgpu.devices);
}

static CUresult retain_active(struct vgpu_device *device, CUcontext *context)
{
    CUresult result = REAL(cuDevicePrimaryCtxRetain)(context, device->handle);
    struct context known;

    if (result != CUDA_SUCCESS)
        return result;
    retained[device_number(device)]++;
    if (!find_context(*context, &known))
        (void)adopt(*context, device, true);
    return result;
}

static CUresult retain_first(struct vgpu_device *device, CUcontext *context)
{
    struct context made = {.device = device, .primary = true};
    enum overhead_outcome outcome;
    struct overhead overhead;
    CUresult result;

    if (table_is_full() || !overhead_begin(&overhead, device, OVERHEAD_CONTEXT, 0))
        return CUDA_ERROR_OUT_OF_MEMORY;

    result = REAL(cuDevicePrimaryCtxRetain)(&made.handle, device->handle);
    outcome = overhead_end(&overhead, result == CUDA_SUCCESS, &made.units);
    if (outcome == OVERHEAD_NOTHING)
        return result;
    if (outcome == OVERHEAD_CHARGED && add_context(&made)) {
        retained[device_number(device)]++;
        *context = made.handle;
        return result;
    }
    (void)REAL(cuDevicePrimaryCtxRelease_v2)(device->handle);
    /* Who retained one that was reset still counts as its user. */
    if (primary_is_active(device->handle))
        (void)REAL(cuDevicePrimaryCtxReset_v2)(device->handle);
    overhead_undone(&overhead, made.units);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

PUBLIC CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice handle)
{
    struct vgpu_device *device;
    CUresult result = may_create(handle, &device);

    if (result != CUDA_SUCCESS)
        return result;
    if (!device || !context)
        return REAL(cuDevicePrimaryCtxRetain)(context, handle);

    (void)pthread_mutex_lock(&primary_lock);
    result =
        primary_is_active(handle) ? retain_active(device, context) : retain_first(device, context);
    (void)pthread_mutex_unlock(&primary_lock);
    return result;
}

static CUcontext primary_of(const struct vgpu_device *device)
{
    CUcontext handle = NULL;

    (void)pthread_mutex_lock(&contexts.lock);
    for (unsigned i = 1; i <= contexts.last && !handle; i++) {
        if (contexts.rows[i].primary && contexts.rows[i].device == device)
            handle = contexts.rows[i].handle;
    }
    (void)pthread_mutex_unlock(&contexts.lock);
    return handle;
}

/* What ends a primary context, perhaps. */
enum primary_end {
    PRIMARY_RELEASE, /* one of those who retained it */
    PRIMARY_RESET,   /* it ends, however often it is retained */
};

/* Whether our call took the primary context along, which we may not even have known. */
static void end_of_primary(const struct vgpu_device *device, enum primary_end how,
                           struct ending *ending, CUresult result)
{
    unsigned *count = &retained[device_number(device)];
    struct ending late;
    bool gone = result == CUDA_SUCCESS && !primary_is_active(device->handle);

    if (result == CUDA_SUCCESS && how == PRIMARY_RELEASE && *count)
        --*count;
    if (ending->row)
        compute_ended(ending->context.handle, gone);
    if (gone && !ending->row) {
        late = begin_end(primary_of(device));
        *ending = late;
    }
    finish_end(ending, gone);
}

/* Before such a call: what may end is taken out. */
static struct ending before_end(const struct vgpu_device *device, enum primary_end how)
{
    CUcontext handle = primary_of(device);

    if (!handle || (how == PRIMARY_RELEASE && retained[device_number(device)] > 1))
        return (struct ending){0};
    compute_ending(handle);
    return begin_end(handle);
}

typedef CUresult (*primary_fn)(CUdevice device);

static CUresult end_primary(CUdevice handle, primary_fn end, enum primary_end how)
{
    struct vgpu_device *device = vgpu_mode() == VGPU_ON ? vgpu_device(handle) : NULL;
    struct ending ending;
    CUresult result;

    if (!device)
        return end(handle);

    (void)pthread_mutex_lock(&primary_lock);
    ending = before_end(device, how);
    result = end(handle);
    end_of_primary(device, how, &ending, result);
    (void)pthread_mutex_unlock(&primary_lock);
    return result;
}

PUBLIC CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    (void)real_driver();
    return end_primary(device, REAL(cuDevicePrimaryCtxRelease), PRIMARY_RELEASE);
}

PUBLIC CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    (void)real_driver();
    return end_primary(device, REAL(cuDevicePrimaryCtxRelease_v2), PRIMARY_RELEASE);
}

PUBLIC CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    (void)real_driver();
    return end_primary(device, REAL(cuDevicePrimaryCtxReset), PRIMARY_RESET);
}

PUBLIC CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    (void)real_driver();
    return end_primary(device, REAL(cuDevicePrimaryCtxReset_v2), PRIMARY_RESET);
}

typedef CUresult (*destroy_fn)(CUcontext context);

static CUresult end_context_of(CUcontext context, destroy_fn destroy)
{
    struct ending ending;
    struct context known;
    CUresult result;

    if (vgpu_mode() != VGPU_ON || !context)
        return destroy(context);
    /* The driver refuses to destroy a primary one. */
    if (find_context(context, &known) && known.primary)
        return destroy(context);

    compute_ending(context);
    ending = begin_end(context);
    result = destroy(context);
    compute_ended(context, result == CUDA_SUCCESS);
    finish_end(&ending, result == CUDA_SUCCESS);
    return result;
}

PUBLIC CUresult cuCtxDestroy(CUcontext context)
{
    (void)real_driver();
    return end_context_of(context, REAL(cuCtxDestroy));
}

PUBLIC CUresult cuCtxDestroy_v2(CUcontext context)
{
    (void)real_driver();
    return end_context_of(context, REAL(cuCtxDestroy_v2));
}

/* A user of a context more or less. Of a primary one, who retained it are its users. */
static void add_users(CUcontext handle, int more)
{
    struct context *context;
    unsigned row;

    (void)pthread_mutex_lock(&contexts.lock);
    row = find_row(handle);
    context = &contexts.rows[row];
    if (row && context->primary && context->device)
        retained[device_number(context->device)] += (unsigned)more;
    else if (row)
        context->users += (unsigned)more;
    (void)pthread_mutex_unlock(&contexts.lock);
}

PUBLIC CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
    bool ours = vgpu_mode() == VGPU_ON;
    CUresult result;

    if (!REAL(cuCtxAttach))
        return CUDA_ERROR_NOT_FOUND;
    if (ours)
        (void)context_current();
    (void)pthread_mutex_lock(&primary_lock);
    result = REAL(cuCtxAttach)(context, flags);
    if (ours && result == CUDA_SUCCESS)
        add_users(*context, 1);
    (void)pthread_mutex_unlock(&primary_lock);
    return result;
}

static CUresult detach_primary(CUcontext context, const struct vgpu_device *device)
{
    struct ending ending;
    CUresult result;

    (void)pthread_mutex_lock(&primary_lock);
    ending = before_end(device, PRIMARY_RELEASE);
    result = REAL(cuCtxDetach)(context);
    end_of_primary(device, PRIMARY_RELEASE, &ending, result);
    (void)pthread_mutex_unlock(&primary_lock);
    return result;
}

PUBLIC CUresult cuCtxDetach(CUcontext context)
{
    struct context known;
    CUresult result;

    (void)real_driver();
    if (!REAL(cuCtxDetach))
        return CUDA_ERROR_NOT_FOUND;
    if (vgpu_mode() != VGPU_ON || !context || !find_context(context, &known))
        return REAL(cuCtxDetach)(context);
    if (known.primary && known.device)
        return detach_primary(context, known.device);
    if (known.users <= 1)
        return end_context_of(context, REAL(cuCtxDetach));
    result = REAL(cuCtxDetach)(context);
    if (result == CUDA_SUCCESS)
        add_users(context, -1);
    return result;
}

/* A green context is a part of the device's primary one; what it takes is charged as code is. */
PUBLIC CUresult cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc desc, CUdevice handle,
                                 unsigned int flags)
{
    struct vgpu_device *device;
    CUresult result = may_create(handle, &device);
    enum overhead_outcome outcome;
    struct overhead overhead;
    uint64_t units;

    if (result != CUDA_SUCCESS)
        return result;
    if (!device || !context)
        return REAL(cuGreenCtxCreate)(context, desc, handle, flags);
    if (!overhead_begin(&overhead, device, OVERHEAD_CODE, 0))
        return CUDA_ERROR_OUT_OF_MEMORY;

    result = REAL(cuGreenCtxCreate)(context, desc, handle, flags);
    outcome = overhead_end(&overhead, result == CUDA_SUCCESS, &units);
    if (outcome == OVERHEAD_REFUSED) {
        (void)REAL(cuGreenCtxDestroy)(*context);
        overhead_undone(&overhead, 0);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (outcome == OVERHEAD_CHARGED)
        code_remember(*context, device, units);
    return result;
}

/* The context that a green one can be used as is no more; what was allocated in it is the primary
 * one's, and stays. */
static void end_green(CUcontext handle)
{
    struct ending ending = begin_end(handle);

    if (!ending.row)
        return;
    give_back_data(&ending, 0);
    allocations_give_back(ALLOCATION_MANAGED, 0, &ending.managed);
    allocations_give_back(ALLOCATION_HOST, 0, &ending.host);
    allocations_give_back(ALLOCATION_IMPORT, 0, &ending.imports);
    allocations_give_back(ALLOCATION_GRAPHICS, 0, &ending.graphics);
    finish_end(&ending, true);
}

PUBLIC CUresult cuGreenCtxDestroy(CUgreenCtx context)
{
    bool ours = vgpu_mode() == VGPU_ON;
    struct code code;
    CUcontext used = NULL;
    CUresult result;

    if (!ours)
        return REAL(cuGreenCtxDestroy)(context);
    if (context && REAL(cuCtxFromGreenCtx) &&
        REAL(cuCtxFromGreenCtx)(&used, context) != CUDA_SUCCESS)
        used = NULL;
    code = code_take(context);
    result = REAL(cuGreenCtxDestroy)(context);
    code_end(context, &code, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS && used)
        end_green(used);
    return result;
}
