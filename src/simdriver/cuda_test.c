/* SPDX-License-Identifier: Apache-2.0 */

/* The driver's interface: initialisation, devices, contexts, memory, modules, errors. */

#include "driver/cuda.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/nvml.h"
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "simdriver/machine.h"

#define OK(call) assert_int_equal((call), CUDA_SUCCESS)
#define FAILS(error, call) assert_int_equal((call), (error))

enum {
    CONTEXT_BYTES = 100 << 20,
    UNTOUCHED = 77,
};

static char path[64];
static struct sim_view view;

static uint64_t used_bytes(unsigned device)
{
    assert_int_equal(sim_machine_view(path, &view, NULL), 0);
    assert_int_equal(view.gpus[device].used_bytes,
                     view.process_count ? view.processes[0].used_bytes[device] : 0);
    return view.gpus[device].used_bytes;
}

static void nothing_works_before_initialisation(void **state)
{
    CUdeviceptr ptr = UNTOUCHED;
    CUcontext context;
    int count;

    (void)state;
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&count));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuCtxGetCurrent(&context));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuMemAlloc_v2(&ptr, 1));
    FAILS(CUDA_ERROR_NOT_INITIALIZED, cuCtxSynchronize());
    OK(cuDriverGetVersion(&count));
    assert_int_equal(count, 13050);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuInit(1));
    OK(cuInit(0));
    OK(cuInit(0));
}

static int visible_count(const char *text)
{
    pid_t pid = fork();
    int status, count = 0;

    if (pid == 0) {
        if (text)
            (void)setenv("CUDA_VISIBLE_DEVICES", text, 1);
        if (cuInit(0) == CUDA_SUCCESS)
            (void)cuDeviceGetCount(&count);
        _exit(count);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

/* Before this process calls cuInit() its children may. */
static void devices_are_hidden_as_cuda_does(void **state)
{
    static const struct {
        const char *text;
        int count;
    } cases[] = {
        {NULL, 3},
        {"", 0},
        {"0,1,2", 3},
        {"2,0", 2},
        {"1,7,0", 1},
        {"-1", 0},
        {"0,0", 1},
        {" 1 , 2", 2},
        {"GPU-aaaa0000", 1},
        {"GPU-aaaa", 0},
        {"GPU-bbbb,junk,0", 1},
        {"none", 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        print_message("%s\n", cases[i].text ? cases[i].text : "(unset)");
        assert_int_equal(visible_count(cases[i].text), cases[i].count);
    }
}

static void a_machine_that_is_none_is_no_device(void **state)
{
    int status;
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        (void)!freopen("/dev/null", "w", stderr);
        (void)setenv("HAMI_SIM", "/dev/null", 1);
        if (cuInit(0) != CUDA_ERROR_NO_DEVICE)
            _exit(1);
        (void)unsetenv("HAMI_SIM");
        _exit(cuInit(0) != CUDA_ERROR_NO_DEVICE);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void devices_tell_what_they_are(void **state)
{
    char name[64], bus[32];
    size_t bytes;
    CUdevice device;
    CUuuid uuid;
    int value;

    (void)state;
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceGet(&device, 3));
    FAILS(CUDA_ERROR_INVALID_DEVICE, cuDeviceTotalMem_v2(&bytes, -1));
    OK(cuDeviceGet(&device, 1));
    OK(cuDeviceGetName(name, sizeof(name), device));
    assert_string_equal(name, "NVIDIA A100-SXM4-40GB");
    OK(cuDeviceTotalMem_v2(&bytes, device));
    assert_int_equal(bytes, 1 * GIB);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    assert_int_equal(value, 108);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuDeviceGetAttribute(&value, 0, device));
    OK(cuDeviceGetUuid_v2(&uuid, device));
    assert_int_equal(uuid.bytes[0], 0xaa);
    assert_int_equal(uuid.bytes[15], 0x02);
    OK(cuDeviceGetPCIBusId(bus, sizeof(bus), device));
    OK(cuDeviceGetByPCIBusId(&device, bus));
    assert_int_equal(device, 1);
}

static void a_primary_context_lives_while_it_is_used(void **state)
{
    CUcontext context, same;
    CUdeviceptr ptr;
    unsigned flags;
    int active;

    (void)state;
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuDevicePrimaryCtxRetain(&same, 0));
    assert_ptr_equal(context, same);
    assert_int_equal(used_bytes(0), CONTEXT_BYTES);
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&ptr, 1));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&ptr, MIB));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    assert_int_equal(used_bytes(0), CONTEXT_BYTES + MIB);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    assert_int_equal(used_bytes(0), 0);
    FAILS(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemFree_v2(ptr));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_int_equal(active, 0);

    /* The handle lasts. */
    OK(cuDevicePrimaryCtxRetain(&same, 0));
    assert_ptr_equal(context, same);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(ptr));
    OK(cuDevicePrimaryCtxReset_v2(0));
    assert_int_equal(used_bytes(0), 0);
    OK(cuCtxSetCurrent(NULL));
}

