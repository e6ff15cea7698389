/* SPDX-License-Identifier: Apache-2.0 */

/* Memory and events of other processes: who may open them, and how long they last. */

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/testing.h"

#define PIECE (8 * MIB)
#define CONTEXT (100 * MIB + 4096) /* with its code */
#define INVALID(call) GIVES(CUDA_ERROR_INVALID_VALUE, call)

/* Two processes: the first one is the maker, which the other one follows. */
static int to_other[2], to_maker[2];

struct given {
    CUipcMemHandle memory;
    CUipcEventHandle event;
};

static void give(int fd, const void *data, size_t size)
{
    HOLDS(write(fd, data, size) == (ssize_t)size);
}

static void take(int fd, void *data, size_t size)
{
    HOLDS(read(fd, data, size) == (ssize_t)size);
}

static void say(int fd)
{
    give(fd, "k", 1);
}

static void hear(int fd)
{
    char c;

    take(fd, &c, 1);
}

static pid_t begin(void (*body)(void))
{
    pid_t pid = fork();

    HOLDS(pid >= 0);
    if (pid == 0) {
        (void)alarm(20); /* where the other one failed */
        body();
        _exit(0);
    }
    return pid;
}

static void end(pid_t pid)
{
    int status;

    HOLDS(waitpid(pid, &status, 0) == pid && status == 0);
}

static void both(void (*maker)(void), void (*other)(void))
{
    pid_t pids[2];

    HOLDS(pipe(to_other) == 0 && pipe(to_maker) == 0);
    pids[0] = begin(maker);
    pids[1] = begin(other);
    end(pids[0]);
    end(pids[1]);
    HOLDS(testing_used_bytes() == 0);
}

static CUipcMemHandle handle_of(CUdeviceptr ptr)
{
    CUipcMemHandle handle;

    OK(cuIpcGetMemHandle(&handle, ptr));
    return handle;
}

/* What can be had in one process alone */

static void own_memory(void)
{
    CUipcMemHandle handle, other;
    struct testing t;
    CUdeviceptr ptr, pool;

    GIVES(CUDA_ERROR_NOT_INITIALIZED, cuIpcGetMemHandle(&handle, 0));
    OK(cuInit(0));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuIpcCloseMemHandle(PIECE));
    testing_begin(&t);
    OK(cuMemAlloc_v2(&ptr, PIECE));
    INVALID(cuIpcGetMemHandle(NULL, ptr));
    INVALID(cuIpcGetMemHandle(&handle, 0));
    INVALID(cuIpcGetMemHandle(&handle, ptr + PIECE));
    OK(cuMemAllocAsync(&pool, PIECE, t.streams[0]));
    INVALID(cuIpcGetMemHandle(&handle, pool));
    OK(cuMemFree_v2(pool));
    OK(cuStreamSynchronize(t.streams[0]));
    handle = handle_of(ptr);
    HOLDS(testing_used_bytes() == CONTEXT + PIECE);

    /* Again, and by an address within: the same. */
    other = handle_of(ptr + 100);
    HOLDS(memcmp(&handle, &other, sizeof(handle)) == 0);

    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&pool, handle, 1));
    INVALID(cuIpcCloseMemHandle(ptr));
    OK(cuMemFree_v2(ptr));
    HOLDS(testing_used_bytes() == CONTEXT);
    INVALID(cuIpcOpenMemHandle_v2(&pool, handle, 1));
    INVALID(cuMemFree_v2(ptr));

    /* What comes to the same address is other memory. */
    OK(cuMemAlloc_v2(&pool, PIECE));
    HOLDS(pool == ptr);
    other = handle_of(ptr);
    HOLDS(memcmp(&handle, &other, sizeof(handle)) != 0);
    OK(cuCtxDestroy_v2(t.context));
    HOLDS(testing_used_bytes() == 0);
}

/* Opening and closing */

