/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "driver/nvml.h"
#include "nvml/symbols.h"

enum {
    MAX_PROCESSES = 1024,
};

struct nvml {
    void *library;
    bool initialised;

    nvmlReturn_t (*init)(void);
    nvmlReturn_t (*shutdown)(void);
    const char *(*error_string)(nvmlReturn_t result);
    nvmlReturn_t (*device_count)(unsigned *count);
    nvmlReturn_t (*device_by_index)(unsigned index, nvmlDevice_t *device);
    nvmlReturn_t (*device_name)(nvmlDevice_t device, char *name, unsigned length);
    nvmlReturn_t (*device_uuid)(nvmlDevice_t device, char *uuid, unsigned length);
    nvmlReturn_t (*device_minor)(nvmlDevice_t device, unsigned *minor);
    nvmlReturn_t (*memory_info)(nvmlDevice_t device, nvmlMemory_t *memory);
    nvmlReturn_t (*numa_node)(nvmlDevice_t device, unsigned *node);
    nvmlReturn_t (*utilization)(nvmlDevice_t device, nvmlUtilization_t *rates);
    nvmlReturn_t (*processes)(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v2_t *infos);
};

static const struct symbol symbols[] = {
    {"nvmlInit_v2", offsetof(struct nvml, init), .required = true},
    {"nvmlShutdown", offsetof(struct nvml, shutdown), .required = true},
    {"nvmlErrorString", offsetof(struct nvml, error_string)},
    {"nvmlDeviceGetCount_v2", offsetof(struct nvml, device_count), .required = true},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(struct nvml, device_by_index), .required = true},
    {"nvmlDeviceGetName", offsetof(struct nvml, device_name), .required = true},
    {"nvmlDeviceGetUUID", offsetof(struct nvml, device_uuid), .required = true},
    {"nvmlDeviceGetMinorNumber", offsetof(struct nvml, device_minor)},
    {"nvmlDeviceGetMemoryInfo", offsetof(struct nvml, memory_info), .required = true},
    {"nvmlDeviceGetNumaNodeId", offsetof(struct nvml, numa_node)},
    {"nvmlDeviceGetUtilizationRates", offsetof(struct nvml, utilization)},
    {"nvmlDeviceGetComputeRunningProcesses_v3", offsetof(struct nvml, processes)},
};

static int fail(const struct nvml *nvml, const char *what, nvmlReturn_t result, struct error *err)
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
        return fail(nvml, "cannot initialise NVML", result, err);
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

/* A device that cannot be read keeps what could be, and is not healthy. */
static void read_device(struct nvml *nvml, unsigned index, struct device *device)
{
    nvmlMemory_t memory = {0};
    nvmlDevice_t handle;
    unsigned node;

    *device = (struct device){
        .index = index,
        .numa_node = -1,
        .cores = DEVICE_CORES,
        .slots = DEVICE_DEFAULT_SLOTS,
    };

    if (nvml->device_by_index(index, &handle) != NVML_SUCCESS)
        return;
    if (nvml->device_uuid(handle, device->uuid, sizeof(device->uuid)) != NVML_SUCCESS)
        return;
    if (nvml->device_name(handle, device->model, sizeof(device->model)) != NVML_SUCCESS)
        return;
    if (nvml->memory_info(handle, &memory) != NVML_SUCCESS)
        return;
    device->memory_bytes = memory.total;
    if (nvml->numa_node && nvml->numa_node(handle, &node) == NVML_SUCCESS && node <= INT32_MAX)
        device->numa_node = (int)node;
    device->healthy = true;
}

int nvml_list(struct nvml *nvml, struct device *ret_devices, size_t max, struct error *err)
{
    nvmlReturn_t result;
    unsigned count;

    result = nvml->device_count(&count);
    if (result != NVML_SUCCESS)
        return fail(nvml, "cannot count the GPUs", result, err);
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
        return fail(nvml, "cannot find the GPU's device node", result, err);
    *ret_minor = minor;
    return 0;
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
        return fail(nvml, "cannot find the GPU", result, err);
    result = nvml->memory_info(handle, &memory);
    if (result != NVML_SUCCESS)
        return fail(nvml, "cannot read the GPU's memory", result, err);

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
        return fail(nvml, "cannot list processes", result, err);

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
