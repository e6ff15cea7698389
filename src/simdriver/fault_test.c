/* SPDX-License-Identifier: Apache-2.0 */

/* A kernel at an address that is none: its process can do no more work, and others can. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "simdriver/testing.h"

#define MS(count) ((count)*NS_PER_MS)

static const char image[] = "hamisim-module 1\nsize=4096\nkernel bad faults\n";

/* In the second stream, for 2 ms. */
static void launch_bad(const struct testing *t)
{
    CUfunction bad;
    CUmodule module;

    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&bad, module, "bad"));
    OK(testing_launch(bad, t->streams[1], 1, MS(2), 0));
}

static void nothing_works(const struct testing *t)
{
    size_t free_bytes, total;
    CUcontext context;
    CUdeviceptr ptr;
    CUevent event;

    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(t->streams[0]));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventQuery(t->events[0]));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventSynchronize(t->events[0]));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventCreate(&event, 0));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuEventRecord(t->events[0], t->streams[0]));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&ptr, 1));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemGetInfo_v2(&free_bytes, &total));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, testing_launch(t->kernel, t->streams[0], 1, MS(1), 0));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamDestroy_v2(t->streams[2]));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuModuleUnload(t->module));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxCreate_v2(&context, 0, 0));
}

static void the_process_is_done(void)
{
    struct testing t;
    CUcontext context;
    CUdevice device;
    CUdeviceptr ptr;

    testing_begin(&t);
    OK(cuMemAlloc_v2(&ptr, MIB));
    OK(cuEventRecord(t.events[0], t.streams[0]));
    OK(testing_launch(t.kernel, t.streams[0], 1, MS(10), 0));
    launch_bad(&t);
    OK(testing_launch(t.kernel, t.streams[1], 1, MS(30), 0));
    testing_step(MS(1));
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(t.streams[0]));
    testing_step(MS(1));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(t.streams[1]));
    nothing_works(&t);
    testing_step(MS(40));
    HOLDS(testing_busy_ns() == MS(2)); /* what else ran or waited went with it */

    OK(cuDeviceGet(&device, 0));
    OK(cuCtxGetDevice(&device));
    OK(cuCtxGetCurrent(&context));
    HOLDS(context == t.context);
    OK(cuCtxSetCurrent(t.context));
    OK(cuCtxDestroy_v2(t.context));
    HOLDS(testing_used_bytes() == 0);
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxCreate_v2(&context, 0, 0));
}

HOLDS_IN(after_a_fault_nothing_works_but_the_end, "", the_process_is_done)

static void others_go_on(void)
{
    struct testing t;
    pid_t child = fork();
    int status;

    if (child == 0) {
        testing_begin(&t);
        launch_bad(&t);
        testing_step(MS(2));
        GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
        _exit(0);
    }
    HOLDS(waitpid(child, &status, 0) == child && status == 0);
    testing_begin(&t);
    OK(testing_launch(t.kernel, t.streams[0], 1, MS(1), 0));
    testing_step(MS(1));
    OK(cuCtxSynchronize());
}

HOLDS_IN(other_processes_notice_nothing, "", others_go_on)

/* Whoever waits hears of it when it is, not when all that was queued would have been done. */
static void waits(void)
{
    struct testing t;
    int64_t begun_ns;

    testing_begin(&t);
    launch_bad(&t);
    OK(testing_launch(t.kernel, t.streams[1], 1, 3600 * NS_PER_S, 0));
    begun_ns = clock_now_ns();
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(t.streams[1]));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    HOLDS(clock_now_ns() - begun_ns < 60 * NS_PER_S);
}

static void who_waits_hears_of_it_at_once(void **state)
{
    (void)state;
    assert_int_equal(testing_run_unstopped("", waits), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(after_a_fault_nothing_works_but_the_end),
        cmocka_unit_test(other_processes_notice_nothing),
        cmocka_unit_test(who_waits_hears_of_it_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
