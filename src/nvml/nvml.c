/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml/nvml.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/parse.h"
#include "base/util.h"
#include "nvml/internal.h"
#include "nvml/symbols.h"

enum {
    MAX_PROCESSES = 1024,
};

static const struct symbol symbols[] = {
    {"nvmlInit_v2", offsetof(struct nvml, init), .required = true},
    {"nvmlShutdown", offsetof(struct nvml, shutdown), .required = true},
    {"nvmlErrorString", offsetof(struct nvml, error_string)},
    {"nvmlSystemGetDriverVersion", offsetof(struct nvml, driver_version)},
    {"nvmlSystemGetCudaDriverVersion_v2", offsetof(struct nvml, cuda_version)},
    {"nvmlDeviceGetCount_v2", offsetof(struct nvml, device_count), .required = true},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(struct nvml, device_by_index), .required = true},
    {"nvmlDeviceGetName", offsetof(struct nvml, device_name), .required = true},
    {"nvmlDeviceGetUUID", offsetof(struct nvml, device_uuid), .required = true},
    {"nvmlDeviceGetMinorNumber", offsetof(struct nvml, device_minor)},
    {"nvmlDeviceGetMemoryInfo", offsetof(struct nvml, memory_info), .required = true},
    {"nvmlDeviceGetPciInfo_v3", offsetof(struct nvml, pci_info)},
    {"nvmlDeviceGetNumaNodeId", offsetof(struct nvml, numa_node)},
    {"nvmlDeviceGetTopologyCommonAncestor", offsetof(struct nvml, ancestor)},
    {"nvmlDeviceGetNvLinkState", offsetof(struct nvml, link_state)},
    {"nvmlDeviceGetNvLinkRemotePciInfo_v2", offsetof(struct nvml, link_pci)},
    {"nvmlDeviceGetNvLinkRemoteDeviceType", offsetof(struct nvml, link_type)},
    {"nvmlDeviceGetUtilizationRates", offsetof(struct nvml, utilization)},
    {"nvmlDeviceGetComputeRunningProcesses_v3", offsetof(struct nvml, processes)},
    {"nvmlDeviceGetGraphicsRunningProcesses_v3", offsetof(struct nvml, graphics)},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v3", offsetof(struct nvml, mps)},
    {"nvmlDeviceGetProcessUtilization", offsetof(struct nvml, process_utilization)},
    {"nvmlDeviceGetTotalEccErrors", offsetof(struct nvml, ecc_errors)},
    {"nvmlDeviceGetComputeMode", offsetof(struct nvml, compute_mode)},
    {"nvmlDeviceGetMigMode", offsetof(struct nvml, mig_mode)},
    {"nvmlDeviceGetFieldValues", offsetof(struct nvml, field_values)},
    {"nvmlDeviceGetSupportedEventTypes", offsetof(struct nvml, event_types)},
    {"nvmlDeviceRegisterEvents", offsetof(struct nvml, register_events)},
    {"nvmlEventSetCreate", offsetof(struct nvml, event_set_create)},
    {"nvmlEventSetWait_v2", offsetof(struct nvml, event_set_wait)},
    {"nvmlEventSetFree", offsetof(struct nvml, event_set_free)},
    {"nvmlDeviceSetMigMode", offsetof(struct nvml, mig.set_mode)},
    {"nvmlDeviceGetGpuInstanceProfileInfo", offsetof(struct nvml, mig.profile_info)},
    {"nvmlDeviceGetGpuInstancePossiblePlacements_v2", offsetof(struct nvml, mig.placements)},
    {"nvmlDeviceCreateGpuInstanceWithPlacement", offsetof(struct nvml, mig.create)},
    {"nvmlGpuInstanceDestroy", offsetof(struct nvml, mig.destroy)},
    {"nvmlDeviceGetGpuInstances", offsetof(struct nvml, mig.list)},
    {"nvmlDeviceGetGpuInstanceById", offsetof(struct nvml, mig.by_id)},
    {"nvmlGpuInstanceGetInfo", offsetof(struct nvml, mig.info)},
    {"nvmlGpuInstanceGetComputeInstanceProfileInfo",
     offsetof(struct nvml, mig.compute_profile_info)},
    {"nvmlGpuInstanceCreateComputeInstance", offsetof(struct nvml, mig.create_compute)},
    {"nvmlComputeInstanceDestroy", offsetof(struct nvml, mig.destroy_compute)},
    {"nvmlGpuInstanceGetComputeInstances", offsetof(struct nvml, mig.list_computes)},
    {"nvmlDeviceGetMaxMigDeviceCount", offsetof(struct nvml, mig.max_devices)},
    {"nvmlDeviceGetMigDeviceHandleByIndex", offsetof(struct nvml, mig.device_by_index)},
    {"nvmlDeviceGetGpuInstanceId", offsetof(struct nvml, mig.gpu_instance_id)},
    {"nvmlDeviceGetComputeInstanceId", offsetof(struct nvml, mig.compute_instance_id)},
    {"nvmlDeviceGetAttributes_v2", offsetof(struct nvml, mig.attributes)},
};