static void maker_of_memory(void)
{
    struct testing t;
    struct given given;
    CUdeviceptr ptr;

    testing_begin(&t);
    OK(cuMemAlloc_v2(&ptr, PIECE - 1));
    given.memory = handle_of(ptr);
    give(to_other[1], &given, sizeof(given));
    hear(to_maker[0]);
    OK(cuMemFree_v2(ptr));
    say(to_other[1]);
    hear(to_maker[0]);
}

static void opener_of_memory(void)
{
    struct testing t;
    struct given given;
    CUdeviceptr ptr, again, third, base;
    size_t bytes;

    take(to_other[0], &given, sizeof(given));
    testing_begin(&t);
    HOLDS(testing_used_bytes() == 2 * CONTEXT + PIECE);
    INVALID(cuIpcOpenMemHandle_v2(&ptr, given.memory, 0));
    INVALID(cuIpcOpenMemHandle_v2(NULL, given.memory, 1));
    OK(cuIpcOpenMemHandle_v2(&ptr, given.memory, 1));
    OK(cuIpcOpenMemHandle(&again, given.memory, 1));
    HOLDS(ptr == again && testing_used_bytes() == 2 * CONTEXT + PIECE);
    OK(cuMemGetAddressRange_v2(&base, &bytes, ptr + 5));
    HOLDS(base == ptr && bytes == PIECE - 1);
    INVALID(cuMemFree_v2(ptr));
    INVALID(cuIpcGetMemHandle(&given.memory, ptr));

    /* In another context it is opened by itself, in one of another device not at all. */
    testing_begin_context(&t, 0);
    OK(cuIpcOpenMemHandle_v2(&third, given.memory, 1));
    HOLDS(third != ptr);
    testing_begin_context(&t, 1);
    GIVES(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cuIpcOpenMemHandle_v2(&again, given.memory, 1));

    /* It outlasts its maker's free. */
    say(to_maker[1]);
    hear(to_other[0]);
    HOLDS(testing_used_bytes() == 3 * CONTEXT + PIECE);
    OK(cuIpcCloseMemHandle(third));
    OK(cuIpcCloseMemHandle(ptr));
    HOLDS(testing_used_bytes() == 3 * CONTEXT + PIECE);
    OK(cuIpcCloseMemHandle(ptr));
    INVALID(cuIpcCloseMemHandle(ptr));
    HOLDS(testing_used_bytes() == 3 * CONTEXT);
    say(to_maker[1]);
}

static void memory_is_opened(void)
{
    both(maker_of_memory, opener_of_memory);
}

/* A maker's death */

static void dying_maker(void)
{
    struct testing t;
    struct given given;
    CUdeviceptr ptr;

    testing_begin(&t);
    OK(cuMemAlloc_v2(&ptr, PIECE));
    given.memory = handle_of(ptr);
    give(to_other[1], &given, sizeof(given));
    (void)pause();
}

static void heir(void)
{
    struct testing t;
    struct given given;
    CUdeviceptr ptr;

    take(to_other[0], &given, sizeof(given));
    testing_begin(&t);
    OK(cuIpcOpenMemHandle_v2(&ptr, given.memory, 1));
    say(to_maker[1]);
    hear(to_other[0]);
    OK(cuCtxDestroy_v2(t.context));
    say(to_maker[1]);
    (void)pause();
}

static uint64_t used_by(pid_t pid)
{
    static struct sim_view view;

    HOLDS(sim_machine_view(testing_machine(), &view, NULL) == 0);
    for (unsigned i = 0; i < view.process_count; i++) {
        if (view.processes[i].pid == pid)
            return view.processes[i].used_bytes[0];
    }
    return 0;
}

