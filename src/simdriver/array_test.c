/* SPDX-License-Identifier: Apache-2.0 */

/* Arrays: what they take, what is told of them, and memory in tiles. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/testing.h"

#define PIECE (2 * MIB)
#define INVALID(call) GIVES(CUDA_ERROR_INVALID_VALUE, call)

static uint64_t used(void)
{
    return testing_used_bytes();
}

static CUDA_ARRAY3D_DESCRIPTOR floats(size_t width, size_t height, size_t depth, unsigned flags)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){width, height, depth, CU_AD_FORMAT_FLOAT, 1, flags};
}

static const struct {
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    uint64_t bytes;
} sizes[] = {
    {{1, 0, 0, CU_AD_FORMAT_FLOAT, 1, 0}, 64 * KIB},
    {{1024, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0}, 4 * MIB},
    {{1025, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0}, (4096 + 512) * 1024},
    {{1024, 1024, 0, CU_AD_FORMAT_HALF, 4, 0}, 8 * MIB},
    {{1024, 1024, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 1 * MIB},
    {{128, 128, 16, CU_AD_FORMAT_FLOAT, 1, 0}, 1 * MIB},
    {{128, 0, 128, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED}, 64 * KIB},
    {{128, 128, 12, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP}, 768 * KIB},
    {{1024, 1024, 0, CU_AD_FORMAT_BC1_UNORM, 4, 0}, 512 * KIB},
    {{1024, 1024, 0, CU_AD_FORMAT_BC7_UNORM_SRGB, 4, 0}, 1 * MIB},
};

static void each_size(void)
{
    CUDA_ARRAY_MEMORY_REQUIREMENTS requirements;
    CUDA_ARRAY3D_DESCRIPTOR told;
    struct testing t;
    uint64_t before;
    CUarray array;

    testing_begin(&t);
    before = used();
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        CUDA_ARRAY3D_DESCRIPTOR d = sizes[i].descriptor;

        OK(cuArray3DCreate_v2(&array, &d));
        HOLDS(used() == before + sizes[i].bytes);
        OK(cuArray3DGetDescriptor_v2(&told, array));
        HOLDS(told.Width == d.Width && told.Depth == d.Depth && told.Flags == d.Flags);
        INVALID(cuArrayGetMemoryRequirements(&requirements, array, 0));
        OK(cuArrayDestroy(array));
        GIVES(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy(array));
        HOLDS(used() == before);

        /* What is mapped later takes nothing, and tells what it will. */
        d.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
        OK(cuArray3DCreate_v2(&array, &d));
        HOLDS(used() == before);
        OK(cuArrayGetMemoryRequirements(&requirements, array, 0));
        HOLDS(requirements.size == sizes[i].bytes);
        OK(cuArrayDestroy(array));
    }
}

static void what_makes_no_sense(void)
{
    CUDA_ARRAY3D_DESCRIPTOR d = floats(10, 10, 0, 0);
    CUarray array;
    struct testing t;

    OK(cuInit(0));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuArray3DCreate_v2(&array, &d));
    testing_begin(&t);
    INVALID(cuArray3DCreate_v2(NULL, &d));
    INVALID(cuArray3DCreate_v2(&array, NULL));
    d.NumChannels = 3;
    INVALID(cuArray3DCreate_v2(&array, &d));
    d = floats(0, 10, 0, 0);
    INVALID(cuArray3DCreate_v2(&array, &d));
    d = floats(10, 0, 10, 0);
    INVALID(cuArray3DCreate_v2(&array, &d));
    d = floats(10, 20, 6, CUDA_ARRAY3D_CUBEMAP);
    INVALID(cuArray3DCreate_v2(&array, &d));
    d = floats(10, 10, 5, CUDA_ARRAY3D_CUBEMAP);
    INVALID(cuArray3DCreate_v2(&array, &d));
    d = floats(10, 10, 0, 0);
    d.Format = 0x77;
    INVALID(cuArray3DCreate_v2(&array, &d));
    d = floats(1 << 17, 1 << 17, 0, 0);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuArray3DCreate_v2(&array, &d));
}

static void old_forms(void)
{
    CUDA_ARRAY_DESCRIPTOR_v1 narrow = {1024, 1024, CU_AD_FORMAT_FLOAT, 1};
    CUDA_ARRAY_DESCRIPTOR wide = {1024, 1024, CU_AD_FORMAT_FLOAT, 1};
    CUDA_ARRAY3D_DESCRIPTOR_v1 narrow3 = {128, 128, 16, CU_AD_FORMAT_FLOAT, 1, 0}, told;
    CUarray array[3];
    struct testing t;
    uint64_t before;

    testing_begin(&t);
    before = used();
    OK(cuArrayCreate(&array[0], &narrow));
    OK(cuArrayCreate_v2(&array[1], &wide));
    OK(cuArray3DCreate(&array[2], &narrow3));
    HOLDS(used() == before + 9 * MIB);
    OK(cuArrayGetDescriptor(&narrow, array[2]));
    HOLDS(narrow.Width == 128 && narrow.NumChannels == 1);
    OK(cuArrayGetDescriptor_v2(&wide, array[0]));
    HOLDS(wide.Height == 1024);
    OK(cuArray3DGetDescriptor(&told, array[2]));
    HOLDS(told.Depth == 16);
    OK(cuCtxDestroy_v2(t.context));
    HOLDS(used() == 0);
}

