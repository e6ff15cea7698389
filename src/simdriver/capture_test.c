/* SPDX-License-Identifier: Apache-2.0 */

/* Stream capture: what begins and ends it, and what streams and events have to do with it. */

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/capture_fixture.h"

static struct testing t;

static void *end_elsewhere(void *data)
{
    CUgraph graph = NULL;

    OK(cuCtxSetCurrent(t.context));
    *(CUresult *)data = cuStreamEndCapture(t.streams[0], &graph);
    if (graph)
        OK(cuGraphDestroy(graph));
    return NULL;
}

static CUresult ended_elsewhere(void)
{
    pthread_t thread;
    CUresult r = -1;

    HOLDS(pthread_create(&thread, NULL, end_elsewhere, &r) == 0);
    HOLDS(pthread_join(thread, NULL) == 0);
    return r;
}

static void beginnings_and_ends(void)
{
    CUgraph graph;

    testing_begin(&t);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuStreamBeginCapture_v2(t.streams[0], 3));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(NULL, GLOBAL));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(CU_STREAM_LEGACY, GLOBAL));
    GIVES(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(t.streams[0], &graph));
    OK(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, GLOBAL));
    capture_end(CU_STREAM_PER_THREAD, CUDA_SUCCESS);

    OK(cuStreamBeginCapture_v2(t.streams[0], LOCAL));
    GIVES(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, ended_elsewhere());
    HOLDS(capture_status(t.streams[0]) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    capture_end(t.streams[0], CUDA_SUCCESS);
    OK(cuStreamBeginCapture_v2(t.streams[0], RELAXED));
    OK(ended_elsewhere());

    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuEventRecord(t.events[0], t.streams[0]));
    OK(cuStreamWaitEvent(t.streams[1], t.events[0], 0));
    HOLDS(capture_status(t.streams[1]) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(t.streams[1], &graph));
    capture_end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    HOLDS(capture_status(t.streams[1]) == CU_STREAM_CAPTURE_STATUS_NONE);
}

HOLDS_IN(a_capture_ends_where_and_by_whom_it_began, "", beginnings_and_ends)

static void streams_of_a_capture(void)
{
    CUgraphExec exec;
    CUgraph graph;

    testing_begin(&t);
    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(testing_launch(t.kernel, t.streams[0], 100, NS_PER_MS, 0));
    OK(cuEventRecord(t.events[0], t.streams[0]));
    OK(cuStreamWaitEvent(t.streams[1], t.events[0], 0));
    OK(testing_launch(t.kernel, t.streams[1], 100, 2 * NS_PER_MS, 0));
    OK(testing_launch(t.kernel, t.streams[0], 100, 4 * NS_PER_MS, 0));
    OK(cuEventRecord(t.events[1], t.streams[1]));
    OK(cuStreamWaitEvent(t.streams[0], t.events[1], 0));
    OK(cuStreamEndCapture(t.streams[0], &graph));
    HOLDS(capture_status(t.streams[1]) == CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));

    /* Nothing ran; what is put into the streams now follows what was there before. */
    OK(cuStreamQuery(t.streams[0]));
    HOLDS(testing_busy_ns() == 0);
    OK(cuGraphLaunch(exec, t.streams[1]));
    testing_step(NS_PER_S);
    HOLDS(testing_busy_ns() == 7 * NS_PER_MS);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));

    /* A fork whose work never came back. */
    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuEventRecord(t.events[0], t.streams[0]));
    OK(cuStreamWaitEvent(t.streams[1], t.events[0], 0));
    OK(testing_launch(t.kernel, t.streams[1], 1, 1, 0));
    capture_end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    HOLDS(capture_status(t.streams[1]) == CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Each kernel belongs to where it was captured. */
static void streams_of_two_devices(void)
{
    struct testing other;
    CUgraphExec exec;
    CUgraph graph;

    testing_begin(&t);
    testing_begin_context(&other, 1);
    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuEventRecord(t.events[0], t.streams[0]));
    OK(cuStreamWaitEvent(other.streams[0], t.events[0], 0));
    OK(testing_launch(other.kernel, other.streams[0], 100, 2000, 0));
    OK(cuEventRecord(other.events[0], other.streams[0]));
    OK(testing_launch(t.kernel, t.streams[0], 100, 1000, 0));
    OK(cuStreamWaitEvent(t.streams[0], other.events[0], 0));
    OK(cuStreamEndCapture(t.streams[0], &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, t.streams[1]));
    testing_step(NS_PER_S);
    HOLDS(testing_busy_ns() == 1000 && testing_busy_on_ns(1) == 2000);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

HOLDS_IN(kernels_run_where_they_were_captured, "", streams_of_two_devices)

HOLDS_IN(streams_fork_and_join, "", streams_of_a_capture)

static void boundaries(void)
{
    testing_begin(&t);
    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuStreamBeginCapture_v2(t.streams[1], GLOBAL));
    OK(cuEventRecord(t.events[0], t.streams[0]));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(t.streams[1], t.events[0], 0));
    capture_end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    capture_end(t.streams[1], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    OK(cuEventRecord(t.events[1], t.streams[2]));
    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuStreamWaitEvent(t.streams[0], t.events[3], 0)); /* was never recorded */
    GIVES(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(t.streams[0], t.events[1], 0));
    capture_end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    GIVES(CUDA_ERROR_ILLEGAL_STATE,
          cuStreamWaitEvent(t.streams[0], t.events[1], CU_EVENT_WAIT_EXTERNAL));
    GIVES(CUDA_ERROR_ILLEGAL_STATE,
          cuEventRecordWithFlags(t.events[1], t.streams[0], CU_EVENT_RECORD_EXTERNAL));
}

