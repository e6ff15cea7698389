/* SPDX-License-Identifier: Apache-2.0 */

/* Of greedy.c: captures, of streams and beside others that are measured. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "greedy_ways.h"

void way_under_capture(void)
{
    end_capture_fn *end = (end_capture_fn *)symbol("cuStreamEndCapture");
    cu_handle graph;

    while (!stopped) {
        short_ones(3000);
        must(cu.stream_sync(stream), "cuStreamSynchronize");
        launch(function_of("spin"), 108, 60 * (uint64_t)LONG_NS, 0, stream);
        must(cu.begin_capture(second, 2), "cuStreamBeginCapture"); /* relaxed */
        must(cu.stream_sync(stream), "cuStreamSynchronize");
        must(end(second, &graph), "cuStreamEndCapture");
    }
}

void way_side(int captures)
{
    cu_handle function = function_of("spin"), streams[16], captured;
    unsigned long rounds = 0;

    for (int i = 0; i < captures; i++) {
        must(cu.stream_create(&captured, 1), "cuStreamCreate");
        must(cu.begin_capture(captured, 2), "cuStreamBeginCapture"); /* relaxed */
    }
    for (int i = 0; i < 16; i++)
        must(cu.stream_create(&streams[i], 1), "cuStreamCreate");
    for (; !stopped; rounds++) {
        for (int i = 0; i < 64; i++)
            launch(function, 2, 10 * SHORT_NS, 0, streams[i % 16]);
        for (int i = 0; i < 16; i++)
            must(cu.stream_sync(streams[i]), "cuStreamSynchronize");
    }
    printf("%lu\n", rounds);
}

static void *launch_on(void *context)
{
    cu_handle function = function_of("spin");

    must(cu.set_current(context), "cuCtxSetCurrent");
    while (!stopped) {
        for (int i = 0; i < 16; i++)
            launch(function, 108, SHORT_NS * 5, 0, second);
        usleep(1000);
    }
    return NULL;
}

/* Nobody asks the driver for anything that a capture forbids but we, if at all. */
void way_captures(void)
{
    end_capture_fn *end = (end_capture_fn *)symbol("cuStreamEndCapture");
    destroy_fn *destroy = (destroy_fn *)symbol("cuGraphDestroy");
    cu_ctx_out_fn *current = (cu_ctx_out_fn *)symbol("cuCtxGetCurrent");
    cu_handle function = function_of("f1"), context, graph;
    int made = 0, failed = 0;
    pthread_t thread;

    must(current(&context), "cuCtxGetCurrent");
    if (pthread_create(&thread, NULL, launch_on, context) != 0)
        exit(1);
    for (; !stopped; made++) {
        int code = cu.begin_capture(stream, 0); /* global */

        for (int i = 0; i < 20 && code == CU_OK; i++) {
            launch(function, 108, SHORT_NS, 0, stream);
            usleep(100);
        }
        graph = NULL;
        if (code == CU_OK)
            code = end(stream, &graph);
        if (graph)
            (void)destroy(graph);
        failed += code != CU_OK;
    }
    (void)pthread_join(thread, NULL);
    printf("%d %d\n", made, failed);
}

/* A stream with work in it joins a capture and leaves it again, as those of frameworks do: nobody
 * may ask it for anything in between. */
void way_joins(void)
{
    end_capture_fn *end = (end_capture_fn *)symbol("cuStreamEndCapture");
    destroy_fn *destroy = (destroy_fn *)symbol("cuGraphDestroy");
    event_fn *create = (event_fn *)symbol("cuEventCreate");
    record_fn *record = (record_fn *)symbol("cuEventRecord");
    wait_fn *wait = (wait_fn *)symbol("cuStreamWaitEvent");
    cu_handle function = function_of("f1"), fork, join, graph;
    int made = 0, failed = 0;

    must(create(&fork, 2), "cuEventCreate");
    must(create(&join, 2), "cuEventCreate");
    for (; !stopped; made++) {
        int code;

        for (int i = 0; i < 4; i++)
            launch(function, 108, SHORT_NS * 5, 0, second);
        code = cu.begin_capture(stream, 0); /* global */
        if (code == CU_OK)
            code = record(fork, stream);
        for (int i = 0; i < 50 && code == CU_OK; i++) {
            code = wait(second, fork, 0);
            if (code == CU_OK)
                code = record(join, second);
            if (code == CU_OK)
                code = wait(stream, join, 0);
            if (code == CU_OK)
                code = record(fork, stream);
        }
        graph = NULL;
        failed += code != CU_OK;
        code = end(stream, &graph);
        if (graph)
            (void)destroy(graph);
    }
    printf("%d %d\n", made, failed);
}

static void *measure_beside(void *context)
{
    cu_handle function = function_of("f2"), own;

    must(cu.set_current(context), "cuCtxSetCurrent");
    must(cu.stream_create(&own, 1), "cuStreamCreate");
    while (!stopped)
        launch(function, 1, 30 * SHORT_NS, 0, own);
    return NULL;
}

/* The same, but seldom with work in it, while another thread's launches are measured each time and
 * ask whether others are busy. */
void way_joins_beside(void)
{
    end_capture_fn *end = (end_capture_fn *)symbol("cuStreamEndCapture");
    destroy_fn *destroy = (destroy_fn *)symbol("cuGraphDestroy");
    event_fn *create = (event_fn *)symbol("cuEventCreate");
    record_fn *record = (record_fn *)symbol("cuEventRecord");
    wait_fn *wait = (wait_fn *)symbol("cuStreamWaitEvent");
    cu_ctx_out_fn *current = (cu_ctx_out_fn *)symbol("cuCtxGetCurrent");
    cu_handle function = function_of("f1"), fork, join, graph, context;
    int made = 0, failed = 0;
    pthread_t thread;

    must(current(&context), "cuCtxGetCurrent");
    must(create(&fork, 2), "cuEventCreate");
    must(create(&join, 2), "cuEventCreate");
    if (pthread_create(&thread, NULL, measure_beside, context) != 0)
        exit(1);
    for (; !stopped; made++) {
        int code;

        if (made % 20 == 0)
            (void)cu.launch(function, 1, 1, 1, 1, 1, 1, 0, second, NULL, NULL);
        code = cu.begin_capture(stream, 2); /* relaxed */
        if (code == CU_OK)
            code = record(fork, stream);
        usleep(20); /* time to ask in */
        if (code == CU_OK)
            code = wait(second, fork, 0);
        if (code == CU_OK)
            code = record(join, second);
        if (code == CU_OK)
            code = wait(stream, join, 0);
        graph = NULL;
        failed += code != CU_OK || end(stream, &graph) != CU_OK;
        if (graph)
            (void)destroy(graph);
    }
    (void)pthread_join(thread, NULL);
    printf("%d %d\n", made, failed);
}
