/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/graphs.h"

#include <string.h>

#include "region/ledger.h"
#include "vgpu/code.h"
#include "vgpu/compute.h"
#include "vgpu/graph_demand.h"
#include "vgpu/graph_homes.h"
#include "vgpu/graph_walk.h"
#include "vgpu/hidden.h"
#include "vgpu/real.h"

enum {
    /* Of graphs that were made since it was looked what they take: 0.8 MiB where all are kernels,
     * each of which takes 3.2 KiB (an H100, driver 580). */
    MANY_NODES = 256,
    LOG_MOST = 1024,
    UNSAID = 0x7f, /* no text begins so */
};

_Atomic bool graphs_any;
static _Atomic unsigned unmeasured_nodes;

void graphs_will_allocate(void)
{
    if (!graphs_allocate())
        atomic_store(&graphs_any, true);
}

/*
 * What can be launched takes device memory for itself, for each of its nodes, which the driver
 * tells of nowhere. Of few nodes that is found as any hidden memory, a tenth of a second later; of
 * many together it is measured as what code takes, and undone beyond the limit.
 */

/* False: it is known that there are many. */
static bool count_node(CUgraphNode node, CUgraphNodeType type, void *arg)
{
    unsigned *count = arg;

    (void)node;
    /* Nobody tells what is in its bodies. */
    *count += type == CU_GRAPH_NODE_TYPE_CONDITIONAL ? MANY_NODES : 1;
    return *count < MANY_NODES;
}

/* With those of its children; at most so many. */
static unsigned count_nodes(CUgraph graph)
{
    unsigned total = 0;
    size_t count = 0;

    if (REAL(cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS || count >= MANY_NODES ||
        !graph_walk(graph, count_node, &total))
        return MANY_NODES;
    return total;
}

/*
 * Its nodes may be of other devices than the current one, and none may be current. Nobody tells
 * which; so where it is measured all are looked at that the process has anything on.
 */
struct making {
    struct vgpu_device *full; /* NULL: not before it is made, as far as is known */
    struct code_loading loading;
    uint64_t before[REGION_DEVICES]; /* units that were hidden on other devices */
    bool elsewhere[REGION_DEVICES];  /* which are looked at */
};

static bool is_elsewhere(const struct vgpu_device *device, const struct vgpu_device *current)
{
    return device != current && device->granted &&
           ledger_held(vgpu.region.ext, (unsigned)vgpu.region.slot, device->index) > 0;
}

static bool is_full_elsewhere(const struct vgpu_device *current)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (is_elsewhere(&vgpu.devices[i], current) && hidden_is_full(&vgpu.devices[i]))
            return true;
    }
    return false;
}

static void begin_elsewhere(struct making *making, const struct vgpu_device *current)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        making->elsewhere[i] = is_elsewhere(&vgpu.devices[i], current);
        if (making->elsewhere[i])
            making->before[i] = hidden_settled_units(&vgpu.devices[i]);
    }
}

/* Where more is hidden than was, and more than there may be; NULL: nowhere. */
static struct vgpu_device *exceeded_elsewhere(const struct making *making)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (making->elsewhere[i] && hidden_settled_units(&vgpu.devices[i]) > making->before[i] &&
            hidden_is_exceeded(&vgpu.devices[i]))
            return &vgpu.devices[i];
    }
    return NULL;
}

/* False: nothing is to be made. */
static bool begin_making(struct making *making, CUgraph graph)
{
    struct vgpu_device *device;
    unsigned nodes;

    *making = (struct making){.full = NULL};
    if (vgpu_find_granted(&device) == CUDA_ERROR_OUT_OF_MEMORY)
        return false;
    if (vgpu_mode() != VGPU_ON)
        return true;
    /* What graphs before took may have come to more than the limit. */
    if (device && hidden_is_full(device)) {
        making->full = device;
        return true;
    }
    nodes = count_nodes(graph);
    if (atomic_fetch_add(&unmeasured_nodes, nodes) + nodes < MANY_NODES &&
        !is_full_elsewhere(device))
        return true;
    /* Until this one is known to fit, the next one is measured, too. */
    atomic_store(&unmeasured_nodes, MANY_NODES);
    if (code_begin_loading(&making->loading, true) != CUDA_SUCCESS)
        making->full = device;
    else
        begin_elsewhere(making, device);
    return true;
}

