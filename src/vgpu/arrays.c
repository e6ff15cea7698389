/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Arrays. What one takes the driver tells only of an array that is mapped later: so such a twin of
 * it is made and asked first. Where the driver knows none, the size is that of the elements, at
 * least. What an array takes beyond that is hidden memory, as NVML shows it (hidden.h).
 *
 * What is mapped later, or in tiles, takes nothing of its own. Memory that was mapped into tiles
 * may outlive its last handle: it counts as given out (virtual_share.c).
 */

#include "region/ledger.h"
#include "vgpu/hidden.h"
#include "vgpu/memory.h"
#include "vgpu/real.h"

#define TAKES_NOTHING (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)

enum {
    ELEMENT_MOST = 16, /* bytes of an element, or of a block, of a format that nobody knows */
};

/* The levels of an array; 0: it is no mipmapped one. */
struct shape {
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    unsigned levels;
};

/* The size of the elements */

static uint64_t element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    switch (d->Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return d->NumChannels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2ull * d->NumChannels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4ull * d->NumChannels;
    default:
        return ELEMENT_MOST;
    }
}

/* UINT64_MAX where it has no number. */
static uint64_t shape_bytes(const struct shape *shape)
{
    const CUDA_ARRAY3D_DESCRIPTOR *d = &shape->descriptor;
    uint64_t bytes = element_bytes(d);

    if (__builtin_mul_overflow(bytes, d->Width, &bytes) ||
        __builtin_mul_overflow(bytes, d->Height ? d->Height : 1, &bytes) ||
        __builtin_mul_overflow(bytes, d->Depth ? d->Depth : 1, &bytes))
        return UINT64_MAX;
    /* All levels after the first have at most as much again. */
    return shape->levels > 1 && __builtin_mul_overflow(bytes, 2, &bytes) ? UINT64_MAX : bytes;
}

/* The twin */

static CUresult ask_array(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUdevice device,
                          CUDA_ARRAY_MEMORY_REQUIREMENTS *ret)
{
    CUarray twin;
    CUresult result = REAL(cuArray3DCreate_v2)(&twin, descriptor);

    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuArrayGetMemoryRequirements)(ret, twin, device);
    UNDO(cuArrayDestroy, twin);
    return result;
}

static CUresult ask_mipmap(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned levels,
                           CUdevice device, CUDA_ARRAY_MEMORY_REQUIREMENTS *ret)
{
    CUmipmappedArray twin;
    CUresult result = REAL(cuMipmappedArrayCreate)(&twin, descriptor, levels);

    if (result != CUDA_SUCCESS)
        return result;
    result = REAL(cuMipmappedArrayGetMemoryRequirements)(ret, twin, device);
    UNDO(cuMipmappedArrayDestroy, twin);
    return result;
}

/* Whether such an answer says that the driver knows no such twin, rather than what is wrong. */
static bool is_no_answer(CUresult result)
{
    return result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED ||
           result == CUDA_ERROR_NOT_FOUND;
}

/* What it will take, and whether the driver told it; an error is the driver's answer to the call.
 */
static CUresult measure(const struct shape *shape, uint64_t *ret_bytes, bool *ret_doubtful)
{
    struct vgpu_device *device = vgpu_likely_device();
    CUDA_ARRAY3D_DESCRIPTOR twin = shape->descriptor;
    CUDA_ARRAY_MEMORY_REQUIREMENTS told = {0};
    CUresult result;

    *ret_bytes = 0;
    *ret_doubtful = false;
    if (twin.Flags & TAKES_NOTHING)
        return CUDA_SUCCESS;
    *ret_bytes = shape_bytes(shape);
    /* A context of a device may be current by the time that it is asked whose is. */
    *ret_doubtful = !device || !HAS(cuArrayGetMemoryRequirements);
    if (*ret_doubtful)
        return CUDA_SUCCESS;
    twin.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
    result = shape->levels ? ask_mipmap(&twin, shape->levels, device->handle, &told)
                           : ask_array(&twin, device->handle, &told);
    *ret_doubtful = is_no_answer(result);
    if (result != CUDA_SUCCESS)
        return *ret_doubtful ? CUDA_SUCCESS : result;
    *ret_bytes = told.size;
    return CUDA_SUCCESS;
}

/* Making */

typedef CUresult (*create_fn)(void **ret, const void *descriptor, unsigned levels);

static CUresult create_2d_v1(void **ret, const void *descriptor, unsigned levels)
{
    (void)levels;
    return REAL(cuArrayCreate)((CUarray *)ret, descriptor);
}

static CUresult create_2d(void **ret, const void *descriptor, unsigned levels)
{
    (void)levels;
    return REAL(cuArrayCreate_v2)((CUarray *)ret, descriptor);
}

static CUresult create_3d_v1(void **ret, const void *descriptor, unsigned levels)
{
    (void)levels;
    return REAL(cuArray3DCreate)((CUarray *)ret, descriptor);
}

static CUresult create_3d(void **ret, const void *descriptor, unsigned levels)
{
    (void)levels;
    return REAL(cuArray3DCreate_v2)((CUarray *)ret, descriptor);
}

static CUresult create_mipmap(void **ret, const void *descriptor, unsigned levels)
{
    return REAL(cuMipmappedArrayCreate)((CUmipmappedArray *)ret, descriptor, levels);
}

static void destroy(void *made, bool is_mipmap)
{
    if (is_mipmap)
        UNDO(cuMipmappedArrayDestroy, (CUmipmappedArray)made);
    else
        UNDO(cuArrayDestroy, (CUarray)made);
}

