/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A guest that wants more memory than its limit: one thread takes and gives back, and another one
 * interferes in the middle of its calls. It goes on for some seconds, says how much it is told that
 * it holds, and ends with its standard input; racer.py judges.
 *
 *   racer RACE SECONDS    the races are at the end
 */

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ordinary.h"

enum {
    ADDRESSES = 4096, /* pieces that may be mapped */
    RETAINS = 256,
    SPIN_MOST = 1 << 17,
    SPILLS = 128,
    GIVERS = 5,  /* beside the one that each race has */
    GLOBAL = 0,  /* modes of a capture: no thread may do as it likes, */
    RELAXED = 2, /* or others may */
};

#define PIECE ((size_t)8 << 20)
#define FILL ((size_t)450 << 20) /* of the limit */
#define GRAPH_PIECE ((size_t)1 << 30)
#define SPILLED ((size_t)5 << 30) /* more than there is on the card */
#define HALF_A_PAGE ((size_t)1 << 20)
#define CRUMB ((size_t)128 << 10)

struct pool_props {
    int alloc_type, handle_types, location_type, location_id;
    void *security;
    size_t most;
    unsigned char reserved[56];
};

typedef int pool_create_fn(cu_handle *pool, const struct pool_props *props);
typedef int pool_destroy_fn(cu_handle pool);
typedef int pool_alloc_fn(cu_ptr *ptr, size_t bytes, cu_handle pool, cu_handle stream);
typedef int release_fn(cu_ptr handle);
typedef int export_fn(void *shareable, cu_ptr handle, int type, unsigned long long flags);
typedef int graph_create_fn(cu_handle *graph, unsigned int flags);
typedef int graph_destroy_fn(cu_handle graph);
typedef int managed_fn(cu_ptr *ptr, size_t bytes, unsigned int flags);
typedef int prefetch_fn(cu_ptr ptr, size_t bytes, int device, cu_handle stream);

static struct {
    cu_init_fn *init;
    cu_retain_fn *retain_context;
    cu_ctx_fn *set_current;
    cu_stream_create_fn *stream_create;
    pool_create_fn *pool_create;
    pool_destroy_fn *pool_destroy;
    pool_alloc_fn *pool_alloc;
    cu_free_fn *free;
    cu_reserve_fn *reserve;
    cu_create_fn *create;
    cu_map_fn *map;
    cu_unmap_fn *unmap;
    cu_retain_handle_fn *retain;
    cu_info_fn *info;
    release_fn *release;
    export_fn *export;
    cu_alloc_fn *alloc;
    cu_alloc_async_fn *alloc_async;
    cu_begin_fn *capture;
    cu_end_fn *end_capture;
    graph_create_fn *graph_create;
    graph_destroy_fn *graph_destroy, *exec_destroy;
    cu_instantiate_fn *instantiate;
    cu_graph_launch_fn *graph_launch;
    managed_fn *managed;
    prefetch_fn *prefetch;
    cu_release_fn *reset;
} cu;

static const struct cu_allocation_prop prop = {.type = 1, .handle_types = 1, .location_type = 1};
static cu_handle context;
static struct timespec end;

/* What the other thread is about. */
static _Atomic unsigned long turn, done;
static _Atomic(uint64_t) target; /* a handle */
static _Atomic(cu_ptr) address;
static _Atomic bool over;
static volatile cu_ptr retained;
static volatile int given = -1; /* a descriptor */