static CUresult end_measured(struct making *making, CUgraphExec made, CUresult result)
{
    struct vgpu_device *exceeded;

    if (making->loading.device &&
        code_end_loading(&making->loading, result, made) == OVERHEAD_REFUSED) {
        (void)cuGraphExecDestroy(made);
        overhead_undone(&making->loading.overhead, 0);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS)
        return result;
    exceeded = exceeded_elsewhere(making);
    if (exceeded) {
        (void)cuGraphExecDestroy(made);
        (void)hidden_settle(exceeded);
        vgpu_count_refusal(exceeded, REGION_REFUSAL_CODE);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    atomic_store(&unmeasured_nodes, 0);
    return CUDA_SUCCESS;
}

static bool is_measured(const struct making *making)
{
    bool measured = making->loading.device != NULL;

    for (unsigned i = 0; i < vgpu.device_count; i++)
        measured |= making->elsewhere[i];
    return measured;
}

/* What makes no sense the driver has refused itself. */
static CUresult end_making(struct making *making, CUgraphExec made, CUresult result)
{
    if (making->full && result == CUDA_SUCCESS) {
        (void)cuGraphExecDestroy(made);
        vgpu_count_refusal(making->full, REGION_REFUSAL_CODE);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (is_measured(making))
        return end_measured(making, made, result);
    if (result == CUDA_SUCCESS)
        hidden_look_soon();
    return result;
}

/* Making what is launched */

/* Or may. */
static bool runs_where_not_granted(CUgraphExec exec)
{
    const unsigned homes = graph_homes_of(exec);

    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (homes & 1u << i && !vgpu.devices[i].granted)
            return true;
    }
    return false;
}

/* One that nobody can know the demand of is not made. */
static CUresult instantiated(CUgraphExec *exec, CUgraph graph, CUresult result)
{
    struct graph_demand demand = {0};

    if (result == CUDA_SUCCESS && graphs_is_flown(*exec)) {
        (void)REAL(cuGraphExecDestroy)(*exec);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS || vgpu_mode() != VGPU_ON)
        return result;
    graph_homes_made(*exec, graph);
    if (!runs_where_not_granted(*exec) &&
        (!graphs_allocate() ||
         (graph_demand_of(&demand, graph) &&
          (!graph_demand_is_any(&demand) || graph_demand_remember(*exec, &demand)))))
        return CUDA_SUCCESS;
    graph_homes_ended(*exec);
    (void)REAL(cuGraphExecDestroy)(*exec);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/*
 * The caller's is written last, since its page may fault: by then no lock is held, and what has to
 * be undone is. Of what was found wrong the driver says no more than a log of so many bytes holds.
 */
#define INSTANTIATE(name, then, ...)                                                               \
    CUgraphExec made = NULL, *own = exec ? &made : NULL;                                           \
    struct making making;                                                                          \
    CUresult result;                                                                               \
    bool held;                                                                                     \
                                                                                                   \
    (void)real_driver();                                                                           \
    if (!begin_making(&making, graph))                                                             \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                           \
    held = graphs_begin_change();                                                                  \
    result = instantiated(own, graph, REAL(name)(own, __VA_ARGS__));                               \
    graphs_end_change(held);                                                                       \
    result = end_making(&making, made, result);                                                    \
    then;                                                                                          \
    if (result == CUDA_SUCCESS)                                                                    \
        *exec = made;                                                                              \
    return result

/* What the driver found wrong. */
struct complaint {
    CUgraphNode node;
    size_t room;
    char log[LOG_MOST];
};

/* What the driver leaves as it is, the caller finds as it was. */
static void begin_complaint(struct complaint *own, const CUgraphNode *error_node, const char *log,
                            size_t log_size)
{
    own->node = error_node ? *error_node : NULL;
    own->log[0] = UNSAID;
    own->room = log ? MIN(log_size, sizeof(own->log)) : 0;
}

static void tell(const struct complaint *own, CUgraphNode *error_node, char *log)
{
    if (error_node)
        *error_node = own->node;
    if (own->room && own->log[0] != UNSAID)
        memcpy(log, own->log, strnlen(own->log, own->room - 1) + 1);
}

PUBLIC CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                   char *log, size_t log_size)
{
    struct complaint said;

    begin_complaint(&said, error_node, log, log_size);
    INSTANTIATE(cuGraphInstantiate, tell(&said, error_node, log), graph,
                error_node ? &said.node : NULL, log ? said.log : NULL, said.room);
}

PUBLIC CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node,
                                      char *log, size_t log_size)
{
    struct complaint said;

    begin_complaint(&said, error_node, log, log_size);
    INSTANTIATE(cuGraphInstantiate_v2, tell(&said, error_node, log), graph,
                error_node ? &said.node : NULL, log ? said.log : NULL, said.room);
}

