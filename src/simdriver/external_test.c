/* SPDX-License-Identifier: Apache-2.0 */

/* Arrays over memory of other interfaces, and of images that are registered. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/testing.h"

#define PIECE (2 * MIB)
#define SIZE (4 * PIECE)
#define TEXTURE_2D 0x0de1
#define INVALID(call) GIVES(CUDA_ERROR_INVALID_VALUE, call)

static struct testing t;
static CUmemGenericAllocationHandle made;
static uint64_t before;

/* What takes the part of other interfaces' memory. */
static int descriptor(void)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
    };
    int fd;

    OK(cuMemCreate(&made, SIZE, &prop, 0));
    OK(cuMemExportToShareableHandle(&fd, made, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return fd;
}

static CUexternalMemory import(void)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
                                             .size = SIZE};
    CUexternalMemory memory;

    testing_begin(&t);
    before = testing_used_bytes();
    desc.handle.fd = descriptor();
    OK(cuImportExternalMemory(&memory, &desc));
    return memory;
}

/* Of floats, 512 in a row and as many rows: 1 MiB, and with all levels a third more. */
static CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC described(uint64_t offset, unsigned levels)
{
    return (CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC){
        .offset = offset,
        .arrayDesc = {512, 512, 0, CU_AD_FORMAT_FLOAT, 1, 0},
        .numLevels = levels,
    };
}

static void over_memory(void)
{
    CUexternalMemory memory = import();
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC desc = described(SIZE - 2 * MIB, 10);
    CUDA_ARRAY3D_DESCRIPTOR told;
    CUmipmappedArray mipmap;
    CUarray level, again;

    OK(cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &desc));
    HOLDS(testing_used_bytes() == before + SIZE);
    OK(cuMipmappedArrayGetLevel(&level, mipmap, 2));
    OK(cuMipmappedArrayGetLevel(&again, mipmap, 2));
    HOLDS(level == again);
    OK(cuArray3DGetDescriptor_v2(&told, level));
    HOLDS(told.Width == 128 && told.Height == 128 && told.Format == CU_AD_FORMAT_FLOAT);
    INVALID(cuMipmappedArrayGetLevel(&level, mipmap, 10));
    INVALID(cuArrayDestroy(level));

    /* It holds the memory, whatever becomes of what it was imported as. */
    OK(cuMemRelease(made));
    OK(cuDestroyExternalMemory(memory));
    HOLDS(testing_used_bytes() == before + SIZE);
    OK(cuMipmappedArrayDestroy(mipmap));
    HOLDS(testing_used_bytes() == before);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy(mipmap));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor_v2(&told, level));
}

static void only_as_far_as_it_reaches(void)
{
    CUexternalMemory memory = import();
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC desc = described(SIZE - MIB, 1);
    CUmipmappedArray mipmap;

    OK(cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &desc));
    OK(cuMipmappedArrayDestroy(mipmap));
    desc = described(SIZE - MIB, 2);
    INVALID(cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &desc));
    desc = described(SIZE + 1, 1);
    INVALID(cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &desc));
    desc = described(0, 1);
    INVALID(cuExternalMemoryGetMappedMipmappedArray(NULL, memory, &desc));
    INVALID(cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, NULL));
    desc.arrayDesc.Flags = CUDA_ARRAY3D_SPARSE;
    INVALID(cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &desc));
    desc.arrayDesc.Flags = 0;
    desc.arrayDesc.NumChannels = 3;
    INVALID(cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &desc));
    OK(cuDestroyExternalMemory(memory));
    desc = described(0, 1);
    GIVES(CUDA_ERROR_INVALID_HANDLE,
          cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &desc));
}

/* Its context takes it along, and what it held. */
static void ends_with_its_context(void)
{
    CUexternalMemory memory = import();
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC desc = described(0, 1);
    CUmipmappedArray mipmap;
    CUcontext second;

    OK(cuCtxCreate_v2(&second, 0, 0));
    OK(cuExternalMemoryGetMappedMipmappedArray(&mipmap, memory, &desc));
    OK(cuMemRelease(made));
    OK(cuDestroyExternalMemory(memory));
    OK(cuCtxDestroy_v2(second));
    HOLDS(testing_used_bytes() == before);
    OK(cuCtxSetCurrent(t.context));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy(mipmap));
}

