/* SPDX-License-Identifier: Apache-2.0 */

/* The calls by which captures begin, grow and end, with their streams too. */

#include <string.h>
#include <sys/mman.h>

#include "vgpu/compute.h"
#include "vgpu/real.h"

enum {
    FEW = 16, /* nodes that need no memory of their own */
};

/* The body of a function that begins a capture. */
#define CAPTURE(name, ...)                                                                         \
    struct compute_row *row;                                                                       \
    CUresult result;                                                                               \
                                                                                                   \
    (void)real_driver();                                                                           \
    row = compute_capture_begins(stream);                                                          \
    result = REAL(name)(__VA_ARGS__);                                                              \
    compute_capture_began(row, result);                                                            \
    return result

/* The same where the driver gets what nobody knows how to copy, and might fault in: the row's lock
 * is not held meanwhile. Who looks asks each stream from before on. */
#define CAPTURE_UNLOCKED(name, ...)                                                                \
    CUresult result;                                                                               \
                                                                                                   \
    (void)real_driver();                                                                           \
    compute_capture_begins_unlocked();                                                             \
    result = REAL(name)(__VA_ARGS__);                                                              \
    compute_capture_began_unlocked(result);                                                        \
    return result

PUBLIC CUresult cuStreamBeginCapture(CUstream stream)
{
    CAPTURE(cuStreamBeginCapture, stream);
}

PUBLIC CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    CAPTURE(cuStreamBeginCapture_ptsz, stream);
}

PUBLIC CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    CAPTURE(cuStreamBeginCapture_v2, stream, mode);
}

PUBLIC CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    CAPTURE(cuStreamBeginCapture_v2_ptsz, stream, mode);
}

/* What a capture begins behind. */
struct dependencies {
    CUgraphNode few_nodes[FEW];
    uint64_t few_edges[FEW];
    CUgraphNode *nodes;
    uint64_t *edges; /* CUgraphEdgeData has eight bytes */
    void *mapping;
    size_t mapped; /* bytes; 0: they are few */
};

/* Copied, since the caller's page may fault, for ever, and the row's lock is held meanwhile, which
 * the library's thread waits for. False: there is no memory. */
static bool copy_dependencies(struct dependencies *own, const CUgraphNode *nodes, const void *edges,
                              size_t count)
{
    *own = (struct dependencies){.nodes = own->few_nodes, .edges = own->few_edges};
    if (count > SIZE_MAX / (sizeof(*own->nodes) + sizeof(*own->edges)))
        return false;
    if (count > FEW) {
        own->mapped = count * (sizeof(*own->nodes) + sizeof(*own->edges));
        own->mapping =
            mmap(NULL, own->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (own->mapping == MAP_FAILED)
            return false;
        own->nodes = own->mapping;
        own->edges = (uint64_t *)(own->nodes + count);
    }
    if (nodes)
        memcpy(own->nodes, nodes, count * sizeof(*own->nodes));
    else
        own->nodes = NULL;
    if (edges)
        memcpy(own->edges, edges, count * sizeof(*own->edges));
    else
        own->edges = NULL;
    return true;
}

typedef CUresult (*to_graph_fn)(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
                                const void *edges, size_t count, CUstreamCaptureMode mode);

static CUresult capture_to_graph(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
                                 const void *edges, size_t count, CUstreamCaptureMode mode,
                                 to_graph_fn driver)
{
    struct dependencies own;
    struct compute_row *row;
    CUresult result;

    if (!copy_dependencies(&own, nodes, edges, count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    row = compute_capture_begins(stream);
    result = driver(stream, graph, own.nodes, own.edges, count, mode);
    compute_capture_began(row, result);
    if (own.mapped)
        (void)munmap(own.mapping, own.mapped);
    return result;
}

PUBLIC CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                            const CUgraphNode *nodes, const void *edges,
                                            size_t count, CUstreamCaptureMode mode)
{
    (void)real_driver();
    return capture_to_graph(stream, graph, nodes, edges, count, mode,
                            REAL(cuStreamBeginCaptureToGraph));
}

PUBLIC CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                                 const CUgraphNode *nodes, const void *edges,
                                                 size_t count, CUstreamCaptureMode mode)
{
    (void)real_driver();
    return capture_to_graph(stream, graph, nodes, edges, count, mode,
                            REAL(cuStreamBeginCaptureToGraph_ptsz));
}

PUBLIC CUresult cuStreamBeginRecaptureToGraph(CUstream stream, CUstreamCaptureMode mode,
                                              CUgraph graph, CUgraphRecaptureCallback call,
                                              void *data)
{
    CAPTURE(cuStreamBeginRecaptureToGraph, stream, mode, graph, call, data);
}

PUBLIC CUresult cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, CUstreamCaptureMode mode,
                                                   CUgraph graph, CUgraphRecaptureCallback call,
                                                   void *data)
{
    CAPTURE(cuStreamBeginRecaptureToGraph_ptsz, stream, mode, graph, call, data);
}