static void contexts_are_a_stack(void **state)
{
    CUcontext a, b, top;
    CUdevice device;

    (void)state;
    OK(cuCtxCreate_v2(&a, 0, 0));
    OK(cuCtxCreate_v2(&b, 0, 1));
    assert_int_equal(used_bytes(0), CONTEXT_BYTES);
    OK(cuCtxGetDevice(&device));
    assert_int_equal(device, 1);
    OK(cuCtxPopCurrent_v2(&top));
    assert_ptr_equal(top, b);
    OK(cuCtxGetCurrent(&top));
    assert_ptr_equal(top, a);
    OK(cuCtxPushCurrent_v2(b));
    OK(cuCtxDestroy_v2(b));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(b));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxPushCurrent_v2(b));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent((CUcontext)(uintptr_t)0x123456));
    OK(cuCtxDestroy_v2(a));
    FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice(&device));
    assert_int_equal(used_bytes(0) + used_bytes(1), 0);
}

static void memory_is_accounted_for(void **state)
{
    CUdeviceptr ptr = UNTOUCHED, base;
    CUdeviceptr_v1 low;
    size_t bytes, total, pitch = UNTOUCHED;
    CUcontext context;

    (void)state;
    OK(cuCtxCreate_v2(&context, 0, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(&ptr, 0));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2(NULL, 1));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&ptr, GIB - CONTEXT_BYTES + 1));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&ptr, SIZE_MAX));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch_v2(&ptr, &pitch, SIZE_MAX / 2, 4, 4));
    assert_int_equal(ptr, 0);
    assert_int_equal(pitch, SIZE_MAX / 2 + 1);

    OK(cuMemAlloc_v2(&ptr, 513));
    assert_true(ptr > UINT32_MAX);
    assert_int_equal(ptr % 256, 0);
    assert_int_equal(used_bytes(0), CONTEXT_BYTES + 1024);
    OK(cuMemGetInfo_v2(&bytes, &total));
    assert_int_equal(total, GIB);
    assert_int_equal(bytes, GIB - CONTEXT_BYTES - 1024);
    OK(cuMemGetAddressRange_v2(&base, &bytes, ptr + 512));
    assert_int_equal(base, ptr);
    assert_int_equal(bytes, 513);
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(ptr + 256));
    OK(cuMemFree_v2(ptr));
    FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(ptr));
    OK(cuMemFree_v2(0));

    OK(cuMemAllocPitch_v2(&ptr, &pitch, 1000, 10, 4));
    assert_int_equal(pitch, 1024);
    assert_int_equal(used_bytes(0), CONTEXT_BYTES + 10240);
    OK(cuMemAlloc(&low, 100));
    OK(cuMemFree(low));
    OK(cuMemAlloc_v2(&ptr, GIB - CONTEXT_BYTES - 10240));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&base, 1));
    OK(cuCtxDestroy_v2(context));
    assert_int_equal(used_bytes(0), 0);
}

