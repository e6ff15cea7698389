/* SPDX-License-Identifier: Apache-2.0 */

/* Any text is a list of instances with names and places, or none. */

#include "model/mig_allocations.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"

static void check(const struct mig_allocation *allocation)
{
    if (!allocation->gpu_uuid[0] || !allocation->profile[0] ||
        allocation->container > MIG_ALLOCATIONS_CONTAINERS_MAX ||
        allocation->device > MIG_ALLOCATIONS_CONTAINERS_MAX)
        abort();
    if (!allocation->size || allocation->start >= MIG_SLICES ||
        allocation->start + allocation->size > MIG_SLICES)
        abort();
    if (allocation->made != (allocation->mig_uuid[0] != '\0'))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mig_allocation allocations[4];
    int count = mig_allocations_decode((const char *)data, size, allocations, 4);

    if (count > 4)
        abort();
    for (int i = 0; i < count; i++)
        check(&allocations[i]);
    return 0;
}
