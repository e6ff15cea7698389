/* SPDX-License-Identifier: Apache-2.0 */

/* Any text is a specification of ours with names that are names, or none. */

#include "node/spec.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct spec_owner owner;

    if (spec_read((const char *)data, size, &owner) < 0)
        return 0;
    if (!owner.name[0] || !owner.pod_uid[0] || !owner.container[0] || strchr(owner.name, '/') ||
        strchr(owner.pod_uid, '/') || strchr(owner.container, '/'))
        abort();
    return 0;
}
