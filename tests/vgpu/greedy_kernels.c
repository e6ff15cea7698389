/* SPDX-License-Identifier: Apache-2.0 */

/* Of greedy.c: kernels that are unknown, of many shapes, on several devices, or of contexts that
 * end. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "greedy_ways.h"

static void unknown_kernels(void)
{
    char name[16];

    for (int i = 0; !stopped; i++) {
        (void)sprintf(name, "f%d", i % FUNCTIONS);
        launch(function_of(name), 108 + (unsigned)(i / FUNCTIONS), LONG_NS, 0, stream);
        if (i % DEPTH == 0)
            must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
}

void way_capture(int lost)
{
    cu_handle captured;

    must(cu.stream_create(&captured, 1), "cuStreamCreate");
    must(cu.begin_capture(captured, 2), "cuStreamBeginCapture"); /* relaxed */
    if (lost)
        (void)cu.stream_destroy(captured);
    unknown_kernels();
}

void way_shapes(void)
{
    char name[16];

    for (unsigned i = 0; !stopped; i++) {
        cu_handle function;

        (void)sprintf(name, "f%d", (int)(i % FUNCTIONS));
        function = function_of(name);
        for (unsigned j = 0; j < 4 && !stopped; j++)
            launch(function, 108, SHORT_NS, 0, stream);
        must(cu.stream_sync(stream), "cuStreamSynchronize");
        for (unsigned j = 0; j < 100 && !stopped; j++) {
            launch(function, 108, LONG_NS, 0, stream);
            if (j % DEPTH == 0)
                must(cu.stream_sync(stream), "cuStreamSynchronize");
        }
    }
}

void way_burst(void)
{
    static cu_handle functions[FUNCTIONS], streams[64];
    char name[16];

    for (int i = 0; i < 64; i++)
        must(cu.stream_create(&streams[i], 1), "cuStreamCreate");
    for (int i = 0; i < FUNCTIONS; i++) {
        (void)sprintf(name, "f%d", i);
        functions[i] = function_of(name);
    }
    for (unsigned round = 0; !stopped; round++) {
        usleep(300000);
        for (int i = 0; i < FUNCTIONS && !stopped; i++)
            launch(functions[i], 108 + round, LONG_NS, 0, streams[i % 64]);
        for (int i = 0; i < 64 && !stopped; i++)
            must(cu.stream_sync(streams[i]), "cuStreamSynchronize");
    }
}

