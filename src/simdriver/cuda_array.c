/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Arrays. How a driver lays one out it tells of none but those that are mapped later: here a row
 * takes multiples of 512 bytes and a whole array, or all levels of one, multiples of 64 KiB. What
 * is mapped later, or in tiles, takes nothing of its own.
 */

#include <stdlib.h>

#include "base/util.h"
#include "simdriver/guest.h"
#include "simdriver/physical.h"

#define HANDLE_KIND (UINT64_C(6) << 44)
#define GEN_MASK 0xfffffu
#define TILE (64 * KIB)

enum {
    PITCH = 512,
    ARRAYS = 1 << 16,
    LEVELS_MAX = 32,
    SIDE_MAX = 1 << 17,
};

/* A tile, or a run of them, with memory. */
struct mapped {
    CUarrayMapInfo where;
    uint32_t hold;
};

struct array {
    bool used;
    bool is_mipmap;
    uint32_t gen;
    uint32_t parent; /* of a level: the mipmapped array, which it ends with */
    uint32_t context;
    unsigned levels;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    uint64_t bytes; /* taken */
    uint32_t hold;  /* on the memory of others that it lies over */
    bool is_lent;   /* it lies over what is mapped, and ends with that */
    struct mapped *mapped;
    size_t mapped_count;
};

/* By index, from 1 on; under the machine's lock. */
static struct {
    struct array *list;
    uint32_t count, size;
} arrays;

static uint64_t handle_of(uint32_t i)
{
    return HANDLE_KIND | (uint64_t)(arrays.list[i].gen & GEN_MASK) << 24 | (uint64_t)i << 4;
}

static struct array *find(const void *handle, bool is_mipmap)
{
    uint64_t word = (uint64_t)(uintptr_t)handle;
    uint32_t i = (uint32_t)(word >> 4) & GEN_MASK;

    if (word >> 47 || !i || i > arrays.count || handle_of(i) != word)
        return NULL;
    return arrays.list[i].used && arrays.list[i].is_mipmap == is_mipmap ? &arrays.list[i] : NULL;
}

/* Sizes */

/* Bytes of an element, or of a block of 4 x 4; 0: of no format that is known here. */
static unsigned element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned *ret_side)
{
    CUarray_format format = d->Format;

    *ret_side = 1;
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return d->NumChannels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2 * d->NumChannels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4 * d->NumChannels;
    default:
        break;
    }
    if (format < CU_AD_FORMAT_BC1_UNORM || format > CU_AD_FORMAT_BC7_UNORM_SRGB)
        return 0;
    *ret_side = 4;
    return format <= CU_AD_FORMAT_BC1_UNORM_SRGB || format == CU_AD_FORMAT_BC4_UNORM ||
                   format == CU_AD_FORMAT_BC4_SNORM
               ? 8
               : 16;
}

static uint64_t level_side(uint64_t side, unsigned level)
{
    return MAX(side >> level, UINT64_C(1));
}

static bool is_layered(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    return d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
}

static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned level)
{
    unsigned side, element = element_bytes(d, &side);
    uint64_t across = (level_side(d->Width, level) + side - 1) / side;
    uint64_t rows = (level_side(d->Height, level) + side - 1) / side;
    uint64_t deep = is_layered(d) ? MAX(d->Depth, (size_t)1) : level_side(d->Depth, level);

    return (across * element + PITCH - 1) / PITCH * PITCH * rows * deep;
}

static uint64_t levels_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < levels; i++)
        bytes += level_bytes(d, i);
    return bytes;
}

static uint64_t all_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
    return (levels_bytes(d, levels) + TILE - 1) / TILE * TILE;
}

static unsigned levels_of(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    size_t side = MAX(d->Width, d->Height), deep = is_layered(d) ? 0 : d->Depth;
    unsigned levels = 1;

    for (side = MAX(side, deep); side > 1; side >>= 1)
        levels++;
    return levels;
}

