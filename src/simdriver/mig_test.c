/* SPDX-License-Identifier: Apache-2.0 */

/* MIG: what NVML makes of a card, what it refuses, and what a program has of an instance. */

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "driver/nvml.h"
#include "simdriver/mig.h"
#include "simdriver/testing.h"

#define NVML(error, call) HOLDS((call) == (error))
#define FINE(call) NVML(NVML_SUCCESS, call)

enum {
    ID_1G = 19,
    ID_1G_ME = 20,
    ID_1G_DOUBLE = 15,
    ID_2G = 14,
    ID_3G = 9,
    ID_4G = 5,
    ID_7G = 0,
};

/* Of what nvidia-smi and NVIDIA's guide show of these cards. */
static const struct card_case {
    const char *model;
    uint64_t card_mib;
    unsigned multiprocessors;
    struct {
        unsigned enumerator, id, slices, count, sms;
        uint64_t mib;
        const char *name;
    } profiles[6];
} card_cases[] = {
    {"NVIDIA A100-SXM4-40GB",
     40960,
     108,
     {{0, 19, 1, 7, 14, 4864, "1g.5gb"},
      {9, 15, 1, 4, 14, 9856, "1g.10gb"},
      {1, 14, 2, 3, 28, 9856, "2g.10gb"},
      {2, 9, 3, 2, 42, 19968, "3g.20gb"},
      {3, 5, 4, 1, 56, 19968, "4g.20gb"},
      {4, 0, 7, 1, 98, 40192, "7g.40gb"}}},
    {"NVIDIA A100-SXM4-80GB",
     81920,
     108,
     {{0, 19, 1, 7, 14, 9856, "1g.10gb"},
      {7, 20, 1, 1, 14, 9856, "1g.10gb+me"},
      {1, 14, 2, 3, 28, 19968, "2g.20gb"},
      {2, 9, 3, 2, 42, 40192, "3g.40gb"},
      {3, 5, 4, 1, 56, 40192, "4g.40gb"},
      {4, 0, 7, 1, 98, 80384, "7g.80gb"}}},
    {"NVIDIA H100 80GB HBM3",
     81559,
     132,
     {{0, 19, 1, 7, 16, 9984, "1g.10gb"},
      {9, 15, 1, 4, 26, 20096, "1g.20gb"},
      {1, 14, 2, 3, 32, 20096, "2g.20gb"},
      {2, 9, 3, 2, 60, 40448, "3g.40gb"},
      {3, 5, 4, 1, 64, 40448, "4g.40gb"},
      {4, 0, 7, 1, 132, 81152, "7g.80gb"}}},
    {"NVIDIA H200",
     143771,
     132,
     {{0, 19, 1, 7, 16, 16384, "1g.18gb"},
      {9, 15, 1, 4, 26, 33024, "1g.35gb"},
      {1, 14, 2, 3, 32, 33024, "2g.35gb"},
      {2, 9, 3, 2, 60, 71168, "3g.71gb"},
      {3, 5, 4, 1, 64, 71168, "4g.71gb"},
      {4, 0, 7, 1, 132, 143360, "7g.141gb"}}},
};

static nvmlDevice_t card(unsigned index)
{
    nvmlDevice_t found;

    FINE(nvmlDeviceGetHandleByIndex_v2(index, &found));
    return found;
}

static nvmlDevice_t begin(void)
{
    nvmlReturn_t activation = NVML_ERROR_UNKNOWN;

    FINE(nvmlInit_v2());
    FINE(nvmlDeviceSetMigMode(card(0), NVML_MIG_ENABLED, &activation));
    HOLDS(activation == NVML_SUCCESS);
    return card(0);
}

static nvmlReturn_t try_instance(unsigned id, unsigned start, unsigned size,
                                 nvmlGpuInstance_t *ret_instance)
{
    const nvmlGpuInstancePlacement_t placement = {start, size};

    return nvmlDeviceCreateGpuInstanceWithPlacement(card(0), id, &placement, ret_instance);
}

static unsigned size_of(unsigned id)
{
    return sim_mig_profiles[sim_mig_by_id(id)].size;
}

static nvmlGpuInstance_t instance(unsigned id, unsigned start)
{
    nvmlGpuInstance_t found;

    FINE(try_instance(id, start, size_of(id), &found));
    return found;
}

