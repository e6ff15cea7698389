/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory of other interfaces, imported by a file descriptor. Those that stand for memory here are
 * what cuMemExportToShareableHandle() gives out: they take the part of Vulkan's. What is mapped of
 * it has a hold of its own, buffers and arrays (cuda_array.c) alike.
 */

#include <unistd.h>

#include "base/util.h"
#include "simdriver/addresses.h"
#include "simdriver/guest.h"
#include "simdriver/physical.h"

enum {
    OBJECTS = 1024,
    BUFFERS = 4096,
};

#define HANDLE_KIND (UINT64_C(8) << 44)

/* Under the machine's lock. */
static struct object {
    uint32_t gen;
    uint32_t hold; /* 0: free */
    uint64_t bytes;
} objects[OBJECTS];

/* What is mapped of them has a hold of its own. */
static struct buffer {
    uint64_t address; /* 0: free */
    uint32_t context, hold;
} buffers[BUFFERS];

static CUexternalMemory handle_of(unsigned i)
{
    return (CUexternalMemory)(uintptr_t)(HANDLE_KIND | (uint64_t)(objects[i].gen & 0xfffff) << 24 |
                                         (uint64_t)i << 4);
}

static struct object *find_object(CUexternalMemory handle)
{
    unsigned i = (unsigned)((uintptr_t)handle >> 4) & 0xfffff;

    return i < OBJECTS && objects[i].hold && handle_of(i) == handle ? &objects[i] : NULL;
}

static CUresult import(uint32_t physical, uint64_t bytes, CUexternalMemory *ret)
{
    unsigned i = 0;

    if (!physical || bytes > guest_state()->physicals[physical].bytes)
        return CUDA_ERROR_INVALID_VALUE;
    while (i < OBJECTS && objects[i].hold)
        i++;
    if (i == OBJECTS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    objects[i].hold = sim_hold_new(guest.sim, physical);
    if (!objects[i].hold)
        return CUDA_ERROR_OUT_OF_MEMORY;
    objects[i].bytes = bytes;
    *ret = handle_of(i);
    return CUDA_SUCCESS;
}

/* The descriptor is the driver's, if it is taken in. */
PUBLIC CUresult cuImportExternalMemory(CUexternalMemory *memory,
                                       const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
    CUresult r = guest_check_safe();

    if (r != CUDA_SUCCESS)
        return r;
    if (!memory || !desc || !desc->size)
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
        return CUDA_ERROR_NOT_SUPPORTED;
    (void)sim_lock(guest.sim);
    r = import(sim_export_find(guest.sim, desc->handle.fd), desc->size, memory);
    sim_unlock(guest.sim);
    if (r == CUDA_SUCCESS)
        (void)close(desc->handle.fd);
    return r;
}

static CUresult map(const struct object *object, uint32_t context,
                    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc, CUdeviceptr *ret)
{
    uint32_t physical = guest_state()->holds[object->hold].physical;
    struct buffer *buffer = buffers;

    if (desc->offset > object->bytes || desc->size > object->bytes - desc->offset || !desc->size)
        return CUDA_ERROR_INVALID_VALUE;
    while (buffer < buffers + BUFFERS && buffer->address)
        buffer++;
    if (buffer == buffers + BUFFERS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    buffer->hold = sim_hold_new(guest.sim, physical);
    if (!buffer->hold)
        return CUDA_ERROR_OUT_OF_MEMORY;
    buffer->address = address_take(desc->size, context);
    if (!buffer->address) {
        sim_hold_drop(guest_state(), buffer->hold);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    buffer->context = context;
    *ret = buffer->address;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *ptr, CUexternalMemory handle,
                                                const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
    const struct object *object;
    uint32_t context;
    CUresult r = guest_current_safe(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!ptr || !desc)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    object = find_object(handle);
    r = object ? map(object, context, desc, ptr) : CUDA_ERROR_INVALID_HANDLE;
    sim_unlock(guest.sim);
    return r;
}

/* It has a hold of its own, as a buffer has. */
static CUresult map_array(const struct object *object, uint32_t context,
                          const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *desc,
                          CUmipmappedArray *ret)
{
    uint32_t hold;
    CUresult r;

    if (desc->offset > object->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    hold = sim_hold_new(guest.sim, guest_state()->holds[object->hold].physical);
    if (!hold)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = guest_array_over(&desc->arrayDesc, desc->numLevels, object->bytes - desc->offset, context,
                         hold, ret);
    if (r != CUDA_SUCCESS)
        sim_hold_drop(guest_state(), hold);
    return r;
}

PUBLIC CUresult
cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *mipmap, CUexternalMemory handle,
                                        const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *desc)
{
    const struct object *object;
    uint32_t context;
    CUresult r = guest_current_safe(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!mipmap || !desc)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    object = find_object(handle);
    r = object ? map_array(object, context, desc, mipmap) : CUDA_ERROR_INVALID_HANDLE;
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuDestroyExternalMemory(CUexternalMemory handle)
{
    struct object *object;
    CUresult r = guest_check_safe();

    if (r != CUDA_SUCCESS)
        return r;
    (void)sim_lock(guest.sim);
    object = find_object(handle);
    if (object) {
        sim_hold_drop(guest_state(), object->hold);
        object->hold = 0;
        object->gen++;
    }
    sim_unlock(guest.sim);
    return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

bool guest_external_free(uint64_t address)
{
    uint32_t context;
    uint64_t bytes;

    for (unsigned i = 0; address && i < BUFFERS; i++) {
        if (buffers[i].address != address)
            continue;
        (void)address_give(address, &bytes, &context);
        buffers[i].address = 0;
        sim_hold_drop(guest_state(), buffers[i].hold);
        return true;
    }
    return false;
}

void guest_external_drop(uint32_t context)
{
    for (unsigned i = 0; i < BUFFERS; i++) {
        if (!buffers[i].address || buffers[i].context != context)
            continue;
        buffers[i].address = 0;
        sim_hold_drop(guest_state(), buffers[i].hold);
    }
}
