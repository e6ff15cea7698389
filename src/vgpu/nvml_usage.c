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

static nvmlReturn_t answer_v1(unsigned place, unsigned int *count, nvmlProcessInfo_v1_t *infos)
{
    struct running list[LIST_MAX];
    unsigned have = list_processes(place, list, LIST_MAX);
    nvmlReturn_t result = answer_count(have, count, infos);

    for (unsigned i = 0; result == NVML_SUCCESS && i < have; i++)
        infos[i] = (nvmlProcessInfo_v1_t){.pid = list[i].pid, .usedGpuMemory = list[i].bytes};
    return result;
}

static nvmlReturn_t answer_v2(unsigned place, unsigned int *count, nvmlProcessInfo_v2_t *infos)
{
    struct running list[LIST_MAX];
    unsigned have = list_processes(place, list, LIST_MAX);
    nvmlReturn_t result = answer_count(have, count, infos);

    for (unsigned i = 0; result == NVML_SUCCESS && i < have; i++) {
        infos[i] = (nvmlProcessInfo_v2_t){
            .pid = list[i].pid,
            .usedGpuMemory = list[i].bytes,
            .gpuInstanceId = NVML_NO_INSTANCE,
            .computeInstanceId = NVML_NO_INSTANCE,
        };
    }
    return result;
}

/*
 * NVML answers first, into nothing, so that its errors are its own; then ours is given. Graphics
 * and MPS processes of others are nobody's business here, and ours are all in the compute list.
 */
#define COMPUTE_LIST(name, info, answer)                                                           \
    PUBLIC nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, info *infos)                \
    {                                                                                              \
        unsigned int nothing = 0;                                                                  \
        nvmlReturn_t result = NVML_CALL(name, device, count ? &nothing : NULL, NULL);              \
        int place;                                                                                 \
                                                                                                   \
        if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)                      \
            return result;                                                                         \
        place = nvml_place(device);                                                                \
        return place < 0 ? NVML_CALL(name, device, count, infos)                                   \
                         : answer((unsigned)place, count, infos);                                  \
    }

#define EMPTY_LIST(name, info)                                                                     \
    PUBLIC nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, info *infos)                \
    {                                                                                              \
        unsigned int nothing = 0;                                                                  \
        nvmlReturn_t result = NVML_CALL(name, device, count ? &nothing : NULL, NULL);              \
                                                                                                   \
        if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)                      \
            return result;                                                                         \
        if (nvml_place(device) < 0)                                                                \
            return NVML_CALL(name, device, count, infos);                                          \
        *count = 0;                                                                                \
        return NVML_SUCCESS;                                                                       \
    }

COMPUTE_LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, answer_v1)
COMPUTE_LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, answer_v2)
COMPUTE_LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, answer_v2)
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t)

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
