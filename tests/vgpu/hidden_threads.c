/* SPDX-License-Identifier: Apache-2.0 */

/* Of hidden.c: threads that do one thing beside others that do another. */

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "hidden_verbs.h"

#define THREADS 8

static cu_handle shared;
static _Atomic int wrong;

/* Each loads and unloads modules of a size of its own, some of them used, and takes and gives back
 * memory. */
static void *load_and_unload(void *argument)
{
    uint64_t bytes = (uint64_t)(uintptr_t)argument;
    char image[128];
    cu_handle own, function;

    snprintf(image, sizeof(image), "hamisim-module 1\nsize=%llu\nkernel spin\n",
             (unsigned long long)bytes);
    cu.set_current(shared);
    for (unsigned i = 0; i < 40; i++) {
        int code = cu.load(&own, image);

        if (code == CU_OK && i % 2)
            code = cu.function(&function, own, "spin") || launch(function) || cu.sync();
        cu_ptr ptr = 0;

        if (code == CU_OK)
            code = cu.alloc(&ptr, (uint64_t)(i + 1) << 18);
        if (code == CU_OK)
            code = cu.unload(own);
        if (code == CU_OK)
            code = cu.free(ptr);
        if (code != CU_OK)
            wrong = code;
    }
    return NULL;
}

int verb_threads(const char *argument)
{
    pthread_t threads[THREADS];

    (void)argument;
    cu.current(&shared);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, load_and_unload, (void *)(uintptr_t)((i + 1) << 20));
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    answered(wrong);
    return 0;
}

static _Atomic bool enough;

/* Memory on its way in and out all the time; what can be kept is kept now and then. */
static void *move(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    cu_ptr ptr;

    cu.set_current(shared);
    while (!enough) {
        if (cu.alloc(&ptr, 24u << 20) == CU_OK && rand_r(&seed) % 16)
            cu.free(ptr);
    }
    return NULL;
}

/* For so many milliseconds one thing is done again and again, while threads do another. */
static void beside_threads(void *(*other)(void *), const char *milliseconds, void (*again)(void))
{
    pthread_t threads[THREADS];
    struct timespec now, end;

    cu.current(&shared);
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)(number(milliseconds) / 1000);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, other, (void *)(uintptr_t)(i + 1));
    do {
        again();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
    enough = true;
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static int loaded;

static void load_and_unload_of(const char *size)
{
    cu_handle own;

    if (cu.load(&own, image_of(size)) == CU_OK) {
        loaded++;
        cu.unload(own);
    }
}

static void load_small(void)
{
    load_and_unload_of("1M");
}

static void load_large(void)
{
    load_and_unload_of("4M");
}

/* Code comes and goes beside that, for so many milliseconds. */
int verb_squeeze(const char *argument)
{
    beside_threads(move, argument, load_small);
    return 0;
}

/* Looks for functions, which may mean that code was loaded: so the account is settled before memory
 * is refused. */
static void *ask(void *unused)
{
    cu_handle function;
    cu_ptr ptr;

    (void)unused;
    cu.set_current(shared);
    while (!enough) {
        if (cu.function(&function, module, "spin") != CU_OK || cu.alloc(&ptr, 24u << 20) == CU_OK)
            wrong = 1;
    }
    return NULL;
}

/* At the limit, so many milliseconds: other threads are refused memory, and no module has room.
 * Says how many were loaded. */
int verb_cramped(const char *argument)
{
    beside_threads(ask, argument, load_large);
    answered(loaded + wrong);
    return 0;
}

/* A module that the driver is slow with: its text can't be read before the others are done. */
#define PAGE 4096

static char *slow_image;
static _Atomic bool reached, let_go;

static void on_fault(int signal)
{
    const struct timespec moment = {.tv_nsec = 1000000};

    (void)signal;
    reached = true;
    while (!let_go)
        nanosleep(&moment, NULL);
    mprotect(slow_image, PAGE, PROT_READ);
}

static void *load_slowly(void *unused)
{
    cu_handle own;

    (void)unused;
    cu.set_current(shared);
    wrong = cu.load(&own, slow_image);
    return NULL;
}

/* While one thread's module is on its way, this one's is loaded. */
int verb_beside(const char *argument)
{
    const struct sigaction action = {.sa_handler = on_fault};
    const struct timespec moment = {.tv_nsec = 1000000};
    pthread_t thread;

    (void)argument;
    slow_image = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slow_image == MAP_FAILED)
        return 71;
    strcpy(slow_image, image_of("5M"));
    mprotect(slow_image, PAGE, PROT_NONE);
    sigaction(SIGSEGV, &action, NULL);
    alarm(20); /* should they wait for each other */
    cu.current(&shared);
    pthread_create(&thread, NULL, load_slowly, NULL);
    while (!reached)
        nanosleep(&moment, NULL);
    answered(cu.load(&module, image_of("5M")));
    let_go = true;
    pthread_join(thread, NULL);
    alarm(0);
    answered(wrong);
    return 0;
}

/* Who loads code that has no room, and is stopped by a signal once he has it. */
#define STACK_WORDS 2048

static _Atomic bool loads, stopped;

