/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* NVML's functions, as found in the library. Within this folder. */

#include "driver/nvml.h"
#include "nvml/nvml.h"

/* Each may be missing. */
struct nvml_mig {
    nvmlReturn_t (*set_mode)(nvmlDevice_t device, unsigned mode, nvmlReturn_t *activation);
    nvmlReturn_t (*profile_info)(nvmlDevice_t device, unsigned profile,
                                 nvmlGpuInstanceProfileInfo_t *info);
    nvmlReturn_t (*placements)(nvmlDevice_t device, unsigned id,
                               nvmlGpuInstancePlacement_t *placements, unsigned *count);
    nvmlReturn_t (*create)(nvmlDevice_t device, unsigned id,
                           const nvmlGpuInstancePlacement_t *placement,
                           nvmlGpuInstance_t *instance);
    nvmlReturn_t (*destroy)(nvmlGpuInstance_t instance);
    nvmlReturn_t (*list)(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instances,
                         unsigned *count);
    nvmlReturn_t (*by_id)(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance);
    nvmlReturn_t (*info)(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info);
    nvmlReturn_t (*compute_profile_info)(nvmlGpuInstance_t instance, unsigned profile,
                                         unsigned engines, nvmlComputeInstanceProfileInfo_t *info);
    nvmlReturn_t (*create_compute)(nvmlGpuInstance_t instance, unsigned id,
                                   nvmlComputeInstance_t *compute);
    nvmlReturn_t (*destroy_compute)(nvmlComputeInstance_t compute);
    nvmlReturn_t (*list_computes)(nvmlGpuInstance_t instance, unsigned id,
                                  nvmlComputeInstance_t *computes, unsigned *count);
    nvmlReturn_t (*max_devices)(nvmlDevice_t device, unsigned *count);
    nvmlReturn_t (*device_by_index)(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig);
    nvmlReturn_t (*gpu_instance_id)(nvmlDevice_t device, unsigned *id);
    nvmlReturn_t (*compute_instance_id)(nvmlDevice_t device, unsigned *id);
    nvmlReturn_t (*attributes)(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes);
};

struct nvml {
    void *library;
    bool initialised;
    const char *sysfs;

    nvmlReturn_t (*init)(void);
    nvmlReturn_t (*shutdown)(void);
    const char *(*error_string)(nvmlReturn_t result);
    nvmlReturn_t (*driver_version)(char *version, unsigned length);
    nvmlReturn_t (*cuda_version)(int *version);
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
    nvmlReturn_t (*graphics)(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v2_t *infos);
    nvmlReturn_t (*mps)(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v2_t *infos);
    nvmlReturn_t (*process_utilization)(nvmlDevice_t device,
                                        nvmlProcessUtilizationSample_t *samples, unsigned *count,
                                        unsigned long long since_us);
    nvmlReturn_t (*ecc_errors)(nvmlDevice_t device, unsigned error, unsigned counter,
                               unsigned long long *count);
    nvmlReturn_t (*compute_mode)(nvmlDevice_t device, unsigned *mode);
    nvmlReturn_t (*mig_mode)(nvmlDevice_t device, unsigned *current, unsigned *pending);
    nvmlReturn_t (*field_values)(nvmlDevice_t device, int count, nvmlFieldValue_t *values);
    nvmlReturn_t (*event_types)(nvmlDevice_t device, unsigned long long *types);
    nvmlReturn_t (*register_events)(nvmlDevice_t device, unsigned long long types,
                                    nvmlEventSet_t set);
    nvmlReturn_t (*event_set_create)(nvmlEventSet_t *set);
    nvmlReturn_t (*event_set_wait)(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms);
    nvmlReturn_t (*event_set_free)(nvmlEventSet_t set);
    struct nvml_mig mig;
};

/* Says what failed and why; -EIO. */
int nvml_fail(const struct nvml *nvml, const char *what, nvmlReturn_t result, struct error *err);
