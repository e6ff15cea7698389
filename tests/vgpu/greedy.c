/* SPDX-License-Identifier: Apache-2.0 */

/* clang-format off */
/*
 * A program that wants more of the device than its share, in one way of several, until it is told
 * to end.
 *
 *   greedy capture        unknown kernels while a capture of its own stays open
 *   greedy lost-capture   the same, after a stream was destroyed during its capture
 *   greedy shapes         each function and shape is short once, and long from then on
 *   greedy mixture        one long kernel among many short ones of the same shape
 *   greedy burst          after a pause, all at once as many unknown kernels as there are functions
 *   greedy other DEVICE   launches into a stream of that device while device 0's context is current
 *   greedy multi          one call that launches on two devices at once, a short kernel and a long
 *                         one
 *   greedy sets           sets memory all the time
 *   greedy copies         copies within the device all the time
 *   greedy rows-changed   the same by a description that another thread keeps changing
 *   greedy list-changed   the same by a list
 *   greedy bad-list       lists of copies, the last of which the driver refuses when it did the others
 *   greedy round-list     the same, by sizes that are 0 together
 *   greedy mapped-late    lists of copies whose memory another thread maps while the library looks at
 *                         the rest of the list, which is none
 *   greedy guessed-events records whatever events there may be anew, while kernels run
 *   greedy own-streams    has whatever streams there may be beside its own wait until shortly before a
 *                         kernel ends (with CUDA_DEVICE_MAX_CONNECTIONS=32)
 *   greedy half-graph     launches a graph that the driver refuses when its kernel runs
 *   greedy graph-half     the same of a kernel on device 1, launched on device 0
 *   greedy fault-ends-capture launches into a stream whose capture is lost in the driver's call
 *   greedy fault-makes-current launches without a context, and makes one current in the driver's call
 *   greedy fault-makes-context SHORTS  makes the second context there, and makes that current; after so
 *                         many short launches, the credit of which pays for the long one
 *   greedy fault-makes-stream launches into a handle that becomes a stream's there
 *   greedy graph          a graph of a short kernel on device 0 and a long one on device 1, captured
 *                         and launched in a stream of device 0
 *   greedy graph-kernel   the same, of kernels that are in no module
 *   greedy graph-added    one of a long kernel on device 1 alone, which was no capture's, so launched
 *   greedy graph-unseen   the same, in a context that the runtime's own way made, and nobody entered
 *   greedy graph-sets     one that sets memory of device 1
 *   greedy graph-copies   one that copies within device 1
 *   greedy graph-loop     one that runs a kernel on device 1 again and again
 *   greedy graph-far-set  captured in a stream of device 1: it sets managed memory of device 0
 *   greedy graph-far-node the same, a node of device 1 that is added
 *   greedy graph-far-moved the same, by other parameters of a node that set memory of device 1
 *   greedy graph-far-copy one that was added and copies on device 1, within memory of device 0
 *   greedy graph-apart    not greedy: a graph on each of two devices, launched there in turn
 *   greedy contexts       a context for each kernel, which ends with it
 *   greedy refused        asks for its context's end, which a capture forbids, while kernels run
 *   greedy alternate      not greedy: one thread that launches on two devices in turn
 *   greedy relay COUNT    not greedy: a thread for each so many kernels
 *   greedy blocking       launches that wait for their end (with CUDA_LAUNCH_BLOCKING=1)
 *   greedy gone           launches that block, while another thread ends their streams (the same)
 *   greedy ended          launches into streams that another thread ends at once
 *   greedy spin COUNT     a kernel that ends when one in another stream has run, which is launched
 *                         later, COUNT others before it: prints a line for each pair
 *   greedy graph-spin     the same of kernels of device 0 in two graphs that are launched on device 1
 *   greedy graph-queues   the same, where the kernel that is waited for comes after work in all queues of
 *                         the device on which the other one is
 *   greedy graph-full     not greedy: launches a graph until the queue is full, which goes on after
 *                         another thread has made a graph executable: prints how often
 *   greedy legacy NAME    the same in blocking streams, after work in the legacy one, by its name 0 or 1
 *   greedy values COUNT   the same of streams that wait for values in memory: one launches kernels
 *                         behind a wait, which another one ends that has launched later, COUNT kernels
 *   greedy queued-values  not greedy: a stream waits in each queue of the device but one, and goes on
 *                         after short kernels in the last: prints a line for each round
 *   greedy short-values COUNT  the same with short kernels
 *   greedy behind         a long kernel, then short ones of its shape behind it
 *   greedy large-stacks   a process for each few long kernels, with very large stacks
 *   greedy threadless     the same, in which no thread can be made
 *   greedy kept-thread    launches, and again when it has been idle and no more threads can be made
 *   greedy singles        processes that run one kernel each, which waits for its turn for seconds
 *   greedy exiting        a process for each few long kernels, which it launches while it exits
 *   greedy unmeasured STREAMS  long kernels, while all places are taken where launches are measured: by
 *                         others that wait in so many streams, or, of none, ran beside one that waits
 *   greedy under-capture  a long kernel, then a capture in another stream until it has ended
 *   greedy side CAPTURES  not greedy: 16 streams side by side, while so many captures are open:
 *                         prints how many rounds
 */
/* clang-format on */

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ordinary.h"

typedef int end_capture_fn(cu_handle stream, cu_handle *graph);
typedef int destroy_fn(cu_handle graph);
typedef int get_nodes_fn(cu_handle graph, cu_handle *nodes, size_t *count);
typedef int event_fn(cu_handle *event, unsigned flags);
typedef int record_fn(cu_handle event, cu_handle stream);
typedef int wait_fn(cu_handle stream, cu_handle event, unsigned flags);

#define LONG_NS 5000000
#define SHORT_NS 10000

enum {
    FUNCTIONS = 2000,
    DEPTH = 4, /* launches between two synchronisations */
};

typedef int begin_capture_fn(cu_handle stream, int mode);

