/* SPDX-License-Identifier: Apache-2.0 */

/* Stream capture: what it forbids to whom, what ends it, and what streams and events have to do
 * with it. */

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/testing.h"

enum {
    GLOBAL = CU_STREAM_CAPTURE_MODE_GLOBAL,
    LOCAL = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    RELAXED = CU_STREAM_CAPTURE_MODE_RELAXED,
};

static struct testing t;

static CUstreamCaptureStatus status_of(CUstream stream)
{
    CUstreamCaptureStatus status = -1;

    OK(cuStreamIsCapturing(stream, &status));
    return status;
}

static void enter_mode(CUstreamCaptureMode mode)
{
    OK(cuThreadExchangeStreamCaptureMode(&mode));
}

/* Ends a capture that is to be valid, or not. */
static void end(CUstream stream, CUresult wanted)
{
    CUgraph graph = (CUgraph)0x77;

    GIVES(wanted, cuStreamEndCapture(stream, &graph));
    HOLDS((graph != NULL) == (wanted == CUDA_SUCCESS));
    HOLDS(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
    if (graph)
        OK(cuGraphDestroy(graph));
}

/* Somebody else's capture, who has to end it himself. */
struct other {
    pthread_t thread;
    CUstreamCaptureMode mode;
    CUresult wanted;
    sem_t begun, leave;
};

static void *other_main(void *data)
{
    struct other *other = data;

    OK(cuCtxSetCurrent(t.context));
    OK(cuStreamBeginCapture_v2(t.streams[0], other->mode));
    HOLDS(sem_post(&other->begun) == 0);
    while (sem_wait(&other->leave) != 0)
        ;
    end(t.streams[0], other->wanted);
    return NULL;
}

static void other_begin(struct other *other, CUstreamCaptureMode mode)
{
    other->mode = mode;
    HOLDS(sem_init(&other->begun, 0, 0) == 0 && sem_init(&other->leave, 0, 0) == 0);
    HOLDS(pthread_create(&other->thread, NULL, other_main, other) == 0);
    while (sem_wait(&other->begun) != 0)
        ;
}

static void other_end(struct other *other, CUresult wanted)
{
    other->wanted = wanted;
    HOLDS(sem_post(&other->leave) == 0);
    HOLDS(pthread_join(other->thread, NULL) == 0);
}

/* By the mode of the capture, then by that of the thread that calls. */
static const bool forbidden_own[3][3] = {{true, true, false}, {true, true, false}, {false}};
static const bool forbidden_other[3][3] = {{true, false, false}, {false}, {false}};

static void check_call(bool forbidden)
{
    CUdeviceptr ptr = 77;

    GIVES(forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS, cuMemAlloc_v2(&ptr, 1));
    HOLDS(status_of(t.streams[0]) ==
          (forbidden ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE));
    HOLDS((ptr == 0) == forbidden);
}

static CUresult end_of(bool forbidden)
{
    return forbidden ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

static void every_pair_of_modes(void)
{
    testing_begin(&t);
    for (CUstreamCaptureMode mode = GLOBAL; mode <= RELAXED; mode++) {
        for (CUstreamCaptureMode own = GLOBAL; own <= RELAXED; own++) {
            struct other other;

            enter_mode(own);
            OK(cuStreamBeginCapture_v2(t.streams[0], mode));
            check_call(forbidden_own[mode][own]);
            end(t.streams[0], end_of(forbidden_own[mode][own]));
            other_begin(&other, mode);
            check_call(forbidden_other[mode][own]);
            other_end(&other, end_of(forbidden_other[mode][own]));
        }
    }
}

static void a_capture_forbids_by_its_mode_and_the_threads(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", every_pair_of_modes), 0);
}

/* The calls that are forbidden. What they would do is of no account. */

static CUdeviceptr memory;
static void *host;

static CUresult call_alloc(void)
{
    CUdeviceptr ptr;

    return cuMemAlloc_v2(&ptr, 512);
}

static CUresult call_pitch(void)
{
    CUdeviceptr ptr;
    size_t pitch;

    return cuMemAllocPitch_v2(&ptr, &pitch, 16, 16, 4);
}

static CUresult call_free(void)
{
    return cuMemFree_v2(memory);
}

static CUresult call_host_alloc(void)
{
    void *ptr;

    return cuMemHostAlloc(&ptr, 512, 0);
}

static CUresult call_host_free(void)
{
    return cuMemFreeHost(host);
}

static CUresult call_event_query(void)
{
    return cuEventQuery(t.events[7]);
}

static CUresult call_event_synchronize(void)
{
    return cuEventSynchronize(t.events[7]);
}

static CUresult call_stream_query(void)
{
    return cuStreamQuery(t.streams[7]);
}

static CUresult call_stream_synchronize(void)
{
    return cuStreamSynchronize(t.streams[7]);
}

static CUresult call_context_synchronize(void)
{
    return cuCtxSynchronize();
}

static CUresult call_load(void)
{
    CUmodule module;

    return cuModuleLoadData(&module, ".version");
}

static CUresult call_unload(void)
{
    return cuModuleUnload(t.module);
}

static CUresult call_library(void)
{
    CUlibrary library;

    return cuLibraryLoadData(&library, ".version", NULL, NULL, 0, NULL, NULL, 0);
}

static CUresult call_context(void)
{
    CUcontext context;

    return cuCtxCreate_v2(&context, 0, 0);
}

static CUresult call_retain(void)
{
    CUcontext context;

    return cuDevicePrimaryCtxRetain(&context, 0);
}

static CUresult call_limit(void)
{
    return cuCtxSetLimit(0, 4096);
}

static const struct {
    const char *name;
    CUresult (*call)(void);
} forbidden_calls[] = {
    {"cuMemAlloc", call_alloc},
    {"cuMemAllocPitch", call_pitch},
    {"cuMemFree", call_free},
    {"cuMemHostAlloc", call_host_alloc},
    {"cuMemFreeHost", call_host_free},
    {"cuEventQuery", call_event_query},
    {"cuEventSynchronize", call_event_synchronize},
    {"cuStreamQuery", call_stream_query},
    {"cuStreamSynchronize", call_stream_synchronize},
    {"cuCtxSynchronize", call_context_synchronize},
    {"cuModuleLoadData", call_load},
    {"cuModuleUnload", call_unload},
    {"cuLibraryLoadData", call_library},
    {"cuCtxCreate", call_context},
    {"cuDevicePrimaryCtxRetain", call_retain},
    {"cuCtxSetLimit", call_limit},
};

static void each_forbidden_call(void)
{
    uint64_t used_bytes;

    testing_begin(&t);
    OK(cuMemAlloc_v2(&memory, 4096));
    OK(cuMemHostAlloc(&host, 4096, 0));
    OK(cuEventRecord(t.events[7], t.streams[7]));
    used_bytes = testing_used_bytes();
    for (size_t i = 0; i < ARRAY_SIZE(forbidden_calls); i++) {
        OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
        OK(cuStreamBeginCapture_v2(t.streams[1], RELAXED));
        testing_code(__FILE__, __LINE__, forbidden_calls[i].name,
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, forbidden_calls[i].call());
        HOLDS(status_of(t.streams[0]) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
              testing_launch(t.kernel, t.streams[0], 1, 1, 0));
        GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuEventRecord(t.events[0], t.streams[0]));
        end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        end(t.streams[1], CUDA_SUCCESS);
        HOLDS(testing_used_bytes() == used_bytes);
    }
    OK(cuMemFree_v2(memory));
    OK(cuMemFreeHost(host));
}

static void a_forbidden_call_does_nothing_and_invalidates(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", each_forbidden_call), 0);
}

static void each_safe_call(void)
{
    size_t free_bytes, total;
    CUstream stream;
    CUcontext context;
    CUevent event;
    int value;

    testing_begin(&t);
    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, 0));
    OK(cuEventRecord(event, stream));
    OK(testing_launch(t.kernel, stream, 1, 1, 0));
    OK(cuMemGetInfo_v2(&free_bytes, &total));
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    OK(cuStreamGetCtx(t.streams[0], &context));
    HOLDS(context == t.context);
    OK(cuEventDestroy_v2(event));
    OK(cuStreamDestroy_v2(stream));
    end(t.streams[0], CUDA_SUCCESS);
}

