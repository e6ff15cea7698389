/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* NVIDIA's side of a node: cards by NVML, the driver by CDI or a driver root, libvgpu. */

#include "node/node_vendor.h"

extern const struct node_vendor nvidia_node_vendor;

/* node_setup.own. The texts outlive the node. */
struct nvidia_node_options {
    const char *cdi_folders;               /* where NVIDIA's toolkit writes, with commas */
    const char *driver_root, *seen_driver; /* on the host, and as we see it; NULL: not given */
    const char *sysfs;
    const char *dev_root; /* in front of /dev/nvidia0 on the host; "" for none */
    bool pass_device_specs;
    const char *procfs;                           /* "/proc" */
    const char *mig_strategy;                     /* "none", "single" or "mixed"; NULL: none */
    const char *disabled_checks, *enabled_checks; /* lists of XIDs (xids.h), may be NULL */
    uint64_t health_quiet_ms;                     /* 0: as health.h has it */
    bool measure_contexts;                        /* what contexts take (sizes.h) */
    uint64_t measure_limit_ms;                    /* 0: as sizes.h has it */
};
