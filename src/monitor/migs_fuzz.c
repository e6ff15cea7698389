/* SPDX-License-Identifier: Apache-2.0 */

/* Any text is a list of instances with names, or none. */

#include "monitor/migs.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mig migs[4];
    int count = migs_parse((const char *)data, size, migs, 4);

    if (count > 4)
        abort();
    for (int i = 0; i < count; i++) {
        if (!migs[i].gpu_uuid[0] || !migs[i].mig_uuid[0] || !migs[i].profile[0] ||
            migs[i].container > MIGS_CONTAINERS_MAX || migs[i].device > MIGS_CONTAINERS_MAX)
            abort();
    }
    return 0;
}