static void begin(void)
{
    cu.init = (cu_init_fn *)symbol("cuInit");
    cu.retain_context = (cu_retain_fn *)symbol("cuDevicePrimaryCtxRetain");
    cu.set_current = (cu_ctx_fn *)symbol("cuCtxSetCurrent");
    cu.stream_create = (cu_stream_create_fn *)symbol("cuStreamCreate");
    cu.pool_create = (pool_create_fn *)symbol("cuMemPoolCreate");
    cu.pool_destroy = (pool_destroy_fn *)symbol("cuMemPoolDestroy");
    cu.pool_alloc = (pool_alloc_fn *)symbol("cuMemAllocFromPoolAsync");
    cu.free = (cu_free_fn *)symbol("cuMemFree_v2");
    cu.reserve = (cu_reserve_fn *)symbol("cuMemAddressReserve");
    cu.create = (cu_create_fn *)symbol("cuMemCreate");
    cu.map = (cu_map_fn *)symbol("cuMemMap");
    cu.unmap = (cu_unmap_fn *)symbol("cuMemUnmap");
    cu.retain = (cu_retain_handle_fn *)symbol("cuMemRetainAllocationHandle");
    cu.info = (cu_info_fn *)symbol("cuMemGetInfo_v2");
    cu.release = (release_fn *)symbol("cuMemRelease");
    cu.export = (export_fn *)symbol("cuMemExportToShareableHandle");
    cu.alloc = (cu_alloc_fn *)symbol("cuMemAlloc_v2");
    cu.alloc_async = (cu_alloc_async_fn *)symbol("cuMemAllocAsync");
    cu.capture = (cu_begin_fn *)symbol("cuStreamBeginCapture_v2");
    cu.end_capture = (cu_end_fn *)symbol("cuStreamEndCapture");
    cu.graph_create = (graph_create_fn *)symbol("cuGraphCreate");
    cu.graph_destroy = (graph_destroy_fn *)symbol("cuGraphDestroy");
    cu.exec_destroy = (graph_destroy_fn *)symbol("cuGraphExecDestroy");
    cu.instantiate = (cu_instantiate_fn *)symbol("cuGraphInstantiateWithFlags");
    cu.graph_launch = (cu_graph_launch_fn *)symbol("cuGraphLaunch");
    cu.managed = (managed_fn *)symbol("cuMemAllocManaged");
    cu.prefetch = (prefetch_fn *)symbol("cuMemPrefetchAsync");
    cu.reset = (cu_release_fn *)symbol("cuDevicePrimaryCtxReset_v2");
    must(cu.init(0), "cuInit");
    must(cu.retain_context(&context, 0), "cuDevicePrimaryCtxRetain");
    must(cu.set_current(context), "cuCtxSetCurrent");
}

static bool time_is_over(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec > end.tv_nsec);
}

/* As it is told. */
static size_t used_bytes(void)
{
    size_t free = 0, total = 0;

    must(cu.info(&free, &total), "cuMemGetInfo");
    return total - free;
}

static void spin(unsigned count)
{
    for (volatile unsigned i = 0; i < count; i++)
        ;
}

/* Destroys the pool some moments after it was told to. */
static void *destroyer(void *unused)
{
    unsigned long seen = 0;

    (void)unused;
    while (!over) {
        if (turn == seen)
            continue;
        seen = turn;
        spin((unsigned)(seen * 977 % SPIN_MOST));
        (void)cu.pool_destroy((cu_handle)(uintptr_t)target);
        done = seen;
    }
    return NULL;
}

/* What is taken from a pool that goes lives on. */
static void race_destroy(void)
{
    const struct pool_props props = {.alloc_type = 1, .location_type = 1};
    cu_handle pool, stream;
    size_t before = used_bytes();
    cu_ptr ptr;

    must(cu.stream_create(&stream, 1), "cuStreamCreate");
    while (!time_is_over()) {
        must(cu.pool_create(&pool, &props), "cuMemPoolCreate");
        target = (uintptr_t)pool;
        turn++;
        if (cu.pool_alloc(&ptr, PIECE, pool, stream) != CU_OK)
            ptr = 0;
        while (done != turn)
            ;
        /* It stays if it costs nothing. */
        if (ptr && used_bytes() > before)
            must(cu.free(ptr), "cuMemFree");
    }
}

/* Writes another handle over the one that the driver gives. */
static void *writer(void *unused)
{
    (void)unused;
    while (!over)
        retained = target;
    return NULL;
}

