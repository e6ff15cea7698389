/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Beginning, ending and showing a capture, under the machine's lock. What else has to do with
 * captures is in guest.h, for those who put work into streams.
 */

#include "simdriver/graph.h"
#include "simdriver/guest.h"

CUresult capture_begin(uint32_t stream, CUstreamCaptureMode mode);

/* The graph is the caller's; NULL when there is an error. */
CUresult capture_end(uint32_t stream, struct graph **ret_graph);

/* What a capture tells of itself; each may be NULL but the status. */
struct capture_answers {
    CUstreamCaptureStatus *status;
    cuuint64_t *id;
    CUgraph *graph;
    const CUgraphNode **nodes;
    size_t *count;
    const void **edges; /* no edge has data here: a NULL array says so */
};

CUresult capture_ask(uint32_t stream, const struct capture_answers *answers);
