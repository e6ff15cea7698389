/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A program that uses a GPU: takes memory, launches kernels of a stated length, says how many were
 * done. It finds the driver as most libraries do, by dlopen and dlsym. The tests' and the demo's
 * tenants are this program.
 *
 * A kernel's first parameter is how long it runs, in nanoseconds: the simulated driver goes by
 * that; on a real one the kernel below does, or another's (--module, --function).
 */

#include <dlfcn.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../vgpu/cu.h"

#define MAX_STREAMS 16
#define WARM_UP_NS 1000000000
#define MAX_BATCHES 1048576 /* whose times are remembered */

struct options {
    uint64_t kernel_ns;
    uint64_t seconds_ns;
    uint64_t pause_ns;
    uint64_t grid;
    uint64_t streams;
    uint64_t batch;
    uint64_t launches;
    uint64_t memory_bytes;
    uint64_t piece_bytes;
    uint64_t device;
    bool hold;
    bool quiet;
    bool latency;
    const char *start_file;
    const char *ready_file;
    const char *module;
    const char *function;
};

enum option_kind {
    OPTION_TIME,
    OPTION_BYTES,
    OPTION_COUNT,
    OPTION_TEXT,
    OPTION_FLAG,
};

struct option_row {
    const char *name;
    enum option_kind kind;
    size_t offset; /* in struct options */
    const char *help;
};

#define ROW(name, kind, field, help)                                                               \
    {                                                                                              \
        name, OPTION_##kind, offsetof(struct options, field), help                                 \
    }

static const struct option_row option_rows[] = {
    ROW("kernel", TIME, kernel_ns, "how long a kernel runs (50us)"),
    ROW("seconds", TIME, seconds_ns, "how long to go on launching (0: launch nothing)"),
    ROW("launches", COUNT, launches, "stop after so many, too"),
    ROW("grid", COUNT, grid, "blocks of a launch (108)"),
    ROW("streams", COUNT, streams, "spread the launches over so many streams (1)"),
    ROW("batch", COUNT, batch, "launches between two synchronisations; 0: none but the last (64)"),
    ROW("pause", TIME, pause_ns, "idle after each synchronisation"),
    ROW("memory", BYTES, memory_bytes, "take so much device memory first"),
    ROW("piece", BYTES, piece_bytes, "in pieces of this size"),
    ROW("device", COUNT, device, "which device (0)"),
    ROW("ready", TEXT, ready_file, "make this file once the memory is there"),
    ROW("start", TEXT, start_file, "then wait until this file is there"),
    ROW("module", TEXT, module, "load this module instead of our own"),
    ROW("function", TEXT, function, "the kernel in it (spin)"),
    ROW("latency", FLAG, latency,
        "say how long a batch took after the first second: the median, and what 99 of 100 took at "
        "most"),
    ROW("hold", FLAG, hold, "at the end stay, with the memory, until a signal comes"),
    ROW("quiet", FLAG, quiet, "say nothing at the end"),
};

#define OPTION_ROWS (sizeof(option_rows) / sizeof(option_rows[0]))

static struct {
    cu_init_fn *init;
    cu_device_get_fn *device_get;
    cu_retain_fn *retain;
    cu_ctx_fn *set_current;
    cu_alloc_fn *alloc;
    cu_free_fn *free;
    cu_module_load_fn *module_load_data;
    cu_module_load_fn *module_load;
    cu_function_fn *get_function;
    cu_stream_create_fn *stream_create;
    cu_stream_fn *stream_sync;
    cu_void_fn *sync;
    cu_launch_fn *launch;
} cu;

static volatile sig_atomic_t stopped;

static struct {
    size_t count;
    int64_t took_ns[MAX_BATCHES];
} batches;

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

static void must(int code, const char *what)
{
    if (code == CU_OK)
        return;
    fprintf(stderr, "load: %s: CUDA error %d%s\n", what, code,
            code == CU_OUT_OF_MEMORY ? " (out of memory)" : "");
    exit(code == CU_OUT_OF_MEMORY ? 3 : 1);
}

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);

    if (!found) {
        fprintf(stderr, "load: the driver has no %s\n", name);
        exit(1);
    }
    return found;
}

