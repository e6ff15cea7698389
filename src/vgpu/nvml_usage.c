/* SPDX-License-Identifier: Apache-2.0 */

/* NVML: who uses a device, which is the container's own processes. */

#include "base/clock.h"
#include "region/ledger.h"
#include "vgpu/nvml.h"
#include "vgpu/vgpu.h"

struct running {
    unsigned int pid;
    uint64_t bytes;
};

/* The container's processes that have something on a device. Returns how many there are in all. */
static unsigned list_processes(unsigned place, struct running *list, unsigned size)
{
    const struct region *region = &vgpu.region;
    unsigned count = 0;

    (void)region_settle(&vgpu.region);
    for (unsigned i = 0; i < REGION_SLOTS; i++) {
        int32_t pid = atomic_load(&region->ext->slots[i].pid);
        uint64_t units = pid > 0 ? ledger_held(region->ext, i, place) : 0;

        if (!units)
            continue;
        if (count < size)
            list[count] = (struct running){.pid = (unsigned)pid, .bytes = units * LEDGER_UNIT};
        count++;
    }
    return count;
}

enum {
    LIST_MAX = REGION_SLOTS,
};

/* NVML's protocol: too small a count is put right and refused. */
static nvmlReturn_t answer_count(unsigned have, unsigned int *count, const void *infos)
{
    unsigned room = *count;

    *count = have;
    return have && (room < have || !infos) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvmlReturn_t answer_v1(nvmlDevice_t device, unsigned place, unsigned int *count,
                              nvmlProcessInfo_v1_t *infos)
{
    struct running list[LIST_MAX];
    unsigned have = list_processes(place, list, LIST_MAX);
    nvmlReturn_t result = answer_count(have, count, infos);

    (void)device;
    for (unsigned i = 0; result == NVML_SUCCESS && i < have; i++)
        infos[i] = (nvmlProcessInfo_v1_t){.pid = list[i].pid, .usedGpuMemory = list[i].bytes};
    return result;
}

struct instance {
    unsigned gpu, compute;
};

/* Of which instances a device is; of none unless it is a MIG device. */
static struct instance instance_of(nvmlDevice_t device)
{
    struct instance found = {NVML_NO_INSTANCE, NVML_NO_INSTANCE};

    if (NVML_CALL(nvmlDeviceGetGpuInstanceId, device, &found.gpu) != NVML_SUCCESS ||
        NVML_CALL(nvmlDeviceGetComputeInstanceId, device, &found.compute) != NVML_SUCCESS)
        return (struct instance){NVML_NO_INSTANCE, NVML_NO_INSTANCE};
    return found;
}

static nvmlReturn_t answer_v2(nvmlDevice_t device, unsigned place, unsigned int *count,
                              nvmlProcessInfo_v2_t *infos)
{
    struct running list[LIST_MAX];
    unsigned have = list_processes(place, list, LIST_MAX);
    nvmlReturn_t result = answer_count(have, count, infos);
    struct instance instance = instance_of(device);

    for (unsigned i = 0; result == NVML_SUCCESS && i < have; i++) {
        infos[i] = (nvmlProcessInfo_v2_t){
            .pid = list[i].pid,
            .usedGpuMemory = list[i].bytes,
            .gpuInstanceId = instance.gpu,
            .computeInstanceId = instance.compute,
        };
    }
    return result;
}

/*
 * NVML answers first, into nothing, so that its errors are its own; then ours is given. Graphics
 * and MPS processes of others are nobody's business here, and ours are all in the compute list.
 * Whoever asks for a foreign device is told what NVML tells those who may not see all of a card.
 */
#define LIST(name, info, answer)                                                                   \
    PUBLIC nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, info *infos)                \
    {                                                                                              \
        unsigned int nothing = 0;                                                                  \
        nvmlReturn_t result = NVML_CALL(name, device, count ? &nothing : NULL, NULL);              \
        int place;                                                                                 \
                                                                                                   \
        if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)                      \
            return result;                                                                         \
        place = nvml_place(device);                                                                \
        if (place < 0 && nvml_is_foreign(device))                                                  \
            return NVML_ERROR_NO_PERMISSION;                                                       \
        return place < 0 ? NVML_CALL(name, device, count, infos)                                   \
                         : answer(device, (unsigned)place, count, infos);                          \
    }

static nvmlReturn_t answer_none(nvmlDevice_t device, unsigned place, unsigned int *count,
                                const void *infos)
{
    (void)device;
    (void)place;
    (void)infos;
    *count = 0;
    return NVML_SUCCESS;
}

LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, answer_v1)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, answer_v2)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, answer_v2)
LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, answer_none)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, answer_none)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t, answer_none)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, answer_none)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, answer_none)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, answer_none)

PUBLIC nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                          nvmlProcessDetailList_t *details)
{
    nvmlProcessDetailList_t nothing = {.version = NVML_PROCESS_DETAIL_LIST_V1};
    nvmlReturn_t result =
        NVML_CALL(nvmlDeviceGetRunningProcessDetailList, device, details ? &nothing : NULL);
    struct running list[LIST_MAX];
    struct instance instance;
    unsigned have;
    int place;

    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)
        return result;
    place = nvml_place(device);
    if (place < 0 && nvml_is_foreign(device))
        return NVML_ERROR_NO_PERMISSION;
    if (place < 0)
        return NVML_CALL(nvmlDeviceGetRunningProcessDetailList, device, details);
    if (details->mode > NVML_PROCESS_MODE_MPS)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (details->version != NVML_PROCESS_DETAIL_LIST_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    have = details->mode == NVML_PROCESS_MODE_COMPUTE
               ? list_processes((unsigned)place, list, LIST_MAX)
               : 0;
    result = answer_count(have, &details->numProcArrayEntries, details->procArray);
    instance = instance_of(device);
    for (unsigned i = 0; result == NVML_SUCCESS && i < have; i++) {
        details->procArray[i] = (nvmlProcessDetail_v1_t){
            .pid = list[i].pid,
            .usedGpuMemory = list[i].bytes,
            .gpuInstanceId = instance.gpu,
            .computeInstanceId = instance.compute,
        };
    }
    return result;
}

