/* SPDX-License-Identifier: Apache-2.0 */

/*
 * NVML as the container should see it: the granted devices, memory within the limit, its own
 * processes. A program that only looks (a monitor, nvidia-smi) takes no slot.
 */

#include <string.h>

#include "region/ledger.h"
#include "vgpu/hidden.h"
#include "vgpu/real.h"
#include "vgpu/vgpu.h"

#define CALL(name, ...)                                                                            \
    (real_nvml() && REAL(name) ? REAL(name)(__VA_ARGS__) : NVML_ERROR_FUNCTION_NOT_FOUND)

PUBLIC nvmlReturn_t nvmlInit(void)
{
    return real_nvml() ? CALL(nvmlInit) : NVML_ERROR_LIBRARY_NOT_FOUND;
}

PUBLIC nvmlReturn_t nvmlInit_v2(void)
{
    return real_nvml() ? CALL(nvmlInit_v2) : NVML_ERROR_LIBRARY_NOT_FOUND;
}

PUBLIC nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    return real_nvml() ? CALL(nvmlInitWithFlags, flags) : NVML_ERROR_LIBRARY_NOT_FOUND;
}

/* The limits, if only the devices that they name may be seen. */
static const struct limits *granted_only(void)
{
    const struct limits *limits;

    if (!vgpu_open_region())
        return NULL;
    limits = vgpu_limits();
    return limits->only_granted && limits->device_count ? limits : NULL;
}

/* A device's place among the granted ones, or -1. */
static int granted_place(const struct limits *limits, nvmlDevice_t device)
{
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];

    if (CALL(nvmlDeviceGetUUID, device, uuid, sizeof(uuid)) != NVML_SUCCESS)
        return -1;
    for (unsigned i = 0; i < limits->device_count; i++) {
        if (strcmp(limits->devices[i].uuid, uuid) == 0)
            return (int)i;
    }
    return -1;
}

static nvmlReturn_t count_devices(nvmlReturn_t result, unsigned int *count)
{
    const struct limits *limits = granted_only();

    if (result == NVML_SUCCESS && limits)
        *count = MIN(*count, limits->device_count);
    return result;
}

PUBLIC nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return count_devices(CALL(nvmlDeviceGetCount, count), count);
}

PUBLIC nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    return count_devices(CALL(nvmlDeviceGetCount_v2, count), count);
}

static nvmlReturn_t handle_by_place(const struct limits *limits, unsigned int index,
                                    nvmlDevice_t *device)
{
    if (index >= limits->device_count || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    return CALL(nvmlDeviceGetHandleByUUID, limits->devices[index].uuid, device);
}

PUBLIC nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    const struct limits *limits = granted_only();

    return limits ? handle_by_place(limits, index, device)
                  : CALL(nvmlDeviceGetHandleByIndex, index, device);
}

PUBLIC nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    const struct limits *limits = granted_only();

    return limits ? handle_by_place(limits, index, device)
                  : CALL(nvmlDeviceGetHandleByIndex_v2, index, device);
}

/* A handle that was found some other way is given out only if its device is granted. */
static nvmlReturn_t hand_out(nvmlDevice_t found, nvmlDevice_t *device)
{
    const struct limits *limits = granted_only();

    if (limits && granted_place(limits, found) < 0)
        return NVML_ERROR_NOT_FOUND;
    *device = found;
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    nvmlDevice_t found = NULL;
    nvmlReturn_t result = CALL(nvmlDeviceGetHandleByUUID, uuid, device ? &found : NULL);

    return result == NVML_SUCCESS ? hand_out(found, device) : result;
}

PUBLIC nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    nvmlDevice_t found = NULL;
    nvmlReturn_t result = CALL(nvmlDeviceGetHandleByPciBusId, bus_id, device ? &found : NULL);

    return result == NVML_SUCCESS ? hand_out(found, device) : result;
}

