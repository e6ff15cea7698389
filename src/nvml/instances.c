/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml/instances.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "nvml/internal.h"

enum {
    MIG_DEVICES_MAX = 64, /* that a card may say it can have */
};

/* What NVML's results mean to those who change instances. */
static int mig_fail(const struct nvml *nvml, const char *what, nvmlReturn_t result,
                    struct error *err)
{
    static const struct {
        nvmlReturn_t result;
        int number;
    } numbers[] = {
        {NVML_ERROR_NOT_SUPPORTED, -ENOSYS},
        {NVML_ERROR_NO_PERMISSION, -EPERM},
        {NVML_ERROR_NOT_FOUND, -ENOENT},
        {NVML_ERROR_IN_USE, -EBUSY},
        {NVML_ERROR_INSUFFICIENT_RESOURCES, -ENOSPC},
    };
    int r = nvml_fail(nvml, what, result, err);

    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        if (numbers[i].result == result)
            return numbers[i].number;
    }
    return r;
}

/* Whether this NVML has all of MIG: one that lacks a part is older than the cards that have it. */
static bool has_mig(const struct nvml *nvml)
{
    const struct nvml_mig *mig = &nvml->mig;

    return nvml->mig_mode && mig->set_mode && mig->profile_info && mig->placements && mig->create &&
           mig->destroy && mig->list && mig->by_id && mig->info && mig->compute_profile_info &&
           mig->create_compute && mig->destroy_compute && mig->list_computes;
}

static bool has_mig_devices(const struct nvml *nvml)
{
    const struct nvml_mig *mig = &nvml->mig;

    return nvml->mig_mode && mig->max_devices && mig->device_by_index && mig->gpu_instance_id &&
           mig->compute_instance_id && mig->attributes;
}

static int find_card(struct nvml *nvml, unsigned index, nvmlDevice_t *ret_card, struct error *err)
{
    nvmlReturn_t result;

    if (!has_mig(nvml))
        return error_set(err, -ENOSYS, "this NVML knows nothing of MIG");
    result = nvml->device_by_index(index, ret_card);
    return result == NVML_SUCCESS ? 0 : mig_fail(nvml, "cannot find the card", result, err);
}

/*
 * A profile's name has the card's memory in it, in whole GiB, by the eighths that the instance
 * nearly fills: an H100's 9984 MiB are "10gb", an H200's 16384 "18gb".
 */
static void name_profile(unsigned slices, uint64_t memory_bytes, uint64_t card_bytes,
                         char ret_name[NVML_PROFILE_NAME_SIZE])
{
    uint64_t gib = (card_bytes + GIB - 1) / GIB;
    uint64_t eighths =
        card_bytes / 8
            ? (uint64_t)(((unsigned __int128)memory_bytes * 8 + card_bytes - 1) / card_bytes)
            : 0;

    (void)snprintf(ret_name, NVML_PROFILE_NAME_SIZE, "%ug.%llugb", slices % 100,
                   (unsigned long long)((gib * eighths + 4) / 8 % 100000));
}

/* Devices */

static nvmlReturn_t read_mig_device(struct nvml *nvml, nvmlDevice_t handle, uint64_t card_bytes,
                                    struct nvml_mig_device *device)
{
    nvmlDeviceAttributes_t attributes;
    nvmlMemory_t memory;
    nvmlReturn_t result;
    const char *me;

    *device = (struct nvml_mig_device){.uuid = ""};
    result = nvml->device_uuid(handle, device->uuid, sizeof(device->uuid));
    if (result == NVML_SUCCESS)
        result = nvml->device_name(handle, device->model, sizeof(device->model));
    if (result == NVML_SUCCESS)
        result = nvml->mig.gpu_instance_id(handle, &device->gpu_instance);
    if (result == NVML_SUCCESS)
        result = nvml->mig.compute_instance_id(handle, &device->compute_instance);
    if (result == NVML_SUCCESS)
        result = nvml->mig.attributes(handle, &attributes);
    if (result == NVML_SUCCESS)
        result = nvml->memory_info(handle, &memory);
    if (result != NVML_SUCCESS)
        return result;
    device->memory_bytes = memory.total;
    device->multiprocessors = attributes.multiprocessorCount;
    name_profile(attributes.gpuInstanceSliceCount, attributes.memorySizeMB * MIB, card_bytes,
                 device->profile);
    me = strstr(device->model, "+me");
    if (me)
        (void)snprintf(device->profile + strlen(device->profile),
                       sizeof(device->profile) - strlen(device->profile), "+me");
    return NVML_SUCCESS;
}

