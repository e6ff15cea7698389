/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Copies that the driver is told by lists and operands (transfer.h). Each is the library's own
 * before it is looked at.
 */

#include <sys/mman.h>

#include "base/clock.h"
#include "vgpu/pointer.h"
#include "vgpu/real.h"
#include "vgpu/transfer.h"

static bool operand_is_there(const CUmemcpy3DOperand *operand)
{
    return operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY ||
           pointer_is_on_device(operand->op.ptr.ptr);
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
    if (!copy || !transfer_is_limited() || !operand_is_there(&copy->dst) ||
        !operand_is_there(&copy->src))
        return 0;
    return transfer_volume(copy->extent[0], copy->extent[1], copy->extent[2]);
}

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
    batch->to = transfer_take(batch->own, batch->to, size);
    batch->from = transfer_take(batch->to + batch->count, batch->from, size);
    batch->bytes = transfer_take(batch->from + batch->count, batch->bytes, size);
    return true;
}

static bool take_list(struct batch *batch)
{
    if (!make_lists(batch, sizeof(batch->list[0])))
        return false;
    batch->list = transfer_take(batch->own, batch->list, batch->size);
    return true;
}

static uint64_t size_of_all(const struct batch *batch)
{
    uint64_t all = 0;

    for (size_t i = 0; i < batch->count; i++) {
        uint64_t bytes = batch->list
                             ? volume_of(&batch->list[i])
                             : transfer_between_any(batch->to[i], batch->from[i], batch->bytes[i]);

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

    if (!transfer_is_limited() || !batch->count || !whole)
        return transfer_begin(transfer, TRANSFER_COPY, 0, 0, stream, per_thread);
    if (!(batch->list ? take_list(batch) : take_lists(batch)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = transfer_begin(transfer, TRANSFER_COPY, size_of_all(batch), 0, stream, per_thread);
    transfer->flight.ticket.is_list = true;
    transfer->since_ns = clock_now_ns();
    for (size_t i = 0; i < batch->count && result == CUDA_SUCCESS; i++)
        transfer_note_captured(transfer, batch->list ? target_of(&batch->list[i]) : batch->to[i]);
    return result;
}

/* Of what the driver refuses it may have done the first part. */
static void look_at_batch(const struct batch *batch, const struct transfer *transfer,
                          CUstream stream, bool per_thread)
{
    if (batch->own)
        transfer_look_again(transfer, size_of_all(batch), stream, per_thread);
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
        result = transfer_end(&transfer, (call));                                                  \
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
        COPY_ANY(transfer_between_any(to, from, bytes), to, stream, per_thread,                    \
                 REAL(name)(to, from, bytes, attributes, stream));                                 \
    }

#define COPY_3D_WITH(name, per_thread)                                                             \
    PUBLIC CUresult name(CUDA_MEMCPY3D_BATCH_OP *copy, unsigned long long flags, CUstream stream)  \
    {                                                                                              \
        CUDA_MEMCPY3D_BATCH_OP own;                                                                \
                                                                                                   \
        copy = transfer_take(&own, copy, sizeof(own));                                             \
        COPY_ANY(volume_of(copy), target_of(copy), stream, per_thread,                             \
                 REAL(name)(copy, flags, stream));                                                 \
    }

COPY_WITH(cuMemcpyWithAttributesAsync, false)
COPY_WITH(cuMemcpyWithAttributesAsync_ptsz, true)
COPY_3D_WITH(cuMemcpy3DWithAttributesAsync, false)
COPY_3D_WITH(cuMemcpy3DWithAttributesAsync_ptsz, true)