static nvmlComputeInstance_t compute(nvmlGpuInstance_t parent, unsigned id)
{
    nvmlComputeInstance_t found;

    FINE(nvmlGpuInstanceCreateComputeInstance(parent, id, &found));
    return found;
}

/* A MIG device of two slices that begins there, and its uuid. */
static nvmlDevice_t mig_device(unsigned start, char uuid[96])
{
    nvmlDevice_t found;

    (void)compute(instance(ID_2G, start), 1);
    FINE(nvmlDeviceGetMigDeviceHandleByIndex(card(0), start, &found));
    FINE(nvmlDeviceGetUUID(found, uuid, 96));
    return found;
}

static unsigned capacity(unsigned id)
{
    unsigned count;

    FINE(nvmlDeviceGetGpuInstanceRemainingCapacity(card(0), id, &count));
    return count;
}

static void test_profiles_are_nvidias(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < ARRAY_SIZE(card_cases); i++) {
        const struct card_case *c = &card_cases[i];
        struct sim_gpu_spec spec = {.memory_bytes = c->card_mib * MIB,
                                    .multiprocessors = c->multiprocessors};

        copy_text(spec.model, sizeof(spec.model), c->model);
        for (size_t k = 0; k < ARRAY_SIZE(c->profiles); k++) {
            int profile = sim_mig_by_enumerator(c->profiles[k].enumerator);
            char name[SIM_MIG_NAME_SIZE];

            assert_true(profile >= 0 && profile == sim_mig_by_id(c->profiles[k].id));
            sim_mig_name(&spec, (unsigned)profile, name);
            assert_string_equal(name, c->profiles[k].name);
            assert_int_equal(sim_mig_memory_mib(&spec, (unsigned)profile), c->profiles[k].mib);
            assert_int_equal(sim_mig_multiprocessors(&spec, (unsigned)profile), c->profiles[k].sms);
            assert_int_equal(sim_mig_profiles[profile].slices, c->profiles[k].slices);
            assert_int_equal(sim_mig_profiles[profile].max, c->profiles[k].count);
        }
    }
}

static void modes(void)
{
    nvmlReturn_t activation = NVML_ERROR_UNKNOWN;
    unsigned current = 7, pending = 7;
    nvmlGpuInstance_t whole, other;
    CUcontext context;

    FINE(nvmlInit_v2());
    FINE(nvmlDeviceGetMigMode(card(0), &current, &pending));
    HOLDS(current == 0 && pending == 0);
    NVML(NVML_ERROR_NOT_SUPPORTED, try_instance(ID_7G, 0, 8, &whole));
    NVML(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceSetMigMode(card(0), 2, &activation));

    /* A card in use changes at its reset. */
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    FINE(nvmlDeviceSetMigMode(card(0), NVML_MIG_ENABLED, &activation));
    HOLDS(activation == NVML_ERROR_IN_USE);
    FINE(nvmlDeviceGetMigMode(card(0), &current, &pending));
    HOLDS(current == 0 && pending == 1);
    NVML(NVML_ERROR_NOT_SUPPORTED, try_instance(ID_7G, 0, 8, &whole));
    OK(cuCtxDestroy_v2(context));
    HOLDS(sim_machine_fault(testing_machine(), 0, &(struct sim_fault){.has_condition = true},
                            NULL) == 0);
    FINE(nvmlDeviceGetMigMode(card(0), &current, &pending));
    HOLDS(current == 1 && pending == 1);

    /* Instances are users, too. */
    whole = instance(ID_7G, 0);
    FINE(nvmlDeviceSetMigMode(card(0), NVML_MIG_DISABLED, &activation));
    HOLDS(activation == NVML_ERROR_IN_USE);
    HOLDS(sim_machine_fault(testing_machine(), 0, &(struct sim_fault){.has_mig = true}, NULL) ==
          -EBUSY);
    FINE(nvmlGpuInstanceDestroy(whole));
    FINE(nvmlDeviceSetMigMode(card(0), NVML_MIG_DISABLED, &activation));
    HOLDS(activation == NVML_SUCCESS);
    NVML(NVML_ERROR_NOT_SUPPORTED, try_instance(ID_7G, 0, 8, &other));
    NVML(NVML_ERROR_INVALID_ARGUMENT, nvmlGpuInstanceDestroy(whole));
}

