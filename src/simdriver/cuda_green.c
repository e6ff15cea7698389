/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Green contexts: parts of a device's primary context, each with some of its multiprocessors. The
 * model of a device knows no multiprocessors, so a kernel in one takes as long as elsewhere.
 */

#include "base/util.h"
#include "simdriver/green.h"
#include "simdriver/guest.h"

enum {
    GREENS = 256,
    DESCS = 1024, /* nobody can give one back: the oldest is forgotten */
    RESOURCE_SM = 1,
    SM_GROUP = 8, /* multiprocessors are given out in such groups, as from Hopper on */
    DEFAULT_STREAM = 1,
};

#define GREEN_BYTES (6 * MIB) /* an H100's, driver 580 */

/* Handles: a kind from bit 44 on that no other has (guest.c and others), a generation, an index. */
#define HANDLE_GREEN UINT64_C(10)
#define HANDLE_GREEN_CONTEXT UINT64_C(11)
#define HANDLE_DESC UINT64_C(12)

struct green {
    bool used;
    uint32_t gen;
    CUdevice device;
    uint32_t context, context_gen; /* the primary one */
    uint32_t stream;               /* its default one */
    unsigned multiprocessors;
};

struct desc {
    bool used;
    unsigned multiprocessors;
};

/* Under guest.lock, but for looking up. */
static struct green greens[GREENS];
static struct desc descs[DESCS];
static uint32_t next_desc;

/* Under the machine's lock. */
static struct {
    uint32_t gen; /* of the stream; what is said here is of this one */
    uint16_t green;
    bool detached;
} notes[SIM_STREAMS];

static void *make_handle(uint64_t kind, uint32_t index, uint32_t gen)
{
    return (void *)(uintptr_t)(kind << 44 | (uint64_t)(gen & 0xfffff) << 24 | index << 4);
}

/* The index of a handle of that kind, or -1. */
static int index_of(const void *handle, uint64_t kind, uint32_t bound)
{
    uintptr_t h = (uintptr_t)handle;
    uint32_t i = (uint32_t)(h >> 4) & 0xfffff;

    return h >> 44 == kind && (h & 15) == 0 && i < bound ? (int)i : -1;
}

static struct green *living(const void *handle, uint64_t kind)
{
    int i = index_of(handle, kind, GREENS);

    if (i < 0)
        return NULL;
    if (greens[i].used && ((uintptr_t)handle >> 24 & 0xfffff) == (greens[i].gen & 0xfffff))
        return &greens[i];
    guest_meet_stale();
    return NULL;
}

static CUcontext context_handle(const struct green *green)
{
    return make_handle(HANDLE_GREEN_CONTEXT, (uint32_t)(green - greens), green->gen);
}

bool green_is_context(CUcontext handle)
{
    return index_of(handle, HANDLE_GREEN_CONTEXT, GREENS) >= 0;
}

static bool primary_is_there(const struct green *green)
{
    return guest_context(green->context)->gen == green->context_gen &&
           guest_context(green->context)->owner == (uint32_t)guest.sim->slot + 1;
}

bool green_find(CUcontext handle, uint32_t *ret_context)
{
    const struct green *green = living(handle, HANDLE_GREEN_CONTEXT);

    if (!green || !primary_is_there(green))
        return false;
    *ret_context = green->context;
    return true;
}

/* NULL: what is current is no green context. */
static struct green *current(void)
{
    CUcontext top = guest_thread.depth ? guest_thread.stack[guest_thread.depth - 1] : NULL;

    return top && green_is_context(top) ? living(top, HANDLE_GREEN_CONTEXT) : NULL;
}

static void note(uint32_t stream, const struct green *green)
{
    notes[stream].gen = guest_state()->streams[stream].gen;
    notes[stream].green = (uint16_t)(green - greens + 1);
    notes[stream].detached = false;
}

static bool is_noted(uint32_t stream)
{
    return notes[stream].green && notes[stream].gen == guest_state()->streams[stream].gen;
}

