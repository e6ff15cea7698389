/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/graph_homes.h"

#include "base/lock.h"
#include "vgpu/allocations.h"
#include "vgpu/contexts.h"
#include "vgpu/graph_walk.h"
#include "vgpu/pointer.h"
#include "vgpu/primary.h"
#include "vgpu/real.h"

/* The nodes of what is launched were looked at: none may have a kernel. */
#define LOOKED_AT (1u << REGION_DEVICES)
_Static_assert(REGION_DEVICES < 32, "a set of devices is an unsigned");

static unsigned set_of(const struct vgpu_device *device)
{
    return device ? 1u << (device - vgpu.devices) : 0;
}

static unsigned all_with_contexts(void)
{
    unsigned set = 0;

    for (unsigned i = 0; i < vgpu.device_count; i++)
        set |= atomic_load(&vgpu.devices[i].contexts) ? 1u << i : 0;
    return set;
}

/* Of modules, and of kernels that were launched into captures of several devices. */

static uint64_t key_of(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

static unsigned look(const void *handle)
{
    struct allocation entry;

    return allocations_look(ALLOCATION_HOME, key_of(handle), &entry) ? (unsigned)entry.units : 0;
}

static void note(const void *handle, unsigned set, unsigned context)
{
    struct allocation entry = {.units = set, .context = context};

    if (!handle || !set || look(handle) == set)
        return;
    (void)allocations_take(ALLOCATION_HOME, key_of(handle), &(struct allocation){0});
    (void)allocations_add(ALLOCATION_HOME, key_of(handle), &entry);
}

/* Beside what is known already. */
static void note_more(const void *handle, unsigned set)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    (void)pthread_mutex_lock(&lock);
    note(handle, look(handle) | set, 0);
    (void)pthread_mutex_unlock(&lock);
}

void graph_homes_found_module(CUmodule module)
{
    if (graph_homes_matter() && vgpu_mode() == VGPU_ON)
        note(module, set_of(vgpu_current_device()), context_current() % CONTEXTS_MAX);
}

static CUmodule module_of(const void *handle)
{
    CUfunction function = (CUfunction)(uintptr_t)handle;
    CUmodule module = NULL;

    if (!HAS(cuFuncGetModule) || REAL(cuFuncGetModule)(&module, function) != CUDA_SUCCESS)
        return NULL;
    return module;
}

void graph_homes_found_function(const void *handle)
{
    CUfunction function;
    CUmodule module;

    if (!graph_homes_matter() || vgpu_mode() != VGPU_ON)
        return;
    module = module_of(handle);
    if (module) {
        graph_homes_found_module(module);
        return;
    }
    /* A kernel is of each context in which it was used. */
    note_more(handle, set_of(vgpu_current_device()));
    if (HAS(cuKernelGetFunction) &&
        REAL(cuKernelGetFunction)(&function, (CUkernel)(uintptr_t)handle) == CUDA_SUCCESS)
        graph_homes_found_module(module_of(function));
}

void graph_homes_unloaded(CUmodule module)
{
    struct allocation entry;

    if (graph_homes_matter())
        (void)allocations_take(ALLOCATION_HOME, key_of(module), &entry);
}

void graph_homes_found_condition(CUgraphNode node, CUcontext context)
{
    const struct vgpu_device *device;

    if (!graph_homes_matter() || vgpu_mode() != VGPU_ON)
        return;
    device = context ? contexts_device(context) : vgpu_current_device();
    note(node, device ? set_of(device) : ~0u >> (32 - REGION_DEVICES), 0);
}

/* Of nodes */

/* Empty: it is not known. The context is looked at only where it counts, without a function. */
static unsigned home_of(CUgraphNode node)
{
    CUDA_KERNEL_NODE_PARAMS params = {0};
    CUmodule module;

    if (HAS(cuGraphKernelNodeGetParams_v2)
            ? REAL(cuGraphKernelNodeGetParams_v2)(node, &params) != CUDA_SUCCESS
            : REAL(cuGraphKernelNodeGetParams)(node, (CUDA_KERNEL_NODE_PARAMS_v1 *)&params) !=
                  CUDA_SUCCESS)
        return 0;
    if (!params.func)
        return params.ctx ? set_of(contexts_device(params.ctx)) : look(params.kern);
    module = module_of(params.func);
    return look(module ? (const void *)module : (const void *)params.func);
}

