/* SPDX-License-Identifier: Apache-2.0 */
#include "simdriver/capture_fixture.h"

CUstreamCaptureStatus capture_status(CUstream stream)
{
    CUstreamCaptureStatus status = -1;

    OK(cuStreamIsCapturing(stream, &status));
    return status;
}

void capture_enter_mode(CUstreamCaptureMode mode)
{
    OK(cuThreadExchangeStreamCaptureMode(&mode));
}

void capture_end(CUstream stream, CUresult wanted)
{
    CUgraph graph = (CUgraph)0x77;

    GIVES(wanted, cuStreamEndCapture(stream, &graph));
    HOLDS((graph != NULL) == (wanted == CUDA_SUCCESS));
    HOLDS(capture_status(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
    if (graph)
        OK(cuGraphDestroy(graph));
}
