/* SPDX-License-Identifier: Apache-2.0 */

/* What a stream capture forbids, and to whom. */

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
#include "simdriver/capture_fixture.h"

static struct testing t;

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
    capture_end(t.streams[0], other->wanted);
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
    HOLDS(capture_status(t.streams[0]) ==
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

            capture_enter_mode(own);
            OK(cuStreamBeginCapture_v2(t.streams[0], mode));
            check_call(forbidden_own[mode][own]);
            capture_end(t.streams[0], end_of(forbidden_own[mode][own]));
            other_begin(&other, mode);
            check_call(forbidden_other[mode][own]);
            other_end(&other, end_of(forbidden_other[mode][own]));
        }
    }
}

HOLDS_IN(a_capture_forbids_by_its_mode_and_the_threads, "", every_pair_of_modes)

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
        HOLDS(capture_status(t.streams[0]) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
              testing_launch(t.kernel, t.streams[0], 1, 1, 0));
        GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuEventRecord(t.events[0], t.streams[0]));
        capture_end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        capture_end(t.streams[1], CUDA_SUCCESS);
        HOLDS(testing_used_bytes() == used_bytes);
    }
    OK(cuMemFree_v2(memory));
    OK(cuMemFreeHost(host));
}

HOLDS_IN(a_forbidden_call_does_nothing_and_invalidates, "", each_forbidden_call)

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
    capture_end(t.streams[0], CUDA_SUCCESS);
}

HOLDS_IN(a_safe_call_leaves_a_capture_alone, "", each_safe_call)

static void all_allowed(void)
{
    testing_begin(&t);
    OK(cuStreamBeginCapture_v2(t.streams[0], GLOBAL));
    OK(call_alloc());
    OK(call_event_query());
    OK(call_load());
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(t.streams[0]));
    capture_end(t.streams[0], CUDA_SUCCESS);
}

HOLDS_IN(a_kind_driver_forbids_nothing, "captures=kind", all_allowed)

/* The stream, the event and the context that are captured themselves: no mode makes up for that. */
static void waiting_for_what_is_captured(void)
{
    testing_begin(&t);
    capture_enter_mode(RELAXED);
    OK(cuStreamBeginCapture_v2(t.streams[0], RELAXED));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(t.streams[0]));
    capture_end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture_v2(t.streams[0], RELAXED));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(t.streams[0]));
    capture_end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture_v2(t.streams[0], RELAXED));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize());
    capture_end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuStreamBeginCapture_v2(t.streams[0], RELAXED));
    OK(cuEventRecord(t.events[0], t.streams[0]));
    GIVES(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(t.events[0]));
    capture_end(t.streams[0], CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    /* Also after the end, till it is recorded again. */
    GIVES(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(t.events[0]));
    GIVES(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(t.events[0]));
    GIVES(CUDA_ERROR_CAPTURED_EVENT, cuStreamWaitEvent(t.streams[1], t.events[0], 0));
    OK(cuEventRecord(t.events[0], t.streams[0]));
    OK(cuEventQuery(t.events[0]));

    /* The relaxed one disturbs nobody who asks for other streams. */
    capture_enter_mode(GLOBAL);
    OK(cuStreamBeginCapture_v2(t.streams[0], RELAXED));
    OK(cuStreamSynchronize(t.streams[1]));
    OK(cuEventQuery(t.events[0]));
    capture_end(t.streams[0], CUDA_SUCCESS);
}

HOLDS_IN(what_is_captured_can_not_be_waited_for, "", waiting_for_what_is_captured)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_capture_forbids_by_its_mode_and_the_threads),
        cmocka_unit_test(a_forbidden_call_does_nothing_and_invalidates),
        cmocka_unit_test(a_safe_call_leaves_a_capture_alone),
        cmocka_unit_test(a_kind_driver_forbids_nothing),
        cmocka_unit_test(what_is_captured_can_not_be_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
