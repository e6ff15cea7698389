/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A program that changes what a call depends on while that call is on its way, in a handler of a
 * signal: by the processor's trap flag it comes at the N-th time that the library enters the
 * driver, for each N that there is.
 *
 *   stepped limit | module | array   no context is current, and one is made current: a heap, a
 *                                    module, an array of 4 GiB
 *   stepped alloc | graph            the capture of the stream ends: 4 GiB in its order, by a
 *                                    call, by a graph that allocates
 *   stepped ended | ends             a graph that allocates is made executable, which gets the
 *                                    handle of one that has ended, or ends, and is launched
 *
 * Prints at how many entries it came, and how many of these calls were answered with success.
 */

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "ordinary.h"

#define MUCH ((size_t)4 << 30)
#define TRAP_FLAG 0x100

static cu_ctx_fn *set_current;
static cu_begin_fn *begin_capture;
static cu_handle context, stream, executable;

/* Stepping */

struct range {
    uintptr_t from, to;
};
static struct range driver, ours;
static volatile long entries, wanted;
static volatile sig_atomic_t was_ours;
static void (*change)(void);

/* The code of a library. */
static struct range code_of(const char *name)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    struct range range = {0};
    unsigned long from, to;
    char line[512], rights[8];

    while (maps && fgets(line, sizeof(line), maps)) {
        if (strstr(line, name) && sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 &&
            rights[2] == 'x')
            range = (struct range){from, to};
    }
    if (maps)
        (void)fclose(maps);
    return range;
}

static int is_in(uintptr_t at, const struct range *range)
{
    return at >= range->from && at < range->to;
}

static void stepped(int number, siginfo_t *info, void *interrupted)
{
    ucontext_t *where = interrupted;
    uintptr_t at = (uintptr_t)where->uc_mcontext.gregs[REG_RIP];
    int entered = was_ours && is_in(at, &driver);

    (void)number;
    (void)info;
    was_ours = is_in(at, &ours);
    if (!entered || ++entries < wanted)
        return;
    where->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    change();
}

static void step(void)
{
    entries = 0;
    was_ours = 0;
    __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
}

static void run_on(void)
{
    __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}

/* Where no context is current */

static void make_current(void)
{
    (void)set_current(context);
}

static void leave(void)
{
    must(set_current(NULL), "cuCtxSetCurrent");
}

static int raise_heap(void *call)
{
    typedef int set_limit_fn(int limit, size_t value);

    return ((set_limit_fn *)call)(2, MUCH); /* the heap of malloc() */
}

static int load(void *call)
{
    cu_handle module;

    return ((cu_module_load_fn *)call)(&module, "hamisim-module 1\nsize=4294967296\nkernel spin\n");
}

static int make_array(void *call)
{
    const struct cu_array3d shape = {
        .width = 16384, .height = 16384, .format = 0x20, .channels = 4};
    cu_handle array;

    return ((cu_array_create_fn *)call)(&array, &shape);
}

/* Where a capture ends, with its thread, which the driver alone sees */

static pthread_t capturing;
static volatile sig_atomic_t is_capturing, is_over;

static void *capture(void *unused)
{
    must(set_current(context), "cuCtxSetCurrent");
    must(begin_capture(stream, 2), "cuStreamBeginCapture"); /* relaxed */
    is_capturing = 1;
    while (!is_over)
        usleep(20);
    return unused;
}

static void end_capture(void)
{
    is_over = 1;
    if (is_capturing)
        (void)pthread_join(capturing, NULL);
    is_capturing = 0;
}

static void begin_captured(void)
{
    end_capture();
    is_over = 0;
    must(((cu_stream_create_fn *)symbol("cuStreamCreate"))(&stream, 1), "cuStreamCreate");
    if (pthread_create(&capturing, NULL, capture, NULL) != 0)
        exit(1);
    while (!is_capturing)
        usleep(20);
}

static int allocate(void *call)
{
    cu_ptr ptr;

    return ((cu_alloc_async_fn *)call)(&ptr, MUCH, stream);
}

static int launch(void *call)
{
    return ((cu_graph_launch_fn *)call)(executable, stream);
}

static cu_handle make_executable(cu_handle graph)
{
    cu_handle made = NULL;

    (void)((cu_instantiate_fn *)symbol("cuGraphInstantiateWithFlags"))(&made, graph, 0);
    return made;
}

static void end_executable(cu_handle made)
{
    if (made)
        must(((cu_stream_fn *)symbol("cuGraphExecDestroy"))(made), "cuGraphExecDestroy");
}

