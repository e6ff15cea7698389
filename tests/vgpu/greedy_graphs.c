/* SPDX-License-Identifier: Apache-2.0 */

/* Of greedy.c: graphs, of several devices or that are launched elsewhere. */

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "greedy_ways.h"

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

cu_handle kernel_of_library(void)
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
void way_half_graph(int launched_on)
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

void way_half_graph_elsewhere(void)
{
    begin(1);
    way_half_graph(0);
}

static void print_round(unsigned number)
{
    printf("%u\n", number);
    (void)fflush(stdout);
}

void way_graph_spin(void)
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

void way_graph_queues(void)
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

void way_graph_unseen(void)
{
    begin(0);
    launch_graphs(added_graph((struct kernel_params){
        .kernel = kernel_of_library(),
        .context = unseen_context(1),
    }));
}

void way_graphs_apart(void)
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

static void copy_far(const void *pointers, cu_handle far_stream)
{
    typedef int copy_fn(uint64_t to, uint64_t from, size_t bytes, cu_handle stream);
    copy_fn *copy = (copy_fn *)symbol("cuMemcpyDtoDAsync_v2");
    const uint64_t *ptrs = pointers;

    must(copy(ptrs[0], ptrs[1], MEMORY, far_stream), "cuMemcpyDtoDAsync");
}

void way_graph_copies(void)
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

void way_graph_loop(void)
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

void way_graph_full(void)
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

void way_captured_on_two(void)
{
    graph_of_two("graph");
}

void way_kernel_on_two(void)
{
    graph_of_two("graph-kernel");
}

void way_added_elsewhere(void)
{
    graph_of_two("graph-added");
}

void way_sets_there(void)
{
    graph_sets("graph-sets");
}

void way_far_set(void)
{
    graph_sets("graph-far-set");
}

void way_far_node(void)
{
    graph_sets("graph-far-node");
}

void way_far_moved(void)
{
    graph_sets("graph-far-moved");
}

void way_far_copy(void)
{
    graph_sets("graph-far-copy");
}
