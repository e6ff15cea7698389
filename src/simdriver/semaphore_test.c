/* SPDX-License-Identifier: Apache-2.0 */

/* Semaphores of other interfaces: who waits for them, and who sees that they are signalled. */

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/testing.h"

#define INVALID(call) GIVES(CUDA_ERROR_INVALID_VALUE, call)
#define UNKNOWN(call) GIVES(CUDA_ERROR_INVALID_HANDLE, call)
#define BUSY(stream) GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(stream))

enum {
    BINARY = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD,
    TIMELINE = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
};

static struct testing t;

/* What a test leaves over stays in reach. */
static CUgraph graph, clone;
static CUgraphExec exec;

/* What takes the part of a semaphore, and its counter as others see it. */
static int counter_file(uint64_t **ret_counter)
{
    int fd = memfd_create("semaphore", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    HOLDS(fd >= 0 && ftruncate(fd, 8) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    *ret_counter = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    HOLDS(*ret_counter != MAP_FAILED);
    return fd;
}

static CUresult import(int type, int fd, CUexternalSemaphore *ret)
{
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = {.type = type, .handle.fd = fd};

    return cuImportExternalSemaphore(ret, &desc);
}

static CUexternalSemaphore begin_with(int type, uint64_t **ret_counter)
{
    CUexternalSemaphore semaphore;

    testing_begin(&t);
    OK(import(type, counter_file(ret_counter), &semaphore));
    return semaphore;
}

static void await(CUexternalSemaphore semaphore, uint64_t value, CUstream stream)
{
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS params = {.params.fence.value = value};

    OK(cuWaitExternalSemaphoresAsync(&semaphore, &params, 1, stream));
}

static void post(CUexternalSemaphore semaphore, uint64_t value, CUstream stream)
{
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS params = {.params.fence.value = value};

    OK(cuSignalExternalSemaphoresAsync(&semaphore, &params, 1, stream));
}

static void launch(CUstream stream, int64_t work_ns)
{
    OK(testing_launch(t.kernel, stream, 100, work_ns, 0));
}

/* What waits takes no time of the device, and a signal has its place in its stream. */
static void timeline(void)
{
    uint64_t *counter;
    CUexternalSemaphore semaphore = begin_with(TIMELINE, &counter);

    await(semaphore, 5, t.streams[0]);
    launch(t.streams[0], 1000);
    testing_step(NS_PER_S);
    BUSY(t.streams[0]);
    HOLDS(testing_busy_ns() == 0);

    post(semaphore, 4, t.streams[1]);
    launch(t.streams[1], 2000);
    post(semaphore, 7, t.streams[1]);
    testing_step(1999);
    BUSY(t.streams[0]);
    HOLDS(*counter == 4);
    testing_step(1);
    testing_step(1000);
    OK(cuStreamQuery(t.streams[0]));
    HOLDS(testing_busy_ns() == 3000 && *counter == 7);

    /* It stays, and who waits for less waits no more. */
    await(semaphore, 7, t.streams[2]);
    await(semaphore, 0, t.streams[2]);
    OK(cuStreamQuery(t.streams[2]));
    await(semaphore, UINT64_MAX, t.streams[2]);
    testing_step(NS_PER_S);
    BUSY(t.streams[2]);
    post(semaphore, UINT64_MAX, t.streams[1]);
    testing_step(1);
    OK(cuStreamQuery(t.streams[2]));
}

/* Each signal lets one wait pass. */
static void binary(void)
{
    uint64_t *counter;
    CUexternalSemaphore semaphore = begin_with(BINARY, &counter);

    for (int i = 0; i < 3; i++) {
        await(semaphore, 0, t.streams[0]);
        testing_step(NS_PER_S);
        BUSY(t.streams[0]);
        post(semaphore, 0, t.streams[1]);
        testing_step(1);
        OK(cuStreamQuery(t.streams[0]));
    }
    post(semaphore, 0, t.streams[1]);
    post(semaphore, 0, t.streams[1]);
    await(semaphore, 0, t.streams[1]);
    OK(cuStreamQuery(t.streams[1]));
    await(semaphore, 0, t.streams[1]);
    testing_step(1);
    BUSY(t.streams[1]);
}

static void several(void)
{
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS params[2] = {{.params.fence.value = 1},
                                                     {.params.fence.value = 2}};
    CUexternalSemaphore list[2];
    uint64_t *counters[2];

    list[0] = begin_with(TIMELINE, &counters[0]);
    OK(import(TIMELINE, counter_file(&counters[1]), &list[1]));
    OK(cuWaitExternalSemaphoresAsync_ptsz(list, params, 2, t.streams[0]));
    post(list[1], 2, t.streams[1]);
    testing_step(1);
    BUSY(t.streams[0]);
    OK(cuSignalExternalSemaphoresAsync_ptsz(list, params, 2, t.streams[1]));
    testing_step(1);
    OK(cuStreamQuery(t.streams[0]));
    HOLDS(*counters[0] == 1 && *counters[1] == 2);
}

/* What is no driver counts in the file: as GL, or the host, would signal. */
static void from_outside(void)
{
    CUexternalSemaphore semaphore, late;
    uint64_t *counter, *other;
    int fd;

    semaphore = begin_with(TIMELINE, &counter);
    await(semaphore, 3, t.streams[0]);
    launch(t.streams[0], 1000);
    testing_step(NS_PER_S);
    *counter = 3;
    BUSY(t.streams[0]); /* from now on it runs */
    testing_step(999);
    BUSY(t.streams[0]);
    testing_step(1);
    OK(cuStreamQuery(t.streams[0]));
    HOLDS(testing_busy_ns() == 1000);

    fd = counter_file(&other);
    *other = 9;
    OK(import(TIMELINE, fd, &late));
    await(late, 9, t.streams[1]);
    OK(cuStreamQuery(t.streams[1]));
}

static void refuses(void)
{
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = {.type = TIMELINE, .flags = 1};
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS params[2] = {{.flags = 0}, {.flags = 1}};
    CUexternalSemaphore semaphore, list[2];
    int fd, pair[2], loose = memfd_create("", 0), brief = memfd_create("", MFD_ALLOW_SEALING);
    uint64_t *counter;

    HOLDS(pipe(pair) == 0 && ftruncate(loose, 8) == 0 &&
          fcntl(brief, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    GIVES(CUDA_ERROR_NOT_INITIALIZED, import(TIMELINE, pair[0], &semaphore));
    testing_begin(&t);
    fd = counter_file(&counter);
    for (int type = 0; type < 12; type++) {
        if (type != BINARY && type != TIMELINE)
            GIVES(CUDA_ERROR_NOT_SUPPORTED, import(type, fd, &semaphore));
    }
    UNKNOWN(import(TIMELINE, -1, &semaphore));
    UNKNOWN(import(TIMELINE, pair[0], &semaphore));
    UNKNOWN(import(TIMELINE, loose, &semaphore)); /* it could be cut */
    UNKNOWN(import(TIMELINE, brief, &semaphore));
    INVALID(import(TIMELINE, fd, NULL));
    INVALID(cuImportExternalSemaphore(&semaphore, NULL));
    desc.handle.fd = fd;
    INVALID(cuImportExternalSemaphore(&semaphore, &desc));
    HOLDS(fcntl(fd, F_GETFD) >= 0 && fcntl(loose, F_GETFD) >= 0);
    OK(import(TIMELINE, fd, &semaphore));
    HOLDS(fcntl(fd, F_GETFD) < 0);

    list[0] = list[1] = semaphore;
    INVALID(cuWaitExternalSemaphoresAsync(NULL, params, 1, t.streams[0]));
    INVALID(cuWaitExternalSemaphoresAsync(list, NULL, 1, t.streams[0]));
    INVALID(cuSignalExternalSemaphoresAsync(list, params, 0, t.streams[0]));
    INVALID(cuSignalExternalSemaphoresAsync(list, params, 2, t.streams[0]));
    params[1].flags = 0;
    list[1] = NULL;
    UNKNOWN(cuWaitExternalSemaphoresAsync(list, params, 2, t.streams[0]));
    UNKNOWN(cuWaitExternalSemaphoresAsync(list, params, 1, (CUstream)16));
    OK(cuDestroyExternalSemaphore(semaphore));
    UNKNOWN(cuDestroyExternalSemaphore(semaphore));
    UNKNOWN(cuSignalExternalSemaphoresAsync(list, params, 1, t.streams[0]));
    OK(cuStreamQuery(t.streams[0]));
}

/* However often they are made; what waits for one that is gone may be seen by another import. */
static void come_and_go(void)
{
    uint64_t *counter;
    CUexternalSemaphore again, semaphore;
    int fd, copy;

    testing_begin(&t);
    fd = counter_file(&counter);
    for (int i = 0; i < 3000; i++) {
        OK(import(TIMELINE, dup(fd), &semaphore));
        OK(cuDestroyExternalSemaphore(semaphore));
    }
    copy = dup(fd);
    OK(import(TIMELINE, fd, &semaphore));
    await(semaphore, 2, t.streams[0]);
    await(semaphore, 2, t.streams[1]);
    OK(cuStreamDestroy_v2(t.streams[1]));
    OK(cuDestroyExternalSemaphore(semaphore));
    testing_step(1);
    BUSY(t.streams[0]);
    OK(import(TIMELINE, copy, &again));
    post(again, 2, t.streams[2]);
    testing_step(1);
    OK(cuStreamQuery(t.streams[0]));
    HOLDS(*counter == 2);
    await(again, 3, t.streams[0]);
    OK(cuCtxDestroy_v2(t.context));
    OK(cuDestroyExternalSemaphore(again));
}

/* Two processes: one waits for the other's kernel, by a descriptor that both have. */

static int shared, told[2];

static void waiter(void)
{
    CUexternalSemaphore semaphore;
    char c = 0;

    testing_begin(&t);
    OK(import(BINARY, shared, &semaphore));
    await(semaphore, 0, t.streams[0]);
    HOLDS(write(told[1], &c, 1) == 1);
    OK(cuStreamSynchronize(t.streams[0]));
    await(semaphore, 0, t.streams[0]); /* one that only its end ends */
    _exit(0);
}

static void in_two_processes(void)
{
    CUexternalSemaphore semaphore;
    uint64_t *counter;
    int status;
    pid_t pid;
    char c;

    shared = counter_file(&counter);
    HOLDS(pipe(told) == 0);
    pid = fork();
    HOLDS(pid >= 0);
    if (pid == 0)
        waiter();
    testing_begin(&t);
    OK(import(BINARY, shared, &semaphore));
    HOLDS(read(told[0], &c, 1) == 1);
    launch(t.streams[0], 20 * NS_PER_MS);
    post(semaphore, 0, t.streams[0]);
    HOLDS(waitpid(pid, &status, 0) == pid && status == 0);
    OK(cuStreamQuery(t.streams[0]));
    HOLDS(*counter == 2);
}

/* As nodes of graphs */

static void capture_between(CUexternalSemaphore wanted, CUexternalSemaphore posted, uint64_t value)
{
    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    await(wanted, 0, t.streams[0]);
    launch(t.streams[0], 1000);
    post(posted, value, t.streams[0]);
    OK(cuStreamEndCapture(t.streams[0], &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
}

static void captured(void)
{
    const CUgraphNodeType types[] = {CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, CU_GRAPH_NODE_TYPE_KERNEL,
                                     CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL};
    uint64_t *counter, *other;
    CUexternalSemaphore wanted = begin_with(BINARY, &counter), posted;
    CUgraphNode nodes[3];
    CUgraphNodeType type;
    size_t count = 3;

    OK(import(TIMELINE, counter_file(&other), &posted));
    capture_between(wanted, posted, 5);
    OK(cuGraphGetNodes(graph, nodes, &count));
    HOLDS(count == 3);
    for (int i = 0; i < 3; i++) {
        OK(cuGraphNodeGetType(nodes[i], &type));
        HOLDS(type == types[i]);
    }
    for (int i = 1; i < 3; i++) {
        OK(cuGraphLaunch(exec, t.streams[0]));
        testing_step(NS_PER_S);
        BUSY(t.streams[0]);
        HOLDS(*other == (i == 1 ? 0 : 5));
        post(wanted, 0, t.streams[1]);
        testing_step(NS_PER_S);
        OK(cuStreamQuery(t.streams[0]));
        HOLDS(testing_busy_ns() == i * 1000 && *other == 5);
    }

    /* Launched into another capture, they are nodes there. */
    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuGraphLaunch(exec, t.streams[0]));
    OK(cuStreamEndCapture(t.streams[0], &graph));
    OK(cuGraphGetNodes(graph, NULL, &count));
    HOLDS(count == 3);

    /* What is gone can't be signalled any more. */
    OK(cuDestroyExternalSemaphore(posted));
    INVALID(cuGraphLaunch(exec, t.streams[2]));
}

static CUexternalSemaphore pair[2];
static CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS values[2];

static CUDA_EXT_SEM_SIGNAL_NODE_PARAMS both_to(uint64_t value)
{
    values[0].params.fence.value = values[1].params.fence.value = value;
    return (CUDA_EXT_SEM_SIGNAL_NODE_PARAMS){pair, values, 2};
}

/* What a node is told of, and tells, is a copy. */
static void by_hand(void)
{
    CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL};
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS params, got;
    CUgraph child;
    CUgraphNode wait, signal, found;
    uint64_t *counters[2];

    pair[0] = begin_with(TIMELINE, &counters[0]);
    OK(import(TIMELINE, counter_file(&counters[1]), &pair[1]));
    OK(cuGraphCreate(&graph, 0));
    params = both_to(3);
    OK(cuGraphAddExternalSemaphoresWaitNode(&wait, graph, NULL, 0, &params));
    any.semaphores.params = both_to(4);
    OK(cuGraphAddNode(&signal, graph, &wait, 1, &any));
    both_to(9);
    OK(cuGraphExternalSemaphoresWaitNodeGetParams(wait, &got));
    HOLDS(got.numExtSems == 2 && got.extSemArray[1] == pair[1] && got.extSemArray != pair &&
          got.paramsArray[1].params.fence.value == 3);
    INVALID(cuGraphExternalSemaphoresWaitNodeGetParams(signal, &got));
    INVALID(cuGraphExternalSemaphoresSignalNodeSetParams(wait, &params));
    INVALID(cuGraphAddExternalSemaphoresSignalNode(&signal, graph, NULL, 0, NULL));
    params.numExtSems = 0;
    INVALID(cuGraphAddExternalSemaphoresSignalNode(&signal, graph, NULL, 0, &params));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));

    /* Of what is launched the number stays. */
    params = both_to(6);
    OK(cuGraphExecExternalSemaphoresSignalNodeSetParams(exec, signal, &params));
    INVALID(cuGraphExecExternalSemaphoresWaitNodeSetParams(exec, signal, &params));
    params.numExtSems = 1;
    INVALID(cuGraphExecExternalSemaphoresSignalNodeSetParams(exec, signal, &params));
    OK(cuGraphExternalSemaphoresSignalNodeGetParams(signal, &got));
    HOLDS(got.paramsArray[0].params.fence.value == 4);
    OK(cuGraphLaunch(exec, t.streams[0]));
    testing_step(1);
    BUSY(t.streams[0]);
    *counters[0] = *counters[1] = 3;
    testing_step(1);
    OK(cuStreamQuery(t.streams[0]));
    testing_step(1);
    HOLDS(*counters[0] == 6 && *counters[1] == 6);

    /* A clone, and a child, have the same. */
    any.semaphores.params = both_to(8);
    OK(cuGraphNodeSetParams(signal, &any));
    OK(cuGraphClone(&clone, graph));
    OK(cuGraphNodeFindInClone(&found, signal, clone));
    OK(cuGraphDestroy(graph));
    OK(cuGraphExternalSemaphoresSignalNodeGetParams(found, &got));
    HOLDS(got.paramsArray[1].params.fence.value == 8);
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddChildGraphNode(&found, graph, NULL, 0, clone));
    OK(cuGraphChildGraphNodeGetGraph(found, &child));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphLaunch(exec, t.streams[0]));
    testing_step(1);
    OK(cuStreamQuery(t.streams[0]));
    HOLDS(*counters[1] == 8);
}