/*
 * How busy the container keeps a device, and its processes: percent of the device's time, in the
 * last second or so, as the processes themselves tell HAMi's readers. Where NVML has no figure, as
 * of a card in MIG mode, there is none here.
 */
struct busy {
    unsigned pid;
    unsigned percent;
};

/* Fills a list of LIST_MAX with those that are busy at all. */
static unsigned list_busy(unsigned place, struct busy *list)
{
    const struct region *region = &vgpu.region;
    unsigned count = 0;

    (void)region_settle(&vgpu.region);
    for (unsigned i = 0; i < REGION_SLOTS; i++) {
        int32_t pid = atomic_load(&region->ext->slots[i].pid);
        uint64_t percent = MIN(region->base->slots[i].util[place].sm_util, UINT64_C(100));

        if (pid > 0 && percent)
            list[count++] = (struct busy){.pid = (unsigned)pid, .percent = (unsigned)percent};
    }
    return count;
}

/* Of the memory's controller nobody knows what the container's part is. */
PUBLIC nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    nvmlUtilization_t own = {0}, whole;
    nvmlReturn_t result = NVML_CALL(nvmlDeviceGetUtilizationRates, device, rates ? &whole : NULL);
    int place = result == NVML_SUCCESS ? nvml_place(device) : -1;
    struct busy list[LIST_MAX];
    unsigned count;

    if (result != NVML_SUCCESS)
        return result;
    if (place < 0 && nvml_is_foreign(device))
        return NVML_ERROR_NO_PERMISSION;
    count = place < 0 ? 0 : list_busy((unsigned)place, list);
    for (unsigned i = 0; i < count; i++)
        own.gpu = MIN(own.gpu + list[i].percent, 100u);
    *rates = place < 0 ? whole : own;
    return NVML_SUCCESS;
}

static nvmlReturn_t answer_samples(unsigned have, unsigned int *count, const void *samples)
{
    nvmlReturn_t result = answer_count(have, count, samples);

    return have ? result : NVML_ERROR_NOT_FOUND;
}

/* Whether NVML has samples of a device, or would have with more to tell. */
static bool has_samples(nvmlReturn_t result)
{
    return result == NVML_SUCCESS || result == NVML_ERROR_INSUFFICIENT_SIZE ||
           result == NVML_ERROR_NOT_FOUND;
}

PUBLIC nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                    nvmlProcessUtilizationSample_t *samples,
                                                    unsigned int *count,
                                                    unsigned long long since_us)
{
    unsigned int nothing = 0;
    nvmlReturn_t result =
        NVML_CALL(nvmlDeviceGetProcessUtilization, device, NULL, count ? &nothing : NULL, since_us);
    const uint64_t now_us = (uint64_t)clock_read_ns(CLOCK_REALTIME) / 1000;
    struct busy list[LIST_MAX];
    unsigned have;
    int place;

    if (!has_samples(result))
        return result;
    place = nvml_place(device);
    if (place < 0 && nvml_is_foreign(device))
        return NVML_ERROR_NO_PERMISSION;
    if (place < 0)
        return NVML_CALL(nvmlDeviceGetProcessUtilization, device, samples, count, since_us);
    have = since_us < now_us ? list_busy((unsigned)place, list) : 0;
    result = answer_samples(have, count, samples);
    for (unsigned i = 0; result == NVML_SUCCESS && i < have; i++) {
        samples[i] = (nvmlProcessUtilizationSample_t){
            .pid = list[i].pid,
            .timeStamp = now_us,
            .smUtil = list[i].percent,
        };
    }
    return result;
}

PUBLIC nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                          nvmlProcessesUtilizationInfo_t *info)
{
    nvmlProcessesUtilizationInfo_t nothing = {.version = NVML_PROCESSES_UTILIZATION_V1};
    nvmlReturn_t result =
        NVML_CALL(nvmlDeviceGetProcessesUtilizationInfo, device, info ? &nothing : NULL);
    const uint64_t now_us = (uint64_t)clock_read_ns(CLOCK_REALTIME) / 1000;
    struct busy list[LIST_MAX];
    unsigned have;
    int place;

    if (!has_samples(result))
        return result;
    place = nvml_place(device);
    if (place < 0 && nvml_is_foreign(device))
        return NVML_ERROR_NO_PERMISSION;
    if (place < 0)
        return NVML_CALL(nvmlDeviceGetProcessesUtilizationInfo, device, info);
    if (info->version != NVML_PROCESSES_UTILIZATION_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    have = info->lastSeenTimeStamp < now_us ? list_busy((unsigned)place, list) : 0;
    result = answer_samples(have, &info->processSamplesCount, info->procUtilArray);
    for (unsigned i = 0; result == NVML_SUCCESS && i < have; i++) {
        info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
            .timeStamp = now_us,
            .pid = list[i].pid,
            .smUtil = list[i].percent,
        };
    }
    return result;
}
