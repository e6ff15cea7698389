/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/graphs.h"

#include <string.h>
#include <sys/mman.h>

#include "base/glibc.h"
#include "region/ledger.h"
#include "vgpu/compute.h"
#include "vgpu/grant.h"
#include "vgpu/pool.h"
#include "vgpu/real.h"

#define PIECE POOL_LEAST_CHUNK /* in which graph memory is taken, at least */

enum {
    FIRST_ROWS = 64,
    FEW_NODES = 64, /* that need no memory of their own to be listed */
    CHILDREN = 64,  /* graphs in graphs in graphs that are looked into */
    NODE_PARAMS_SIZE = sizeof(CUgraphNodeParams),
};

/* What the nodes of a graph allocate, by device. */
struct demand {
    uint64_t bytes[REGION_DEVICES], largest[REGION_DEVICES];
};

struct row {
    CUgraphExec exec;
    struct demand demand;
};

static struct {
    pthread_mutex_t lock;
    _Atomic size_t count; /* changes with the lock held */
    size_t size;
    struct row *rows; /* of what may be launched and allocates */
} graphs = {.lock = PTHREAD_MUTEX_INITIALIZER};

/*
 * Held by launches, from looking up what the graph takes to the driver's answer: a handle may be
 * another graph's after its own has ended. Held alone by who makes, changes or ends what may be
 * launched, once any graph may allocate; by who trims; and by a launch that was found to need no
 * more than there is: nobody else's trim gives that back before it is launched. Many that launch
 * don't keep those from it.
 */
static pthread_rwlock_t launching = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

_Atomic bool graphs_any;

void graphs_after_fork(void)
{
    (void)pthread_mutex_init(&graphs.lock, NULL);
    launching = (pthread_rwlock_t)PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    graphs.count = 0;
    atomic_store(&graphs_any, false);
}

void graphs_will_allocate(void)
{
    if (!graphs_allocate())
        atomic_store(&graphs_any, true);
}

/* Rows, with the lock held */

static struct row *find(CUgraphExec exec)
{
    for (size_t i = 0; i < graphs.count; i++) {
        if (graphs.rows[i].exec == exec)
            return &graphs.rows[i];
    }
    return NULL;
}

static bool grow(void)
{
    size_t size = graphs.size ? 2 * graphs.size : FIRST_ROWS;
    struct row *rows;

    if (graphs.count < graphs.size)
        return true;
    rows = mmap(NULL, size * sizeof(*rows), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                0);
    if (rows == MAP_FAILED)
        return false;
    if (graphs.rows) {
        memcpy(rows, graphs.rows, graphs.count * sizeof(*rows));
        (void)munmap(graphs.rows, graphs.size * sizeof(*rows));
    }
    graphs.rows = rows;
    graphs.size = size;
    return true;
}

static bool remember(CUgraphExec exec, const struct demand *demand)
{
    struct row *row;

    (void)pthread_mutex_lock(&graphs.lock);
    row = find(exec);
    if (!row && grow())
        row = &graphs.rows[graphs.count++];
    if (row)
        *row = (struct row){exec, *demand};
    (void)pthread_mutex_unlock(&graphs.lock);
    return row != NULL;
}

static bool look(CUgraphExec exec, struct demand *ret)
{
    const struct row *row;

    if (!atomic_load_explicit(&graphs.count, memory_order_acquire))
        return false;
    (void)pthread_mutex_lock(&graphs.lock);
    row = find(exec);
    if (row)
        *ret = row->demand;
    (void)pthread_mutex_unlock(&graphs.lock);
    return row != NULL;
}

static bool forget(CUgraphExec exec, struct demand *ret)
{
    struct row *row;

    (void)pthread_mutex_lock(&graphs.lock);
    row = find(exec);
    if (row) {
        *ret = row->demand;
        *row = graphs.rows[--graphs.count];
    }
    (void)pthread_mutex_unlock(&graphs.lock);
    return row != NULL;
}

/* What a graph's nodes allocate */

/* In which the driver takes memory of a device. */
static uint64_t granule_of(const struct vgpu_device *device)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->handle},
    };
    size_t granule = 0;

    if (REAL(cuMemGetAllocationGranularity)(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
        CUDA_SUCCESS)
        return PIECE;
    return MAX(granule, PIECE);
}

static uint64_t in_granules(uint64_t bytes, uint64_t granule)
{
    return bytes > UINT64_MAX - granule ? UINT64_MAX : (bytes + granule - 1) / granule * granule;
}

