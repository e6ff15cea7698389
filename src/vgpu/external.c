/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory of other interfaces (Vulkan, NvSciBuf, and what of GL, EGL and VDPAU is registered): an
 * import takes none, and nobody can tell whose it is. So it is refused unless the limits say that
 * imports pass (HAMI_IMPORTS). One that passes is counted with the memory that this process got
 * from others: what becomes this process' own, since whoever made it has let go of it, NVML says,
 * and it is charged as hidden memory.
 */

#include <fcntl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "vgpu/allocations.h"
#include "vgpu/compute.h"
#include "vgpu/contexts.h"
#include "vgpu/hidden.h"
#include "vgpu/real.h"

static uint64_t key_of(const void *handle)
{
    return (uint64_t)(uintptr_t)handle;
}

static bool remember(enum allocation_kind kind, const void *handle)
{
    struct allocation entry = {.units = 1, .context = context_current()};

    if (!allocations_add(kind, key_of(handle), &entry))
        return false;
    virtual_count_imports(1);
    (void)watch_start();
    return true;
}

/* What the driver took in: whether it may stay, and is remembered. */
static CUresult admit(enum allocation_kind kind, const void *handle, const char *name)
{
    if (vgpu_refuses(VGPU_WORD_IMPORT, name, "nobody knows who made that memory"))
        return CUDA_ERROR_NOT_SUPPORTED;
    return remember(kind, handle) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
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
    result = admit(ALLOCATION_EXTERNAL, made, "cuImportExternalMemory");
    if (result != CUDA_SUCCESS) {
        UNDO(cuDestroyExternalMemory, made);
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

static CUresult let_go(enum allocation_kind kind, void *handle, CUresult (*driver)(void *handle))
{
    struct allocation entry;
    bool known = vgpu_mode() == VGPU_ON && allocations_take(kind, key_of(handle), &entry);
    CUresult result = driver(handle);

    if (!known)
        return result;
    if (result != CUDA_SUCCESS) {
        (void)allocations_add(kind, key_of(handle), &entry);
        return result;
    }
    virtual_count_imports(-1);
    hidden_make_due();
    return result;
}

static CUresult destroy(void *memory)
{
    return REAL(cuDestroyExternalMemory)(memory);
}

PUBLIC CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    return let_go(ALLOCATION_EXTERNAL, memory, destroy);
}

/*
 * Buffers and images of GL, EGL and VDPAU, and frames that come through streams of EGL's: each
 * connection to one is an import, as long as it is there. They may be memory that these imported
 * themselves, and what is registered goes with its context.
 */

static CUresult unregister(void *resource)
{
    return REAL(cuGraphicsUnregisterResource)(resource);
}

PUBLIC CUresult cuGraphicsUnregisterResource(CUgraphicsResource resource)
{
    return let_go(ALLOCATION_GRAPHICS, resource, unregister);
}

/* After the driver's answer, as for imports: what may not stay is undone. */
static CUresult end_register(void *made, CUresult result, CUresult (*undo)(void *made),
                             const char *name)
{
    if (result != CUDA_SUCCESS)
        return result;
    result = admit(ALLOCATION_GRAPHICS, made, name);
    if (result != CUDA_SUCCESS)
        (void)undo(made);
    return result;
}

/* The body of a function that makes something which is given back by undo(); they differ in their
 * arguments. */
#define MAKE(name, undo, ret, ...)                                                                 \
    __typeof__(*(ret)) made = NULL;                                                                \
    CUresult result;                                                                               \
                                                                                                   \
    if (vgpu_mode() == VGPU_DENIED)                                                                \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                           \
    if (vgpu_mode() != VGPU_ON || !(ret))                                                          \
        return REAL(name)(ret, __VA_ARGS__);                                                       \
    result = REAL(name)(&made, __VA_ARGS__);                                                       \
    result = end_register(made, result, undo, #name);                                              \
    if (result == CUDA_SUCCESS)                                                                    \
        *(ret) = made;                                                                             \
    return result

#define REGISTER(name, ...) MAKE(name, unregister, __VA_ARGS__)

PUBLIC CUresult cuGraphicsGLRegisterBuffer(CUgraphicsResource *resource, unsigned int buffer,
                                           unsigned int flags)
{
    REGISTER(cuGraphicsGLRegisterBuffer, resource, buffer, flags);
}

PUBLIC CUresult cuGraphicsGLRegisterImage(CUgraphicsResource *resource, unsigned int image,
                                          unsigned int target, unsigned int flags)
{
    REGISTER(cuGraphicsGLRegisterImage, resource, image, target, flags);
}

PUBLIC CUresult cuGraphicsEGLRegisterImage(CUgraphicsResource *resource, void *image,
                                           unsigned int flags)
{
    REGISTER(cuGraphicsEGLRegisterImage, resource, image, flags);
}

PUBLIC CUresult cuGraphicsVDPAURegisterVideoSurface(CUgraphicsResource *resource,
                                                    unsigned int surface, unsigned int flags)
{
    REGISTER(cuGraphicsVDPAURegisterVideoSurface, resource, surface, flags);
}

PUBLIC CUresult cuGraphicsVDPAURegisterOutputSurface(CUgraphicsResource *resource,
                                                     unsigned int surface, unsigned int flags)
{
    REGISTER(cuGraphicsVDPAURegisterOutputSurface, resource, surface, flags);
}

static CUresult disconnect(void *connection)
{
    CUeglStreamConnection own = connection;

    return REAL(cuEGLStreamConsumerDisconnect)(&own);
}

PUBLIC CUresult cuEGLStreamConsumerConnect(CUeglStreamConnection *connection, void *stream)
{
    MAKE(cuEGLStreamConsumerConnect, disconnect, connection, stream);
}

PUBLIC CUresult cuEGLStreamConsumerConnectWithFlags(CUeglStreamConnection *connection, void *stream,
                                                    unsigned int flags)
{
    MAKE(cuEGLStreamConsumerConnectWithFlags, disconnect, connection, stream, flags);
}

PUBLIC CUresult cuEGLStreamConsumerDisconnect(CUeglStreamConnection *connection)
{
    if (vgpu_mode() != VGPU_ON || !connection)
        return REAL(cuEGLStreamConsumerDisconnect)(connection);
    return let_go(ALLOCATION_GRAPHICS, *connection, disconnect);
}

/* Buffers of GL as programs of old register them have no handle but GL's number, which is no
 * address. */
#define GL_BUFFER (UINT64_C(1) << 48)

static CUresult unregister_buffer(void *buffer)
{
    return REAL(cuGLUnregisterBufferObject)((unsigned)(uintptr_t)buffer);
}

PUBLIC CUresult cuGLRegisterBufferObject(unsigned int buffer)
{
    void *handle = (void *)(uintptr_t)(GL_BUFFER | buffer);

    if (vgpu_mode() == VGPU_DENIED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (vgpu_mode() != VGPU_ON)
        return REAL(cuGLRegisterBufferObject)(buffer);
    return end_register(handle, REAL(cuGLRegisterBufferObject)(buffer), unregister_buffer,
                        "cuGLRegisterBufferObject");
}

PUBLIC CUresult cuGLUnregisterBufferObject(unsigned int buffer)
{
    return let_go(ALLOCATION_GRAPHICS, (void *)(uintptr_t)(GL_BUFFER | buffer), unregister_buffer);
}
