/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Setting memory, and copies within a device. Nothing is written, for memory is not backed; but
 * the multiprocessors are at it for as long as the memory takes at TRANSFER_RATE. A copy reads as
 * much as it writes. What the host's memory has to do with is not simulated.
 */

#include "base/util.h"
#include "simdriver/graph.h"
#include "simdriver/guest.h"

#define TRANSFER_RATE 2000 /* bytes a nanosecond, about an H100's */
#define TRANSFER_LEAST_NS 1000

/* UINT64_MAX: more than there can be. */
static uint64_t product(uint64_t a, uint64_t b, uint64_t c)
{
    return __builtin_mul_overflow(a, b, &a) || __builtin_mul_overflow(a, c, &a) ? UINT64_MAX : a;
}

/* All of it lies in one piece of memory. */
static bool is_memory(uint64_t address, uint64_t bytes)
{
    uint64_t from, size;
    bool managed;

    if (bytes > UINT64_MAX - address)
        return false;
    (void)sim_lock(guest.sim);
    managed = guest_managed_has(address) && guest_managed_has(address + bytes - 1);
    sim_unlock(guest.sim);
    return managed || (guest_range(address, &from, &size) && bytes <= size - (address - from));
}

static struct sim_op op_of(uint32_t context, uint64_t bytes)
{
    const unsigned device = guest_context(context)->device;

    return (struct sim_op){
        .kind = SIM_OP_KERNEL,
        .work_ns = (int64_t)(TRANSFER_LEAST_NS + bytes / TRANSFER_RATE),
        .weight = (uint32_t)sim_spec_of(guest_state(), device)->multiprocessors,
    };
}

struct transfer {
    CUgraphNodeType type;
    CUdeviceptr to, from; /* from: of a copy */
    uint64_t bytes;
    CUstream stream;
    bool per_thread;
};

static CUresult enqueue(uint32_t stream, const struct transfer *transfer)
{
    const uint32_t context = guest_state()->streams[stream].context;
    const bool copies = transfer->type == CU_GRAPH_NODE_TYPE_MEMCPY;
    struct sim_op op = op_of(context, copies ? 2 * transfer->bytes : transfer->bytes);
    struct graph_node node = {
        .type = transfer->type,
        .op = op,
        .context = context,
        .context_gen = guest_context(context)->gen,
        .set = {.dst = transfer->to, .elementSize = 1, .width = transfer->bytes, .height = 1},
        .copied_from = transfer->from,
    };
    CUresult r;

    if (guest_is_capturing(stream))
        return guest_capture_node(stream, &node);
    r = guest_check_legacy(stream, false);
    if (r != CUDA_SUCCESS)
        return r;
    guest_managed_touch(transfer->to, guest_context(context)->device);
    if (copies)
        guest_managed_touch(transfer->from, guest_context(context)->device);
    return guest_launch(stream, &op);
}

static CUresult transfer(const struct transfer *what)
{
    uint32_t stream;
    CUresult r = guest_current(&stream);

    if (r != CUDA_SUCCESS || !what->bytes)
        return r;
    if (!is_memory(what->to, what->bytes) ||
        (what->type == CU_GRAPH_NODE_TYPE_MEMCPY && !is_memory(what->from, what->bytes)))
        return CUDA_ERROR_INVALID_VALUE;
    r = guest_enter_stream(what->stream, what->per_thread, &stream);
    if (r != CUDA_SUCCESS)
        return r;
    r = enqueue(stream, what);
    sim_unlock(guest.sim);
    return r;
}

static CUresult set(CUdeviceptr to, uint64_t bytes, CUstream stream, bool per_thread)
{
    return transfer(&(struct transfer){
        .type = CU_GRAPH_NODE_TYPE_MEMSET,
        .to = to,
        .bytes = bytes,
        .stream = stream,
        .per_thread = per_thread,
    });
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, uint64_t bytes, CUstream stream,
                     bool per_thread)
{
    return transfer(&(struct transfer){
        .type = CU_GRAPH_NODE_TYPE_MEMCPY,
        .to = to,
        .from = from,
        .bytes = bytes,
        .stream = stream,
        .per_thread = per_thread,
    });
}

