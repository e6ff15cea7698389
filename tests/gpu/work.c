/* SPDX-License-Identifier: Apache-2.0 */

/* clang-format off */
/*
 * What the tests on a real GPU run: a program that knows the driver by its exports alone, and needs
 * neither NVIDIA's headers nor its compiler.
 *
 *   work calibrate [full]                  iterations of the kernel in a microsecond, the device filled; full:
 *                                          so that no other one runs beside it
 *   work run ITERATIONS SECONDS [STREAMS]  kernels one behind another: how many a second, after a
 *                                          second of warming up
 *   work mixed SHORT LONG EVERY SECONDS    the same of short kernels, of which each so many is long:
 *                                          iterations in a microsecond
 *   work graph ITERATIONS COUNT SECONDS    the same of graphs of so many kernels each
 *   work every ITERATIONS US SECONDS       one kernel each so many microseconds: latencies
 *   work marks US SECONDS                  an event each so many microseconds, and no kernel: how many
 *                                          were done within 50 microseconds, and after how long the others
 *   work random SEED SCALE SECONDS [all]   a random program of some threads and streams, whose kernels' lengths
 *                                          go by what calibrate full says: what it does, and the iterations that
 *                                          were done in a microsecond; all: without its pauses
 *   work threads ITERATIONS SECONDS COUNT  so many threads, each of which waits for each of its kernels:
 *                                          kernels a second
 *   work slices FILL SECONDS AHEAD         when this context was on the device, and when what was launched
 *                                          into idle streams began: a line each; FILL: iterations of kernels
 *                                          that fill the device meanwhile, or 0; AHEAD: how many kernels of a
 *                                          stream are not done: of 1 none waits behind another
 *   work launch                            nanoseconds a launch of an empty kernel
 *   work pairs PATH BYTES                  nanoseconds to allocate and free
 *   work hold PATH BYTES [MOST]            allocates until it is refused, or has so many, and says how
 *                                          many bytes; frees them after a line on standard input, says
 *                                          so, and ends after another
 *
 * PATH: alloc, pitch, create, async, pool, managed, array, host.
 */
/* clang-format on */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "card.h"

enum {
    PIECES = 1 << 17, /* that hold has at most */
};

static handle pool;

static int calibrate(void (*launch_kernel)(uint32_t, handle))
{
    const uint32_t iterations = 1 << 16;
    double until = now_ns() + 1.5e9, best_us = 1e18;
    handle start, end;

    must(cuEventCreate(&start, 0), "cuEventCreate");
    must(cuEventCreate(&end, 0), "cuEventCreate");
    while (now_ns() < until) {
        float milliseconds;

        must(cuEventRecord(start, stream), "cuEventRecord");
        launch_kernel(iterations, stream);
        must(cuEventRecord(end, stream), "cuEventRecord");
        must(cuEventSynchronize(end), "cuEventSynchronize");
        must(cuEventElapsedTime(&milliseconds, start, end), "cuEventElapsedTime");
        if (1e3 * (double)milliseconds < best_us)
            best_us = 1e3 * (double)milliseconds;
    }
    printf("%.3f\n", iterations / best_us);
    return 0;
}

static int run(uint32_t iterations, double seconds, unsigned streams)
{
    enum { AHEAD = 8, STREAMS = 64 }; /* kernels in each stream that are not known to be done */
    static handle into[STREAMS], done[STREAMS][AHEAD];
    double begun = now_ns(), counted_from = 0, now;
    uint64_t launched = 0;

    for (unsigned i = 0; i < streams; i++) {
        into[i] = new_stream();
        for (unsigned k = 0; k < AHEAD; k++)
            done[i][k] = new_event();
    }
    for (uint64_t round = 0;; round++) {
        for (unsigned i = 0; i < streams; i++) {
            if (round >= AHEAD)
                must(cuEventSynchronize(done[i][round % AHEAD]), "cuEventSynchronize");
            launch_work(iterations, into[i]);
            must(cuEventRecord(done[i][round % AHEAD], into[i]), "cuEventRecord");
        }
        now = now_ns();
        launched += streams;
        if (!counted_from && now > begun + 1e9) {
            counted_from = now;
            launched = 0;
        }
        if (counted_from && now > counted_from + 1e9 * seconds)
            break;
    }
    printf("%.3f\n", (double)launched / (now - counted_from) * 1e9);
    return 0;
}

