/* SPDX-License-Identifier: Apache-2.0 */

/*
 * NVML: MIG. A handle of an instance is the address of a row here, which says by the machine-wide
 * number which one it is: after that one's end it names no other.
 */

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"
#include "simdriver/mig.h"
#include "simdriver/nvml_guest.h"

enum {
    HANDLES_MAX = 1024, /* ever given out to a process */
};

enum handle_kind {
    HANDLE_GPU_INSTANCE = 1,
    HANDLE_COMPUTE_INSTANCE,
    HANDLE_DEVICE,
};

struct instance_handle {
    enum handle_kind kind;
    unsigned device;
    uint64_t number; /* of the GPU instance, or of the compute instance */
};

static struct instance_handle handles[HANDLES_MAX];
static unsigned handle_count; /* under the machine's lock, as far as one process is concerned */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *handle_of(enum handle_kind kind, unsigned device, uint64_t number)
{
    struct instance_handle *found = NULL;

    (void)pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < handle_count && !found; i++) {
        if (handles[i].kind == kind && handles[i].device == device && handles[i].number == number)
            found = &handles[i];
    }
    if (!found && handle_count < HANDLES_MAX) {
        found = &handles[handle_count];
        *found = (struct instance_handle){kind, device, number};
        __atomic_store_n(&handle_count, handle_count + 1, __ATOMIC_RELEASE);
    }
    (void)pthread_mutex_unlock(&lock);
    return found;
}

static const struct instance_handle *row_of(const void *handle, enum handle_kind kind)
{
    const struct instance_handle *row = handle;
    unsigned count = __atomic_load_n(&handle_count, __ATOMIC_ACQUIRE);

    if (row < handles || row >= handles + count || row->kind != kind)
        return NULL;
    return row;
}

static bool is_there(const struct sim_state *s, const struct instance_handle *row)
{
    const struct sim_instance *instance =
        &s->instances[sim_gpu_of(row->device)][(row->device - SIM_MAX_GPUS) % SIM_MIG_STARTS];

    if (row->kind == HANDLE_GPU_INSTANCE)
        return instance->in_use && instance->number == row->number;
    return instance->has_compute && instance->compute_number == row->number;
}

/* With the machine locked, by success alone: the device number of what a handle names. */
static nvmlReturn_t enter_handle(const void *handle, enum handle_kind kind, unsigned *ret_device)
{
    nvmlReturn_t r = nvml_check();
    const struct instance_handle *row;
    unsigned gpu;

    if (r != NVML_SUCCESS)
        return r;
    row = row_of(handle, kind);
    if (!row)
        return NVML_ERROR_INVALID_ARGUMENT;
    r = nvml_check_device(nvml_handle(sim_gpu_of(row->device)), &gpu);
    if (r != NVML_SUCCESS)
        return r;
    (void)nvml_enter();
    if (!is_there(nvml_machine()->state, row)) {
        sim_unlock(nvml_machine());
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    *ret_device = row->device;
    return NVML_SUCCESS;
}

/* As above, of a card in MIG mode, for those who may change it. */
static nvmlReturn_t enter_card(nvmlDevice_t device, bool is_privileged, unsigned *ret_gpu)
{
    nvmlReturn_t r = nvml_check_device(device, ret_gpu);

    if (r != NVML_SUCCESS)
        return r;
    if (is_privileged && geteuid() != 0)
        return NVML_ERROR_NO_PERMISSION;
    if (!sim_mig_is_known(&nvml_machine()->state->header.gpus[*ret_gpu]))
        return NVML_ERROR_NOT_SUPPORTED;
    (void)nvml_enter();
    return NVML_SUCCESS;
}

static nvmlReturn_t leave(nvmlReturn_t r)
{
    sim_unlock(nvml_machine());
    return r;
}

/* enter_handle() for who is told something, and names where. */
static nvmlReturn_t enter_to(const void *handle, enum handle_kind kind, const void *to,
                             unsigned *ret_device)
{
    nvmlReturn_t r = enter_handle(handle, kind, ret_device);

    return r == NVML_SUCCESS && !to ? leave(NVML_ERROR_INVALID_ARGUMENT) : r;
}

static struct sim_state *state(void)
{
    return nvml_machine()->state;
}

static unsigned start_of(unsigned device)
{
    return (device - SIM_MAX_GPUS) % SIM_MIG_STARTS;
}

nvmlDevice_t nvml_mig_handle(unsigned device)
{
    return handle_of(HANDLE_DEVICE, device, sim_instance(state(), device)->compute_number);
}

nvmlReturn_t nvml_check_any(nvmlDevice_t device, unsigned *ret_device)
{
    nvmlReturn_t r;

    if (!row_of(device, HANDLE_DEVICE))
        return nvml_check_device(device, ret_device);
    r = enter_handle(device, HANDLE_DEVICE, ret_device);
    return r == NVML_SUCCESS ? leave(r) : r;
}

/*
 * For tests of who changes instances: HAMI_SIM_DIES=N kills the process at its N-th moment around
 * such a change, counted from 1: before the first, after it, before the second... By
 * HAMI_SIM_MIG_MS=MS each moment lasts so long.
 */
static void moment(void)
{
    static unsigned count;
    const char *text = getenv("HAMI_SIM_DIES"), *ms = getenv("HAMI_SIM_MIG_MS");

    if (ms)
        (void)usleep((unsigned)strtoul(ms, NULL, 10) * 1000);
    if (text && strtoul(text, NULL, 10) == __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED))
        (void)raise(SIGKILL);
}