static void a_safe_call_leaves_a_capture_alone(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", each_safe_call), 0);
}

static void all_allowed(void)
{
    testing_begin(&t);
    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(call_alloc());
    OK(call_event_query());
    OK(call_load());
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(t.streams[0]));
    end(t.streams[0], CUDA_SUCCESS);
}

static void a_kind_driver_forbids_nothing(void **state)
{
    (void)state;
    assert_int_equal(testing_run("captures=kind", all_allowed), 0);
}

/* The stream, the event and the context that are captured themselves: no mode makes up for that. */
static void waiting_for_what_is_captured(void)
{
    testing_begin(&t);
    enter_mode(RELAXED);
    OK(cuStreamBeginCapture_v2(t.streams[0], RELAXED));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(t.streams[0]));
    end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture_v2(t.streams[0], RELAXED));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(t.streams[0]));
    end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture_v2(t.streams[0], RELAXED));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
    end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture_v2(t.streams[0], RELAXED));
    OK(cuEventRecord(t.events[0], t.streams[0]));
    GIVES(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(t.events[0]));
    end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    /* Also after the end, till it is recorded again. */
    GIVES(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(t.events[0]));
    GIVES(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(t.events[0]));
    GIVES(CUDA_ERROR_CAPTURED_EVENT, cuStreamWaitEvent(t.streams[1], t.events[0], 0));
    OK(cuEventRecord(t.events[0], t.streams[0]));
    OK(cuEventQuery(t.events[0]));

    /* The relaxed one disturbs nobody who asks for other streams. */
    enter_mode(GLOBAL);
    OK(cuStreamBeginCapture_v2(t.streams[0], RELAXED));
    OK(cuStreamSynchronize(t.streams[1]));
    OK(cuEventQuery(t.events[0]));
    end(t.streams[0], CUDA_SUCCESS);
}