static void race_retain(void)
{
    cu_ptr other, made, at;
    size_t before;

    must(cu.create(&other, PIECE, &prop, 0), "cuMemCreate");
    target = other;
    must(cu.reserve(&at, PIECE, 0, 0, 0), "cuMemAddressReserve");
    before = used_bytes();
    while (!time_is_over() && cu.create(&made, PIECE, &prop, 0) == CU_OK) {
        must(cu.map(at, PIECE, 0, made, 0), "cuMemMap");
        for (int i = 0; i < RETAINS; i++)
            must(cu.retain((cu_ptr *)(uintptr_t)&retained, (void *)(uintptr_t)at), "retain");
        must(cu.unmap(at, PIECE), "cuMemUnmap");
        /* One is left: it stays if it costs nothing. */
        for (int i = 0; i < RETAINS; i++)
            (void)cu.release(made);
        if (used_bytes() > before)
            (void)cu.release(made);
    }
}

/* Maps, or gives out, a handle that the driver has made and that nobody was told yet. */
static void *mapper(void *unused)
{
    (void)unused;
    while (!over) {
        if (address && cu.map(address, PIECE, 0, target, 0) == CU_OK)
            address = 0;
    }
    return NULL;
}

static void *exporter(void *unused)
{
    int fd;

    (void)unused;
    while (!over) {
        if (!address || cu.export(&fd, target, 1, 0) != CU_OK)
            continue;
        given = fd;
        address = 0;
    }
    return NULL;
}

/* The handle that comes after one that was released. */
static uint64_t next_of(uint64_t handle)
{
    return handle + (UINT64_C(1) << 24);
}

static void race_guess(void)
{
    cu_ptr made, at;
    size_t before;

    must(cu.create(&made, PIECE, &prop, 0), "cuMemCreate");
    must(cu.release(made), "cuMemRelease");
    must(cu.reserve(&at, ADDRESSES * PIECE, 0, 0, 0), "cuMemAddressReserve");
    before = used_bytes();
    for (size_t i = 0; i < ADDRESSES && !time_is_over();) {
        target = next_of(made);
        address = at + i * PIECE;
        if (cu.create(&made, PIECE, &prop, 0) != CU_OK)
            break;
        must(cu.release(made), "cuMemRelease");
        if (atomic_exchange(&address, 0))
            continue;
        /* It stays if it costs nothing. */
        if (used_bytes() > before && (given >= 0 ? close(given) : cu.unmap(at + i * PIECE, PIECE)))
            return;
        i++;
    }
}

/* Maps memory and gives it out, and then neither has it nor a descriptor of it: each thread has one
 * piece at most, so that there is room for all of them. */
static void *giver(void *unused)
{
    cu_ptr made, at;
    int fd;

    (void)unused;
    must(cu.reserve(&at, PIECE, 0, 0, 0), "cuMemAddressReserve");
    while (!over) {
        must(cu.create(&made, PIECE, &prop, 0), "cuMemCreate");
        must(cu.export(&fd, made, 1, 0), "cuMemExportToShareableHandle");
        must(cu.map(at, PIECE, 0, made, 0), "cuMemMap");
        must(cu.release(made), "cuMemRelease");
        must(cu.unmap(at, PIECE), "cuMemUnmap");
        (void)close(fd);
    }
    return NULL;
}

static void race_give(void)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    pthread_t threads[GIVERS];

    for (unsigned i = 0; i < GIVERS; i++) {
        if (pthread_create(&threads[i], NULL, giver, NULL) != 0)
            exit(70);
    }
    while (!time_is_over())
        (void)nanosleep(&pause, NULL);
    over = true;
    for (unsigned i = 0; i < GIVERS; i++)
        (void)pthread_join(threads[i], NULL);
}

/* Begins and ends captures of the stream all the time. */
static void *capturer(void *unused)
{
    cu_handle graph;

    (void)unused;
    must(cu.set_current(context), "cuCtxSetCurrent");
    while (!over) {
        cu_handle stream = (cu_handle)(uintptr_t)target;

        if (!stream || cu.capture(stream, RELAXED) != CU_OK)
            continue;
        spin(SPIN_MOST / 64);
        graph = NULL;
        if (cu.end_capture(stream, &graph) == CU_OK && graph)
            (void)cu.graph_destroy(graph);
    }
    return NULL;
}