static void of_images(void)
{
    CUgraphicsResource image, buffer;
    CUDA_ARRAY3D_DESCRIPTOR told;
    CUmipmappedArray mipmap;
    CUarray array, again;
    unsigned name;

    testing_begin(&t);
    before = testing_used_bytes();
    name = (unsigned)descriptor();
    OK(cuGraphicsGLRegisterImage(&image, name, TEXTURE_2D, 0));
    OK(cuGraphicsGLRegisterBuffer(&buffer, name, 0));
    GIVES(CUDA_ERROR_NOT_MAPPED, cuGraphicsSubResourceGetMappedArray(&array, image, 0, 0));
    GIVES(CUDA_ERROR_NOT_MAPPED, cuGraphicsResourceGetMappedMipmappedArray(&mipmap, image));
    OK(cuGraphicsMapResources(1, &image, NULL));
    OK(cuGraphicsMapResources(1, &buffer, NULL));
    GIVES(CUDA_ERROR_NOT_MAPPED_AS_ARRAY,
          cuGraphicsSubResourceGetMappedArray(&array, buffer, 0, 0));
    OK(cuGraphicsSubResourceGetMappedArray(&array, image, 0, 0));
    OK(cuGraphicsResourceGetMappedMipmappedArray(&mipmap, image));
    OK(cuMipmappedArrayGetLevel(&again, mipmap, 0));
    HOLDS(again == array && testing_used_bytes() == before + SIZE);
    OK(cuArray3DGetDescriptor_v2(&told, array));
    HOLDS(told.Width == 1024 && told.Height == 2048 && told.NumChannels == 4);
    INVALID(cuGraphicsSubResourceGetMappedArray(&array, image, 1, 0));
    INVALID(cuGraphicsSubResourceGetMappedArray(&array, image, 0, 1));
    INVALID(cuGraphicsSubResourceGetMappedArray(NULL, image, 0, 0));

    /* What is lent is not destroyed, and gone when it is unmapped. */
    GIVES(CUDA_ERROR_ARRAY_IS_MAPPED, cuArrayDestroy(array));
    GIVES(CUDA_ERROR_ARRAY_IS_MAPPED, cuMipmappedArrayDestroy(mipmap));
    OK(cuGraphicsUnmapResources(1, &image, NULL));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor_v2(&told, array));
    OK(cuGraphicsMapResources(1, &image, NULL));
    OK(cuGraphicsSubResourceGetMappedArray(&again, image, 0, 0));
    HOLDS(again != array);
    OK(cuGraphicsUnregisterResource(image));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor_v2(&told, again));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuGraphicsSubResourceGetMappedArray(&array, image, 0, 0));
}

/* Those of EGL are mapped as long as they are there, frames too. */
static void of_egl(void)
{
    CUeglStreamConnection connection;
    CUgraphicsResource image, frame;
    CUDA_ARRAY3D_DESCRIPTOR told;
    CUarray array;
    void *name;

    testing_begin(&t);
    name = (void *)(uintptr_t)descriptor();
    OK(cuGraphicsEGLRegisterImage(&image, name, 0));
    OK(cuGraphicsSubResourceGetMappedArray(&array, image, 0, 0));
    OK(cuEGLStreamConsumerConnect(&connection, name));
    OK(cuEGLStreamConsumerAcquireFrame(&connection, &frame, NULL, 0));
    OK(cuGraphicsSubResourceGetMappedArray(&array, frame, 0, 0));
    OK(cuArray3DGetDescriptor_v2(&told, array));
    OK(cuEGLStreamConsumerReleaseFrame(&connection, frame, NULL));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuArray3DGetDescriptor_v2(&told, array));
    OK(cuCtxDestroy_v2(t.context));
}

HOLDS_IN(a_mipmapped_array_lies_over_memory, "", over_memory)
HOLDS_IN(where_there_is_as_much, "", only_as_far_as_it_reaches)
HOLDS_IN(a_context_takes_it_along, "", ends_with_its_context)
HOLDS_IN(a_mapped_image_has_arrays, "", of_images)
HOLDS_IN(an_image_of_egl_always, "", of_egl)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mipmapped_array_lies_over_memory),
        cmocka_unit_test(where_there_is_as_much),
        cmocka_unit_test(a_context_takes_it_along),
        cmocka_unit_test(a_mapped_image_has_arrays),
        cmocka_unit_test(an_image_of_egl_always),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