static void levels(void)
{
    CUDA_ARRAY3D_DESCRIPTOR d = floats(1024, 512, 0, 0), told;
    CUDA_ARRAY_MEMORY_REQUIREMENTS requirements;
    CUmipmappedArray mipmap, twin;
    CUarray level, again;
    struct testing t;
    uint64_t before;

    testing_begin(&t);
    before = used();
    OK(cuMipmappedArrayCreate(&mipmap, &d, 99));
    /* 2 MiB, 512 KiB, 128 KiB; from there on a row is 512 bytes. */
    HOLDS(used() - before == (2048 + 512 + 128 + 64) * KIB);
    OK(cuMipmappedArrayGetLevel(&level, mipmap, 3));
    OK(cuMipmappedArrayGetLevel(&again, mipmap, 3));
    HOLDS(level == again);
    OK(cuArray3DGetDescriptor_v2(&told, level));
    HOLDS(told.Width == 128 && told.Height == 64 && told.Depth == 0);
    INVALID(cuMipmappedArrayGetLevel(&again, mipmap, 11));
    INVALID(cuArrayDestroy(level));
    d.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING;
    OK(cuMipmappedArrayCreate(&twin, &d, 99));
    OK(cuMipmappedArrayGetMemoryRequirements(&requirements, twin, 0));
    HOLDS(requirements.size == used() - before);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy((CUarray)mipmap));
    OK(cuMipmappedArrayDestroy(mipmap));
    HOLDS(used() == before);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor_v2(&told, level));
}

static void tiles(void)
{
    CUDA_ARRAY3D_DESCRIPTOR d = floats(1024, 1024, 0, CUDA_ARRAY3D_SPARSE);
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
        .allocFlags = {.usage = CU_MEM_CREATE_USAGE_TILE_POOL},
    };
    CUDA_ARRAY_SPARSE_PROPERTIES properties;
    CUmemGenericAllocationHandle memory, other;
    CUarrayMapInfo info = {.memOperationType = CU_MEM_OPERATION_TYPE_MAP, .deviceBitMask = 1};
    struct testing t;
    uint64_t before;

    testing_begin(&t);
    before = used();
    OK(cuArray3DCreate_v2(&info.resource.array, &d));
    HOLDS(used() == before);
    OK(cuArrayGetSparseProperties(&properties, info.resource.array));
    HOLDS(properties.tileExtent.width == 128 && properties.tileExtent.height == 128);
    OK(cuMemCreate(&memory, PIECE, &prop, 0));
    prop.allocFlags.usage = 0;
    OK(cuMemCreate(&other, PIECE, &prop, 0));
    info.subresource.sparseLevel.extentWidth = info.subresource.sparseLevel.extentHeight = 128;
    info.subresource.sparseLevel.extentDepth = 1;
    info.memHandle.memHandle = other;
    INVALID(cuMemMapArrayAsync(&info, 1, t.streams[0]));
    info.memHandle.memHandle = memory;
    OK(cuMemMapArrayAsync(&info, 1, t.streams[0]));
    INVALID(cuMemMapArrayAsync(&info, 1, t.streams[0]));
    INVALID(cuMemMapArrayAsync(NULL, 1, t.streams[0]));
    OK(cuMemRelease(other));
    OK(cuMemRelease(memory));
    HOLDS(used() == before + PIECE);
    info.memOperationType = CU_MEM_OPERATION_TYPE_UNMAP;
    OK(cuMemMapArrayAsync(&info, 1, t.streams[0]));
    HOLDS(used() == before);

    /* It ends with the array, too. */
    prop.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
    OK(cuMemCreate(&info.memHandle.memHandle, PIECE, &prop, 0));
    info.memOperationType = CU_MEM_OPERATION_TYPE_MAP;
    OK(cuMemMapArrayAsync(&info, 1, t.streams[0]));
    OK(cuMemRelease(info.memHandle.memHandle));
    HOLDS(used() == before + PIECE);
    OK(cuArrayDestroy(info.resource.array));
    HOLDS(used() == before);
}

HOLDS_IN(an_array_takes_what_its_twin_tells, "", each_size)
HOLDS_IN(what_makes_no_sense_is_not_made, "", what_makes_no_sense)
HOLDS_IN(the_forms_of_old_make_the_same, "", old_forms)
HOLDS_IN(a_mipmapped_array_has_levels, "", levels)
HOLDS_IN(tiles_hold_memory, "", tiles)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_array_takes_what_its_twin_tells),
        cmocka_unit_test(what_makes_no_sense_is_not_made),
        cmocka_unit_test(the_forms_of_old_make_the_same),
        cmocka_unit_test(a_mipmapped_array_has_levels),
        cmocka_unit_test(tiles_hold_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
