/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Setting memory, and copies within a device: the multiprocessors do it, so it is held to the
 * share as kernels are. Its cost is measured like theirs, by what is done and how much of it, in
 * eighths of powers of two. What comes from the host, or goes there or to another device, is the
 * copy engines' work, and free.
 *
 * What a copy is told by, and each list of copies, is the library's own before it is looked at: in
 * the caller's memory another thread could change it until the driver reads it. Where an address is
 * of memory on the device when the driver has been asked, and was not before, what runs is paid for
 * afterwards.
 *
 * Memory in the order of streams that an oversubscribed card has no room for is the host's to the
 * driver, which refuses (invalid value) a copy that takes it for the device's, as the program does:
 * then the copy is made in the way that lets the driver find out where either side is, for free as
 * any from and to the host.
 */

#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "vgpu/compute.h"
#include "vgpu/contexts.h"
#include "vgpu/graph_homes.h"
#include "vgpu/pointer.h"
#include "vgpu/pools.h"
#include "vgpu/real.h"

enum kind {
    SETS_MEMORY,
    COPY,
    KINDS,
};

/* Stand for functions, of which the limiter knows launches by. */
static const char functions[KINDS];

struct transfer {
    struct launch launch;
    struct compute_flight flight;
    uint64_t bytes;   /* that it is paid for */
    int64_t since_ns; /* host clock, where it may turn out to be more; else 0 */
};

static bool is_limited(void)
{
    return atomic_load_explicit(&vgpu.limited_compute, memory_order_relaxed);
}

/* A size that is more than can be counted is as large as can be: of a list with such a one the
 * driver may do the rest. */
static uint64_t volume(uint64_t width, uint64_t height, uint64_t depth)
{
    uint64_t all;

    return __builtin_mul_overflow(width, height, &all) || __builtin_mul_overflow(all, depth, &all)
               ? UINT64_MAX
               : all;
}

static uint32_t octave_of(uint64_t bytes)
{
    return 63 - (uint32_t)__builtin_clzll(bytes);
}

static struct launch launch_of(enum kind kind, uint64_t bytes, CUstream stream, bool per_thread)
{
    const uint32_t octave = octave_of(bytes);
    const uint32_t eighth = (uint32_t)(octave > 3 ? bytes >> (octave - 3) : bytes);

    return (struct launch){
        .function = &functions[kind],
        .grid = {1 + octave, eighth, 1},
        .block = {1, 1, 1},
        .stream = stream,
        .per_thread = per_thread,
        .is_transfer = true,
    };
}

/* A node of the graph that is captured does it, on the stream's device. */
static void note_captured(const struct transfer *transfer, uint64_t to)
{
    const struct launch *launch = &transfer->launch;
    struct vgpu_device *device;

    if (!transfer->flight.goes && transfer->flight.ticket.captured && graph_homes_matter() &&
        compute_stream_device(launch->stream, launch->per_thread, &device) == CUDA_SUCCESS)
        graph_homes_found_transfer(to, device);
}

/* Where it is nothing, or not within a device, there is nothing to pay. An array goes by its
 * handle. */
static __attribute__((noinline)) CUresult begin(struct transfer *transfer, enum kind kind,
                                                uint64_t bytes, uint64_t to, CUstream stream,
                                                bool per_thread)
{
    CUresult result;

    (void)vgpu_mode();
    transfer->flight.goes = true;
    transfer->flight.epoch = 0;
    transfer->bytes = bytes;
    transfer->since_ns = is_limited() && !bytes ? clock_now_ns() : 0;
    if (!bytes)
        return CUDA_SUCCESS;
    transfer->launch = launch_of(kind, bytes, stream, per_thread);
    result = compute_begin(&transfer->launch, &transfer->flight);
    if (result == CUDA_SUCCESS)
        note_captured(transfer, to);
    if (result != CUDA_ERROR_CONTEXT_IS_DESTROYED)
        return result;
    transfer->flight.goes = true; /* the driver says so itself, if it does */
    return CUDA_SUCCESS;
}

static CUresult end(struct transfer *transfer, CUresult result)
{
    return compute_end(&transfer->launch, &transfer->flight, result);
}