static cu_handle graph;

static void make_graph(void)
{
    cu_handle from;
    cu_ptr ptr;

    must(((cu_stream_create_fn *)symbol("cuStreamCreate"))(&from, 1), "cuStreamCreate");
    must(begin_capture(from, 2), "cuStreamBeginCapture");
    must(((cu_alloc_async_fn *)symbol("cuMemAllocAsync"))(&ptr, MUCH, from), "cuMemAllocAsync");
    must(((cu_free_async_fn *)symbol("cuMemFreeAsync"))(ptr, from), "cuMemFreeAsync");
    must(((cu_end_fn *)symbol("cuStreamEndCapture"))(from, &graph), "cuStreamEndCapture");
}

/* Another graph gets the handle of one that ends: made by another thread, which may have to wait.
 */

static pthread_t maker;
static int is_making;
static cu_handle again;

static void *end_and_make(void *ends)
{
    must(set_current(context), "cuCtxSetCurrent");
    if (ends)
        end_executable(executable);
    again = make_executable(graph);
    return NULL;
}

static void make_again(void *ends)
{
    struct timespec until;

    if (pthread_create(&maker, NULL, end_and_make, ends) != 0)
        exit(1);
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    is_making = pthread_timedjoin_np(maker, NULL, &until) != 0;
}

static void make_other(void)
{
    make_again(NULL);
}

static void end_and_make_other(void)
{
    make_again(stream);
}

static void begin_again(void)
{
    typedef int create_fn(cu_handle * graph, unsigned flags);
    static cu_handle empty;

    if (is_making)
        (void)pthread_join(maker, NULL);
    is_making = 0;
    end_executable(again);
    again = NULL;
    if (!empty)
        must(((create_fn *)symbol("cuGraphCreate"))(&empty, 0), "cuGraphCreate");
    if (!stream)
        must(((cu_stream_create_fn *)symbol("cuStreamCreate"))(&stream, 1), "cuStreamCreate");
    executable = make_executable(empty);
}

static void begin_ended(void)
{
    begin_again();
    end_executable(executable);
}

static const struct way {
    const char *name, *call;
    int (*run)(void *call);
    void (*prepare)(void), (*change)(void);
} ways[] = {
    {"limit", "cuCtxSetLimit", raise_heap, leave, make_current},
    {"module", "cuModuleLoadData", load, leave, make_current},
    {"array", "cuArray3DCreate_v2", make_array, leave, make_current},
    {"alloc", "cuMemAllocAsync", allocate, begin_captured, end_capture},
    {"graph", "cuGraphLaunch", launch, begin_captured, end_capture},
    {"ended", "cuGraphLaunch", launch, begin_ended, make_other},
    {"ends", "cuGraphLaunch", launch, begin_again, end_and_make_other},
};

static void try_each_entry(const struct way *way)
{
    void *call = symbol(way->call);
    int given = 0;

    change = way->change;
    driver = code_of("/libcuda.so");
    ours = code_of("/libvgpu.so");
    for (wanted = 1; wanted == 1 || entries == wanted - 1; wanted++) {
        way->prepare();
        step();
        given += way->run(call) == CU_OK;
        run_on();
    }
    printf("%ld %d\n", wanted - 2, given);
    (void)fflush(stdout);
    (void)getchar(); /* what it has now is looked at meanwhile */
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_sigaction = stepped, .sa_flags = SA_SIGINFO};
    const char *name = argc > 1 ? argv[1] : "";
    int device;

    set_current = (cu_ctx_fn *)symbol("cuCtxSetCurrent");
    begin_capture = (cu_begin_fn *)symbol("cuStreamBeginCapture_v2");
    must(((cu_init_fn *)symbol("cuInit"))(0), "cuInit");
    must(((cu_device_get_fn *)symbol("cuDeviceGet"))(&device, 0), "cuDeviceGet");
    must(((cu_retain_fn *)symbol("cuDevicePrimaryCtxRetain"))(&context, device), "retain");
    must(set_current(context), "cuCtxSetCurrent");
    make_graph();
    if (strcmp(name, "graph") == 0)
        executable = make_executable(graph);
    (void)mallopt(M_ARENA_MAX, 1);
    (void)sigaction(SIGTRAP, &action, NULL);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        if (strcmp(ways[i].name, name) == 0)
            try_each_entry(&ways[i]);
    }
    return 0;
}