void way_mixture(void)
{
    cu_handle function = function_of("spin");

    for (unsigned i = 0; !stopped; i++) {
        launch(function, 108, i % 64 == 0 ? 4 * LONG_NS : SHORT_NS, 0, stream);
        if (i % 64 == 0)
            must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
}

void way_other(int device_number)
{
    cu_handle function, into, context;
    int device;

    begin(device_number);
    function = function_of("spin");
    into = stream;
    must(cu.device_get(&device, 0), "cuDeviceGet");
    must(cu.retain(&context, device), "cuDevicePrimaryCtxRetain");
    must(cu.set_current(context), "cuCtxSetCurrent");
    while (!stopped) {
        for (int i = 0; i < DEPTH; i++)
            launch(function, 108, LONG_NS, 0, into);
        must(cu.stream_sync(into), "cuStreamSynchronize");
    }
}

/* As the API reference has CUDA_LAUNCH_PARAMS. */
struct launch_params {
    cu_handle function;
    unsigned grid[3], block[3], shared;
    cu_handle stream;
    void **params;
};

void way_multi(void)
{
    typedef int launch_multi_fn(struct launch_params * list, unsigned count, unsigned flags);
    launch_multi_fn *launch_multi =
        (launch_multi_fn *)symbol("cuLaunchCooperativeKernelMultiDevice");
    struct launch_params list[2] = {0};
    /* Who pays for the first alone pays for little. */
    uint64_t lengths_ns[2] = {SHORT_NS, LONG_NS};
    void *params[2] = {&lengths_ns[0], &lengths_ns[1]};

    for (int i = 0; i < 2; i++) {
        begin(i);
        list[i] = (struct launch_params){.function = function_of("spin"), .grid = {108, 1, 1}};
        list[i].block[0] = list[i].block[1] = list[i].block[2] = 1;
        list[i].stream = stream;
        list[i].params = &params[i];
    }
    while (!stopped) {
        for (int i = 0; i < DEPTH; i++)
            must(launch_multi(list, 2, 0), "cuLaunchCooperativeKernelMultiDevice");
        for (int i = 0; i < 2; i++)
            must(cu.stream_sync(list[i].stream), "cuStreamSynchronize");
    }
}

void way_contexts(void)
{
    cu_handle context, image_of;

    while (!stopped) {
        must(cu.create(&context, 0, 0), "cuCtxCreate");
        must(cu.load(&image_of, "hamisim-module 1\nsize=65536\nkernel spin\n"), "cuModuleLoadData");
        must(cu.function(&image_of, image_of, "spin"), "spin");
        must(cu.stream_create(&stream, 1), "cuStreamCreate");
        launch(image_of, 108, 40 * (uint64_t)LONG_NS, 0, stream);
        must(cu.stream_sync(stream), "cuStreamSynchronize");
        must(cu.destroy(context), "cuCtxDestroy");
    }
}

void way_refused(void)
{
    end_capture_fn *end = (end_capture_fn *)symbol("cuStreamEndCapture");
    cu_release_fn *reset = (cu_release_fn *)symbol("cuDevicePrimaryCtxReset_v2");
    char name[16];

    for (unsigned i = 0; !stopped; i++) {
        cu_handle function, graph;

        (void)sprintf(name, "f%d", (int)(i % FUNCTIONS));
        function = function_of(name);
        for (unsigned j = 0; j < 20; j++)
            launch(function, 108 + 20 * (i / FUNCTIONS) + j, LONG_NS, 0, stream);
        must(cu.begin_capture(second, 0), "cuStreamBeginCapture"); /* global */
        (void)reset(0);
        (void)end(second, &graph);
        must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
}

void way_alternate(void)
{
    cu_handle functions[2], streams[2], all[2];
    cu_ctx_out_fn *current = (cu_ctx_out_fn *)symbol("cuCtxGetCurrent");

    for (int i = 0; i < 2; i++) {
        begin(i);
        must(current(&all[i]), "cuCtxGetCurrent");
        functions[i] = function_of("spin");
        streams[i] = stream;
    }
    for (unsigned i = 0; !stopped; i++) {
        for (int j = 0; j < 2; j++) {
            must(cu.set_current(all[j]), "cuCtxSetCurrent");
            launch(functions[j], 108, 5 * SHORT_NS, 0, streams[j]);
            if (i % 32 == 31)
                must(cu.stream_sync(streams[j]), "cuStreamSynchronize");
        }
    }
}

void way_blocking(void)
{
    cu_handle function = function_of("spin");

    while (!stopped)
        launch(function, 108, LONG_NS / 2, 0, stream);
}

static unsigned relay_launches;

static void *launch_some(void *context)
{
    cu_handle function = function_of("spin");

    must(cu.set_current(context), "cuCtxSetCurrent");
    for (unsigned i = 0; i < relay_launches; i++)
        launch(function, 108, 5 * SHORT_NS, 0, stream);
    must(cu.stream_sync(stream), "cuStreamSynchronize");
    return NULL;
}

void way_relay(int count)
{
    cu_ctx_out_fn *current = (cu_ctx_out_fn *)symbol("cuCtxGetCurrent");
    cu_handle context;
    pthread_t thread;

    relay_launches = (unsigned)count;
    must(current(&context), "cuCtxGetCurrent");
    while (!stopped && pthread_create(&thread, NULL, launch_some, context) == 0)
        (void)pthread_join(thread, NULL);
}

void short_ones(int count)
{
    for (int i = 0; i < count && !stopped; i++)
        launch(function_of("spin"), 108, SHORT_NS / 10, 0, stream);
}

void way_behind(void)
{
    while (!stopped) {
        short_ones(3000);
        must(cu.stream_sync(stream), "cuStreamSynchronize");
        launch(function_of("spin"), 108, 60 * (uint64_t)LONG_NS, 0, stream);
        short_ones(1000);
        must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
}

/* Long kernels, while all places are taken where launches are measured: by as many others that wait
 * in other streams, or that ran beside such a stream, which keeps their marks. */
void way_unmeasured(int streams)
{
    typedef int value_fn(cu_handle stream, uint64_t ptr, unsigned value, unsigned flags);
    value_fn *wait = (value_fn *)symbol("cuStreamWaitValue32_v2");
    cu_handle function = function_of("spin"), waiting[256];
    uint64_t ptr = new_memory();
    unsigned created = 0;
    char name[16];

    short_ones(3000);
    must(cu.stream_sync(stream), "cuStreamSynchronize");
    for (int i = 0; i < (streams ? streams : 1); i++) {
        do /* in another queue than the first stream's */
            must(cu.stream_create(&waiting[i], 1), "cuStreamCreate");
        while (++created % 8 == 0 || created % 8 > 5);
        must(wait(waiting[i], ptr, 1, 0), "cuStreamWaitValue32_v2"); /* for ever */
        launch(function, 1, SHORT_NS, 0, waiting[i]);
    }
    for (int i = 0; i < 200 && !stopped; i++) {
        (void)sprintf(name, "f%d", i);
        launch(function_of(name), 108, SHORT_NS, 0, streams ? waiting[i % streams] : stream);
    }
    while (!stopped && cu.launch(function, 108, 1, 1, 32, 1, 1, 0, stream,
                                 (void *[]){&(uint64_t){60 * (uint64_t)LONG_NS}}, NULL) == CU_OK)
        must(cu.stream_sync(stream), "cuStreamSynchronize");
    _exit(0); /* none of those that wait ends */
}
