/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What greedy.c's ways have in common. A way goes on until the program is told to end; one that
 * takes a number has it from the command line.
 */

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#include "ordinary.h"

#define LONG_NS 5000000
#define SHORT_NS 10000
#define MEMORY (1ull << 30)

enum {
    FUNCTIONS = 2000,
    DEPTH = 4, /* launches between two synchronisations */
};

typedef int end_capture_fn(cu_handle stream, cu_handle *graph);
typedef int destroy_fn(cu_handle graph);
typedef int get_nodes_fn(cu_handle graph, cu_handle *nodes, size_t *count);
typedef int event_fn(cu_handle *event, unsigned flags);
typedef int record_fn(cu_handle event, cu_handle stream);
typedef int wait_fn(cu_handle stream, cu_handle event, unsigned flags);
typedef int begin_capture_fn(cu_handle stream, int mode);

extern struct greedy_driver {
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

extern volatile sig_atomic_t stopped;
/* Of the device that was begun with last. */
extern cu_handle stream, second;

/* Its context is made current, and has streams and a module of its own. */
void begin(int device_number);
cu_handle function_of(const char *name);
void launch(cu_handle function, unsigned blocks, uint64_t length_ns, uint64_t flag, cu_handle into);

/* Launches so many very short kernels. */
void short_ones(int count);
/* MEMORY bytes */
uint64_t new_memory(void);
/* It becomes a function of a context as it is launched there. */
cu_handle kernel_of_library(void);

/* greedy_kernels.c */
void way_other(int number);
void way_alternate(void);
void way_multi(void);
void way_contexts(void);
void way_refused(void);
void way_capture(int number);
void way_shapes(void);
void way_burst(void);
void way_mixture(void);
void way_blocking(void);
void way_relay(int number);
void way_behind(void);
void way_unmeasured(int number);

/* greedy_graphs.c */
void way_captured_on_two(void);
void way_kernel_on_two(void);
void way_added_elsewhere(void);
void way_graphs_apart(void);
void way_graph_copies(void);
void way_graph_loop(void);
void way_sets_there(void);
void way_far_set(void);
void way_far_node(void);
void way_far_moved(void);
void way_far_copy(void);
void way_graph_spin(void);
void way_graph_full(void);
void way_graph_queues(void);
void way_graph_unseen(void);
void way_half_graph(int number);
void way_half_graph_elsewhere(void);

/* greedy_memory.c */
void way_sets(void);
void way_copies(void);
void way_rows_changed(void);
void way_list_changed(void);
void way_bad_list(void);
void way_mapped_late(void);
void way_round_list(void);

/* greedy_faults.c */
void way_guessed_events(void);
void way_own_streams(void);
void way_fault_ends_capture(void);
void way_fault_makes_current(void);
void way_make_contexts(int number);
void way_make_streams(void);
void way_gone(void);
void way_ended(void);

/* greedy_clock.c */
void way_counter(void);

/* greedy_waits.c */
void way_spin(int number);
void way_legacy(int number);
void way_all_reduce(int number);
void way_all_reduces(int number);
void way_queued_values(void);
void way_run_ahead(int number);
void way_long_values(int number);
void way_short_values(int number);

/* greedy_processes.c */
void way_large_stacks(void);
void way_threadless(void);
void way_kept_thread(void);
void way_singles(void);
void way_single_kernel(void);
void way_exiting(void);
void way_last_kernels(void);
void way_exit_kernels(void);

/* greedy_captures.c */
void way_under_capture(void);
void way_side(int number);
void way_captures(void);
void way_joins(void);
void way_joins_beside(void);
