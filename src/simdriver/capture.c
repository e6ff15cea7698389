/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Stream capture. A capture begins in one stream; another one joins it by waiting for an event that
 * was recorded in a stream of it, and has to be joined to the first one, by an event of its own,
 * before that ends the capture. What is put into a stream that is captured becomes a node of the
 * capture's graph; each stream and each such event knows the nodes that come last before it.
 *
 * A capture can forbid others what might synchronise or allocate behind its back:
 * guest_check_safe() is asked first by every such call. Everything here is known to this process
 * alone, and is under the machine's lock.
 */

#include "simdriver/capture.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/util.h"
#include "simdriver/graph.h"
#include "simdriver/guest.h"

#define EXTERNAL 1 /* CU_EVENT_RECORD_EXTERNAL, CU_EVENT_WAIT_EXTERNAL */

struct capture {
    uint64_t id; /* never used again */
    uint64_t thread;
    CUstreamCaptureMode mode;
    uint32_t origin; /* 0: that stream is gone */
    bool invalid;
    struct graph *graph;
    struct capture *next;
};

/* The nodes after which the next one comes. */
struct front {
    uint32_t count;
    uint32_t *nodes;
};

struct captured_stream {
    struct capture *capture;
    struct front front;
    CUgraphNode *handles; /* as cuStreamGetCaptureInfo() told them */
};

struct captured_event {
    uint64_t capture;
    uint32_t gen;
    struct front front;
};

static struct capture *captures;
static uint64_t last_id;
static struct captured_stream streams[SIM_STREAMS];
static struct captured_event *events[SIM_EVENTS];

static bool is_strict(void)
{
    return guest_state()->header.driver.captures == SIM_CAPTURES_STRICT;
}

static void invalidate(struct capture *capture)
{
    if (is_strict())
        capture->invalid = true;
}

/* Which nodes come last */

static bool front_copy(struct front *front, const struct front *from)
{
    uint32_t *nodes = malloc(MAX(from->count, 1u) * sizeof(*nodes));

    if (!nodes)
        return false;
    if (from->count)
        memcpy(nodes, from->nodes, from->count * sizeof(*nodes));
    free(front->nodes);
    *front = (struct front){.count = from->count, .nodes = nodes};
    return true;
}

static bool front_has(const struct front *front, uint32_t node)
{
    for (uint32_t i = 0; i < front->count; i++) {
        if (front->nodes[i] == node)
            return true;
    }
    return false;
}

static bool front_add(struct front *front, const struct front *more)
{
    uint32_t *nodes = realloc(front->nodes, (front->count + more->count + 1) * sizeof(*nodes));

    if (!nodes)
        return false;
    front->nodes = nodes;
    for (uint32_t i = 0; i < more->count; i++) {
        if (!front_has(front, more->nodes[i]))
            front->nodes[front->count++] = more->nodes[i];
    }
    return true;
}

static void front_clear(struct front *front)
{
    free(front->nodes);
    *front = (struct front){0};
}

/* Captures */

static struct capture *find_capture(uint64_t id)
{
    struct capture *capture = captures;

    while (capture && capture->id != id)
        capture = capture->next;
    return capture;
}

bool guest_is_capturing(uint32_t stream)
{
    return guest.captures && streams[stream].capture;
}

static void leave(uint32_t stream)
{
    front_clear(&streams[stream].front);
    free(TAKE(streams[stream].handles));
    streams[stream].capture = NULL;
}

static bool join(uint32_t stream, struct capture *capture, const struct front *front)
{
    if (!front_copy(&streams[stream].front, front))
        return false;
    streams[stream].capture = capture;
    return true;
}

/* Takes all its streams out of it, and forgets it; the graph is the caller's. */
static struct graph *end_capture(struct capture *capture)
{
    struct graph *graph = capture->graph;
    struct capture **at = &captures;

    for (uint32_t i = 1; i <= guest_state()->stream_pool.high; i++) {
        if (streams[i].capture == capture)
            leave(i);
    }
    while (*at != capture)
        at = &(*at)->next;
    *at = capture->next;
    free(capture);
    graph->capturing = false;
    __atomic_sub_fetch(&guest.captures, 1, __ATOMIC_RELEASE);
    return graph;
}

/* What it began in is gone, and so is whoever could have ended it. */
static void lose(struct capture *capture)
{
    if (guest_state()->header.driver.lost_captures == SIM_LOST_CAPTURES_END) {
        graph_free(end_capture(capture));
        return;
    }
    capture->invalid = true;
    capture->origin = 0;
}

void guest_drop_capture(uint32_t stream)
{
    struct capture *capture = streams[stream].capture;

    if (!guest.captures || !capture)
        return;
    leave(stream);
    if (capture->origin == stream)
        lose(capture);
    else
        invalidate(capture);
}

void guest_drop_thread_captures(void)
{
    struct capture *next;

    for (struct capture *capture = captures; capture; capture = next) {
        next = capture->next;
        if (capture->thread == guest_thread.id)
            lose(capture);
    }
}

