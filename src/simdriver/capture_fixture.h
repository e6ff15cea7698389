/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Captures, for the tests of them. */

#include "simdriver/testing.h"

enum {
    GLOBAL = CU_STREAM_CAPTURE_MODE_GLOBAL,
    LOCAL = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    RELAXED = CU_STREAM_CAPTURE_MODE_RELAXED,
};

CUstreamCaptureStatus capture_status(CUstream stream);

/* The mode of the thread that calls. */
void capture_enter_mode(CUstreamCaptureMode mode);

/* Ends a capture that is to be valid, or not. */
void capture_end(CUstream stream, CUresult wanted);
