/* SPDX-License-Identifier: Apache-2.0 */

/* NVML: who uses a device, which is the container's own processes. */

#include "base/clock.h"
#include "region/ledger.h"
#include "vgpu/nvml.h"
#include "vgpu/vgpu.h"

/* What a process has of a device. */
enum part {
    PART_BYTES,
    PART_PERCENT, /* of its time, in the last second or so */
};

/*
 * The container's processes that have a part of a device, one after the other. A list of as many as
 * there may be would be too large for the stack of any thread of a program's.
 */
struct listing {
    enum part part;
    unsigned place, next; /* slot */
    unsigned int *count;  /* of those that the caller was told */
    unsigned left;        /* for which it has room */
    unsigned pid;
    uint64_t amount;
};

static uint64_t part_of(const struct listing *listing, unsigned slot)
{
    const struct region *region = &vgpu.region;

    if (listing->part == PART_BYTES)
        return ledger_held(region->ext, slot, listing->place) * LEDGER_UNIT;
    return MIN(region->base->slots[slot].util[listing->place].sm_util, UINT64_C(100));
}

static bool list_next(struct listing *listing)
{
    while (listing->left && listing->next < REGION_SLOTS) {
        const unsigned slot = listing->next++;
        const int32_t pid = atomic_load(&vgpu.region.ext->slots[slot].pid);

        listing->amount = pid > 0 ? part_of(listing, slot) : 0;
        if (!listing->amount)
            continue;
        listing->pid = (unsigned)pid;
        listing->left--;
        (*listing->count)++;
        return true;
    }
    return false;
}

static void list_begin(struct listing *listing, unsigned *count)
{
    (void)region_settle(&vgpu.region);
    listing->left = REGION_SLOTS;
    listing->count = count;
}

/* How many there are. Until they are listed some may go, and others come, which are left out. */
static unsigned list_all(struct listing *listing)
{
    unsigned count = 0;

    list_begin(listing, &count);
    while (list_next(listing))
        ;
    listing->left = listing->next = 0;
    return count;
}

/* NVML's protocol: too small a count is put right and refused. Else they can be listed. */
static nvmlReturn_t list_answer(struct listing *listing, unsigned have, unsigned int *count,
                                const void *infos)
{
    const unsigned room = *count;

    *count = have;
    if (have && (room < have || !infos))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    *count = 0;
    listing->count = count;
    listing->left = have;
    return NVML_SUCCESS;
}

static nvmlReturn_t answer_v1(nvmlDevice_t device, unsigned place, unsigned int *count,
                              nvmlProcessInfo_v1_t *infos)
{
    struct listing listing = {.part = PART_BYTES, .place = place};
    nvmlReturn_t result = list_answer(&listing, list_all(&listing), count, infos);

    (void)device;
    for (unsigned i = 0; list_next(&listing); i++)
        infos[i] = (nvmlProcessInfo_v1_t){.pid = listing.pid, .usedGpuMemory = listing.amount};
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
    struct listing listing = {.part = PART_BYTES, .place = place};
    nvmlReturn_t result = list_answer(&listing, list_all(&listing), count, infos);
    struct instance instance = instance_of(device);

    for (unsigned i = 0; list_next(&listing); i++) {
        infos[i] = (nvmlProcessInfo_v2_t){
            .pid = listing.pid,
            .usedGpuMemory = listing.amount,
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
    struct listing listing = {.part = PART_BYTES};
    struct instance instance;
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
    listing.place = (unsigned)place;
    result =
        list_answer(&listing, details->mode == NVML_PROCESS_MODE_COMPUTE ? list_all(&listing) : 0,
                    &details->numProcArrayEntries, details->procArray);
    instance = instance_of(device);
    for (unsigned i = 0; list_next(&listing); i++) {
        details->procArray[i] = (nvmlProcessDetail_v1_t){
            .pid = listing.pid,
            .usedGpuMemory = listing.amount,
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

/* Of the memory's controller nobody knows what the container's part is. */
PUBLIC nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    nvmlUtilization_t own = {0}, whole;
    nvmlReturn_t result = NVML_CALL(nvmlDeviceGetUtilizationRates, device, rates ? &whole : NULL);
    int place = result == NVML_SUCCESS ? nvml_place(device) : -1;
    struct listing listing = {.part = PART_PERCENT, .place = (unsigned)place};
    unsigned count = 0;

    if (result != NVML_SUCCESS)
        return result;
    if (place < 0 && nvml_is_foreign(device))
        return NVML_ERROR_NO_PERMISSION;
    if (place >= 0)
        list_begin(&listing, &count);
    while (list_next(&listing))
        own.gpu = MIN(own.gpu + (unsigned)listing.amount, 100u);
    *rates = place < 0 ? whole : own;
    return NVML_SUCCESS;
}

static nvmlReturn_t answer_samples(struct listing *listing, bool any, unsigned int *count,
                                   const void *samples)
{
    const unsigned have = any ? list_all(listing) : 0;
    nvmlReturn_t result = list_answer(listing, have, count, samples);

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
    struct listing listing = {.part = PART_PERCENT};
    int place;

    if (!has_samples(result))
        return result;
    place = nvml_place(device);
    if (place < 0 && nvml_is_foreign(device))
        return NVML_ERROR_NO_PERMISSION;
    if (place < 0)
        return NVML_CALL(nvmlDeviceGetProcessUtilization, device, samples, count, since_us);
    listing.place = (unsigned)place;
    result = answer_samples(&listing, since_us < now_us, count, samples);
    for (unsigned i = 0; list_next(&listing); i++) {
        samples[i] = (nvmlProcessUtilizationSample_t){
            .pid = listing.pid,
            .timeStamp = now_us,
            .smUtil = (unsigned)listing.amount,
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
    struct listing listing = {.part = PART_PERCENT};
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
    listing.place = (unsigned)place;
    result = answer_samples(&listing, info->lastSeenTimeStamp < now_us, &info->processSamplesCount,
                            info->procUtilArray);
    for (unsigned i = 0; list_next(&listing); i++) {
        info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
            .timeStamp = now_us,
            .pid = listing.pid,
            .smUtil = (unsigned)listing.amount,
        };
    }
    return result;
}
