/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * HAMi's device-config.yaml. Section `nvidia` is read, and an unknown key in it is an error; the
 * sections of other vendors are passed over; any other section is an error.
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
 * Reads a file of at most 256 KiB; its section nvidia must name the counted resource. -EINVAL with
 * the key, its line and column in err; -EFBIG, -ENOENT and the like for the file itself.
 */
int device_config_load(const char *path, struct device_config *ret_config, struct error *err);

/* The same for a text; name stands for it in messages. */
int device_config_parse(const char *name, const char *text, size_t len,
                        struct device_config *ret_config, struct error *err);

/* The configured vendors. The set points into the configuration, which outlives it. */
void device_config_vendors(const struct device_config *config, struct vendor_set *ret_set);