static void nobody_may(void)
{
    nvmlGpuInstancePlacement_t placements[8];
    nvmlDevice_t device = begin();
    nvmlGpuInstance_t parent = instance(ID_1G, 3);
    nvmlComputeInstance_t child = compute(parent, 0);
    nvmlReturn_t activation;
    unsigned count = 8;

    HOLDS(seteuid(65534) == 0);
    NVML(NVML_ERROR_NO_PERMISSION, nvmlDeviceSetMigMode(device, 0, &activation));
    NVML(NVML_ERROR_NO_PERMISSION,
         nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, ID_1G, placements, &count));
    NVML(NVML_ERROR_NO_PERMISSION, nvmlDeviceCreateGpuInstance(device, ID_1G, &parent));
    NVML(NVML_ERROR_NO_PERMISSION, nvmlComputeInstanceDestroy(child));
    NVML(NVML_ERROR_NO_PERMISSION, nvmlGpuInstanceDestroy(parent));
    HOLDS(seteuid(0) == 0);
}

static void placements(void)
{
    static const struct {
        unsigned id, size, count, starts[7];
    } cases[] = {
        {ID_1G, 1, 7, {0, 1, 2, 3, 4, 5, 6}},
        {ID_1G_ME, 1, 7, {0, 1, 2, 3, 4, 5, 6}},
        {ID_1G_DOUBLE, 2, 4, {0, 2, 4, 6}},
        {ID_2G, 2, 3, {0, 2, 4}},
        {ID_3G, 4, 2, {0, 4}},
        {ID_4G, 4, 1, {0}},
        {ID_7G, 8, 1, {0}},
    };
    nvmlGpuInstancePlacement_t found[8];
    nvmlGpuInstanceProfileInfo_t info;
    nvmlGpuInstance_t one;
    nvmlDevice_t device;
    unsigned count;

    FINE(nvmlInit_v2());
    device = card(0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) { /* also before the card is in MIG mode */
        count = 0;
        NVML(NVML_ERROR_INSUFFICIENT_SIZE,
             nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, cases[i].id, found, &count));
        HOLDS(count == cases[i].count);
        FINE(nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, cases[i].id, found, &count));
        for (unsigned k = 0; k < count; k++)
            HOLDS(found[k].start == cases[i].starts[k] && found[k].size == cases[i].size);
    }
    NVML(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetGpuInstanceProfileInfo(device, 5, &info));
    NVML(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetGpuInstanceProfileInfo(device, 16, &info));
    (void)begin();
    NVML(NVML_ERROR_INVALID_ARGUMENT, try_instance(ID_2G, 1, 2, &one));
    NVML(NVML_ERROR_INVALID_ARGUMENT, try_instance(ID_2G, 6, 2, &one));
    NVML(NVML_ERROR_INVALID_ARGUMENT, try_instance(ID_2G, 0, 4, &one));
    NVML(NVML_ERROR_INVALID_ARGUMENT, try_instance(99, 0, 1, &one));
}

static void room(void)
{
    nvmlGpuInstance_t one, all[8];
    nvmlGpuInstanceInfo_t info;
    unsigned count;

    (void)begin();
    HOLDS(capacity(ID_1G) == 7 && capacity(ID_3G) == 2 && capacity(ID_7G) == 1);
    one = instance(ID_3G, 4);
    HOLDS(capacity(ID_1G) == 4 && capacity(ID_3G) == 1 && capacity(ID_4G) == 1 &&
          capacity(ID_7G) == 0 && capacity(ID_1G_DOUBLE) == 2);
    NVML(NVML_ERROR_INSUFFICIENT_RESOURCES, try_instance(ID_7G, 0, 8, &one));
    NVML(NVML_ERROR_INSUFFICIENT_RESOURCES, try_instance(ID_1G, 6, 1, &one));
    NVML(NVML_ERROR_INSUFFICIENT_RESOURCES, try_instance(ID_1G_DOUBLE, 6, 2, &one));
    one = instance(ID_1G_ME, 0);
    NVML(NVML_ERROR_INSUFFICIENT_RESOURCES, try_instance(ID_1G_ME, 1, 1, &one));
    FINE(nvmlGpuInstanceGetInfo(instance(ID_2G, 2), &info));
    HOLDS(info.id == 4 && info.profileId == ID_2G && info.placement.start == 2 &&
          info.placement.size == 2 && info.device == card(0));
    FINE(nvmlDeviceGetGpuInstanceById(card(0), 2, &one)); /* the second half */
    FINE(nvmlGpuInstanceGetInfo(one, &info));
    HOLDS(info.profileId == ID_3G && info.placement.start == 4);
    NVML(NVML_ERROR_NOT_FOUND, nvmlDeviceGetGpuInstanceById(card(0), 1, &one));
    FINE(nvmlDeviceCreateGpuInstance(card(0), ID_1G, &one)); /* the one place that is left */
    FINE(nvmlGpuInstanceGetInfo(one, &info));
    HOLDS(info.placement.start == 1 && info.id == 8);
    NVML(NVML_ERROR_INSUFFICIENT_RESOURCES, nvmlDeviceCreateGpuInstance(card(0), ID_1G, &one));
    FINE(nvmlDeviceGetGpuInstances(card(0), ID_1G, all, &count));
    HOLDS(count == 1);
}

