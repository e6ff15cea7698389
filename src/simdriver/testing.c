/* SPDX-License-Identifier: Apache-2.0 */
#include "simdriver/testing.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/util.h"

static char path[64];

const char *testing_machine(void)
{
    return path;
}

_Noreturn void testing_fail(const char *file, int line, const char *what)
{
    (void)fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    _exit(1);
}

void testing_code(const char *file, int line, const char *call, CUresult wanted, CUresult got)
{
    if (got == wanted)
        return;
    (void)fprintf(stderr, "%s:%d: %s is %d, not %d\n", file, line, call, got, wanted);
    _exit(1);
}

static int set_options(struct sim_driver_spec *driver, const char *options)
{
    char text[256], *rest, *word;

    COPY_TEXT(text, options);
    for (word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');

        if (!value)
            return -1;
        *value++ = '\0';
        if (sim_driver_set(driver, word, value))
            return -1;
    }
    return 0;
}

static int make_machine(const char *options)
{
    static unsigned count;
    struct sim_spec spec = {.gpu_count = 2, .driver.granule_bytes = 512};

    for (unsigned i = 0; i < spec.gpu_count; i++) {
        spec.gpus[i].memory_bytes = 16 * GIB;
        spec.gpus[i].context_bytes = 100 * MIB;
        spec.gpus[i].multiprocessors = 100;
        spec.gpus[i].numa_node = -1;
    }
    (void)snprintf(path, sizeof(path), "/tmp/hami-sim-test.%d.%u", (int)getpid(), count++);
    if (set_options(&spec.driver, options) < 0)
        return -1;
    if (sim_machine_create(path, &spec, NULL) < 0)
        return -1;
    return setenv("HAMI_SIM", path, 1);
}

static int run(const char *options, bool stopped, void (*body)(void))
{
    int status = -1;
    pid_t pid;

    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    if (make_machine(options) < 0 || (stopped && sim_clock_stop(path, NULL) < 0))
        return -1;
    (void)fflush(stdout);
    pid = fork();
    if (pid == 0) {
        (void)alarm(60);
        body();
        exit(0); /* not _exit(): a sanitizer looks for leaks then */
    }
    (void)waitpid(pid, &status, 0);
    (void)sim_machine_remove(path, 1, NULL);
    return status;
}

int testing_run(const char *options, void (*body)(void))
{
    return run(options, true, body);
}

int testing_run_unstopped(const char *options, void (*body)(void))
{
    return run(options, false, body);
}

void testing_begin_context(struct testing *testing, CUdevice device)
{
    static const char image[] = "hamisim-module 1\nsize=4096\nkernel work\n";

    OK(cuCtxCreate_v2(&testing->context, 0, device));
    OK(cuModuleLoadData(&testing->module, image));
    OK(cuModuleGetFunction(&testing->kernel, testing->module, "work"));
    OK(cuFuncLoad(testing->kernel));
    for (size_t i = 0; i < ARRAY_SIZE(testing->streams); i++)
        OK(cuStreamCreate(&testing->streams[i], CU_STREAM_NON_BLOCKING));
    for (size_t i = 0; i < ARRAY_SIZE(testing->events); i++)
        OK(cuEventCreate(&testing->events[i], 0));
}

void testing_begin(struct testing *testing)
{
    OK(cuInit(0));
    testing_begin_context(testing, 0);
}

CUresult testing_launch(CUfunction kernel, CUstream stream, unsigned blocks, int64_t work_ns,
                        uint64_t second)
{
    uint64_t first = (uint64_t)work_ns;
    void *params[] = {&first, &second};

    return cuLaunchKernel(kernel, blocks, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

void testing_step(int64_t ns)
{
    HOLDS(sim_clock_step(path, ns, NULL) == 0);
}

static const struct sim_view *view(void)
{
    static struct sim_view view;

    HOLDS(sim_machine_view(path, &view, NULL) == 0);
    return &view;
}

uint64_t testing_used_bytes(void)
{
    return testing_used_on_bytes(0);
}

uint64_t testing_used_on_bytes(unsigned gpu)
{
    return view()->gpus[gpu].used_bytes;
}

int64_t testing_busy_ns(void)
{
    return testing_busy_on_ns(0);
}

int64_t testing_busy_on_ns(unsigned gpu)
{
    return view()->gpus[gpu].busy_ns;
}

int64_t testing_between(CUevent from, CUevent to)
{
    float ms = -1;

    OK(cuEventElapsedTime_v2(&ms, from, to));
    return (int64_t)((double)ms * 1e6 + 0.5);
}
