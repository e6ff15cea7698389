/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A made-up NVML, any call of which can be made to fail. What a test asks beyond handles, names,
 * memory and the MIG mode it makes up itself, with nvml_fixture_answer().
 */

#include "nvml/internal.h"

enum {
    NVML_FIXTURE_DEVICES = 2, /* at most */
};

struct nvml_fixture_device {
    const char *uuid, *name;
    unsigned long long memory_bytes;
};

extern struct nvml_fixture {
    const struct nvml_fixture_device *devices; /* by index */
    unsigned calls;                            /* of nvml_fixture_answer() */
    unsigned failing; /* the call that fails, counted from 1; 0: none does */
    nvmlReturn_t failure;
} nvml_fixture;

/* No call was made yet, and none will fail; if one is made to, then with failure. Puts the
 * functions of the fixture into nvml, and leaves the others. */
void nvml_fixture_init(struct nvml *nvml, const struct nvml_fixture_device *devices,
                       nvmlReturn_t failure);

/* The result of this call. */
nvmlReturn_t nvml_fixture_answer(void);

/* Of a handle that was given out. */
unsigned nvml_fixture_index(nvmlDevice_t device);