#define TRANSFER(kind, bytes, to, stream, per_thread, call)                                        \
    struct transfer transfer;                                                                      \
    CUresult result = begin(&transfer, kind, bytes, to, stream, per_thread);                       \
                                                                                                   \
    return result == CUDA_SUCCESS ? end(&transfer, (call)) : result

/* Of so many bytes it is now. */
static __attribute__((noinline)) void look_again(const struct transfer *transfer, uint64_t bytes,
                                                 CUstream stream, bool per_thread)
{
    struct launch launch;

    if (bytes <= transfer->bytes || !transfer->since_ns)
        return;
    if (compute_begin_captured(stream, per_thread)) {
        compute_end_captured();
        return;
    }
    launch = launch_of(COPY, bytes, stream, per_thread);
    compute_pay_late(&launch, transfer->since_ns);
}

/* The same of a copy whose bytes are known by where its addresses are. */
#define COPY_ANY(count, to, stream, per_thread, call)                                              \
    struct transfer transfer;                                                                      \
    CUresult result = begin(&transfer, COPY, count, to, stream, per_thread);                       \
                                                                                                   \
    if (result != CUDA_SUCCESS)                                                                    \
        return result;                                                                             \
    result = end(&transfer, (call));                                                               \
    if (result == CUDA_SUCCESS && !transfer.bytes)                                                 \
        look_again(&transfer, count, stream, per_thread);                                          \
    return result

/* Setting */

/* One call of any of the functions, of which there are many: what they have in common is done in
 * one place, since each costs its code. */
struct set {
    CUdeviceptr ptr;
    size_t pitch, width, height;
    unsigned int value;
    CUstream stream;
    enum real_index real;
    uint8_t bits;
    bool has_rows, has_stream, per_thread;
};

