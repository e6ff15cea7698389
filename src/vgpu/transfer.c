/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/transfer.h"

#include <string.h>

#include "base/clock.h"
#include "vgpu/graph_homes.h"
#include "vgpu/pointer.h"
#include "vgpu/pools.h"
#include "vgpu/real.h"

/* Stand for functions, of which the limiter knows launches by. */
static const char functions[TRANSFER_KINDS];

uint64_t transfer_volume(uint64_t width, uint64_t height, uint64_t depth)
{
    uint64_t all;

    return __builtin_mul_overflow(width, height, &all) || __builtin_mul_overflow(all, depth, &all)
               ? UINT64_MAX
               : all;
}

static uint32_t octave_of(uint64_t bytes)
{
    return 63 - (uint32_t)__builtin_clzll(bytes);
}

static struct launch launch_of(enum transfer_kind kind, uint64_t bytes, CUstream stream,
                               bool per_thread)
{
    const uint32_t octave = octave_of(bytes);
    const uint32_t eighth = (uint32_t)(octave > 3 ? bytes >> (octave - 3) : bytes);

    return (struct launch){
        .function = &functions[kind],
        .grid = {1 + octave, eighth, 1},
        .block = {1, 1, 1},
        .stream = stream,
        .per_thread = per_thread,
        .is_transfer = true,
    };
}

void transfer_note_captured(const struct transfer *transfer, uint64_t to)
{
    const struct launch *launch = &transfer->launch;
    struct vgpu_device *device;

    if (!transfer->flight.goes && transfer->flight.ticket.captured && graph_homes_matter() &&
        compute_stream_device(launch->stream, launch->per_thread, &device) == CUDA_SUCCESS)
        graph_homes_found_transfer(to, device);
}

CUresult transfer_begin(struct transfer *transfer, enum transfer_kind kind, uint64_t bytes,
                        uint64_t to, CUstream stream, bool per_thread)
{
    CUresult result;

    (void)vgpu_mode();
    transfer->flight.goes = true;
    transfer->flight.epoch = 0;
    transfer->bytes = bytes;
    transfer->since_ns = transfer_is_limited() && !bytes ? clock_now_ns() : 0;
    if (!bytes)
        return CUDA_SUCCESS;
    transfer->launch = launch_of(kind, bytes, stream, per_thread);
    result = compute_begin(&transfer->launch, &transfer->flight);
    if (result == CUDA_SUCCESS)
        transfer_note_captured(transfer, to);
    if (result != CUDA_ERROR_CONTEXT_IS_DESTROYED)
        return result;
    transfer->flight.goes = true; /* the driver says so itself, if it does */
    return CUDA_SUCCESS;
}

CUresult transfer_end(struct transfer *transfer, CUresult result)
{
    return compute_end(&transfer->launch, &transfer->flight, result);
}

void transfer_look_again(const struct transfer *transfer, uint64_t bytes, CUstream stream,
                         bool per_thread)
{
    struct launch launch;

    if (bytes <= transfer->bytes || !transfer->since_ns)
        return;
    if (compute_begin_captured(stream, per_thread)) {
        compute_end_captured();
        return;
    }
    launch = launch_of(TRANSFER_COPY, bytes, stream, per_thread);
    compute_pay_late(&launch, transfer->since_ns);
}

static bool are_apart(CUdeviceptr a, CUdeviceptr b)
{
    int of_a, of_b;

    return vgpu.device_count > 1 && pointer_ordinal(a, &of_a) && pointer_ordinal(b, &of_b) &&
           of_a != of_b;
}

uint64_t transfer_between(CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
    return transfer_is_limited() &&
                   (are_apart(to, from) || pools_spilled(to) || pools_spilled(from))
               ? 0
               : bytes;
}

uint64_t transfer_between_any(CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
    return bytes && transfer_is_limited() && pointer_is_on_device(to) &&
                   pointer_is_on_device(from) && !are_apart(to, from)
               ? bytes
               : 0;
}

void *transfer_take(void *own, const void *of, size_t size)
{
    return of ? memcpy(own, of, size) : NULL;
}

/* Setting memory */

/* One call of any of the functions, of which there are many: what they have in common is done in
 * one place, since each costs its code. */
struct set {
    CUdeviceptr ptr;
    size_t pitch, width, height;
    unsigned int value;
    CUstream stream;
    enum real_index real;
    uint8_t bits;
    bool has_rows, has_stream, per_thread;
};

