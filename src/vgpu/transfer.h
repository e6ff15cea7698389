/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the multiprocessors do for setting memory (transfer.c) and for copies within a device
 * (copy.c, copy_lists.c): it is held to the share as kernels are. Its cost is measured like theirs,
 * by what is done and how much of it, in eighths of powers of two. What comes from the host, or
 * goes there or to another device, is the copy engines' work, and free.
 *
 * Where an address is of memory on the device when the driver has been asked, and was not before,
 * what runs is paid for afterwards.
 */

#include "vgpu/compute.h"

enum transfer_kind {
    TRANSFER_SET,
    TRANSFER_COPY,
    TRANSFER_KINDS,
};

struct transfer {
    struct launch launch;
    struct compute_flight flight;
    uint64_t bytes;   /* that it is paid for */
    int64_t since_ns; /* host clock, where it may turn out to be more; else 0 */
};

static inline bool transfer_is_limited(void)
{
    return atomic_load_explicit(&vgpu.limited_compute, memory_order_relaxed);
}

/* In bytes. A size that is more than can be counted is as large as can be: of a list with such a
 * one the driver may do the rest. */
uint64_t transfer_volume(uint64_t width, uint64_t height, uint64_t depth);

/* How much of a copy the multiprocessors have to do with: of one that takes both sides for
 * devices', and of one that lets the driver find out. Only where there is a limit is it asked, so
 * that it is there. */
uint64_t transfer_between(CUdeviceptr to, CUdeviceptr from, uint64_t bytes);
uint64_t transfer_between_any(CUdeviceptr to, CUdeviceptr from, uint64_t bytes);

/*
 * Around the driver's call. Where bytes is 0 it is nothing, or not within a device, and there is
 * nothing to pay. to: the address, or an array's handle, that a node is to be known by where the
 * stream is captured. What transfer_begin() refuses is not to be done.
 */
CUresult transfer_begin(struct transfer *transfer, enum transfer_kind kind, uint64_t bytes,
                        uint64_t to, CUstream stream, bool per_thread);
CUresult transfer_end(struct transfer *transfer, CUresult result);

/* A node of the graph that is captured does it, on the stream's device. */
void transfer_note_captured(const struct transfer *transfer, uint64_t to);

/* Of so many bytes it is now. */
void transfer_look_again(const struct transfer *transfer, uint64_t bytes, CUstream stream,
                         bool per_thread);

/*
 * The library's own copy of what a call is told by: in the caller's memory another thread could
 * change it until the driver reads it. NULL stays NULL.
 */
void *transfer_take(void *own, const void *of, size_t size);

/* A function's whole body. */
#define TRANSFER(kind, bytes, to, stream, per_thread, call)                                        \
    struct transfer transfer;                                                                      \
    CUresult result = transfer_begin(&transfer, kind, bytes, to, stream, per_thread);              \
                                                                                                   \
    return result == CUDA_SUCCESS ? transfer_end(&transfer, (call)) : result

/* The same of a copy whose bytes are known by where its addresses are. */
#define COPY_ANY(count, to, stream, per_thread, call)                                              \
    struct transfer transfer;                                                                      \
    CUresult result = transfer_begin(&transfer, TRANSFER_COPY, count, to, stream, per_thread);     \
                                                                                                   \
    if (result != CUDA_SUCCESS)                                                                    \
        return result;                                                                             \
    result = transfer_end(&transfer, (call));                                                      \
    if (result == CUDA_SUCCESS && !transfer.bytes)                                                 \
        transfer_look_again(&transfer, count, stream, per_thread);                                 \
    return result
