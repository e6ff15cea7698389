/* SPDX-License-Identifier: Apache-2.0 */

/* What this process charges and gives back, on the ledger, in its own count, in HAMi's mirror. */

#include "region/ledger.h"
#include "region/orphans.h"
#include "vgpu/contexts.h"
#include "vgpu/real.h"
#include "vgpu/vgpu.h"

struct vgpu_device *vgpu_device(CUdevice handle)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (vgpu.devices[i].handle == handle)
            return &vgpu.devices[i];
    }
    return NULL;
}

static CUresult find_current(struct vgpu_device **ret_device)
{
    CUdevice handle;
    CUresult result = REAL(cuCtxGetDevice)(&handle);

    *ret_device = result == CUDA_SUCCESS ? vgpu_device(handle) : NULL;
    return result;
}

struct vgpu_device *vgpu_current_device(void)
{
    struct vgpu_device *device;

    (void)find_current(&device);
    return device;
}

/* A context that has ended is no known one either: of that the driver says so. */
bool vgpu_gives_nothing(void)
{
    enum vgpu_mode mode = vgpu_mode();
    struct vgpu_device *device;

    return mode == VGPU_DENIED || (mode == VGPU_ON && context_current() == CONTEXTS_MAX &&
                                   find_current(&device) == CUDA_SUCCESS);
}

CUresult vgpu_find_granted(struct vgpu_device **ret_device)
{
    *ret_device = NULL;
    if (vgpu_gives_nothing())
        return CUDA_ERROR_OUT_OF_MEMORY;
    return vgpu_mode() == VGPU_ON ? find_current(ret_device) : CUDA_SUCCESS;
}

/* HAMi's readers know the kinds apart. */
static void mirror(const struct vgpu_device *device, enum vgpu_kind kind, int64_t units)
{
    struct region_slot *slot = &vgpu.region.base->slots[vgpu.region.slot];
    struct region_memory *used = &slot->used[device->index];
    uint64_t bytes = (uint64_t)(units * LEDGER_UNIT);

    if (kind == VGPU_DATA)
        used->data_size += bytes;
    else if (kind == VGPU_CONTEXT)
        used->context_size += bytes;
    else
        used->module_size += bytes;
    used->total =
        ledger_held(vgpu.region.ext, (unsigned)vgpu.region.slot, device->index) * LEDGER_UNIT;
    /* What HAMi-core has from NVML is on the account, hidden memory included. */
    atomic_store_explicit(&slot->monitor_used[device->index], used->total, memory_order_relaxed);
}

static bool charge_once(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    uint64_t limit = atomic_load_explicit(&device->limit_units, memory_order_relaxed);
    enum ledger_outcome outcome = LEDGER_REFUSED;

    if (limit != LEDGER_UNITS_MAX &&
        (atomic_load(&vgpu.region_lost) || atomic_load(&vgpu.limits_lost)))
        return false;
    if (!units)
        return true;
    (void)pthread_mutex_lock(&device->lock);
    /* The tenant can write the region, its own memory it must not: one process alone can't exceed
     * the limit, whatever the region's words say. */
    if (units <= limit && device->own_units <= limit - units)
        outcome =
            ledger_charge(vgpu.region.ext, (unsigned)vgpu.region.slot, device->index, units, limit);
    if (outcome == LEDGER_CHARGED) {
        device->own_units += units;
        mirror(device, kind, (int64_t)units);
    }
    (void)pthread_mutex_unlock(&device->lock);
    return outcome == LEDGER_CHARGED;
}

bool vgpu_try_charge_now(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    if (charge_once(device, kind, units))
        return true;
    return region_settle(&vgpu.region) > 0 && charge_once(device, kind, units);
}

bool vgpu_try_charge(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    (void)vgpu_refresh();
    return vgpu_try_charge_now(device, kind, units);
}

void vgpu_count_refusal(const struct vgpu_device *device, enum region_refusal reason)
{
    struct region_ext *ext = vgpu.region.ext;
    unsigned slot = (unsigned)vgpu.region.slot;

    atomic_fetch_add_explicit(&ext->refusals[slot][device->index].by_reason[reason], 1,
                              memory_order_relaxed);
    if (reason <= REGION_REFUSAL_CODE)
        atomic_fetch_add_explicit(&ext->devices[device->index].refusals, 1, memory_order_relaxed);
}

_Static_assert(REGION_REFUSAL_DATA == (int)VGPU_DATA &&
                   REGION_REFUSAL_CONTEXT == (int)VGPU_CONTEXT &&
                   REGION_REFUSAL_CODE == (int)VGPU_MODULE,
               "a refused charge is counted by its kind");

bool vgpu_charge(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    if (vgpu_try_charge(device, kind, units))
        return true;
    vgpu_count_refusal(device, (enum region_refusal)kind);
    return false;
}

void vgpu_charge_anyway(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    if (!units)
        return;
    (void)pthread_mutex_lock(&device->lock);
    if (ledger_charge(vgpu.region.ext, (unsigned)vgpu.region.slot, device->index, units,
                      LEDGER_UNITS_MAX) == LEDGER_CHARGED) {
        device->own_units += units;
        mirror(device, kind, (int64_t)units);
    }
    (void)pthread_mutex_unlock(&device->lock);
}

void vgpu_discharge(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    if (!units)
        return;
    (void)pthread_mutex_lock(&device->lock);
    ledger_discharge(vgpu.region.ext, (unsigned)vgpu.region.slot, device->index, units);
    device->own_units -= MIN(units, device->own_units);
    mirror(device, kind, -(int64_t)units);
    (void)pthread_mutex_unlock(&device->lock);
}

void vgpu_recharge(struct vgpu_device *device, enum vgpu_kind from, enum vgpu_kind to,
                   uint64_t units)
{
    (void)pthread_mutex_lock(&device->lock);
    mirror(device, from, -(int64_t)units);
    mirror(device, to, (int64_t)units);
    (void)pthread_mutex_unlock(&device->lock);
}

void vgpu_lend(const struct vgpu_device *device, int64_t units)
{
    if (units)
        orphans_lend(vgpu.region.ext, (unsigned)vgpu.region.slot, device->index, units);
}

uint64_t vgpu_used_bytes(unsigned region_index)
{
    (void)region_settle(&vgpu.region);
    return ledger_total(vgpu.region.ext, region_index) * LEDGER_UNIT;
}