static void devices(void)
{
    nvmlDeviceAttributes_t attributes;
    char uuid[96], again[96], name[96], old[160];
    unsigned is_mig = 7, id = 7, count = 7;
    nvmlGpuInstance_t parent, found_parent;
    nvmlComputeInstance_t child;
    nvmlDevice_t device, found;
    nvmlMemory_t memory;

    FINE(nvmlInit_v2());
    NVML(NVML_ERROR_NOT_FOUND, nvmlDeviceGetMigDeviceHandleByIndex(card(0), 0, &device));
    FINE(nvmlDeviceGetMaxMigDeviceCount(card(0), &count));
    HOLDS(count == 0);
    (void)begin();
    NVML(NVML_ERROR_NOT_FOUND, nvmlDeviceGetMigDeviceHandleByIndex(card(0), 0, &device));
    FINE(nvmlDeviceGetMaxMigDeviceCount(card(0), &count));
    HOLDS(count == 7);
    parent = instance(ID_2G, 4);
    NVML(NVML_ERROR_NOT_FOUND, nvmlDeviceGetMigDeviceHandleByIndex(card(0), 4, &device));
    NVML(NVML_ERROR_NOT_SUPPORTED, nvmlGpuInstanceCreateComputeInstance(parent, 0, &child));
    child = compute(parent, 1);
    NVML(NVML_ERROR_INSUFFICIENT_RESOURCES,
         nvmlGpuInstanceCreateComputeInstance(parent, 1, &child));
    FINE(nvmlDeviceGetMigDeviceHandleByIndex(card(0), 4, &device));
    FINE(nvmlDeviceIsMigDeviceHandle(device, &is_mig));
    HOLDS(is_mig == 1);
    FINE(nvmlDeviceIsMigDeviceHandle(card(0), &is_mig));
    HOLDS(is_mig == 0);
    FINE(nvmlDeviceGetGpuInstanceId(device, &id));
    HOLDS(id == 5);
    FINE(nvmlDeviceGetComputeInstanceId(device, &id));
    HOLDS(id == 0);
    FINE(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, &found));
    HOLDS(found == card(0));
    FINE(nvmlDeviceGetAttributes_v2(device, &attributes));
    /* The machine's card has 16 GiB and 100 multiprocessors: shares like an A100's. */
    HOLDS(attributes.gpuInstanceSliceCount == 2 && attributes.memorySizeMB == 3942 &&
          attributes.multiprocessorCount == 25);
    FINE(nvmlDeviceGetMemoryInfo(device, &memory));
    HOLDS(memory.total == 3942 * MIB && memory.used == 0);
    FINE(nvmlDeviceGetName(device, name, sizeof(name)));
    HOLDS(strcmp(name, "NVIDIA A100-SXM4-40GB MIG 2g.4gb") == 0);
    FINE(nvmlDeviceGetUUID(device, uuid, sizeof(uuid)));
    HOLDS(strncmp(uuid, "MIG-", 4) == 0 && strlen(uuid) == 40);
    FINE(nvmlDeviceGetHandleByUUID(uuid, &found));
    HOLDS(found == device);
    FINE(nvmlDeviceGetUUID(card(0), again, sizeof(again)));
    (void)snprintf(old, sizeof(old), "MIG-%s/5/0", again);
    FINE(nvmlDeviceGetHandleByUUID(old, &found));
    HOLDS(found == device);
    FINE(nvmlDeviceGetIndex(device, &id));
    HOLDS(id == 4);
    NVML(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetMinorNumber(device, &id)); /* as many calls */

    NVML(NVML_ERROR_IN_USE, nvmlGpuInstanceDestroy(parent));
    FINE(nvmlGpuInstanceGetComputeInstanceById(parent, 0, &child));
    FINE(nvmlComputeInstanceDestroy(child));
    NVML(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetUUID(device, again, sizeof(again)));
    child = compute(parent, 1); /* at the same place another one */
    NVML(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetUUID(device, again, sizeof(again)));
    NVML(NVML_ERROR_NOT_FOUND, nvmlDeviceGetHandleByUUID(uuid, &found));
    FINE(nvmlDeviceGetMigDeviceHandleByIndex(card(0), 4, &device));
    FINE(nvmlDeviceGetUUID(device, again, sizeof(again)));
    HOLDS(strcmp(again, uuid) != 0);
    FINE(nvmlDeviceGetGpuInstanceById(card(0), 5, &found_parent));
    HOLDS(found_parent == parent);
}