static void a_context_that_does_not_fit_is_out_of_memory(void **state)
{
    CUcontext full, context = NULL;
    CUdeviceptr ptr;

    (void)state;
    OK(cuCtxCreate_v2(&full, 0, 2));
    OK(cuMemAlloc_v2(&ptr, GIB - CONTEXT_BYTES - MIB));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuCtxCreate_v2(&context, 0, 2));
    assert_null(context);
    FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuDevicePrimaryCtxRetain(&context, 2));
    assert_int_equal(used_bytes(2), GIB - MIB);
    OK(cuCtxDestroy_v2(full));
}

static void modules_take_memory(void **state)
{
    CUfunction function, again;
    CUlibrary library;
    CUcontext context;
    CUkernel kernel;
    CUmodule module;

    (void)state;
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuModuleLoadData(&module, "hamisim-module 1\nsize=1000000\nkernel a\nkernel b"));
    OK(cuModuleGetFunction(&function, module, "b"));
    OK(cuModuleGetFunction(&again, module, "b"));
    assert_ptr_equal(function, again);
    FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&again, module, "c"));
    assert_int_equal(used_bytes(0), CONTEXT_BYTES);
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    assert_int_equal(used_bytes(0), CONTEXT_BYTES + 500224);
    OK(cuModuleUnload(module));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
    FAILS(CUDA_ERROR_INVALID_HANDLE,
          cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    assert_int_equal(used_bytes(0), CONTEXT_BYTES);

    OK(cuLibraryLoadData(&library, ".version 8.0", NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&kernel, library, "anything"));
    OK(cuKernelGetFunction(&function, kernel));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuKernelGetFunction(&function, (CUkernel)function));
    assert_int_equal(used_bytes(0), CONTEXT_BYTES);
    OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    assert_int_equal(used_bytes(0), CONTEXT_BYTES + MIB);
    OK(cuLibraryUnload(library));
    assert_int_equal(used_bytes(0), CONTEXT_BYTES);

    OK(cuModuleLoadData(&module, "hamisim-module 1\nsize=9999999999\nkernel a\n"));
    OK(cuModuleGetFunction(&function, module, "a"));
    FAILS(CUDA_ERROR_OUT_OF_MEMORY,
          cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    OK(cuModuleUnload(module));

    FAILS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, ""));
    FAILS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "hamisim-module 1\nsize=x\n"));
    FAILS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "hamisim-module 1\nfoo\n"));
    FAILS(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad(&module, "/nonexistent"));
    OK(cuCtxDestroy_v2(context));
    assert_int_equal(used_bytes(0), 0);
}

static void a_full_stream_and_a_wait_last_as_long_as_the_work(void **state)
{
    uint64_t work_ns = 20000;
    void *params[] = {&work_ns};
    CUfunction function;
    CUcontext context;
    CUmodule module;
    CUstream stream;
    int64_t from_ns;

    (void)state;
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuModuleLoadData(&module, ".version"));
    OK(cuModuleGetFunction(&function, module, "k"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    from_ns = clock_now_ns();
    for (unsigned i = 0; i < 2000; i++)
        OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    assert_true(clock_now_ns() - from_ns >= 18 * NS_PER_MS);
    OK(cuStreamSynchronize(stream));
    assert_true(clock_now_ns() - from_ns >= 40 * NS_PER_MS);
    OK(cuStreamDestroy_v2(stream));
    FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize(stream));
    OK(cuCtxDestroy_v2(context));
}

static void what_is_not_simulated_says_so(void **state)
{
    CUdeviceptr ptr = 0;
    size_t bytes = 0, first = 0;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE};

    (void)state;
    FAILS(CUDA_ERROR_NOT_SUPPORTED,
          cuMemPrefetchBatchAsync(&ptr, &bytes, 1, &here, &first, 1, 0, NULL));
}

