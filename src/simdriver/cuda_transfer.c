/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Setting memory, and copies. Nothing is written, for memory is not backed. The multiprocessors set
 * memory, and copy within a device, for as long as the memory takes at TRANSFER_RATE; a copy reads
 * as much as it writes. What the host's memory has to do with keeps its place in the stream's order
 * and takes nothing: what is no memory of the driver's is taken for the host's.
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

/* One side of a copy: a type CU_MEMORYTYPE_, what the call takes the address for. */
struct side {
    int type;
    CUdeviceptr address;
};

struct transfer {
    CUgraphNodeType type;
    CUdeviceptr to, from; /* from: of a copy */
    uint64_t bytes;
    CUstream stream;
    bool per_thread;
    bool of_host; /* the multiprocessors have nothing to do with it */
    bool waits;   /* until it is done */
};

/* As an H200 does (driver 580): a pool's memory on the host is no device's, while what is mapped of
 * the host's is. */
static CUresult look(const struct side *side, uint64_t bytes, bool *of_host)
{
    const enum guest_kind kind = guest_kind_of(side->address);

    if (side->type == CU_MEMORYTYPE_ARRAY)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (side->type == CU_MEMORYTYPE_HOST ||
        (side->type == CU_MEMORYTYPE_UNIFIED && kind == GUEST_NOTHING)) {
        *of_host = true;
        return side->address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (!is_memory(side->address, bytes) ||
        (side->type == CU_MEMORYTYPE_DEVICE && kind == GUEST_HOST_POOL))
        return CUDA_ERROR_INVALID_VALUE;
    *of_host |= kind != GUEST_DEVICE;
    return CUDA_SUCCESS;
}

/* What takes nothing is to wait for what its stream has done already. */
static CUresult append_nothing(uint32_t stream)
{
    struct sim_op op = {
        .kind = SIM_OP_WAIT, .target = stream, .gen = guest_state()->streams[stream].gen};

    return guest_append(stream, &op);
}

static CUresult enqueue(uint32_t stream, const struct transfer *transfer)
{
    const uint32_t context = guest_state()->streams[stream].context;
    const bool copies = transfer->type == CU_GRAPH_NODE_TYPE_MEMCPY;
    struct sim_op op = transfer->of_host
                           ? (struct sim_op){0}
                           : op_of(context, copies ? 2 * transfer->bytes : transfer->bytes);
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
    if (transfer->of_host)
        return append_nothing(stream);
    guest_managed_touch(transfer->to, guest_context(context)->device);
    if (copies)
        guest_managed_touch(transfer->from, guest_context(context)->device);
    return guest_launch(stream, &op);
}

static CUresult transfer(const struct transfer *what)
{
    uint32_t stream;
    CUresult r = guest_enter_stream(what->stream, what->per_thread, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    r = enqueue(stream, what);
    sim_unlock(guest.sim);
    if (r == CUDA_SUCCESS && what->waits)
        return what->per_thread ? cuStreamSynchronize_ptsz(what->stream)
                                : cuStreamSynchronize(what->stream);
    return r;
}

static CUresult set(CUdeviceptr to, uint64_t bytes, CUstream stream, bool per_thread)
{
    uint32_t context;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS || !bytes)
        return r;
    if (!is_memory(to, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return transfer(&(struct transfer){
        .type = CU_GRAPH_NODE_TYPE_MEMSET,
        .to = to,
        .bytes = bytes,
        .stream = stream,
        .per_thread = per_thread,
    });
}

/* How a copy is asked for. */
struct way {
    CUstream stream;
    bool per_thread;
    bool returns; /* before it is done: else it waits, if the host's memory has to do with it */
};

static CUresult copy(struct side to, struct side from, uint64_t bytes, const struct way *way)
{
    struct transfer what = {
        .type = CU_GRAPH_NODE_TYPE_MEMCPY,
        .to = to.address,
        .from = from.address,
        .bytes = bytes,
        .stream = way->stream,
        .per_thread = way->per_thread,
    };
    uint32_t context;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS || !bytes)
        return r;
    r = look(&to, bytes, &what.of_host);
    if (r == CUDA_SUCCESS)
        r = look(&from, bytes, &what.of_host);
    what.waits = what.of_host && !way->returns;
    if (r == CUDA_SUCCESS && what.waits)
        r = guest_check_safe();
    return r == CUDA_SUCCESS ? transfer(&what) : r;
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

#define ADDRESS(ptr) (CUdeviceptr)(uintptr_t)(ptr)

/* The four functions that copy from one type of memory to another. */
#define COPIES(name, name_async, to_kind, to_type, from_kind, from_type)                           \
    PUBLIC CUresult name(to_kind to, from_kind from, size_t bytes)                                 \
    {                                                                                              \
        COPY(to_type, from_type, .stream = NULL);                                                  \
    }                                                                                              \
    PUBLIC CUresult name##_ptds(to_kind to, from_kind from, size_t bytes)                          \
    {                                                                                              \
        COPY(to_type, from_type, .per_thread = true);                                              \
    }                                                                                              \
    PUBLIC CUresult name_async(to_kind to, from_kind from, size_t bytes, CUstream on)              \
    {                                                                                              \
        COPY(to_type, from_type, .stream = on, .returns = true);                                   \
    }                                                                                              \
    PUBLIC CUresult name_async##_ptsz(to_kind to, from_kind from, size_t bytes, CUstream on)       \
    {                                                                                              \
        COPY(to_type, from_type, .stream = on, .returns = true, .per_thread = true);               \
    }

#define COPY(to_type, from_type, ...)                                                              \
    return copy((struct side){CU_MEMORYTYPE_##to_type, ADDRESS(to)},                               \
                (struct side){CU_MEMORYTYPE_##from_type, ADDRESS(from)}, bytes,                    \
                &(struct way){__VA_ARGS__})

COPIES(cuMemcpyDtoD_v2, cuMemcpyDtoDAsync_v2, CUdeviceptr, DEVICE, CUdeviceptr, DEVICE)
COPIES(cuMemcpyDtoH_v2, cuMemcpyDtoHAsync_v2, void *, HOST, CUdeviceptr, DEVICE)
COPIES(cuMemcpyHtoD_v2, cuMemcpyHtoDAsync_v2, CUdeviceptr, DEVICE, const void *, HOST)
COPIES(cuMemcpy, cuMemcpyAsync, CUdeviceptr, UNIFIED, CUdeviceptr, UNIFIED)

/* Contexts of one device. */
static CUresult copy_peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                          CUcontext from_context, size_t bytes, const struct way *way)
{
    CUresult r = guest_check();
    uint32_t a, b;

    if (r != CUDA_SUCCESS)
        return r;
    (void)sim_lock(guest.sim);
    if (!guest_find_context(to_context, &a) || !guest_find_context(from_context, &b))
        r = CUDA_ERROR_INVALID_CONTEXT;
    else if (guest_context(a)->device != guest_context(b)->device)
        r = CUDA_ERROR_NOT_SUPPORTED;
    sim_unlock(guest.sim);
    if (r != CUDA_SUCCESS)
        return r;
    return copy((struct side){CU_MEMORYTYPE_DEVICE, to}, (struct side){CU_MEMORYTYPE_DEVICE, from},
                bytes, way);
}

PUBLIC CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                             CUcontext from_context, size_t bytes)
{
    return copy_peer(to, to_context, from, from_context, bytes, &(struct way){0});
}

PUBLIC CUresult cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                  CUcontext from_context, size_t bytes)
{
    return copy_peer(to, to_context, from, from_context, bytes, &(struct way){.per_thread = true});
}

PUBLIC CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                  CUcontext from_context, size_t bytes, CUstream stream)
{
    return copy_peer(to, to_context, from, from_context, bytes,
                     &(struct way){.stream = stream, .returns = true});
}

PUBLIC CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                       CUcontext from_context, size_t bytes, CUstream stream)
{
    return copy_peer(to, to_context, from, from_context, bytes,
                     &(struct way){.stream = stream, .returns = true, .per_thread = true});
}

