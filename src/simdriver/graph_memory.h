/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Memory that graphs allocate: an address from the node's making on, and memory of its device from
 * a launch, or an upload, on. What maps and launches is under the machine's lock.
 *
 * What a graph frees itself lies in one range of its own, in which what comes after a free may use
 * its place again; such ranges of graphs that were launched last in the same stream lie in the same
 * memory. What is left over at the graph's end is memory of its own until somebody frees it.
 * Nothing is given back to the device but by cuDeviceGraphMemTrim(), of what no graph on its way
 * uses.
 */

#include "simdriver/graph.h"
#include "simdriver/guest.h"

struct graph_memory {
    uint64_t address, bytes;
    uint64_t asked_bytes;     /* before they were rounded up */
    struct guest_place place; /* managed: it was asked for so, and does not move all the same */
    unsigned holds;           /* of nodes */
    bool live;                /* a launch gave it out, and nobody has freed it since */
    bool mapped;              /* has memory of its own */
    struct graph_memory *next;
};

/* Whether the driver has nodes that allocate there. */
bool graph_memory_may_be(const struct guest_place *place);

/* With one hold; NULL when there is no room for addresses, or it is more than the device has. */
struct graph_memory *graph_memory_new(const struct guest_place *place, uint64_t bytes);
void graph_memory_hold(struct graph_memory *memory);
void graph_memory_drop(struct graph_memory *memory);

/* By the address of a living one's node, or of a living allocation. */
struct graph_memory *graph_memory_find(uint64_t address);

/* What a graph's launches will need, written into what is launched, in the order of the graph. */
bool graph_memory_plan(struct graph *exec, struct graph_node *const *order, size_t count);

/* Takes the memory for launches in a stream. CUDA_ERROR_OUT_OF_MEMORY: nothing is mapped that was
 * not before, and nothing was taken. */
CUresult graph_memory_map(struct graph *exec, uint32_t stream);

/* Whether what it allocates is free, or may be freed, and what it frees is not: what a launch must
 * find. After the launch: it allocated and freed it. */
bool graph_memory_may_launch(const struct graph *exec);
void graph_memory_launched(struct graph *exec);

/* It is gone. */
void graph_memory_forget(struct graph *exec);
