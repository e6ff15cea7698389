/* SPDX-License-Identifier: Apache-2.0 */

/* NVML as the container should see it: the granted devices, and memory within the limit. */

#include "vgpu/nvml.h"

#include <string.h>

#include "vgpu/hidden.h"
#include "vgpu/vgpu.h"

/* How often the program began with NVML and did not end. What we begin ourselves, hidden memory is
 * measured by: that is not the program's to end. */
static _Atomic unsigned begun;

static nvmlReturn_t count_begun(nvmlReturn_t result)
{
    if (result == NVML_SUCCESS)
        atomic_fetch_add(&begun, 1);
    return result;
}

PUBLIC nvmlReturn_t nvmlInit(void)
{
    return real_nvml() ? count_begun(NVML_CALL(nvmlInit)) : NVML_ERROR_LIBRARY_NOT_FOUND;
}

PUBLIC nvmlReturn_t nvmlInit_v2(void)
{
    return real_nvml() ? count_begun(NVML_CALL(nvmlInit_v2)) : NVML_ERROR_LIBRARY_NOT_FOUND;
}

PUBLIC nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    return real_nvml() ? count_begun(NVML_CALL(nvmlInitWithFlags, flags))
                       : NVML_ERROR_LIBRARY_NOT_FOUND;
}

PUBLIC nvmlReturn_t nvmlShutdown(void)
{
    unsigned now = atomic_load(&begun);

    while (now && !atomic_compare_exchange_weak(&begun, &now, now - 1))
        ;
    return now ? NVML_CALL(nvmlShutdown) : NVML_ERROR_UNINITIALIZED;
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

    if (NVML_CALL(nvmlDeviceGetUUID, device, uuid, sizeof(uuid)) != NVML_SUCCESS)
        return -1;
    for (unsigned i = 0; i < limits->device_count; i++) {
        if (strcmp(limits->devices[i].uuid, uuid) == 0)
            return (int)i;
    }
    return -1;
}

/* The card itself; of a MIG instance, which is found below its card, that. NULL: NVML does not
 * know. */
static nvmlDevice_t card_of(nvmlDevice_t device)
{
    nvmlDevice_t card = NULL;
    unsigned int is_instance = 0;

    if (NVML_CALL(nvmlDeviceIsMigDeviceHandle, device, &is_instance) != NVML_SUCCESS ||
        !is_instance)
        return device;
    (void)NVML_CALL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, device, &card);
    return card;
}

/* The cards of what is granted, each once, in its order. Returns how many. */
static unsigned granted_cards(const struct limits *limits, nvmlDevice_t cards[REGION_DEVICES])
{
    unsigned count = 0, before;

    for (unsigned i = 0; i < limits->device_count; i++) {
        nvmlDevice_t device = NULL;

        if (NVML_CALL(nvmlDeviceGetHandleByUUID, limits->devices[i].uuid, &device) != NVML_SUCCESS)
            continue;
        cards[count] = card_of(device);
        for (before = 0; before < count && cards[before] != cards[count]; before++)
            ;
        count += cards[count] && before == count;
    }
    return count;
}

/* Its place among those, or -1. */
static int card_place(const struct limits *limits, nvmlDevice_t device)
{
    nvmlDevice_t cards[REGION_DEVICES];
    const unsigned count = granted_cards(limits, cards);

    for (unsigned i = 0; i < count; i++) {
        if (cards[i] == device)
            return (int)i;
    }
    return -1;
}

static nvmlReturn_t count_devices(nvmlReturn_t result, unsigned int *count)
{
    const struct limits *limits = granted_only();
    nvmlDevice_t cards[REGION_DEVICES];

    if (result == NVML_SUCCESS && limits)
        *count = MIN(*count, granted_cards(limits, cards));
    return result;
}

PUBLIC nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return count_devices(NVML_CALL(nvmlDeviceGetCount, count), count);
}

PUBLIC nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    return count_devices(NVML_CALL(nvmlDeviceGetCount_v2, count), count);
}

static nvmlReturn_t handle_by_place(const struct limits *limits, unsigned int index,
                                    nvmlDevice_t *device)
{
    nvmlDevice_t cards[REGION_DEVICES];
    const unsigned count = granted_cards(limits, cards);

    if (index >= count || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = cards[index];
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    const struct limits *limits = granted_only();

    return limits ? handle_by_place(limits, index, device)
                  : NVML_CALL(nvmlDeviceGetHandleByIndex, index, device);
}

PUBLIC nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    const struct limits *limits = granted_only();

    return limits ? handle_by_place(limits, index, device)
                  : NVML_CALL(nvmlDeviceGetHandleByIndex_v2, index, device);
}

bool nvml_is_foreign(nvmlDevice_t device)
{
    const struct limits *limits = granted_only();

    return limits && granted_place(limits, device) < 0;
}

/* A handle that was found some other way is given out only if its device is granted, or has an
 * instance that is. */
static nvmlReturn_t hand_out(nvmlDevice_t found, nvmlDevice_t *device)
{
    const struct limits *limits = granted_only();

    if (limits && granted_place(limits, found) < 0 && card_place(limits, found) < 0)
        return NVML_ERROR_NOT_FOUND;
    *device = found;
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    nvmlDevice_t found = NULL;
    nvmlReturn_t result = NVML_CALL(nvmlDeviceGetHandleByUUID, uuid, device ? &found : NULL);

    return result == NVML_SUCCESS ? hand_out(found, device) : result;
}