static struct {
    cu_init_fn *init;
    cu_device_get_fn *device_get;
    cu_retain_fn *retain;
    cu_ctx_fn *set_current;
    cu_ctx_create_fn *create;
    cu_ctx_fn *destroy;
    cu_module_load_fn *load;
    cu_function_fn *function;
    cu_stream_create_fn *stream_create;
    cu_stream_fn *stream_destroy;
    cu_stream_fn *stream_sync;
    begin_capture_fn *begin_capture;
    cu_launch_fn *launch;
} cu;

static volatile sig_atomic_t stopped;
static cu_handle module, stream, second;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

static void begin(int device_number)
{
    static char image[FUNCTIONS * 24 + 256];
    cu_handle context;
    size_t len;
    int device;

    cu.init = (cu_init_fn *)symbol("cuInit");
    cu.device_get = (cu_device_get_fn *)symbol("cuDeviceGet");
    cu.retain = (cu_retain_fn *)symbol("cuDevicePrimaryCtxRetain");
    cu.set_current = (cu_ctx_fn *)symbol("cuCtxSetCurrent");
    cu.create = (cu_ctx_create_fn *)symbol("cuCtxCreate_v2");
    cu.destroy = (cu_ctx_fn *)symbol("cuCtxDestroy_v2");
    cu.load = (cu_module_load_fn *)symbol("cuModuleLoadData");
    cu.function = (cu_function_fn *)symbol("cuModuleGetFunction");
    cu.stream_create = (cu_stream_create_fn *)symbol("cuStreamCreate");
    cu.stream_destroy = (cu_stream_fn *)symbol("cuStreamDestroy_v2");
    cu.stream_sync = (cu_stream_fn *)symbol("cuStreamSynchronize");
    cu.begin_capture = (begin_capture_fn *)symbol("cuStreamBeginCapture_v2");
    cu.launch = (cu_launch_fn *)symbol("cuLaunchKernel");

    must(cu.init(0), "cuInit");
    must(cu.device_get(&device, device_number), "cuDeviceGet");
    must(cu.retain(&context, device), "cuDevicePrimaryCtxRetain");
    must(cu.set_current(context), "cuCtxSetCurrent");
    len = (size_t)sprintf(image, "hamisim-module 1\nsize=65536\nkernel spin\n");
    len += (size_t)sprintf(image + len, "kernel waiter waits\nkernel poster posts\n");
    for (int i = 0; i < FUNCTIONS; i++)
        len += (size_t)sprintf(image + len, "kernel f%d\n", i);
    must(cu.load(&module, image), "cuModuleLoadData");
    must(cu.stream_create(&stream, 1), "cuStreamCreate");
    must(cu.stream_create(&second, 1), "cuStreamCreate");
}

static cu_handle function_of(const char *name)
{
    cu_handle function;

    must(cu.function(&function, module, name), name);
    return function;
}

static void launch(cu_handle function, unsigned blocks, uint64_t length_ns, uint64_t flag,
                   cu_handle into)
{
    void *params[] = {&length_ns, &flag};

    must(cu.launch(function, blocks, 1, 1, 32, 1, 1, 0, into, params, NULL), "cuLaunchKernel");
}

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

static void capture(int lost)
{
    cu_handle captured;

    must(cu.stream_create(&captured, 1), "cuStreamCreate");
    must(cu.begin_capture(captured, 2), "cuStreamBeginCapture"); /* relaxed */
    if (lost)
        (void)cu.stream_destroy(captured);
    unknown_kernels();
}

static void shapes(void)
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

static void burst(void)
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