static int in_child(void (*body)(void))
{
    int status = -1;
    pid_t pid;

    (void)fflush(stdout);
    pid = fork();
    if (pid == 0) {
        body();
        _exit(0);
    }
    (void)waitpid(pid, &status, 0);
    return status;
}

/* By CUDA_VISIBLE_DEVICES or NVIDIA_VISIBLE_DEVICES. */
static void sees_one(void)
{
    size_t total, rest;
    CUcontext context;
    CUdeviceptr memory;
    CUdevice device;
    char name[96];
    int count, sms;
    CUuuid uuid;

    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    HOLDS(count == 1);
    OK(cuDeviceGet(&device, 0));
    OK(cuDeviceGetName(name, sizeof(name), device));
    HOLDS(strcmp(name, "NVIDIA A100-SXM4-40GB MIG 2g.4gb") == 0);
    OK(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    HOLDS(sms == 25);
    OK(cuDeviceTotalMem_v2(&total, device));
    HOLDS(total == 3942 * MIB);
    OK(cuDeviceGetUuid_v2(&uuid, device));
    OK(cuCtxCreate_v2(&context, 0, device));
    OK(cuMemGetInfo_v2(&rest, &total));
    HOLDS(total == 3942 * MIB && rest == 3842 * MIB);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&memory, 3843 * MIB));
    OK(cuMemAlloc_v2(&memory, 3842 * MIB));
}

static void sees_none(void)
{
    GIVES(CUDA_ERROR_NO_DEVICE, cuInit(0));
}

static void sees_two(void)
{
    int count;

    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    HOLDS(count == 2);
}

static void sees_whole(void)
{
    char name[96];
    int count;

    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    OK(cuDeviceGetName(name, sizeof(name), 0));
    HOLDS(count == 1 && strcmp(name, "NVIDIA A100-SXM4-40GB") == 0);
}

static void programs(void)
{
    char first[96], second[96], both[200], whole[96];

    FINE(nvmlInit_v2());
    FINE(nvmlDeviceGetUUID(card(0), whole, sizeof(whole)));
    (void)begin();
    HOLDS(in_child(sees_whole) == 0); /* the other card; one that is not cut is none */
    (void)setenv("CUDA_VISIBLE_DEVICES", whole, 1);
    HOLDS(in_child(sees_none) == 0);
    (void)unsetenv("CUDA_VISIBLE_DEVICES");

    (void)mig_device(0, first);
    HOLDS(in_child(sees_one) == 0);
    (void)mig_device(4, second);
    HOLDS(in_child(sees_two) == 0);
    (void)setenv("CUDA_VISIBLE_DEVICES", second, 1);
    HOLDS(in_child(sees_one) == 0);
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    (void)setenv("NVIDIA_VISIBLE_DEVICES", first, 1);
    HOLDS(in_child(sees_one) == 0);
    (void)setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    HOLDS(in_child(sees_one) == 0);
    (void)setenv("CUDA_VISIBLE_DEVICES", second, 1);
    HOLDS(in_child(sees_none) == 0);
    (void)unsetenv("CUDA_VISIBLE_DEVICES");
    (void)snprintf(both, sizeof(both), "%s,%s", first, second);
    (void)setenv("NVIDIA_VISIBLE_DEVICES", both, 1);
    HOLDS(in_child(sees_two) == 0);
}