/* What is forbidden while there is a capture */

static bool forbids(const struct capture *capture)
{
    if (guest_thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    if (capture->thread == guest_thread.id)
        return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           guest_thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult guest_check_safe(void)
{
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS || !__atomic_load_n(&guest.captures, __ATOMIC_ACQUIRE) || !is_strict())
        return r;
    guest_name_thread();
    (void)sim_lock(guest.sim);
    for (struct capture *capture = captures; capture; capture = capture->next) {
        if (!forbids(capture))
            continue;
        capture->invalid = true;
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    sim_unlock(guest.sim);
    return r;
}

CUresult guest_check_legacy(uint32_t stream, bool ask)
{
    const struct sim_context *c = guest_context(guest_state()->streams[stream].context);
    CUresult r = CUDA_SUCCESS;

    if (!guest.captures || stream != c->legacy || !is_strict())
        return CUDA_SUCCESS;
    for (uint32_t i = c->streams; i; i = guest_state()->streams[i].sibling) {
        if (guest_state()->streams[i].flags || !streams[i].capture)
            continue;
        if (!ask)
            streams[i].capture->invalid = true;
        r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return r;
}

CUresult guest_check_wait(uint32_t stream)
{
    CUresult r = guest_check_legacy(stream, false);

    if (r != CUDA_SUCCESS || !guest_is_capturing(stream))
        return r;
    invalidate(streams[stream].capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult guest_check_context_wait(uint32_t context)
{
    CUresult r = CUDA_SUCCESS;

    if (!guest.captures)
        return CUDA_SUCCESS;
    for (uint32_t i = guest_context(context)->streams; i; i = guest_state()->streams[i].sibling) {
        if (guest_check_wait(i) != CUDA_SUCCESS)
            r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return r;
}

/* Nodes */

static bool follow(struct graph *graph, const struct front *front, struct graph_node *node)
{
    for (uint32_t i = 0; i < front->count; i++) {
        struct graph_node *before = graph->nodes[front->nodes[i]];

        before->followed = true;
        if (!graph_add_after(node, before))
            return false;
    }
    return true;
}

CUresult guest_capture_node(uint32_t stream, const struct graph_node *like)
{
    struct capture *capture = streams[stream].capture;
    struct front *front = &streams[stream].front;
    struct graph_node *node;
    uint32_t *nodes;

    if (capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    nodes = malloc(sizeof(*nodes));
    node = nodes ? graph_add(capture->graph, like) : NULL;
    if (!node || !follow(capture->graph, front, node)) {
        free(nodes);
        capture->invalid = true;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    front_clear(front);
    nodes[0] = (uint32_t)capture->graph->count - 1;
    *front = (struct front){.count = 1, .nodes = nodes};
    return CUDA_SUCCESS;
}

static CUgraphNodeType type_of(const struct sim_op *op)
{
    if (op->kind == SIM_OP_KERNEL)
        return CU_GRAPH_NODE_TYPE_KERNEL;
    if (op->kind == SIM_OP_WAIT_VALUE || op->kind == SIM_OP_WRITE_VALUE)
        return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    return op->kind == SIM_OP_RECORD ? CU_GRAPH_NODE_TYPE_EVENT_RECORD
                                     : CU_GRAPH_NODE_TYPE_WAIT_EVENT;
}

CUresult guest_capture(uint32_t stream, const struct sim_op *op)
{
    return guest_capture_node(stream, &(struct graph_node){.type = type_of(op), .op = *op});
}

struct graph *guest_capture_graph(uint32_t stream)
{
    return streams[stream].capture->graph;
}

/* Events */

static struct captured_event *find_event(uint32_t event)
{
    struct captured_event *captured = events[event];

    return captured && captured->gen == guest_state()->events[event].gen ? captured : NULL;
}

void guest_uncapture_event(uint32_t event)
{
    if (!events[event])
        return;
    front_clear(&events[event]->front);
    free(TAKE(events[event]));
}

static CUresult capture_event(struct captured_stream *stream, uint32_t event)
{
    struct captured_event *captured = calloc(1, sizeof(*captured));

    if (!captured || !front_copy(&captured->front, &stream->front)) {
        free(captured);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    captured->capture = stream->capture->id;
    captured->gen = guest_state()->events[event].gen;
    guest_uncapture_event(event);
    events[event] = captured;
    return CUDA_SUCCESS;
}

CUresult guest_capture_record(uint32_t stream, uint32_t event, unsigned flags, bool *ret_captured)
{
    struct sim_op op = {
        .kind = SIM_OP_RECORD, .target = event, .gen = guest_state()->events[event].gen};
    CUresult r = guest_check_legacy(stream, false);

    *ret_captured = guest_is_capturing(stream);
    if (r != CUDA_SUCCESS)
        return r;
    if (flags > EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!*ret_captured)
        return flags ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
    if (streams[stream].capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return flags ? guest_capture(stream, &op) : capture_event(&streams[stream], event);
}

/* A stream that is not captured waits for an event that is. */
static CUresult fork_capture(uint32_t stream, const struct captured_event *event)
{
    struct capture *capture = find_capture(event->capture);

    if (!capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (stream == guest_context(guest_state()->streams[stream].context)->legacy) {
        invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return join(stream, capture, &event->front) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* A stream that is captured waits for an event that is not. */
static CUresult wait_outside(uint32_t stream, uint32_t event, unsigned flags)
{
    struct sim_op op = {
        .kind = SIM_OP_WAIT, .target = event, .gen = guest_state()->events[event].gen};

    if (flags)
        return guest_capture(stream, &op);
    if (!guest_state()->events[event].stamp)
        return CUDA_SUCCESS;
    invalidate(streams[stream].capture);
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

CUresult guest_capture_wait(uint32_t stream, uint32_t event, unsigned flags, bool *ret_captured)
{
    struct capture *capture = guest_is_capturing(stream) ? streams[stream].capture : NULL;
    const struct captured_event *captured = find_event(event);
    CUresult r = guest_check_legacy(stream, false);
    struct capture *other;

    *ret_captured = capture || captured;
    if (r != CUDA_SUCCESS)
        return r;
    if (flags > EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags && !capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (!*ret_captured)
        return CUDA_SUCCESS;
    if (!capture)
        return fork_capture(stream, captured);
    if (capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (!captured)
        return wait_outside(stream, event, flags);

    other = find_capture(captured->capture);
    if (other == capture)
        return front_add(&streams[stream].front, &captured->front) ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_OUT_OF_MEMORY;
    invalidate(capture);
    if (!other)
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    invalidate(other);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
}

CUresult guest_check_event(uint32_t event)
{
    const struct captured_event *captured = find_event(event);
    struct capture *capture;

    if (!captured)
        return CUDA_SUCCESS;
    capture = find_capture(captured->capture);
    if (capture)
        invalidate(capture);
    return CUDA_ERROR_CAPTURED_EVENT;
}

/* Beginning, ending and showing a capture */

CUresult capture_begin(uint32_t stream, CUstreamCaptureMode mode)
{
    struct capture *capture;

    if (stream == guest_context(guest_state()->streams[stream].context)->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (streams[stream].capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    capture = calloc(1, sizeof(*capture));
    if (capture)
        capture->graph = graph_new(GRAPH_MAGIC);
    if (!capture || !capture->graph || !join(stream, capture, &(struct front){0})) {
        if (capture)
            graph_free(capture->graph);
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->graph->capturing = true;
    capture->id = ++last_id;
    capture->thread = guest_thread.id;
    capture->mode = mode;
    capture->origin = stream;
    capture->next = captures;
    captures = capture;
    __atomic_add_fetch(&guest.captures, 1, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

/* Whether every node comes before what the stream would do next. */
static bool is_joined(const struct graph *graph, const struct front *front)
{
    for (size_t i = 0; i < graph->count; i++) {
        if (!graph->nodes[i]->followed && !front_has(front, (uint32_t)i))
            return false;
    }
    return true;
}

CUresult capture_end(uint32_t stream, struct graph **ret_graph)
{
    struct capture *capture = streams[stream].capture;
    CUresult r = CUDA_SUCCESS;
    struct graph *graph;

    if (!capture)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream) {
        invalidate(capture);
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    if (capture->thread != guest_thread.id && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (capture->invalid)
        r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!is_joined(capture->graph, &streams[stream].front))
        r = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    graph = end_capture(capture);
    if (r != CUDA_SUCCESS)
        graph_free(TAKE(graph));
    *ret_graph = graph;
    return r;
}

static CUstreamCaptureStatus status_of(const struct capture *capture)
{
    if (!capture)
        return CU_STREAM_CAPTURE_STATUS_NONE;
    return capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                            : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static CUresult list_front(struct captured_stream *stream)
{
    const struct graph *graph = stream->capture->graph;
    CUgraphNode *handles = realloc(stream->handles, (stream->front.count + 1) * sizeof(*handles));

    if (!handles)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->handles = handles;
    for (uint32_t i = 0; i < stream->front.count; i++)
        handles[i] = (CUgraphNode)graph->nodes[stream->front.nodes[i]];
    return CUDA_SUCCESS;
}

CUresult capture_ask(uint32_t stream, const struct capture_answers *answers)
{
    struct captured_stream *captured = &streams[stream];
    struct capture *capture = guest_is_capturing(stream) ? captured->capture : NULL;
    CUresult r = guest_check_legacy(stream, true);

    if (r != CUDA_SUCCESS)
        return r;
    *answers->status = status_of(capture);
    if (*answers->status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    if (answers->id)
        *answers->id = capture->id;
    if (answers->graph)
        *answers->graph = (CUgraph)capture->graph;
    if (answers->count)
        *answers->count = captured->front.count;
    if (answers->edges)
        *answers->edges = NULL;
    if (!answers->nodes)
        return CUDA_SUCCESS;
    r = list_front(captured);
    if (r == CUDA_SUCCESS)
        *answers->nodes = captured->handles;
    return r;
}