#define SET_BY(bits, type)                                                                         \
    static CUresult set##bits(const struct set *set)                                               \
    {                                                                                              \
        void *real = real_functions[set->real];                                                    \
        const type value = (type)set->value;                                                       \
                                                                                                   \
        if (set->has_rows && set->has_stream)                                                      \
            return ((__typeof__(&cuMemsetD2D##bits##Async))real)(                                  \
                set->ptr, set->pitch, value, set->width, set->height, set->stream);                \
        if (set->has_rows)                                                                         \
            return ((__typeof__(&cuMemsetD2D##bits##_v2))real)(set->ptr, set->pitch, value,        \
                                                               set->width, set->height);           \
        if (set->has_stream)                                                                       \
            return ((__typeof__(&cuMemsetD##bits##Async))real)(set->ptr, value, set->width,        \
                                                               set->stream);                       \
        return ((__typeof__(&cuMemsetD##bits##_v2))real)(set->ptr, value, set->width);             \
    }

SET_BY(8, unsigned char)
SET_BY(16, unsigned short)
SET_BY(32, unsigned int)

static CUresult set_by_driver(const struct set *set)
{
    switch (set->bits) {
    case 8:
        return set8(set);
    case 16:
        return set16(set);
    default:
        return set32(set);
    }
}

static CUresult set_memory(const struct set *set)
{
    TRANSFER(SETS_MEMORY, volume(set->width, set->has_rows ? set->height : 1, set->bits / 8),
             set->ptr, set->stream, set->per_thread, set_by_driver(set));
}

#define SET(name, ...) return set_memory(&(struct set){.real = REAL_##name, __VA_ARGS__})

#define SETS(size, type)                                                                           \
    PUBLIC CUresult cuMemsetD##size##_v2(CUdeviceptr ptr, type value, size_t count)                \
    {                                                                                              \
        SET(cuMemsetD##size##_v2, .bits = size, .ptr = ptr, .value = value, .width = count);       \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD##size##_v2_ptds(CUdeviceptr ptr, type value, size_t count)           \
    {                                                                                              \
        SET(cuMemsetD##size##_v2_ptds, .bits = size, .ptr = ptr, .value = value, .width = count,   \
            .per_thread = true);                                                                   \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD##size##Async(CUdeviceptr ptr, type value, size_t count,              \
                                           CUstream stream)                                        \
    {                                                                                              \
        SET(cuMemsetD##size##Async, .bits = size, .ptr = ptr, .value = value, .width = count,      \
            .stream = stream, .has_stream = true);                                                 \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD##size##Async_ptsz(CUdeviceptr ptr, type value, size_t count,         \
                                                CUstream stream)                                   \
    {                                                                                              \
        SET(cuMemsetD##size##Async_ptsz, .bits = size, .ptr = ptr, .value = value, .width = count, \
            .stream = stream, .has_stream = true, .per_thread = true);                             \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD2D##size##_v2(CUdeviceptr ptr, size_t pitch, type value,              \
                                           size_t width, size_t height)                            \
    {                                                                                              \
        SET(cuMemsetD2D##size##_v2, .bits = size, .ptr = ptr, .pitch = pitch, .value = value,      \
            .width = width, .height = height, .has_rows = true);                                   \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD2D##size##_v2_ptds(CUdeviceptr ptr, size_t pitch, type value,         \
                                                size_t width, size_t height)                       \
    {                                                                                              \
        SET(cuMemsetD2D##size##_v2_ptds, .bits = size, .ptr = ptr, .pitch = pitch, .value = value, \
            .width = width, .height = height, .has_rows = true, .per_thread = true);               \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD2D##size##Async(CUdeviceptr ptr, size_t pitch, type value,            \
                                             size_t width, size_t height, CUstream stream)         \
    {                                                                                              \
        SET(cuMemsetD2D##size##Async, .bits = size, .ptr = ptr, .pitch = pitch, .value = value,    \
            .width = width, .height = height, .has_rows = true, .stream = stream,                  \
            .has_stream = true);                                                                   \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD2D##size##Async_ptsz(CUdeviceptr ptr, size_t pitch, type value,       \
                                                  size_t width, size_t height, CUstream stream)    \
    {                                                                                              \
        SET(cuMemsetD2D##size##Async_ptsz, .bits = size, .ptr = ptr, .pitch = pitch,               \
            .value = value, .width = width, .height = height, .has_rows = true, .stream = stream,  \
            .has_stream = true, .per_thread = true);                                               \
    }

SETS(8, unsigned char)
SETS(16, unsigned short)
SETS(32, unsigned int)

/* Copies */

static bool are_apart(CUdeviceptr a, CUdeviceptr b)
{
    int of_a, of_b;

    return vgpu.device_count > 1 && pointer_ordinal(a, &of_a) && pointer_ordinal(b, &of_b) &&
           of_a != of_b;
}

/* How much of a copy the multiprocessors have to do with. Asked only where there is a limit, so
 * that the driver is there. */
static uint64_t between_devices(CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
    return is_limited() && (are_apart(to, from) || pools_spilled(to) || pools_spilled(from))
               ? 0
               : bytes;
}

static uint64_t between_any(CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
    return bytes && is_limited() && pointer_is_on_device(to) && pointer_is_on_device(from) &&
                   !are_apart(to, from)
               ? bytes
               : 0;
}

/* NULL stays NULL. */
static __attribute__((noinline)) void *take(void *own, const void *of, size_t size)
{
    return of ? memcpy(own, of, size) : NULL;
}

/* Where a side is taken for a device's, it may be one that a pool of ours holds on the host. */
static bool is_there(int type, CUdeviceptr ptr)
{
    return pointer_is_there(type, ptr) && (type != CU_MEMORYTYPE_DEVICE || !pools_spilled(ptr));
}

static uint64_t bytes_of_2d(const CUDA_MEMCPY2D *copy)
{
    if (!copy || !is_limited() || !is_there(copy->dstMemoryType, copy->dstDevice) ||
        !is_there(copy->srcMemoryType, copy->srcDevice))
        return 0;
    return volume(copy->WidthInBytes, copy->Height, 1);
}

static uint64_t bytes_of_3d(const CUDA_MEMCPY3D *copy)
{
    if (!copy || !is_limited() || !is_there(copy->dstMemoryType, copy->dstDevice) ||
        !is_there(copy->srcMemoryType, copy->srcDevice))
        return 0;
    return volume(copy->WidthInBytes, copy->Height, copy->Depth);
}

/* One that is not known may be of the same device: a green context, or a primary one unseen. */
static bool are_of_one_device(CUcontext a, CUcontext b)
{
    const struct vgpu_device *of_a = contexts_device(a), *of_b = contexts_device(b);

    return !of_a || !of_b || of_a == of_b;
}

/* The contexts are where others have what is reserved. */
static uint64_t bytes_of_peer(const CUDA_MEMCPY3D_PEER *copy)
{
    return copy && are_of_one_device(copy->reserved0, copy->reserved1) ? bytes_of_3d(copy) : 0;
}

static bool operand_is_there(const CUmemcpy3DOperand *operand)
{
    return operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY ||
           pointer_is_on_device(operand->op.ptr.ptr);
}

static uint64_t target_of_3d(const CUDA_MEMCPY3D *copy)
{
    return copy ? graph_homes_target(copy) : 0;
}

#define target_of_peer target_of_3d

static uint64_t target_of_2d(const CUDA_MEMCPY2D *copy)
{
    if (!copy)
        return 0;
    return graph_homes_target(&(CUDA_MEMCPY3D){
        .dstMemoryType = copy->dstMemoryType,
        .dstDevice = copy->dstDevice,
        .dstArray = copy->dstArray,
    });
}

static uint64_t target_of(const CUDA_MEMCPY3D_BATCH_OP *copy)
{
    if (!copy)
        return 0;
    return copy->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY
               ? (uint64_t)(uintptr_t)copy->dst.op.array.array
               : copy->dst.op.ptr.ptr;
}

/* In elements of a size that is not told: it only has to be the same for the same copies. */
static uint64_t volume_of(const CUDA_MEMCPY3D_BATCH_OP *copy)
{
    if (!copy || !is_limited() || !operand_is_there(&copy->dst) || !operand_is_there(&copy->src))
        return 0;
    return volume(copy->extent[0], copy->extent[1], copy->extent[2]);
}

/* One call of any of the functions that copy a stretch of memory. */
struct stretch {
    CUdeviceptr to, from;
    size_t bytes;
    CUstream stream;
    enum real_index real;
    bool any, has_stream, per_thread; /* any: of the host as well */
    bool of_host;                     /* one side is the program's own memory */
};

static uint64_t bytes_of_stretch(const struct stretch *copy)
{
    return copy->any ? between_any(copy->to, copy->from, copy->bytes)
                     : between_devices(copy->to, copy->from, copy->bytes);
}

static CUresult copy_by_driver(const struct stretch *copy)
{
    void *real = real_functions[copy->real];

    if (copy->has_stream)
        return ((__typeof__(&cuMemcpyAsync))real)(copy->to, copy->from, copy->bytes, copy->stream);
    return ((__typeof__(&cuMemcpy))real)(copy->to, copy->from, copy->bytes);
}

/* In the way that lets the driver find out where either side is. */
static CUresult copy_either(struct stretch copy)
{
    if (copy.has_stream)
        copy.real = copy.per_thread ? REAL_cuMemcpyAsync_ptsz : REAL_cuMemcpyAsync;
    else
        copy.real = copy.per_thread ? REAL_cuMemcpy_ptds : REAL_cuMemcpy;
    return copy_by_driver(&copy);
}

/* What is no memory of the driver's it would then take for the program's own. */
static bool lives_on_host(const struct stretch *copy)
{
    const bool is_to = pools_spilled(copy->to), is_from = pools_spilled(copy->from);

    if (copy->of_host)
        return (is_to && copy->from) || (is_from && copy->to);
    return (is_to && pointer_is_known(copy->from)) || (is_from && pointer_is_known(copy->to));
}

/* What came of it: made again where what the driver refuses lives on the host. */
static CUresult copied(const struct stretch *copy, CUresult result)
{
    if (result == CUDA_ERROR_INVALID_VALUE && !copy->any && lives_on_host(copy))
        return copy_either(*copy);
    return result;
}

static CUresult copy_charged(const struct stretch *copy)
{
    COPY_ANY(bytes_of_stretch(copy), copy->to, copy->stream, copy->per_thread,
             copy_by_driver(copy));
}

static CUresult copy_stretch(const struct stretch *copy)
{
    return copied(copy, copy_charged(copy));
}

static CUresult copy_of_host(const struct stretch *copy)
{
    (void)real_driver();
    return copied(copy, copy_by_driver(copy));
}

#define STRETCH(name, ...)                                                                         \
    return copy_stretch(&(struct stretch){to, from, bytes, .real = REAL_##name, __VA_ARGS__})

#define COPY_1D(name, name_async, is_any)                                                          \
    PUBLIC CUresult name(CUdeviceptr to, CUdeviceptr from, size_t bytes)                           \
    {                                                                                              \
        STRETCH(name, .any = is_any);                                                              \
    }                                                                                              \
    PUBLIC CUresult name##_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes)                    \
    {                                                                                              \
        STRETCH(name##_ptds, .any = is_any, .per_thread = true);                                   \
    }                                                                                              \
    PUBLIC CUresult name_async(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream into)      \
    {                                                                                              \
        STRETCH(name_async, .any = is_any, .has_stream = true, .stream = into);                    \
    }                                                                                              \
    PUBLIC CUresult name_async##_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes,              \
                                      CUstream into)                                               \
    {                                                                                              \
        STRETCH(name_async##_ptsz, .any = is_any, .has_stream = true, .stream = into,              \
                .per_thread = true);                                                               \
    }

COPY_1D(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, false)
COPY_1D(cuMemcpy, cuMemcpyAsync, true)

/* A pointer of the host's is passed as an address of the device is. */
#define COPY_HOST(name, name_async, to_type, from_type)                                            \
    COPY_HOST_BY(name, (to_type to, from_type from, size_t bytes), .stream = NULL)                 \
    COPY_HOST_BY(name##_ptds, (to_type to, from_type from, size_t bytes), .per_thread = true)      \
    COPY_HOST_BY(name_async, (to_type to, from_type from, size_t bytes, CUstream on),              \
                 .has_stream = true, .stream = on)                                                 \
    COPY_HOST_BY(name_async##_ptsz, (to_type to, from_type from, size_t bytes, CUstream on),       \
                 .has_stream = true, .stream = on, .per_thread = true)

#define COPY_HOST_BY(name, parameters, ...)                                                        \
    PUBLIC CUresult name parameters                                                                \
    {                                                                                              \
        return copy_of_host(&(struct stretch){(CUdeviceptr)(uintptr_t)to,                          \
                                              (CUdeviceptr)(uintptr_t)from, bytes,                 \
                                              .of_host = true, .real = REAL_##name, __VA_ARGS__}); \
    }

COPY_HOST(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, void *, CUdeviceptr)
COPY_HOST(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *)

static CUresult begin_peer(struct transfer *transfer, const struct stretch *copy,
                           CUcontext to_context, CUcontext from_context)
{
    const uint64_t bytes = are_of_one_device(to_context, from_context)
                               ? between_devices(copy->to, copy->from, copy->bytes)
                               : 0;

    return begin(transfer, COPY, bytes, copy->to, copy->stream, copy->per_thread);
}

#define COPY_PEER(name, parameters, call, ...)                                                     \
    PUBLIC CUresult name parameters                                                                \
    {                                                                                              \
        const struct stretch copy = {to, from, bytes, __VA_ARGS__};                                \
        struct transfer transfer;                                                                  \
        CUresult result = begin_peer(&transfer, &copy, to_context, from_context);                  \
                                                                                                   \
        return result == CUDA_SUCCESS ? copied(&copy, end(&transfer, REAL(name) call)) : result;   \
    }

COPY_PEER(cuMemcpyPeer,
          (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
           size_t bytes),
          (to, to_context, from, from_context, bytes), .stream = NULL)
COPY_PEER(cuMemcpyPeer_ptds,
          (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
           size_t bytes),
          (to, to_context, from, from_context, bytes), .per_thread = true)
COPY_PEER(cuMemcpyPeerAsync,
          (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
           size_t bytes, CUstream stream),
          (to, to_context, from, from_context, bytes, stream), .has_stream = true, .stream = stream)
COPY_PEER(cuMemcpyPeerAsync_ptsz,
          (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
           size_t bytes, CUstream stream),
          (to, to_context, from, from_context, bytes, stream), .has_stream = true, .stream = stream,
          .per_thread = true)

/* A side of a copy that lives on the host: the driver is to find out where. False: it does not. */
static bool let_find(int *type, CUdeviceptr ptr)
{
    if (*type != CU_MEMORYTYPE_DEVICE || !pools_spilled(ptr))
        return false;
    *type = CU_MEMORYTYPE_UNIFIED;
    return true;
}

/* One call of any of the functions of that description, with a stream or without. */
#define ROWS(of, type)                                                                             \
    static CUresult by_driver_##of(enum real_index index, const type *copy, bool has_stream,       \
                                   CUstream stream)                                                \
    {                                                                                              \
        return has_stream                                                                          \
                   ? ((CUresult(*)(const type *, CUstream))real_functions[index])(copy, stream)    \
                   : ((CUresult(*)(const type *))real_functions[index])(copy);                     \
    }                                                                                              \
                                                                                                   \
    static CUresult charged_##of(enum real_index index, const type *copy, bool per_thread,         \
                                 bool has_stream, CUstream stream)                                 \
    {                                                                                              \
        COPY_ANY(bytes_of_##of(copy), target_of_##of(copy), stream, per_thread,                    \
                 by_driver_##of(index, copy, has_stream, stream));                                 \
    }                                                                                              \
                                                                                                   \
    static CUresult copy_##of(enum real_index index, const type *copy, bool per_thread,            \
                              bool has_stream, CUstream stream)                                    \
    {                                                                                              \
        CUresult result;                                                                           \
        type own;                                                                                  \
                                                                                                   \
        copy = take(&own, copy, sizeof(own));                                                      \
        result = charged_##of(index, copy, per_thread, has_stream, stream);                        \
        if (result == CUDA_ERROR_INVALID_VALUE && copy) {                                          \
            const bool to = let_find(&own.dstMemoryType, own.dstDevice);                           \
            const bool from = let_find(&own.srcMemoryType, own.srcDevice);                         \
                                                                                                   \
            if (to || from)                                                                        \
                result = by_driver_##of(index, copy, has_stream, stream);                          \
        }                                                                                          \
        return result;                                                                             \
    }

ROWS(2d, CUDA_MEMCPY2D)
ROWS(3d, CUDA_MEMCPY3D)
ROWS(peer, CUDA_MEMCPY3D_PEER)

#define COPY_ROWS(name, per_thread, type, of)                                                      \
    PUBLIC CUresult name(const type *copy)                                                         \
    {                                                                                              \
        return copy_##of(REAL_##name, copy, per_thread, false, NULL);                              \
    }

#define COPY_ROWS_ASYNC(name, per_thread, type, of)                                                \
    PUBLIC CUresult name(const type *copy, CUstream stream)                                        \
    {                                                                                              \
        return copy_##of(REAL_##name, copy, per_thread, true, stream);                             \
    }

COPY_ROWS(cuMemcpy2D_v2, false, CUDA_MEMCPY2D, 2d)
COPY_ROWS(cuMemcpy2D_v2_ptds, true, CUDA_MEMCPY2D, 2d)
COPY_ROWS(cuMemcpy2DUnaligned_v2, false, CUDA_MEMCPY2D, 2d)
COPY_ROWS(cuMemcpy2DUnaligned_v2_ptds, true, CUDA_MEMCPY2D, 2d)
COPY_ROWS_ASYNC(cuMemcpy2DAsync_v2, false, CUDA_MEMCPY2D, 2d)
COPY_ROWS_ASYNC(cuMemcpy2DAsync_v2_ptsz, true, CUDA_MEMCPY2D, 2d)
COPY_ROWS(cuMemcpy3D_v2, false, CUDA_MEMCPY3D, 3d)
COPY_ROWS(cuMemcpy3D_v2_ptds, true, CUDA_MEMCPY3D, 3d)
COPY_ROWS_ASYNC(cuMemcpy3DAsync_v2, false, CUDA_MEMCPY3D, 3d)
COPY_ROWS_ASYNC(cuMemcpy3DAsync_v2_ptsz, true, CUDA_MEMCPY3D, 3d)
COPY_ROWS(cuMemcpy3DPeer, false, CUDA_MEMCPY3D_PEER, peer)
COPY_ROWS(cuMemcpy3DPeer_ptds, true, CUDA_MEMCPY3D_PEER, peer)
COPY_ROWS_ASYNC(cuMemcpy3DPeerAsync, false, CUDA_MEMCPY3D_PEER, peer)
COPY_ROWS_ASYNC(cuMemcpy3DPeerAsync_ptsz, true, CUDA_MEMCPY3D_PEER, peer)

/* Arrays are of one device. */
#define COPY_ARRAY(name, parameters, call)                                                         \
    PUBLIC CUresult name parameters                                                                \
    {                                                                                              \
        TRANSFER(COPY, bytes, (uint64_t)to, NULL, false, REAL(name) call);                         \
    }                                                                                              \
    PUBLIC CUresult name##_ptds parameters                                                         \
    {                                                                                              \
        TRANSFER(COPY, bytes, (uint64_t)to, NULL, true, REAL(name##_ptds) call);                   \
    }

COPY_ARRAY(cuMemcpyDtoA_v2, (CUarray to, size_t offset, CUdeviceptr from, size_t bytes),
           (to, offset, from, bytes))
COPY_ARRAY(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, size_t offset, size_t bytes),
           (to, from, offset, bytes))
COPY_ARRAY(cuMemcpyAtoA_v2,
           (CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes),
           (to, to_offset, from, from_offset, bytes))

/* Several at once */

struct batch {
    CUdeviceptr *to, *from;
    size_t *bytes;
    CUDA_MEMCPY3D_BATCH_OP *list; /* of several dimensions, in place of the others */
    size_t count;
    void *own; /* lists of ours; NULL: there are none */
    size_t size;
};

/* False: there is no memory for it. */
static bool make_lists(struct batch *batch, size_t each)
{
    void *own;

    if (__builtin_mul_overflow(batch->count, each, &batch->size))
        return false;
    own = mmap(NULL, batch->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    batch->own = own != MAP_FAILED ? own : NULL;
    return batch->own != NULL;
}

static bool take_lists(struct batch *batch)
{
    const size_t size = batch->count * sizeof(CUdeviceptr);

    if (!make_lists(batch, 3 * sizeof(CUdeviceptr)))
        return false;
    batch->to = take(batch->own, batch->to, size);
    batch->from = take(batch->to + batch->count, batch->from, size);
    batch->bytes = take(batch->from + batch->count, batch->bytes, size);
    return true;
}

static bool take_list(struct batch *batch)
{
    if (!make_lists(batch, sizeof(batch->list[0])))
        return false;
    batch->list = take(batch->own, batch->list, batch->size);
    return true;
}

static uint64_t size_of_all(const struct batch *batch)
{
    uint64_t all = 0;

    for (size_t i = 0; i < batch->count; i++) {
        uint64_t bytes = batch->list ? volume_of(&batch->list[i])
                                     : between_any(batch->to[i], batch->from[i], batch->bytes[i]);

        if (__builtin_add_overflow(all, bytes, &all))
            return UINT64_MAX;
    }
    return all;
}

/* Without a limit the lists stay where they are, and so do those that the driver refuses. */
static CUresult begin_batch(struct transfer *transfer, struct batch *batch, CUstream stream,
                            bool per_thread)
{
    CUresult result;

    const bool whole = batch->list || (batch->to && batch->from && batch->bytes);

    if (!is_limited() || !batch->count || !whole)
        return begin(transfer, COPY, 0, 0, stream, per_thread);
    if (!(batch->list ? take_list(batch) : take_lists(batch)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = begin(transfer, COPY, size_of_all(batch), 0, stream, per_thread);
    transfer->flight.ticket.is_list = true;
    transfer->since_ns = clock_now_ns();
    for (size_t i = 0; i < batch->count && result == CUDA_SUCCESS; i++)
        note_captured(transfer, batch->list ? target_of(&batch->list[i]) : batch->to[i]);
    return result;
}

/* Of what the driver refuses it may have done the first part. */
static void look_at_batch(const struct batch *batch, const struct transfer *transfer,
                          CUstream stream, bool per_thread)
{
    if (batch->own)
        look_again(transfer, size_of_all(batch), stream, per_thread);
}

static void free_lists(struct batch *batch)
{
    if (batch->own)
        (void)munmap(batch->own, batch->size);
}

#define BATCH(stream, per_thread, call, ...)                                                       \
    struct batch batch = {__VA_ARGS__, .count = count};                                            \
    struct transfer transfer;                                                                      \
    CUresult result = begin_batch(&transfer, &batch, stream, per_thread);                          \
                                                                                                   \
    if (result == CUDA_SUCCESS) {                                                                  \
        result = end(&transfer, (call));                                                           \
        look_at_batch(&batch, &transfer, stream, per_thread);                                      \
    }                                                                                              \
    free_lists(&batch);                                                                            \
    return result

#define COPY_BATCH(name, per_thread)                                                               \
    PUBLIC CUresult name(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,          \
                         CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count,  \
                         size_t *failed, CUstream stream)                                          \
    {                                                                                              \
        BATCH(stream, per_thread,                                                                  \
              REAL(name)(batch.to, batch.from, batch.bytes, count, attributes, indices,            \
                         attribute_count, failed, stream),                                         \
              .to = to, .from = from, .bytes = bytes);                                             \
    }

#define COPY_BATCH_V2(name, per_thread)                                                            \
    PUBLIC CUresult name(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,          \
                         CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count,  \
                         CUstream stream)                                                          \
    {                                                                                              \
        BATCH(stream, per_thread,                                                                  \
              REAL(name)(batch.to, batch.from, batch.bytes, count, attributes, indices,            \
                         attribute_count, stream),                                                 \
              .to = to, .from = from, .bytes = bytes);                                             \
    }

COPY_BATCH(cuMemcpyBatchAsync, false)
COPY_BATCH(cuMemcpyBatchAsync_ptsz, true)
COPY_BATCH_V2(cuMemcpyBatchAsync_v2, false)
COPY_BATCH_V2(cuMemcpyBatchAsync_v2_ptsz, true)

#define COPY_3D_BATCH(name, per_thread)                                                            \
    PUBLIC CUresult name(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed,               \
                         unsigned long long flags, CUstream stream)                                \
    {                                                                                              \
        BATCH(stream, per_thread, REAL(name)(count, batch.list, failed, flags, stream),            \
              .list = list);                                                                       \
    }

#define COPY_3D_BATCH_V2(name, per_thread)                                                         \
    PUBLIC CUresult name(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, unsigned long long flags,     \
                         CUstream stream)                                                          \
    {                                                                                              \
        BATCH(stream, per_thread, REAL(name)(count, batch.list, flags, stream), .list = list);     \
    }

COPY_3D_BATCH(cuMemcpy3DBatchAsync, false)
COPY_3D_BATCH(cuMemcpy3DBatchAsync_ptsz, true)
COPY_3D_BATCH_V2(cuMemcpy3DBatchAsync_v2, false)
COPY_3D_BATCH_V2(cuMemcpy3DBatchAsync_v2_ptsz, true)

#define COPY_WITH(name, per_thread)                                                                \
    PUBLIC CUresult name(CUdeviceptr to, CUdeviceptr from, size_t bytes,                           \
                         CUmemcpyAttributes *attributes, CUstream stream)                          \
    {                                                                                              \
        COPY_ANY(between_any(to, from, bytes), to, stream, per_thread,                             \
                 REAL(name)(to, from, bytes, attributes, stream));                                 \
    }

#define COPY_3D_WITH(name, per_thread)                                                             \
    PUBLIC CUresult name(CUDA_MEMCPY3D_BATCH_OP *copy, unsigned long long flags, CUstream stream)  \
    {                                                                                              \
        CUDA_MEMCPY3D_BATCH_OP own;                                                                \
                                                                                                   \
        copy = take(&own, copy, sizeof(own));                                                      \
        COPY_ANY(volume_of(copy), target_of(copy), stream, per_thread,                             \
                 REAL(name)(copy, flags, stream));                                                 \
    }

COPY_WITH(cuMemcpyWithAttributesAsync, false)
COPY_WITH(cuMemcpyWithAttributesAsync_ptsz, true)
COPY_3D_WITH(cuMemcpy3DWithAttributesAsync, false)
COPY_3D_WITH(cuMemcpy3DWithAttributesAsync_ptsz, true)
