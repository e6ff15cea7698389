/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/overhead.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "region/ledger.h"
#include "vgpu/allocations.h"
#include "vgpu/contexts.h"
#include "vgpu/real.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void overhead_after_fork(void)
{
    (void)pthread_mutex_init(&lock, NULL);
}

static bool nvml_device(const struct vgpu_device *device, nvmlDevice_t *ret_handle)
{
    static bool initialised;

    if (!real_nvml() || !REAL(nvmlDeviceGetHandleByUUID) || !REAL(nvmlInit_v2))
        return false;
    if (!initialised)
        initialised = REAL(nvmlInit_v2)() == NVML_SUCCESS;
    return initialised && REAL(nvmlDeviceGetHandleByUUID)(device->uuid, ret_handle) == NVML_SUCCESS;
}

/* What NVML says that this process has on a device; false when it does not know the process. */
static bool nvml_used_by_us(nvmlDevice_t handle, uint64_t *ret_bytes)
{
    static nvmlProcessInfo_v2_t infos[1024];
    unsigned int count = ARRAY_SIZE(infos);
    unsigned int pid = (unsigned int)syscall(SYS_getpid);

    if (!REAL(nvmlDeviceGetComputeRunningProcesses_v3) ||
        REAL(nvmlDeviceGetComputeRunningProcesses_v3)(handle, &count, infos) != NVML_SUCCESS)
        return false;
    for (unsigned i = 0; i < MIN(count, (unsigned)ARRAY_SIZE(infos)); i++) {
        if (infos[i].pid != pid || infos[i].usedGpuMemory == NVML_VALUE_NOT_AVAILABLE_ULL)
            continue;
        *ret_bytes = infos[i].usedGpuMemory;
        return true;
    }
    return false;
}

static bool nvml_used_by_all(nvmlDevice_t handle, uint64_t *ret_bytes)
{
    nvmlMemory_t memory;

    if (!REAL(nvmlDeviceGetMemoryInfo) ||
        REAL(nvmlDeviceGetMemoryInfo)(handle, &memory) != NVML_SUCCESS)
        return false;
    *ret_bytes = memory.used;
    return true;
}

static uint64_t held_units(const struct vgpu_device *device)
{
    return ledger_held(vgpu.region.ext, (unsigned)vgpu.region.slot, device->index);
}

/* Bytes that are not in our account, less those charged in advance. 0 when it can't be told. */
static uint64_t measure(const struct overhead *overhead, bool *by_process)
{
    uint64_t used, accounted = (held_units(overhead->device) - overhead->charged) * LEDGER_UNIT;
    nvmlDevice_t handle;

    *by_process = false;
    if (!nvml_device(overhead->device, &handle))
        return 0;
    if (nvml_used_by_us(handle, &used)) {
        *by_process = true;
        return used - MIN(used, accounted);
    }
    return nvml_used_by_all(handle, &used) ? used : 0;
}

static _Atomic uint64_t *known_context_units(const struct vgpu_device *device)
{
    return &vgpu.region.ext->devices[device->index].context_units;
}

/* What is known of the size: for a context, what the last one took. */
static uint64_t expected_units(struct overhead *overhead)
{
    uint64_t units;

    if (overhead->kind != VGPU_CONTEXT)
        return 0;
    units = atomic_load(known_context_units(overhead->device));
    if (units)
        return MIN(units, LEDGER_UNITS_MAX);

    overhead->first = region_measure(&vgpu.region) == 0;
    return MIN(atomic_load(known_context_units(overhead->device)), LEDGER_UNITS_MAX);
}

static void leave(struct overhead *overhead)
{
    if (overhead->first)
        region_measured(&vgpu.region);
    (void)pthread_mutex_unlock(&lock);
}

bool overhead_begin(struct overhead *overhead, struct vgpu_device *device, enum vgpu_kind kind)
{
    uint64_t units;

    (void)pthread_mutex_lock(&lock);
    *overhead = (struct overhead){.device = device, .kind = kind};
    units = expected_units(overhead);
    if (units && !vgpu_charge(device, kind, units)) {
        leave(overhead);
        return false;
    }
    overhead->charged = units;
    overhead->before_bytes = measure(overhead, &overhead->by_process);
    return true;
}

/* A process without a context is not in NVML's list yet: then it had nothing. */
static uint64_t measure_growth(struct overhead *overhead)
{
    bool by_process;
    uint64_t after = measure(overhead, &by_process);
    uint64_t before = overhead->by_process == by_process ? overhead->before_bytes : 0;

    return ledger_units(after - MIN(after, before));
}

static enum overhead_outcome settle_charge(struct overhead *overhead, uint64_t units)
{
    if (units < overhead->charged) {
        vgpu_discharge(overhead->device, overhead->kind, overhead->charged - units);
    } else if (units > overhead->charged &&
               !vgpu_charge(overhead->device, overhead->kind, units - overhead->charged)) {
        vgpu_discharge(overhead->device, overhead->kind, overhead->charged);
        return OVERHEAD_REFUSED;
    }
    return OVERHEAD_CHARGED;
}

enum overhead_outcome overhead_end(struct overhead *overhead, bool made, uint64_t *ret_units)
{
    enum overhead_outcome outcome = OVERHEAD_NOTHING;
    uint64_t units = made ? measure_growth(overhead) : 0;

    if (made) {
        outcome = settle_charge(overhead, units);
        if (overhead->kind == VGPU_CONTEXT && units)
            atomic_store(known_context_units(overhead->device), units);
    } else if (overhead->charged) {
        vgpu_discharge(overhead->device, overhead->kind, overhead->charged);
    }

    leave(overhead);
    *ret_units = outcome == OVERHEAD_CHARGED ? units : 0;
    return outcome;
}

void overhead_remember(const void *handle, struct vgpu_device *device, uint64_t units)
{
    struct allocation entry = {
        .units = units,
        .device = (unsigned)(device - vgpu.devices),
        .context = context_current(),
    };

    if (units)
        (void)allocations_add(ALLOCATION_MODULE, (uint64_t)(uintptr_t)handle, &entry);
}

void overhead_forget(const void *handle)
{
    struct allocation entry;

    if (allocations_take(ALLOCATION_MODULE, (uint64_t)(uintptr_t)handle, &entry))
        vgpu_discharge(&vgpu.devices[entry.device], VGPU_MODULE, entry.units);
}