/* Under the machine's lock: HAMI_SIM_MIG_FAILS=N lets the N-th change fail. */
static bool fails(void)
{
    static unsigned count;
    const char *text = getenv("HAMI_SIM_MIG_FAILS");

    return text && strtoul(text, NULL, 10) == ++count;
}

/* HAMI_SIM_MIG_LIES=N: the N-th change that is made is answered as if it had failed. */
static bool lies(void)
{
    static unsigned count;
    const char *text = getenv("HAMI_SIM_MIG_LIES");

    return text && strtoul(text, NULL, 10) == ++count;
}

static nvmlReturn_t leave_changed(nvmlReturn_t r)
{
    if (r == NVML_SUCCESS && lies())
        r = NVML_ERROR_UNKNOWN;
    r = leave(r);
    moment();
    return r;
}

/* The mode */

PUBLIC nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current,
                                         unsigned int *pending)
{
    unsigned gpu;
    nvmlReturn_t r = nvml_check_device(device, &gpu);

    if (r != NVML_SUCCESS)
        return r;
    if (!current || !pending)
        return NVML_ERROR_INVALID_ARGUMENT;
    r = enter_card(device, false, &gpu);
    if (r != NVML_SUCCESS)
        return r;
    *current = state()->health[gpu].mig;
    *pending = state()->health[gpu].mig_pending;
    return leave(NVML_SUCCESS);
}

PUBLIC nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode,
                                         nvmlReturn_t *activation)
{
    unsigned gpu;
    nvmlReturn_t r;

    if (!activation)
        return NVML_ERROR_INVALID_ARGUMENT;
    r = enter_card(device, true, &gpu);
    if (r != NVML_SUCCESS)
        return r;
    return leave(sim_mig_set_mode(state(), gpu, mode, activation));
}

/* Profiles */

PUBLIC nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile,
                                                        nvmlGpuInstanceProfileInfo_t *info)
{
    const struct sim_gpu_spec *card;
    unsigned gpu;
    int row = sim_mig_by_enumerator(profile);
    nvmlReturn_t r = enter_card(device, false, &gpu);

    if (r != NVML_SUCCESS)
        return r;
    if (!info || profile >= NVML_GPU_INSTANCE_PROFILE_COUNT)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    if (row < 0)
        return leave(NVML_ERROR_NOT_SUPPORTED);
    card = &state()->header.gpus[gpu];
    *info = (nvmlGpuInstanceProfileInfo_t){
        .id = sim_mig_profiles[row].id,
        .sliceCount = sim_mig_profiles[row].slices,
        .instanceCount = sim_mig_profiles[row].max,
        .multiprocessorCount = sim_mig_multiprocessors(card, (unsigned)row),
        .copyEngineCount = sim_mig_profiles[row].slices,
        .memorySizeMB = sim_mig_memory_mib(card, (unsigned)row),
    };
    return leave(NVML_SUCCESS);
}

PUBLIC nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    nvmlDevice_t device, unsigned int id, nvmlGpuInstancePlacement_t *placements,
    unsigned int *count)
{
    const struct sim_mig_profile *profile;
    unsigned gpu, there, room;
    nvmlReturn_t r = enter_card(device, true, &gpu);

    if (r != NVML_SUCCESS)
        return r;
    if (!count || sim_mig_by_id(id) < 0)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    profile = &sim_mig_profiles[sim_mig_by_id(id)];
    there = profile->last / profile->step + 1;
    room = placements ? *count : there;
    *count = there;
    if (room < there)
        return leave(NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned i = 0; placements && i < there; i++)
        placements[i] = (nvmlGpuInstancePlacement_t){i * profile->step, profile->size};
    return leave(NVML_SUCCESS);
}

