/* SPDX-License-Identifier: Apache-2.0 */

/* Any text is a configuration within its bounds, or an error with a reason. */

#include "config/device_config.h"

#include <stdlib.h>

#include "base/fuzz.h"
#include "vendor/nvidia/nvidia.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = ERROR_INIT;
    struct device_config config;
    const struct nvidia_config *nvidia;
    struct vendor_set vendors;
    int r;

    r = device_config_parse("fuzz", (const char *)data, size, &config, &err);
    if (r < 0) {
        if (!err.text[0])
            abort();
        return 0;
    }
    nvidia = device_config_of(&config, &nvidia_vendor);
    if (nvidia &&
        (!nvidia->split_count || nvidia->memory_scaling <= 0 || nvidia->cores_scaling <= 0 ||
         nvidia->default_memory_mib < 0 || nvidia->memory_factor < 0))
        abort();
    if (device_config_vendors(&config, &vendors) < 0 || (nvidia && !vendors.count))
        abort();
    device_config_deinit(&config);
    return 0;
}