/* Its handle lies on the stack. */
static void stop_with_code(int signal)
{
    const uintptr_t *words = __builtin_frame_address(0);
    const struct timespec second = {.tv_sec = 1};

    (void)signal;
    for (unsigned i = 0; loads && i < STACK_WORDS; i++) {
        cu_handle found, function;

        memcpy(&found, &words[i], sizeof(found));
        if (words[i] < PAGE || cu.function(&function, found, "spin") != CU_OK)
            continue;
        for (stopped = true;;)
            nanosleep(&second, NULL);
    }
}

static void *load_too_much(void *image)
{
    cu_handle own;

    cu.set_current(shared);
    while (!enough) {
        loads = true;
        wrong |= cu.load(&own, image) == CU_OK;
        loads = false;
    }
    return NULL;
}

/* So many milliseconds, or until that is done. Says whether it was, or anything was loaded. */
int verb_stopped(const char *argument)
{
    const struct sigaction action = {.sa_handler = stop_with_code};
    static char image[128];
    pthread_t thread;

    snprintf(image, sizeof(image), "%s", image_of("3000M"));
    cu.current(&shared);
    sigaction(SIGUSR1, &action, NULL);
    alarm(20); /* who is stopped may hold locks */
    pthread_create(&thread, NULL, load_too_much, image);
    for (uint64_t i = 0; i < number(argument) * 5 && !stopped; i++) {
        const struct timespec moment = {.tv_nsec = 200000};

        nanosleep(&moment, NULL);
        pthread_kill(thread, SIGUSR1);
    }
    enough = true;
    if (!stopped)
        pthread_join(thread, NULL);
    alarm(0);
    answered(stopped + 2 * wrong);
    return 0;
}

/* Who launches a graph that has no room is interrupted all the time, and for long. */
struct graph_functions {
    int (*make_stream)(cu_handle *stream, unsigned flags);
    int (*make)(cu_handle *graph, unsigned flags);
    int (*add)(cu_handle *node, cu_handle graph, const cu_handle *before, size_t count,
               void *params);
    int (*instantiate)(cu_handle *exec, cu_handle graph, unsigned long long flags);
    int (*launch)(cu_handle exec, cu_handle stream);
};

/* CUDA_MEM_ALLOC_NODE_PARAMS */
struct alloc_node_params {
    int type, handles, place, device;
    void *security;
    size_t most;
    unsigned short usage;
    unsigned char reserved[54];
    const void *access;
    size_t access_count, bytes;
    uint64_t ptr;
};

#define NODE_BYTES (UINT64_C(700) << 20) /* one has room */

enum { GRAPH_NODES = 3 };

static struct graph_functions graphs;
static cu_handle large_exec, large_stream;

static void linger(int signal)
{
    const struct timespec pause = {.tv_nsec = 30000000};

    (void)signal;
    nanosleep(&pause, NULL);
}

static bool make_large_graph(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    cu_handle graph, node = NULL;

    graphs.make_stream = dlsym(driver, "cuStreamCreate");
    graphs.make = dlsym(driver, "cuGraphCreate");
    graphs.add = dlsym(driver, "cuGraphAddMemAllocNode");
    graphs.instantiate = dlsym(driver, "cuGraphInstantiateWithFlags");
    graphs.launch = dlsym(driver, "cuGraphLaunch");
    if (graphs.make_stream(&large_stream, 1) != CU_OK || graphs.make(&graph, 0) != CU_OK)
        return false;
    for (unsigned i = 0; i < GRAPH_NODES; i++) {
        struct alloc_node_params params = {.type = 1, .place = 1, .bytes = NODE_BYTES};
        const cu_handle before = node;

        if (graphs.add(&node, graph, &before, i > 0, &params) != CU_OK)
            return false;
    }
    return graphs.instantiate(&large_exec, graph, 0) == CU_OK;
}

static void *launch_too_much(void *unused)
{
    (void)unused;
    cu.set_current(shared);
    while (!enough)
        wrong |= graphs.launch(large_exec, large_stream) == CU_OK;
    return NULL;
}

/* So many milliseconds. Says whether anything was launched. */
int verb_interrupted(const char *argument)
{
    const struct sigaction action = {.sa_handler = linger};
    pthread_t thread;

    cu.current(&shared);
    if (!make_large_graph()) {
        answered(1);
        return 0;
    }
    sigaction(SIGUSR1, &action, NULL);
    pthread_create(&thread, NULL, launch_too_much, NULL);
    for (uint64_t i = 0; i < number(argument); i++) {
        const struct timespec moment = {.tv_nsec = 1000000};

        nanosleep(&moment, NULL);
        pthread_kill(thread, SIGUSR1);
    }
    enough = true;
    pthread_join(thread, NULL);
    answered(wrong);
    return 0;
}

/* Loads what has no room, again and again, for so many milliseconds. Says how often it was. */
int verb_refused(const char *argument)
{
    static char image[128];
    struct timespec begun, now;
    uint64_t passed_ms;
    cu_handle own;

    snprintf(image, sizeof(image), "%s", image_of("3000M"));
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do {
        if (cu.load(&own, image) == CU_OK)
            wrong = 1;
        clock_gettime(CLOCK_MONOTONIC, &now);
        passed_ms = (uint64_t)(now.tv_sec - begun.tv_sec) * 1000 +
                    (uint64_t)(now.tv_nsec / 1000000) - (uint64_t)(begun.tv_nsec / 1000000);
    } while (passed_ms < number(argument));
    answered(wrong);
    return 0;
}
