/* SPDX-License-Identifier: Apache-2.0 */

/* Memory that is given out in the order of streams, from pools, and freed; in a capture it is the
 * graph's. */

#include "base/util.h"
#include "simdriver/graph_memory.h"
#include "simdriver/guest_pool.h"
#include "simdriver/shared_pool.h"

/* A stream that has a handle needs no context. Under both locks. */
static CUresult find_stream(CUstream handle, bool per_thread, uint32_t *ret_stream)
{
    uint32_t context = 0;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS &&
        (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD))
        return r;
    return guest_find_stream(handle, per_thread, context, ret_stream);
}

static unsigned device_of(uint32_t stream)
{
    return guest_context(guest_state()->streams[stream].context)->device;
}

/* In a capture: the graph's, in a pool's place. */
static CUresult capture_take(CUdeviceptr *ret_ptr, size_t bytes, const struct guest_place *place,
                             uint32_t stream)
{
    struct graph_node like = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC};
    uint64_t address;
    CUresult r;

    if (!graph_memory_may_be(place))
        return CUDA_ERROR_NOT_SUPPORTED;
    like.memory = graph_memory_new(place, bytes);
    if (!like.memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    address = like.memory->address;
    r = guest_capture_node(stream, &like);
    graph_memory_drop(like.memory);
    if (r == CUDA_SUCCESS)
        *ret_ptr = address;
    return r;
}

static CUresult capture_give(CUdeviceptr ptr, uint32_t stream)
{
    struct graph_node like = {
        .type = CU_GRAPH_NODE_TYPE_MEM_FREE,
        .memory = graph_memory_find(ptr),
    };

    if (!graph_may_free(guest_capture_graph(stream), like.memory))
        return CUDA_ERROR_INVALID_VALUE;
    return guest_capture_node(stream, &like);
}

/* From a pool, or the current one of the stream's device. */
static CUresult take(CUdeviceptr *ret_ptr, size_t bytes, const CUmemoryPool *handle,
                     CUstream stream_handle, bool per_thread)
{
    CUresult r = CUDA_SUCCESS;
    struct guest_pool *pool = handle ? guest_pool_find(*handle) : NULL;
    uint32_t stream;
    uint64_t ptr;

    if (handle && (!pool || pool->imported))
        return CUDA_ERROR_INVALID_VALUE;
    r = find_stream(stream_handle, per_thread, &stream);
    if (r == CUDA_SUCCESS)
        r = guest_check_legacy(stream, false);
    if (r != CUDA_SUCCESS)
        return r;
    if (!handle)
        pool = guest_pool_current(device_of(stream));
    if (guest_is_capturing(stream))
        return capture_take(ret_ptr, bytes, &pool->heap.place, stream);
    ptr = heap_take(&pool->heap, bytes, stream);
    if (!ptr)
        return CUDA_ERROR_OUT_OF_MEMORY;
    guest_pools_note_given();
    *ret_ptr = ptr;
    return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *ptr, size_t bytes, const CUmemoryPool *pool, CUstream stream,
                         bool per_thread)
{
    CUresult r = guest_check();

    GUEST_CLEAR(ptr);
    if (r != CUDA_SUCCESS)
        return r;
    if (!ptr || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    guest_pools_enter();
    r = take(ptr, bytes, pool, stream, per_thread);
    guest_pools_leave();
    return r;
}

PUBLIC CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
    return allocate(ptr, bytes, NULL, stream, false);
}

PUBLIC CUresult cuMemAllocAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
    return allocate(ptr, bytes, NULL, stream, true);
}

PUBLIC CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool,
                                        CUstream stream)
{
    return allocate(ptr, bytes, &pool, stream, false);
}

PUBLIC CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool,
                                             CUstream stream)
{
    return allocate(ptr, bytes, &pool, stream, true);
}

/* What cuMemAlloc gave may be freed here as well, and what comes from a pool by cuMemFree. */
static CUresult give(CUdeviceptr ptr, CUstream handle, bool per_thread)
{
    uint32_t stream;
    struct heap_piece *piece;
    struct heap *heap;
    CUresult r = find_stream(handle, per_thread, &stream);

    if (r == CUDA_SUCCESS)
        r = guest_check_legacy(stream, false);
    if (r != CUDA_SUCCESS)
        return r;
    if (guest_is_capturing(stream))
        return capture_give(ptr, stream);
    if (stream == guest_context(guest_state()->streams[stream].context)->legacy)
        sim_join_legacy(guest_state(), stream);
    piece = heap_find(ptr, &heap);
    if (piece) {
        heap_give(piece, stream);
        return CUDA_SUCCESS;
    }
    return shared_pool_free(ptr) || guest_free_locked(ptr) || guest_graph_free(ptr)
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult free_async(CUdeviceptr ptr, CUstream stream, bool per_thread)
{
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!ptr)
        return CUDA_SUCCESS;
    guest_pools_enter();
    r = give(ptr, stream, per_thread);
    guest_pools_look(false);
    guest_pools_leave();
    return r;
}

PUBLIC CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
    return free_async(ptr, stream, false);
}

PUBLIC CUresult cuMemFreeAsync_ptsz(CUdeviceptr ptr, CUstream stream)
{
    return free_async(ptr, stream, true);
}

bool guest_pool_free(uint64_t address)
{
    struct heap_piece *piece;
    struct heap *heap;
    bool found;

    if (!guest_pools_gave())
        return false;
    guest_pools_enter();
    piece = heap_find(address, &heap);
    if (piece)
        heap_give(piece, 0);
    found = piece || shared_pool_free(address);
    guest_pools_look(false);
    guest_pools_leave();
    return found;
}

bool guest_pool_range(uint64_t address, uint64_t *ret_from, uint64_t *ret_bytes)
{
    bool found;

    if (!guest_pools_gave())
        return false;
    guest_pools_enter();
    found =
        heap_range(address, ret_from, ret_bytes) || shared_pool_range(address, ret_from, ret_bytes);
    guest_pools_leave();
    return found;
}