int nvml_fail(const struct nvml *nvml, const char *what, nvmlReturn_t result, struct error *err)
{
    const char *why = nvml->error_string ? nvml->error_string(result) : NULL;

    return error_set(err, -EIO, "%s: %s (NVML error %d)", what, why ? why : "no reason given",
                     result);
}

static int load(struct nvml *nvml, const char *library, struct error *err)
{
    nvmlReturn_t result;
    int r;

    nvml->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!nvml->library)
        return error_set(err, -ENOENT, "cannot open %s: %s", library, dlerror());

    r = symbols_load(nvml->library, symbols, ARRAY_SIZE(symbols), nvml, err);
    if (r < 0)
        return error_wrap(err, r, "cannot use %s", library);

    result = nvml->init();
    if (result != NVML_SUCCESS)
        return nvml_fail(nvml, "cannot initialise NVML", result, err);
    nvml->initialised = true;
    return 0;
}

int nvml_open(const char *library, struct nvml **ret_nvml, struct error *err)
{
    struct nvml *nvml;
    int r;

    nvml = calloc(1, sizeof(*nvml));
    if (!nvml)
        return error_set(err, -ENOMEM, "cannot open %s: out of memory", library);
    nvml->sysfs = "/sys";

    r = load(nvml, library, err);
    if (r < 0) {
        nvml_close(nvml);
        return r;
    }
    *ret_nvml = nvml;
    return 0;
}

void nvml_close(struct nvml *nvml)
{
    if (!nvml)
        return;
    if (nvml->initialised)
        (void)nvml->shutdown();
    /* The library stays loaded: vendors' libraries start threads that must not lose their code. */
    free(nvml);
}

int nvml_folder(const struct nvml *nvml, char ret_folder[PATH_MAX])
{
    void *symbol = dlsym(nvml->library, "nvmlInit_v2");
    char *slash;
    Dl_info info;

    if (!symbol || !dladdr(symbol, &info) || !realpath(info.dli_fname, ret_folder))
        return -ENOENT;
    slash = strrchr(ret_folder, '/');
    *slash = '\0';
    return 0;
}

int nvml_read_version(struct nvml *nvml, char ret_version[NVML_VERSION_SIZE], struct error *err)
{
    char version[NVML_VERSION_SIZE];
    nvmlReturn_t result;

    if (!nvml->driver_version)
        return error_set(err, -EIO, "this NVML does not tell the driver's version");
    result = nvml->driver_version(version, sizeof(version));
    if (result != NVML_SUCCESS)
        return nvml_fail(nvml, "cannot read the driver's version", result, err);
    copy_text(ret_version, NVML_VERSION_SIZE, version);
    return 0;
}

int nvml_read_cuda_version(struct nvml *nvml)
{
    int version;

    return nvml->cuda_version && nvml->cuda_version(&version) == NVML_SUCCESS ? version : -EIO;
}

void nvml_set_sysfs(struct nvml *nvml, const char *folder)
{
    nvml->sysfs = folder;
}