static void find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

    if (!library) {
        fprintf(stderr, "load: %s\n", dlerror());
        exit(1);
    }
    cu.init = symbol(library, "cuInit");
    cu.device_get = symbol(library, "cuDeviceGet");
    cu.retain = symbol(library, "cuDevicePrimaryCtxRetain");
    cu.set_current = symbol(library, "cuCtxSetCurrent");
    cu.alloc = symbol(library, "cuMemAlloc_v2");
    cu.free = symbol(library, "cuMemFree_v2");
    cu.module_load_data = symbol(library, "cuModuleLoadData");
    cu.module_load = dlsym(library, "cuModuleLoad");
    cu.get_function = symbol(library, "cuModuleGetFunction");
    cu.stream_create = symbol(library, "cuStreamCreate");
    cu.stream_sync = symbol(library, "cuStreamSynchronize");
    cu.sync = symbol(library, "cuCtxSynchronize");
    cu.launch = symbol(library, "cuLaunchKernel");
}

/* A number with a unit: 50us, 20ms, 12 (seconds); 512M, 2G. */
static uint64_t number(const struct option_row *row, const char *text)
{
    static const struct {
        enum option_kind kind;
        const char *unit;
        double factor;
    } units[] = {
        {OPTION_TIME, "ns", 1},
        {OPTION_TIME, "us", 1e3},
        {OPTION_TIME, "ms", 1e6},
        {OPTION_TIME, "s", 1e9},
        {OPTION_TIME, "", 1e9},
        {OPTION_BYTES, "", 1},
        {OPTION_BYTES, "K", 1024},
        {OPTION_BYTES, "M", 1024 * 1024},
        {OPTION_BYTES, "G", 1024 * 1024 * 1024},
        {OPTION_COUNT, "", 1},
    };
    char *end;
    double value = strtod(text, &end);

    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (units[i].kind == row->kind && strcmp(end, units[i].unit) == 0 && end != text &&
            value >= 0)
            return (uint64_t)(value * units[i].factor);
    fprintf(stderr, "load: --%s: \"%s\" is not %s\n", row->name, text,
            row->kind == OPTION_TIME    ? "a duration; say 50us, 1ms or 10 for seconds"
            : row->kind == OPTION_BYTES ? "an amount of memory; say 512M or 2G"
                                        : "a number");
    exit(2);
}

static void usage(void)
{
    puts("usage: load [options]\n"
         "Takes device memory and launches kernels, as a program for the simulated driver, which "
         "computes nothing.");
    for (size_t i = 0; i < OPTION_ROWS; i++)
        printf("  --%-10s %s\n", option_rows[i].name, option_rows[i].help);
    puts("  --help       say this\n"
         "Durations are as 50us, 1ms or 10 (seconds), memory as 512M or 2G.");
    puts("A signal TERM or INT ends it early. Exit status 3: out of memory.");
}

static void option_take(struct options *options, const struct option_row *row, const char *text)
{
    char *field = (char *)options + row->offset;

    if (row->kind == OPTION_FLAG)
        *(bool *)field = true;
    else if (row->kind == OPTION_TEXT)
        *(const char **)field = text;
    else
        *(uint64_t *)field = number(row, text);
}

static void options_read(struct options *options, int argc, char **argv)
{
    struct option table[OPTION_ROWS + 2] = {0};
    int c, index;

    for (size_t i = 0; i < OPTION_ROWS; i++)
        table[i] = (struct option){
            option_rows[i].name,
            option_rows[i].kind == OPTION_FLAG ? no_argument : required_argument, NULL, 1};
    table[OPTION_ROWS] = (struct option){"help", no_argument, NULL, 'h'};
    while ((c = getopt_long(argc, argv, "", table, &index)) == 1)
        option_take(options, &option_rows[index], optarg);
    if (c == 'h') {
        usage();
        exit(0);
    }
    if (c == '?' || optind != argc || !options->streams || options->streams > MAX_STREAMS) {
        usage();
        exit(2);
    }
}

static void sleep_ns(int64_t ns)
{
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

    nanosleep(&t, NULL);
}

static void take_memory(const struct options *options)
{
    uint64_t piece = options->piece_bytes ? options->piece_bytes : options->memory_bytes;
    cu_ptr ptr;

    for (uint64_t taken = 0; taken < options->memory_bytes; taken += piece)
        must(cu.alloc(&ptr, piece), "taking memory");
}

/*
 * On a real GPU a kernel that does the same: waits until its time is over, by the GPU's clock.
 */