static void add_node(struct demand *demand, CUgraphNode node)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    const struct vgpu_device *device;
    uint64_t bytes;
    size_t at;

    if (REAL(cuGraphMemAllocNodeGetParams)(node, &params) != CUDA_SUCCESS ||
        params.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return;
    device = vgpu_device(params.poolProps.location.id);
    if (!device)
        return;
    at = (size_t)(device - vgpu.devices);
    bytes = in_granules(params.bytesize, granule_of(device));
    demand->largest[at] = MAX(demand->largest[at], bytes);
    demand->bytes[at] += MIN(bytes, UINT64_MAX - demand->bytes[at]);
}

static bool add_graph(struct demand *demand, CUgraph graph, unsigned depth);

static bool add_nodes(struct demand *demand, const CUgraphNode *nodes, size_t count, unsigned depth)
{
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type;
        CUgraph child;

        if (REAL(cuGraphNodeGetType)(nodes[i], &type) != CUDA_SUCCESS)
            return false;
        if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            add_node(demand, nodes[i]);
        if (type != CU_GRAPH_NODE_TYPE_GRAPH)
            continue;
        if (REAL(cuGraphChildGraphNodeGetGraph)(nodes[i], &child) != CUDA_SUCCESS ||
            !add_graph(demand, child, depth + 1))
            return false;
    }
    return true;
}

static bool add_graph(struct demand *demand, CUgraph graph, unsigned depth)
{
    CUgraphNode few[FEW_NODES], *nodes = few;
    size_t count = 0, bytes;
    bool known;

    if (depth > CHILDREN || REAL(cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS)
        return false;
    bytes = count * sizeof(CUgraphNode);
    if (count > FEW_NODES)
        nodes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (nodes == MAP_FAILED)
        return false;
    if (nodes != few)
        bytes = count * sizeof(CUgraphNode);
    known = !count || REAL(cuGraphGetNodes)(graph, nodes, &count) == CUDA_SUCCESS;
    known = known && add_nodes(demand, nodes, count, depth);
    if (nodes != few)
        (void)munmap(nodes, bytes);
    return known;
}

static bool is_any(const struct demand *demand)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (demand->bytes[i])
            return true;
    }
    return false;
}

/* Charging */

static bool charge(struct graphs_launch *launch, unsigned i, uint64_t bytes)
{
    struct pool *pool = pool_of_graphs(&vgpu.devices[i]);
    struct grant grant = {.device = &vgpu.devices[i], .units = ledger_units(bytes)};

    if (!pool || !grant_take(&grant))
        return false;
    pools_lock();
    pool->advance += grant.units;
    pools_unlock();
    launch->advances[i] = grant.units;
    launch->charged[i] = true;
    return true;
}

/* What graphs of the device have taken is charged to the advance, or as it is. */
static void end_device(struct graphs_launch *launch, unsigned i)
{
    struct pool *pool = pool_of_graphs(&vgpu.devices[i]);

    if (!pool)
        return;
    pools_lock();
    (void)pool_give_back(pool);
    if (!pool_take_in(pool, &launch->advances[i]))
        pool_charge_anyway(pool);
    pool->advance -= launch->advances[i];
    pools_unlock();
    if (launch->advances[i])
        vgpu_discharge(&vgpu.devices[i], VGPU_DATA, launch->advances[i]);
    if (launch->charged[i])
        grant_end_moving(&vgpu.devices[i]);
    launch->advances[i] = 0;
    launch->charged[i] = false;
}

static void end_all(struct graphs_launch *launch)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (launch->takes[i])
            end_device(launch, i);
    }
}

static bool charge_all(struct graphs_launch *launch, const struct demand *demand)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (!demand->bytes[i] || charge(launch, i, demand->bytes[i]))
            continue;
        end_all(launch);
        return false;
    }
    return true;
}

/* Near the limit */

/* What the device's graphs have beyond what is charged is charged: false when there is no room. */
static bool take_in(struct vgpu_device *device)
{
    struct pool *pool = pool_of_graphs(device);
    uint64_t none = 0;
    bool fits;

    if (!pool)
        return false;
    pools_lock();
    (void)pool_give_back(pool);
    fits = pool_take_in(pool, &none);
    pools_unlock();
    return fits;
}

static void trim(struct vgpu_device *device)
{
    struct pool *pool = pool_of_graphs(device);

    (void)REAL(cuDeviceGraphMemTrim)(device->handle);
    if (!pool)
        return;
    pools_lock();
    (void)pool_give_back(pool);
    pool_charge_anyway(pool);
    pools_unlock();
}

