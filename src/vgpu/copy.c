/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Copies, one at a time (transfer.h).
 *
 * Memory in the order of streams that an oversubscribed card has no room for is the host's to the
 * driver, which refuses (invalid value) a copy that takes it for the device's, as the program does:
 * then the copy is made in the way that lets the driver find out where either side is, for free as
 * any from and to the host.
 */

#include "vgpu/contexts.h"
#include "vgpu/graph_homes.h"
#include "vgpu/pointer.h"
#include "vgpu/pools.h"
#include "vgpu/real.h"
#include "vgpu/transfer.h"

/* Where a side is taken for a device's, it may be one that a pool of ours holds on the host. */
static bool is_there(int type, CUdeviceptr ptr)
{
    return pointer_is_there(type, ptr) && (type != CU_MEMORYTYPE_DEVICE || !pools_spilled(ptr));
}

static uint64_t bytes_of_2d(const CUDA_MEMCPY2D *copy)
{
    if (!copy || !transfer_is_limited() || !is_there(copy->dstMemoryType, copy->dstDevice) ||
        !is_there(copy->srcMemoryType, copy->srcDevice))
        return 0;
    return transfer_volume(copy->WidthInBytes, copy->Height, 1);
}

static uint64_t bytes_of_3d(const CUDA_MEMCPY3D *copy)
{
    if (!copy || !transfer_is_limited() || !is_there(copy->dstMemoryType, copy->dstDevice) ||
        !is_there(copy->srcMemoryType, copy->srcDevice))
        return 0;
    return transfer_volume(copy->WidthInBytes, copy->Height, copy->Depth);
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
    return copy->any ? transfer_between_any(copy->to, copy->from, copy->bytes)
                     : transfer_between(copy->to, copy->from, copy->bytes);
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
                               ? transfer_between(copy->to, copy->from, copy->bytes)
                               : 0;

    return transfer_begin(transfer, TRANSFER_COPY, bytes, copy->to, copy->stream, copy->per_thread);
}

#define COPY_PEER(name, parameters, call, ...)                                                     \
    PUBLIC CUresult name parameters                                                                \
    {                                                                                              \
        const struct stretch copy = {to, from, bytes, __VA_ARGS__};                                \
        struct transfer transfer;                                                                  \
        CUresult result = begin_peer(&transfer, &copy, to_context, from_context);                  \
                                                                                                   \
        return result == CUDA_SUCCESS ? copied(&copy, transfer_end(&transfer, REAL(name) call))    \
                                      : result;                                                    \
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
        copy = transfer_take(&own, copy, sizeof(own));                                             \
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
        TRANSFER(TRANSFER_COPY, bytes, (uint64_t)to, NULL, false, REAL(name) call);                \
    }                                                                                              \
    PUBLIC CUresult name##_ptds parameters                                                         \
    {                                                                                              \
        TRANSFER(TRANSFER_COPY, bytes, (uint64_t)to, NULL, true, REAL(name##_ptds) call);          \
    }

COPY_ARRAY(cuMemcpyDtoA_v2, (CUarray to, size_t offset, CUdeviceptr from, size_t bytes),
           (to, offset, from, bytes))
COPY_ARRAY(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, size_t offset, size_t bytes),
           (to, from, offset, bytes))
COPY_ARRAY(cuMemcpyAtoA_v2,
           (CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes),
           (to, to_offset, from, from_offset, bytes))
