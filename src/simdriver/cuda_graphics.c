/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Buffers and images of GL, EGL and VDPAU that are registered with CUDA, and EGL's streams of
 * frames. There is none of these here: what cuMemExportToShareableHandle() gives out takes the part
 * of theirs, and of all frames of a stream; the number of its descriptor that of their names. The
 * descriptor stays whose it is.
 */

#include <limits.h>

#include "base/util.h"
#include "simdriver/addresses.h"
#include "simdriver/guest.h"
#include "simdriver/physical.h"

enum {
    RESOURCES = 1024,
    LISTED =
        64, /* of which one call is told more are INVALID_VALUE: a guess that no program nears */
};

#define HANDLE_KIND (UINT64_C(9) << 44)

/* Of textures and renderbuffers, as GL numbers them. */
static const unsigned targets[] = {0x0de1, 0x84f5, 0x8513, 0x806f, 0x8c1a, 0x8d41};

enum flags {
    READ_ONLY = 1,
    WRITE_DISCARD = 2,
    SURFACE = 4,
    GATHER = 8,
};

/* What there are handles of: nobody finds one as another. */
enum kind {
    RESOURCE,
    GL_BUFFER,  /* registered by its name alone, which is its handle */
    CONNECTION, /* to a stream of EGL's, as its consumer */
    FRAME,      /* of such a stream, until it is released */
};

/* Under the machine's lock. */
static struct resource {
    enum kind kind;
    uint32_t gen;
    uint32_t hold; /* 0: free */
    uint32_t context;
    bool is_image, is_mapped;
    bool needs_mapping; /* an image of EGL is mapped as long as it is registered */
    uint64_t bytes, address;
    CUmipmappedArray array;            /* of an image that is mapped: once somebody asked */
    uint64_t name;                     /* what it was made of */
    const struct resource *connection; /* of a frame */
} resources[RESOURCES];

static CUgraphicsResource handle_of(const struct resource *resource)
{
    return (CUgraphicsResource)(uintptr_t)(HANDLE_KIND | (uint64_t)(resource->gen & 0xfffff) << 24 |
                                           (uint64_t)(resource - resources) << 4);
}

static struct resource *find_any(const void *handle)
{
    size_t i = (uintptr_t)handle >> 4 & 0xfffff;

    return i < RESOURCES && resources[i].hold && handle_of(&resources[i]) == handle ? &resources[i]
                                                                                    : NULL;
}

/* What is mapped, as frames are. */
static struct resource *find(CUgraphicsResource handle)
{
    struct resource *one = find_any(handle);

    return one && (one->kind == RESOURCE || one->kind == FRAME) ? one : NULL;
}

static void unmap(struct resource *resource)
{
    uint32_t context;
    uint64_t bytes;

    if (resource->address)
        (void)address_give(resource->address, &bytes, &context);
    resource->address = 0;
    if (resource->array)
        guest_array_end(resource->array);
    resource->array = NULL;
    resource->is_mapped = !resource->needs_mapping;
}

static void end(struct resource *resource)
{
    uint32_t hold = resource->hold;

    unmap(resource);
    resource->hold = 0;
    resource->gen++;
    sim_hold_drop(guest_state(), hold);
}

void guest_graphics_drop(uint32_t context)
{
    for (struct resource *one = resources; one < resources + RESOURCES; one++) {
        if (one->hold && one->context == context)
            end(one);
    }
}

bool guest_graphics_has(uint64_t address)
{
    for (const struct resource *one = resources; address && one < resources + RESOURCES; one++) {
        if (one->hold && one->address == address)
            return true;
    }
    return false;
}

