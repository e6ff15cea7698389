/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a program is told of its device: no more memory than its limit, no ability that would be
 * refused. And what is refused.
 */

#include <stddef.h>
#include <string.h>

#include "region/ledger.h"
#include "vgpu/contexts.h"
#include "vgpu/hidden.h"
#include "vgpu/real.h"
#include "vgpu/vgpu.h"

/* Called from entry.S: the driver's function to go on to, or NULL to refuse. */
void *refuse_or_pass(unsigned number);

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
    if (atomic_load(&vgpu.oversubscribed)) {
        room->total_bytes = limit;
        room->free_bytes = limit - MIN(limit, used);
        return;
    }
    room->total_bytes = MIN(room->total_bytes, limit);
    room->free_bytes = MIN(room->free_bytes, limit - MIN(limit, used));
}

static uint64_t total_of(const struct vgpu_device *device, uint64_t bytes)
{
    uint64_t limit = limit_bytes(device);

    if (atomic_load(&vgpu.oversubscribed) && limit != UINT64_MAX)
        return limit;
    return MIN(bytes, limit);
}

/* The current device, if what it tells must be narrowed. */
static struct vgpu_device *narrowed_device(void)
{
    struct vgpu_device *device;

    if (vgpu_mode() != VGPU_ON)
        return NULL;
    (void)vgpu_refresh();
    (void)context_current(); /* one that was made unseen is known from now on */
    device = vgpu_current_device();
    if (device)
        hidden_look(device);
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
        *bytes = total_of(device, *bytes);
    return result;
}

PUBLIC CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice handle)
{
    struct vgpu_device *device = vgpu_mode() == VGPU_ON ? vgpu_device(handle) : NULL;
    CUresult result = REAL(cuDeviceTotalMem)(bytes, handle);

    if (device && result == CUDA_SUCCESS)
        *bytes = (unsigned int)MIN(total_of(device, *bytes), UINT64_C(0xffffffff));
    return result;
}

static bool unaccounted_is_refused(void)
{
    enum vgpu_mode mode = vgpu_mode();

    return mode == VGPU_DENIED || (mode == VGPU_ON && !atomic_load_explicit(&vgpu.allow_unaccounted,
                                                                            memory_order_relaxed));
}

/* What is refused for what it is has no device: told of the current one. */
static void count_refusal(enum region_refusal reason)
{
    const struct vgpu_device *device = vgpu_current_device();

    vgpu_count_refusal(device ? device : &vgpu.devices[0], reason);
}

bool vgpu_refuses(enum vgpu_word word, const char *name, const char *why)
{
    enum vgpu_mode mode = vgpu_mode();
    bool is_import = word == VGPU_WORD_IMPORT;
    bool refused = unaccounted_is_refused();

    if (mode == VGPU_ON && is_import && atomic_load(&vgpu.allow_imports))
        refused = false;
    if (mode == VGPU_ON)
        atomic_fetch_add(refused ? &vgpu.region.ext->unaccounted_refused
                                 : &vgpu.region.ext->unaccounted_allowed,
                         1);
    if (mode == VGPU_ON && refused)
        count_refusal(is_import ? REGION_REFUSAL_IMPORT : REGION_REFUSAL_UNACCOUNTED);
    if (refused)
        vgpu_say(word, "%s is refused: %s (%s=allow in the limits lets such calls pass, unlimited)",
                 name, why, is_import ? "HAMI_IMPORTS" : "HAMI_UNACCOUNTED");
    return refused;
}

void *refuse_or_pass(unsigned number)
{
    const struct unknown *unknown = &real_unknown[number];

    return vgpu_refuses(VGPU_WORD_UNACCOUNTED, unknown->name, "its memory is not accounted for yet")
               ? NULL
               : unknown->real;
}