/* What is launched one after another: returns the iterations of the i-th. */
typedef uint64_t next_fn(uint64_t i, const void *data);

static int one_by_one(next_fn *launch_next, const void *data, double seconds)
{
    enum { AHEAD = 8 };
    double begun = now_ns(), counted_from = 0, now;
    handle done[AHEAD];
    uint64_t sum = 0;

    for (unsigned i = 0; i < AHEAD; i++)
        done[i] = new_event();
    for (uint64_t i = 0;; i++) {
        if (i >= AHEAD)
            must(cuEventSynchronize(done[i % AHEAD]), "cuEventSynchronize");
        sum += launch_next(i, data);
        must(cuEventRecord(done[i % AHEAD], stream), "cuEventRecord");
        now = now_ns();
        if (!counted_from && now > begun + 1e9) {
            counted_from = now;
            sum = 0;
        }
        if (counted_from && now > counted_from + 1e9 * seconds)
            break;
    }
    printf("%.3f\n", (double)sum / (now - counted_from) * 1e3);
    return 0;
}

struct mixture {
    uint32_t of_short, of_long;
    uint64_t every;
};

static uint64_t launch_mixed(uint64_t i, const void *data)
{
    const struct mixture *mixture = data;
    uint32_t iterations = i % mixture->every ? mixture->of_short : mixture->of_long;

    launch_work(iterations, stream);
    return iterations;
}

struct graph {
    handle exec;
    uint64_t iterations;
};

static uint64_t launch_graph(uint64_t i, const void *data)
{
    const struct graph *graph = data;

    (void)i;
    must(cuGraphLaunch(graph->exec, stream), "cuGraphLaunch");
    return graph->iterations;
}