/* A hole in the list, or one that was ended meanwhile. */
static bool is_no_device(nvmlReturn_t result)
{
    return result == NVML_ERROR_NOT_FOUND || result == NVML_ERROR_INVALID_ARGUMENT;
}

int nvml_list_mig_devices(struct nvml *nvml, unsigned index, struct nvml_mig_device *ret_devices,
                          size_t max, struct error *err)
{
    unsigned current = 0, pending = 0, there = 0;
    nvmlMemory_t memory;
    nvmlDevice_t card, handle;
    nvmlReturn_t result;
    size_t count = 0;

    if (!has_mig_devices(nvml))
        return 0;
    result = nvml->device_by_index(index, &card);
    if (result == NVML_SUCCESS)
        result = nvml->mig_mode(card, &current, &pending);
    if (result == NVML_ERROR_NOT_SUPPORTED ||
        (result == NVML_SUCCESS && current != NVML_MIG_ENABLED))
        return 0;
    if (result == NVML_SUCCESS)
        result = nvml->memory_info(card, &memory);
    if (result == NVML_SUCCESS)
        result = nvml->mig.max_devices(card, &there);
    for (unsigned i = 0; result == NVML_SUCCESS && i < MIN(there, (unsigned)MIG_DEVICES_MAX); i++) {
        result = nvml->mig.device_by_index(card, i, &handle);
        if (result == NVML_SUCCESS && count < max)
            result = read_mig_device(nvml, handle, memory.total, &ret_devices[count]);
        if (result == NVML_SUCCESS && count < max)
            count++;
        else if (is_no_device(result))
            result = NVML_SUCCESS;
    }
    return result == NVML_SUCCESS ? (int)count
                                  : nvml_fail(nvml, "cannot list MIG devices", result, err);
}

/* The mode */

int nvml_read_mig_mode(struct nvml *nvml, unsigned index, bool *ret_on, bool *ret_pending,
                       struct error *err)
{
    unsigned current = 0, pending = 0;
    nvmlDevice_t card;
    nvmlReturn_t result;
    int r = find_card(nvml, index, &card, err);

    if (r < 0)
        return r;
    result = nvml->mig_mode(card, &current, &pending);
    if (result != NVML_SUCCESS)
        return mig_fail(nvml, "cannot read the MIG mode", result, err);
    *ret_on = current == NVML_MIG_ENABLED;
    *ret_pending = pending == NVML_MIG_ENABLED;
    return 0;
}

int nvml_set_mig_mode(struct nvml *nvml, unsigned index, bool on, struct error *err)
{
    nvmlReturn_t result, activation = NVML_SUCCESS;
    nvmlDevice_t card;
    int r = find_card(nvml, index, &card, err);

    if (r < 0)
        return r;
    result = nvml->mig.set_mode(card, on ? NVML_MIG_ENABLED : NVML_MIG_DISABLED, &activation);
    if (result != NVML_SUCCESS)
        return mig_fail(nvml, "cannot set the MIG mode", result, err);
    if (activation != NVML_SUCCESS)
        return error_set(err, -EBUSY, "its MIG mode changes when it is reset");
    return 0;
}

/* Profiles */

static nvmlReturn_t read_placements(struct nvml *nvml, nvmlDevice_t card,
                                    struct nvml_profile *profile)
{
    nvmlGpuInstancePlacement_t placements[NVML_PLACEMENTS_MAX];
    unsigned count = ARRAY_SIZE(placements);
    nvmlReturn_t result = nvml->mig.placements(card, profile->id, placements, &count);

    if (result != NVML_SUCCESS)
        return result;
    for (unsigned i = 0; i < MIN(count, (unsigned)NVML_PLACEMENTS_MAX); i++) {
        profile->starts[profile->start_count++] = placements[i].start;
        profile->size = placements[i].size;
    }
    return result;
}

