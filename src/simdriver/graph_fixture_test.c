/* SPDX-License-Identifier: Apache-2.0 */
#include "simdriver/graph_fixture.h"

struct testing t;
CUgraph graph;
CUgraphExec exec;

uint64_t graph_begin(void)
{
    testing_begin(&t);
    OK(cuGraphCreate(&graph, 0));
    return testing_used_bytes();
}

CUgraphNode kernel_of(const struct testing *where, CUgraphNode before, uint64_t ns)
{
    void *params[] = {&ns};
    CUDA_KERNEL_NODE_PARAMS kernel = {
        where->kernel, 100, 1, 1, 32, 1, 1, 0, params, NULL, NULL, NULL,
    };
    CUgraphNode node;

    OK(cuGraphAddKernelNode_v2(&node, graph, &before, before ? 1 : 0, &kernel));
    return node;
}

CUgraphNode kernel_after(CUgraphNode before, uint64_t ns)
{
    return kernel_of(&t, before, ns);
}

CUgraphNode alloc_after(CUgraphNode before, size_t bytes, CUdeviceptr *ret_ptr)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
        .bytesize = bytes,
    };
    CUgraphNode node;

    OK(cuGraphAddMemAllocNode(&node, graph, &before, before ? 1 : 0, &params));
    *ret_ptr = params.dptr;
    return node;
}

void graph_instantiate(void)
{
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
}
