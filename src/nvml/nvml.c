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
#include "driver/nvml.h"
#include "nvml/symbols.h"

enum {
    MAX_PROCESSES = 1024,
};

struct nvml {
    void *library;
    bool initialised;
    const char *sysfs;

    nvmlReturn_t (*init)(void);
    nvmlReturn_t (*shutdown)(void);
    const char *(*error_string)(nvmlReturn_t result);
    nvmlReturn_t (*device_count)(unsigned *count);
    nvmlReturn_t (*device_by_index)(unsigned index, nvmlDevice_t *device);
    nvmlReturn_t (*device_name)(nvmlDevice_t device, char *name, unsigned length);
    nvmlReturn_t (*device_uuid)(nvmlDevice_t device, char *uuid, unsigned length);
    nvmlReturn_t (*device_minor)(nvmlDevice_t device, unsigned *minor);
    nvmlReturn_t (*memory_info)(nvmlDevice_t device, nvmlMemory_t *memory);
    nvmlReturn_t (*pci_info)(nvmlDevice_t device, nvmlPciInfo_t *info);
    nvmlReturn_t (*numa_node)(nvmlDevice_t device, unsigned *node);
    nvmlReturn_t (*ancestor)(nvmlDevice_t one, nvmlDevice_t other, unsigned *level);
    nvmlReturn_t (*link_state)(nvmlDevice_t device, unsigned link, unsigned *is_active);
    nvmlReturn_t (*link_pci)(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *info);
    nvmlReturn_t (*link_type)(nvmlDevice_t device, unsigned link, unsigned *type);
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
    {"nvmlDeviceGetPciInfo_v3", offsetof(struct nvml, pci_info)},
    {"nvmlDeviceGetNumaNodeId", offsetof(struct nvml, numa_node)},
    {"nvmlDeviceGetTopologyCommonAncestor", offsetof(struct nvml, ancestor)},
    {"nvmlDeviceGetNvLinkState", offsetof(struct nvml, link_state)},
    {"nvmlDeviceGetNvLinkRemotePciInfo_v2", offsetof(struct nvml, link_pci)},
    {"nvmlDeviceGetNvLinkRemoteDeviceType", offsetof(struct nvml, link_type)},
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