/* What is taken while it is, or was a moment before, captured. */
static void race_capture(void)
{
    cu_handle stream;
    cu_ptr ptr;

    must(cu.stream_create(&stream, 1), "cuStreamCreate");
    target = (uintptr_t)stream;
    while (!time_is_over())
        (void)cu.alloc_async(&ptr, GRAPH_PIECE, stream);
}

/* One that takes far more than the limit. */
static cu_handle new_exec(cu_handle stream)
{
    cu_handle graph = NULL, exec = NULL;
    cu_ptr ptr;

    must(cu.capture(stream, RELAXED), "cuStreamBeginCapture");
    must(cu.alloc_async(&ptr, GRAPH_PIECE, stream), "cuMemAllocAsync");
    must(cu.end_capture(stream, &graph), "cuStreamEndCapture");
    must(cu.instantiate(&exec, graph, 1), "cuGraphInstantiate");
    must(cu.graph_destroy(graph), "cuGraphDestroy");
    return exec;
}

static void race_graph(void)
{
    cu_handle stream, exec;

    must(cu.stream_create(&stream, 1), "cuStreamCreate");
    exec = new_exec(stream);
    target = (uintptr_t)stream;
    while (!time_is_over() && cu.graph_launch(exec, stream) != CU_OK)
        ;
}

/* Ends what may be launched some moments after it was told to. */
static void *ender(void *unused)
{
    unsigned long seen = 0;

    (void)unused;
    must(cu.set_current(context), "cuCtxSetCurrent");
    while (!over) {
        if (turn == seen)
            continue;
        seen = turn;
        spin((unsigned)(seen * 977 % 4096));
        (void)cu.exec_destroy((cu_handle)(uintptr_t)target);
        done = seen;
    }
    return NULL;
}

static void race_exec(void)
{
    cu_handle stream, exec;

    must(cu.stream_create(&stream, 1), "cuStreamCreate");
    while (!time_is_over()) {
        exec = new_exec(stream);
        target = (uintptr_t)exec;
        turn++;
        while (done != turn) {
            if (cu.graph_launch(exec, stream) == CU_OK)
                return;
        }
    }
}

/* Puts an empty graph in the place of one some moments after it was told to. */
static void *swapper(void *unused)
{
    unsigned long seen = 0;
    cu_handle other;

    (void)unused;
    must(cu.set_current(context), "cuCtxSetCurrent");
    while (!over) {
        if (turn == seen)
            continue;
        seen = turn;
        spin((unsigned)(seen * 977 % 4096));
        must(cu.graph_destroy((cu_handle)(uintptr_t)target), "cuGraphDestroy");
        must(cu.graph_create(&other, 0), "cuGraphCreate");
        target = (uintptr_t)other;
        done = seen;
    }
    return NULL;
}

static void race_swap(void)
{
    cu_handle stream, graph = NULL, exec = NULL;
    bool got = false;
    cu_ptr ptr;

    must(cu.stream_create(&stream, 1), "cuStreamCreate");
    while (!time_is_over() && !got) {
        must(cu.capture(stream, RELAXED), "cuStreamBeginCapture");
        must(cu.alloc_async(&ptr, GRAPH_PIECE, stream), "cuMemAllocAsync");
        must(cu.end_capture(stream, &graph), "cuStreamEndCapture");
        target = (uintptr_t)graph;
        turn++;
        exec = NULL;
        got = cu.instantiate(&exec, graph, 1) == CU_OK && cu.graph_launch(exec, stream) == CU_OK;
        while (done != turn)
            ;
        must(cu.graph_destroy((cu_handle)(uintptr_t)target), "cuGraphDestroy");
        if (exec && !got)
            must(cu.exec_destroy(exec), "cuGraphExecDestroy");
    }
}

/* Moves what is at an address to the device all the time. */
static void *mover(void *unused)
{
    (void)unused;
    must(cu.set_current(context), "cuCtxSetCurrent");
    while (!over) {
        if (address && cu.prefetch(address, PIECE, 0, NULL) == CU_OK)
            done++;
    }
    return NULL;
}