static void what_is_captured_can_not_be_waited_for(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", waiting_for_what_is_captured), 0);
}

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
    end(CU_STREAM_PER_THREAD, CUDA_SUCCESS);

    OK(cuStreamBeginCapture_v2(t.streams[0], LOCAL));
    GIVES(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, ended_elsewhere());
    HOLDS(status_of(t.streams[0]) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    end(t.streams[0], CUDA_SUCCESS);
    OK(cuStreamBeginCapture_v2(t.streams[0], RELAXED));
    OK(ended_elsewhere());

    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuEventRecord(t.events[0], t.streams[0]));
    OK(cuStreamWaitEvent(t.streams[1], t.events[0], 0));
    HOLDS(status_of(t.streams[1]) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(t.streams[1], &graph));
    end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    HOLDS(status_of(t.streams[1]) == CU_STREAM_CAPTURE_STATUS_NONE);
}

static void a_capture_ends_where_and_by_whom_it_began(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", beginnings_and_ends), 0);
}

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
    HOLDS(status_of(t.streams[1]) == CU_STREAM_CAPTURE_STATUS_NONE);
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
    end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    HOLDS(status_of(t.streams[1]) == CU_STREAM_CAPTURE_STATUS_NONE);
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

static void kernels_run_where_they_were_captured(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", streams_of_two_devices), 0);
}

static void streams_fork_and_join(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", streams_of_a_capture), 0);
}

static void boundaries(void)
{
    testing_begin(&t);
    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuStreamBeginCapture_v2(t.streams[1], GLOBAL));
    OK(cuEventRecord(t.events[0], t.streams[0]));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_MERGE, cuStreamWaitEvent(t.streams[1], t.events[0], 0));
    end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    end(t.streams[1], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    OK(cuEventRecord(t.events[1], t.streams[2]));
    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuStreamWaitEvent(t.streams[0], t.events[3], 0)); /* was never recorded */
    GIVES(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(t.streams[0], t.events[1], 0));
    end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    GIVES(CUDA_ERROR_ILLEGAL_STATE,
          cuStreamWaitEvent(t.streams[0], t.events[1], CU_EVENT_WAIT_EXTERNAL));
    GIVES(CUDA_ERROR_ILLEGAL_STATE,
          cuEventRecordWithFlags(t.events[1], t.streams[0], CU_EVENT_RECORD_EXTERNAL));
}

static void captures_are_isolated(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", boundaries), 0);
}

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

static void external_events_cross_the_boundary(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", external_nodes), 0);
}

static void beside_the_legacy_stream(void)
{
    CUstreamCaptureStatus status;
    CUstream blocking;

    testing_begin(&t);
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamBeginCapture_v2(blocking, RELAXED));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
    HOLDS(status_of(blocking) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, testing_launch(t.kernel, NULL, 1, 1, 0));
    end(blocking, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture_v2(blocking, RELAXED));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuEventRecord(t.events[0], NULL));
    end(blocking, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuStreamIsCapturing(NULL, &status));
    HOLDS(status == CU_STREAM_CAPTURE_STATUS_NONE);
    OK(testing_launch(t.kernel, NULL, 1, 1, 0));
    end(t.streams[0], CUDA_SUCCESS);
}

static void the_legacy_stream_is_barred_beside_blocking_ones(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", beside_the_legacy_stream), 0);
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
    HOLDS(status_of(t.streams[1]) == CU_STREAM_CAPTURE_STATUS_NONE);
    HOLDS(status_of(t.streams[2]) == CU_STREAM_CAPTURE_STATUS_NONE);
    OK(call_alloc());
    OK(cuCtxSynchronize());
}

static void lost_and_still_there(void)
{
    lose_three();
    HOLDS(status_of(t.streams[1]) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    HOLDS(status_of(t.streams[2]) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, call_alloc());
    enter_mode(RELAXED);
    OK(call_alloc());
}

static void a_fork_is_lost(void)
{
    testing_begin(&t);
    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuEventRecord(t.events[0], t.streams[0]));
    OK(cuStreamWaitEvent(t.streams[1], t.events[0], 0));
    OK(cuStreamDestroy_v2(t.streams[1]));
    end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
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
    OK(call_alloc());
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
    end(t.streams[0], CUDA_SUCCESS);
    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(cuStreamGetCaptureInfo(t.streams[0], &status, &second));
    HOLDS(second != id);
    end(t.streams[0], CUDA_SUCCESS);
}

static void a_capture_tells_of_itself(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", information), 0);
}

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

static void captures_of_many_threads_stay_apart(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", many_threads), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_capture_forbids_by_its_mode_and_the_threads),
        cmocka_unit_test(a_forbidden_call_does_nothing_and_invalidates),
        cmocka_unit_test(a_safe_call_leaves_a_capture_alone),
        cmocka_unit_test(a_kind_driver_forbids_nothing),
        cmocka_unit_test(what_is_captured_can_not_be_waited_for),
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
