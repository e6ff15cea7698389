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
 *   greedy all-reduce RANK not greedy: steps on one of two devices, which wait for one another in
 *                         kernels: prints a line for each; rank 0 is late once
 *   greedy all-reduces RANK the same, very short ones, 20 to a line
 *   greedy legacy NAME    the same in blocking streams, after work in the legacy one, by its name 0 or 1
 *   greedy values COUNT   the same of streams that wait for values in memory: one launches kernels
 *                         behind a wait, which another one ends that has launched later, COUNT kernels
 *   greedy queued-values  not greedy: a stream waits in each queue of the device but one, and goes on
 *                         after short kernels in the last: prints a line for each round
 *   greedy short-values COUNT  the same with short kernels
 *   greedy run-ahead COUNT not greedy: a thread fills a stream behind a wait, by COUNT launches and by
 *                         waits, and another one ends it after short kernels in another stream:
 *                         prints a line for each round
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

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "greedy_ways.h"

struct greedy_driver cu;
volatile sig_atomic_t stopped;
cu_handle stream, second;

static cu_handle module;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

void begin(int device_number)
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

cu_handle function_of(const char *name)
{
    cu_handle function;

    must(cu.function(&function, module, name), name);
    return function;
}

void launch(cu_handle function, unsigned blocks, uint64_t length_ns, uint64_t flag, cu_handle into)
{
    void *params[] = {&length_ns, &flag};

    must(cu.launch(function, blocks, 1, 1, 32, 1, 1, 0, into, params, NULL), "cuLaunchKernel");
}

static const struct way {
    const char *name;
    void (*run)(void);
    void (*run_with)(int number); /* its argument, or this if there is none */
    int number;
    int begins; /* has a device of its own choice */
} ways[] = {
    {"other", NULL, way_other, 1, 1},
    {"alternate", way_alternate, .begins = 1},
    {"multi", way_multi, .begins = 1},
    {"graph", way_captured_on_two, .begins = 1},
    {"graph-kernel", way_kernel_on_two, .begins = 1},
    {"graph-added", way_added_elsewhere, .begins = 1},
    {"graph-apart", way_graphs_apart, .begins = 1},
    {"graph-copies", way_graph_copies, .begins = 1},
    {"graph-loop", way_graph_loop, .begins = 1},
    {"graph-sets", way_sets_there, .begins = 1},
    {"graph-far-set", way_far_set, .begins = 1},
    {"graph-far-node", way_far_node, .begins = 1},
    {"graph-far-moved", way_far_moved, .begins = 1},
    {"graph-far-copy", way_far_copy, .begins = 1},
    {"graph-spin", way_graph_spin, .begins = 1},
    {"graph-full", way_graph_full},
    {"graph-queues", way_graph_queues, .begins = 1},
    {"graph-unseen", way_graph_unseen, .begins = 1},
    {"all-reduce", NULL, way_all_reduce, .begins = 1},
    {"all-reduces", NULL, way_all_reduces, .begins = 1},
    {"contexts", way_contexts},
    {"refused", way_refused},
    {"capture", NULL, way_capture, 0},
    {"lost-capture", NULL, way_capture, 1},
    {"sets", way_sets},
    {"copies", way_copies},
    {"rows-changed", way_rows_changed},
    {"list-changed", way_list_changed},
    {"bad-list", way_bad_list},
    {"guessed-events", way_guessed_events},
    {"mapped-late", way_mapped_late},
    {"half-graph", NULL, way_half_graph, -1},
    {"graph-half", way_half_graph_elsewhere, .begins = 1},
    {"own-streams", way_own_streams},
    {"fault-ends-capture", way_fault_ends_capture},
    {"fault-makes-current", way_fault_makes_current},
    {"fault-makes-context", NULL, way_make_contexts, 0},
    {"fault-makes-stream", way_make_streams},
    {"round-list", way_round_list},
    {"counter", way_counter},
    {"shapes", way_shapes},
    {"burst", way_burst},
    {"mixture", way_mixture},
    {"blocking", way_blocking},
    {"gone", way_gone},
    {"ended", way_ended},
    {"relay", NULL, way_relay, 4},
    {"spin", NULL, way_spin, 3},
    {"legacy", NULL, way_legacy, 0},
    {"queued-values", way_queued_values},
    {"run-ahead", NULL, way_run_ahead, 4},
    {"values", NULL, way_long_values, 4},
    {"short-values", NULL, way_short_values, 4},
    {"behind", way_behind},
    {"large-stacks", way_large_stacks, .begins = 1},
    {"threadless", way_threadless, .begins = 1},
    {"kept-thread", way_kept_thread},
    {"singles", way_singles, .begins = 1},
    {"single-kernel", way_single_kernel},
    {"exiting", way_exiting, .begins = 1},
    {"last-kernels", way_last_kernels},
    {"exit-kernels", way_exit_kernels},
    {"unmeasured", NULL, way_unmeasured, 1},
    {"under-capture", way_under_capture},
    {"side", NULL, way_side, 0},
    {"captures", way_captures},
    {"joins", way_joins},
    {"joins-beside", way_joins_beside},
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
