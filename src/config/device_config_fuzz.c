/* SPDX-License-Identifier: Apache-2.0 */

/* Any text is a configuration within its bounds, or an error with a reason. */

#include "config/device_config.h"

#include <stdlib.h>

#include "base/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = ERROR_INIT;
    struct device_config config;
    struct vendor_set vendors;
    int r;

    r = device_config_parse("fuzz", (const char *)data, size, &config, &err);
    if (r < 0) {
        if (!err.text[0])
            abort();
        return 0;
    }
    if (!config.nvidia.split_count || config.nvidia.memory_scaling <= 0 ||
        config.nvidia.cores_scaling <= 0 || config.nvidia.default_memory_mib < 0 ||
        config.nvidia.memory_factor < 0)
        abort();
    device_config_vendors(&config, &vendors);
    if (vendors.count != config.has_nvidia)
        abort();
    return 0;
}
