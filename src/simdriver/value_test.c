/* SPDX-License-Identifier: Apache-2.0 */

/* Streams that wait for values in memory, and write them. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/testing.h"

#define INVALID(call) GIVES(CUDA_ERROR_INVALID_VALUE, call)
#define BUSY(stream) GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(stream))

static struct testing t;
static CUdeviceptr ptr;

static void begin(void)
{
    testing_begin(&t);
    OK(cuMemAlloc_v2(&ptr, MIB));
}

static void launch(CUstream stream, uint64_t length_ns)
{
    void *params[] = {&length_ns};

    OK(cuLaunchKernel(t.kernel, 100, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* What waits takes no time of the device, and neither does what is behind it. */
static void waits(void)
{
    begin();
    OK(cuStreamWaitValue32_v2(t.streams[0], ptr, 5, CU_STREAM_WAIT_VALUE_GEQ));
    launch(t.streams[0], 1000);
    testing_step(NS_PER_S);
    BUSY(t.streams[0]);
    HOLDS(testing_busy_ns() == 0);
    launch(t.streams[1], 2000);
    OK(cuStreamWriteValue32_v2(t.streams[1], ptr, 4, 0));
    testing_step(5000);
    OK(cuStreamQuery(t.streams[1]));
    BUSY(t.streams[0]);
    OK(cuStreamWriteValue32_v2(t.streams[1], ptr, 6, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER));
    testing_step(1000);
    OK(cuStreamQuery(t.streams[0]));
    HOLDS(testing_busy_ns() == 3000);

    /* It stays, and who comes later waits no more. */
    OK(cuStreamWaitValue32_v2(t.streams[2], ptr, 6, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamQuery(t.streams[2]));
}

static void passes(CUdeviceptr at, uint64_t value, unsigned way, bool wide)
{
    OK(wide ? cuStreamWaitValue64_v2(t.streams[0], at, value, way)
            : cuStreamWaitValue32_v2(t.streams[0], at, (unsigned)value, way));
    testing_step(1);
    OK(cuStreamQuery(t.streams[0]));
}

static void holds_up(CUdeviceptr at, uint64_t value, unsigned way, bool wide, uint64_t then)
{
    OK(wide ? cuStreamWaitValue64_v2(t.streams[0], at, value, way)
            : cuStreamWaitValue32_v2(t.streams[0], at, (unsigned)value, way));
    testing_step(NS_PER_S);
    BUSY(t.streams[0]);
    OK(wide ? cuStreamWriteValue64_v2(t.streams[1], at, then, 0)
            : cuStreamWriteValue32_v2(t.streams[1], at, (unsigned)then, 0));
    testing_step(1);
    OK(cuStreamQuery(t.streams[0]));
}

static void compares(void)
{
    const unsigned geq = CU_STREAM_WAIT_VALUE_GEQ, eq = CU_STREAM_WAIT_VALUE_EQ;
    const unsigned and = CU_STREAM_WAIT_VALUE_AND, nor = CU_STREAM_WAIT_VALUE_NOR;

    begin();
    passes(ptr, 0, geq, false);
    passes(ptr, 0, eq, true);
    passes(ptr, UINT32_MAX, geq, false); /* cyclic: 0 comes after */
    passes(ptr, 1, nor, false);
    holds_up(ptr, 0xffffff0f, eq, false, 0xffffff0f);
    holds_up(ptr, 0xf0, nor, false, 0xf0);
    holds_up(ptr + 4, 1, geq, false, 3);
    passes(ptr, 0x3000000f0, eq, true);
    passes(ptr, 0xf0, eq, false);
    passes(ptr + 4, 2, and, false);
    holds_up(ptr, 0xf, and, false, 0x18);
    holds_up(ptr, 0x300000019, geq, true, UINT64_C(1) << 40);
    holds_up(ptr, ~(UINT64_C(1) << 40), nor, true, 0);
}

static void refuses(void)
{
    CUstreamBatchMemOpParams list[2] = {
        {.value = {CU_STREAM_MEM_OP_WRITE_VALUE_64, ptr, 7, 0, 0}},
        {.operation = CU_STREAM_MEM_OP_BARRIER},
    };

    INVALID(cuStreamWaitValue32_v2(t.streams[0], ptr + 2, 0, 0));
    INVALID(cuStreamWaitValue64_v2(t.streams[0], ptr + 4, 0, 0));
    INVALID(cuStreamWaitValue32_v2(t.streams[0], 16, 0, 0));
    INVALID(cuStreamWaitValue32_v2(t.streams[0], ptr, 0, 4));
    INVALID(cuStreamWriteValue32_v2(t.streams[0], ptr, 0, 2));
    INVALID(cuStreamBatchMemOp_v2(t.streams[0], 0, list, 0));
    INVALID(cuStreamBatchMemOp_v2(t.streams[0], 257, list, 0));
    INVALID(cuStreamBatchMemOp_v2(t.streams[0], 2, list, 1));
    list[1].operation = 7;
    INVALID(cuStreamBatchMemOp_v2(t.streams[0], 2, list, 0));
}

static void batches(void)
{
    CUstreamBatchMemOpParams list[4];

    begin();
    list[0].value = (__typeof__(list[0].value)){CU_STREAM_MEM_OP_WAIT_VALUE_64, ptr, 7, 1, 0};
    list[1].value = (__typeof__(list[0].value)){CU_STREAM_MEM_OP_WRITE_VALUE_32, ptr, 8, 0, 0};
    list[2].operation = CU_STREAM_MEM_OP_BARRIER;
    list[3].operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
    refuses();
    OK(cuStreamBatchMemOp_v2(t.streams[0], 4, list, 0));
    testing_step(1);
    BUSY(t.streams[0]);
    OK(cuStreamWriteValue64_v2(t.streams[1], ptr, 7, 0));
    testing_step(1);
    OK(cuStreamQuery(t.streams[0]));
    passes(ptr, 8, CU_STREAM_WAIT_VALUE_EQ, true);
}

/* Where one context has nothing but waits, another one has the device. */
static void between_devices(void)
{
    struct testing other;

    begin();
    testing_begin_context(&other, 1);
    OK(cuStreamWaitValue32_v2(other.streams[0], ptr, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuCtxSetCurrent(t.context));
    launch(t.streams[0], 1000);
    OK(cuStreamWriteValue32_v2(t.streams[0], ptr, 1, 0));
    testing_step(999);
    BUSY(other.streams[0]);
    testing_step(2);
    OK(cuStreamQuery(other.streams[0]));

    /* One that ends while it waits, and its context. */
    OK(cuStreamWaitValue32_v2(t.streams[0], ptr, 9, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamWaitValue32_v2(t.streams[1], ptr, 9, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuStreamDestroy_v2(t.streams[0]));
    OK(cuStreamWaitValue32_v2(other.streams[1], ptr, 9, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuCtxDestroy_v2(other.context));
    OK(cuStreamWriteValue32_v2(t.streams[2], ptr, 9, 0));
    testing_step(1);
    OK(cuStreamQuery(t.streams[1]));
}

static void in_graphs(void)
{
    CUgraphExec exec;
    CUgraph graph;

    begin();
    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuStreamWaitValue32_v2(t.streams[0], ptr, 1, CU_STREAM_WAIT_VALUE_EQ));
    launch(t.streams[0], 1000);
    OK(cuStreamWriteValue32_v2(t.streams[0], ptr, 0, 0));
    OK(cuStreamEndCapture(t.streams[0], &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int i = 1; i < 3; i++) {
        OK(cuGraphLaunch(exec, t.streams[0]));
        testing_step(NS_PER_S);
        BUSY(t.streams[0]);
        OK(cuStreamWriteValue32_v2(t.streams[1], ptr, 1, 0));
        testing_step(NS_PER_S);
        OK(cuStreamQuery(t.streams[0]));
        HOLDS(testing_busy_ns() == i * 1000);
    }
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
}

HOLDS_IN(a_stream_waits_for_a_value, "", waits)
HOLDS_IN(in_each_of_four_ways, "", compares)
HOLDS_IN(several_at_once, "", batches)
HOLDS_IN(wherever_it_is_written, "", between_devices)
HOLDS_IN(captured_it_is_a_node, "", in_graphs)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_waits_for_a_value),
        cmocka_unit_test(in_each_of_four_ways),
        cmocka_unit_test(several_at_once),
        cmocka_unit_test(wherever_it_is_written),
        cmocka_unit_test(captured_it_is_a_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
