/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The GPU model, through the driver's interface, on a machine whose clock the test steps: every
 * time below is exact.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "driver/cuda.h"
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/machine.h"

#define OK(call) assert_int_equal((call), CUDA_SUCCESS)

enum {
    PLAIN,     /* slices of 2 ms, no cost of a switch */
    SWITCHING, /* 100 us a switch */
    SMS = 100,
};

static char path[64];
static struct sim_view view;

/* A context of its own, and in it what the tests use. */
struct program {
    CUcontext context;
    CUfunction kernel;
    CUstream streams[4];
    CUevent events[8];
};

static void program_begin(struct program *program, CUdevice device)
{
    static const char image[] = "hamisim-module 1\nsize=4096\nkernel work\n";
    CUmodule module;

    OK(cuCtxCreate_v2(&program->context, 0, device));
    OK(cuModuleLoadData(&module, image));
    OK(cuModuleGetFunction(&program->kernel, module, "work"));
    for (size_t i = 0; i < ARRAY_SIZE(program->streams); i++)
        OK(cuStreamCreate(&program->streams[i], CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < ARRAY_SIZE(program->events); i++)
        OK(cuEventCreate(&program->events[i], 0));
}

/* On the plain device, with two streams that block. */
static void program_begin_blocking(struct program *program, CUstream ret_blocking[2])
{
    program_begin(program, PLAIN);
    OK(cuStreamCreate(&ret_blocking[0], CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&ret_blocking[1], CU_STREAM_DEFAULT));
}

static void program_end(struct program *program)
{
    OK(cuCtxDestroy_v2(program->context));
    (void)cuCtxSetCurrent(NULL);
}

static void use(const struct program *program)
{
    OK(cuCtxSetCurrent(program->context));
}

static void launch(struct program *program, CUstream stream, unsigned blocks, int64_t work_ns)
{
    uint64_t first = (uint64_t)work_ns;
    void *params[] = {&first};

    use(program);
    OK(cuLaunchKernel(program->kernel, blocks, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

static void record(struct program *program, unsigned event, CUstream stream)
{
    use(program);
    OK(cuEventRecord(program->events[event], stream));
}

static void step(int64_t ns)
{
    assert_int_equal(sim_clock_step(path, ns, NULL), 0);
}

static int64_t between(const struct program *program, unsigned from, unsigned to)
{
    float ms = -1;

    OK(cuEventElapsedTime_v2(&ms, program->events[from], program->events[to]));
    return (int64_t)((double)ms * 1e6 + 0.5);
}

static int64_t busy_ns(unsigned device)
{
    assert_int_equal(sim_machine_view(path, &view, NULL), 0);
    return view.gpus[device].busy_ns;
}

static void a_stream_is_a_queue(void **state)
{
    struct program p;

    (void)state;
    program_begin(&p, PLAIN);
    record(&p, 0, p.streams[0]);
    launch(&p, p.streams[0], SMS, 300 * NS_PER_US);
    record(&p, 1, p.streams[0]);
    launch(&p, p.streams[0], 1, 100 * NS_PER_US);
    record(&p, 2, p.streams[0]);

    step(300 * NS_PER_US - 1);
    assert_int_equal(cuEventQuery(p.events[1]), CUDA_ERROR_NOT_READY);
    step(1);
    OK(cuEventQuery(p.events[1]));
    assert_int_equal(cuEventQuery(p.events[2]), CUDA_ERROR_NOT_READY);
    assert_int_equal(cuStreamQuery(p.streams[0]), CUDA_ERROR_NOT_READY);
    step(NS_PER_S);
    OK(cuStreamQuery(p.streams[0]));
    assert_int_equal(between(&p, 0, 1), 300 * NS_PER_US);
    assert_int_equal(between(&p, 1, 2), 100 * NS_PER_US);
    program_end(&p);
}

static void small_kernels_of_several_streams_overlap(void **state)
{
    int64_t before = busy_ns(PLAIN);
    struct program p;

    (void)state;
    program_begin(&p, PLAIN);
    record(&p, 0, p.streams[0]);
    for (unsigned i = 0; i < 4; i++) {
        launch(&p, p.streams[i], SMS / 4, 1 * NS_PER_MS);
        record(&p, i + 1, p.streams[i]);
    }
    step(10 * NS_PER_MS);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(between(&p, 0, i + 1), 1 * NS_PER_MS);
    assert_int_equal(busy_ns(PLAIN) - before, 1 * NS_PER_MS);
    program_end(&p);
}

static void kernels_that_do_not_fit_together_slow_one_another(void **state)
{
    struct program p;

    (void)state;
    program_begin(&p, PLAIN);
    record(&p, 0, p.streams[0]);
    launch(&p, p.streams[0], SMS, 1 * NS_PER_MS);
    record(&p, 1, p.streams[0]);
    launch(&p, p.streams[1], 1000 * SMS, 3 * NS_PER_MS);
    record(&p, 2, p.streams[1]);
    step(10 * NS_PER_MS);
    /* Both at half speed until the first ends, then the other alone. */
    assert_int_equal(between(&p, 0, 1), 2 * NS_PER_MS);
    assert_int_equal(between(&p, 0, 2), 4 * NS_PER_MS);
    program_end(&p);
}

static void contexts_take_turns(void **state)
{
    int64_t before = busy_ns(PLAIN);
    struct program p, q;

    (void)state;
    program_begin(&p, PLAIN);
    program_begin(&q, PLAIN);
    record(&p, 0, p.streams[0]);
    launch(&p, p.streams[0], SMS, 20 * NS_PER_MS);
    record(&p, 1, p.streams[0]);
    launch(&q, q.streams[0], 1, 3 * NS_PER_MS);
    record(&q, 1, q.streams[0]);
    step(100 * NS_PER_MS);

    /* p 0-2, q 2-4, p 4-6, q 6-7, p 7-23: the 20 ms kernel was stopped and went on. */
    assert_int_equal(between(&p, 0, 1), 23 * NS_PER_MS);
    use(&q);
    record(&q, 0, q.streams[0]);
    OK(cuEventQuery(q.events[1]));
    assert_int_equal(busy_ns(PLAIN) - before, 23 * NS_PER_MS);
    program_end(&p);
    program_end(&q);
}

static void a_switch_costs_time_in_which_nobody_runs(void **state)
{
    int64_t before = busy_ns(SWITCHING);
    struct program p, q;

    (void)state;
    program_begin(&p, SWITCHING);
    program_begin(&q, SWITCHING);
    record(&p, 0, p.streams[0]);
    launch(&p, p.streams[0], SMS, 3 * NS_PER_MS);
    record(&p, 1, p.streams[0]);
    launch(&q, q.streams[0], SMS, 1 * NS_PER_MS);
    step(100 * NS_PER_MS);
    /* p 0-2, switch, q 2.1-3.1, switch, p 3.2-4.2 */
    assert_int_equal(between(&p, 0, 1), 4200 * NS_PER_US);
    assert_int_equal(busy_ns(SWITCHING) - before, 4 * NS_PER_MS);
    program_end(&p);
    program_end(&q);
}

static void a_probe_tells_whether_the_context_has_the_gpu(void **state)
{
    struct program p, q;

    (void)state;
    program_begin(&p, PLAIN);
    program_begin(&q, PLAIN);
    launch(&p, p.streams[0], SMS, 50 * NS_PER_MS);
    launch(&q, q.streams[0], SMS, 50 * NS_PER_MS);
    step(500 * NS_PER_US);

    /* p has it: its idle side stream is served at once, q's at its turn. */
    record(&p, 0, p.streams[1]);
    record(&q, 0, q.streams[1]);
    OK(cuEventQuery(p.events[0]));
    assert_int_equal(cuEventQuery(q.events[0]), CUDA_ERROR_NOT_READY);
    step(1500 * NS_PER_US - 1);
    assert_int_equal(cuEventQuery(q.events[0]), CUDA_ERROR_NOT_READY);
    step(1);
    OK(cuEventQuery(q.events[0]));
    record(&q, 1, q.streams[2]);
    assert_int_equal(between(&q, 0, 1), 0);
    program_end(&p);
    program_end(&q);
}

static void an_event_alone_waits_for_its_turn(void **state)
{
    struct program p, q;

    (void)state;
    program_begin(&p, PLAIN);
    program_begin(&q, PLAIN);
    launch(&p, p.streams[0], SMS, 50 * NS_PER_MS);
    record(&q, 0, q.streams[0]);
    step(2 * NS_PER_MS - 1);
    assert_int_equal(cuEventQuery(q.events[0]), CUDA_ERROR_NOT_READY);
    step(1);
    OK(cuEventQuery(q.events[0]));

    /* Its slice was given up at once: p lost no time. */
    record(&p, 0, p.streams[0]);
    step(48 * NS_PER_MS);
    OK(cuEventQuery(p.events[0]));
    program_end(&p);
    program_end(&q);
}

static void a_stream_waits_for_another(void **state)
{
    struct program p;

    (void)state;
    program_begin(&p, PLAIN);
    record(&p, 0, p.streams[1]);
    launch(&p, p.streams[0], 1, 5 * NS_PER_MS);
    record(&p, 1, p.streams[0]);
    OK(cuStreamWaitEvent(p.streams[1], p.events[1], 0));
    launch(&p, p.streams[1], 1, 1 * NS_PER_MS);
    record(&p, 2, p.streams[1]);
    step(100 * NS_PER_MS);
    assert_int_equal(between(&p, 0, 2), 6 * NS_PER_MS);
    program_end(&p);
}

static void a_stream_waits_for_another_device(void **state)
{
    struct program p, q;

    (void)state;
    program_begin(&p, PLAIN);
    program_begin(&q, SWITCHING);
    launch(&p, p.streams[0], 1, 5 * NS_PER_MS);
    record(&p, 1, p.streams[0]);
    use(&q);
    record(&q, 0, q.streams[1]);
    OK(cuStreamWaitEvent(q.streams[1], p.events[1], 0));
    launch(&q, q.streams[1], 1, 1 * NS_PER_MS);
    record(&q, 2, q.streams[1]);
    step(100 * NS_PER_MS);
    assert_int_equal(between(&q, 0, 2), 6 * NS_PER_MS);
    program_end(&p);
    program_end(&q);
}

static void the_legacy_stream_stands_between_blocking_ones(void **state)
{
    CUstream blocking[2];
    struct program p;

    (void)state;
    program_begin_blocking(&p, blocking);
    record(&p, 0, p.streams[0]);
    launch(&p, blocking[0], 1, 2 * NS_PER_MS);
    launch(&p, NULL, 1, 1 * NS_PER_MS);
    record(&p, 1, NULL);
    launch(&p, blocking[1], 1, 4 * NS_PER_MS);
    record(&p, 2, blocking[1]);
    launch(&p, p.streams[0], 1, 1 * NS_PER_MS);
    record(&p, 3, p.streams[0]);
    step(100 * NS_PER_MS);
    assert_int_equal(between(&p, 0, 1), 3 * NS_PER_MS);
    assert_int_equal(between(&p, 0, 2), 7 * NS_PER_MS);
    assert_int_equal(between(&p, 0, 3), 1 * NS_PER_MS);
    program_end(&p);
}

static void an_event_is_recorded_of_a_whole_context(void **state)
{
    CUstream blocking[2];
    struct program p, q;

    (void)state;
    program_begin_blocking(&p, blocking);
    record(&p, 0, p.streams[0]);
    launch(&p, blocking[0], 1, 2 * NS_PER_MS);
    launch(&p, blocking[1], 1, 3 * NS_PER_MS);
    program_begin(&q, SWITCHING);
    OK(cuCtxRecordEvent(p.context, p.events[1]));
    assert_int_equal(cuCtxRecordEvent(q.context, p.events[1]), CUDA_ERROR_INVALID_HANDLE);
    step(100 * NS_PER_MS);
    assert_int_equal(between(&p, 0, 1), 3 * NS_PER_MS);
    program_end(&q);
    OK(cuCtxSetCurrent(p.context));
    program_end(&p);
}

static void a_graph_runs_its_kernels_again(void **state)
{
    struct program p;
    CUgraphExec exec;
    CUgraph graph;

    (void)state;
    program_begin(&p, PLAIN);
    OK(cuStreamBeginCapture_v2(p.streams[0], 0));
    launch(&p, p.streams[0], SMS, 1 * NS_PER_MS);
    launch(&p, p.streams[0], SMS, 2 * NS_PER_MS);
    OK(cuStreamEndCapture(p.streams[0], &graph));
    OK(cuStreamQuery(p.streams[0]));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphDestroy(graph));
    record(&p, 0, p.streams[1]);
    OK(cuGraphLaunch(exec, p.streams[1]));
    OK(cuGraphLaunch(exec, p.streams[1]));
    record(&p, 1, p.streams[1]);
    step(100 * NS_PER_MS);
    assert_int_equal(between(&p, 0, 1), 6 * NS_PER_MS);
    OK(cuGraphExecDestroy(exec));
    program_end(&p);
}

static void the_end_of_a_context_ends_its_work(void **state)
{
    struct program p, q;

    (void)state;
    program_begin(&p, PLAIN);
    program_begin(&q, PLAIN);
    launch(&p, p.streams[0], SMS, 50 * NS_PER_MS);
    record(&q, 0, q.streams[0]);
    launch(&q, q.streams[0], SMS, 1 * NS_PER_MS);
    record(&q, 1, q.streams[0]);
    step(1 * NS_PER_MS);
    program_end(&p);
    OK(cuCtxSetCurrent(q.context));
    step(1 * NS_PER_MS);
    assert_int_equal(between(&q, 0, 1), 1 * NS_PER_MS);
    program_end(&q);
}

static int make_machine(void **state)
{
    struct sim_spec spec = {.gpu_count = 2};

    (void)state;
    spec.driver.event_resolution_ns = 1;
    spec.driver.idle_streams = SIM_IDLE_STREAMS_PROMPT;
    spec.gpus[PLAIN].multiprocessors = SMS;
    spec.gpus[SWITCHING].multiprocessors = SMS;
    spec.gpus[SWITCHING].switch_ns = 100 * NS_PER_US;
    (void)snprintf(path, sizeof(path), "/tmp/hami-model-test.%d", (int)getpid());
    if (sim_machine_create(path, &spec, NULL) < 0 || sim_clock_stop(path, NULL) < 0)
        return -1;
    (void)setenv("HAMI_SIM", path, 1);
    return cuInit(0);
}

static int remove_machine(void **state)
{
    (void)state;
    return sim_machine_remove(path, 1, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_is_a_queue),
        cmocka_unit_test(small_kernels_of_several_streams_overlap),
        cmocka_unit_test(kernels_that_do_not_fit_together_slow_one_another),
        cmocka_unit_test(contexts_take_turns),
        cmocka_unit_test(a_switch_costs_time_in_which_nobody_runs),
        cmocka_unit_test(a_probe_tells_whether_the_context_has_the_gpu),
        cmocka_unit_test(an_event_alone_waits_for_its_turn),
        cmocka_unit_test(a_stream_waits_for_another),
        cmocka_unit_test(a_stream_waits_for_another_device),
        cmocka_unit_test(the_legacy_stream_stands_between_blocking_ones),
        cmocka_unit_test(an_event_is_recorded_of_a_whole_context),
        cmocka_unit_test(a_graph_runs_its_kernels_again),
        cmocka_unit_test(the_end_of_a_context_ends_its_work),
    };

    return cmocka_run_group_tests(tests, make_machine, remove_machine);
}