static void mixture(void)
{
    cu_handle function = function_of("spin");

    for (unsigned i = 0; !stopped; i++) {
        launch(function, 108, i % 64 == 0 ? 4 * LONG_NS : SHORT_NS, 0, stream);
        if (i % 64 == 0)
            must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
}

static void other(int device_number)
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

static void multi(void)
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

/* As the API reference has CUDA_KERNEL_NODE_PARAMS. */
struct kernel_params {
    cu_handle function;
    unsigned grid[3], block[3], shared;
    void **params, **extra;
    cu_handle kernel, context;
};

/* Who does something in a stream of another device, which belongs to the capture. */
typedef void far_fn(const void *what, cu_handle far_stream);

static void launch_far(const void *kernel, cu_handle far_stream)
{
    launch((cu_handle)(uintptr_t)kernel, 108, LONG_NS, 0, far_stream);
}

static cu_handle captured_graph(far_fn *then, const void *what, cu_handle far_stream,
                                cu_handle far_event)
{
    wait_fn *wait = (wait_fn *)symbol("cuStreamWaitEvent");
    record_fn *record = (record_fn *)symbol("cuEventRecord");
    end_capture_fn *end = (end_capture_fn *)symbol("cuStreamEndCapture");
    cu_handle fork, graph;

    must(((event_fn *)symbol("cuEventCreate"))(&fork, 0), "cuEventCreate");
    must(cu.begin_capture(stream, 2), "cuStreamBeginCapture"); /* relaxed */
    must(record(fork, stream), "cuEventRecord");
    must(wait(far_stream, fork, 0), "cuStreamWaitEvent");
    launch(function_of("spin"), 108, SHORT_NS, 0, stream);
    then(what, far_stream);
    must(record(far_event, far_stream), "cuEventRecord");
    must(wait(stream, far_event, 0), "cuStreamWaitEvent");
    must(end(stream, &graph), "cuStreamEndCapture");
    return graph;
}

static cu_handle added_graph(struct kernel_params params)
{
    typedef int create_fn(cu_handle * graph, unsigned flags);
    typedef int add_fn(cu_handle * node, cu_handle graph, const cu_handle *after, size_t count,
                       const struct kernel_params *params);
    static uint64_t length_ns = LONG_NS, flag;
    static void *list[] = {&length_ns, &flag};
    cu_handle node, graph;

    params.grid[0] = 108;
    params.grid[1] = params.grid[2] = params.block[0] = params.block[1] = params.block[2] = 1;
    params.params = list;
    must(((create_fn *)symbol("cuGraphCreate"))(&graph, 0), "cuGraphCreate");
    must(((add_fn *)symbol("cuGraphAddKernelNode_v2"))(&node, graph, NULL, 0, &params),
         "cuGraphAddKernelNode");
    return graph;
}

/* It becomes a function of a context as it is launched there. */
static cu_handle kernel_of_library(void)
{
    typedef int library_fn(cu_handle * library, const void *code, void *jit, void *jit_values,
                           unsigned jit_count, void *options, void *values, unsigned count);
    typedef int kernel_fn(cu_handle * kernel, cu_handle library, const char *name);
    cu_handle library, kernel;

    must(((library_fn *)symbol("cuLibraryLoadData"))(
             &library, "hamisim-module 1\nsize=65536\nkernel spin\n", NULL, NULL, 0, NULL, NULL, 0),
         "cuLibraryLoadData");
    must(((kernel_fn *)symbol("cuLibraryGetKernel"))(&kernel, library, "spin"), "spin");
    return kernel;
}

typedef int launch_graph_fn(cu_handle exec, cu_handle stream);

static cu_handle executable(cu_handle graph)
{
    typedef int make_fn(cu_handle * exec, cu_handle graph, unsigned long long flags);
    cu_handle exec;

    must(((make_fn *)symbol("cuGraphInstantiateWithFlags"))(&exec, graph, 0), "cuGraphInstantiate");
    return exec;
}

/* Of a table that is no export. */
static cu_handle unseen_context(int device)
{
    typedef int table_fn(const void **table, const unsigned char *uuid);
    typedef int primary_fn(cu_handle * context, int device);
    static const unsigned char uuid[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                           0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
    const void *table;
    primary_fn *make;
    cu_handle context;

    must(((table_fn *)symbol("cuGetExportTable"))(&table, uuid), "cuGetExportTable");
    memcpy(&make, (const char *)table + 2 * sizeof(void *), sizeof(make));
    must(make(&context, device), "making a primary context");
    return context;
}

static void launch_graphs(cu_handle graph)
{
    launch_graph_fn *launch_graph = (launch_graph_fn *)symbol("cuGraphLaunch");
    cu_handle exec = executable(graph);

    while (!stopped) {
        for (int i = 0; i < DEPTH; i++)
            must(launch_graph(exec, stream), "cuGraphLaunch");
        must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
}

static void graph_of_two(const char *way)
{
    cu_handle far, far_stream, far_event;

    begin(1);
    far = strcmp(way, "graph-kernel") == 0 ? kernel_of_library() : function_of("spin");
    far_stream = stream;
    must(((event_fn *)symbol("cuEventCreate"))(&far_event, 0), "cuEventCreate");
    begin(0);
    if (strcmp(way, "graph-added") == 0)
        launch_graphs(added_graph((struct kernel_params){.function = far}));
    else
        launch_graphs(captured_graph(launch_far, far, far_stream, far_event));
}

/* A long kernel, and behind it the record of an event that has gone. Negative: launched there. */
static void half_graph(int launched_on)
{
    typedef int add_fn(cu_handle * node, cu_handle graph, const cu_handle *after, size_t count,
                       cu_handle event);
    launch_graph_fn *launch_graph = (launch_graph_fn *)symbol("cuGraphLaunch");
    cu_handle graph = added_graph((struct kernel_params){.function = function_of("spin")});
    cu_handle exec, event, kernel, node;
    size_t count = 1;

    must(((event_fn *)symbol("cuEventCreate"))(&event, 0), "cuEventCreate");
    must(((get_nodes_fn *)symbol("cuGraphGetNodes"))(graph, &kernel, &count), "cuGraphGetNodes");
    must(((add_fn *)symbol("cuGraphAddEventRecordNode"))(&node, graph, &kernel, 1, event),
         "cuGraphAddEventRecordNode");
    exec = executable(graph);
    must(((destroy_fn *)symbol("cuEventDestroy"))(event), "cuEventDestroy");
    if (launched_on >= 0)
        begin(launched_on);
    while (!stopped) {
        if (launch_graph(exec, stream) == CU_OK)
            exit(1);
        must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
}

static void half_graph_elsewhere(void)
{
    begin(1);
    half_graph(0);
}

static void print_round(unsigned number)
{
    printf("%u\n", number);
    (void)fflush(stdout);
}

static void graph_spin(void)
{
    launch_graph_fn *launch_graph = (launch_graph_fn *)symbol("cuGraphLaunch");
    cu_handle waiter, poster, waits, posts;

    begin(0);
    waiter = function_of("waiter");
    poster = function_of("poster");
    begin(1);
    waits = executable(added_graph((struct kernel_params){.function = waiter}));
    posts = executable(added_graph((struct kernel_params){.function = poster}));
    for (unsigned i = 0; !stopped; i++) {
        must(launch_graph(waits, stream), "cuGraphLaunch");
        must(launch_graph(posts, second), "cuGraphLaunch");
        must(cu.stream_sync(stream), "cuStreamSynchronize");
        must(cu.stream_sync(second), "cuStreamSynchronize");
        print_round(i);
    }
}

enum {
    QUEUES = 8,
};

static void graph_queues(void)
{
    launch_graph_fn *launch_graph = (launch_graph_fn *)symbol("cuGraphLaunch");
    wait_fn *wait = (wait_fn *)symbol("cuStreamWaitEvent");
    record_fn *record = (record_fn *)symbol("cuEventRecord");
    cu_handle waiter, waits, poster, far, streams[QUEUES], events[QUEUES];

    begin(1);
    waiter = function_of("waiter");
    far = function_of("spin");
    for (int i = 0; i < QUEUES; i++) {
        must(cu.stream_create(&streams[i], 1), "cuStreamCreate");
        must(((event_fn *)symbol("cuEventCreate"))(&events[i], 0), "cuEventCreate");
    }
    begin(0);
    poster = function_of("poster");
    waits = executable(added_graph((struct kernel_params){.function = waiter}));
    for (unsigned i = 0; !stopped; i++) {
        must(launch_graph(waits, stream), "cuGraphLaunch");
        for (int j = 0; j < QUEUES; j++) {
            launch(far, 1, SHORT_NS, 0, streams[j]);
            must(record(events[j], streams[j]), "cuEventRecord");
            must(wait(second, events[j], 0), "cuStreamWaitEvent");
        }
        launch(poster, 1, SHORT_NS, 0, second);
        must(cu.stream_sync(stream), "cuStreamSynchronize");
        must(cu.stream_sync(second), "cuStreamSynchronize");
        print_round(i);
    }
}

static void graph_unseen(void)
{
    begin(0);
    launch_graphs(added_graph((struct kernel_params){
        .kernel = kernel_of_library(),
        .context = unseen_context(1),
    }));
}

static void graphs_apart(void)
{
    launch_graph_fn *launch_graph = (launch_graph_fn *)symbol("cuGraphLaunch");
    end_capture_fn *end = (end_capture_fn *)symbol("cuStreamEndCapture");
    cu_handle graph, execs[2], streams[2], kernel = NULL;

    for (int i = 0; i < 2; i++) {
        begin(i);
        kernel = kernel ? kernel : kernel_of_library();
        must(cu.begin_capture(stream, 2), "cuStreamBeginCapture"); /* relaxed */
        launch(kernel, 108, 5 * SHORT_NS, 0, stream);
        must(end(stream, &graph), "cuStreamEndCapture");
        execs[i] = executable(graph);
        streams[i] = stream;
    }
    for (unsigned i = 0; !stopped; i++) {
        for (int j = 0; j < 2; j++) {
            must(launch_graph(execs[j], streams[j]), "cuGraphLaunch");
            if (i % 32 == 31)
                must(cu.stream_sync(streams[j]), "cuStreamSynchronize");
        }
    }
}

#define MEMORY (1ull << 30)

static uint64_t new_memory(void)
{
    typedef int alloc_fn(uint64_t * ptr, size_t bytes);
    uint64_t ptr;

    must(((alloc_fn *)symbol("cuMemAlloc_v2"))(&ptr, MEMORY), "cuMemAlloc");
    return ptr;
}

static void sets(void)
{
    typedef int set_fn(uint64_t ptr, unsigned value, size_t count, cu_handle stream);
    set_fn *set = (set_fn *)symbol("cuMemsetD32Async");
    uint64_t ptr = new_memory();

    while (!stopped) {
        for (int i = 0; i < DEPTH; i++)
            must(set(ptr, 1, MEMORY / 4, stream), "cuMemsetD32Async");
        must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
}

static void copies(void)
{
    typedef int copy_fn(uint64_t to, uint64_t from, size_t bytes, cu_handle stream);
    copy_fn *some[] = {
        (copy_fn *)symbol("cuMemcpyDtoDAsync_v2"),
        (copy_fn *)symbol("cuMemcpyAsync"),
    };
    uint64_t to = new_memory(), from = new_memory();

    while (!stopped) {
        for (int i = 0; i < DEPTH; i++)
            must(some[i % 2](to, from, MEMORY, stream), "cuMemcpyAsync");
        must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
}

/* As the API reference has CUDA_MEMCPY2D. */
struct rows {
    struct {
        size_t x, y;
        int type;
        const void *host;
        uint64_t ptr;
        cu_handle array;
        size_t pitch;
    } from, to;
    size_t width, height;
};

static volatile struct rows rows;
enum {
    LIST = 64,
};

static volatile uint64_t list_to[LIST], list_from[LIST];
static size_t list_bytes[LIST];

/* What is of the host, or nothing, costs nothing. */
static void *change(void *unused)
{
    for (unsigned i = 0; !stopped; i++) {
        rows.from.type = i % 2 ? 1 : 2;
        list_from[0] = i % 2 ? 0 : list_from[1];
    }
    return unused;
}

static void changed(const char *way)
{
    typedef int rows_fn(const volatile struct rows *rows, cu_handle stream);
    typedef int list_fn(const volatile uint64_t *to, const volatile uint64_t *from,
                        const size_t *bytes, size_t count, const void *attributes,
                        const size_t *indices, size_t attribute_count, cu_handle stream);
    rows_fn *copy_rows = (rows_fn *)symbol("cuMemcpy2DAsync_v2");
    list_fn *copy_list = (list_fn *)symbol("cuMemcpyBatchAsync_v2");
    pthread_t thread;

    rows.to.type = rows.from.type = 2;
    rows.to.ptr = new_memory();
    rows.from.ptr = new_memory();
    for (int i = 0; i < LIST; i++) {
        list_to[i] = rows.to.ptr;
        list_from[i] = rows.from.ptr;
        list_bytes[i] = i ? 16 : MEMORY;
    }
    rows.to.pitch = rows.from.pitch = rows.width = 1 << 20;
    rows.height = MEMORY >> 20;
    if (pthread_create(&thread, NULL, change, NULL) != 0)
        exit(1);
    for (unsigned i = 0; !stopped; i++) {
        if (strcmp(way, "rows-changed") == 0)
            (void)copy_rows(&rows, stream);
        else
            (void)copy_list(list_to, list_from, list_bytes, LIST, NULL, NULL, 0, stream);
        if (i % DEPTH == 0)
            must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
    (void)pthread_join(thread, NULL);
}

/* The driver does all of a list but the last, which it refuses. */
static void refused_list(size_t last_bytes)
{
    typedef int list_fn(const uint64_t *to, const uint64_t *from, const size_t *bytes, size_t count,
                        const void *attributes, const size_t *indices, size_t attribute_count,
                        cu_handle stream);
    list_fn *copy_list = (list_fn *)symbol("cuMemcpyBatchAsync_v2");
    uint64_t to[9], from[9];
    size_t bytes[9];

    to[0] = new_memory();
    from[0] = new_memory();
    for (int i = 0; i < 9; i++) {
        to[i] = to[0];
        from[i] = from[0];
        bytes[i] = i < 8 ? MEMORY : last_bytes;
    }
    while (!stopped) {
        if (copy_list(to, from, bytes, 9, NULL, NULL, 0, stream) == 0)
            exit(1);
        must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
}

static void bad_list(void)
{
    refused_list(2 * (size_t)MEMORY);
}

/* All sizes together are 0. */
static void round_list(void)
{
    refused_list(-8 * (size_t)MEMORY);
}

enum {
    LATE_COPIES = 64,
    LATE_REST = 200000,
};
#define LATE_MEMORY ((size_t)4 << 30)

static struct late {
    cu_ptr at, memory;
    cu_handle context;
    _Atomic int asked, mapped;
} late;

static void *map_late(void *unused)
{
    struct {
        int location[2], flags;
    } access = {{1, 0}, 3};
    typedef int access_fn(cu_ptr ptr, size_t bytes, const void *access, size_t count);
    cu_map_fn *map = (cu_map_fn *)symbol("cuMemMap");
    cu_unmap_fn *unmap = (cu_unmap_fn *)symbol("cuMemUnmap");
    access_fn *allow = (access_fn *)symbol("cuMemSetAccess");

    (void)unused;
    must(cu.set_current(late.context), "cuCtxSetCurrent");
    for (unsigned round = 0; !stopped; round++) {
        while (!late.asked && !stopped)
            usleep(50);
        usleep(4000 + 2000 * (round % 6));
        must(map(late.at, LATE_MEMORY, 0, late.memory, 0), "cuMemMap");
        must(allow(late.at, LATE_MEMORY, &access, 1), "cuMemSetAccess");
        late.mapped = 1;
        while (late.asked)
            usleep(50);
        must(unmap(late.at, LATE_MEMORY), "cuMemUnmap");
        late.mapped = 0;
    }
    return NULL;
}

static void mapped_late(void)
{
    typedef int list_fn(const uint64_t *to, const uint64_t *from, const size_t *bytes, size_t count,
                        const void *attributes, const size_t *indices, size_t attribute_count,
                        cu_handle stream);
    static const struct cu_allocation_prop prop = {.type = 1, .location_type = 1};
    static uint64_t at[LATE_COPIES + LATE_REST];
    static size_t bytes[LATE_COPIES + LATE_REST];
    cu_ctx_out_fn *current = (cu_ctx_out_fn *)symbol("cuCtxGetCurrent");
    list_fn *copy_list = (list_fn *)symbol("cuMemcpyBatchAsync_v2");
    pthread_t thread;

    must(current(&late.context), "cuCtxGetCurrent");
    must(((cu_create_fn *)symbol("cuMemCreate"))(&late.memory, LATE_MEMORY, &prop, 0),
         "cuMemCreate");
    must(((cu_reserve_fn *)symbol("cuMemAddressReserve"))(&late.at, LATE_MEMORY, 0, 0, 0),
         "cuMemAddressReserve");
    for (size_t i = 0; i < LATE_COPIES + LATE_REST; i++) {
        at[i] = i < LATE_COPIES ? late.at : 16;
        bytes[i] = i < LATE_COPIES ? LATE_MEMORY : 1;
    }
    if (pthread_create(&thread, NULL, map_late, NULL) != 0)
        exit(1);
    while (!stopped) {
        late.asked = 1;
        (void)copy_list(at, at, bytes, LATE_COPIES + LATE_REST, NULL, NULL, 0, stream);
        must(cu.stream_sync(stream), "cuStreamSynchronize");
        late.asked = 0;
        while (late.mapped && !stopped)
            usleep(50);
    }
    (void)pthread_join(thread, NULL);
}

static void copy_far(const void *pointers, cu_handle far_stream)
{
    typedef int copy_fn(uint64_t to, uint64_t from, size_t bytes, cu_handle stream);
    copy_fn *copy = (copy_fn *)symbol("cuMemcpyDtoDAsync_v2");
    const uint64_t *ptrs = pointers;

    must(copy(ptrs[0], ptrs[1], MEMORY, far_stream), "cuMemcpyDtoDAsync");
}

static void graph_copies(void)
{
    cu_handle far_stream, far_event;
    uint64_t ptrs[2];

    begin(1);
    ptrs[0] = new_memory();
    ptrs[1] = new_memory();
    far_stream = stream;
    must(((event_fn *)symbol("cuEventCreate"))(&far_event, 0), "cuEventCreate");
    begin(0);
    launch_graphs(captured_graph(copy_far, ptrs, far_stream, far_event));
}

/* As the API reference has CUgraphNodeParams, of a conditional node. */
struct conditional_params {
    int type, reserved[3];
    uint64_t handle;
    int choice;
    unsigned count;
    cu_handle *bodies, context;
    uint64_t rest[26];
};

static void graph_loop(void)
{
    typedef int create_fn(cu_handle * graph, unsigned flags);
    typedef int condition_fn(uint64_t * handle, cu_handle graph, cu_handle context,
                             unsigned initial, unsigned flags);
    typedef int add_fn(cu_handle * node, cu_handle graph, const cu_handle *after, size_t count,
                       struct conditional_params *params);
    typedef int add_kernel_fn(cu_handle * node, cu_handle graph, const cu_handle *after,
                              size_t count, const struct kernel_params *params);
    uint64_t length_ns = SHORT_NS, condition;
    void *list[] = {&length_ns, &condition, NULL};
    struct conditional_params loop = {.type = 13, .choice = 1, .count = 1};
    struct kernel_params kernel = {.grid = {108, 1, 1}, .block = {1, 1, 1}, .params = list};
    cu_handle node, graph, library;

    _Static_assert(sizeof(loop) == 256, "the driver's");
    begin(1);
    must(((cu_ctx_out_fn *)symbol("cuCtxGetCurrent"))(&loop.context), "cuCtxGetCurrent");
    must(cu.load(&library, "hamisim-module 1\nsize=65536\nkernel count counts\n"), "cuModuleLoad");
    must(cu.function(&kernel.function, library, "count"), "count");
    begin(0);
    must(((create_fn *)symbol("cuGraphCreate"))(&graph, 0), "cuGraphCreate");
    must(((condition_fn *)symbol("cuGraphConditionalHandleCreate"))(&condition, graph, loop.context,
                                                                    LONG_NS / SHORT_NS, 1),
         "cuGraphConditionalHandleCreate");
    loop.handle = condition;
    must(((add_fn *)symbol("cuGraphAddNode"))(&node, graph, NULL, 0, &loop), "cuGraphAddNode");
    must(((add_kernel_fn *)symbol("cuGraphAddKernelNode_v2"))(&node, loop.bodies[0], NULL, 0,
                                                              &kernel),
         "cuGraphAddKernelNode");
    launch_graphs(graph);
}

/* As the API reference has CUDA_MEMSET_NODE_PARAMS. */
struct set_params {
    uint64_t ptr;
    size_t pitch;
    unsigned value, element_size;
    size_t width, height;
};

static struct set_params set_of(uint64_t ptr)
{
    return (struct set_params){.ptr = ptr, .element_size = 4, .width = MEMORY / 4, .height = 1};
}

static uint64_t new_managed(void)
{
    uint64_t ptr;

    must(((int (*)(uint64_t *, size_t, unsigned))symbol("cuMemAllocManaged"))(&ptr, MEMORY, 1),
         "cuMemAllocManaged");
    return ptr;
}

static cu_handle new_graph(void)
{
    typedef int create_fn(cu_handle * graph, unsigned flags);
    cu_handle graph;

    must(((create_fn *)symbol("cuGraphCreate"))(&graph, 0), "cuGraphCreate");
    return graph;
}

static cu_handle add_set(cu_handle graph, struct set_params params, cu_handle context)
{
    typedef int add_fn(cu_handle * node, cu_handle graph, const cu_handle *after, size_t count,
                       const struct set_params *params, cu_handle context);
    cu_handle node;

    must(((add_fn *)symbol("cuGraphAddMemsetNode"))(&node, graph, NULL, 0, &params, context),
         "cuGraphAddMemsetNode");
    return node;
}

/* As the API reference has CUDA_MEMCPY3D. */
struct layers {
    struct {
        size_t x, y, z, lod;
        int type;
        const void *host;
        uint64_t ptr;
        cu_handle array;
        void *reserved;
        size_t pitch, height;
    } from, to;
    size_t width, height, depth;
};

static void add_copy(cu_handle graph, uint64_t ptr, cu_handle context)
{
    typedef int add_fn(cu_handle * node, cu_handle graph, const cu_handle *after, size_t count,
                       const struct layers *params, cu_handle context);
    struct layers params = {.width = 1 << 20, .height = MEMORY >> 21, .depth = 1};
    cu_handle node;

    params.from.type = params.to.type = 2;
    params.from.ptr = ptr;
    params.to.ptr = ptr + MEMORY / 2;
    params.from.pitch = params.to.pitch = params.width;
    must(((add_fn *)symbol("cuGraphAddMemcpyNode"))(&node, graph, NULL, 0, &params, context),
         "cuGraphAddMemcpyNode");
}

static void set_far(const void *ptr, cu_handle far_stream)
{
    typedef int set_fn(uint64_t ptr, unsigned value, size_t count, cu_handle stream);

    must(((set_fn *)symbol("cuMemsetD32Async"))(*(const uint64_t *)ptr, 1, MEMORY / 4, far_stream),
         "cuMemsetD32Async");
}

static void graph_sets(const char *way)
{
    typedef int change_fn(cu_handle node, const struct set_params *params);
    cu_handle far, far_stream, far_event, graph, node;
    struct set_params params;
    uint64_t ptr, far_ptr;

    begin(1);
    must(((cu_ctx_out_fn *)symbol("cuCtxGetCurrent"))(&far), "cuCtxGetCurrent");
    far_ptr = new_memory();
    far_stream = stream;
    must(((event_fn *)symbol("cuEventCreate"))(&far_event, 0), "cuEventCreate");
    begin(0);
    ptr = strcmp(way, "graph-far-copy") == 0 ? new_memory() : new_managed();
    graph = new_graph();
    if (strcmp(way, "graph-far-set") == 0) {
        graph = captured_graph(set_far, &ptr, far_stream, far_event);
    } else if (strcmp(way, "graph-far-copy") == 0) {
        add_copy(graph, ptr, far);
    } else if (strcmp(way, "graph-far-node") == 0) {
        (void)add_set(graph, set_of(ptr), far);
    } else {
        node = add_set(graph, set_of(far_ptr), far);
        params = set_of(ptr);
        if (strcmp(way, "graph-far-moved") == 0)
            must(((change_fn *)symbol("cuGraphMemsetNodeSetParams"))(node, &params),
                 "cuGraphMemsetNodeSetParams");
    }
    launch_graphs(graph);
}

static void contexts(void)
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

static void refused(void)
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

static void alternate(void)
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

static void blocking(void)
{
    cu_handle function = function_of("spin");

    while (!stopped)
        launch(function, 108, LONG_NS / 2, 0, stream);
}

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
static void fault_ends_capture(void)
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

static void fault_makes_current(void)
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

static void make_contexts(int shorts)
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
static void make_streams(void)
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

static void guessed_events(void)
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

static void own_streams(void)
{
    typedef int value_fn(cu_handle stream, uint64_t ptr, unsigned value, unsigned flags);
    typedef int alloc_fn(uint64_t * ptr, size_t bytes);
    value_fn *wait_value = (value_fn *)symbol("cuStreamWaitValue32_v2");
    value_fn *write_value = (value_fn *)symbol("cuStreamWriteValue32");
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
            must(wait_value(streams[i], word, round, 0), "cuStreamWaitValue32");
        launch(function, 108, 4 * (uint64_t)LONG_NS, 0, stream);
        usleep(16000);
        must(write_value(other, word, round, 0), "cuStreamWriteValue32");
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

static void gone(void)
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

static void ended(void)
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

static void relay(int count)
{
    cu_ctx_out_fn *current = (cu_ctx_out_fn *)symbol("cuCtxGetCurrent");
    cu_handle context;
    pthread_t thread;

    relay_launches = (unsigned)count;
    must(current(&context), "cuCtxGetCurrent");
    while (!stopped && pthread_create(&thread, NULL, launch_some, context) == 0)
        (void)pthread_join(thread, NULL);
}

static void spin(int count)
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

static void legacy(int name)
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

/* What waits for a value is on no multiprocessor, and costs nothing. */
static void values(const char *way, int count)
{
    const uint64_t length_ns = strcmp(way, "short-values") == 0 ? 5 * SHORT_NS : LONG_NS;

    typedef int value_fn(cu_handle stream, uint64_t ptr, unsigned value, unsigned flags);
    value_fn *wait = (value_fn *)symbol("cuStreamWaitValue32_v2");
    value_fn *write = (value_fn *)symbol("cuStreamWriteValue32_v2");
    uint64_t ptr = new_memory();

    for (int i = 1; !stopped; i++) {
        must(wait(stream, ptr, (unsigned)i, 0), "cuStreamWaitValue32"); /* or more */
        for (int j = 0; j < 4; j++)
            launch(function_of("spin"), 108, length_ns, 0, stream);
        for (int j = 0; j < count; j++)
            launch(function_of("f1"), 108, length_ns, 0, second);
        must(write(second, ptr, (unsigned)i, 0), "cuStreamWriteValue32");
        must(cu.stream_sync(stream), "cuStreamSynchronize");
        printf("%d\n", i);
        (void)fflush(stdout);
    }
}

/* Into the stream, which waits, until its queue is full: then a launch waits, too. */
static volatile int filled;

static void *fill_with_graphs(void *exec)
{
    launch_graph_fn *launch_graph = (launch_graph_fn *)symbol("cuGraphLaunch");
    cu_handle context;

    must(cu.retain(&context, 0), "cuDevicePrimaryCtxRetain");
    must(cu.set_current(context), "cuCtxSetCurrent");
    for (int i = 0; i < 5000; i++) {
        must(launch_graph(exec, stream), "cuGraphLaunch");
        filled++;
    }
    return NULL;
}

static void graph_full(void)
{
    typedef int value_fn(cu_handle stream, uint64_t ptr, unsigned value, unsigned flags);
    cu_alloc_async_fn *alloc = (cu_alloc_async_fn *)symbol("cuMemAllocAsync");
    end_capture_fn *end = (end_capture_fn *)symbol("cuStreamEndCapture");
    uint64_t ptr = new_memory();
    cu_handle graph;
    cu_ptr other;
    pthread_t thread;
    int before = -1;

    must(alloc(&other, 4096, second), "cuMemAllocAsync");      /* graphs may allocate, too */
    must(cu.begin_capture(second, 2), "cuStreamBeginCapture"); /* relaxed */
    launch(function_of("spin"), 1, 1000, 0, second);
    must(end(second, &graph), "cuStreamEndCapture");
    must(((value_fn *)symbol("cuStreamWaitValue32_v2"))(stream, ptr, 1, 0), "cuStreamWaitValue32");
    if (pthread_create(&thread, NULL, fill_with_graphs, executable(graph)) != 0)
        exit(1);
    while (filled == 0 || filled != before) {
        before = filled;
        usleep(200000);
    }
    (void)executable(graph);
    must(((value_fn *)symbol("cuStreamWriteValue32_v2"))(second, ptr, 1, 0), "cuStreamWriteValue");
    (void)pthread_join(thread, NULL);
    printf("%d %d\n", before, filled);
    (void)fflush(stdout);
}

static void queued_values(void)
{
    typedef int value_fn(cu_handle stream, uint64_t ptr, unsigned value, unsigned flags);
    value_fn *wait = (value_fn *)symbol("cuStreamWaitValue32_v2");
    value_fn *write = (value_fn *)symbol("cuStreamWriteValue32_v2");
    cu_handle waiting[7] = {stream}, function = function_of("spin");
    uint64_t ptr = new_memory();

    for (int i = 1; i < 7; i++)
        must(cu.stream_create(&waiting[i], 1), "cuStreamCreate");
    for (unsigned i = 1; !stopped; i++) {
        for (int j = 0; j < 7; j++)
            must(wait(waiting[j], ptr, i, 0), "cuStreamWaitValue32"); /* or more */
        for (int j = 0; j < 10; j++) {
            launch(function, 1, 1000, 0, second);
            must(cu.stream_sync(second), "cuStreamSynchronize");
        }
        must(write(second, ptr, i, 0), "cuStreamWriteValue32");
        for (int j = 0; j < 7; j++)
            must(cu.stream_sync(waiting[j]), "cuStreamSynchronize");
        printf("%u\n", i);
        (void)fflush(stdout);
    }
}

static void short_ones(int count)
{
    for (int i = 0; i < count && !stopped; i++)
        launch(function_of("spin"), 108, SHORT_NS / 10, 0, stream);
}

static void behind(void)
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
static void unmeasured(int streams)
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
        must(wait(waiting[i], ptr, 1, 0), "cuStreamWaitValue32"); /* for ever */
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

/* Several kernels for each process, which ends before it launches again. */
static void processes(const char *way)
{
    const char *words[] = {"greedy", way, NULL};

    for (unsigned i = 0; !stopped; i++) {
        pid_t child = fork();

        if (child == 0) {
            if (i) /* the first one's words are enough */
                (void)freopen("/dev/null", "w", stderr);
            (void)execv("/proc/self/exe", (char **)words);
            _exit(1);
        }
        (void)waitpid(child, NULL, 0);
    }
}

/* So large are the stacks of threads, too: there is no room for one. */
static void large_stacks(void)
{
    struct rlimit limit = {(rlim_t)1 << 46, (rlim_t)1 << 46};

    if (setrlimit(RLIMIT_STACK, &limit) != 0)
        exit(1);
    processes("last-kernels");
}

static void forbid_threads(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS), /* then clone() is tried */
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(rules) / sizeof(rules[0]), rules};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        exit(1);
}

static void threadless(void)
{
    forbid_threads();
    processes("last-kernels");
}

static void kept_thread(void)
{
    launch(function_of("spin"), 108, SHORT_NS, 0, stream);
    must(cu.stream_sync(stream), "cuStreamSynchronize");
    forbid_threads();
    usleep(2500000);
    launch(function_of("spin"), 108, SHORT_NS, 0, stream);
    must(cu.stream_sync(stream), "cuStreamSynchronize");
}

static void singles(void)
{
    processes("single-kernel");
}

/* It waits for its turn for seconds. */
static void single_kernel(void)
{
    launch(function_of("spin"), 108, 300000000, 0, stream);
    must(cu.stream_sync(stream), "cuStreamSynchronize");
    _exit(0);
}

static void exiting(void)
{
    processes("exit-kernels");
}

static void last_kernels(void)
{
    for (unsigned i = 0; i < 8; i++)
        launch(function_of("spin"), 108 + i, 6 * (uint64_t)LONG_NS, 0, stream);
    must(cu.stream_sync(stream), "cuStreamSynchronize");
    _exit(0);
}

static void exit_kernels(void)
{
    (void)atexit(last_kernels); /* runs after those that the first launch registers */
    short_ones(3);
    exit(0);
}

static void under_capture(void)
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

static void side(int captures)
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
static void captures(void)
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
static void joins(void)
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
static void joins_beside(void)
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

static void captured_on_two(void)
{
    graph_of_two("graph");
}

static void kernel_on_two(void)
{
    graph_of_two("graph-kernel");
}

static void added_elsewhere(void)
{
    graph_of_two("graph-added");
}

static void long_values(int count)
{
    values("values", count);
}

static void short_values(int count)
{
    values("short-values", count);
}

static void sets_there(void)
{
    graph_sets("graph-sets");
}

static void far_set(void)
{
    graph_sets("graph-far-set");
}

static void far_node(void)
{
    graph_sets("graph-far-node");
}

static void far_moved(void)
{
    graph_sets("graph-far-moved");
}

static void far_copy(void)
{
    graph_sets("graph-far-copy");
}

static void rows_changed(void)
{
    changed("rows-changed");
}

static void list_changed(void)
{
    changed("list-changed");
}

static const struct way {
    const char *name;
    void (*run)(void);
    void (*run_with)(int number); /* its argument, or this if there is none */
    int number;
    int begins; /* has a device of its own choice */
} ways[] = {
    {"other", NULL, other, 1, 1},
    {"alternate", alternate, .begins = 1},
    {"multi", multi, .begins = 1},
    {"graph", captured_on_two, .begins = 1},
    {"graph-kernel", kernel_on_two, .begins = 1},
    {"graph-added", added_elsewhere, .begins = 1},
    {"graph-apart", graphs_apart, .begins = 1},
    {"graph-copies", graph_copies, .begins = 1},
    {"graph-loop", graph_loop, .begins = 1},
    {"graph-sets", sets_there, .begins = 1},
    {"graph-far-set", far_set, .begins = 1},
    {"graph-far-node", far_node, .begins = 1},
    {"graph-far-moved", far_moved, .begins = 1},
    {"graph-far-copy", far_copy, .begins = 1},
    {"graph-spin", graph_spin, .begins = 1},
    {"graph-full", graph_full},
    {"graph-queues", graph_queues, .begins = 1},
    {"graph-unseen", graph_unseen, .begins = 1},
    {"contexts", contexts},
    {"refused", refused},
    {"capture", NULL, capture, 0},
    {"lost-capture", NULL, capture, 1},
    {"sets", sets},
    {"copies", copies},
    {"rows-changed", rows_changed},
    {"list-changed", list_changed},
    {"bad-list", bad_list},
    {"guessed-events", guessed_events},
    {"mapped-late", mapped_late},
    {"half-graph", NULL, half_graph, -1},
    {"graph-half", half_graph_elsewhere, .begins = 1},
    {"own-streams", own_streams},
    {"fault-ends-capture", fault_ends_capture},
    {"fault-makes-current", fault_makes_current},
    {"fault-makes-context", NULL, make_contexts, 0},
    {"fault-makes-stream", make_streams},
    {"round-list", round_list},
    {"shapes", shapes},
    {"burst", burst},
    {"mixture", mixture},
    {"blocking", blocking},
    {"gone", gone},
    {"ended", ended},
    {"relay", NULL, relay, 4},
    {"spin", NULL, spin, 3},
    {"legacy", NULL, legacy, 0},
    {"queued-values", queued_values},
    {"values", NULL, long_values, 4},
    {"short-values", NULL, short_values, 4},
    {"behind", behind},
    {"large-stacks", large_stacks, .begins = 1},
    {"threadless", threadless, .begins = 1},
    {"kept-thread", kept_thread},
    {"singles", singles, .begins = 1},
    {"single-kernel", single_kernel},
    {"exiting", exiting, .begins = 1},
    {"last-kernels", last_kernels},
    {"exit-kernels", exit_kernels},
    {"unmeasured", NULL, unmeasured, 1},
    {"under-capture", under_capture},
    {"side", NULL, side, 0},
    {"captures", captures},
    {"joins", joins},
    {"joins-beside", joins_beside},
};

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";

    (void)signal(SIGTERM, stop);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        const struct way *way = &ways[i];

        if (strcmp(way->name, name) != 0)
            continue;
        if (!way->begins)
            begin(0);
        if (way->run)
            way->run();
        else
            way->run_with(argc > 2 ? atoi(argv[2]) : way->number);
        return 0;
    }
    return 2;
}
