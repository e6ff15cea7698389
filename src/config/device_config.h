/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * HAMi's device-config.yaml. Section `nvidia` is read, and a key that it does not have is an error;
 * the sections of other vendors are known by name and passed over; any other section is an error.
 */

#include "base/error.h"
#include "vendor/nvidia/nvidia.h"
#include "vendor/vendor.h"

struct device_config {
    bool has_nvidia; /* false: the section is missing, and nvidia holds the defaults of a missing
                        one */
    struct nvidia_config nvidia;
};

/*
 * The configuration of a file of at most 256 KiB, which has a section nvidia that names what is
 * counted. What is wrong is told with the key and its line
 * and column: -EINVAL; -EFBIG, -ENOENT and the like for the file itself. The output is untouched
 * then.
 */
int device_config_load(const char *path, struct device_config *ret_config, struct error *err);

/* The same for text, which name stands for in messages. */
int device_config_parse(const char *name, const char *text, size_t len,
                        struct device_config *ret_config, struct error *err);

/* The configured vendors. The set points into the configuration, which outlives it. */
void device_config_vendors(const struct device_config *config, struct vendor_set *ret_set);
