/* SPDX-License-Identifier: Apache-2.0 */

/* Of greedy.c: what changes while a launch is in the driver, by faults in the call, or by another
 * thread that ends streams, or guesses the library's events and streams. */

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "greedy_ways.h"

/* A launch whose parameters lie in a page that faults: what the handler does happens in the
 * driver's call. */
static uint64_t *fault_page;
static cu_handle fault_context;
static pthread_t capturing;
static volatile sig_atomic_t is_capturing, captures_end;

static void *capture_and_end(void *unused)
{
    must(cu.set_current(fault_context), "cuCtxSetCurrent");
    must(cu.begin_capture(stream, 2), "cuStreamBeginCapture"); /* relaxed */
    is_capturing = 1;
    while (!captures_end)
        usleep(50);
    return unused;
}

static void fault(int number)
{
    (void)number;
    (void)cu.set_current(fault_context);
    captures_end = 1;
    if (is_capturing)
        (void)pthread_join(capturing, NULL);
    is_capturing = 0;
    (void)mprotect(fault_page, 4096, PROT_READ | PROT_WRITE);
}

static int launch_into_fault(cu_handle function, uint64_t length_ns, cu_handle into)
{
    void *params[] = {fault_page, fault_page + 1};

    fault_page[0] = length_ns;
    fault_page[1] = 0;
    (void)mprotect(fault_page, 4096, PROT_NONE);
    return cu.launch(function, 108, 1, 1, 32, 1, 1, 0, into, params, NULL);
}

static void launch_with_fault(cu_handle function, cu_handle into)
{
    (void)launch_into_fault(function, LONG_NS, into);
    fault(SIGSEGV);
    must(cu.stream_sync(into), "cuStreamSynchronize");
}

static void begin_faults(void (*handler)(int number))
{
    must(((cu_ctx_out_fn *)symbol("cuCtxGetCurrent"))(&fault_context), "cuCtxGetCurrent");
    fault_page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fault_page == MAP_FAILED || signal(SIGSEGV, handler) == SIG_ERR)
        exit(1);
}

/* The capture ends with its thread, which the driver alone sees. */
void way_fault_ends_capture(void)
{
    cu_handle function = function_of("spin");

    begin_faults(fault);
    while (!stopped) {
        captures_end = 0;
        if (pthread_create(&capturing, NULL, capture_and_end, NULL) != 0)
            exit(1);
        while (!is_capturing)
            usleep(50);
        launch_with_fault(function, stream);
    }
}

void way_fault_makes_current(void)
{
    cu_handle function = function_of("spin");

    begin_faults(fault);
    while (!stopped) {
        must(cu.set_current(NULL), "cuCtxSetCurrent");
        launch_with_fault(function, NULL);
    }
}

static cu_handle faulted;

static void fault_makes_context(int number)
{
    (void)number;
    (void)mprotect(fault_page, 4096, PROT_READ | PROT_WRITE);
    must(cu.create(&faulted, 0, 0), "cuCtxCreate");
}

void way_make_contexts(int shorts)
{
    cu_handle kernel = kernel_of_library();

    begin_faults(fault_makes_context);
    while (!stopped) {
        for (int i = 0; i < shorts; i++)
            launch(kernel, 108, SHORT_NS, 0, NULL);
        faulted = NULL;
        (void)launch_into_fault(kernel, 8 * (uint64_t)LONG_NS, NULL);
        must(cu.stream_sync(NULL), "cuStreamSynchronize");
        must(faulted ? cu.destroy(faulted) : CU_OK, "cuCtxDestroy");
        must(cu.set_current(fault_context), "cuCtxSetCurrent");
    }
}

static void fault_makes_stream(int number)
{
    (void)number;
    (void)mprotect(fault_page, 4096, PROT_READ | PROT_WRITE);
    must(cu.stream_create(&faulted, 1), "cuStreamCreate");
}

/* Handles of streams that come one after the other are as far apart from each other. The function
 * is known to be short. */