static void memory_outlives_its_maker(void)
{
    pid_t maker, other;

    HOLDS(pipe(to_other) == 0 && pipe(to_maker) == 0);
    maker = begin(dying_maker);
    other = begin(heir);
    hear(to_maker[0]);
    HOLDS(used_by(maker) == CONTEXT + PIECE && used_by(other) == CONTEXT);
    HOLDS(kill(maker, SIGKILL) == 0 && waitpid(maker, NULL, 0) == maker);
    HOLDS(testing_used_bytes() == CONTEXT + PIECE && used_by(other) == CONTEXT + PIECE);

    /* What was opened in a context goes with it. */
    say(to_other[1]);
    hear(to_maker[0]);
    HOLDS(testing_used_bytes() == 0);
    HOLDS(kill(other, SIGKILL) == 0 && waitpid(other, NULL, 0) == other);
}

/* Events */

static void maker_of_event(void)
{
    struct testing t;
    struct given given;
    CUevent event, again;

    testing_begin(&t);
    INVALID(cuEventCreate(&event, CU_EVENT_INTERPROCESS));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuIpcGetEventHandle(&given.event, t.events[0]));
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    INVALID(cuIpcGetEventHandle(NULL, event));
    OK(cuIpcGetEventHandle(&given.event, event));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenEventHandle(&again, given.event));
    OK(testing_launch(t.kernel, t.streams[0], 1, 1000, 0));
    OK(cuEventRecord(event, t.streams[0]));
    give(to_other[1], &given, sizeof(given));
    hear(to_maker[0]);

    /* The other one recorded it. */
    GIVES(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    testing_step(100000);
    OK(cuEventQuery(event));
    OK(cuEventDestroy_v2(event));
    say(to_other[1]);
    hear(to_maker[0]);
}

static void opener_of_event(void)
{
    struct testing t;
    struct given given;
    CUevent event;
    float ms;

    take(to_other[0], &given, sizeof(given));
    testing_begin(&t);
    OK(cuIpcOpenEventHandle(&event, given.event));
    INVALID(cuIpcOpenEventHandle(NULL, given.event));
    GIVES(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, event, event));
    OK(cuStreamWaitEvent(t.streams[0], event, 0));
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(t.streams[0]));
    testing_step(100000);
    OK(cuEventQuery(event));
    OK(cuStreamQuery(t.streams[0]));

    OK(testing_launch(t.kernel, t.streams[1], 1, 1000, 0));
    OK(cuEventRecord(event, t.streams[1]));
    say(to_maker[1]);
    hear(to_other[0]);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
    OK(cuEventDestroy_v2(event));
    say(to_maker[1]);
}

static void an_event_is_shared(void)
{
    both(maker_of_event, opener_of_event);
}

/* By the granule */

static void granules(void)
{
    CUdeviceptr first, second;
    struct testing t;
    uint64_t before;

    testing_begin(&t);
    before = testing_used_bytes();
    OK(cuMemAlloc_v2(&first, 512));
    OK(cuMemAlloc_v2(&second, 512));
    HOLDS(testing_used_bytes() == before + 2 * MIB);
    (void)handle_of(first);
    HOLDS(testing_used_bytes() == before + 4 * MIB);
    OK(cuMemFree_v2(second));
    HOLDS(testing_used_bytes() == before + 2 * MIB);
    OK(cuMemFree_v2(first));
    HOLDS(testing_used_bytes() == before);
}

HOLDS_IN(a_process_shares_what_it_allocated, "", own_memory)
HOLDS_IN(another_one_opens_it_and_takes_none, "", memory_is_opened)
HOLDS_IN(it_is_whose_has_it_when_its_maker_dies, "", memory_outlives_its_maker)
HOLDS_IN(an_event_is_one_in_both, "", an_event_is_shared)
HOLDS_IN(shared_memory_has_granules_of_its_own, "granule=2Mi", granules)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_shares_what_it_allocated),
        cmocka_unit_test(another_one_opens_it_and_takes_none),
        cmocka_unit_test(it_is_whose_has_it_when_its_maker_dies),
        cmocka_unit_test(an_event_is_one_in_both),
        cmocka_unit_test(shared_memory_has_granules_of_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