PUBLIC CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                            unsigned long long flags)
{
    INSTANTIATE(cuGraphInstantiateWithFlags, (void)0, graph, flags);
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
    struct making making;
    CUresult result;
    bool held;

    if (uploads)
        own.flags &= ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    if (!begin_making(&making, graph))
        return CUDA_ERROR_OUT_OF_MEMORY;
    held = graphs_begin_change();
    result = driver(exec ? &made : NULL, graph, &own);
    result = instantiated(&made, graph, result);
    graphs_end_change(held);
    result = end_making(&making, made, result);
    if (result == CUDA_SUCCESS && uploads) {
        result = graphs_upload(made, own.hUploadStream, per_thread);
        if (result != CUDA_SUCCESS)
            (void)cuGraphExecDestroy(made);
    }
    params->hErrNode_out = own.hErrNode_out;
    params->result_out = own.result_out;
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
    struct graph_demand demand = {0}, before;

    if (result != CUDA_SUCCESS || !graphs_allocate() || vgpu_mode() != VGPU_ON ||
        !graph_demand_of(&demand, graph) || !graph_demand_is_any(&demand))
        return result;
    for (unsigned i = 0; graph_demand_look(exec, &before) && i < vgpu.device_count; i++) {
        demand.bytes[i] = MAX(demand.bytes[i], before.bytes[i]);
        demand.largest[i] = MAX(demand.largest[i], before.largest[i]);
    }
    (void)graph_demand_remember(exec, &demand);
    return result;
}

PUBLIC CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                                  int *update_result)
{
    CUgraphNode own_node = error_node ? *error_node : NULL;
    int own_update = update_result ? *update_result : 0;
    CUresult result;
    bool held;

    (void)real_driver();
    held = graphs_begin_change();
    result = updated(exec, graph,
                     REAL(cuGraphExecUpdate)(exec, graph, error_node ? &own_node : NULL,
                                             update_result ? &own_update : NULL));
    graphs_end_change(held);
    if (error_node)
        *error_node = own_node;
    if (update_result)
        *update_result = own_update;
    return result;
}

PUBLIC CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                                     CUgraphExecUpdateResultInfo *info)
{
    CUgraphExecUpdateResultInfo own = info ? *info : (CUgraphExecUpdateResultInfo){0};
    CUresult result;
    bool held;

    (void)real_driver();
    held = graphs_begin_change();
    result = updated(exec, graph, REAL(cuGraphExecUpdate_v2)(exec, graph, info ? &own : NULL));
    graphs_end_change(held);
    if (info)
        *info = own;
    return result;
}

/* What was made executable of it is looked up in it. */
PUBLIC CUresult cuGraphDestroy(CUgraph graph)
{
    CUresult result;
    bool held;

    (void)real_driver();
    held = graphs_begin_change();
    result = REAL(cuGraphDestroy)(graph);
    graphs_end_change(held);
    return result;
}

PUBLIC CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    struct graph_demand demand;
    struct code code = {0};
    CUresult result;
    bool held;

    (void)real_driver();
    if (vgpu_mode() == VGPU_ON)
        code = code_take(exec);
    graph_homes_ended(exec);
    held = graphs_begin_end(exec);
    result = REAL(cuGraphExecDestroy)(exec);
    if (held && result == CUDA_SUCCESS)
        (void)graph_demand_forget(exec, &demand);
    graphs_end_change(held);
    code_end(exec, &code, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS && (!code.device || vgpu.device_count > 1))
        hidden_look_soon();
    return result;
}