/* Rows of a pitch, or layers of rows. */
static CUresult copy_rows(const CUDA_MEMCPY3D *rows, const struct way *way)
{
    const struct side to = {rows->dstMemoryType, rows->dstMemoryType == CU_MEMORYTYPE_HOST
                                                     ? ADDRESS(rows->dstHost)
                                                     : rows->dstDevice};
    const struct side from = {rows->srcMemoryType, rows->srcMemoryType == CU_MEMORYTYPE_HOST
                                                       ? ADDRESS(rows->srcHost)
                                                       : rows->srcDevice};

    return copy(to, from, product(rows->WidthInBytes, rows->Height, rows->Depth), way);
}

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, const struct way *way)
{
    if (!copy)
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    return copy_rows(
        &(CUDA_MEMCPY3D){
            .srcMemoryType = copy->srcMemoryType,
            .srcHost = copy->srcHost,
            .srcDevice = copy->srcDevice,
            .dstMemoryType = copy->dstMemoryType,
            .dstHost = copy->dstHost,
            .dstDevice = copy->dstDevice,
            .WidthInBytes = copy->WidthInBytes,
            .Height = copy->Height,
            .Depth = 1,
        },
        way);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *copy, const struct way *way)
{
    if (!copy)
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    return copy_rows(copy, way);
}