static void updated(void)
{
    CUgraphExecUpdateResultInfo info;
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS params;
    CUgraphNode node, second;
    uint64_t *counters[2];

    pair[0] = begin_with(TIMELINE, &counters[0]);
    OK(import(TIMELINE, counter_file(&counters[1]), &pair[1]));
    OK(cuGraphCreate(&graph, 0));
    params = both_to(1);
    OK(cuGraphAddExternalSemaphoresSignalNode(&node, graph, NULL, 0, &params));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    params = both_to(2);
    OK(cuGraphExternalSemaphoresSignalNodeSetParams(node, &params));
    OK(cuGraphExecUpdate_v2(exec, graph, &info));
    OK(cuGraphLaunch(exec, t.streams[0]));
    testing_step(1);
    OK(cuStreamQuery(t.streams[0]));
    HOLDS(*counters[1] == 2);
    params.numExtSems = 1;
    OK(cuGraphExternalSemaphoresSignalNodeSetParams(node, &params));
    GIVES(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, graph, &info));
    HOLDS(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
    OK(cuGraphDestroyNode(node));
    OK(cuGraphAddExternalSemaphoresWaitNode(&second, graph, NULL, 0, &params));
    GIVES(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, graph, &info));
    HOLDS(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
}

HOLDS_IN(a_stream_waits_for_a_timeline, "", timeline)
HOLDS_IN(a_signal_lets_one_wait_pass, "", binary)
HOLDS_IN(several_at_once, "", several)
HOLDS_IN(others_signal_it_too, "", from_outside)
HOLDS_IN(what_is_none_is_refused, "", refuses)
HOLDS_IN(they_come_and_go, "", come_and_go)
HOLDS_IN(captured_they_are_nodes, "", captured)
HOLDS_IN(so_they_are_added, "", by_hand)
HOLDS_IN(and_brought_up_to_date, "", updated)

static void processes_share_one(void **state)
{
    (void)state;
    assert_int_equal(testing_run_unstopped("context-time=0", in_two_processes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_waits_for_a_timeline),
        cmocka_unit_test(a_signal_lets_one_wait_pass),
        cmocka_unit_test(several_at_once),
        cmocka_unit_test(others_signal_it_too),
        cmocka_unit_test(what_is_none_is_refused),
        cmocka_unit_test(they_come_and_go),
        cmocka_unit_test(captured_they_are_nodes),
        cmocka_unit_test(so_they_are_added),
        cmocka_unit_test(and_brought_up_to_date),
        cmocka_unit_test(processes_share_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