/* Into a command list of a graphics interface, whose context CUDA shares. */
PUBLIC CUresult cuStreamBeginCaptureToCig(CUstream stream, void *params)
{
    CAPTURE_UNLOCKED(cuStreamBeginCaptureToCig, stream, params);
}

PUBLIC CUresult cuStreamBeginCaptureToCig_ptsz(CUstream stream, void *params)
{
    CAPTURE_UNLOCKED(cuStreamBeginCaptureToCig_ptsz, stream, params);
}

PUBLIC CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    CUresult result;
    bool began;

    (void)real_driver();
    began = compute_join_begins(stream);
    result = REAL(cuStreamWaitEvent)(stream, event, flags);
    compute_join_ended(began);
    return result;
}

PUBLIC CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags)
{
    CUresult result;
    bool began;

    (void)real_driver();
    began = compute_join_begins(stream);
    result = REAL(cuStreamWaitEvent_ptsz)(stream, event, flags);
    compute_join_ended(began);
    return result;
}

static bool captures(CUresult (*ask)(CUstream, CUstreamCaptureStatus *), CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return ask && ask(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A capture that became invalid ends with an error, and ends all the same. The driver clears the
 * caller's graph then, or not. */
#define END_CAPTURE(name, ask)                                                                     \
    CUgraph made = graph ? *graph : NULL;                                                          \
    bool capturing;                                                                                \
    CUresult result;                                                                               \
                                                                                                   \
    (void)real_driver();                                                                           \
    compute_capture_ends();                                                                        \
    capturing = captures(REAL(ask), stream);                                                       \
    result = REAL(name)(stream, graph ? &made : NULL);                                             \
    compute_capture_ended(capturing && !captures(REAL(ask), stream));                              \
    if (graph)                                                                                     \
        *graph = made;                                                                             \
    return result

PUBLIC CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    END_CAPTURE(cuStreamEndCapture, cuStreamIsCapturing);
}

PUBLIC CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    END_CAPTURE(cuStreamEndCapture_ptsz, cuStreamIsCapturing_ptsz);
}

static CUresult end_cig(CUstream stream, CUresult (*end)(CUstream))
{
    CUresult result;

    compute_capture_ends();
    result = end(stream);
    compute_capture_ended(result == CUDA_SUCCESS);
    return result;
}

PUBLIC CUresult cuStreamEndCaptureToCig(CUstream stream)
{
    (void)real_driver();
    return end_cig(stream, REAL(cuStreamEndCaptureToCig));
}

PUBLIC CUresult cuStreamEndCaptureToCig_ptsz(CUstream stream)
{
    (void)real_driver();
    return end_cig(stream, REAL(cuStreamEndCaptureToCig_ptsz));
}

/* A capture dies with its stream. */
static CUresult destroy_stream(CUstream stream, CUresult (*destroy)(CUstream))
{
    bool capturing;
    CUresult result;

    compute_forget_stream(stream);
    compute_capture_ends();
    capturing = captures(REAL(cuStreamIsCapturing), stream);
    result = destroy(stream);
    compute_capture_ended(capturing && result == CUDA_SUCCESS);
    compute_forgot_stream();
    return result;
}

PUBLIC CUresult cuStreamDestroy(CUstream stream)
{
    (void)real_driver();
    return destroy_stream(stream, REAL(cuStreamDestroy));
}

PUBLIC CUresult cuStreamDestroy_v2(CUstream stream)
{
    (void)real_driver();
    return destroy_stream(stream, REAL(cuStreamDestroy_v2));
}