static void take_profile(const nvmlGpuInstanceProfileInfo_t *info, unsigned enumerator,
                         uint64_t card_bytes, struct nvml_profile *profile)
{
    size_t len;

    *profile = (struct nvml_profile){
        .id = info->id,
        .slices = info->sliceCount,
        .multiprocessors = info->multiprocessorCount,
        .memory_mib = info->memorySizeMB,
    };
    name_profile(info->sliceCount, info->memorySizeMB * MIB, card_bytes, profile->name);
    len = strlen(profile->name);
    if (enumerator == NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1)
        (void)snprintf(profile->name + len, sizeof(profile->name) - len, "+me");
}

int nvml_list_profiles(struct nvml *nvml, unsigned index, struct nvml_profile *ret_profiles,
                       size_t max, struct error *err)
{
    nvmlGpuInstanceProfileInfo_t info;
    nvmlReturn_t result;
    nvmlMemory_t memory;
    nvmlDevice_t card;
    size_t count = 0;
    int r = find_card(nvml, index, &card, err);

    if (r < 0)
        return r;
    result = nvml->memory_info(card, &memory);
    for (unsigned i = 0; result == NVML_SUCCESS && i < NVML_GPU_INSTANCE_PROFILE_COUNT; i++) {
        if (nvml->mig.profile_info(card, i, &info) != NVML_SUCCESS || count == max)
            continue;
        take_profile(&info, i, memory.total, &ret_profiles[count]);
        result = read_placements(nvml, card, &ret_profiles[count]);
        count++;
    }
    return result == NVML_SUCCESS ? (int)count
                                  : mig_fail(nvml, "cannot list MIG profiles", result, err);
}

/* GPU instances */

static nvmlReturn_t list_of_profile(struct nvml *nvml, nvmlDevice_t card, unsigned id,
                                    struct nvml_gpu_instance *instances, size_t max, size_t *count)
{
    nvmlGpuInstance_t handles[NVML_INSTANCES_MAX];
    unsigned found = ARRAY_SIZE(handles);
    nvmlReturn_t result = nvml->mig.list(card, id, handles, &found);

    for (unsigned i = 0; result == NVML_SUCCESS && i < MIN(found, (unsigned)NVML_INSTANCES_MAX);
         i++) {
        nvmlGpuInstanceInfo_t info;

        result = nvml->mig.info(handles[i], &info);
        if (result == NVML_SUCCESS && *count < max)
            instances[(*count)++] = (struct nvml_gpu_instance){
                info.id, info.profileId, info.placement.start, info.placement.size};
    }
    return result;
}

int nvml_list_gpu_instances(struct nvml *nvml, unsigned index,
                            struct nvml_gpu_instance *ret_instances, size_t max, struct error *err)
{
    nvmlGpuInstanceProfileInfo_t info;
    nvmlReturn_t result = NVML_SUCCESS;
    nvmlDevice_t card;
    size_t count = 0;
    int r = find_card(nvml, index, &card, err);

    if (r < 0)
        return r;
    for (unsigned i = 0; result == NVML_SUCCESS && i < NVML_GPU_INSTANCE_PROFILE_COUNT; i++) {
        if (nvml->mig.profile_info(card, i, &info) == NVML_SUCCESS)
            result = list_of_profile(nvml, card, info.id, ret_instances, max, &count);
    }
    return result == NVML_SUCCESS ? (int)count
                                  : mig_fail(nvml, "cannot list GPU instances", result, err);
}

int nvml_make_gpu_instance(struct nvml *nvml, unsigned index, unsigned profile_id, unsigned start,
                           unsigned size, unsigned *ret_id, struct error *err)
{
    const nvmlGpuInstancePlacement_t placement = {start, size};
    nvmlGpuInstance_t instance;
    nvmlGpuInstanceInfo_t info;
    nvmlReturn_t result;
    nvmlDevice_t card;
    int r = find_card(nvml, index, &card, err);

    if (r < 0)
        return r;
    result = nvml->mig.create(card, profile_id, &placement, &instance);
    if (result == NVML_SUCCESS)
        result = nvml->mig.info(instance, &info);
    if (result != NVML_SUCCESS)
        return mig_fail(nvml, "cannot make a GPU instance", result, err);
    *ret_id = info.id;
    return 0;
}

