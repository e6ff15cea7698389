/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Graphs: nodes and what each comes after, as captures and programs make them; and what programs
 * launch, whose nodes are copies in an order that the dependencies allow. A launch does them one
 * after the other. As with the driver, one thread at a time may use a graph.
 */

#include <stdbool.h>
#include <stddef.h>

#include "driver/cuda.h"
#include "simdriver/state.h"

struct graph_memory;
struct semaphores;

/* What conditional nodes look at, and kernels count down. */
struct graph_condition {
    uint64_t id; /* its handle; never used again */
    uint32_t context, context_gen;
    unsigned initial, value;
    bool assigns; /* the initial value, at each launch */
    bool used;    /* by a node */
    struct graph_condition *next;
};

/* A CUgraphNode; never freed, only used again. */
struct graph_node {
    uint32_t magic;
    CUgraphNodeType type;
    struct graph *graph;
    struct sim_op op; /* of a kernel; of a record and a wait: the event and its generation */
    uint32_t context, context_gen; /* in which a kernel runs, whatever stream it is launched in */
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_MEMSET_NODE_PARAMS set; /* of memory; of a copy where to, and how much, */
    CUdeviceptr copied_from;     /* and where from */
    uint64_t local_bytes;        /* a kernel's, of the stack */
    uint64_t values[2];          /* its parameters */
    void *pointers[2];
    struct graph *child;
    bool counts;      /* a kernel: its second parameter is a condition, which becomes one less */
    uint64_t decides; /* a conditional node: by which condition, */
    int choice;       /* and how: CU_GRAPH_COND_TYPE */
    unsigned body_count;
    struct graph **bodies; /* what there is to choose from; the node's */
    size_t *begins; /* of what is launched: the first node of each body, and behind them all */
    size_t goes_on; /* of what is launched: 1 + the node after this one; 0: the next */
    struct graph_memory *memory;   /* that it takes, or frees: a hold on it */
    struct semaphores *semaphores; /* that it signals, or waits for: and so */
    size_t after_count;
    struct graph_node **after;       /* nodes that come before */
    bool followed;                   /* while it is captured: another node depends on it */
    bool marked;                     /* for whoever walks the graph */
    const struct graph_node *origin; /* of a copy: what it was made of */
    struct graph_node *next_unused;
};

/* What one that can be launched has in a context in which kernels of it run. */
struct graph_side {
    uint32_t context, context_gen;
    uint64_t own_bytes;          /* of device memory, for its kernels */
    uint32_t stream, stream_gen; /* for them where it is launched in another context; 0: not yet */
    struct graph_side *next;
};

/* A CUgraph, and a CUgraphExec; never freed, only used again. */
struct graph {
    uint32_t magic;
    uint32_t capturing; /* belongs to a capture that goes on */
    bool is_child;
    size_t count, size;
    struct graph_node **nodes;
    const struct graph *original; /* of a clone */
    struct graph *around;         /* of a conditional node's body: the graph that has the node */
    struct graph_condition *conditions;
    struct graph *next_unused;

    /* Of one with memory: its only instantiation; and of that one: what it was made of. */
    struct graph *exec, *source;

    /* Of what is launched: see graph_memory.c. */
    unsigned long long flags;
    uint64_t temporary_bytes[SIM_MAX_GPUS]; /* for what it frees itself */
    struct graph_side *sides;
    bool mapped;
    uint32_t stream, stream_gen; /* where it was launched, or uploaded, last */
    uint64_t seq;
    struct graph *next_exec;
};

#define GRAPH_MAGIC 0x68706147u
#define GRAPH_EXEC_MAGIC 0x63657845u

struct graph *graph_new(uint32_t magic);
void graph_free(struct graph *graph);

/* NULL when it is none of that kind (any more). */
struct graph *graph_find(const void *handle, uint32_t magic);
struct graph_node *graph_find_node(CUgraphNode handle);

/* Appends a copy of a node, which has no dependencies yet; NULL when there is no memory. */
struct graph_node *graph_add(struct graph *graph, const struct graph_node *like);

/* The same behind those nodes, by its handle, of a program's graph. CUDA_ERROR_INVALID_VALUE (one
 * is none, or there is no place for the answer), CUDA_ERROR_OUT_OF_MEMORY. */
CUresult graph_insert(CUgraphNode *ret, CUgraph graph, const CUgraphNode *dependencies,
                      size_t count, const struct graph_node *like);

/* What was made of a node in a copy of its graph, or in what is launched of it; NULL: nothing. */
struct graph_node *graph_find_copy(const struct graph *graph, const struct graph_node *origin);

/* It does from now on what another one does, which may be no graph's node. */
void graph_set_work(struct graph_node *node, const struct graph_node *like);

bool graph_add_after(struct graph_node *node, struct graph_node *before);
void graph_forget_after(struct graph_node *node, const struct graph_node *before);
void graph_remove(struct graph_node *node);

/* The nodes of a graph that a walk finds in an order that their dependencies allow: all of them
 * unless those go round in circles. The caller's to free; NULL when there is no memory. */
struct graph_node **graph_order(const struct graph *graph, size_t *ret_count);

/* Whether one node is over before the other one begins, whatever happens. */
bool graph_is_before(const struct graph_node *first, const struct graph_node *second);

/* Copies nodes, edges and children into an empty graph; their origins are the first ones'. */
bool graph_copy(struct graph *to, const struct graph *from);

/* Whether all are nodes of this graph. */
bool graph_has_nodes(const struct graph *graph, const CUgraphNode *nodes, size_t count);

bool graph_has_memory(const struct graph *graph);
bool graph_has_conditions(const struct graph *graph);

/* A new condition of a graph, a copy of one if it is not NULL. NULL: there is no memory. By its id,
 * of a graph or of one around it; NULL: there is none. */
struct graph_condition *graph_add_condition(struct graph *graph,
                                            const struct graph_condition *like);
struct graph_condition *graph_find_condition(const struct graph *graph, uint64_t id);

/* Whether a graph may have a node that frees it: no other one does. */
bool graph_may_free(const struct graph *graph, const struct graph_memory *memory);
