/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory of other interfaces (Vulkan, NvSciBuf): an import takes none, and nobody can tell whose it
 * is. So it is refused unless the limits say that imports pass (HAMI_IMPORTS). One that passes is
 * counted with the memory that this process got from others: what becomes this process' own, since
 * whoever made it has let go of it, NVML says, and it is charged as hidden memory.
 */

#include <fcntl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "vgpu/allocations.h"
#include "vgpu/compute.h"
#include "vgpu/contexts.h"
#include "vgpu/overhead.h"
#include "vgpu/real.h"

static uint64_t key_of(CUexternalMemory memory)
{
    return (uint64_t)(uintptr_t)memory;
}

static bool remember(CUexternalMemory memory)
{
    struct allocation entry = {.units = 1, .context = context_current()};

    if (!allocations_add(ALLOCATION_EXTERNAL, key_of(memory), &entry))
        return false;
    virtual_count_imports(1);
    watch_start();
    return true;
}

/* The driver is asked first, since it is its affair to say what is no import at all. It takes a
 * descriptor for its own: what it gets is a copy until it is known that the import stays. */
static CUresult import(CUexternalMemory *ret_memory, CUDA_EXTERNAL_MEMORY_HANDLE_DESC *own)
{
    bool is_fd = own->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    int given = is_fd ? own->handle.fd : -1;
    AUTOCLOSE int copy = is_fd ? fcntl(given, F_DUPFD_CLOEXEC, 3) : -1;
    CUexternalMemory made;
    CUresult result;

    if (is_fd)
        own->handle.fd = copy;
    result = REAL(cuImportExternalMemory)(&made, own);
    if (result != CUDA_SUCCESS)
        return result;
    if (is_fd)
        (void)take_fd(&copy);
    if (vgpu_refuses(VGPU_WORD_IMPORT, "cuImportExternalMemory",
                     "nobody knows who made that memory"))
        result = CUDA_ERROR_NOT_SUPPORTED;
    else if (!remember(made))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        (void)REAL(cuDestroyExternalMemory)(made);
        return result;
    }
    if (is_fd)
        (void)close(given);
    *ret_memory = made;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuImportExternalMemory(CUexternalMemory *memory,
                                       const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC own;

    if (vgpu_mode() == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (vgpu_mode() != VGPU_ON || !memory || !desc)
        return REAL(cuImportExternalMemory)(memory, desc);
    own = *desc;
    return import(memory, &own);
}

PUBLIC CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    struct allocation entry;
    bool known =
        vgpu_mode() == VGPU_ON && allocations_take(ALLOCATION_EXTERNAL, key_of(memory), &entry);
    CUresult result = REAL(cuDestroyExternalMemory)(memory);

    if (!known)
        return result;
    if (result != CUDA_SUCCESS) {
        (void)allocations_add(ALLOCATION_EXTERNAL, key_of(memory), &entry);
        return result;
    }
    virtual_count_imports(-1);
    overhead_make_due();
    return result;
}