/* The largest piece alone must fit, in what graphs have and what is free. */
static bool may_fit(const struct vgpu_device *device, uint64_t largest)
{
    uint64_t limit = atomic_load(&device->limit_units);
    struct pool *pool = pool_of_graphs((struct vgpu_device *)(uintptr_t)device);
    uint64_t others = ledger_total(vgpu.region.ext, device->index);

    if (!pool)
        return false;
    others -= MIN(others, atomic_load(&pool->charged));
    return ledger_units(largest) <= limit - MIN(limit, others);
}

/* No capture minds. */
static CUresult upload(CUgraphExec exec, CUstream stream, bool per_thread)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool relaxed = REAL(cuThreadExchangeStreamCaptureMode)(&mode) == CUDA_SUCCESS;
    CUresult result =
        per_thread ? REAL(cuGraphUpload_ptsz)(exec, stream) : REAL(cuGraphUpload)(exec, stream);

    if (relaxed)
        (void)REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return result;
}

static CUresult try_upload(const struct demand *demand, CUgraphExec exec, CUstream stream,
                           bool per_thread)
{
    CUresult result = upload(exec, stream, per_thread);
    bool fits = true;

    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (demand->bytes[i] && !take_in(&vgpu.devices[i]))
            fits = false;
    }
    if (result == CUDA_SUCCESS && fits)
        return CUDA_SUCCESS;
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (demand->bytes[i])
            trim(&vgpu.devices[i]);
    }
    return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

/* With memory that other graphs left, then without. */
static CUresult upload_within_limit(const struct demand *demand, CUgraphExec exec, CUstream stream,
                                    bool per_thread)
{
    CUresult result;

    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (demand->bytes[i] && !may_fit(&vgpu.devices[i], demand->largest[i]))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (region_try(&vgpu.region) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = try_upload(demand, exec, stream, per_thread);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        result = try_upload(demand, exec, stream, per_thread);
    region_tried(&vgpu.region);
    return result;
}

/* Launches and uploads */

static bool is_granted(const struct demand *demand)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (demand->bytes[i] && !vgpu.devices[i].granted)
            return false;
    }
    return true;
}

/* Also of a capture that is invalid: an upload would be one error more. */
static bool is_captured(CUstream stream, bool per_thread)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = per_thread ? REAL(cuStreamIsCapturing_ptsz)(stream, &status)
                                 : REAL(cuStreamIsCapturing)(stream, &status);

    return result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static void note_takes(struct graphs_launch *launch, const struct demand *demand)
{
    for (unsigned i = 0; i < vgpu.device_count; i++)
        launch->takes[i] = demand->bytes[i] > 0;
}

/* With the lock held alone, for which it was let go of: the graph may be another one since. */
static CUresult begin_alone(struct graphs_launch *launch, CUgraphExec exec, CUstream stream,
                            bool per_thread)
{
    struct demand demand;

    if (!look(exec, &demand))
        return CUDA_SUCCESS;
    note_takes(launch, &demand);
    return is_granted(&demand) ? upload_within_limit(&demand, exec, stream, per_thread)
                               : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult begin_locked(struct graphs_launch *launch, CUgraphExec exec, CUstream stream,
                             bool per_thread)
{
    struct demand demand;

    if (!look(exec, &demand))
        return CUDA_SUCCESS;
    compute_hold_captures();
    launch->captured = is_captured(stream, per_thread);
    if (launch->captured)
        return CUDA_SUCCESS; /* in a capture nothing is taken */
    compute_end_captured();
    note_takes(launch, &demand);
    if (!is_granted(&demand))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (charge_all(launch, &demand))
        return CUDA_SUCCESS;
    (void)pthread_rwlock_unlock(&launching);
    (void)pthread_rwlock_wrlock(&launching);
    return begin_alone(launch, exec, stream, per_thread);
}

CUresult graphs_begin_launch(struct graphs_launch *launch, CUgraphExec exec, CUstream stream,
                             bool per_thread)
{
    CUresult result;

    *launch = (struct graphs_launch){0};
    if (vgpu_mode() != VGPU_ON)
        return CUDA_SUCCESS;
    (void)pthread_rwlock_rdlock(&launching);
    result = begin_locked(launch, exec, stream, per_thread);
    launch->held = result == CUDA_SUCCESS;
    if (!launch->held)
        (void)pthread_rwlock_unlock(&launching);
    return result;
}

void graphs_end_launch(struct graphs_launch *launch)
{
    if (!launch->held)
        return;
    if (launch->captured)
        compute_end_captured();
    else
        end_all(launch);
    (void)pthread_rwlock_unlock(&launching);
}

static CUresult upload_charged(CUgraphExec exec, CUstream stream, bool per_thread)
{
    struct graphs_launch launch;
    CUresult result = graphs_begin_launch(&launch, exec, stream, per_thread);

    if (result != CUDA_SUCCESS)
        return result;
    result =
        per_thread ? REAL(cuGraphUpload_ptsz)(exec, stream) : REAL(cuGraphUpload)(exec, stream);
    graphs_end_launch(&launch);
    return result;
}

PUBLIC CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    (void)real_driver();
    return upload_charged(exec, stream, false);
}