static void nvml_sees_the_same_machine(void **state)
{
    nvmlMemory_v2_t v2 = {.version = 1};
    nvmlProcessInfo_v2_t info;
    nvmlUtilization_t rates;
    nvmlMemory_t memory;
    nvmlDevice_t device;
    CUcontext context;
    unsigned count, node;

    (void)state;
    assert_int_equal(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
    assert_int_equal(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
    assert_int_equal(nvmlInit_v2(), NVML_SUCCESS);
    assert_int_equal(nvmlInitWithFlags(0), NVML_SUCCESS);
    assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetCount_v2(&count), NVML_SUCCESS);
    assert_int_equal(count, 3);
    assert_int_equal(nvmlDeviceGetHandleByUUID("GPU-none", &device), NVML_ERROR_NOT_FOUND);
    assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2("00000000:01:00.0", &device), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetNumaNodeId(device, &node), NVML_ERROR_NOT_SUPPORTED);

    count = 0;
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL), NVML_SUCCESS);
    OK(cuCtxCreate_v2(&context, 0, 0));
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, NULL),
                     NVML_ERROR_INSUFFICIENT_SIZE);
    assert_int_equal(count, 1);
    assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(device, &count, &info), NVML_SUCCESS);
    assert_int_equal(info.pid, getpid());
    assert_int_equal(info.usedGpuMemory, CONTEXT_BYTES);
    assert_int_equal(nvmlDeviceGetMemoryInfo(device, &memory), NVML_SUCCESS);
    assert_int_equal(memory.used, CONTEXT_BYTES);
    assert_int_equal(nvmlDeviceGetMemoryInfo_v2(device, &v2), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    v2.version = NVML_MEMORY_V2;
    assert_int_equal(nvmlDeviceGetMemoryInfo_v2(device, &v2), NVML_SUCCESS);
    assert_int_equal(v2.total, v2.used + v2.free);
    assert_int_equal(nvmlDeviceGetUtilizationRates(device, &rates), NVML_SUCCESS);
    assert_in_range(rates.gpu, 0, 100);
    OK(cuCtxDestroy_v2(context));
    assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
    assert_int_equal(nvmlDeviceGetCount_v2(&count), NVML_ERROR_UNINITIALIZED);
}

static int make_machine(void **state)
{
    struct sim_spec spec = {.gpu_count = 3, .driver.granule_bytes = 512};

    (void)state;
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    for (unsigned i = 0; i < spec.gpu_count; i++) {
        spec.gpus[i].memory_bytes = GIB;
        spec.gpus[i].context_bytes = CONTEXT_BYTES;
        spec.gpus[i].numa_node = -1;
    }
    COPY_TEXT(spec.gpus[0].uuid, "GPU-aaaa0000-0000-0000-0000-000000000001");
    COPY_TEXT(spec.gpus[1].uuid, "GPU-aaaa1111-0000-0000-0000-000000000002");
    COPY_TEXT(spec.gpus[2].uuid, "GPU-bbbb0000-0000-0000-0000-000000000003");
    (void)snprintf(path, sizeof(path), "/tmp/hami-cuda-test.%d", (int)getpid());
    (void)setenv("HAMI_SIM", path, 1);
    return sim_machine_create(path, &spec, NULL);
}

static int remove_machine(void **state)
{
    (void)state;
    return sim_machine_remove(path, 1, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_hidden_as_cuda_does),
        cmocka_unit_test(a_machine_that_is_none_is_no_device),
        cmocka_unit_test(nothing_works_before_initialisation),
        cmocka_unit_test(devices_tell_what_they_are),
        cmocka_unit_test(a_primary_context_lives_while_it_is_used),
        cmocka_unit_test(contexts_are_a_stack),
        cmocka_unit_test(memory_is_accounted_for),
        cmocka_unit_test(a_context_that_does_not_fit_is_out_of_memory),
        cmocka_unit_test(modules_take_memory),
        cmocka_unit_test(a_full_stream_and_a_wait_last_as_long_as_the_work),
        cmocka_unit_test(what_is_not_simulated_says_so),
        cmocka_unit_test(nvml_sees_the_same_machine),
    };

    return cmocka_run_group_tests(tests, make_machine, remove_machine);
}