/* As many as were asked for, as far as there can be. */
static unsigned levels_for(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned asked)
{
    asked = MIN(MAX(asked, 1u), levels_of(d));
    return MIN(asked, (unsigned)LEVELS_MAX);
}

/* Whether it makes sense; sides are small enough that no size overflows. */
static bool is_sound(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    unsigned side;

    if (!d->Width || d->Width > SIDE_MAX || d->Height > SIDE_MAX || d->Depth > SIDE_MAX)
        return false;
    if (d->NumChannels != 1 && d->NumChannels != 2 && d->NumChannels != 4)
        return false;
    if (!element_bytes(d, &side) || (d->Flags & ~0xffu))
        return false;
    if ((d->Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) &&
        guest_state()->header.driver.deferred == SIM_DEFERRED_NO)
        return false;
    if ((d->Flags & CUDA_ARRAY3D_CUBEMAP) && (d->Width != d->Height || !d->Depth || d->Depth % 6))
        return false;
    return (d->Flags & CUDA_ARRAY3D_LAYERED) || d->Height || !d->Depth;
}

/* Making and ending */

static bool grow(void)
{
    uint32_t size = arrays.size ? 2 * arrays.size : 64;
    void *list;

    if (arrays.count + 1 < arrays.size)
        return true;
    if (size > ARRAYS)
        return false;
    list = realloc(arrays.list, size * sizeof(*arrays.list));
    if (!list)
        return false;
    arrays.list = list;
    memset(&arrays.list[arrays.size], 0, (size - arrays.size) * sizeof(*arrays.list));
    arrays.size = size;
    return true;
}

static uint32_t take_row(void)
{
    for (uint32_t i = 1; i <= arrays.count; i++) {
        if (!arrays.list[i].used)
            return i;
    }
    return grow() ? ++arrays.count : 0;
}

static uint64_t taken_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
    if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
        return 0;
    return all_bytes(d, levels);
}

/* 0: there are too many. */
static uint32_t add(struct array like)
{
    uint32_t i = take_row();

    if (!i)
        return 0;
    like.used = true;
    like.gen = arrays.list[i].gen;
    arrays.list[i] = like;
    return i;
}

static CUresult make(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels, bool is_mipmap,
                     uint32_t context, uint64_t *ret_handle)
{
    struct array like = {
        .is_mipmap = is_mipmap,
        .context = context,
        .levels = levels,
        .descriptor = *d,
        .bytes = taken_bytes(d, levels),
    };
    uint32_t i;

    if (like.bytes && !guest_charge_locked(context, like.bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    i = add(like);
    if (!i && like.bytes)
        guest_discharge_locked(context, like.bytes);
    if (!i)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret_handle = handle_of(i);
    return CUDA_SUCCESS;
}

static void unmap(struct array *array, size_t at)
{
    uint32_t hold = array->mapped[at].hold;

    array->mapped[at] = array->mapped[--array->mapped_count];
    guest_state()->holds[hold].maps--;
    sim_hold_settle(guest_state(), hold);
}

static void end(struct array *array)
{
    uint32_t own = (uint32_t)(array - arrays.list);

    if (array->bytes)
        guest_discharge_locked(array->context, array->bytes);
    if (array->hold)
        sim_hold_drop(guest_state(), array->hold);
    while (array->mapped_count)
        unmap(array, 0);
    free(array->mapped);
    array->mapped = NULL;
    array->used = false;
    array->gen++;
    for (uint32_t i = 1; i <= arrays.count; i++) {
        if (arrays.list[i].used && arrays.list[i].parent == own)
            end(&arrays.list[i]);
    }
}

void guest_array_drop(uint32_t context)
{
    for (uint32_t i = 1; i <= arrays.count; i++) {
        if (arrays.list[i].used && arrays.list[i].context == context)
            end(&arrays.list[i]);
    }
}

/* Over memory of others */

CUresult guest_array_over(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels, uint64_t bytes,
                          uint32_t context, uint32_t hold, CUmipmappedArray *ret)
{
    uint32_t i;

    if (!is_sound(d) || (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)))
        return CUDA_ERROR_INVALID_VALUE;
    levels = levels_for(d, levels);
    if (levels_bytes(d, levels) > bytes)
        return CUDA_ERROR_INVALID_VALUE;
    i = add((struct array){
        .is_mipmap = true,
        .context = context,
        .levels = levels,
        .descriptor = *d,
        .hold = hold,
        .is_lent = !hold,
    });
    if (!i)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret = (CUmipmappedArray)(uintptr_t)handle_of(i);
    return CUDA_SUCCESS;
}

void guest_array_end(CUmipmappedArray mipmap)
{
    struct array *array = find(mipmap, true);

    if (array)
        end(array);
}

static CUresult create(void *ret_handle, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels,
                       bool is_mipmap)
{
    uint64_t handle;
    uint32_t context;
    CUresult r = guest_current_safe(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!ret_handle || !d || !is_sound(d))
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    r = make(d, levels, is_mipmap, context, &handle);
    sim_unlock(guest.sim);
    if (r == CUDA_SUCCESS)
        *(uint64_t *)ret_handle = handle;
    return r;
}

PUBLIC CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    return create(array, descriptor, 1, false);
}

