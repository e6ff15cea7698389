/* SPDX-License-Identifier: Apache-2.0 */

/* Any text is a configuration with a server, or an error with a reason. */

#include "kube/config.h"

#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(kube_config_freep) struct kube_config *config = NULL;
    struct error err = ERROR_INIT;
    int r;

    r = kube_config_parse("fuzz", "/etc", (const char *)data, size, &config, &err);
    if (r < 0 && !err.text[0])
        abort();
    if (r == 0 && (!config->server || strncmp(config->server, "http", 4) != 0))
        abort();
    return 0;
}