static const char spin_image[] = ".version 6.0\n"
                                 ".target sm_50\n"
                                 ".address_size 64\n"
                                 ".visible .entry spin(.param .u64 ns)\n"
                                 "{\n"
                                 "    .reg .pred %p;\n"
                                 "    .reg .u64 %limit, %begun, %now;\n"
                                 "    ld.param.u64 %limit, [ns];\n"
                                 "    mov.u64 %begun, %globaltimer;\n"
                                 "again:\n"
                                 "    mov.u64 %now, %globaltimer;\n"
                                 "    sub.u64 %now, %now, %begun;\n"
                                 "    setp.lt.u64 %p, %now, %limit;\n"
                                 "    @%p bra again;\n"
                                 "    ret;\n"
                                 "}\n";

static cu_handle load_kernel(const struct options *options)
{
    cu_handle module, function;

    if (options->module)
        must(cu.module_load(&module, options->module), "loading the module");
    else
        must(cu.module_load_data(&module, spin_image), "loading the module");
    must(cu.get_function(&function, module, options->function), "finding the kernel");
    return function;
}

static void meet(const struct options *options)
{
    if (options->ready_file) {
        FILE *file = fopen(options->ready_file, "w");

        if (file)
            fclose(file);
    }
    while (options->start_file && access(options->start_file, F_OK) != 0 && !stopped)
        sleep_ns(1000000);
}

static unsigned long long run(const struct options *options, cu_handle function,
                              const cu_handle streams[])
{
    int64_t kernel_ns = (int64_t)options->kernel_ns;
    int64_t end = now_ns() + (int64_t)options->seconds_ns;
    int64_t measured_ns = (int64_t)options->seconds_ns - WARM_UP_NS;
    void *params[] = {&kernel_ns};
    unsigned long long done = 0;
    int64_t began_ns = 0;

    while (!stopped && now_ns() < end && !(options->launches && done >= options->launches)) {
        if (options->batch && done % options->batch == 0)
            began_ns = now_ns();
        must(cu.launch(function, (unsigned)options->grid, 1, 1, 128, 1, 1, 0,
                       streams[done % options->streams], params, NULL),
             "launching");
        done++;
        if (options->batch && done % options->batch == 0) {
            must(cu.sync(), "synchronising");
            if (batches.count < MAX_BATCHES && began_ns > end - measured_ns)
                batches.took_ns[batches.count++] = now_ns() - began_ns;
            if (options->pause_ns)
                sleep_ns((int64_t)options->pause_ns);
        }
    }
    must(cu.sync(), "synchronising");
    return done;
}

static int compare(const void *a, const void *b)
{
    const int64_t *first = a, *second = b;

    return (*first > *second) - (*first < *second);
}

static void say(const struct options *options, unsigned long long done, int64_t ns)
{
    printf("{\"launches\": %llu, \"seconds\": %.6f, \"kernel_ns\": %" PRIu64, done,
           (double)ns / 1e9, options->kernel_ns);
    if (options->latency && batches.count) {
        qsort(batches.took_ns, batches.count, sizeof(batches.took_ns[0]), compare);
        printf(", \"median_ns\": %" PRId64 ", \"p99_ns\": %" PRId64,
               batches.took_ns[batches.count / 2], batches.took_ns[batches.count * 99 / 100]);
    }
    printf("}\n");
}

int main(int argc, char **argv)
{
    struct options options = {
        .kernel_ns = 50000, .grid = 108, .streams = 1, .batch = 64, .function = "spin"};
    cu_handle context, function, streams[MAX_STREAMS];
    int64_t begun, ended;
    unsigned long long done;
    int device;

    options_read(&options, argc, argv);
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    find_driver();
    must(cu.init(0), "initialising");
    must(cu.device_get(&device, (int)options.device), "finding the device");
    must(cu.retain(&context, device), "making a context");
    must(cu.set_current(context), "making a context");
    take_memory(&options);
    function = load_kernel(&options);
    for (unsigned i = 0; i < options.streams; i++)
        must(cu.stream_create(&streams[i], 1), "making a stream");

    meet(&options);
    begun = now_ns();
    done = run(&options, function, streams);
    ended = now_ns();
    if (!options.quiet)
        say(&options, done, ended - begun);
    fflush(stdout);
    while (options.hold && !stopped)
        sleep_ns(10000000);
    return 0;
}