static int find_instance(struct nvml *nvml, unsigned index, unsigned id,
                         nvmlGpuInstance_t *ret_instance, struct error *err)
{
    nvmlReturn_t result;
    nvmlDevice_t card;
    int r = find_card(nvml, index, &card, err);

    if (r < 0)
        return r;
    result = nvml->mig.by_id(card, id, ret_instance);
    return result == NVML_SUCCESS ? 0 : mig_fail(nvml, "cannot find the GPU instance", result, err);
}

/* The compute profile of the most slices is all of the instance. */
static nvmlReturn_t largest_profile(struct nvml *nvml, nvmlGpuInstance_t instance,
                                    unsigned *ret_profile)
{
    nvmlReturn_t result = NVML_ERROR_NOT_SUPPORTED;
    unsigned most = 0;

    for (unsigned i = 0; i < NVML_COMPUTE_INSTANCE_PROFILE_COUNT; i++) {
        nvmlComputeInstanceProfileInfo_t info;

        if (nvml->mig.compute_profile_info(instance, i, NVML_COMPUTE_INSTANCE_ENGINES_SHARED,
                                           &info) != NVML_SUCCESS ||
            info.sliceCount <= most)
            continue;
        most = info.sliceCount;
        *ret_profile = info.id;
        result = NVML_SUCCESS;
    }
    return result;
}

int nvml_make_compute_instance(struct nvml *nvml, unsigned index, unsigned gpu_instance,
                               struct error *err)
{
    nvmlComputeInstance_t compute;
    nvmlGpuInstance_t instance;
    nvmlReturn_t result;
    unsigned profile;
    int r = find_instance(nvml, index, gpu_instance, &instance, err);

    if (r < 0)
        return r;
    result = largest_profile(nvml, instance, &profile);
    if (result == NVML_SUCCESS)
        result = nvml->mig.create_compute(instance, profile, &compute);
    return result == NVML_SUCCESS ? 0
                                  : mig_fail(nvml, "cannot make a compute instance", result, err);
}

static nvmlReturn_t end_of_profile(struct nvml *nvml, nvmlGpuInstance_t instance, unsigned profile)
{
    nvmlComputeInstance_t handles[NVML_INSTANCES_MAX];
    unsigned count = ARRAY_SIZE(handles);
    nvmlReturn_t result = nvml->mig.list_computes(instance, profile, handles, &count);

    for (unsigned i = 0; result == NVML_SUCCESS && i < MIN(count, (unsigned)NVML_INSTANCES_MAX);
         i++)
        result = nvml->mig.destroy_compute(handles[i]);
    return result;
}

int nvml_end_compute_instances(struct nvml *nvml, unsigned index, unsigned gpu_instance,
                               struct error *err)
{
    nvmlComputeInstanceProfileInfo_t info;
    nvmlReturn_t result = NVML_SUCCESS;
    nvmlGpuInstance_t instance;
    int r = find_instance(nvml, index, gpu_instance, &instance, err);

    if (r < 0)
        return r;
    for (unsigned i = 0; result == NVML_SUCCESS && i < NVML_COMPUTE_INSTANCE_PROFILE_COUNT; i++) {
        if (nvml->mig.compute_profile_info(instance, i, NVML_COMPUTE_INSTANCE_ENGINES_SHARED,
                                           &info) == NVML_SUCCESS)
            result = end_of_profile(nvml, instance, info.id);
    }
    return result == NVML_SUCCESS ? 0
                                  : mig_fail(nvml, "cannot end its compute instances", result, err);
}

int nvml_end_gpu_instance(struct nvml *nvml, unsigned index, unsigned gpu_instance,
                          struct error *err)
{
    nvmlGpuInstance_t instance;
    nvmlReturn_t result;
    int r = find_instance(nvml, index, gpu_instance, &instance, err);

    if (r < 0)
        return r;
    result = nvml->mig.destroy(instance);
    return result == NVML_SUCCESS ? 0 : mig_fail(nvml, "cannot end the GPU instance", result, err);
}