HOLDS_IN(captures_are_isolated, "", boundaries)

static void external_nodes(void)
{
    CUgraphExec exec;
    CUgraph graph;

    testing_begin(&t);
    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuStreamWaitEvent(t.streams[0], t.events[1], CU_EVENT_WAIT_EXTERNAL));
    OK(testing_launch(t.kernel, t.streams[0], 1, NS_PER_MS, 0));
    OK(cuEventRecordWithFlags(t.events[2], t.streams[0], CU_EVENT_RECORD_EXTERNAL));
    OK(cuStreamEndCapture(t.streams[0], &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));

    OK(cuEventRecord(t.events[0], t.streams[1]));
    OK(testing_launch(t.kernel, t.streams[1], 1, 5 * NS_PER_MS, 0));
    OK(cuEventRecord(t.events[1], t.streams[1]));
    OK(cuGraphLaunch(exec, t.streams[0]));
    GIVES(CUDA_ERROR_NOT_READY, cuEventQuery(t.events[2]));
    testing_step(NS_PER_S);
    HOLDS(testing_between(t.events[0], t.events[2]) == 6 * NS_PER_MS);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

HOLDS_IN(external_events_cross_the_boundary, "", external_nodes)

static void beside_the_legacy_stream(void)
{
    CUstreamCaptureStatus status;
    CUstream blocking;

    testing_begin(&t);
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamBeginCapture_v2(blocking, RELAXED));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
    HOLDS(capture_status(blocking) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, testing_launch(t.kernel, NULL, 1, 1, 0));
    capture_end(blocking, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture_v2(blocking, RELAXED));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuEventRecord(t.events[0], NULL));
    capture_end(blocking, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuStreamIsCapturing(NULL, &status));
    HOLDS(status == CU_STREAM_CAPTURE_STATUS_NONE);
    OK(testing_launch(t.kernel, NULL, 1, 1, 0));
    capture_end(t.streams[0], CUDA_SUCCESS);
}

HOLDS_IN(the_legacy_stream_is_barred_beside_blocking_ones, "", beside_the_legacy_stream)

static CUresult allocate(void)
{
    CUdeviceptr ptr;

    return cuMemAlloc_v2(&ptr, 512);
}

static void *begin_and_leave(void *unused)
{
    (void)unused;
    OK(cuCtxSetCurrent(t.context));
    OK(cuStreamBeginCapture_v2(t.streams[2], GLOBAL));
    return NULL;
}

static void lose_three(void)
{
    pthread_t thread;

    testing_begin(&t);
    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuEventRecord(t.events[0], t.streams[0]));
    OK(cuStreamWaitEvent(t.streams[1], t.events[0], 0));
    OK(cuStreamDestroy_v2(t.streams[0]));
    HOLDS(pthread_create(&thread, NULL, begin_and_leave, NULL) == 0);
    HOLDS(pthread_join(thread, NULL) == 0);
}

static void lost_for_good(void)
{
    lose_three();
    HOLDS(capture_status(t.streams[1]) == CU_STREAM_CAPTURE_STATUS_NONE);
    HOLDS(capture_status(t.streams[2]) == CU_STREAM_CAPTURE_STATUS_NONE);
    OK(allocate());
    OK(cuCtxSynchronize());
}

