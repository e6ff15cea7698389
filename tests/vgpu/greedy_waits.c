/* SPDX-License-Identifier: Apache-2.0 */

/* Of greedy.c: kernels and streams that wait for what is launched later. */

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "greedy_ways.h"

typedef int value_fn(cu_handle stream, uint64_t ptr, unsigned value, unsigned flags);

void way_spin(int count)
{
    cu_handle waiter = function_of("waiter"), poster = function_of("poster");

    for (int i = 0; !stopped; i++) {
        launch(waiter, 1, SHORT_NS, 7, stream);
        for (int j = 0; j < count; j++)
            launch(function_of("spin"), 1, count > 3 ? 30 * SHORT_NS : SHORT_NS, 0, second);
        launch(poster, 1, SHORT_NS, 7, second);
        must(cu.stream_sync(stream), "cuStreamSynchronize");
        must(cu.stream_sync(second), "cuStreamSynchronize");
        printf("%d\n", i);
        (void)fflush(stdout);
    }
}

void way_legacy(int name)
{
    cu_handle legacy_stream = (cu_handle)(uintptr_t)name;
    cu_handle waiter = function_of("waiter"), poster = function_of("poster"), blocking[2];

    for (int i = 0; i < 2; i++)
        must(cu.stream_create(&blocking[i], 0), "cuStreamCreate");
    for (int i = 0; i < 2000; i++)
        launch(function_of("spin"), 108, SHORT_NS, 0, legacy_stream);
    must(cu.stream_sync(legacy_stream), "cuStreamSynchronize");
    for (int i = 0; !stopped; i++) {
        launch(waiter, 1, SHORT_NS, 7, blocking[0]);
        usleep(30000);
        launch(poster, 1, SHORT_NS, 7, blocking[1]);
        for (int j = 0; j < 2; j++)
            must(cu.stream_sync(blocking[j]), "cuStreamSynchronize");
        printf("%d\n", i);
        (void)fflush(stdout);
    }
}

/* One of two processes, each with a device of its own, which wait in kernels for one another: after
 * each so many kernels, so often before a step is waited for. The first one may be late once. */
static void exchange(int rank, int times, int kernels, uint64_t length_ns, int late_step)
{
    enum { LATE_US = 500000 };
    cu_handle spin, waiter, poster;

    begin(rank);
    spin = function_of("spin");
    waiter = function_of("waiter");
    poster = function_of("poster");
    for (int i = 0; !stopped; i++) {
        for (int j = 0; j < times; j++) {
            for (int k = 0; k < kernels; k++)
                launch(spin, 108, length_ns, 0, stream);
            launch(poster, 1, SHORT_NS, 60 + !rank, stream);
            launch(waiter, 1, SHORT_NS, (uint64_t)(60 + rank), stream);
        }
        must(cu.stream_sync(stream), "cuStreamSynchronize");
        if (rank == 0 && i == late_step)
            usleep(LATE_US);
        printf("%d\n", i);
        (void)fflush(stdout);
    }
}

void way_all_reduce(int rank)
{
    exchange(rank, 1, 4, 100 * SHORT_NS, 60);
}

void way_all_reduces(int rank)
{
    exchange(rank, 20, 1, 3 * SHORT_NS, -1);
}

/* What waits for a value is on no multiprocessor, and costs nothing. */
static void values(const char *way, int count)
{
    const uint64_t length_ns = strcmp(way, "short-values") == 0 ? 5 * SHORT_NS : LONG_NS;

    value_fn *wait = (value_fn *)symbol("cuStreamWaitValue32_v2");
    value_fn *write = (value_fn *)symbol("cuStreamWriteValue32_v2");
    uint64_t ptr = new_memory();

    for (int i = 1; !stopped; i++) {
        must(wait(stream, ptr, (unsigned)i, 0), "cuStreamWaitValue32_v2"); /* or more */
        for (int j = 0; j < 4; j++)
            launch(function_of("spin"), 108, length_ns, 0, stream);
        for (int j = 0; j < count; j++)
            launch(function_of("f1"), 108, length_ns, 0, second);
        must(write(second, ptr, (unsigned)i, 0), "cuStreamWriteValue32_v2");
        must(cu.stream_sync(stream), "cuStreamSynchronize");
        printf("%d\n", i);
        (void)fflush(stdout);
    }
}

void way_queued_values(void)
{
    value_fn *wait = (value_fn *)symbol("cuStreamWaitValue32_v2");
    value_fn *write = (value_fn *)symbol("cuStreamWriteValue32_v2");
    cu_handle waiting[7] = {stream}, function = function_of("spin");
    uint64_t ptr = new_memory();

    for (int i = 1; i < 7; i++)
        must(cu.stream_create(&waiting[i], 1), "cuStreamCreate");
    for (unsigned i = 1; !stopped; i++) {
        for (int j = 0; j < 7; j++)
            must(wait(waiting[j], ptr, i, 0), "cuStreamWaitValue32_v2"); /* or more */
        for (int j = 0; j < 10; j++) {
            launch(function, 1, 1000, 0, second);
            must(cu.stream_sync(second), "cuStreamSynchronize");
        }
        must(write(second, ptr, i, 0), "cuStreamWriteValue32_v2");
        for (int j = 0; j < 7; j++)
            must(cu.stream_sync(waiting[j]), "cuStreamSynchronize");
        printf("%u\n", i);
        (void)fflush(stdout);
    }
}

struct ahead {
    value_fn *wait;
    cu_handle context;
    uint64_t ptr;
    unsigned round, launches;
};

/* Fills the first stream behind a wait, after so many launches by more waits: what finds no place
 * there blocks until the first one ends. */
static void *run_ahead(void *argument)
{
    enum { MANY = 1500 };
    const struct ahead *ahead = (const struct ahead *)argument;

    must(cu.set_current(ahead->context), "cuCtxSetCurrent");
    for (unsigned i = 0; i < MANY; i++) {
        if (i > 0 && i <= ahead->launches)
            launch(function_of("spin"), 1, 1000, 0, stream);
        else
            must(ahead->wait(stream, ahead->ptr, ahead->round, 0), "cuStreamWaitValue32_v2");
    }
    return NULL;
}

void way_run_ahead(int launches)
{
    enum { FILL_US = 50000, MANY = 400 };
    value_fn *write = (value_fn *)symbol("cuStreamWriteValue32_v2");
    cu_ctx_out_fn *current = (cu_ctx_out_fn *)symbol("cuCtxGetCurrent");
    struct ahead ahead = {.wait = (value_fn *)symbol("cuStreamWaitValue32_v2"),
                          .ptr = new_memory(),
                          .launches = (unsigned)launches};
    pthread_t thread;

    must(current(&ahead.context), "cuCtxGetCurrent");
    for (ahead.round = 1; !stopped; ahead.round++) {
        if (pthread_create(&thread, NULL, run_ahead, &ahead) != 0)
            exit(1);
        usleep(FILL_US);
        for (int i = 0; i < MANY; i++)
            launch(function_of("f1"), 1, 1000, 0, second);
        must(write(second, ahead.ptr, ahead.round, 0), "cuStreamWriteValue32_v2");
        (void)pthread_join(thread, NULL);
        for (int i = 0; i < 2; i++)
            must(cu.stream_sync(i ? second : stream), "cuStreamSynchronize");
        printf("%u\n", ahead.round);
        (void)fflush(stdout);
    }
}

void way_long_values(int count)
{
    values("values", count);
}

void way_short_values(int count)
{
    values("short-values", count);
}