PUBLIC nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id,
                                                              unsigned int *count)
{
    int profile = sim_mig_by_id(id);
    unsigned gpu;
    nvmlReturn_t r = enter_card(device, true, &gpu);

    if (r != NVML_SUCCESS)
        return r;
    if (!count || profile < 0)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    if (!state()->health[gpu].mig)
        return leave(NVML_ERROR_NOT_SUPPORTED);
    *count = 0;
    for (unsigned start = 0; start < SIM_MIG_STARTS; start++)
        *count += sim_mig_is_free(state(), gpu, (unsigned)profile, start);
    *count = MIN(*count, sim_mig_profiles[profile].max);
    return leave(NVML_SUCCESS);
}

/* GPU instances */

static nvmlReturn_t create(nvmlDevice_t device, unsigned int id,
                           const nvmlGpuInstancePlacement_t *placement, nvmlGpuInstance_t *instance)
{
    int profile = sim_mig_by_id(id);
    unsigned gpu, start;
    nvmlReturn_t r;

    moment();
    r = enter_card(device, true, &gpu);
    if (r != NVML_SUCCESS)
        return r;
    if (fails())
        return leave_changed(NVML_ERROR_UNKNOWN);
    if (!instance || profile < 0 ||
        (placement && placement->size != sim_mig_profiles[profile].size))
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    /* Where the caller leaves it to the driver: from the end, as an H100's was seen to. */
    for (start = SIM_MIG_STARTS - 1; !placement && start > 0; start--) {
        if (sim_mig_is_free(state(), gpu, (unsigned)profile, start))
            break;
    }
    start = placement ? placement->start : start;
    r = sim_mig_create(state(), gpu, (unsigned)profile, start);
    if (r == NVML_SUCCESS)
        *instance = handle_of(HANDLE_GPU_INSTANCE, sim_instance_device(gpu, start),
                              state()->instances[gpu][start].number);
    return leave_changed(r);
}

PUBLIC nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int id,
                                                nvmlGpuInstance_t *instance)
{
    return create(device, id, NULL, instance);
}

PUBLIC nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(
    nvmlDevice_t device, unsigned int id, const nvmlGpuInstancePlacement_t *placement,
    nvmlGpuInstance_t *instance)
{
    return placement ? create(device, id, placement, instance) : NVML_ERROR_INVALID_ARGUMENT;
}

PUBLIC nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
    unsigned device;
    nvmlReturn_t r;

    moment();
    r = enter_handle(instance, HANDLE_GPU_INSTANCE, &device);
    if (r != NVML_SUCCESS)
        return r;
    if (fails())
        return leave_changed(NVML_ERROR_UNKNOWN);
    return leave_changed(geteuid() ? NVML_ERROR_NO_PERMISSION : sim_mig_destroy(state(), device));
}

PUBLIC nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int id,
                                              nvmlGpuInstance_t *instances, unsigned int *count)
{
    int profile = sim_mig_by_id(id);
    unsigned gpu;
    nvmlReturn_t r = enter_card(device, true, &gpu);

    if (r != NVML_SUCCESS)
        return r;
    if (!instances || !count || profile < 0)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    if (!state()->health[gpu].mig)
        return leave(NVML_ERROR_NOT_SUPPORTED);
    *count = 0;
    for (unsigned start = 0; start < SIM_MIG_STARTS; start++) {
        const struct sim_instance *it = &state()->instances[gpu][start];

        if (it->in_use && it->profile == (unsigned)profile)
            instances[(*count)++] =
                handle_of(HANDLE_GPU_INSTANCE, sim_instance_device(gpu, start), it->number);
    }
    return leave(NVML_SUCCESS);
}

PUBLIC nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
                                                 nvmlGpuInstance_t *instance)
{
    unsigned gpu;
    nvmlReturn_t r = enter_card(device, true, &gpu);

    if (r != NVML_SUCCESS)
        return r;
    if (!instance)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    for (unsigned start = 0; start < SIM_MIG_STARTS; start++) {
        const struct sim_instance *it = &state()->instances[gpu][start];

        if (!it->in_use || sim_mig_id(it->profile, start) != id)
            continue;
        *instance = handle_of(HANDLE_GPU_INSTANCE, sim_instance_device(gpu, start), it->number);
        return leave(NVML_SUCCESS);
    }
    return leave(NVML_ERROR_NOT_FOUND);
}

