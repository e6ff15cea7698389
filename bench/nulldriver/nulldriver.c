/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A driver whose calls return at once, to weigh what stands in front of it. One device, addresses
 * that only ever grow, no bookkeeping: what a measurement shows beside it is libvgpu's own cost.
 *
 * It exports what libvgpu and the benchmark call; libvgpu takes the absence of the rest as an old
 * driver's.
 */

#include <stdatomic.h>
#include <string.h>

#include "base/util.h"
#include "driver/cuda.h"

static const size_t total_bytes = (size_t)1 << 46; /* a million allocations fit, and no refusal */
static _Atomic CUdeviceptr next_address = UINT64_C(0x700000000000);
static __thread CUcontext current;
static int context_mark;

PUBLIC CUresult cuInit(unsigned int flags)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

PUBLIC CUresult cuDriverGetVersion(int *version)
{
    *version = 13000;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return ordinal ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

PUBLIC CUresult cuDeviceGetCount(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    memset(uuid, 0x11 + device, sizeof(*uuid));
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid(uuid, device);
}

PUBLIC CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    (void)device;
    *bytes = total_bytes;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    *value = attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT ? 108 : 1;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    (void)device;
    *context = (CUcontext)&context_mark;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    (void)device;
    *flags = 0;
    *active = current != NULL;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuCtxSetCurrent(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = current;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

PUBLIC CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    if (context)
        *context = current;
    current = NULL;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = total_bytes;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
    *ptr = atomic_fetch_add_explicit(&next_address, (bytes + 511) & ~(size_t)511,
                                     memory_order_relaxed);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr ptr)
{
    if (base)
        *base = ptr;
    if (bytes)
        *bytes = 512;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemFree_v2(CUdeviceptr ptr)
{
    (void)ptr;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemAllocPitch_v2(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height,
                                   unsigned int element)
{
    (void)element;
    *pitch = (width + 511) & ~(size_t)511;
    return cuMemAlloc_v2(ptr, *pitch * height);
}

PUBLIC CUresult cuMemAllocManaged(CUdeviceptr *ptr, size_t bytes, unsigned int flags)
{
    (void)flags;
    return cuMemAlloc_v2(ptr, bytes);
}

PUBLIC CUresult cuMemGetAllocationGranularity(size_t *granule, const CUmemAllocationProp *prop,
                                              CUmemAllocationGranularity_flags option)
{
    (void)prop;
    (void)option;
    *granule = 2 * MIB;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *prop, unsigned long long flags)
{
    (void)prop;
    (void)flags;
    return cuMemAlloc_v2((CUdeviceptr *)handle, bytes);
}

PUBLIC CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    (void)handle;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    (void)descriptor;
    return cuMemAlloc_v2((CUdeviceptr *)array, 512);
}

PUBLIC CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *requirements,
                                             CUarray array, CUdevice device)
{
    (void)array;
    (void)device;
    *requirements = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = 64 << 10, .alignment = 64 << 10};
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuArrayDestroy(CUarray array)
{
    (void)array;
    return CUDA_SUCCESS;
}

/* A pool that has enough and never grows. */

PUBLIC CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    (void)device;
    *pool = (CUmemoryPool)&context_mark;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    return cuDeviceGetDefaultMemPool(pool, device);
}

PUBLIC CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    (void)pool;
    *(cuuint64_t *)value = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? 64 * MIB : 0;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuMemAllocFromPoolAsync(CUdeviceptr *ptr, size_t bytes, CUmemoryPool pool,
                                        CUstream stream)
{
    (void)pool;
    (void)stream;
    return cuMemAlloc_v2(ptr, bytes);
}

PUBLIC CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, CUstream stream)
{
    (void)stream;
    return cuMemAlloc_v2(ptr, bytes);
}

PUBLIC CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream stream)
{
    (void)ptr;
    (void)stream;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuCtxSynchronize(void)
{
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    (void)image;
    *module = (CUmodule)&context_mark;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    (void)module;
    (void)name;
    *function = (CUfunction)&context_mark;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    (void)flags;
    *stream = (CUstream)&context_mark;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    (void)mode;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    (void)flags;
    *event = (CUevent)&context_mark;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuEventRecord(CUevent event, CUstream stream)
{
    (void)event;
    (void)stream;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuEventQuery(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuEventSynchronize(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

/* Kernels of no length at all, nearly: however fast they are launched, no share is used up. */
PUBLIC CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    (void)start;
    (void)end;
    *ms = 1e-7f;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                               unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                               unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                               void **params, void **extra)
{
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y;
    (void)block_z, (void)shared_bytes, (void)stream, (void)params, (void)extra;
    return CUDA_SUCCESS;
}