bool green_default_stream(uint32_t context, CUresult *ret_result, uint32_t *ret_stream)
{
    struct green *green = current();

    if (!green || green->context != context)
        return false;
    if (!green->stream)
        green->stream = sim_stream_new(guest_state(), context, CU_STREAM_NON_BLOCKING);
    *ret_stream = green->stream;
    *ret_result = green->stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (green->stream)
        note(green->stream, green);
    return true;
}

void green_note_stream(uint32_t stream)
{
    const struct green *green = current();

    if (green)
        note(stream, green);
}

bool green_is_detached(uint32_t stream)
{
    return is_noted(stream) && notes[stream].detached;
}

CUgreenCtx green_of_stream(uint32_t stream, CUcontext *ret_context)
{
    const struct green *green;

    if (!is_noted(stream) || notes[stream].detached)
        return NULL;
    green = &greens[notes[stream].green - 1];
    if (ret_context)
        *ret_context = context_handle(green);
    return make_handle(HANDLE_GREEN, (uint32_t)(green - greens), green->gen);
}

/* Resources */

static CUdevResource resource_of(unsigned multiprocessors)
{
    return (CUdevResource){
        .type = RESOURCE_SM,
        .sm = {.smCount = multiprocessors,
               .minSmPartitionSize = SM_GROUP,
               .smCoscheduledAlignment = SM_GROUP},
    };
}

static CUresult give_resource(CUdevResource *resource, int type, unsigned multiprocessors)
{
    if (!resource)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != RESOURCE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *resource = resource_of(multiprocessors);
    return CUDA_SUCCESS;
}

static unsigned all_of(CUdevice device)
{
    return sim_spec_of(guest_state(), guest.devices[device])->multiprocessors;
}

PUBLIC CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, int type)
{
    CUresult r = guest_check_device(device);

    return r == CUDA_SUCCESS ? give_resource(resource, type, all_of(device)) : r;
}

PUBLIC CUresult cuCtxGetDevResource(CUcontext context, CUdevResource *resource, int type)
{
    const struct green *green;
    uint32_t i;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!guest_find_context(context, &i))
        return CUDA_ERROR_INVALID_CONTEXT;
    green = green_is_context(context) ? living(context, HANDLE_GREEN_CONTEXT) : NULL;
    return give_resource(
        resource, type,
        green ? green->multiprocessors
              : sim_spec_of(guest_state(), guest_context(i)->device)->multiprocessors);
}

PUBLIC CUresult cuGreenCtxGetDevResource(CUgreenCtx context, CUdevResource *resource, int type)
{
    const struct green *green;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    green = living(context, HANDLE_GREEN);
    return green ? give_resource(resource, type, green->multiprocessors)
                 : CUDA_ERROR_INVALID_CONTEXT;
}

