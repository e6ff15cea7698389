/* SPDX-License-Identifier: Apache-2.0 */

/* Any text is a configuration within its bounds, or an error with a reason. */

#include "node/nvidia/node_config.h"

#include <stdlib.h>

#include "base/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char mode[DEVICE_MODE_SIZE] = "hami-core";
    struct card_filter filter = {0};
    struct nvidia_config config;
    struct error err = ERROR_INIT;
    int r;

    nvidia_config_defaults(&config);
    r = node_config_parse("fuzz", (const char *)data, size, "n", &config, &filter, mode, &err);
    if (r < 0 && !err.text[0])
        abort();
    if (config.split_count < 1 || config.split_count > 1000 || !(config.memory_scaling > 0) ||
        filter.uuid_count > CARDS_MAX || filter.index_count > CARDS_MAX || !mode[0])
        abort();
    return 0;
}