static int run_graphs(uint32_t iterations, unsigned count, double seconds)
{
    struct graph graph = {.iterations = (uint64_t)iterations * count};
    handle made;

    must(cuStreamBeginCapture_v2(stream, 2), "cuStreamBeginCapture");
    for (unsigned i = 0; i < count; i++)
        launch_work(iterations, stream);
    must(cuStreamEndCapture(stream, &made), "cuStreamEndCapture");
    must(cuGraphInstantiateWithFlags(&graph.exec, made, 0), "cuGraphInstantiate");
    return one_by_one(launch_graph, &graph, seconds);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int every(uint32_t iterations, double period_us, double seconds)
{
    enum { MOST = 1 << 20 };
    static double latencies[MOST];
    double next = now_ns(), until = next + 1e9 * seconds;
    size_t count = 0;

    while (next < until && count < MOST) {
        double begun;

        while (now_ns() < next)
            continue;
        begun = now_ns();
        launch_work(iterations, stream);
        must(cuStreamSynchronize(stream), "cuStreamSynchronize");
        latencies[count++] = now_ns() - begun;
        next = begun + 1e3 * period_us;
        if (next < now_ns())
            next = now_ns();
    }
    qsort(latencies, count, sizeof(latencies[0]), compare);
    printf("%zu kernels, p50 %.1f us, p99 %.1f us, most %.1f us\n", count,
           latencies[count / 2] / 1e3, latencies[count * 99 / 100] / 1e3,
           latencies[count - 1] / 1e3);
    return 0;
}

static int marks(double period_us, double seconds)
{
    double next = now_ns(), until = next + 1e9 * seconds, waited = 0;
    unsigned count = 0, prompt = 0;
    handle event;

    must(cuEventCreate(&event, 0), "cuEventCreate");
    for (; next < until; count++) {
        double begun;

        while (now_ns() < next)
            continue;
        begun = now_ns();
        must(cuEventRecord(event, stream), "cuEventRecord");
        while (cuEventQuery(event) != OK)
            continue;
        if (now_ns() - begun < 5e4)
            prompt++;
        else
            waited += now_ns() - begun;
        next = now_ns() + 1e3 * period_us;
    }
    printf("%u events, %u at once, the others after %.0f us\n", count, prompt,
           count > prompt ? waited / (count - prompt) / 1e3 : 0);
    return 0;
}

static int launches(void)
{
    enum { BATCH = 200, BATCHES = 400 };
    static double took[BATCHES];

    for (unsigned i = 0; i < BATCHES; i++) {
        double begun = now_ns();

        for (unsigned k = 0; k < BATCH; k++)
            must(cuLaunchKernel(nothing_function, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL),
                 "cuLaunchKernel");
        took[i] = (now_ns() - begun) / BATCH;
        must(cuStreamSynchronize(stream), "cuStreamSynchronize");
    }
    qsort(took, BATCHES, sizeof(took[0]), compare);
    printf("%.1f\n", took[BATCHES / 2]);
    return 0;
}

/* One piece by a path, and its end. */

static size_t square(size_t bytes)
{
    size_t side = 1;

    while (side * side * 4 < bytes)
        side++;
    return side;
}

static int make(const char *path, size_t bytes, address *ret)
{
    static const struct allocation_prop prop = {.type = PINNED, .location = {.type = DEVICE}};
    size_t pitch;

    *ret = 0;
    if (!strcmp(path, "alloc"))
        return cuMemAlloc_v2(ret, bytes);
    if (!strcmp(path, "pitch"))
        return cuMemAllocPitch_v2(ret, &pitch, bytes / 64, 64, 4);
    if (!strcmp(path, "create"))
        return cuMemCreate(ret, bytes, &prop, 0);
    if (!strcmp(path, "async"))
        return cuMemAllocAsync(ret, bytes, stream);
    if (!strcmp(path, "pool"))
        return cuMemAllocFromPoolAsync(ret, bytes, pool, stream);
    if (!strcmp(path, "managed"))
        return cuMemAllocManaged(ret, bytes, GLOBAL);
    if (!strcmp(path, "host"))
        return cuMemHostAlloc((void **)(void *)ret, bytes, 0);
    if (!strcmp(path, "array")) {
        const struct array_shape shape = {square(bytes), square(bytes), FLOAT, 1};

        return cuArrayCreate_v2((handle *)(void *)ret, &shape);
    }
    printf("failed: no such path: %s\n", path);
    exit(2);
}

static void end(const char *path, address piece)
{
    if (!strcmp(path, "create"))
        must(cuMemRelease(piece), "cuMemRelease");
    else if (!strcmp(path, "async") || !strcmp(path, "pool"))
        must(cuMemFreeAsync(piece, stream), "cuMemFreeAsync");
    else if (!strcmp(path, "host"))
        must(cuMemFreeHost((void *)(uintptr_t)piece), "cuMemFreeHost");
    else if (!strcmp(path, "array"))
        must(cuArrayDestroy((handle)(uintptr_t)piece), "cuArrayDestroy");
    else
        must(cuMemFree_v2(piece), "cuMemFree");
}

static void open_pool(void)
{
    static const struct pool_props props = {.type = PINNED, .location = {.type = DEVICE}};

    must(cuMemPoolCreate(&pool, &props), "cuMemPoolCreate");
}

/* Pools give back nothing on their own, so that what is timed is the pool's alone. */
static int pairs(const char *path, size_t bytes)
{
    enum { BATCH = 20, BATCHES = 50, RELEASE_THRESHOLD = 4 };
    static double took[BATCHES];
    uint64_t all = UINT64_MAX;
    handle of_device;

    must(cuDeviceGetDefaultMemPool(&of_device, 0), "cuDeviceGetDefaultMemPool");
    must(cuMemPoolSetAttribute(of_device, RELEASE_THRESHOLD, &all), "cuMemPoolSetAttribute");
    must(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &all), "cuMemPoolSetAttribute");
    for (unsigned i = 0; i < BATCHES; i++) {
        double begun = now_ns();

        for (unsigned k = 0; k < BATCH; k++) {
            address piece;

            must(make(path, bytes, &piece), path);
            end(path, piece);
        }
        took[i] = (now_ns() - begun) / BATCH;
    }
    qsort(took, BATCHES, sizeof(took[0]), compare);
    printf("%.1f\n", took[BATCHES / 2]);
    return 0;
}

static void wait_for_a_line(void)
{
    while (getchar() > '\n')
        continue;
}