static void lost_and_still_there(void)
{
    lose_three();
    HOLDS(capture_status(t.streams[1]) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    HOLDS(capture_status(t.streams[2]) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, allocate());
    capture_enter_mode(RELAXED);
    OK(allocate());
}

static void a_fork_is_lost(void)
{
    testing_begin(&t);
    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuEventRecord(t.events[0], t.streams[0]));
    OK(cuStreamWaitEvent(t.streams[1], t.events[0], 0));
    OK(cuStreamDestroy_v2(t.streams[1]));
    capture_end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void a_context_is_lost(void)
{
    struct testing second;
    CUcontext context;

    testing_begin(&t);
    testing_begin_context(&second, 0);
    OK(cuStreamBeginCapture_v2(second.streams[0], RELAXED));
    OK(cuCtxDestroy_v2(second.context));
    OK(cuCtxGetCurrent(&context));
    HOLDS(context == t.context);
    OK(allocate());
}

static void a_capture_dies_with_its_stream_or_thread(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", lost_for_good), 0);
    assert_int_equal(testing_run("lost-captures=stay", lost_and_still_there), 0);
    assert_int_equal(testing_run("", a_fork_is_lost), 0);
    assert_int_equal(testing_run("", a_context_is_lost), 0);
}

static void information(void)
{
    cuuint64_t id = 0, second = 0;
    CUstreamCaptureStatus status;
    const CUgraphNode *nodes;
    CUgraphExec exec;
    CUgraph graph;
    size_t count;

    testing_begin(&t);
    OK(cuStreamGetCaptureInfo(t.streams[0], &status, &id));
    HOLDS(status == CU_STREAM_CAPTURE_STATUS_NONE);
    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuStreamGetCaptureInfo_v2(t.streams[0], &status, &id, &graph, &nodes, &count));
    HOLDS(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && count == 0);
    OK(testing_launch(t.kernel, t.streams[0], 1, 1, 0));
    OK(cuEventRecord(t.events[0], t.streams[0]));
    OK(cuStreamWaitEvent(t.streams[1], t.events[0], 0));
    OK(testing_launch(t.kernel, t.streams[0], 1, 1, 0));
    OK(testing_launch(t.kernel, t.streams[1], 1, 1, 0));
    OK(cuEventRecord(t.events[1], t.streams[1]));
    OK(cuStreamWaitEvent(t.streams[0], t.events[1], 0));
    OK(cuStreamGetCaptureInfo_v2(t.streams[0], &status, &second, &graph, &nodes, &count));
    HOLDS(second == id && count == 2 && nodes[0] && nodes[0] != nodes[1]);
    GIVES(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags(&exec, graph, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph));
    capture_end(t.streams[0], CUDA_SUCCESS);
    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuStreamGetCaptureInfo(t.streams[0], &status, &second));
    HOLDS(second != id);
    capture_end(t.streams[0], CUDA_SUCCESS);
}

HOLDS_IN(a_capture_tells_of_itself, "", information)

/* Eight threads capture, each in its own stream and way, while two make forbidden calls. */

static unsigned ended, invalid;

static void *capture_main(void *data)
{
    unsigned number = (unsigned)(uintptr_t)data;
    CUgraph graph;

    OK(cuCtxSetCurrent(t.context));
    for (unsigned i = 0; i < 300; i++) {
        CUresult r;

        OK(cuStreamBeginCapture_v2(t.streams[number], (CUstreamCaptureMode)(number % 3)));
        r = testing_launch(t.kernel, t.streams[number], 1, 1, 0);
        HOLDS(r == CUDA_SUCCESS || r == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        HOLDS(r == CUDA_SUCCESS || number % 3 == 0);
        r = cuStreamEndCapture(t.streams[number], &graph);
        HOLDS(r == CUDA_SUCCESS || (r == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED && number % 3 == 0));
        (void)__atomic_add_fetch(r == CUDA_SUCCESS ? &ended : &invalid, 1, __ATOMIC_RELAXED);
        if (r == CUDA_SUCCESS)
            OK(cuGraphDestroy(graph));
    }
    return NULL;
}

static void *forbidden_main(void *data)
{
    (void)data;
    OK(cuCtxSetCurrent(t.context));
    for (unsigned i = 0; i < 600; i++) {
        CUdeviceptr ptr;
        CUresult r = cuMemAlloc_v2(&ptr, 512);

        HOLDS(r == CUDA_SUCCESS || r == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        while (r == CUDA_SUCCESS && cuMemFree_v2(ptr) != CUDA_SUCCESS)
            ;
    }
    return NULL;
}

static void many_threads(void)
{
    pthread_t threads[10];

    testing_begin(&t);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        HOLDS(pthread_create(&threads[i], NULL, i < 8 ? capture_main : forbidden_main,
                             (void *)(uintptr_t)i) == 0);
    for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
        HOLDS(pthread_join(threads[i], NULL) == 0);
    HOLDS(ended + invalid == 8 * 300 && ended >= 5 * 300);
    OK(cuCtxSynchronize());
    HOLDS(testing_used_bytes() == 100 * MIB + 4096);
}

HOLDS_IN(captures_of_many_threads_stay_apart, "", many_threads)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_capture_ends_where_and_by_whom_it_began),
        cmocka_unit_test(streams_fork_and_join),
        cmocka_unit_test(kernels_run_where_they_were_captured),
        cmocka_unit_test(captures_are_isolated),
        cmocka_unit_test(external_events_cross_the_boundary),
        cmocka_unit_test(the_legacy_stream_is_barred_beside_blocking_ones),
        cmocka_unit_test(a_capture_dies_with_its_stream_or_thread),
        cmocka_unit_test(a_capture_tells_of_itself),
        cmocka_unit_test(captures_of_many_threads_stay_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