static CUresult create_narrow(CUarray *array, size_t width, size_t height, size_t depth,
                              CUarray_format format, unsigned channels, unsigned flags)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {width, height, depth, format, channels, flags};

    return create(array, &d, 1, false);
}

PUBLIC CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *d)
{
    return d ? create_narrow(array, d->Width, d->Height, d->Depth, d->Format, d->NumChannels,
                             d->Flags)
             : create(array, NULL, 1, false);
}

PUBLIC CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *d)
{
    return d ? create_narrow(array, d->Width, d->Height, 0, d->Format, d->NumChannels, 0)
             : create(array, NULL, 1, false);
}

PUBLIC CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *d)
{
    return d ? create_narrow(array, d->Width, d->Height, 0, d->Format, d->NumChannels, 0)
             : create(array, NULL, 1, false);
}

PUBLIC CUresult cuMipmappedArrayCreate(CUmipmappedArray *mipmap,
                                       const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                       unsigned int levels)
{
    if (!descriptor)
        return create(mipmap, NULL, 1, true);
    return create(mipmap, descriptor, levels_for(descriptor, levels), true);
}

static bool is_lent(const struct array *array)
{
    return array->is_lent || (array->parent && arrays.list[array->parent].is_lent);
}

static CUresult destroy(const void *handle, bool is_mipmap)
{
    struct array *array;
    CUresult r = guest_check_safe();

    if (r != CUDA_SUCCESS)
        return r;
    (void)sim_lock(guest.sim);
    array = find(handle, is_mipmap);
    if (!array)
        r = CUDA_ERROR_INVALID_HANDLE;
    else if (is_lent(array))
        r = CUDA_ERROR_ARRAY_IS_MAPPED;
    else if (array->parent)
        r = CUDA_ERROR_INVALID_VALUE;
    else
        end(array);
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuArrayDestroy(CUarray array)
{
    return destroy(array, false);
}

PUBLIC CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
    return destroy(mipmap, true);
}

/* Levels and descriptors */

static uint32_t find_level(uint32_t parent, unsigned level)
{
    for (uint32_t i = 1; i <= arrays.count; i++) {
        if (arrays.list[i].used && arrays.list[i].parent == parent &&
            arrays.list[i].levels == level)
            return i;
    }
    return 0;
}

