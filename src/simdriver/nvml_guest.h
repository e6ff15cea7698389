/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The inside of the simulated libnvidia-ml.so.1. It looks at the machine and takes no part in it:
 * no slot, no context. A device's handle is the address of its number in a table here.
 */

#include "driver/nvml.h"
#include "simdriver/model.h"

/* NVML_SUCCESS between nvmlInit and the last nvmlShutdown. */
nvmlReturn_t nvml_check(void);

/* As above, and the device exists and answers: its index. A card that hangs is waited for. */
nvmlReturn_t nvml_check_device(nvmlDevice_t device, unsigned *ret_index);

nvmlDevice_t nvml_handle(unsigned index);

/* As nvml_check_device(), or a MIG device that is there: its number among SIM_DEVICES. */
nvmlReturn_t nvml_check_any(nvmlDevice_t device, unsigned *ret_device);

/* Under the machine's lock: the handle of a MIG device that is there. */
nvmlDevice_t nvml_mig_handle(unsigned device);

/* The machine, once nvml_check() succeeded. */
struct sim *nvml_machine(void);

/* Locks the machine, without its dead, at now. */
int64_t nvml_enter(void);

/* The same without the dead of one GPU, the device or the one that it is a part of. */
int64_t nvml_enter_device(unsigned device);