void way_make_streams(void)
{
    cu_handle function = function_of("spin"), before;
    intptr_t apart;

    begin_faults(fault_makes_stream);
    for (int i = 0; i < 100; i++) {
        launch(function, 108, SHORT_NS, 0, stream);
        must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
    must(cu.stream_create(&before, 1), "cuStreamCreate");
    must(cu.stream_destroy(before), "cuStreamDestroy");
    must(cu.stream_create(&faulted, 1), "cuStreamCreate");
    must(cu.stream_destroy(faulted), "cuStreamDestroy");
    apart = (char *)faulted - (char *)before;
    while (!stopped) {
        before = faulted;
        faulted = NULL;
        (void)launch_into_fault(function, 8 * (uint64_t)LONG_NS, (char *)before + apart);
        if (!faulted)
            fault_makes_stream(SIGSEGV);
        must(cu.stream_sync(faulted), "cuStreamSynchronize");
        must(cu.stream_destroy(faulted), "cuStreamDestroy");
    }
}

/* Whatever events have handles after one's own, the library's among them. */
static void *record_others(void *context)
{
    record_fn *record = (record_fn *)symbol("cuEventRecord");
    cu_handle own, into;

    must(cu.set_current(context), "cuCtxSetCurrent");
    must(((event_fn *)symbol("cuEventCreate"))(&own, 0), "cuEventCreate");
    must(cu.stream_create(&into, 1), "cuStreamCreate");
    while (!stopped) {
        for (int i = -256; i < 256; i++)
            (void)record((char *)own + 16 * i, into);
        usleep(200);
    }
    return NULL;
}

void way_guessed_events(void)
{
    cu_ctx_out_fn *current = (cu_ctx_out_fn *)symbol("cuCtxGetCurrent");
    cu_handle context, function = function_of("spin");
    pthread_t thread;

    must(current(&context), "cuCtxGetCurrent");
    if (pthread_create(&thread, NULL, record_others, context) != 0)
        exit(1);
    while (!stopped) {
        launch(function, 108, LONG_NS / 2, 0, stream);
        must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
    (void)pthread_join(thread, NULL);
}

/* Streams that are not its own: the simulated driver's handles are made of an index and of how
 * often that was given out. */
static size_t find_streams(cu_handle other, cu_handle *streams, size_t room)
{
    typedef int context_fn(cu_handle of, cu_handle * context);
    context_fn *context_of = (context_fn *)symbol("cuStreamGetCtx");
    uintptr_t own = (uintptr_t)stream, most = (own >> 24 & 0xfffff) + 4;
    size_t count = 0;

    for (uintptr_t i = 0; i < 512 * most && count < room; i++) {
        cu_handle context, guess = (cu_handle)(own >> 44 << 44 | i / 512 << 24 | i % 512 << 4);

        if (guess != stream && guess != other && context_of(guess, &context) == CU_OK)
            streams[count++] = guess;
    }
    return count;
}

void way_own_streams(void)
{
    typedef int value_fn(cu_handle stream, uint64_t ptr, unsigned value, unsigned flags);
    typedef int alloc_fn(uint64_t * ptr, size_t bytes);
    value_fn *wait_value = (value_fn *)symbol("cuStreamWaitValue32_v2");
    value_fn *write_value = (value_fn *)symbol("cuStreamWriteValue32_v2");
    cu_handle function = function_of("spin"), other, streams[64];
    uint64_t word;
    size_t count;

    must(cu.stream_create(&other, 1), "cuStreamCreate");
    must(((alloc_fn *)symbol("cuMemAlloc_v2"))(&word, 4096), "cuMemAlloc");
    launch(function, 108, SHORT_NS, 0, stream);
    must(cu.stream_sync(stream), "cuStreamSynchronize");
    if (find_streams(other, streams, 64) == 0)
        exit(1);
    for (unsigned round = 1; !stopped; round++) {
        count = find_streams(other, streams, 64);
        for (size_t i = 0; i < count; i++)
            must(wait_value(streams[i], word, round, 0), "cuStreamWaitValue32_v2");
        launch(function, 108, 4 * (uint64_t)LONG_NS, 0, stream);
        usleep(16000);
        must(write_value(other, word, round, 0), "cuStreamWriteValue32_v2");
        must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
}

/* Another thread ends the stream in which a launch blocks. */
static cu_handle _Atomic ending;

static void *end_streams(void *context)
{
    must(cu.set_current(context), "cuCtxSetCurrent");
    while (!stopped) {
        usleep(2000);
        if (ending)
            must(cu.stream_destroy(ending), "cuStreamDestroy");
        ending = NULL;
    }
    return NULL;
}

void way_gone(void)
{
    cu_ctx_out_fn *current = (cu_ctx_out_fn *)symbol("cuCtxGetCurrent");
    cu_handle context, into;
    pthread_t thread;

    must(current(&context), "cuCtxGetCurrent");
    if (pthread_create(&thread, NULL, end_streams, context) != 0)
        exit(1);
    for (unsigned i = 0; !stopped; i++) {
        must(cu.stream_create(&into, 1), "cuStreamCreate");
        launch(function_of("spin"), 108 + i, SHORT_NS, 0, into);
        (void)cu.stream_sync(into);
        ending = into; /* the launch may come too late */
        (void)cu.launch(function_of("f1"), 108 + i, 1, 1, 32, 1, 1, 0, into,
                        (void *[]){&(uint64_t){3 * (uint64_t)LONG_NS}}, NULL);
        while (ending && !stopped)
            usleep(10);
    }
    (void)pthread_join(thread, NULL);
}

/* The same as soon as a launch is seen there. */
static void *end_busy(void *context)
{
    cu_stream_fn *query = (cu_stream_fn *)symbol("cuStreamQuery");

    must(cu.set_current(context), "cuCtxSetCurrent");
    while (!stopped) {
        cu_handle into = ending;

        while (into && !stopped && query(into) == CU_OK)
            continue;
        if (into)
            must(cu.stream_destroy(into), "cuStreamDestroy");
        ending = NULL;
    }
    return NULL;
}

void way_ended(void)
{
    cu_ctx_out_fn *current = (cu_ctx_out_fn *)symbol("cuCtxGetCurrent");
    cu_handle context, into;
    pthread_t thread;
    char name[16];

    must(current(&context), "cuCtxGetCurrent");
    if (pthread_create(&thread, NULL, end_busy, context) != 0)
        exit(1);
    for (int i = 0; !stopped; i++) {
        (void)sprintf(name, "f%d", i % FUNCTIONS);
        must(cu.stream_create(&into, 1), "cuStreamCreate");
        ending = into;
        (void)cu.launch(function_of(name), 108, 1, 1, 32, 1, 1, 0, into,
                        (void *[]){&(uint64_t){60 * (uint64_t)LONG_NS}}, NULL);
        while (ending && !stopped)
            continue;
        usleep(300000);
    }
    (void)pthread_join(thread, NULL);
}
