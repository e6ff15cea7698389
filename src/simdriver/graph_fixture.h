/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One graph and what is made of it, for the tests of graphs. */

#include "simdriver/testing.h"

#define INVALID(call) GIVES(CUDA_ERROR_INVALID_VALUE, call)
#define REFUSES(call) GIVES(CUDA_ERROR_NOT_SUPPORTED, call)

extern struct testing t;
extern CUgraph graph;
extern CUgraphExec exec;

/* Begins with an empty graph; what is in use then. */
uint64_t graph_begin(void);

/* Nodes of the graph after another one, or after none. */
CUgraphNode kernel_of(const struct testing *where, CUgraphNode before, uint64_t ns);
CUgraphNode kernel_after(CUgraphNode before, uint64_t ns);
CUgraphNode alloc_after(CUgraphNode before, size_t bytes, CUdeviceptr *ret_ptr);

void graph_instantiate(void);