/* Managed memory that the limit has no room for, at an address that the other knows before. */
static void race_prefetch(void)
{
    cu_ptr ptr;

    must(cu.managed(&ptr, FILL, 1), "cuMemAllocManaged");
    for (size_t i = 0; i < ADDRESSES && !time_is_over();) {
        must(cu.managed(&ptr, PIECE, 1), "cuMemAllocManaged");
        if (address == ptr) {
            i++;
            address = ptr + PIECE;
        } else {
            address = ptr;
            must(cu.free(ptr), "cuMemFree");
        }
    }
    address = 0;
}

/* The context's end is refused while the other moves what is kept on the host. */
static void race_reset(void)
{
    cu_handle stream, graph;
    cu_ptr ptr;

    must(cu.stream_create(&stream, 1), "cuStreamCreate");
    must(cu.managed(&ptr, GRAPH_PIECE, 1), "cuMemAllocManaged");
    for (size_t i = 0; !time_is_over(); i++) {
        address = ptr + i % (GRAPH_PIECE / PIECE) * PIECE;
        must(cu.capture(stream, GLOBAL), "cuStreamBeginCapture");
        (void)cu.reset(0);
        (void)cu.end_capture(stream, &graph);
    }
    address = 0;
}

/* Asks all the time for so much that a page more is to be charged. */
static void *asker(void *unused)
{
    cu_ptr ptr;

    (void)unused;
    must(cu.set_current(context), "cuCtxSetCurrent");
    while (!over) {
        if (cu.alloc(&ptr, HALF_A_PAGE) == CU_OK)
            must(cu.free(ptr), "cuMemFree");
    }
    return NULL;
}

/* At the limit: crumbs of a page that another one asked for, and is refused. */
static void race_share(void)
{
    cu_ptr ptr;

    while (cu.alloc(&ptr, PIECE) == CU_OK)
        ;
    while (!time_is_over())
        (void)cu.alloc(&ptr, CRUMB);
}

/* Takes and frees, whatever capture there is. */
static void *freer(void *unused)
{
    typedef int exchange_fn(int *mode);
    int mode = RELAXED;
    cu_ptr ptr;

    (void)unused;
    must(cu.set_current(context), "cuCtxSetCurrent");
    must(((exchange_fn *)symbol("cuThreadExchangeStreamCaptureMode"))(&mode), "relaxing");
    while (!over) {
        must(cu.alloc(&ptr, PIECE), "cuMemAlloc");
        must(cu.free(ptr), "cuMemFree");
    }
    return NULL;
}

/* The context's end is refused while the other frees. */
static void race_refused(void)
{
    cu_handle stream, graph;

    must(cu.stream_create(&stream, 1), "cuStreamCreate");
    while (!time_is_over()) {
        must(cu.capture(stream, GLOBAL), "cuStreamBeginCapture");
        (void)cu.reset(0);
        (void)cu.end_capture(stream, &graph);
    }
}

static void *volatile looked_up;

/* Allocates by whatever function another thread is about to be told. */
static void *reader(void *unused)
{
    cu_ptr ptr;

    (void)unused;
    must(cu.set_current(context), "cuCtxSetCurrent");
    while (!over) {
        cu_alloc_fn *found = (cu_alloc_fn *)looked_up;

        if (found && found != cu.alloc)
            (void)found(&ptr, PIECE);
    }
    return NULL;
}

/* Looks the same function up again and again. */
static void race_lookup(void)
{
    cu_proc_v2_fn *find = (cu_proc_v2_fn *)symbol("cuGetProcAddress_v2");
    cu_ptr ptr;

    while (cu.alloc(&ptr, PIECE) == CU_OK)
        ;
    while (!time_is_over())
        must(find("cuMemAlloc", (void **)&looked_up, 12000, 0, NULL), "cuGetProcAddress");
    looked_up = NULL;
}