/* NVML's "00000000:3B:00.0" is "0000:3b:00.0" to the kernel. */
static void path_of_numa(const struct nvml *nvml, const char *bus_id, char *path, size_t size)
{
    char name[sizeof(((nvmlPciInfo_t *)0)->busId)];
    size_t len = strlen(bus_id), skip = len > 12 ? len - 12 : 0;

    copy_text(name, sizeof(name), bus_id + skip);
    for (char *p = name; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    (void)snprintf(path, size, "%s/bus/pci/devices/%s/numa_node", nvml->sysfs, name);
}

static bool is_simulated(void)
{
    const char *machine = getenv("HAMI_SIM");

    return machine && *machine;
}

/*
 * The node that the card is attached to, which the kernel knows; NVML's NUMA node is that of a
 * card's own memory, on machines where it is part of the system's. Simulated cards are on no bus.
 */
static int read_numa_node(const struct nvml *nvml, nvmlDevice_t handle)
{
    char path[PATH_MAX], text[16];
    nvmlPciInfo_t info;
    uint64_t number;
    unsigned node;

    if (is_simulated())
        return nvml->numa_node && nvml->numa_node(handle, &node) == NVML_SUCCESS &&
                       node <= INT32_MAX
                   ? (int)node
                   : -1;
    if (!nvml->pci_info || nvml->pci_info(handle, &info) != NVML_SUCCESS)
        return -1;
    info.busId[sizeof(info.busId) - 1] = '\0';
    if (strchr(info.busId, '/'))
        return -1;
    path_of_numa(nvml, info.busId, path, sizeof(path));
    if (file_read(path, text, sizeof(text)) < 0)
        return -1;
    text[strcspn(text, "\n")] = '\0';
    return parse_u64(text, &number) == 0 && number <= INT32_MAX ? (int)number : -1;
}

/*
 * A device that cannot be read keeps what could be, and is not healthy. One whose memory is the
 * system's has none of its own to tell of: 0, and healthy.
 */
static void read_device(struct nvml *nvml, unsigned index, struct device *device)
{
    nvmlMemory_t memory = {0};
    nvmlDevice_t handle;
    nvmlReturn_t result;

    *device = (struct device){
        .index = index,
        .numa_node = -1,
        .cores = DEVICE_CORES,
        .max_tasks = DEVICE_DEFAULT_MAX_TASKS,
    };

    if (nvml->device_by_index(index, &handle) != NVML_SUCCESS)
        return;
    if (nvml->device_uuid(handle, device->uuid, sizeof(device->uuid)) != NVML_SUCCESS)
        return;
    if (nvml->device_name(handle, device->model, sizeof(device->model)) != NVML_SUCCESS)
        return;
    result = nvml->memory_info(handle, &memory);
    if (result != NVML_SUCCESS && result != NVML_ERROR_NOT_SUPPORTED)
        return;
    device->memory_bytes = result == NVML_SUCCESS ? memory.total : 0;
    device->numa_node = read_numa_node(nvml, handle);
    device->healthy = true;
}

int nvml_list(struct nvml *nvml, struct device *ret_devices, size_t max, struct error *err)
{
    nvmlReturn_t result;
    unsigned count;

    result = nvml->device_count(&count);
    if (result != NVML_SUCCESS)
        return nvml_fail(nvml, "cannot count the GPUs", result, err);
    if (count > max)
        return error_set(err, -E2BIG, "%u GPUs are more than the %zu supported", count, max);

    for (unsigned i = 0; i < count; i++)
        read_device(nvml, i, &ret_devices[i]);
    return (int)count;
}

int nvml_read_minor(struct nvml *nvml, unsigned index, unsigned *ret_minor, struct error *err)
{
    nvmlDevice_t handle;
    nvmlReturn_t result;
    unsigned minor;

    if (!nvml->device_minor)
        return error_set(err, -EIO, "this NVML does not tell a GPU's device node");
    result = nvml->device_by_index(index, &handle);
    if (result == NVML_SUCCESS)
        result = nvml->device_minor(handle, &minor);
    if (result != NVML_SUCCESS)
        return nvml_fail(nvml, "cannot find the GPU's device node", result, err);
    *ret_minor = minor;
    return 0;
}

/* NVML writes a domain with eight digits or with four, and letters of either case. */
static void shorten_bus_id(const nvmlPciInfo_t *info, char ret_bus_id[NVML_BUS_ID_SIZE])
{
    const char *text = info->busId;
    size_t len = strnlen(text, sizeof(info->busId)), zeros = strspn(text, "0");

    zeros += zeros < len && text[zeros] == ':';
    (void)snprintf(ret_bus_id, NVML_BUS_ID_SIZE, "%.*s", (int)(len - zeros), text + zeros);
    for (char *p = ret_bus_id; *p; p++)
        *p = (char)tolower((unsigned char)*p);
}

int nvml_read_bus_id(struct nvml *nvml, unsigned index, char ret_bus_id[NVML_BUS_ID_SIZE])
{
    nvmlDevice_t handle;
    nvmlPciInfo_t info;

    if (!nvml->pci_info || nvml->device_by_index(index, &handle) != NVML_SUCCESS ||
        nvml->pci_info(handle, &info) != NVML_SUCCESS)
        return -EIO;
    shorten_bus_id(&info, ret_bus_id);
    return 0;
}

size_t nvml_read_links(struct nvml *nvml, unsigned index,
                       struct nvml_link ret_links[NVML_LINKS_MAX])
{
    nvmlDevice_t handle;
    size_t count = 0;

    if (!nvml->link_state || nvml->device_by_index(index, &handle) != NVML_SUCCESS)
        return 0;
    for (unsigned i = 0; i < NVML_LINKS_MAX; i++) {
        struct nvml_link *link = &ret_links[count];
        unsigned active, type;
        nvmlPciInfo_t info;

        if (nvml->link_state(handle, i, &active) != NVML_SUCCESS || !active)
            continue;
        *link = (struct nvml_link){.to_switch = false};
        link->to_switch = nvml->link_type && nvml->link_type(handle, i, &type) == NVML_SUCCESS &&
                          type == NVML_NVLINK_DEVICE_TYPE_SWITCH;
        if (nvml->link_pci && nvml->link_pci(handle, i, &info) == NVML_SUCCESS)
            shorten_bus_id(&info, link->bus_id);
        count++;
    }
    return count;
}

int nvml_read_ancestor(struct nvml *nvml, unsigned one, unsigned other)
{
    nvmlDevice_t first, second;
    unsigned level;

    if (!nvml->ancestor || nvml->device_by_index(one, &first) != NVML_SUCCESS ||
        nvml->device_by_index(other, &second) != NVML_SUCCESS ||
        nvml->ancestor(first, second, &level) != NVML_SUCCESS || level > INT_MAX)
        return -EIO;
    return (int)level;
}

int nvml_read_status(struct nvml *nvml, unsigned index, struct nvml_status *ret_status,
                     struct error *err)
{
    nvmlUtilization_t rates;
    nvmlMemory_t memory;
    nvmlDevice_t handle;
    nvmlReturn_t result;

    result = nvml->device_by_index(index, &handle);
    if (result != NVML_SUCCESS)
        return nvml_fail(nvml, "cannot find the GPU", result, err);
    result = nvml->memory_info(handle, &memory);
    if (result != NVML_SUCCESS)
        return nvml_fail(nvml, "cannot read the GPU's memory", result, err);

    *ret_status = (struct nvml_status){
        .memory_total_bytes = memory.total,
        .memory_used_bytes = memory.used,
    };
    if (nvml->utilization && nvml->utilization(handle, &rates) == NVML_SUCCESS) {
        ret_status->has_utilization = true;
        ret_status->utilization_percent = rates.gpu;
        ret_status->controller_percent = rates.memory;
    }
    return 0;
}

int nvml_list_processes(struct nvml *nvml, unsigned index, struct nvml_process *ret_processes,
                        size_t max, struct error *err)
{
    AUTOFREE nvmlProcessInfo_v2_t *infos = NULL;
    unsigned count = MAX_PROCESSES;
    nvmlDevice_t handle;
    nvmlReturn_t result;

    if (!nvml->processes)
        return error_set(err, -ENOSYS, "this NVML does not list processes");
    infos = calloc(MAX_PROCESSES, sizeof(*infos));
    if (!infos)
        return error_set(err, -ENOMEM, "cannot list processes: out of memory");

    result = nvml->device_by_index(index, &handle);
    if (result == NVML_SUCCESS)
        result = nvml->processes(handle, &count, infos);
    if (result != NVML_SUCCESS)
        return nvml_fail(nvml, "cannot list processes", result, err);

    if (count > max)
        count = (unsigned)max;
    for (unsigned i = 0; i < count; i++) {
        ret_processes[i] = (struct nvml_process){
            .pid = (pid_t)infos[i].pid,
            .memory_bytes = infos[i].usedGpuMemory,
        };
    }
    return (int)count;
}

/* Counts since the last reset. With ECC off, or on a card without it, there are none. */
static void read_errors(const struct nvml *nvml, nvmlDevice_t handle, struct nvml_health *health)
{
    unsigned long long corrected, uncorrected;

    health->has_errors = nvml->ecc_errors &&
                         nvml->ecc_errors(handle, NVML_ECC_CORRECTED, NVML_ECC_VOLATILE,
                                          &corrected) == NVML_SUCCESS &&
                         nvml->ecc_errors(handle, NVML_ECC_UNCORRECTED, NVML_ECC_VOLATILE,
                                          &uncorrected) == NVML_SUCCESS;
    if (!health->has_errors)
        return;
    health->corrected = corrected;
    health->uncorrected = uncorrected;
}

/* What a driver does not tell is as it usually is. */
static void read_modes(const struct nvml *nvml, nvmlDevice_t handle, struct nvml_health *health)
{
    unsigned mode, pending;

    health->compute_mode = NVML_COMPUTE_DEFAULT;
    if (nvml->compute_mode && nvml->compute_mode(handle, &mode) == NVML_SUCCESS)
        health->compute_mode = mode;
    health->is_split =
        nvml->mig_mode && nvml->mig_mode(handle, &mode, &pending) == NVML_SUCCESS && mode == 1;
}

int nvml_read_health(struct nvml *nvml, unsigned index, struct nvml_health *ret_health,
                     struct error *err)
{
    nvmlFieldValue_t value = {.fieldId = NVML_FIELD_RECOVERY_ACTION};
    struct nvml_health health = {.has_errors = false};
    nvmlMemory_t memory;
    nvmlDevice_t handle;
    nvmlReturn_t result;

    result = nvml->device_by_index(index, &handle);
    if (result == NVML_SUCCESS)
        result = nvml->memory_info(handle, &memory);
    if (result != NVML_SUCCESS && result != NVML_ERROR_NOT_SUPPORTED)
        return nvml_fail(nvml, "NVML", result, err);
    read_errors(nvml, handle, &health);
    health.has_action = nvml->field_values &&
                        nvml->field_values(handle, 1, &value) == NVML_SUCCESS &&
                        value.nvmlReturn == NVML_SUCCESS;
    health.action = health.has_action ? value.value.uiVal : 0;
    read_modes(nvml, handle, &health);
    *ret_health = health;
    return 0;
}

static size_t add_process(const nvmlProcessInfo_v2_t *info, struct nvml_process *processes,
                          size_t count, size_t max)
{
    bool in_instance = info->gpuInstanceId != NVML_NO_INSTANCE;

    for (size_t i = 0; i < count; i++) {
        if (processes[i].pid != (pid_t)info->pid || processes[i].in_instance != in_instance ||
            (in_instance && processes[i].gpu_instance != info->gpuInstanceId))
            continue;
        if (processes[i].memory_bytes != NVML_VALUE_NOT_AVAILABLE_ULL)
            processes[i].memory_bytes = MAX(processes[i].memory_bytes, info->usedGpuMemory);
        return count;
    }
    if (count == max)
        return count;
    processes[count] = (struct nvml_process){
        .pid = (pid_t)info->pid,
        .memory_bytes = info->usedGpuMemory,
        .in_instance = in_instance,
        .gpu_instance = in_instance ? info->gpuInstanceId : 0,
    };
    return count + 1;
}

/* One that a driver lacks is passed over, but for that of programs that compute. */
int nvml_list_all_processes(struct nvml *nvml, unsigned index, struct nvml_process *ret_processes,
                            size_t max, struct error *err)
{
    nvmlReturn_t (*const lists[])(nvmlDevice_t, unsigned *, nvmlProcessInfo_v2_t *) = {
        nvml->processes, nvml->graphics, nvml->mps};
    AUTOFREE nvmlProcessInfo_v2_t *infos = calloc(MAX_PROCESSES, sizeof(*infos));
    nvmlDevice_t handle;
    nvmlReturn_t result;
    size_t found = 0;

    if (!nvml->processes || !infos)
        return error_set(err, infos ? -ENOSYS : -ENOMEM, "cannot list processes");
    result = nvml->device_by_index(index, &handle);
    for (size_t i = 0; i < ARRAY_SIZE(lists) && result == NVML_SUCCESS; i++) {
        unsigned count = MAX_PROCESSES;
        nvmlReturn_t listed = lists[i] ? lists[i](handle, &count, infos) : NVML_ERROR_NOT_SUPPORTED;

        if (listed != NVML_SUCCESS && i == 0)
            result = listed;
        for (unsigned k = 0; listed == NVML_SUCCESS && k < MIN(count, (unsigned)MAX_PROCESSES); k++)
            found = add_process(&infos[k], ret_processes, found, max);
    }
    if (result != NVML_SUCCESS)
        return nvml_fail(nvml, "cannot list processes", result, err);
    return (int)found;
}

int nvml_read_process_times(struct nvml *nvml, unsigned index, uint64_t since_us,
                            struct nvml_process_time *ret_times, size_t max)
{
    AUTOFREE nvmlProcessUtilizationSample_t *samples = calloc(MAX_PROCESSES, sizeof(*samples));
    unsigned count = MAX_PROCESSES;
    nvmlDevice_t handle;

    if (!nvml->process_utilization || !samples ||
        nvml->device_by_index(index, &handle) != NVML_SUCCESS ||
        nvml->process_utilization(handle, samples, &count, since_us) != NVML_SUCCESS)
        return 0; /* NVML says so, too, when no process did anything */
    count = (unsigned)MIN((size_t)MIN(count, (unsigned)MAX_PROCESSES), max);
    for (unsigned i = 0; i < count; i++)
        ret_times[i] = (struct nvml_process_time){(pid_t)samples[i].pid, samples[i].smUtil};
    return (int)count;
}
