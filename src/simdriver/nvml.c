/* SPDX-License-Identifier: Apache-2.0 */

/* NVML: initialisation, the system, finding devices, and what is constant about them. */

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/util.h"
#include "simdriver/mig.h"
#include "simdriver/nvml_guest.h"

#define DRIVER_VERSION "615.00.sim"
#define NVML_VERSION "13.615.00.sim"
#define CUDA_VERSION 13050

/* Its only field is where it lies. */
struct nvmlDevice_st {
    char unused;
};

static struct nvmlDevice_st handles[SIM_MAX_GPUS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim *machine;
static unsigned users;

nvmlReturn_t nvml_check(void)
{
    return __atomic_load_n(&users, __ATOMIC_ACQUIRE) ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

struct sim *nvml_machine(void)
{
    return machine;
}

/* A card that hangs answers when it is in another condition. */
static nvmlReturn_t answer_for(unsigned index)
{
    const uint32_t *condition = &machine->state->health[index].condition;
    const struct timespec pause = {.tv_nsec = 20 * NS_PER_MS};

    while (__atomic_load_n(condition, __ATOMIC_ACQUIRE) == SIM_CARD_HANGS)
        (void)nanosleep(&pause, NULL);
    return __atomic_load_n(condition, __ATOMIC_ACQUIRE) == SIM_CARD_LOST ? NVML_ERROR_GPU_IS_LOST
                                                                         : NVML_SUCCESS;
}

nvmlDevice_t nvml_handle(unsigned index)
{
    return &handles[index];
}

nvmlReturn_t nvml_check_device(nvmlDevice_t device, unsigned *ret_index)
{
    nvmlReturn_t r = nvml_check();

    if (r != NVML_SUCCESS)
        return r;
    for (unsigned i = 0; i < machine->state->header.gpu_count; i++) {
        if (device != &handles[i])
            continue;
        *ret_index = i;
        return answer_for(i);
    }
    return NVML_ERROR_INVALID_ARGUMENT;
}

int64_t nvml_enter(void)
{
    int64_t now_ns;

    (void)sim_lock(machine);
    sim_sweep(machine);
    now_ns = sim_now(machine->state);
    sim_advance_all(machine->state, now_ns);
    return now_ns;
}

int64_t nvml_enter_device(unsigned device)
{
    int64_t now_ns;

    (void)sim_lock(machine);
    sim_sweep_gpu(machine, sim_gpu_of(device));
    now_ns = sim_now(machine->state);
    sim_advance_all(machine->state, now_ns);
    return now_ns;
}

static nvmlReturn_t attach(void)
{
    const char *path = getenv("HAMI_SIM");
    struct error err = ERROR_INIT;

    if (!path || !path[0]) {
        (void)fprintf(stderr, "simulated NVML: HAMI_SIM is not set: name the state file of a "
                              "simulated machine in it (hamictl sim makes one)\n");
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    if (sim_open(path, &machine, &err) < 0) {
        (void)fprintf(stderr, "simulated NVML: HAMI_SIM=%s\n", err.text);
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    /* It may have been opened by a parent, in another pid namespace. */
    proc_identity_self(&machine->self);
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlInit_v2(void)
{
    nvmlReturn_t r = NVML_SUCCESS;

    (void)pthread_mutex_lock(&lock);
    if (!users)
        r = attach();
    if (r == NVML_SUCCESS)
        __atomic_add_fetch(&users, 1, __ATOMIC_ACQ_REL);
    (void)pthread_mutex_unlock(&lock);
    return r;
}

PUBLIC nvmlReturn_t nvmlInit(void)
{
    return nvmlInit_v2();
}

PUBLIC nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    return nvmlInit_v2();
}

PUBLIC nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t r;

    (void)pthread_mutex_lock(&lock);
    r = nvml_check();
    if (r == NVML_SUCCESS)
        __atomic_sub_fetch(&users, 1, __ATOMIC_ACQ_REL);
    (void)pthread_mutex_unlock(&lock);
    return r;
}

PUBLIC const char *nvmlErrorString(nvmlReturn_t result)
{
    static const struct {
        nvmlReturn_t result;
        const char *text;
    } texts[] = {
        {NVML_SUCCESS, "Success"},
        {NVML_ERROR_UNINITIALIZED, "Uninitialized"},
        {NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument"},
        {NVML_ERROR_NOT_SUPPORTED, "Not Supported"},
        {NVML_ERROR_NO_PERMISSION, "Insufficient Permissions"},
        {NVML_ERROR_NOT_FOUND, "Not Found"},
        {NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size"},
        {NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded"},
        {NVML_ERROR_TIMEOUT, "Timeout"},
        {NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"},
        {NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found"},
        {NVML_ERROR_GPU_IS_LOST, "GPU is lost"},
        {NVML_ERROR_IN_USE, "In use by another client"},
        {NVML_ERROR_INSUFFICIENT_RESOURCES, "Insufficient Resources"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        if (texts[i].result == result)
            return texts[i].text;
    }
    return "Unknown Error";
}

static nvmlReturn_t tell(const char *text, char *to, unsigned int length)
{
    if (!to)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    copy_text(to, length, text);
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    nvmlReturn_t r = nvml_check();

    return r == NVML_SUCCESS ? tell(DRIVER_VERSION, version, length) : r;
}

PUBLIC nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    return tell(NVML_VERSION, version, length);
}

PUBLIC nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = CUDA_VERSION;
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* Finding devices */

PUBLIC nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    nvmlReturn_t r = nvml_check();

    if (r != NVML_SUCCESS)
        return r;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = machine->state->header.gpu_count;
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

PUBLIC nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    nvmlReturn_t r = nvml_check();

    if (r != NVML_SUCCESS)
        return r;
    if (!device || index >= machine->state->header.gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &handles[index];
    return answer_for(index);
}

PUBLIC nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static nvmlReturn_t find_mig(const char *uuid, nvmlDevice_t *device)
{
    nvmlReturn_t r = NVML_ERROR_NOT_FOUND;
    int found;

    (void)nvml_enter();
    found = sim_mig_find(machine->state, uuid, strlen(uuid));
    if (found >= 0) {
        *device = nvml_mig_handle((unsigned)found);
        r = NVML_SUCCESS;
    }
    sim_unlock(machine);
    return r;
}

PUBLIC nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    nvmlReturn_t r = nvml_check();

    if (r != NVML_SUCCESS)
        return r;
    if (!uuid || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < machine->state->header.gpu_count; i++) {
        if (strcasecmp(machine->state->header.gpus[i].uuid, uuid) != 0)
            continue;
        *device = &handles[i];
        return NVML_SUCCESS;
    }
    return find_mig(uuid, device);
}

PUBLIC nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    unsigned domain = 0, bus = 0, slot = 0;
    nvmlReturn_t r = nvml_check();

    if (r != NVML_SUCCESS)
        return r;
    if (!bus_id || !device || sscanf(bus_id, "%8x:%2x:%2x", &domain, &bus, &slot) != 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (domain || slot || bus == 0 || bus > machine->state->header.gpu_count)
        return NVML_ERROR_NOT_FOUND;
    *device = &handles[bus - 1];
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

/* What is constant about them */

/* That of an instance is the one by which nvmlDeviceGetMigDeviceHandleByIndex() finds it. */
PUBLIC nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    unsigned i;
    nvmlReturn_t r = nvml_check_any(device, &i);

    if (r != NVML_SUCCESS)
        return r;
    if (!index)
        return NVML_ERROR_INVALID_ARGUMENT;
    *index = i < SIM_MAX_GPUS ? i : (i - SIM_MAX_GPUS) % SIM_MIG_STARTS;
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    unsigned i;
    nvmlReturn_t r = nvml_check_device(device, &i);

    return r == NVML_SUCCESS ? nvmlDeviceGetIndex(device, minor) : r;
}

PUBLIC nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    unsigned i;
    nvmlReturn_t r = nvml_check_any(device, &i);

    return r == NVML_SUCCESS ? tell(sim_spec_of(machine->state, i)->model, name, length) : r;
}

PUBLIC nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    unsigned i;
    nvmlReturn_t r = nvml_check_any(device, &i);

    return r == NVML_SUCCESS ? tell(sim_spec_of(machine->state, i)->uuid, uuid, length) : r;
}

PUBLIC nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    unsigned i;
    nvmlReturn_t r = nvml_check_device(device, &i);

    if (r != NVML_SUCCESS)
        return r;
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(info, 0, sizeof(*info));
    info->bus = i + 1;
    info->pciDeviceId = 0x20b010de;
    (void)snprintf(info->busIdLegacy, sizeof(info->busIdLegacy), "0000:%02X:00.0", (i + 1) & 0xff);
    (void)snprintf(info->busId, sizeof(info->busId), "00000000:%02X:00.0", (i + 1) & 0xff);
    return NVML_SUCCESS;
}

/* No two cards have more in common than their NUMA node, and NVLinks there are none. */
PUBLIC nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other,
                                                        unsigned int *level)
{
    const struct sim_gpu_spec *gpus;
    unsigned a, b;
    nvmlReturn_t r = nvml_check_device(one, &a);

    if (r == NVML_SUCCESS)
        r = nvml_check_device(other, &b);
    if (r != NVML_SUCCESS)
        return r;
    if (!level)
        return NVML_ERROR_INVALID_ARGUMENT;
    gpus = machine->state->header.gpus;
    if (a == b)
        *level = NVML_TOPOLOGY_INTERNAL;
    else if (gpus[a].numa_node >= 0 && gpus[a].numa_node == gpus[b].numa_node)
        *level = NVML_TOPOLOGY_NODE;
    else
        *level = NVML_TOPOLOGY_SYSTEM;
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                             unsigned int *is_active)
{
    (void)device;
    (void)link;
    (void)is_active;
    return NVML_ERROR_NOT_SUPPORTED;
}

PUBLIC nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                        nvmlPciInfo_t *info)
{
    (void)device;
    (void)link;
    (void)info;
    return NVML_ERROR_NOT_SUPPORTED;
}

PUBLIC nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                        unsigned int *type)
{
    (void)device;
    (void)link;
    (void)type;
    return NVML_ERROR_NOT_SUPPORTED;
}

PUBLIC nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node)
{
    unsigned i;
    nvmlReturn_t r = nvml_check_device(device, &i);

    if (r != NVML_SUCCESS)
        return r;
    if (!node)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (machine->state->header.gpus[i].numa_node < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *node = (unsigned)machine->state->header.gpus[i].numa_node;
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    unsigned i;
    nvmlReturn_t r = nvml_check_device(device, &i);

    if (r != NVML_SUCCESS)
        return r;
    if (!major || !minor)
        return NVML_ERROR_INVALID_ARGUMENT;
    *major = (int)machine->state->header.gpus[i].compute_major;
    *minor = (int)machine->state->header.gpus[i].compute_minor;
    return NVML_SUCCESS;
}