static CUresult make(uint32_t physical, const struct resource *template, CUgraphicsResource *ret)
{
    struct resource *one = resources;
    uint32_t gen;

    if (!physical)
        return CUDA_ERROR_INVALID_HANDLE;
    while (one < resources + RESOURCES && one->hold)
        one++;
    if (one == resources + RESOURCES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    gen = one->gen;
    *one = *template;
    one->gen = gen;
    one->hold = sim_hold_new(guest.sim, physical);
    if (!one->hold)
        return CUDA_ERROR_OUT_OF_MEMORY;
    one->bytes = guest_state()->physicals[physical].bytes;
    one->is_mapped = !one->needs_mapping;
    *ret = handle_of(one);
    return CUDA_SUCCESS;
}

static CUresult enroll(CUgraphicsResource *ret, uint64_t name, struct resource template,
                       unsigned given, unsigned allowed)
{
    CUresult r = guest_current_safe(&template.context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!ret || (given & ~allowed))
        return CUDA_ERROR_INVALID_VALUE;
    template.name = name;
    (void)sim_lock(guest.sim);
    r = make(name <= INT_MAX ? sim_export_find(guest.sim, (int)name) : 0, &template, ret);
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuGraphicsGLRegisterBuffer(CUgraphicsResource *resource, unsigned int buffer,
                                           unsigned int flags)
{
    return enroll(resource, buffer, (struct resource){.needs_mapping = true}, flags,
                  READ_ONLY | WRITE_DISCARD);
}

static bool is_target(unsigned target)
{
    for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
        if (targets[i] == target)
            return true;
    }
    return false;
}

PUBLIC CUresult cuGraphicsGLRegisterImage(CUgraphicsResource *resource, unsigned int image,
                                          unsigned int target, unsigned int flags)
{
    unsigned allowed = READ_ONLY | WRITE_DISCARD | SURFACE | GATHER;

    return enroll(is_target(target) ? resource : NULL, image,
                  (struct resource){.is_image = true, .needs_mapping = true}, flags, allowed);
}

PUBLIC CUresult cuGraphicsEGLRegisterImage(CUgraphicsResource *resource, void *image,
                                           unsigned int flags)
{
    return enroll(resource, (uintptr_t)image, (struct resource){.is_image = true}, flags,
                  READ_ONLY | WRITE_DISCARD);
}

PUBLIC CUresult cuGraphicsVDPAURegisterVideoSurface(CUgraphicsResource *resource,
                                                    unsigned int surface, unsigned int flags)
{
    return enroll(resource, surface, (struct resource){.is_image = true, .needs_mapping = true},
                  flags, READ_ONLY | WRITE_DISCARD);
}

PUBLIC CUresult cuGraphicsVDPAURegisterOutputSurface(CUgraphicsResource *resource,
                                                     unsigned int surface, unsigned int flags)
{
    return cuGraphicsVDPAURegisterVideoSurface(resource, surface, flags);
}

PUBLIC CUresult cuGraphicsUnregisterResource(CUgraphicsResource handle)
{
    struct resource *resource;
    uint32_t context;
    CUresult r = guest_current_safe(&context);

    if (r != CUDA_SUCCESS)
        return r;
    (void)sim_lock(guest.sim);
    resource = find(handle);
    if (resource && resource->kind != RESOURCE)
        resource = NULL;
    if (resource)
        end(resource);
    sim_unlock(guest.sim);
    return resource ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static struct resource *find_buffer(unsigned name, uint32_t context)
{
    for (struct resource *one = resources; one < resources + RESOURCES; one++) {
        if (one->hold && one->kind == GL_BUFFER && one->name == name && one->context == context)
            return one;
    }
    return NULL;
}

PUBLIC CUresult cuGLRegisterBufferObject(unsigned int buffer)
{
    CUgraphicsResource ignored;
    uint32_t context;
    CUresult r = guest_current_safe(&context);
    bool known;

    if (r != CUDA_SUCCESS)
        return r;
    (void)sim_lock(guest.sim);
    known = find_buffer(buffer, context);
    sim_unlock(guest.sim);
    return known ? CUDA_ERROR_ALREADY_MAPPED
                 : enroll(&ignored, buffer,
                          (struct resource){.kind = GL_BUFFER, .needs_mapping = true}, 0, 0);
}

PUBLIC CUresult cuGLUnregisterBufferObject(unsigned int buffer)
{
    struct resource *one;
    uint32_t context;
    CUresult r = guest_current_safe(&context);

    if (r != CUDA_SUCCESS)
        return r;
    (void)sim_lock(guest.sim);
    one = find_buffer(buffer, context);
    if (one)
        end(one);
    sim_unlock(guest.sim);
    return one ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Streams of EGL's, of which this process is the consumer: a frame is always there */

PUBLIC CUresult cuEGLStreamConsumerConnectWithFlags(CUeglStreamConnection *connection, void *stream,
                                                    unsigned int flags)
{
    return enroll((CUgraphicsResource *)connection, (uintptr_t)stream,
                  (struct resource){.kind = CONNECTION}, flags, 1);
}

PUBLIC CUresult cuEGLStreamConsumerConnect(CUeglStreamConnection *connection, void *stream)
{
    return cuEGLStreamConsumerConnectWithFlags(connection, stream, 0);
}

/* With the machine's lock held if all is well. */
static CUresult enter_connection(const CUeglStreamConnection *connection,
                                 struct resource **ret_found)
{
    uint32_t context;
    CUresult r = guest_current_safe(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!connection)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    *ret_found = find_any(*connection);
    if (*ret_found && (*ret_found)->kind == CONNECTION)
        return CUDA_SUCCESS;
    sim_unlock(guest.sim);
    return CUDA_ERROR_INVALID_HANDLE;
}

/* Its frames go with it. */
PUBLIC CUresult cuEGLStreamConsumerDisconnect(CUeglStreamConnection *connection)
{
    struct resource *own;
    CUresult r = enter_connection(connection, &own);

    if (r != CUDA_SUCCESS)
        return r;
    for (struct resource *one = resources; one < resources + RESOURCES; one++) {
        if (one->hold && one->kind == FRAME && one->connection == own)
            end(one);
    }
    end(own);
    sim_unlock(guest.sim);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuEGLStreamConsumerAcquireFrame(CUeglStreamConnection *connection,
                                                CUgraphicsResource *resource, CUstream *stream,
                                                unsigned int timeout)
{
    struct resource *own;
    CUresult r = enter_connection(connection, &own);

    (void)stream, (void)timeout;
    if (r != CUDA_SUCCESS)
        return r;
    r = resource
            ? make(guest_state()->holds[own->hold].physical,
                   &(struct resource){
                       .kind = FRAME, .context = own->context, .is_image = true, .connection = own},
                   resource)
            : CUDA_ERROR_INVALID_VALUE;
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuEGLStreamConsumerReleaseFrame(CUeglStreamConnection *connection,
                                                CUgraphicsResource handle, CUstream *stream)
{
    struct resource *own, *frame;
    CUresult r = enter_connection(connection, &own);

    (void)stream;
    if (r != CUDA_SUCCESS)
        return r;
    frame = find(handle);
    if (frame && frame->kind == FRAME && frame->connection == own)
        end(frame);
    else
        r = CUDA_ERROR_INVALID_HANDLE;
    sim_unlock(guest.sim);
    return r;
}

/* Mapping: all that are named, or none */

static CUresult find_all(const CUgraphicsResource *list, unsigned count, bool mapped,
                         struct resource **ret_all)
{
    for (unsigned i = 0; i < count; i++) {
        ret_all[i] = find(list[i]);
        if (!ret_all[i])
            return CUDA_ERROR_INVALID_HANDLE;
        for (unsigned k = 0; k < i; k++) {
            if (ret_all[k] == ret_all[i])
                return CUDA_ERROR_INVALID_HANDLE;
        }
    }
    for (unsigned i = 0; i < count; i++) {
        if (ret_all[i]->is_mapped != mapped)
            return mapped ? CUDA_ERROR_NOT_MAPPED : CUDA_ERROR_ALREADY_MAPPED;
    }
    return CUDA_SUCCESS;
}

static CUresult map_all(struct resource *const *all, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        all[i]->is_mapped = true;
        all[i]->address = all[i]->is_image ? 0 : address_take(all[i]->bytes, all[i]->context);
        if (all[i]->is_image || all[i]->address)
            continue;
        for (unsigned k = 0; k <= i; k++)
            unmap(all[k]);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

static CUresult change(unsigned count, const CUgraphicsResource *list, CUstream handle,
                       bool per_thread, bool mapped)
{
    struct resource *all[LISTED];
    uint32_t stream;
    CUresult r = guest_enter_stream(handle, per_thread, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!list || !count || count > LISTED)
        r = CUDA_ERROR_INVALID_VALUE;
    else if (guest_is_capturing(stream))
        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    else
        r = find_all(list, count, mapped, all);
    if (r == CUDA_SUCCESS && !mapped)
        r = map_all(all, count);
    for (unsigned i = 0; r == CUDA_SUCCESS && mapped && i < count; i++)
        unmap(all[i]);
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuGraphicsMapResources(unsigned int count, CUgraphicsResource *list,
                                       CUstream stream)
{
    return change(count, list, stream, false, false);
}

PUBLIC CUresult cuGraphicsMapResources_ptsz(unsigned int count, CUgraphicsResource *list,
                                            CUstream stream)
{
    return change(count, list, stream, true, false);
}

PUBLIC CUresult cuGraphicsUnmapResources(unsigned int count, CUgraphicsResource *list,
                                         CUstream stream)
{
    return change(count, list, stream, false, true);
}

PUBLIC CUresult cuGraphicsUnmapResources_ptsz(unsigned int count, CUgraphicsResource *list,
                                              CUstream stream)
{
    return change(count, list, stream, true, true);
}

PUBLIC CUresult cuGraphicsResourceGetMappedPointer_v2(CUdeviceptr *ptr, size_t *bytes,
                                                      CUgraphicsResource handle)
{
    const struct resource *resource;
    uint32_t context;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!ptr || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    resource = find(handle);
    if (!resource)
        r = CUDA_ERROR_INVALID_HANDLE;
    else if (resource->is_image)
        r = CUDA_ERROR_NOT_MAPPED_AS_POINTER;
    else if (!resource->is_mapped)
        r = CUDA_ERROR_NOT_MAPPED;
    if (r == CUDA_SUCCESS) {
        *ptr = resource->address;
        *bytes = resource->bytes;
    }
    sim_unlock(guest.sim);
    return r;
}

/* Nobody says what an image is like: it is taken for one of pixels of four bytes in one level, a
 * power of two wide and at least as high. */
static CUDA_ARRAY3D_DESCRIPTOR shape_of(const struct resource *image)
{
    CUDA_ARRAY3D_DESCRIPTOR d = {
        .Width = 1,
        .Format = CU_AD_FORMAT_UNSIGNED_INT8,
        .NumChannels = 4,
    };

    while (d.Width * d.Width * 16 <= image->bytes)
        d.Width *= 2;
    d.Height = image->bytes / 4 / d.Width;
    return d;
}

/* The array of what is mapped, until it is unmapped. */
static CUresult find_array(CUgraphicsResource handle, CUmipmappedArray *ret)
{
    struct resource *resource = find(handle);
    CUDA_ARRAY3D_DESCRIPTOR d;
    CUresult r = CUDA_SUCCESS;

    if (!resource)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!resource->is_image)
        return CUDA_ERROR_NOT_MAPPED_AS_ARRAY;
    if (!resource->is_mapped)
        return CUDA_ERROR_NOT_MAPPED;
    d = shape_of(resource);
    if (!resource->array)
        r = guest_array_over(&d, 1, UINT64_MAX, resource->context, 0, &resource->array);
    *ret = resource->array;
    return r;
}

PUBLIC CUresult cuGraphicsResourceGetMappedMipmappedArray(CUmipmappedArray *mipmap,
                                                          CUgraphicsResource handle)
{
    CUmipmappedArray found;
    uint32_t context;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!mipmap)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    r = find_array(handle, &found);
    sim_unlock(guest.sim);
    if (r == CUDA_SUCCESS)
        *mipmap = found;
    return r;
}

PUBLIC CUresult cuGraphicsSubResourceGetMappedArray(CUarray *array, CUgraphicsResource handle,
                                                    unsigned int index, unsigned int level)
{
    CUmipmappedArray mipmap;
    uint32_t context;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS)
        return r;
    if (!array)
        return CUDA_ERROR_INVALID_VALUE;
    (void)sim_lock(guest.sim);
    r = find_array(handle, &mipmap);
    if (r == CUDA_SUCCESS && index)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        r = guest_array_level(mipmap, level, array);
    sim_unlock(guest.sim);
    return r;
}

static CUresult set_flags(CUgraphicsResource handle, unsigned flags)
{
    const struct resource *resource;
    uint32_t context;
    CUresult r = guest_current(&context);

    if (r != CUDA_SUCCESS)
        return r;
    (void)sim_lock(guest.sim);
    resource = find(handle);
    if (!resource)
        r = CUDA_ERROR_INVALID_HANDLE;
    else if (resource->is_mapped)
        r = CUDA_ERROR_ALREADY_MAPPED;
    else if (flags > WRITE_DISCARD)
        r = CUDA_ERROR_INVALID_VALUE;
    sim_unlock(guest.sim);
    return r;
}

PUBLIC CUresult cuGraphicsResourceSetMapFlags(CUgraphicsResource resource, unsigned int flags)
{
    return set_flags(resource, flags);
}

PUBLIC CUresult cuGraphicsResourceSetMapFlags_v2(CUgraphicsResource resource, unsigned int flags)
{
    return set_flags(resource, flags);
}