#define SET_BY(bits, type)                                                                         \
    static CUresult set##bits(const struct set *set)                                               \
    {                                                                                              \
        void *real = real_functions[set->real];                                                    \
        const type value = (type)set->value;                                                       \
                                                                                                   \
        if (set->has_rows && set->has_stream)                                                      \
            return ((__typeof__(&cuMemsetD2D##bits##Async))real)(                                  \
                set->ptr, set->pitch, value, set->width, set->height, set->stream);                \
        if (set->has_rows)                                                                         \
            return ((__typeof__(&cuMemsetD2D##bits##_v2))real)(set->ptr, set->pitch, value,        \
                                                               set->width, set->height);           \
        if (set->has_stream)                                                                       \
            return ((__typeof__(&cuMemsetD##bits##Async))real)(set->ptr, value, set->width,        \
                                                               set->stream);                       \
        return ((__typeof__(&cuMemsetD##bits##_v2))real)(set->ptr, value, set->width);             \
    }

SET_BY(8, unsigned char)
SET_BY(16, unsigned short)
SET_BY(32, unsigned int)

static CUresult set_by_driver(const struct set *set)
{
    switch (set->bits) {
    case 8:
        return set8(set);
    case 16:
        return set16(set);
    default:
        return set32(set);
    }
}

static CUresult set_memory(const struct set *set)
{
    TRANSFER(TRANSFER_SET,
             transfer_volume(set->width, set->has_rows ? set->height : 1, set->bits / 8), set->ptr,
             set->stream, set->per_thread, set_by_driver(set));
}

#define SET(name, ...) return set_memory(&(struct set){.real = REAL_##name, __VA_ARGS__})

#define SETS(size, type)                                                                           \
    PUBLIC CUresult cuMemsetD##size##_v2(CUdeviceptr ptr, type value, size_t count)                \
    {                                                                                              \
        SET(cuMemsetD##size##_v2, .bits = size, .ptr = ptr, .value = value, .width = count);       \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD##size##_v2_ptds(CUdeviceptr ptr, type value, size_t count)           \
    {                                                                                              \
        SET(cuMemsetD##size##_v2_ptds, .bits = size, .ptr = ptr, .value = value, .width = count,   \
            .per_thread = true);                                                                   \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD##size##Async(CUdeviceptr ptr, type value, size_t count,              \
                                           CUstream stream)                                        \
    {                                                                                              \
        SET(cuMemsetD##size##Async, .bits = size, .ptr = ptr, .value = value, .width = count,      \
            .stream = stream, .has_stream = true);                                                 \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD##size##Async_ptsz(CUdeviceptr ptr, type value, size_t count,         \
                                                CUstream stream)                                   \
    {                                                                                              \
        SET(cuMemsetD##size##Async_ptsz, .bits = size, .ptr = ptr, .value = value, .width = count, \
            .stream = stream, .has_stream = true, .per_thread = true);                             \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD2D##size##_v2(CUdeviceptr ptr, size_t pitch, type value,              \
                                           size_t width, size_t height)                            \
    {                                                                                              \
        SET(cuMemsetD2D##size##_v2, .bits = size, .ptr = ptr, .pitch = pitch, .value = value,      \
            .width = width, .height = height, .has_rows = true);                                   \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD2D##size##_v2_ptds(CUdeviceptr ptr, size_t pitch, type value,         \
                                                size_t width, size_t height)                       \
    {                                                                                              \
        SET(cuMemsetD2D##size##_v2_ptds, .bits = size, .ptr = ptr, .pitch = pitch, .value = value, \
            .width = width, .height = height, .has_rows = true, .per_thread = true);               \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD2D##size##Async(CUdeviceptr ptr, size_t pitch, type value,            \
                                             size_t width, size_t height, CUstream stream)         \
    {                                                                                              \
        SET(cuMemsetD2D##size##Async, .bits = size, .ptr = ptr, .pitch = pitch, .value = value,    \
            .width = width, .height = height, .has_rows = true, .stream = stream,                  \
            .has_stream = true);                                                                   \
    }                                                                                              \
    PUBLIC CUresult cuMemsetD2D##size##Async_ptsz(CUdeviceptr ptr, size_t pitch, type value,       \
                                                  size_t width, size_t height, CUstream stream)    \
    {                                                                                              \
        SET(cuMemsetD2D##size##Async_ptsz, .bits = size, .ptr = ptr, .pitch = pitch,               \
            .value = value, .width = width, .height = height, .has_rows = true, .stream = stream,  \
            .has_stream = true, .per_thread = true);                                               \
    }

SETS(8, unsigned char)
SETS(16, unsigned short)
SETS(32, unsigned int)
