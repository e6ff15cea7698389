/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Streams that wait for values in memory, and write them. Of memory nothing else is backed: a word
 * that nobody wrote so is 0, and goes on to be what was written there whatever becomes of the
 * memory, until the process ends.
 */

#include "base/util.h"
#include "simdriver/guest.h"

enum {
    BATCH_MAX = 256,
};

/* As it comes: flags of a wait or a write. */
struct value_op {
    bool writes, wide;
    CUdeviceptr address;
    uint64_t value;
    unsigned flags;
};

static bool is_sane(const struct value_op *what)
{
    const unsigned flags = what->writes ? CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER
                                        : CU_STREAM_WAIT_VALUE_NOR | CU_STREAM_WAIT_VALUE_FLUSH;

    return !(what->flags & ~flags) && what->address % (what->wide ? 8 : 4) == 0 &&
           guest_has(what->address);
}

/* With the machine locked. */
static CUresult enqueue(uint32_t stream, const struct value_op *what)
{
    struct sim_state *s = guest_state();
    const uint64_t program = s->processes[guest.sim->slot].program;
    const int value = sim_value_at(s, program, what->address / 8 * 8);
    struct sim_op op = {
        .kind = what->writes ? SIM_OP_WRITE_VALUE : SIM_OP_WAIT_VALUE,
        .target = (uint32_t)value,
        .seq = what->wide ? what->value : (uint32_t)what->value,
        .gen = what->writes ? 0 : what->flags & SIM_VALUE_WAYS,
    };

    if (value < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (what->wide)
        op.gen |= SIM_VALUE_WIDE;
    else if (what->address % 8)
        op.gen |= SIM_VALUE_UPPER;
    return guest_is_capturing(stream) ? guest_capture(stream, &op) : guest_append(stream, &op);
}

static CUresult enqueue_all(CUstream handle, bool per_thread, const struct value_op *list,
                            unsigned count)
{
    uint32_t stream;
    CUresult r = guest_check();

    if (r != CUDA_SUCCESS)
        return r;
    for (unsigned i = 0; i < count; i++) {
        if (!is_sane(&list[i]))
            return CUDA_ERROR_INVALID_VALUE;
    }
    r = guest_enter_stream(handle, per_thread, &stream);
    if (r != CUDA_SUCCESS)
        return r;
    r = guest_check_legacy(stream, false);
    for (unsigned i = 0; i < count && r == CUDA_SUCCESS; i++)
        r = enqueue(stream, &list[i]);
    sim_unlock(guest.sim);
    return r;
}

static CUresult one(CUstream stream, bool per_thread, struct value_op what)
{
    return enqueue_all(stream, per_thread, &what, 1);
}

/*
 * The first ones are for drivers before 12.0, which had them switched on by an option of the kernel
 * module; a driver of today knows their names.
 */
static CUresult is_of_old(void)
{
    CUresult r = guest_check();

    return r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r;
}

#define VALUES_OF_OLD(bits, type, suffix)                                                          \
    PUBLIC CUresult cuStreamWaitValue##bits##suffix(CUstream stream, CUdeviceptr ptr, type value,  \
                                                    unsigned int flags)                            \
    {                                                                                              \
        (void)stream, (void)ptr, (void)value, (void)flags;                                         \
        return is_of_old();                                                                        \
    }                                                                                              \
    PUBLIC CUresult cuStreamWriteValue##bits##suffix(CUstream stream, CUdeviceptr ptr, type value, \
                                                     unsigned int flags)                           \
    {                                                                                              \
        (void)stream, (void)ptr, (void)value, (void)flags;                                         \
        return is_of_old();                                                                        \
    }

#define VALUES_BY(bits, type, suffix, by_thread)                                                   \
    PUBLIC CUresult cuStreamWaitValue##bits##suffix(CUstream stream, CUdeviceptr ptr, type value,  \
                                                    unsigned int flags)                            \
    {                                                                                              \
        return one(stream, by_thread, (struct value_op){false, bits == 64, ptr, value, flags});    \
    }                                                                                              \
    PUBLIC CUresult cuStreamWriteValue##bits##suffix(CUstream stream, CUdeviceptr ptr, type value, \
                                                     unsigned int flags)                           \
    {                                                                                              \
        return one(stream, by_thread, (struct value_op){true, bits == 64, ptr, value, flags});     \
    }

#define VALUES(bits, type)                                                                         \
    VALUES_OF_OLD(bits, type, )                                                                    \
    VALUES_OF_OLD(bits, type, _ptsz)                                                               \
    VALUES_BY(bits, type, _v2, false)                                                              \
    VALUES_BY(bits, type, _v2_ptsz, true)

VALUES(32, unsigned int)
VALUES(64, cuuint64_t)

/* False: it is none that does anything here. Nothing has to be ordered or flushed. */
static bool read_op(const CUstreamBatchMemOpParams *params, struct value_op *ret)
{
    const int kind = params->operation;

    *ret = (struct value_op){
        .writes =
            kind == CU_STREAM_MEM_OP_WRITE_VALUE_32 || kind == CU_STREAM_MEM_OP_WRITE_VALUE_64,
        .wide = kind == CU_STREAM_MEM_OP_WAIT_VALUE_64 || kind == CU_STREAM_MEM_OP_WRITE_VALUE_64,
        .address = params->value.address,
        .value = params->value.value,
        .flags = params->value.flags,
    };
    return kind != CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES && kind != CU_STREAM_MEM_OP_BARRIER;
}

static CUresult batch(CUstream stream, bool per_thread, unsigned count,
                      const CUstreamBatchMemOpParams *list, unsigned flags)
{
    struct value_op ops[BATCH_MAX];
    unsigned used = 0;

    if (guest_check() != CUDA_SUCCESS)
        return guest_check();
    if (!count || count > BATCH_MAX || !list || flags)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        if (list[i].operation < CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
            list[i].operation > CU_STREAM_MEM_OP_BARRIER)
            return CUDA_ERROR_INVALID_VALUE;
        used += read_op(&list[i], &ops[used]);
    }
    return enqueue_all(stream, per_thread, ops, used);
}

#define BATCH(suffix, by_thread)                                                                   \
    PUBLIC CUresult cuStreamBatchMemOp##suffix(CUstream stream, unsigned int count,                \
                                               CUstreamBatchMemOpParams *list, unsigned int flags) \
    {                                                                                              \
        return batch(stream, by_thread, count, list, flags);                                       \
    }

#define BATCH_OF_OLD(suffix)                                                                       \
    PUBLIC CUresult cuStreamBatchMemOp##suffix(CUstream stream, unsigned int count,                \
                                               CUstreamBatchMemOpParams *list, unsigned int flags) \
    {                                                                                              \
        (void)stream, (void)count, (void)list, (void)flags;                                        \
        return is_of_old();                                                                        \
    }

BATCH_OF_OLD()
BATCH_OF_OLD(_ptsz)
BATCH(_v2, false)
BATCH(_v2_ptsz, true)
