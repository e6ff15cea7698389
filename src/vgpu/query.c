/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a program is told of its device: no more memory than its limit, no ability that would be
 * refused. And what is refused.
 */

#include <stddef.h>
#include <string.h>

#include "region/ledger.h"
#include "vgpu/contexts.h"
#include "vgpu/overhead.h"
#include "vgpu/real.h"
#include "vgpu/vgpu.h"

/* Called from entry.S: the driver's function to go on to, or NULL to refuse. */
void *refuse_or_pass(unsigned number);

enum {
    NODE_PARAMS_SIZE =
        256, /* CUDA's CUgraphNodeParams: 16 bytes, 29 words for any type, one word */
};

struct room {
    uint64_t free_bytes;
    uint64_t total_bytes;
};

static uint64_t limit_bytes(const struct vgpu_device *device)
{
    uint64_t units = atomic_load(&device->limit_units);

    return units == LEDGER_UNITS_MAX ? UINT64_MAX : units * LEDGER_UNIT;
}

/* Narrows what the whole device has to what the container has of it. */
static void narrow(const struct vgpu_device *device, struct room *room)
{
    uint64_t limit = limit_bytes(device), used;

    if (limit == UINT64_MAX)
        return;
    used = vgpu_used_bytes(device->index);
    room->total_bytes = MIN(room->total_bytes, limit);
    room->free_bytes = MIN(room->free_bytes, limit - MIN(limit, used));
}

/* The current device, if what it tells must be narrowed. */
static struct vgpu_device *narrowed_device(void)
{
    struct vgpu_device *device;

    if (vgpu_mode() != VGPU_ON)
        return NULL;
    vgpu_refresh();
    (void)context_current(); /* one that was made unseen is known from now on */
    device = vgpu_current_device();
    if (device)
        overhead_look(device);
    return device;
}

PUBLIC CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    struct vgpu_device *device = narrowed_device();
    size_t device_free, device_total;
    struct room room;
    CUresult result;

    result = REAL(cuMemGetInfo_v2)(free_bytes, total);
    if (!device || result != CUDA_SUCCESS ||
        REAL(cuMemGetInfo_v2)(&device_free, &device_total) != CUDA_SUCCESS)
        return result;

    room = (struct room){.free_bytes = device_free, .total_bytes = device_total};
    narrow(device, &room);
    if (free_bytes)
        *free_bytes = room.free_bytes;
    if (total)
        *total = room.total_bytes;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total)
{
    struct vgpu_device *device = narrowed_device();
    unsigned int device_free, device_total;
    struct room room;
    CUresult result;

    result = REAL(cuMemGetInfo)(free_bytes, total);
    if (!device || result != CUDA_SUCCESS ||
        REAL(cuMemGetInfo)(&device_free, &device_total) != CUDA_SUCCESS)
        return result;

    room = (struct room){.free_bytes = device_free, .total_bytes = device_total};
    narrow(device, &room);
    if (free_bytes)
        *free_bytes = (unsigned int)room.free_bytes;
    if (total)
        *total = (unsigned int)room.total_bytes;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice handle)
{
    struct vgpu_device *device = vgpu_mode() == VGPU_ON ? vgpu_device(handle) : NULL;
    CUresult result = REAL(cuDeviceTotalMem_v2)(bytes, handle);

    if (device && result == CUDA_SUCCESS)
        *bytes = MIN(*bytes, limit_bytes(device));
    return result;
}

PUBLIC CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice handle)
{
    struct vgpu_device *device = vgpu_mode() == VGPU_ON ? vgpu_device(handle) : NULL;
    CUresult result = REAL(cuDeviceTotalMem)(bytes, handle);

    if (device && result == CUDA_SUCCESS)
        *bytes = (unsigned int)MIN((uint64_t)*bytes, limit_bytes(device));
    return result;
}

/* Programs that ask first find another way, where they would fail on what is refused. */
static bool attribute_is_refused(CUdevice_attribute attribute)
{
    return attribute == CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY ||
           attribute == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
}

static bool unaccounted_is_refused(void)
{
    enum vgpu_mode mode = vgpu_mode();

    return mode == VGPU_DENIED || (mode == VGPU_ON && !atomic_load_explicit(&vgpu.allow_unaccounted,
                                                                            memory_order_relaxed));
}

PUBLIC CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    bool refused = unaccounted_is_refused();
    CUresult result = REAL(cuDeviceGetAttribute)(value, attribute, device);

    if (refused && result == CUDA_SUCCESS && attribute_is_refused(attribute))
        *value = 0;
    return result;
}