/* A level has its number in the place of how many it has. */
static CUresult get_level(uint32_t parent, unsigned level, uint64_t *ret_handle)
{
    uint32_t i = find_level(parent, level);
    CUDA_ARRAY3D_DESCRIPTOR d = arrays.list[parent].descriptor;

    if (level >= arrays.list[parent].levels)
        return CUDA_ERROR_INVALID_VALUE;
    if (!i) {
        d.Width = level_side(d.Width, level);
        d.Height = d.Height ? level_side(d.Height, level) : 0;
        d.Depth = d.Depth && !is_layered(&d) ? level_side(d.Depth, level) : d.Depth;
        i = add((struct array){.parent = parent,
                               .context = arrays.list[parent].context,
                               .levels = level,
                               .descriptor = d});
    }
    if (!i)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret_handle = handle_of(i);
    return CUDA_SUCCESS;
}

CUresult guest_array_level(CUmipmappedArray mipmap, unsigned level, CUarray *ret)
{
    const struct array *found = find(mipmap, true);
    uint64_t handle;
    CUresult r;

    if (!found)
        return CUDA_ERROR_INVALID_HANDLE;
    r = get_level((uint32_t)(found - arrays.list), level, &handle);
    if (r == CUDA_SUCCESS)
        *ret = (CUarray)(uintptr_t)handle;
    return r;
}

PUBLIC CUresult cuMipmappedArrayGetLevel(CUarray *array, CUmipmappedArray mipmap,
                                         unsigned int level)
{
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!array)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    r = guest_array_level(mipmap, level, array);
    sim_unlock(guest.sim);
    return r;
}

/* Nothing of what lies between the members. */
static void describe_array(CUDA_ARRAY3D_DESCRIPTOR *to, const CUDA_ARRAY3D_DESCRIPTOR *from)
{
    to->Width = from->Width;
    to->Height = from->Height;
    to->Depth = from->Depth;
    to->Format = from->Format;
    to->NumChannels = from->NumChannels;
    to->Flags = from->Flags;
}

PUBLIC CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray array)
{
    const struct array *found;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    if (!descriptor)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    found = find(array, false);
    if (found)
        describe_array(descriptor, &found->descriptor);
    else
        r = CUDA_ERROR_INVALID_HANDLE;
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR d;
    CUresult r = cuArray3DGetDescriptor_v2(descriptor ? &d : NULL, array);

    if (r == CUDA_SUCCESS)
        *descriptor = (CUDA_ARRAY3D_DESCRIPTOR_v1){
            (unsigned)d.Width, (unsigned)d.Height, (unsigned)d.Depth,
            d.Format,          d.NumChannels,      d.Flags,
        };
    return r;
}

PUBLIC CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *descriptor, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR d;
    CUresult r = cuArray3DGetDescriptor_v2(descriptor ? &d : NULL, array);

    if (r == CUDA_SUCCESS)
        *descriptor = (CUDA_ARRAY_DESCRIPTOR){d.Width, d.Height, d.Format, d.NumChannels};
    return r;
}

PUBLIC CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *descriptor, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR d;
    CUresult r = cuArray3DGetDescriptor_v2(descriptor ? &d : NULL, array);

    if (r == CUDA_SUCCESS)
        *descriptor = (CUDA_ARRAY_DESCRIPTOR_v1){(unsigned)d.Width, (unsigned)d.Height, d.Format,
                                                 d.NumChannels};
    return r;
}

/* What is mapped later */

static CUresult require(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements, const void *handle,
                        bool is_mipmap, CUdevice device)
{
    const struct array *array;
    CUresult r = guest_check_device(device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!requirements)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    array = find(handle, is_mipmap);
    if (!array)
        r = CUDA_ERROR_INVALID_HANDLE;
    else if (!(array->descriptor.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING))
        r = CUDA_ERROR_INVALID_VALUE;
    else
        *requirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){
            .size = all_bytes(&array->descriptor, array->levels), .alignment = TILE};
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements,
                                             CUarray array, CUdevice device)
{
    return require(requirements, array, false, device);
}

