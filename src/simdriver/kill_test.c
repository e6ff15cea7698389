/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Processes killed at any instruction: 16 of them allocate and launch for all they are worth, 200
 * times one is killed and replaced. Those who live on see a consistent machine throughout, nobody
 * hangs, and in the end nothing is left.
 */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/cuda.h"
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "simdriver/machine.h"
#include "simdriver/testing.h"

enum {
    WORKERS = 16,
    KILLS = 200,
    HOLD = 8,
    PATIENCE = 1000, /* looks, 10 ms apart */
};

static char path[64];
static struct sim_view view;

/* What the workers share of their memory: whose descriptor it is, and handles, which may be torn.
 */
static struct offer {
    int pid, fd;
    CUipcMemHandle memory;
    CUipcEventHandle event;
} * offers;

static void check(CUresult r)
{
    if (r != CUDA_SUCCESS)
        _exit(1);
}

struct kernels {
    CUfunction works, waits, posts;
};

/* One kernel waits for another, which comes first, or nobody would get on. */
static void wait_for_post(const struct kernels *kernels, CUstream stream)
{
    uint64_t work_ns = 1000, flag = (uint64_t)getpid() % 1024;
    void *params[] = {&work_ns, &flag};

    check(cuLaunchKernel(kernels->posts, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    check(cuLaunchKernel(kernels->waits, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
}

/* Memory that is mapped, given to another worker while it is, and had from another one. */
static void share_memory(CUdeviceptr at, unsigned *seed)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
    };
    struct offer offer = offers[(unsigned)rand_r(seed) % WORKERS];
    CUmemGenericAllocationHandle own, other;
    int fd, theirs;

    check(cuMemCreate(&own, 2 * MIB, &prop, 0));
    check(cuMemMap(at, 2 * MIB, 0, own, 0));
    check(cuMemExportToShareableHandle(&fd, own, 1, 0));
    check(cuMemRelease(own));
    offers[(unsigned)rand_r(seed) % WORKERS].pid = getpid();
    offers[(unsigned)rand_r(seed) % WORKERS].fd = fd;

    theirs = testing_descriptor_of(offer.pid, offer.fd);
    if (theirs >= 0 && cuMemImportFromShareableHandle(&other, (void *)(intptr_t)theirs, 1) == 0) {
        check(cuMemMap(at + 2 * MIB, 2 * MIB, 0, other, 0));
        check(cuMemRelease(other));
        check(cuMemUnmap(at, 4 * MIB));
    } else {
        check(cuMemUnmap(at, 2 * MIB));
    }
    (void)close(theirs);
    (void)close(fd);
}

/* What it allocated is another one's as well, and that one's event its own. */
static void share_by_handle(CUdeviceptr own, unsigned *seed)
{
    struct offer *offer = &offers[(unsigned)rand_r(seed) % WORKERS];
    CUdeviceptr theirs;
    CUevent event, opened;

    if (cuIpcOpenMemHandle_v2(&theirs, offer->memory, 1) == CUDA_SUCCESS && rand_r(seed) % 2)
        check(cuIpcCloseMemHandle(theirs));
    check(cuIpcGetMemHandle(&offers[(unsigned)rand_r(seed) % WORKERS].memory, own));
    check(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    if (cuIpcOpenEventHandle(&opened, offer->event) == CUDA_SUCCESS) {
        (void)cuEventRecord(opened, NULL); /* its maker may be dead by now */
        (void)cuStreamWaitEvent(NULL, opened, 0);
        check(cuEventDestroy_v2(opened));
    }
    check(cuIpcGetEventHandle(&offers[(unsigned)rand_r(seed) % WORKERS].event, event));
    check(cuEventRecord(event, NULL));
    if (rand_r(seed) % 4)
        check(cuEventDestroy_v2(event));
}

static void move_pages(unsigned *seed)
{
    CUdeviceptr ptr;

    check(cuMemAllocManaged(&ptr, 8 * MIB, CU_MEM_ATTACH_GLOBAL));
    check(cuMemPrefetchAsync(ptr, 8 * MIB, (CUdevice)(rand_r(seed) % 2), NULL));
    check(cuMemPrefetchAsync(ptr, 4 * MIB, CU_DEVICE_CPU, NULL));
    check(cuMemFree_v2(ptr));
}

/* What a graph allocates, of which a piece outlives it. */
static void launch_graph(CUstream stream, unsigned *seed)
{
    CUdeviceptr freed, left;
    CUgraphExec exec;
    CUgraph graph;

    check(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    check(cuMemAllocAsync(&freed, MIB, stream));
    check(cuMemFreeAsync(freed, stream));
    check(cuMemAllocAsync(&left, 3 * MIB, stream));
    check(cuStreamEndCapture(stream, &graph));
    check(cuGraphInstantiateWithFlags(&exec, graph, 0));
    check(cuGraphLaunch(exec, stream));
    check(cuGraphExecDestroy(exec));
    check(cuGraphDestroy(graph));
    if (rand_r(seed) % 2)
        check(cuDeviceGraphMemTrim((CUdevice)(rand_r(seed) % 2)));
    check(cuMemFree_v2(left));
}

static void make_arrays(void)
{
    const CUDA_ARRAY3D_DESCRIPTOR shape = {512, 512, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUmipmappedArray mipmap;
    CUarray array;

    check(cuArray3DCreate_v2(&array, &shape));
    check(cuMipmappedArrayCreate(&mipmap, &shape, 4));
    check(cuArrayDestroy(array));
    check(cuMipmappedArrayDestroy(mipmap));
}

/* A team of one device; what is bound to its object outlives its handle. */
static void bind_memory(CUdevice device)
{
    const CUmulticastObjectProp team = {.numDevices = 1, .size = 2 * MIB};
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    CUmemGenericAllocationHandle object, memory;

    check(cuMulticastCreate(&object, &team));
    check(cuMulticastAddDevice(object, device));
    check(cuMemCreate(&memory, 2 * MIB, &prop, 0));
    check(cuMulticastBindMem(object, 0, memory, 0, 2 * MIB, 0));
    check(cuMemRelease(memory));
    check(cuMemRelease(object));
}

static void work_once(const struct kernels *kernels, CUdeviceptr at_mapped, CUdeviceptr *held,
                      unsigned *seed)
{
    unsigned at = (unsigned)rand_r(seed) % HOLD;
    uint64_t work_ns = (unsigned)rand_r(seed) % 50000;
    void *params[] = {&work_ns};
    CUstream stream;
    CUevent event;

    check(cuMemFree_v2(held[at]));
    check(cuMemAlloc_v2(&held[at], (size_t)rand_r(seed) % MIB + 1));
    share_memory(at_mapped, seed);
    share_by_handle(held[at], seed);
    move_pages(seed);
    make_arrays();
    bind_memory((CUdevice)(rand_r(seed) % 2));
    check(cuStreamCreate(&stream, (unsigned)rand_r(seed) % 2));
    launch_graph(stream, seed);
    check(cuEventCreate(&event, 0));
    for (unsigned i = 0; i < 8; i++)
        check(cuLaunchKernel(kernels->works, 1, 1, 1, 1, 1, 1, 0, i % 2 ? stream : NULL, params,
                             NULL));
    wait_for_post(kernels, stream);
    check(cuEventRecord(event, stream));
    check(cuStreamWaitEvent(NULL, event, 0));
    check(cuStreamDestroy_v2(stream));
    if (at == 0)
        check(cuCtxSynchronize());
    check(cuEventDestroy_v2(event));
}

static _Noreturn void worker(unsigned seed)
{
    CUdeviceptr held[HOLD] = {0}, mapped;
    CUcontext context;
    struct kernels kernels;
    CUmodule module;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    testing_offer_descriptors();
    check(cuInit(0));
    check(cuDevicePrimaryCtxRetain(&context, (CUdevice)(seed % 2)));
    check(cuCtxSetCurrent(context));
    check(cuModuleLoadData(&module, "hamisim-module 1\nsize=100\nkernel k\nkernel w waits\n"
                                    "kernel p posts\n"));
    check(cuModuleGetFunction(&kernels.works, module, "k"));
    check(cuModuleGetFunction(&kernels.waits, module, "w"));
    check(cuModuleGetFunction(&kernels.posts, module, "p"));
    check(cuMemAddressReserve(&mapped, 4 * MIB, 0, 0, 0));
    for (;;)
        work_once(&kernels, mapped, held, &seed);
}

static pid_t start(unsigned seed)
{
    pid_t pid = fork();

    if (pid == 0)
        worker(seed);
    return pid;
}

/* What a device has in use is what its processes have, and the one piece of each that only its
 * descriptor keeps. */
static void check_sums(void)
{
    assert_int_equal(sim_machine_view(path, &view, NULL), 0);
    for (unsigned i = 0; i < view.gpu_count; i++) {
        uint64_t sum = 0;

        for (unsigned k = 0; k < view.process_count; k++)
            sum += view.processes[k].used_bytes[i] + view.processes[k].managed_bytes[i];
        assert_true(view.gpus[i].used_bytes >= sum);
        assert_true(view.gpus[i].used_bytes - sum <= 2 * MIB * view.process_count);
        assert_int_equal((view.gpus[i].used_bytes - sum) % (2 * MIB), 0);
    }
}

static int64_t total_busy_ns(void)
{
    return view.gpus[0].busy_ns + view.gpus[1].busy_ns;
}

static void end(pid_t pid)
{
    int status;

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void the_killed_leave_nothing_behind(void **state)
{
    pid_t pids[WORKERS];
    unsigned seed = 1;
    int64_t busy_ns;

    (void)state;
    offers = mmap(NULL, WORKERS * sizeof(*offers), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(offers != MAP_FAILED);
    for (unsigned i = 0; i < WORKERS; i++)
        pids[i] = start(i);
    for (unsigned i = 0; i < KILLS; i++) {
        unsigned victim = (unsigned)rand_r(&seed) % WORKERS;

        (void)usleep((unsigned)rand_r(&seed) % 10000);
        end(pids[victim]);
        if (i % 8 == 0)
            check_sums();
        pids[victim] = start(WORKERS + i);
    }

    /* The survivors get on. */
    check_sums();
    busy_ns = total_busy_ns();
    for (int i = 0; i < PATIENCE && (view.process_count < WORKERS || total_busy_ns() == busy_ns);
         i++) {
        (void)usleep(10 * 1000);
        check_sums();
    }
    assert_true(total_busy_ns() > busy_ns);
    assert_int_equal(view.process_count, WORKERS);

    for (unsigned i = 0; i < WORKERS; i++)
        end(pids[i]);
    check_sums();
    assert_int_equal(view.process_count, 0);
    assert_int_equal(view.gpus[0].used_bytes + view.gpus[1].used_bytes, 0);
    assert_int_equal(sim_machine_remove(path, 0, NULL), 0);
}

/* The driver's lock on its slot goes with any descriptor that the program closes. */
static void a_program_that_closes_everything_lives_on(void **state)
{
    int pipes[2], status;
    pid_t pid;
    char byte;

    (void)state;
    assert_int_equal(pipe(pipes), 0);
    pid = fork();
    if (pid == 0) {
        CUcontext context;
        CUdeviceptr ptr;

        check(cuInit(0));
        check(cuCtxCreate_v2(&context, 0, 0));
        check(cuMemAlloc_v2(&ptr, MIB));
        for (int fd = 3; fd < 64; fd++) {
            if (fd != pipes[1])
                (void)close(fd);
        }
        (void)!write(pipes[1], "", 1);
        (void)pause();
    }
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    check_sums();
    assert_int_equal(view.process_count, 1);
    assert_int_equal(view.processes[0].pid, pid);
    assert_true(view.gpus[0].used_bytes > MIB);
    assert_int_equal(sim_machine_remove(path, 0, NULL), -EBUSY);

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    check_sums();
    assert_int_equal(view.process_count, 0);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}

static int run_forked(void (*body)(void))
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void refuse_everything(void)
{
    CUdevice device;
    int count;

    if (cuDeviceGetCount(&count) != CUDA_ERROR_NOT_INITIALIZED ||
        cuDeviceGet(&device, 0) != CUDA_ERROR_NOT_INITIALIZED ||
        cuInit(0) != CUDA_ERROR_NOT_INITIALIZED)
        _exit(1);
}

static void init_and_fork(void)
{
    CUcontext context;

    check(cuInit(0));
    check(cuCtxCreate_v2(&context, 0, 0));
    if (run_forked(refuse_everything) != 0)
        _exit(1);
    check(cuCtxSynchronize());
}

static void a_child_of_an_initialised_process_has_no_cuda(void **state)
{
    (void)state;
    assert_int_equal(run_forked(init_and_fork), 0);
}

static int make_machine(void **state)
{
    struct sim_spec spec = {.gpu_count = 2, .driver = {.multicast = SIM_MULTICAST_YES}};

    (void)state;
    (void)alarm(60);
    (void)snprintf(path, sizeof(path), "/tmp/hami-kill-test.%d", (int)getpid());
    (void)setenv("HAMI_SIM", path, 1);
    return sim_machine_create(path, &spec, NULL);
}

static int remove_machine(void **state)
{
    (void)state;
    (void)sim_machine_remove(path, 1, NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_child_of_an_initialised_process_has_no_cuda, make_machine,
                                        remove_machine),
        cmocka_unit_test_setup_teardown(a_program_that_closes_everything_lives_on, make_machine,
                                        remove_machine),
        cmocka_unit_test_setup_teardown(the_killed_leave_nothing_behind, make_machine,
                                        remove_machine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