PUBLIC nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    nvmlDevice_t found = NULL;
    nvmlReturn_t result = NVML_CALL(nvmlDeviceGetHandleByPciBusId, bus_id, device ? &found : NULL);

    return result == NVML_SUCCESS ? hand_out(found, device) : result;
}

PUBLIC nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    nvmlDevice_t found = NULL;
    nvmlReturn_t result =
        NVML_CALL(nvmlDeviceGetHandleByPciBusId_v2, bus_id, device ? &found : NULL);

    return result == NVML_SUCCESS ? hand_out(found, device) : result;
}

/* The instances of a card that are granted are numbered among themselves: clients stop at the first
 * number that has none. NULL: there is none of that number. */
static nvmlDevice_t granted_instance(const struct limits *limits, nvmlDevice_t card,
                                     unsigned int index)
{
    unsigned int most = 0, seen = 0;

    (void)NVML_CALL(nvmlDeviceGetMaxMigDeviceCount, card, &most);
    for (unsigned int i = 0; i < most; i++) {
        nvmlDevice_t found = NULL;

        if (NVML_CALL(nvmlDeviceGetMigDeviceHandleByIndex, card, i, &found) == NVML_SUCCESS &&
            granted_place(limits, found) >= 0 && seen++ == index)
            return found;
    }
    return NULL;
}

PUBLIC nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                        nvmlDevice_t *instance)
{
    const struct limits *limits = granted_only();
    nvmlDevice_t found = NULL;
    nvmlReturn_t result =
        NVML_CALL(nvmlDeviceGetMigDeviceHandleByIndex, device, index, instance ? &found : NULL);

    if (limits && (result == NVML_SUCCESS || result == NVML_ERROR_NOT_FOUND)) {
        found = granted_instance(limits, device, index);
        result = found ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
    }
    if (result == NVML_SUCCESS)
        *instance = found;
    return result;
}

static nvmlReturn_t index_of(const struct limits *limits, nvmlDevice_t device, unsigned int *index)
{
    const nvmlDevice_t card = card_of(device);
    nvmlDevice_t found;
    int place;

    if (card == device) {
        place = card_place(limits, device);
        if (place < 0)
            return NVML_ERROR_NOT_FOUND;
        *index = (unsigned int)place;
        return NVML_SUCCESS;
    }
    for (unsigned int i = 0; (found = granted_instance(limits, card, i)); i++) {
        if (found != device)
            continue;
        *index = i;
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}

PUBLIC nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    const struct limits *limits = granted_only();
    nvmlReturn_t result = NVML_CALL(nvmlDeviceGetIndex, device, index);

    return result == NVML_SUCCESS && limits ? index_of(limits, device, index) : result;
}

int nvml_place(nvmlDevice_t device)
{
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    const struct region_base *base;

    if (!vgpu_open_region() ||
        NVML_CALL(nvmlDeviceGetUUID, device, uuid, sizeof(uuid)) != NVML_SUCCESS)
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

    (void)vgpu_refresh();
    if (shared && (!limit || shared < limit))
        limit = shared;
    return limit ? MIN(limit, physical) : physical;
}

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

/* A device's place in the region. -1, with the answer in *result: it has none, NVML refuses, or it
 * is the card above a granted instance, whose memory is others' business. */
static int place_of_memory(nvmlDevice_t device, nvmlReturn_t *result)
{
    int place = *result == NVML_SUCCESS ? nvml_place(device) : -1;

    if (*result == NVML_SUCCESS && place < 0 && nvml_is_foreign(device))
        *result = NVML_ERROR_NO_PERMISSION;
    return place;
}

/* total = used + free holds in what is told, whatever the ledger says at the moment. */
PUBLIC nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    nvmlMemory_t told = {0};
    nvmlReturn_t result = NVML_CALL(nvmlDeviceGetMemoryInfo, device, memory ? &told : NULL);
    int place = place_of_memory(device, &result);

    if (result != NVML_SUCCESS)
        return result;
    if (place >= 0) {
        told.total = limit_of((unsigned)place, told.total);
        told.used = MIN(used_of((unsigned)place), told.total);
        told.free = told.total - told.used;
    }
    *memory = told;
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlMemory_v2_t told = {.version = memory ? memory->version : 0};
    nvmlReturn_t result = NVML_CALL(nvmlDeviceGetMemoryInfo_v2, device, memory ? &told : NULL);
    int place = place_of_memory(device, &result);

    if (result != NVML_SUCCESS)
        return result;
    if (place >= 0) {
        told.total = limit_of((unsigned)place, told.total);
        told.used = MIN(used_of((unsigned)place), told.total);
        told.free = told.total - told.used;
        told.reserved = 0;
    }
    *memory = told;
    return NVML_SUCCESS;
}

/*
 * Nobody knows who mapped what into the window: a container has one onto its own memory, which is
 * not in use.
 */
PUBLIC nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    nvmlBAR1Memory_t told = {0};
    nvmlReturn_t result = NVML_CALL(nvmlDeviceGetBAR1MemoryInfo, device, memory ? &told : NULL);
    int place = place_of_memory(device, &result);

    if (result != NVML_SUCCESS)
        return result;
    if (place >= 0) {
        told.bar1Total = limit_of((unsigned)place, told.bar1Total);
        told.bar1Free = told.bar1Total;
        told.bar1Used = 0;
    }
    *memory = told;
    return NVML_SUCCESS;
}
