/* SPDX-License-Identifier: Apache-2.0 */

/* The calls by which captures begin, grow and end, with their streams too. */

#include "vgpu/compute.h"
#include "vgpu/real.h"

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

PUBLIC CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                            const CUgraphNode *nodes, const void *edges,
                                            size_t count, CUstreamCaptureMode mode)
{
    CAPTURE(cuStreamBeginCaptureToGraph, stream, graph, nodes, edges, count, mode);
}

PUBLIC CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                                 const CUgraphNode *nodes, const void *edges,
                                                 size_t count, CUstreamCaptureMode mode)
{
    CAPTURE(cuStreamBeginCaptureToGraph_ptsz, stream, graph, nodes, edges, count, mode);
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
    CAPTURE(cuStreamBeginCaptureToCig, stream, params);
}

PUBLIC CUresult cuStreamBeginCaptureToCig_ptsz(CUstream stream, void *params)
{
    CAPTURE(cuStreamBeginCaptureToCig_ptsz, stream, params);
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

/* A capture that became invalid ends with an error, and ends all the same. */
PUBLIC CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    bool capturing;
    CUresult result;

    (void)real_driver();
    compute_capture_ends();
    capturing = captures(REAL(cuStreamIsCapturing), stream);
    result = REAL(cuStreamEndCapture)(stream, graph);
    compute_capture_ended(capturing && !captures(REAL(cuStreamIsCapturing), stream));
    return result;
}

PUBLIC CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    bool capturing;
    CUresult result;

    (void)real_driver();
    compute_capture_ends();
    capturing = captures(REAL(cuStreamIsCapturing_ptsz), stream);
    result = REAL(cuStreamEndCapture_ptsz)(stream, graph);
    compute_capture_ended(capturing && !captures(REAL(cuStreamIsCapturing_ptsz), stream));
    return result;
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