PUBLIC CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
    (void)real_driver();
    return upload_charged(exec, stream, true);
}

PUBLIC CUresult cuDeviceGraphMemTrim(CUdevice handle)
{
    struct vgpu_device *device;
    CUresult result;

    if (vgpu_mode() != VGPU_ON || !graphs_allocate())
        return REAL(cuDeviceGraphMemTrim)(handle);
    (void)pthread_rwlock_wrlock(&launching);
    result = REAL(cuDeviceGraphMemTrim)(handle);
    device = vgpu_device(handle);
    if (device)
        (void)pools_settle(device);
    (void)pthread_rwlock_unlock(&launching);
    return result;
}

/* Making what is launched */

/* Whether it holds the lock: while no graph can allocate nothing has to be known of any. */
static bool begin_change(void)
{
    const bool held = graphs_allocate() && vgpu_mode() == VGPU_ON;

    if (held)
        (void)pthread_rwlock_wrlock(&launching);
    return held;
}

static void end_change(bool held)
{
    if (held)
        (void)pthread_rwlock_unlock(&launching);
}

/* One that nobody can know the demand of is not made. */
static CUresult instantiated(CUgraphExec *exec, CUgraph graph, CUresult result)
{
    struct demand demand = {0};

    if (result != CUDA_SUCCESS || !graphs_allocate() || vgpu_mode() != VGPU_ON)
        return result;
    if (add_graph(&demand, graph, 0) && (!is_any(&demand) || remember(*exec, &demand)))
        return CUDA_SUCCESS;
    (void)REAL(cuGraphExecDestroy)(*exec);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The caller's is written when all is well, or by the driver that found something wrong. */
#define INSTANTIATE(name, ...)                                                                     \
    CUgraphExec made = NULL, *own = exec ? &made : NULL;                                           \
    CUresult result;                                                                               \
    bool held;                                                                                     \
                                                                                                   \
    (void)real_driver();                                                                           \
    held = begin_change();                                                                         \
    result = instantiated(own, graph, REAL(name)(own, __VA_ARGS__));                               \
    end_change(held);                                                                              \
    if (result == CUDA_SUCCESS)                                                                    \
        *exec = made;                                                                              \
    return result

PUBLIC CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                   char *log, size_t log_size)
{
    INSTANTIATE(cuGraphInstantiate, graph, error_node, log, log_size);
}

PUBLIC CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                      char *log, size_t log_size)
{
    INSTANTIATE(cuGraphInstantiate_v2, graph, error_node, log, log_size);
}

PUBLIC CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                            unsigned long long flags)
{
    INSTANTIATE(cuGraphInstantiateWithFlags, graph, flags);
}

typedef CUresult (*with_params_fn)(CUgraphExec *exec, CUgraph graph,
                                   CUDA_GRAPH_INSTANTIATE_PARAMS *params);

/* What is uploaded at once takes its memory at once: that is done apart, as any upload. */
static CUresult instantiate(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params,
                            bool per_thread, with_params_fn driver)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS own = *params;
    bool uploads = graphs_allocate() && (own.flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
    CUgraphExec made = NULL;
    CUresult result;
    bool held;

    if (uploads)
        own.flags &= ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    held = begin_change();
    result = driver(exec ? &made : NULL, graph, &own);
    params->hErrNode_out = own.hErrNode_out;
    params->result_out = own.result_out;
    result = instantiated(&made, graph, result);
    end_change(held);
    if (result == CUDA_SUCCESS && uploads) {
        result = upload_charged(made, own.hUploadStream, per_thread);
        if (result != CUDA_SUCCESS)
            (void)cuGraphExecDestroy(made);
    }
    if (result == CUDA_SUCCESS)
        *exec = made;
    return result;
}

PUBLIC CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                             CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    (void)real_driver();
    if (!params)
        return REAL(cuGraphInstantiateWithParams)(exec, graph, NULL);
    return instantiate(exec, graph, params, false, REAL(cuGraphInstantiateWithParams));
}