static int hold(const char *path, size_t bytes, size_t most)
{
    static address pieces[PIECES];
    size_t count = 0, free_bytes = 0, total = 0;
    handle of_device;
    int result = OK;

    while (count < most) {
        if ((result = make(path, bytes, &pieces[count])) != OK)
            break;
        count++;
    }
    must(cuStreamSynchronize(stream), "cuStreamSynchronize");
    must(cuMemGetInfo_v2(&free_bytes, &total), "cuMemGetInfo");
    printf("%d %zu %zu %zu\n", result, count * bytes, free_bytes, total);
    wait_for_a_line();
    for (size_t i = 0; i < count; i++)
        end(path, pieces[i]);
    must(cuStreamSynchronize(stream), "cuStreamSynchronize");
    must(cuDeviceGetDefaultMemPool(&of_device, 0), "cuDeviceGetDefaultMemPool");
    must(cuMemPoolTrimTo(of_device, 0), "cuMemPoolTrimTo");
    must(cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo");
    must(cuMemGetInfo_v2(&free_bytes, &total), "cuMemGetInfo");
    printf("%zu %zu\n", free_bytes, total);
    wait_for_a_line();
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (!strcmp(what, "pairs") && argc == 4) {
        open_driver();
        open_pool();
        return pairs(argv[2], strtoull(argv[3], NULL, 0));
    }
    if (!strcmp(what, "hold") && (argc == 4 || argc == 5)) {
        size_t most = argc == 5 ? strtoull(argv[4], NULL, 0) : PIECES;

        open_driver();
        open_pool();
        return hold(argv[2], strtoull(argv[3], NULL, 0), most < PIECES ? most : PIECES);
    }
    if (!strcmp(what, "calibrate") && (argc == 2 || (argc == 3 && !strcmp(argv[2], "full")))) {
        open_driver();
        load_kernels();
        return calibrate(argc == 3 ? launch_full : launch_work);
    }
    if (!strcmp(what, "run") && (argc == 4 || argc == 5)) {
        unsigned streams = argc == 5 ? (unsigned)strtoul(argv[4], NULL, 0) : 1;

        open_driver();
        load_kernels();
        return run((uint32_t)strtoul(argv[2], NULL, 0), strtod(argv[3], NULL),
                   streams < 64 ? streams : 64);
    }
    if (!strcmp(what, "mixed") && argc == 6) {
        const struct mixture mixture = {
            (uint32_t)strtoul(argv[2], NULL, 0),
            (uint32_t)strtoul(argv[3], NULL, 0),
            strtoull(argv[4], NULL, 0),
        };

        open_driver();
        load_kernels();
        return one_by_one(launch_mixed, &mixture, strtod(argv[5], NULL));
    }
    if (!strcmp(what, "graph") && argc == 5) {
        open_driver();
        load_kernels();
        return run_graphs((uint32_t)strtoul(argv[2], NULL, 0), (unsigned)strtoul(argv[3], NULL, 0),
                          strtod(argv[4], NULL));
    }
    if (!strcmp(what, "every") && argc == 5) {
        open_driver();
        load_kernels();
        return every((uint32_t)strtoul(argv[2], NULL, 0), strtod(argv[3], NULL),
                     strtod(argv[4], NULL));
    }
    if (!strcmp(what, "marks") && argc == 4) {
        open_driver();
        load_kernels();
        return marks(strtod(argv[2], NULL), strtod(argv[3], NULL));
    }
    if (!strcmp(what, "random") && (argc == 5 || argc == 6))
        return run_random((unsigned)strtoul(argv[2], NULL, 0), strtod(argv[3], NULL),
                          strtod(argv[4], NULL), argc == 6);
    if (!strcmp(what, "threads") && argc == 5)
        return run_threads((uint32_t)strtoul(argv[2], NULL, 0), strtod(argv[3], NULL),
                           (unsigned)strtoul(argv[4], NULL, 0));
    if (!strcmp(what, "slices") && argc == 5)
        return run_slices((uint32_t)strtoul(argv[2], NULL, 0), strtod(argv[3], NULL),
                          (unsigned)strtoul(argv[4], NULL, 0));
    if (!strcmp(what, "launch") && argc == 2) {
        open_driver();
        load_kernels();
        return launches();
    }
    (void)fprintf(
        stderr,
        "usage: work calibrate [full] | run ITERATIONS SECONDS [STREAMS] | every ITERATIONS US "
        "SECONDS |\n"
        "       marks US SECONDS |\n"
        "            mixed SHORT LONG EVERY SECONDS | graph ITERATIONS COUNT SECONDS |\n"
        "            random SEED SCALE SECONDS [all] | threads ITERATIONS SECONDS COUNT |\n"
        "            slices FILL SECONDS AHEAD | launch | pairs PATH BYTES | hold PATH BYTES "
        "[MOST]\n");
    return 2;
}
