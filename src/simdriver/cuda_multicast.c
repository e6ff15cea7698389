/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Multicast objects: pieces that take no memory, made, shared and mapped as memory is. Once as many
 * devices have joined as were announced, memory can be bound to one, which holds it until it is
 * unbound, or the binding process has no hold on the object any more.
 */

#include <stdlib.h>

#include "base/clock.h"
#include "base/util.h"
#include "simdriver/guest.h"
#include "simdriver/physical.h"
#include "simdriver/ranges.h"

#define GRANULE (2 * MIB)
#define LOOK_NS (1 * NS_PER_MS)

/* Of this process; under the machine's lock. */
struct bind {
    uint32_t object,
        memory; /* holds; the generation tells whether the object's is still that one */
    uint32_t object_gen;
    unsigned device;
    size_t offset, bytes;
};

static struct {
    struct bind *list;
    size_t count, size;
} binds;

static bool is_simulated(void)
{
    return guest_state()->header.driver.multicast == SIM_MULTICAST_YES;
}

/* Making and joining */

static CUresult read_prop(const CUmulticastObjectProp *prop, struct sim_physical *ret)
{
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!is_simulated())
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!prop || prop->numDevices < 1 || prop->numDevices > guest_state()->header.gpu_count ||
        prop->flags || (prop->handleTypes & ~(uint64_t)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        return CUDA_ERROR_INVALID_VALUE;
    *ret = (struct sim_physical){
        .device = SIM_DEVICES,
        .handle_types = (uint32_t)prop->handleTypes,
        .bytes = prop->size,
        .team = prop->numDevices,
    };
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMulticastGetGranularity(size_t *bytes, const CUmulticastObjectProp *prop,
                                          CUmemAllocationGranularity_flags option)
{
    struct sim_physical asked;
    CUresult r = read_prop(prop, &asked);

    if (r != CUDA_SUCCESS)
        return r;
    if (!bytes || option < CU_MEM_ALLOC_GRANULARITY_MINIMUM ||
        option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = GRANULE;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle,
                                  const CUmulticastObjectProp *prop)
{
    struct sim_physical asked;
    CUresult r = read_prop(prop, &asked);
    uint32_t hold;

    if (r != CUDA_SUCCESS)
        return r;
    if (!handle || !prop->size || prop->size % GRANULE)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    hold = sim_physical_new(guest.sim, &asked);
    if (hold)
        *handle = guest_hold_handle(hold);
    sim_unlock(guest.sim);
    return hold ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The object of a handle, or NULL. */
static struct sim_physical *find_object(uint64_t handle, uint32_t *ret_hold)
{
    struct sim_physical *p;

    if (!guest_find_hold(handle, ret_hold))
        return NULL;
    p = &guest_state()->physicals[guest_state()->holds[*ret_hold].physical];
    return p->team ? p : NULL;
}

PUBLIC CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device)
{
    CUresult r = guest_check_device(device);
    struct sim_physical *object;
    uint32_t hold, bit;

    if (r != CUDA_SUCCESS)
        return r;
    if (guest.devices[device] >= SIM_MAX_GPUS)
        return CUDA_ERROR_NOT_SUPPORTED;
    bit = UINT32_C(1) << guest.devices[device];
    (void)sim_lock(guest.sim);
    object = find_object(handle, &hold);
    if (!object || (object->joined & bit) ||
        (unsigned)__builtin_popcount(object->joined) >= object->team)
        r = CUDA_ERROR_INVALID_VALUE;
    else
        object->joined |= bit;
    sim_unlock(guest.sim);
    return r;
}

/* Binding */

static bool grow(void)
{
    size_t size = binds.size ? 2 * binds.size : 64;
    void *list;

    if (binds.count < binds.size)
        return true;
    list = realloc(binds.list, size * sizeof(*binds.list));
    if (!list)
        return false;
    binds.list = list;
    binds.size = size;
    return true;
}

static void unbind(struct bind *bind)
{
    uint32_t memory = bind->memory;

    *bind = binds.list[--binds.count];
    guest_state()->holds[memory].maps--;
    sim_hold_settle(guest_state(), memory);
}

void guest_multicast_settle(void)
{
    for (size_t i = binds.count; i > 0; i--) {
        const struct sim_hold *hold = &guest_state()->holds[binds.list[i - 1].object];

        if (hold->owner != (uint32_t)guest.sim->slot + 1 ||
            hold->gen != binds.list[i - 1].object_gen)
            unbind(&binds.list[i - 1]);
    }
}

static bool is_bound(uint32_t object, unsigned device, size_t offset, size_t bytes)
{
    for (size_t i = 0; i < binds.count; i++) {
        const struct bind *bind = &binds.list[i];

        if (bind->object == object && bind->device == device &&
            offset < bind->offset + bind->bytes && bind->offset < offset + bytes)
            return true;
    }
    return false;
}

void guest_multicast_wait(uint64_t handle)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    const struct sim_physical *object;
    uint32_t hold;

    for (;;) {
        object = find_object(handle, &hold);
        if (!object || (unsigned)__builtin_popcount(object->joined) == object->team)
            return;
        sim_unlock(guest.sim);
        (void)nanosleep(&pause, NULL);
        (void)sim_lock(guest.sim);
    }
}

enum {
    WHICHEVER = -1, /* the device that the memory is on */
};

static bool is_on(const struct sim_physical *p, CUdevice device)
{
    return device == WHICHEVER || p->device == guest.devices[device];
}

static CUresult bind(uint64_t handle, CUdevice device, uint32_t memory, struct bind asked)
{
    const struct sim_physical *p = &guest_state()->physicals[guest_state()->holds[memory].physical];
    const struct sim_physical *object = find_object(handle, &asked.object);

    if (!object || p->device >= SIM_MAX_GPUS || !is_on(p, device) ||
        !(object->joined & UINT32_C(1) << p->device) || asked.bytes > p->bytes ||
        asked.offset > object->bytes || asked.bytes > object->bytes - asked.offset ||
        is_bound(asked.object, p->device, asked.offset, asked.bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (!grow())
        return CUDA_ERROR_OUT_OF_MEMORY;
    asked.memory = memory;
    asked.object_gen = guest_state()->holds[asked.object].gen;
    asked.device = p->device;
    guest_state()->holds[memory].maps++;
    binds.list[binds.count++] = asked;
    return CUDA_SUCCESS;
}

static bool is_whole(size_t offset, size_t bytes)
{
    return bytes && bytes % GRANULE == 0 && offset % GRANULE == 0;
}

static CUresult bind_memory(uint64_t handle, CUdevice device, size_t offset, uint64_t memory,
                            size_t memory_offset, size_t bytes, unsigned long long flags)
{
    CUresult r = device == WHICHEVER ? guest_check() : guest_check_device(device);
    uint32_t hold;

    if (r != CUDA_SUCCESS)
        return r;
    if (!is_whole(offset, bytes) || memory_offset || flags)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    guest_multicast_wait(handle);
    r = guest_find_hold(memory, &hold)
            ? bind(handle, device, hold, (struct bind){.offset = offset, .bytes = bytes})
            : CUDA_ERROR_INVALID_VALUE;
    sim_unlock(guest.sim);
    return r;
}

static CUresult bind_mapped(uint64_t handle, CUdevice device, size_t offset, CUdeviceptr ptr,
                            size_t bytes, unsigned long long flags)
{
    CUresult r = device == WHICHEVER ? guest_check() : guest_check_device(device);
    const struct mapping *mapping;

    if (r != CUDA_SUCCESS)
        return r;
    if (!is_whole(offset, bytes) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    guest_multicast_wait(handle);
    sim_unlock(guest.sim);
    (void)pthread_mutex_lock(&guest.lock);
    (void)sim_lock(guest.sim);
    mapping = range_find(ptr);
    r = mapping && mapping->from == ptr
            ? bind(handle, device, mapping->hold, (struct bind){.offset = offset, .bytes = bytes})
            : CUDA_ERROR_INVALID_VALUE;
    sim_unlock(guest.sim);
    (void)pthread_mutex_unlock(&guest.lock);
    return r;
}

PUBLIC CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
                                   CUmemGenericAllocationHandle memory, size_t memory_offset,
                                   size_t bytes, unsigned long long flags)
{
    return bind_memory(handle, WHICHEVER, offset, memory, memory_offset, bytes, flags);
}

PUBLIC CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle handle, CUdevice device,
                                      size_t offset, CUmemGenericAllocationHandle memory,
                                      size_t memory_offset, size_t bytes, unsigned long long flags)
{
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return bind_memory(handle, device, offset, memory, memory_offset, bytes, flags);
}

PUBLIC CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset,
                                    CUdeviceptr ptr, size_t bytes, unsigned long long flags)
{
    return bind_mapped(handle, WHICHEVER, offset, ptr, bytes, flags);
}

PUBLIC CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle handle, CUdevice device,
                                       size_t offset, CUdeviceptr ptr, size_t bytes,
                                       unsigned long long flags)
{
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return bind_mapped(handle, device, offset, ptr, bytes, flags);
}

PUBLIC CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device,
                                  size_t offset, size_t bytes)
{
    CUresult r = guest_check_device(device);
    uint32_t hold;

    if (r != CUDA_SUCCESS)
        return r;
    r = CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    for (size_t i = 0; find_object(handle, &hold) && i < binds.count; i++) {
        struct bind *one = &binds.list[i];

        if (one->object != hold || one->device != guest.devices[device] || one->offset != offset ||
            one->bytes != bytes)
            continue;
        unbind(one);
        r = CUDA_SUCCESS;
        break;
    }
    sim_unlock(guest.sim);
    return r;
}
