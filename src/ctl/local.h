/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* This machine's devices, real or simulated, and where its state is. */

#include "base/error.h"
#include "ctl/paths.h"
#include "nvml/nvml.h"

enum {
    LOCAL_MAX_DEVICES = 64,
};

struct local {
    struct paths paths;
    char machine[PATH_MAX]; /* the simulated machine; "": a real one */
    char state[PATH_MAX];   /* the ledger's directory */
    struct nvml *nvml;
    size_t device_count;
    struct device devices[LOCAL_MAX_DEVICES];
    bool is_split[LOCAL_MAX_DEVICES]; /* in MIG mode: CUDA has no such device; never healthy */
};

/*
 * Finds the devices. With a simulated machine HAMI_SIM is made absolute in the environment. When
 * there are none, err says how to get some. -ETIMEDOUT: the driver hangs (see patience.h).
 */
int local_open(struct local *ret_local, struct error *err);
void local_close(struct local *local);