/* What the driver told nobody beforehand is known now. */
static bool exceeds(struct vgpu_device *device)
{
    (void)hidden_settle(device);
    return hidden_is_exceeded(device);
}

static CUresult make(void **ret, const void *descriptor, unsigned levels, struct grant *grant,
                     create_fn driver, bool doubtful)
{
    void *made = NULL;
    CUresult result = driver(&made, descriptor, levels);

    if (result != CUDA_SUCCESS) {
        alloc_cancel(grant);
        return result;
    }
    if (!alloc_enter(grant, (uint64_t)(uintptr_t)made)) {
        destroy(made, driver == create_mipmap);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (doubtful && exceeds(grant->device)) {
        struct real_relaxed undoing = real_relax();

        /* As the program would: it is in the tables by now. */
        if (driver == create_mipmap)
            (void)cuMipmappedArrayDestroy(made);
        else
            (void)cuArrayDestroy(made);
        real_end_relaxed(&undoing);
        (void)hidden_settle(grant->device);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    hidden_make_due_soon(); /* it may have taken more */
    *ret = made;
    return CUDA_SUCCESS;
}

/* There is no room. What makes no sense the driver says itself, in its own words; should it make it
 * all the same, that is undone. */
static CUresult refuse(const void *descriptor, unsigned levels, create_fn driver)
{
    void *made = NULL;
    CUresult result = driver(&made, descriptor, levels);

    if (result != CUDA_SUCCESS)
        return result;
    destroy(made, driver == create_mipmap);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The descriptor is a copy of the caller's, in its own form. */
static CUresult create(void **ret, const struct shape *shape, const void *descriptor,
                       unsigned levels, create_fn driver)
{
    struct grant grant;
    uint64_t bytes;
    bool doubtful;
    CUresult result = measure(shape, &bytes, &doubtful);

    if (result != CUDA_SUCCESS)
        return result;
    result = alloc_begin(&grant, bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && doubtful)
        return refuse(descriptor, levels, driver);
    if (result != CUDA_SUCCESS)
        return result;
    if (!grant.device)
        return driver(ret, descriptor, levels);
    return make(ret, descriptor, levels, &grant, driver, doubtful);
}

static bool is_charged(const void *ret, const void *descriptor)
{
    enum vgpu_mode mode = vgpu_mode();

    return mode == VGPU_DENIED || (mode == VGPU_ON && ret && descriptor);
}

PUBLIC CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor)
{
    CUDA_ARRAY_DESCRIPTOR_v1 own;

    if (!is_charged(array, descriptor))
        return REAL(cuArrayCreate)(array, descriptor);
    if (vgpu_mode() == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    own = *descriptor; /* which another thread could change after it was looked at; as below */
    return create((void **)array,
                  &(struct shape){{own.Width, own.Height, 0, own.Format, own.NumChannels, 0}, 0},
                  &own, 0, create_2d_v1);
}

PUBLIC CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    CUDA_ARRAY_DESCRIPTOR own;

    if (!is_charged(array, descriptor))
        return REAL(cuArrayCreate_v2)(array, descriptor);
    if (vgpu_mode() == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    own = *descriptor;
    return create((void **)array,
                  &(struct shape){{own.Width, own.Height, 0, own.Format, own.NumChannels, 0}, 0},
                  &own, 0, create_2d);
}

PUBLIC CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor)
{
    CUDA_ARRAY3D_DESCRIPTOR_v1 own;

    if (!is_charged(array, descriptor))
        return REAL(cuArray3DCreate)(array, descriptor);
    if (vgpu_mode() == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    own = *descriptor;
    return create(
        (void **)array,
        &(struct shape){{own.Width, own.Height, own.Depth, own.Format, own.NumChannels, own.Flags},
                        0},
        &own, 0, create_3d_v1);
}

PUBLIC CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    struct shape shape = {.levels = 0};

    if (!is_charged(array, descriptor))
        return REAL(cuArray3DCreate_v2)(array, descriptor);
    if (vgpu_mode() == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    shape.descriptor = *descriptor;
    return create((void **)array, &shape, &shape.descriptor, 0, create_3d);
}

PUBLIC CUresult cuMipmappedArrayCreate(CUmipmappedArray *mipmap,
                                       const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                       unsigned int levels)
{
    struct shape shape = {.levels = levels ? levels : 1};

    if (!is_charged(mipmap, descriptor))
        return REAL(cuMipmappedArrayCreate)(mipmap, descriptor, levels);
    if (vgpu_mode() == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    shape.descriptor = *descriptor;
    return create((void **)mipmap, &shape, &shape.descriptor, levels, create_mipmap);
}

/* It may have taken more than it was charged. */
static CUresult end(uint64_t handle, const struct allocation *entry, CUresult result)
{
    result = alloc_end_free(handle, entry, result);
    if (result == CUDA_SUCCESS)
        hidden_make_due_soon();
    return result;
}

PUBLIC CUresult cuArrayDestroy(CUarray array)
{
    struct allocation entry;

    if (!alloc_begin_free((uint64_t)(uintptr_t)array, &entry))
        return REAL(cuArrayDestroy)(array);
    return end((uint64_t)(uintptr_t)array, &entry, REAL(cuArrayDestroy)(array));
}

PUBLIC CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
    struct allocation entry;

    if (!alloc_begin_free((uint64_t)(uintptr_t)mipmap, &entry))
        return REAL(cuMipmappedArrayDestroy)(mipmap);
    return end((uint64_t)(uintptr_t)mipmap, &entry, REAL(cuMipmappedArrayDestroy)(mipmap));
}