PUBLIC nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
    const struct sim_mig_profile *profile;
    unsigned device;
    nvmlReturn_t r = enter_to(instance, HANDLE_GPU_INSTANCE, info, &device);

    if (r != NVML_SUCCESS)
        return r;
    profile = &sim_mig_profiles[sim_instance(state(), device)->profile];
    *info = (nvmlGpuInstanceInfo_t){
        .device = nvml_handle(sim_gpu_of(device)),
        .id = sim_mig_id(sim_instance(state(), device)->profile, start_of(device)),
        .profileId = profile->id,
        .placement = {start_of(device), profile->size},
    };
    return leave(NVML_SUCCESS);
}

/* Compute instances: as large as their GPU instance; the smaller ones are not simulated. */

/* NVML's number for the compute profile of so many slices, which is its id as well. */
static unsigned compute_profile(unsigned slices)
{
    return slices == 7 ? 4 : slices - 1;
}

PUBLIC nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(
    nvmlGpuInstance_t instance, unsigned int profile, unsigned int engines,
    nvmlComputeInstanceProfileInfo_t *info)
{
    unsigned device, slices;
    nvmlReturn_t r = enter_handle(instance, HANDLE_GPU_INSTANCE, &device);

    if (r != NVML_SUCCESS)
        return r;
    if (!info || profile >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT ||
        engines != NVML_COMPUTE_INSTANCE_ENGINES_SHARED)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    slices = sim_mig_profiles[sim_instance(state(), device)->profile].slices;
    if (profile != compute_profile(slices))
        return leave(NVML_ERROR_NOT_SUPPORTED);
    *info = (nvmlComputeInstanceProfileInfo_t){
        .id = profile,
        .sliceCount = slices,
        .instanceCount = 1,
        .multiprocessorCount = sim_mig_multiprocessors(&state()->header.gpus[sim_gpu_of(device)],
                                                       sim_instance(state(), device)->profile),
        .sharedCopyEngineCount = slices,
    };
    return leave(NVML_SUCCESS);
}

PUBLIC nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance,
                                                         unsigned int id,
                                                         nvmlComputeInstance_t *compute)
{
    const struct sim_instance *it;
    unsigned device;
    nvmlReturn_t r;

    moment();
    r = enter_handle(instance, HANDLE_GPU_INSTANCE, &device);
    if (r != NVML_SUCCESS)
        return r;
    it = sim_instance(state(), device);
    if (fails())
        return leave_changed(NVML_ERROR_UNKNOWN);
    if (geteuid() != 0)
        return leave(NVML_ERROR_NO_PERMISSION);
    if (!compute || id >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    if (id != compute_profile(sim_mig_profiles[it->profile].slices))
        return leave(NVML_ERROR_NOT_SUPPORTED);
    r = sim_mig_create_compute(state(), sim_gpu_of(device), start_of(device));
    if (r == NVML_SUCCESS)
        *compute = handle_of(HANDLE_COMPUTE_INSTANCE, device, it->compute_number);
    return leave_changed(r);
}

PUBLIC nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t compute)
{
    unsigned device;
    nvmlReturn_t r;

    moment();
    r = enter_handle(compute, HANDLE_COMPUTE_INSTANCE, &device);
    if (r != NVML_SUCCESS)
        return r;
    if (fails())
        return leave_changed(NVML_ERROR_UNKNOWN);
    return leave_changed(geteuid() ? NVML_ERROR_NO_PERMISSION
                                   : sim_mig_destroy_compute(state(), device));
}

PUBLIC nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned int id,
                                                       nvmlComputeInstance_t *computes,
                                                       unsigned int *count)
{
    const struct sim_instance *it;
    unsigned device;
    nvmlReturn_t r = enter_handle(instance, HANDLE_GPU_INSTANCE, &device);

    if (r != NVML_SUCCESS)
        return r;
    if (!computes || !count || id >= NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    it = sim_instance(state(), device);
    *count = it->has_compute && id == compute_profile(sim_mig_profiles[it->profile].slices);
    if (*count)
        computes[0] = handle_of(HANDLE_COMPUTE_INSTANCE, device, it->compute_number);
    return leave(NVML_SUCCESS);
}

PUBLIC nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance,
                                                          unsigned int id,
                                                          nvmlComputeInstance_t *compute)
{
    const struct sim_instance *it;
    unsigned device;
    nvmlReturn_t r = enter_handle(instance, HANDLE_GPU_INSTANCE, &device);

    if (r != NVML_SUCCESS)
        return r;
    it = sim_instance(state(), device);
    if (!compute)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    if (id != 0 || !it->has_compute)
        return leave(NVML_ERROR_NOT_FOUND);
    *compute = handle_of(HANDLE_COMPUTE_INSTANCE, device, it->compute_number);
    return leave(NVML_SUCCESS);
}