/* Ends the context that all use, and makes it anew. */
static void *anew(void *unused)
{
    cu_handle again;

    (void)unused;
    while (!over) {
        (void)cu.reset(0);
        (void)cu.retain_context(&again, 0);
        spin((unsigned)rand() % SPIN_MOST);
    }
    target = 1; /* it is at its end */
    return NULL;
}

/* Takes and gives back in all ways. */
static void *taker(void *number)
{
    typedef int trim_fn(cu_handle pool, size_t keep);
    typedef int default_pool_fn(cu_handle * pool, int device);
    typedef int free_async_fn(cu_ptr ptr, cu_handle stream);
    typedef int access_fn(cu_ptr ptr, size_t bytes, const int *desc, size_t count);
    const int desc[] = {1, 0, 3};
    trim_fn *trim = (trim_fn *)symbol("cuMemPoolTrimTo");
    free_async_fn *free_async = (free_async_fn *)symbol("cuMemFreeAsync");
    default_pool_fn *default_pool = (default_pool_fn *)symbol("cuDeviceGetDefaultMemPool");
    access_fn *set_access = (access_fn *)symbol("cuMemSetAccess");
    unsigned seed = (unsigned)(uintptr_t)number;
    cu_handle pool;
    cu_ptr range = 0, ptr, handle;

    (void)cu.reserve(&range, PIECE, 0, 0, 0);
    while (!over && !time_is_over()) {
        (void)cu.set_current(context);
        switch ((unsigned)rand_r(&seed) % 6) {
        case 0:
            if (cu.alloc(&ptr, PIECE) == CU_OK)
                (void)cu.free(ptr);
            break;
        case 1:
            (void)cu.alloc(&ptr, CRUMB);
            break;
        case 2:
            if (cu.managed(&ptr, PIECE, 1) == CU_OK) {
                (void)cu.prefetch(ptr, PIECE, 0, NULL);
                (void)cu.free(ptr);
            }
            break;
        case 3:
            if (cu.create(&handle, PIECE, &prop, 0) == CU_OK) {
                if (cu.map(range, PIECE, 0, handle, 0) == CU_OK) {
                    (void)set_access(range, PIECE, desc, 1);
                    (void)cu.unmap(range, PIECE);
                }
                (void)cu.release(handle);
            }
            break;
        case 4:
            if (cu.alloc_async(&ptr, PIECE, NULL) == CU_OK)
                (void)free_async(ptr, NULL);
            break;
        default:
            if (default_pool(&pool, 0) == CU_OK)
                (void)trim(pool, 0);
        }
    }
    return NULL;
}

/* What is left at the end is charged, and no more. */
static void race_ends(void)
{
    pthread_t threads[2];
    cu_handle again;

    for (uintptr_t i = 0; i < 2; i++)
        must(pthread_create(&threads[i], NULL, taker, (void *)(i + 1)), "pthread_create");
    (void)taker((void *)3);
    over = true;
    for (unsigned i = 0; i < 2; i++)
        (void)pthread_join(threads[i], NULL);
    while (!target)
        ;
    must(cu.reset(0), "cuDevicePrimaryCtxReset");
    must(cu.retain_context(&again, 0), "cuDevicePrimaryCtxRetain");
    must(cu.set_current(again), "cuCtxSetCurrent");
}

/* A handler makes a context current while memory is asked for without one. */

static pthread_t interrupted;
static volatile sig_atomic_t asking;
static cu_handle switched_to;

static void on_signal(int number)
{
    (void)number;
    if (asking)
        (void)cu.set_current(switched_to);
    asking = 0;
}

static void *interrupter(void *unused)
{
    unsigned seed = 1;

    (void)unused;
    while (!over) {
        spin((unsigned)rand_r(&seed) % 3000);
        if (asking)
            (void)pthread_kill(interrupted, SIGUSR1);
    }
    return NULL;
}

static void expect_signals(void)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    interrupted = pthread_self();
    (void)sigaction(SIGUSR1, &action, NULL);
}

