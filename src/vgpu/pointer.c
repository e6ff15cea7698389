/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/pointer.h"

#include "vgpu/real.h"

static bool ask(void *ret, int attribute, CUdeviceptr ptr)
{
    return HAS(cuPointerGetAttribute) &&
           REAL(cuPointerGetAttribute)(ret, attribute, ptr) == CUDA_SUCCESS;
}

bool pointer_is_known(CUdeviceptr ptr)
{
    unsigned int type;

    return ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr);
}

bool pointer_is_on_device(CUdeviceptr ptr)
{
    unsigned int type;

    return ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr) && type == CU_MEMORYTYPE_DEVICE;
}

bool pointer_ordinal(CUdeviceptr ptr, int *ret_ordinal)
{
    return ask(ret_ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, ptr);
}

bool pointer_is_there(int type, CUdeviceptr ptr)
{
    return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY ||
           (type == CU_MEMORYTYPE_UNIFIED && pointer_is_on_device(ptr));
}