/* Two instances: memory and time of one are not the other's; NVML says who is where. */
static void apart(void)
{
    nvmlProcessInfo_v2_t infos[4];
    nvmlComputeInstance_t child;
    struct testing one, two;
    char first[96], second[96];
    nvmlDevice_t left, right;
    nvmlUtilization_t rates;
    nvmlGpuInstance_t parent;
    nvmlMemory_t memory;
    CUdeviceptr pointer;
    unsigned count;

    (void)begin();
    left = mig_device(0, first);
    right = mig_device(2, second);
    OK(cuInit(0));
    testing_begin_context(&one, 0);
    testing_begin_context(&two, 1);
    OK(cuMemAlloc_v2(&pointer, 1 * GIB));
    OK(cuStreamSynchronize(two.streams[0]));
    FINE(nvmlDeviceGetMemoryInfo(left, &memory));
    HOLDS(memory.used < 200 * MIB);
    FINE(nvmlDeviceGetMemoryInfo(right, &memory));
    HOLDS(memory.used > 1 * GIB && memory.used < 1 * GIB + 200 * MIB);
    count = 4;
    FINE(nvmlDeviceGetComputeRunningProcesses_v3(right, &count, infos));
    HOLDS(count == 1 && infos[0].pid == (unsigned)getpid() && infos[0].gpuInstanceId == 4 &&
          infos[0].computeInstanceId == 0 && infos[0].usedGpuMemory == memory.used);
    count = 4;
    FINE(nvmlDeviceGetComputeRunningProcesses_v3(card(0), &count, infos));
    HOLDS(count == 2 && infos[0].gpuInstanceId == 3 && infos[1].gpuInstanceId == 4);
    NVML(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceGetUtilizationRates(card(0), &rates));

    /* Side by side, each in its own time: 25 multiprocessors are full of 25 blocks. */
    OK(testing_launch(two.kernel, two.streams[0], 25, 10 * NS_PER_MS, 0));
    OK(cuCtxSetCurrent(one.context));
    OK(testing_launch(one.kernel, one.streams[0], 25, 10 * NS_PER_MS, 0));
    testing_step(10 * NS_PER_MS);
    OK(cuStreamQuery(one.streams[0]));
    OK(cuCtxSetCurrent(two.context));
    OK(cuStreamQuery(two.streams[0]));

    FINE(nvmlDeviceGetGpuInstanceById(card(0), 3, &parent));
    FINE(nvmlGpuInstanceGetComputeInstanceById(parent, 0, &child));
    NVML(NVML_ERROR_IN_USE, nvmlComputeInstanceDestroy(child));
    OK(cuCtxDestroy_v2(one.context));
    FINE(nvmlComputeInstanceDestroy(child));
    FINE(nvmlGpuInstanceDestroy(parent));
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_v2(&one.context, 0, 0));
    OK(cuMemAlloc_v2(&pointer, 1 * GIB)); /* the other one goes on */
    (void)mig_device(0, first);
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_v2(&one.context, 0, 0));
}

static void test_the_mode_changes_where_nobody_uses_the_card(void **unused)
{
    (void)unused;
    assert_int_equal(testing_run("", modes), 0);
}

static void test_others_than_root_may_not_change_it(void **unused)
{
    (void)unused;
    if (geteuid() != 0)
        skip();
    assert_int_equal(testing_run("", nobody_may), 0);
}

static void test_placements_are_nvidias(void **unused)
{
    (void)unused;
    assert_int_equal(testing_run("", placements), 0);
}

static void test_instances_do_not_overlap(void **unused)
{
    (void)unused;
    assert_int_equal(testing_run("", room), 0);
}

static void test_an_instance_is_a_device_with_a_uuid_of_its_own(void **unused)
{
    (void)unused;
    assert_int_equal(testing_run("", devices), 0);
}

static void test_programs_see_the_instances_that_they_are_given(void **unused)
{
    (void)unused;
    assert_int_equal(testing_run("", programs), 0);
}

static void test_instances_share_nothing(void **unused)
{
    (void)unused;
    assert_int_equal(testing_run("", apart), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_profiles_are_nvidias),
        cmocka_unit_test(test_the_mode_changes_where_nobody_uses_the_card),
        cmocka_unit_test(test_others_than_root_may_not_change_it),
        cmocka_unit_test(test_placements_are_nvidias),
        cmocka_unit_test(test_instances_do_not_overlap),
        cmocka_unit_test(test_an_instance_is_a_device_with_a_uuid_of_its_own),
        cmocka_unit_test(test_programs_see_the_instances_that_they_are_given),
        cmocka_unit_test(test_instances_share_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