PUBLIC nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    nvmlDevice_t found = NULL;
    nvmlReturn_t result = CALL(nvmlDeviceGetHandleByPciBusId_v2, bus_id, device ? &found : NULL);

    return result == NVML_SUCCESS ? hand_out(found, device) : result;
}

PUBLIC nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    const struct limits *limits = granted_only();
    nvmlReturn_t result = CALL(nvmlDeviceGetIndex, device, index);
    int place;

    if (result != NVML_SUCCESS || !limits)
        return result;
    place = granted_place(limits, device);
    if (place < 0)
        return NVML_ERROR_NOT_FOUND;
    *index = (unsigned int)place;
    return NVML_SUCCESS;
}

/* The number in the region of a device that is limited or accounted here; -1 for others. */
static int region_place(nvmlDevice_t device)
{
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    const struct region_base *base;

    if (!vgpu_open_region() || CALL(nvmlDeviceGetUUID, device, uuid, sizeof(uuid)) != NVML_SUCCESS)
        return -1;
    base = vgpu.region.base;
    for (unsigned i = 0; i < MIN(base->device_count, (uint64_t)REGION_DEVICES); i++) {
        if (strncmp(base->uuids[i], uuid, REGION_UUID_SIZE) == 0)
            return (int)i;
    }
    return -1;
}

/* The limit of a device, physical at most; whoever only looks has not put it into the region yet.
 */
static uint64_t limit_of(unsigned place, uint64_t physical)
{
    uint64_t limit = vgpu_limits()->devices[place].memory_bytes;
    uint64_t shared = atomic_load(&vgpu.region.base->limit[place]);

    vgpu_refresh();
    if (shared && (!limit || shared < limit))
        limit = shared;
    return limit ? MIN(limit, physical) : physical;
}

/* total = used + free holds in what is told, whatever the ledger says at the moment. */
/* By the device's place in the region. */
static uint64_t used_of(unsigned place)
{
    bool is_on = atomic_load_explicit(&vgpu.mode, memory_order_acquire) == VGPU_ON;

    for (unsigned i = 0; is_on && i < vgpu.device_count; i++) {
        if (vgpu.devices[i].index == place)
            hidden_look(&vgpu.devices[i]);
    }
    return vgpu_used_bytes(place);
}

PUBLIC nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    nvmlReturn_t result = CALL(nvmlDeviceGetMemoryInfo, device, memory);
    int place = result == NVML_SUCCESS ? region_place(device) : -1;
    uint64_t total;

    if (place < 0)
        return result;
    total = limit_of((unsigned)place, memory->total);
    memory->used = MIN(used_of((unsigned)place), total);
    memory->free = total - memory->used;
    memory->total = total;
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlReturn_t result = CALL(nvmlDeviceGetMemoryInfo_v2, device, memory);
    int place = result == NVML_SUCCESS ? region_place(device) : -1;
    uint64_t total;

    if (place < 0)
        return result;
    total = limit_of((unsigned)place, memory->total);
    memory->used = MIN(used_of((unsigned)place), total);
    memory->free = total - memory->used;
    memory->reserved = 0;
    memory->total = total;
    return NVML_SUCCESS;
}

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
        nvmlReturn_t result = CALL(name, device, count ? &nothing : NULL, NULL);                   \
        int place;                                                                                 \
                                                                                                   \
        if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)                      \
            return result;                                                                         \
        place = region_place(device);                                                              \
        return place < 0 ? CALL(name, device, count, infos)                                        \
                         : answer((unsigned)place, count, infos);                                  \
    }

#define EMPTY_LIST(name, info)                                                                     \
    PUBLIC nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, info *infos)                \
    {                                                                                              \
        unsigned int nothing = 0;                                                                  \
        nvmlReturn_t result = CALL(name, device, count ? &nothing : NULL, NULL);                   \
                                                                                                   \
        if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)                      \
            return result;                                                                         \
        if (region_place(device) < 0)                                                              \
            return CALL(name, device, count, infos);                                               \
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