#define SETS(bits, type)                                                                           \
    PUBLIC CUresult cuMemsetD##bits##_v2(CUdeviceptr to, type value, size_t count)                 \
    {                                                                                              \
        (void)value;                                                                               \
        return set(to, product(count, 1, sizeof(type)), NULL, false);                              \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD##bits##_v2_ptds(CUdeviceptr to, type value, size_t count)            \
    {                                                                                              \
        (void)value;                                                                               \
        return set(to, product(count, 1, sizeof(type)), NULL, true);                               \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD##bits##Async(CUdeviceptr to, type value, size_t count,               \
                                           CUstream stream)                                        \
    {                                                                                              \
        (void)value;                                                                               \
        return set(to, product(count, 1, sizeof(type)), stream, false);                            \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD##bits##Async_ptsz(CUdeviceptr to, type value, size_t count,          \
                                                CUstream stream)                                   \
    {                                                                                              \
        (void)value;                                                                               \
        return set(to, product(count, 1, sizeof(type)), stream, true);                             \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD2D##bits##_v2(CUdeviceptr to, size_t pitch, type value, size_t width, \
                                           size_t height)                                          \
    {                                                                                              \
        (void)pitch, (void)value;                                                                  \
        return set(to, product(width, height, sizeof(type)), NULL, false);                         \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD2D##bits##_v2_ptds(CUdeviceptr to, size_t pitch, type value,          \
                                                size_t width, size_t height)                       \
    {                                                                                              \
        (void)pitch, (void)value;                                                                  \
        return set(to, product(width, height, sizeof(type)), NULL, true);                          \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD2D##bits##Async(CUdeviceptr to, size_t pitch, type value,             \
                                             size_t width, size_t height, CUstream stream)         \
    {                                                                                              \
        (void)pitch, (void)value;                                                                  \
        return set(to, product(width, height, sizeof(type)), stream, false);                       \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD2D##bits##Async_ptsz(CUdeviceptr to, size_t pitch, type value,        \
                                                  size_t width, size_t height, CUstream stream)    \
    {                                                                                              \
        (void)pitch, (void)value;                                                                  \
        return set(to, product(width, height, sizeof(type)), stream, true);                        \
    }

SETS(8, unsigned char)
SETS(16, unsigned short)
SETS(32, unsigned int)

PUBLIC CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy(to, from, bytes, NULL, false);
}

PUBLIC CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy(to, from, bytes, NULL, true);
}

PUBLIC CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                     CUstream stream)
{
    return copy(to, from, bytes, stream, false);
}

PUBLIC CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                          CUstream stream)
{
    return copy(to, from, bytes, stream, true);
}

/* Addresses of the host's memory are of no device. */
static CUresult copy_any(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream,
                         bool per_thread)
{
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!is_memory(to, 1) || !is_memory(from, 1))
        return CUDA_ERROR_NOT_SUPPORTED;
    return copy(to, from, bytes, stream, per_thread);
}

PUBLIC CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_any(to, from, bytes, NULL, false);
}

PUBLIC CUresult cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy_any(to, from, bytes, NULL, true);
}

PUBLIC CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_any(to, from, bytes, stream, false);
}

PUBLIC CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_any(to, from, bytes, stream, true);
}

/* Rows of a pitch, or layers of rows. */
static CUresult copy_rows(const CUDA_MEMCPY3D *rows, CUstream stream, bool per_thread)
{
    const int device = CU_MEMORYTYPE_DEVICE;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (rows->dstMemoryType != device || rows->srcMemoryType != device)
        return CUDA_ERROR_NOT_SUPPORTED;
    return copy(rows->dstDevice, rows->srcDevice,
                product(rows->WidthInBytes, rows->Height, rows->Depth), stream, per_thread);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, CUstream stream, bool per_thread)
{
    if (!copy)
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    return copy_rows(
        &(CUDA_MEMCPY3D){
            .srcMemoryType = copy->srcMemoryType,
            .srcDevice = copy->srcDevice,
            .dstMemoryType = copy->dstMemoryType,
            .dstDevice = copy->dstDevice,
            .WidthInBytes = copy->WidthInBytes,
            .Height = copy->Height,
            .Depth = 1,
        },
        stream, per_thread);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *copy, CUstream stream, bool per_thread)
{
    if (!copy)
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    return copy_rows(copy, stream, per_thread);
}

PUBLIC CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy)
{
    return copy_2d(copy, NULL, false);
}

PUBLIC CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D *copy)
{
    return copy_2d(copy, NULL, true);
}

PUBLIC CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    return copy_2d(copy, stream, false);
}

PUBLIC CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D *copy, CUstream stream)
{
    return copy_2d(copy, stream, true);
}

PUBLIC CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *copy)
{
    return copy_3d(copy, NULL, false);
}

PUBLIC CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D *copy)
{
    return copy_3d(copy, NULL, true);
}

PUBLIC CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    return copy_3d(copy, stream, false);
}

PUBLIC CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    return copy_3d(copy, stream, true);
}

/* Several: those before the first that is refused are made. */
static CUresult copy_all(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes,
                         size_t count, CUstream stream, bool per_thread)
{
    CUresult r = guest_check();

    if (r == CUDA_SUCCESS && (!to || !from || !bytes || !count))
        r = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++)
        r = copy_any(to[i], from[i], bytes[i], stream, per_thread);
    return r;
}

PUBLIC CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                                   CUmemcpyAttributes *attributes, size_t *indices,
                                   size_t attribute_count, size_t *failed, CUstream stream)
{
    (void)attributes, (void)indices, (void)attribute_count;
    if (failed)
        *failed = SIZE_MAX;
    return copy_all(to, from, bytes, count, stream, false);
}

PUBLIC CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                                      size_t count, CUmemcpyAttributes *attributes, size_t *indices,
                                      size_t attribute_count, CUstream stream)
{
    (void)attributes, (void)indices, (void)attribute_count;
    return copy_all(to, from, bytes, count, stream, false);
}

struct sim_op guest_make_copy(const CUDA_MEMSET_NODE_PARAMS *to, uint32_t context)
{
    return op_of(context, 2 * (uint64_t)to->width * to->height);
}

struct sim_op guest_make_set(const CUDA_MEMSET_NODE_PARAMS *params, uint32_t context)
{
    return op_of(context, (uint64_t)params->elementSize * params->width * params->height);
}