#define COPIES_ROWS(name, name_async, type, copy_of)                                               \
    PUBLIC CUresult name(const type *copy)                                                         \
    {                                                                                              \
        return copy_of(copy, &(struct way){0});                                                    \
    }                                                                                              \
    PUBLIC CUresult name##_ptds(const type *copy)                                                  \
    {                                                                                              \
        return copy_of(copy, &(struct way){.per_thread = true});                                   \
    }                                                                                              \
    PUBLIC CUresult name_async(const type *copy, CUstream on)                                      \
    {                                                                                              \
        return copy_of(copy, &(struct way){.stream = on, .returns = true});                        \
    }                                                                                              \
    PUBLIC CUresult name_async##_ptsz(const type *copy, CUstream on)                               \
    {                                                                                              \
        return copy_of(copy, &(struct way){.stream = on, .returns = true, .per_thread = true});    \
    }

COPIES_ROWS(cuMemcpy2D_v2, cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, copy_2d)
COPIES_ROWS(cuMemcpy3D_v2, cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, copy_3d)

/* Several: those before the first that is refused are made. */
static CUresult copy_all(const CUdeviceptr *tos, const CUdeviceptr *froms, const size_t *bytes,
                         size_t count, CUstream stream)
{
    const struct way way = {.stream = stream, .returns = true};
    CUresult r = guest_check();

    if (r == CUDA_SUCCESS && (!tos || !froms || !bytes || !count))
        r = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && r == CUDA_SUCCESS; i++)
        r = copy((struct side){CU_MEMORYTYPE_UNIFIED, tos[i]},
                 (struct side){CU_MEMORYTYPE_UNIFIED, froms[i]}, bytes[i], &way);
    return r;
}

PUBLIC CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
                                   CUmemcpyAttributes *attributes, size_t *indices,
                                   size_t attribute_count, size_t *failed, CUstream stream)
{
    (void)attributes, (void)indices, (void)attribute_count;
    if (failed)
        *failed = SIZE_MAX;
    return copy_all(to, from, bytes, count, stream);
}

PUBLIC CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                                      size_t count, CUmemcpyAttributes *attributes, size_t *indices,
                                      size_t attribute_count, CUstream stream)
{
    (void)attributes, (void)indices, (void)attribute_count;
    return copy_all(to, from, bytes, count, stream);
}

struct sim_op guest_make_copy(const CUDA_MEMSET_NODE_PARAMS *to, uint32_t context)
{
    return op_of(context, 2 * (uint64_t)to->width * to->height);
}

struct sim_op guest_make_set(const CUDA_MEMSET_NODE_PARAMS *params, uint32_t context)
{
    return op_of(context, (uint64_t)params->elementSize * params->width * params->height);
}
