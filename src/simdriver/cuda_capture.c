/* SPDX-License-Identifier: Apache-2.0 */

/* The calls that begin, end and show a capture; capture.c has the rules. */

#include "base/util.h"
#include "simdriver/capture.h"
#include "simdriver/guest.h"

static CUresult begin(CUstream stream, CUstreamCaptureMode mode, bool per_thread)
{
    uint32_t i;
    CUresult r;

    if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    r = guest_enter_stream(stream, per_thread, &i);
    if (r != CUDA_SUCCESS)
        return r;
    guest_name_thread();
    r = capture_begin(i, mode);
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuStreamBeginCapture(CUstream stream)
{
    return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, false);
}

PUBLIC CUresult cuStreamBeginCapture_ptsz(CUstream stream)
{
    return begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, true);
}

PUBLIC CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    return begin(stream, mode, false);
}

PUBLIC CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    return begin(stream, mode, true);
}

static CUresult end(CUstream stream, CUgraph *ret_graph, bool per_thread)
{
    struct graph *graph = NULL;
    uint32_t i;
    CUresult r;

    GUEST_CLEAR(ret_graph);
    if (!ret_graph)
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    r = guest_enter_stream(stream, per_thread, &i);
    if (r != CUDA_SUCCESS)
        return r;
    guest_name_thread();
    r = capture_end(i, &graph);
    sim_unlock(guest.sim);
    *ret_graph = (CUgraph)graph;
    return r;
}

PUBLIC CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    return end(stream, graph, false);
}

PUBLIC CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    return end(stream, graph, true);
}

static CUresult ask(CUstream stream, bool per_thread, const struct capture_answers *answers)
{
    uint32_t i;
    CUresult r;

    if (!answers->status)
        return guest_check() == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : guest_check();
    r = guest_enter_stream(stream, per_thread, &i);
    if (r != CUDA_SUCCESS)
        return r;
    r = capture_ask(i, answers);
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    return ask(stream, false, &(struct capture_answers){.status = status});
}

PUBLIC CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *status)
{
    return ask(stream, true, &(struct capture_answers){.status = status});
}

PUBLIC CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status,
                                       cuuint64_t *id)
{
    return ask(stream, false, &(struct capture_answers){.status = status, .id = id});
}

PUBLIC CUresult cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus *status,
                                            cuuint64_t *id)
{
    return ask(stream, true, &(struct capture_answers){.status = status, .id = id});
}

PUBLIC CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status,
                                          cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
                                          size_t *count)
{
    return ask(stream, false, &(struct capture_answers){status, id, graph, nodes, count, NULL});
}

PUBLIC CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus *status,
                                               cuuint64_t *id, CUgraph *graph,
                                               const CUgraphNode **nodes, size_t *count)
{
    return ask(stream, true, &(struct capture_answers){status, id, graph, nodes, count, NULL});
}

PUBLIC CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status,
                                          cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
                                          const void **edges, size_t *count)
{
    return ask(stream, false, &(struct capture_answers){status, id, graph, nodes, count, edges});
}

PUBLIC CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus *status,
                                               cuuint64_t *id, CUgraph *graph,
                                               const CUgraphNode **nodes, const void **edges,
                                               size_t *count)
{
    return ask(stream, true, &(struct capture_answers){status, id, graph, nodes, count, edges});
}

PUBLIC CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode asked;

    if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    asked = *mode;
    *mode = guest_thread.capture_mode;
    guest_thread.capture_mode = asked;
    return CUDA_SUCCESS;
}