static void race_interrupt(void)
{
    cu_ptr ptr;

    while (cu.alloc(&ptr, PIECE) == CU_OK)
        ;
    switched_to = context;
    expect_signals();
    while (!time_is_over()) {
        must(cu.set_current(NULL), "cuCtxSetCurrent");
        asking = 1;
        (void)cu.alloc(&ptr, PIECE);
        asking = 0;
    }
    must(cu.set_current(context), "cuCtxSetCurrent");
}

/* A handler makes another context current while memory that the card has no room for is made on the
 * host. That context's end takes what is in it; the rest can be freed. */
static void spill_round(void)
{
    cu_ctx_create_fn *create = (cu_ctx_create_fn *)symbol("cuCtxCreate_v2");
    cu_ctx_fn *destroy = (cu_ctx_fn *)symbol("cuCtxDestroy_v2");
    cu_ptr ptrs[SPILLS];
    unsigned count = 0;

    must(create(&switched_to, 0, 0), "cuCtxCreate");
    for (unsigned i = 0; i < SPILLS; i++) {
        must(cu.set_current(context), "cuCtxSetCurrent");
        asking = 1;
        count += cu.alloc(&ptrs[count], SPILLED) == CU_OK;
        asking = 0;
    }
    must(destroy(switched_to), "cuCtxDestroy");
    must(cu.set_current(context), "cuCtxSetCurrent");
    while (count)
        (void)cu.free(ptrs[--count]);
}

static void race_spill(void)
{
    expect_signals();
    while (!time_is_over())
        spill_round();
}

/* Begins captures now and then that forbid the other thread much of what it does. */
static void *forbidder(void *unused)
{
    cu_handle graph, stream;
    unsigned seed = 1;

    (void)unused;
    must(cu.set_current(context), "cuCtxSetCurrent");
    must(cu.stream_create(&stream, 1), "cuStreamCreate");
    while (!over) {
        spin((unsigned)rand_r(&seed) % SPIN_MOST);
        (void)cu.capture(stream, GLOBAL);
        spin((unsigned)rand_r(&seed) % SPIN_MOST);
        graph = NULL;
        if (cu.end_capture(stream, &graph) == CU_OK && graph)
            (void)cu.graph_destroy(graph);
    }
    return NULL;
}

/* Code that exceeds the limit, which is known once it is there. */
static void race_load(void)
{
    cu_module_load_fn *load = (cu_module_load_fn *)symbol("cuModuleLoadData");
    cu_handle module;

    while (!time_is_over())
        (void)load(&module, "hamisim-module 1\nsize=1073741824\nkernel spin\n");
}

static const struct {
    const char *name;
    void (*race)(void);
    void *(*other)(void *unused);
} races[] = {
    {"destroy", race_destroy, destroyer},
    {"retain", race_retain, writer},
    {"map", race_guess, mapper},
    {"export", race_guess, exporter},
    {"give", race_give, giver},
    {"capture", race_capture, capturer},
    {"graph", race_graph, capturer},
    {"exec", race_exec, ender},
    {"swap", race_swap, swapper},
    {"prefetch", race_prefetch, mover},
    {"reset", race_reset, mover},
    {"share", race_share, asker},
    {"lookup", race_lookup, reader},
    {"refused", race_refused, freer},
    {"ends", race_ends, anew},
    {"interrupt", race_interrupt, interrupter},
    {"spill", race_spill, interrupter},
    {"load", race_load, forbidder},
};

int main(int argc, char **argv)
{
    pthread_t thread;
    char byte;

    if (argc != 3)
        return 64;
    begin();
    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += atoi(argv[2]);
    for (size_t i = 0; i < sizeof(races) / sizeof(races[0]); i++) {
        if (strcmp(races[i].name, argv[1]) != 0)
            continue;
        if (pthread_create(&thread, NULL, races[i].other, NULL) != 0)
            return 70;
        races[i].race();
        over = true;
        (void)pthread_join(thread, NULL);
        printf("%zu\n", used_bytes());
        (void)fflush(stdout);
        return read(STDIN_FILENO, &byte, 1) != 0;
    }
    return 64;
}
