/* SPDX-License-Identifier: Apache-2.0 */

/* Any bytes as a runtime's status make bounded facts, or are refused. */

#include "plugin/fitness.h"

#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fitness fitness = {.has_runtime = true, .cdi_folder = "/var/run/cdi"};
    struct error why = ERROR_INIT;

    if (runtime_facts_read(data, size, &fitness.runtime) < 0)
        return 0;
    if (strlen(fitness.runtime.cdi_folders) >= sizeof(fitness.runtime.cdi_folders) ||
        strlen(fitness.runtime.default_handler) >= sizeof(fitness.runtime.default_handler))
        abort();
    (void)fitness_judge(&fitness, &why);
    return 0;
}