static const void *key_of_memory(uint64_t to)
{
    return (const void *)(uintptr_t)to;
}

static unsigned home_of_memory(uint64_t to)
{
    const unsigned noted = look(key_of_memory(to));
    int ordinal;

    if (noted || !pointer_ordinal(to, &ordinal))
        return noted;
    return set_of(vgpu_device(ordinal));
}

uint64_t graph_homes_target(const CUDA_MEMCPY3D *copy)
{
    return copy->dstMemoryType == CU_MEMORYTYPE_ARRAY ? (uint64_t)(uintptr_t)copy->dstArray
                                                      : copy->dstDevice;
}

void graph_homes_found_transfer(uint64_t to, const struct vgpu_device *device)
{
    if (graph_homes_matter() && vgpu_mode() == VGPU_ON)
        note_more(key_of_memory(to), device ? set_of(device) : (1u << vgpu.device_count) - 1);
}

/* False: it can't be told. What a node has to do with the host is not looked at. */
static bool find_target(CUgraphNode node, CUgraphNodeType type, uint64_t *ret_to)
{
    CUDA_MEMSET_NODE_PARAMS set;
    CUDA_MEMCPY3D copy;

    if (type == CU_GRAPH_NODE_TYPE_MEMSET) {
        if (REAL(cuGraphMemsetNodeGetParams)(node, &set) != CUDA_SUCCESS)
            return false;
        *ret_to = set.dst;
        return true;
    }
    if (REAL(cuGraphMemcpyNodeGetParams)(node, &copy) != CUDA_SUCCESS)
        return false;
    *ret_to = pointer_is_there(copy.dstMemoryType, copy.dstDevice) &&
                      pointer_is_there(copy.srcMemoryType, copy.srcDevice)
                  ? graph_homes_target(&copy)
                  : 0;
    return true;
}

void graph_homes_moved_transfer(CUgraphNode node, CUgraphNodeType type, uint64_t to)
{
    unsigned home;
    uint64_t from;

    if (!graph_homes_matter() || vgpu_mode() != VGPU_ON)
        return;
    home = find_target(node, type, &from) ? home_of_memory(from) : 0;
    note_more(key_of_memory(to), home ? home : (1u << vgpu.device_count) - 1);
}

/* Memory is set, and copied within a device, by who was found to; other copies are free. */
static bool add_transfer(CUgraphNode node, CUgraphNodeType type, unsigned *set)
{
    unsigned home;
    uint64_t to;

    if (!find_target(node, type, &to))
        return false;
    home = to ? home_of_memory(to) : 0;
    *set |= home;
    return home || !to;
}

static bool add_home(CUgraphNode node, CUgraphNodeType type, void *arg)
{
    unsigned *set = arg, home;

    if (type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_MEMCPY)
        return add_transfer(node, type, set);
    if (type != CU_GRAPH_NODE_TYPE_KERNEL && type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
        return true;
    home = type == CU_GRAPH_NODE_TYPE_KERNEL ? home_of(node) : look(node);
    *set |= home;
    return home != 0;
}

void graph_homes_made(CUgraphExec exec, CUgraph graph)
{
    unsigned all, set = 0;

    if (!graph_homes_matter() || vgpu_mode() != VGPU_ON)
        return;
    (void)context_current();
    primary_meet_unseen();
    all = all_with_contexts();
    if (!(all & (all - 1)) || !graph_walk(graph, add_home, &set))
        set = all;
    note(exec, set | LOOKED_AT, 0);
}

void graph_homes_ended(CUgraphExec exec)
{
    graph_homes_unloaded((CUmodule)exec);
}

unsigned graph_homes_of(CUgraphExec exec)
{
    unsigned set = look(exec);

    return set ? set & ~LOOKED_AT : all_with_contexts();
}