PUBLIC CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    (void)real_driver();
    if (!params)
        return REAL(cuGraphInstantiateWithParams_ptsz)(exec, graph, NULL);
    return instantiate(exec, graph, params, true, REAL(cuGraphInstantiateWithParams_ptsz));
}

/* Whatever of it was replaced: it may allocate what either graph does. */
static CUresult updated(CUgraphExec exec, CUgraph graph, CUresult result)
{
    struct demand demand = {0}, before;

    if (result != CUDA_SUCCESS || !graphs_allocate() || vgpu_mode() != VGPU_ON ||
        !add_graph(&demand, graph, 0) || !is_any(&demand))
        return result;
    for (unsigned i = 0; look(exec, &before) && i < vgpu.device_count; i++) {
        demand.bytes[i] = MAX(demand.bytes[i], before.bytes[i]);
        demand.largest[i] = MAX(demand.largest[i], before.largest[i]);
    }
    (void)remember(exec, &demand);
    return result;
}

PUBLIC CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                                  int *update_result)
{
    bool held;
    CUresult result;

    (void)real_driver();
    held = begin_change();
    result = updated(exec, graph, REAL(cuGraphExecUpdate)(exec, graph, error_node, update_result));
    end_change(held);
    return result;
}

PUBLIC CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                     CUgraphExecUpdateResultInfo *info)
{
    bool held;
    CUresult result;

    (void)real_driver();
    held = begin_change();
    result = updated(exec, graph, REAL(cuGraphExecUpdate_v2)(exec, graph, info));
    end_change(held);
    return result;
}

/* What was made executable of it is looked up in it. */
PUBLIC CUresult cuGraphDestroy(CUgraph graph)
{
    CUresult result;
    bool held;

    (void)real_driver();
    held = begin_change();
    result = REAL(cuGraphDestroy)(graph);
    end_change(held);
    return result;
}

PUBLIC CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    struct demand demand;
    CUresult result;
    bool held;

    (void)real_driver();
    held = begin_change();
    result = REAL(cuGraphExecDestroy)(exec);
    if (held && result == CUDA_SUCCESS)
        (void)forget(exec, &demand);
    end_change(held);
    return result;
}

/* Nodes */

PUBLIC CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph,
                                       const CUgraphNode *dependencies, size_t count,
                                       CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    if (vgpu_mode() == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    graphs_will_allocate();
    return REAL(cuGraphAddMemAllocNode)(node, graph, dependencies, count, params);
}

/*
 * A node may be of any type. The driver is given what was looked at: in the caller's memory another
 * thread could change the type in between. What the driver says of a node there, the caller finds
 * where it looks for it, except for the type.
 */
struct node_params {
    union {
        CUgraphNodeParams head;
        _Alignas(16) unsigned char bytes[NODE_PARAMS_SIZE];
    } own;
};

/* Where the driver finds them, NULL when there are none. */
static CUgraphNodeParams *take_params(const CUgraphNodeParams *params, struct node_params *taken)
{
    if (!params)
        return NULL;
    memcpy(taken->own.bytes, params, NODE_PARAMS_SIZE);
    return &taken->own.head;
}

static void give_params(const struct node_params *taken, CUgraphNodeParams *params)
{
    const size_t from = offsetof(CUgraphNodeParams, reserved0);

    if (params)
        memcpy((unsigned char *)params + from, taken->own.bytes + from, NODE_PARAMS_SIZE - from);
}

/* False: it is out of memory. */
static bool expect_node(const CUgraphNodeParams *params)
{
    enum vgpu_mode mode = vgpu_mode();

    if (!params || params->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return true;
    graphs_will_allocate();
    return mode != VGPU_DENIED;
}

PUBLIC CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, CUgraphNodeParams *params)
{
    struct node_params taken;
    CUgraphNodeParams *own = take_params(params, &taken);
    CUresult result;

    (void)real_driver();
    if (!expect_node(own))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = REAL(cuGraphAddNode)(node, graph, dependencies, count, own);
    if (result == CUDA_SUCCESS)
        give_params(&taken, params);
    return result;
}

PUBLIC CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  const void *edges, size_t count, CUgraphNodeParams *params)
{
    struct node_params taken;
    CUgraphNodeParams *own = take_params(params, &taken);
    CUresult result;

    (void)real_driver();
    if (!expect_node(own))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = REAL(cuGraphAddNode_v2)(node, graph, dependencies, edges, count, own);
    if (result == CUDA_SUCCESS)
        give_params(&taken, params);
    return result;
}