PUBLIC CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements,
                                                      CUmipmappedArray mipmap, CUdevice device)
{
    return require(requirements, mipmap, true, device);
}

/* Tiles are of 64 KiB, square for elements of four bytes; there is no tail of small levels. */
static CUresult describe(CUDA_ARRAY_SPARSE_PROPERTIES *properties, const void *handle,
                         bool is_mipmap)
{
    const struct array *array;
    CUresult r = guest_check();
    unsigned side;

    if (r != CUDA_SUCCESS)
        return r;
    if (!properties)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    array = find(handle, is_mipmap);
    if (!array)
        r = CUDA_ERROR_INVALID_HANDLE;
    else if (!(array->descriptor.Flags & CUDA_ARRAY3D_SPARSE))
        r = CUDA_ERROR_INVALID_VALUE;
    else
        *properties = (CUDA_ARRAY_SPARSE_PROPERTIES){
            .tileExtent = {(unsigned)(TILE / 128 / element_bytes(&array->descriptor, &side)), 128,
                           1},
            .miptailFirstLevel = array->levels,
        };
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties, CUarray array)
{
    return describe(properties, array, false);
}

PUBLIC CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties,
                                                    CUmipmappedArray mipmap)
{
    return describe(properties, mipmap, true);
}

static size_t find_mapped(const struct array *array, const CUarrayMapInfo *info)
{
    size_t at = 0;

    while (at < array->mapped_count &&
           (array->mapped[at].where.subresourceType != info->subresourceType ||
            memcmp(&array->mapped[at].where.subresource.sparseLevel, &info->subresource.sparseLevel,
                   sizeof(info->subresource.sparseLevel)) != 0))
        at++;
    return at;
}

static CUresult map(struct array *array, const CUarrayMapInfo *info)
{
    uint32_t hold;
    void *list;

    if (!guest_find_hold(info->memHandle.memHandle, &hold) ||
        !(guest_state()->physicals[guest_state()->holds[hold].physical].usage &
          CU_MEM_CREATE_USAGE_TILE_POOL) ||
        find_mapped(array, info) < array->mapped_count)
        return CUDA_ERROR_INVALID_VALUE;
    list = realloc(array->mapped, (array->mapped_count + 1) * sizeof(*array->mapped));
    if (!list)
        return CUDA_ERROR_OUT_OF_MEMORY;
    array->mapped = list;
    array->mapped[array->mapped_count++] = (struct mapped){.where = *info, .hold = hold};
    guest_state()->holds[hold].maps++;
    return CUDA_SUCCESS;
}

/* What was mapped together is unmapped together. */
static CUresult map_or_unmap(const CUarrayMapInfo *info)
{
    bool is_mipmap = info->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    struct array *array = find(info->resource.array, is_mipmap);
    size_t at;

    if (!array || !(array->descriptor.Flags & CUDA_ARRAY3D_SPARSE) ||
        info->subresourceType != CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL || info->flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (info->memOperationType == CU_MEM_OPERATION_TYPE_MAP)
        return map(array, info);
    at = find_mapped(array, info);
    if (info->memOperationType != CU_MEM_OPERATION_TYPE_UNMAP || at == array->mapped_count)
        return CUDA_ERROR_INVALID_VALUE;
    unmap(array, at);
    return CUDA_SUCCESS;
}

/* Done as it is asked for. */
static CUresult map_all(const CUarrayMapInfo *list, unsigned count, CUstream handle,
                        bool per_thread)
{
    uint32_t stream;
    CUresult r = guest_enter_stream(handle, per_thread, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!list || !count)
        r = CUDA_ERROR_INVALID_VALUE;
    else if (guest_is_capturing(stream))
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    for (unsigned i = 0; r == CUDA_SUCCESS && i < count; i++)
        r = map_or_unmap(&list[i]);
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
    return map_all(list, count, stream, false);
}

PUBLIC CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
    return map_all(list, count, stream, true);
}