/* As many groups as there are, of at least so many multiprocessors each. */
PUBLIC CUresult cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned int *count,
                                            const CUdevResource *from, CUdevResource *rest,
                                            unsigned int flags, unsigned int least)
{
    unsigned each, most, made;
    CUresult r = guest_check();

    (void)flags;
    if (r != CUDA_SUCCESS)
        return r;
    if (!count || !from)
        return CUDA_ERROR_INVALID_VALUE;
    if (from->type != RESOURCE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    each = (MAX(least, 1u) + SM_GROUP - 1) / SM_GROUP * SM_GROUP;
    most = from->sm.smCount / each;
    if (!most)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    made = groups ? MIN(*count, most) : most;
    for (unsigned i = 0; groups && i < made; i++)
        groups[i] = resource_of(each);
    if (rest)
        *rest = resource_of(from->sm.smCount - made * each);
    *count = made;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *desc, CUdevResource *resources,
                                          unsigned int count)
{
    unsigned multiprocessors = 0;
    uint32_t i;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!desc || !resources || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (i = 0; i < count; i++) {
        if (resources[i].type != RESOURCE_SM)
            return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        multiprocessors += resources[i].sm.smCount;
    }
    if (!multiprocessors)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    (void)pthread_mutex_lock(&guest.lock);
    i = next_desc++ % DESCS;
    descs[i] = (struct desc){.used = true, .multiprocessors = multiprocessors};
    (void)pthread_mutex_unlock(&guest.lock);
    *desc = make_handle(HANDLE_DESC, i, 0);
    return CUDA_SUCCESS;
}

/* Making and ending */

static struct green *new_green(CUdevice device, unsigned multiprocessors, uint32_t context)
{
    for (uint32_t i = 0; i < GREENS; i++) {
        struct green *green = &greens[i];

        if (green->used)
            continue;
        *green = (struct green){
            .used = true,
            .gen = green->gen + 1,
            .device = device,
            .context = context,
            .context_gen = guest_context(context)->gen,
            .multiprocessors = multiprocessors,
        };
        return green;
    }
    return NULL;
}

PUBLIC CUresult cuGreenCtxCreate(CUgreenCtx *context, CUdevResourceDesc desc, CUdevice device,
                                 unsigned int flags)
{
    int at = index_of(desc, HANDLE_DESC, DESCS);
    struct green *green = NULL;
    uint32_t primary;
    CUcontext handle;
    CUresult r = guest_check_device(device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!context || at < 0 || !descs[at].used || flags & ~(unsigned)DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    if (descs[at].multiprocessors > all_of(device))
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    r = cuDevicePrimaryCtxRetain(&handle, device);
    if (r != CUDA_SUCCESS)
        return r;
    (void)pthread_mutex_lock(&guest.lock);
    if (guest_find_context(handle, &primary) && guest_charge_own(primary, GREEN_BYTES)) {
        green = new_green(device, descs[at].multiprocessors, primary);
        if (!green)
            guest_discharge_own(primary, GREEN_BYTES);
    }
    (void)pthread_mutex_unlock(&guest.lock);
    if (!green) {
        (void)cuDevicePrimaryCtxRelease_v2(device);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *context = make_handle(HANDLE_GREEN, (uint32_t)(green - greens), green->gen);
    return CUDA_SUCCESS;
}

/* Its streams stay, and can only be destroyed; the default one goes when it has run dry. */
static void detach_streams(const struct green *green)
{
    struct sim_state *s = guest_state();

    for (uint32_t i = s->contexts[green->context].streams; i; i = s->streams[i].sibling) {
        if (!is_noted(i) || notes[i].green != green - greens + 1)
            continue;
        guest_drop_capture(i);
        notes[i].detached = true;
    }
    if (green->stream)
        sim_stream_free(s, green->stream);
}

PUBLIC CUresult cuGreenCtxDestroy(CUgreenCtx context)
{
    struct green *green;
    CUdevice device;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    (void)pthread_mutex_lock(&guest.lock);
    green = living(context, HANDLE_GREEN);
    if (!green) {
        (void)pthread_mutex_unlock(&guest.lock);
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    device = green->device;
    if (primary_is_there(green)) {
        (void)sim_lock(guest.sim);
        detach_streams(green);
        sim_unlock(guest.sim);
        guest_discharge_own(green->context, GREEN_BYTES);
    }
    green->used = false;
    (void)pthread_mutex_unlock(&guest.lock);
    (void)cuDevicePrimaryCtxRelease_v2(device);
    return CUDA_SUCCESS;
}

/* Using one */

PUBLIC CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx handle)
{
    const struct green *green;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    green = living(handle, HANDLE_GREEN);
    if (!green)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = context_handle(green);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx handle, unsigned int flags,
                                       int priority)
{
    const struct green *green;
    uint32_t i = 0;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!stream || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    green = living(handle, HANDLE_GREEN);
    if (!green)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!primary_is_there(green))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    (void)sim_lock(guest.sim);
    i = guest_stream_new(green->context, flags, priority);
    if (i) {
        note(i, green);
        *stream = guest_stream_handle(i);
    }
    sim_unlock(guest.sim);
    return i ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

PUBLIC CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *green)
{
    CUcontext context;

    return green ? cuStreamGetCtx_v2(stream, &context, green) : CUDA_ERROR_INVALID_VALUE;
}
