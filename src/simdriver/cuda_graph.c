/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Stream capture, and graphs made by it: the kernels of one stream, replayed one after the other.
 * What else is done to a stream while it is captured leaves no trace in the graph.
 */

#include <stdlib.h>

#include "base/util.h"
#include "simdriver/guest.h"

#define GRAPH_MAGIC 0x68706147u

/* A CUgraph, and a CUgraphExec. */
struct graph {
    uint32_t magic;
    bool failed;
    size_t count, size;
    struct sim_op *ops;
};

/* By stream; under the machine's lock. */
static struct graph *captures[SIM_STREAMS];

static struct graph *find_graph(void *handle)
{
    struct graph *graph = handle;

    return graph && graph->magic == GRAPH_MAGIC ? graph : NULL;
}

static void free_graph(struct graph *graph)
{
    if (!graph)
        return;
    graph->magic = 0;
    free(graph->ops);
    free(graph);
}

bool guest_is_capturing(uint32_t stream)
{
    return guest.captures && captures[stream];
}

void guest_capture(uint32_t stream, const struct sim_op *op)
{
    struct graph *graph = captures[stream];

    if (graph->count == graph->size) {
        size_t size = graph->size ? graph->size * 2 : 16;
        struct sim_op *ops = realloc(graph->ops, size * sizeof(*ops));

        if (!ops) {
            graph->failed = true;
            return;
        }
        graph->ops = ops;
        graph->size = size;
    }
    graph->ops[graph->count++] = *op;
}

void guest_drop_capture(uint32_t stream)
{
    if (!captures[stream])
        return;
    free_graph(captures[stream]);
    captures[stream] = NULL;
    guest.captures--;
}

static CUresult begin(CUstream stream, bool per_thread)
{
    struct graph *graph = calloc(1, sizeof(*graph));
    uint32_t i;
    CUresult r;

    if (!graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    graph->magic = GRAPH_MAGIC;
    r = guest_enter_stream(stream, per_thread, &i);
    if (r != CUDA_SUCCESS) {
        free_graph(graph);
        return r;
    }
    if (captures[i] || i == guest_context(guest_state()->streams[i].context)->legacy) {
        free_graph(graph);
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else {
        captures[i] = graph;
        guest.captures++;
    }
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuStreamBeginCapture(CUstream stream)
{
    return begin(stream, false);
}

PUBLIC CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    return begin(stream, true);
}

PUBLIC CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    (void)mode;
    return begin(stream, false);
}

PUBLIC CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    (void)mode;
    return begin(stream, true);
}

static CUresult end(CUstream stream, CUgraph *ret_graph, bool per_thread)
{
    struct graph *graph;
    uint32_t i;
    CUresult r;

    if (!ret_graph)
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    r = guest_enter_stream(stream, per_thread, &i);
    if (r != CUDA_SUCCESS)
        return r;
    graph = captures[i];
    guest.captures -= graph != NULL;
    captures[i] = NULL;
    sim_unlock(guest.sim);

    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->failed) {
        free_graph(graph);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    *ret_graph = (CUgraph)graph;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    return end(stream, graph, false);
}

PUBLIC CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    return end(stream, graph, true);
}

static CUresult status(CUstream stream, CUstreamCaptureStatus *ret_status, bool per_thread)
{
    uint32_t i;
    CUresult r;

    if (!ret_status)
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    r = guest_enter_stream(stream, per_thread, &i);
    if (r != CUDA_SUCCESS)
        return r;
    *ret_status =
        guest_is_capturing(i) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    sim_unlock(guest.sim);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *ret_status)
{
    return status(stream, ret_status, false);
}

PUBLIC CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *ret_status)
{
    return status(stream, ret_status, true);
}

PUBLIC CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    static __thread CUstreamCaptureMode current;
    CUstreamCaptureMode asked;

    if (!mode || *mode < 0 || *mode > 2)
        return CUDA_ERROR_INVALID_VALUE;
    asked = *mode;
    *mode = current;
    current = asked;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph handle,
                                            unsigned long long flags)
{
    const struct graph *graph = find_graph(handle);
    struct graph *copy;
    CUresult r = guest_check();

    (void)flags;
    if (r != CUDA_SUCCESS)
        return r;
    if (!exec || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    copy = calloc(1, sizeof(*copy));
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *copy = (struct graph){.magic = GRAPH_MAGIC, .count = graph->count, .size = graph->count};
    copy->ops = malloc(MAX(graph->count, (size_t)1) * sizeof(*copy->ops));
    if (!copy->ops) {
        free_graph(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (graph->count)
        memcpy(copy->ops, graph->ops, graph->count * sizeof(*copy->ops));
    *exec = (CUgraphExec)copy;
    return CUDA_SUCCESS;
}

static CUresult launch(CUgraphExec exec, CUstream stream, bool per_thread)
{
    const struct graph *graph = find_graph(exec);
    CUresult r;
    uint32_t i;

    r = guest_enter_stream(stream, per_thread, &i);
    if (r != CUDA_SUCCESS)
        return r;
    if (!graph)
        r = CUDA_ERROR_INVALID_VALUE;
    for (size_t k = 0; graph && k < graph->count && r == CUDA_SUCCESS; k++) {
        struct sim_op op = graph->ops[k];

        if (guest_is_capturing(i))
            guest_capture(i, &op);
        else
            r = guest_launch(i, &op);
    }
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    return launch(exec, stream, false);
}

PUBLIC CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
    return launch(exec, stream, true);
}

static CUresult destroy(void *handle)
{
    struct graph *graph = find_graph(handle);
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    free_graph(graph);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    return destroy(exec);
}

PUBLIC CUresult cuGraphDestroy(CUgraph graph)
{
    return destroy(graph);
}
