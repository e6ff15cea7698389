/* SPDX-License-Identifier: Apache-2.0 */

/* Any text is a machine or an error with a reason, and no machine is out of bounds. */

#include "ctl/sim_config.h"

#include <stdlib.h>

#include "base/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = ERROR_INIT;
    struct sim_spec spec;
    int r;

    r = sim_config_parse("fuzz", (const char *)data, size, &spec, &err);
    if (r < 0 && !err.text[0])
        abort();
    if (r == 0 && spec.gpu_count > SIM_MAX_GPUS)
        abort();
    return 0;
}