PUBLIC nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute,
                                                  nvmlComputeInstanceInfo_t *info)
{
    const struct sim_instance *it;
    unsigned device, slices;
    nvmlReturn_t r = enter_to(compute, HANDLE_COMPUTE_INSTANCE, info, &device);

    if (r != NVML_SUCCESS)
        return r;
    it = sim_instance(state(), device);
    slices = sim_mig_profiles[it->profile].slices;
    *info = (nvmlComputeInstanceInfo_t){
        .device = nvml_handle(sim_gpu_of(device)),
        .gpuInstance = handle_of(HANDLE_GPU_INSTANCE, device, it->number),
        .profileId = compute_profile(slices),
        .placement = {0, slices},
    };
    return leave(NVML_SUCCESS);
}

/* MIG devices */

PUBLIC nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
    unsigned any;
    nvmlReturn_t r = nvml_check_any(device, &any);

    if (r != NVML_SUCCESS)
        return r;
    if (!is_mig)
        return NVML_ERROR_INVALID_ARGUMENT;
    *is_mig = any >= SIM_MAX_GPUS;
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    unsigned any;
    nvmlReturn_t r = enter_to(device, HANDLE_DEVICE, id, &any);

    if (r != NVML_SUCCESS)
        return r;
    *id = sim_mig_id(sim_instance(state(), any)->profile, start_of(any));
    return leave(NVML_SUCCESS);
}

PUBLIC nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
    unsigned any;
    nvmlReturn_t r = enter_to(device, HANDLE_DEVICE, id, &any);

    if (r != NVML_SUCCESS)
        return r;
    *id = 0;
    return leave(NVML_SUCCESS);
}

/* 0 while MIG is off, as NVML documents it. */
PUBLIC nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    unsigned gpu;
    nvmlReturn_t r = nvml_check_device(device, &gpu);

    if (r != NVML_SUCCESS)
        return r;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    (void)nvml_enter();
    *count = state()->health[gpu].mig ? SIM_MIG_STARTS : 0;
    return leave(NVML_SUCCESS);
}

/* By where they begin, so that there are holes. */
PUBLIC nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                        nvmlDevice_t *mig)
{
    unsigned gpu;
    nvmlReturn_t r = enter_card(device, false, &gpu);

    if (r != NVML_SUCCESS)
        return r;
    if (!mig || index >= SIM_MIG_STARTS)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    if (!state()->health[gpu].mig || !state()->instances[gpu][index].has_compute)
        return leave(NVML_ERROR_NOT_FOUND);
    *mig = nvml_mig_handle(sim_instance_device(gpu, index));
    return leave(NVML_SUCCESS);
}

PUBLIC nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig,
                                                                 nvmlDevice_t *device)
{
    unsigned any;
    nvmlReturn_t r = enter_to(mig, HANDLE_DEVICE, device, &any);

    if (r != NVML_SUCCESS)
        return r;
    *device = nvml_handle(sim_gpu_of(any));
    return leave(NVML_SUCCESS);
}

/* HAMI_SIM_MIG_BLIND=FILE: while the file is there, instances say nothing of themselves. */
static bool is_blind(void)
{
    const char *path = getenv("HAMI_SIM_MIG_BLIND");

    return path && access(path, F_OK) == 0;
}

PUBLIC nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device,
                                               nvmlDeviceAttributes_t *attributes)
{
    const struct sim_mig_profile *profile;
    const struct sim_gpu_spec *spec;
    unsigned any;
    nvmlReturn_t r = enter_to(device, HANDLE_DEVICE, attributes, &any);

    if (r != NVML_SUCCESS)
        return r;
    if (is_blind())
        return leave(NVML_ERROR_UNKNOWN);
    profile = &sim_mig_profiles[sim_instance(state(), any)->profile];
    spec = sim_spec_of(state(), any);
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = spec->multiprocessors,
        .sharedCopyEngineCount = profile->slices,
        .gpuInstanceSliceCount = profile->slices,
        .computeInstanceSliceCount = profile->slices,
        .memorySizeMB = spec->memory_bytes / MIB,
    };
    return leave(NVML_SUCCESS);
}