bool vgpu_refuses(enum vgpu_word word, const char *name, const char *why)
{
    enum vgpu_mode mode = vgpu_mode();
    bool refused = unaccounted_is_refused();

    if (mode == VGPU_ON)
        atomic_fetch_add(refused ? &vgpu.region.ext->unaccounted_refused
                                 : &vgpu.region.ext->unaccounted_allowed,
                         1);
    if (refused)
        vgpu_say(word,
                 "%s is refused: %s (HAMI_UNACCOUNTED=allow in the limits lets such calls pass, "
                 "unlimited)",
                 name, why);
    return refused;
}

static bool refuse(const char *name)
{
    return vgpu_refuses(VGPU_WORD_UNACCOUNTED, name, "its memory is not accounted for yet");
}

/* In the order of the thunks: the refused entry points, by name. */
#define REFUSED_DRIVER_ALLOC(name)
#define REFUSED_DRIVER_FREE(name)
#define REFUSED_DRIVER_VIRTUAL(name)
#define REFUSED_DRIVER_POOL(name)
#define REFUSED_DRIVER_CONTEXT(name)
#define REFUSED_DRIVER_MODULE(name)
#define REFUSED_DRIVER_QUERY(name)
#define REFUSED_DRIVER_LAUNCH(name)
#define REFUSED_DRIVER_STREAM(name)
#define REFUSED_DRIVER_GRAPH(name)
#define REFUSED_DRIVER_RESOLVE(name)
#define REFUSED_DRIVER_REFUSE(name) {#name, REAL_##name},

static const struct {
    const char *name;
    enum real_index real;
} refused_entries[] = {
#define HOOK_DRIVER(name, class) REFUSED_##class(name)
#define HOOK_NVML(name)
#include "vgpu/hooks.inc"
#undef HOOK_DRIVER
#undef HOOK_NVML
};

void *refuse_or_pass(unsigned number)
{
    if (number >= ARRAY_SIZE(refused_entries)) {
        const struct unknown *unknown = &real_unknown[number - ARRAY_SIZE(refused_entries)];

        return refuse(unknown->name) ? NULL : unknown->real;
    }
    if (refuse(refused_entries[number].name))
        return NULL;
    return real_functions[refused_entries[number].real];
}

/*
 * A node may be of any type; only one that allocates is refused. The driver is given what was
 * looked at: in the caller's memory another thread could change the type in between. What the
 * driver says of a node there, the caller finds where it looks for it, except for the type.
 */
struct node_params {
    union {
        CUgraphNodeParams head;
        _Alignas(16) unsigned char bytes[NODE_PARAMS_SIZE];
    } own;
};

/* Where the driver finds them, NULL when there are none. */
static CUgraphNodeParams *take_params(const CUgraphNodeParams *params, struct node_params *taken)
{
    if (!params)
        return NULL;
    memcpy(taken->own.bytes, params, NODE_PARAMS_SIZE);
    return &taken->own.head;
}

static void give_params(const struct node_params *taken, CUgraphNodeParams *params)
{
    const size_t from = offsetof(CUgraphNodeParams, reserved0);

    if (params)
        memcpy((unsigned char *)params + from, taken->own.bytes + from, NODE_PARAMS_SIZE - from);
}

static bool node_is_refused(const CUgraphNodeParams *params)
{
    return params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && refuse("cuGraphAddNode");
}

PUBLIC CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, CUgraphNodeParams *params)
{
    struct node_params taken;
    CUgraphNodeParams *own = take_params(params, &taken);
    CUresult result;

    if (node_is_refused(own))
        return CUDA_ERROR_NOT_SUPPORTED;
    (void)real_driver();
    result = REAL(cuGraphAddNode)(node, graph, dependencies, count, own);
    if (result == CUDA_SUCCESS)
        give_params(&taken, params);
    return result;
}

PUBLIC CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  const void *edges, size_t count, CUgraphNodeParams *params)
{
    struct node_params taken;
    CUgraphNodeParams *own = take_params(params, &taken);
    CUresult result;

    if (node_is_refused(own))
        return CUDA_ERROR_NOT_SUPPORTED;
    (void)real_driver();
    result = REAL(cuGraphAddNode_v2)(node, graph, dependencies, edges, count, own);
    if (result == CUDA_SUCCESS)
        give_params(&taken, params);
    return result;
}
