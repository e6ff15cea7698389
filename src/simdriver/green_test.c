/* SPDX-License-Identifier: Apache-2.0 */

/* Green contexts: what they are made of, whose memory theirs is, and what their end leaves. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/testing.h"

#define PRIMARY_BYTES (100 * MIB)
#define GREEN_BYTES (6 * MIB)
#define SM 1

static CUdevResourceDesc half(CUdevice device)
{
    CUdevResource all, groups[2];
    CUdevResourceDesc desc;
    unsigned count = 2;

    OK(cuDeviceGetDevResource(device, &all, SM));
    HOLDS(all.type == SM && all.sm.smCount == 100);
    OK(cuDevSmResourceSplitByCount(groups, &count, &all, NULL, 0, 41));
    HOLDS(count == 2 && groups[0].sm.smCount == 48);
    OK(cuDevResourceGenerateDesc(&desc, groups, 1));
    return desc;
}

static CUgreenCtx make(CUdevice device)
{
    CUgreenCtx green;

    OK(cuGreenCtxCreate(&green, half(device), device, 1));
    return green;
}

static void resources(void)
{
    CUdevResource all, rest, got;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CUcontext used;
    unsigned count = 0;

    GIVES(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetDevResource(0, &all, SM));
    OK(cuInit(0));
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetDevResource(2, &all, SM));
    GIVES(CUDA_ERROR_INVALID_RESOURCE_TYPE, cuDeviceGetDevResource(0, &all, 7));
    OK(cuDeviceGetDevResource(0, &all, SM));
    OK(cuDevSmResourceSplitByCount(NULL, &count, &all, &rest, 0, 8));
    HOLDS(count == 12 && rest.sm.smCount == 4);
    GIVES(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
          cuDevSmResourceSplitByCount(NULL, &count, &rest, NULL, 0, 8));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuDevResourceGenerateDesc(&desc, &all, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green, NULL, 0, 1));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate(&green, half(0), 0, 2));
    green = make(0);
    OK(cuGreenCtxGetDevResource(green, &got, SM));
    HOLDS(got.sm.smCount == 48);
    OK(cuCtxFromGreenCtx(&used, green));
    OK(cuCtxGetDevResource(used, &got, SM));
    HOLDS(got.sm.smCount == 48);
}

HOLDS_IN(multiprocessors_are_split_in_groups, "", resources)

static void lives(void)
{
    CUcontext primary, used, current;
    unsigned flags;
    int active;
    CUdeviceptr ptr;
    CUgreenCtx green, other;

    OK(cuInit(0));
    green = make(0);
    HOLDS(testing_used_bytes() == PRIMARY_BYTES + GREEN_BYTES);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    HOLDS(active);
    OK(cuCtxGetCurrent(&current));
    HOLDS(!current);
    OK(cuCtxFromGreenCtx(&used, green));
    OK(cuCtxSetCurrent(used));
    OK(cuCtxGetCurrent(&current));
    HOLDS(current == used);
    OK(cuMemAlloc_v2(&ptr, 10 * MIB));

    /* It is the primary context's, and lasts as long as that. */
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuGreenCtxDestroy(green));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy(green));
    GIVES(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
    HOLDS(testing_used_bytes() == PRIMARY_BYTES + 10 * MIB);
    OK(cuCtxSetCurrent(primary));
    OK(cuMemFree_v2(ptr));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    HOLDS(testing_used_bytes() == 0);

    green = make(0);
    other = make(0);
    OK(cuGreenCtxDestroy(green));
    HOLDS(testing_used_bytes() == PRIMARY_BYTES + GREEN_BYTES);
    OK(cuDevicePrimaryCtxReset_v2(0));
    HOLDS(testing_used_bytes() == 0);
    OK(cuCtxFromGreenCtx(&used, other));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(used));
    OK(cuGreenCtxDestroy(other));
}

HOLDS_IN(one_is_a_part_of_the_primary_context_and_retains_it, "", lives)

static void streams(void)
{
    CUcontext primary, used, got;
    CUstream own, made, plain;
    CUstreamCaptureStatus status;
    CUgreenCtx green, of;
    CUmodule module;
    CUfunction kernel;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    OK(cuStreamCreate(&plain, CU_STREAM_NON_BLOCKING));
    OK(cuModuleLoadData(&module, "hamisim-module 1\nkernel spin\n"));
    OK(cuModuleGetFunction(&kernel, module, "spin"));
    green = make(0);
    OK(cuCtxFromGreenCtx(&used, green));
    GIVES(CUDA_ERROR_INVALID_VALUE, cuGreenCtxStreamCreate(&own, green, 0, 0));
    OK(cuGreenCtxStreamCreate(&own, green, CU_STREAM_NON_BLOCKING, 0));
    OK(cuCtxSetCurrent(used));
    OK(cuStreamCreate(&made, CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 3; i++) {
        CUstream stream = i == 0 ? own : i == 1 ? made : NULL;

        OK(cuStreamGetCtx(stream, &got));
        HOLDS(got == used);
        OK(cuStreamGetCtx_v2(stream, &got, &of));
        HOLDS(got == primary && of == green);
        OK(testing_launch(kernel, stream, 1, 1000000, 0));
        GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    }
    OK(cuStreamGetGreenCtx(plain, &of));
    HOLDS(!of);
    OK(cuStreamGetCtx(plain, &got));
    HOLDS(got == primary);

    /* What runs there goes on; the streams can only be destroyed. */
    testing_step(100000);
    OK(cuStreamBeginCapture_v2(made, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuGreenCtxDestroy(green));
    OK(cuCtxSetCurrent(primary));
    GIVES(CUDA_ERROR_STREAM_DETACHED, cuStreamIsCapturing(made, &status));
    GIVES(CUDA_ERROR_STREAM_DETACHED, testing_launch(kernel, own, 1, 1, 0));
    GIVES(CUDA_ERROR_STREAM_DETACHED, cuStreamSynchronize(own));
    testing_step(9000000);
    HOLDS(testing_busy_ns() >= 1000000 && testing_busy_ns() <= 3000000);
    OK(cuStreamDestroy_v2(own));
    OK(cuStreamDestroy_v2(made));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2(own));
}

HOLDS_IN(streams_of_one_outlive_it_detached, "", streams)

static void many(void)
{
    CUcontext primary;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    for (unsigned i = 0; i < 5000; i++)
        OK(cuGreenCtxDestroy(make(0)));
    HOLDS(testing_used_bytes() == PRIMARY_BYTES);
}

HOLDS_IN(thousands_come_and_go, "", many)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(multiprocessors_are_split_in_groups),
        cmocka_unit_test(one_is_a_part_of_the_primary_context_and_retains_it),
        cmocka_unit_test(streams_of_one_outlive_it_detached),
        cmocka_unit_test(thousands_come_and_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
