/* SPDX-License-Identifier: Apache-2.0 */

/* Any bytes as kubelet's list or checkpoint name a holder of bounded names, none, or are refused.
 */

#include "plugin/holder.h"

#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"

static void check_id(void *data, const char *id)
{
    *(size_t *)data += strlen(id);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const ids[] = {"GPU-1-0", "GPU-1-1"};
    struct holder holder = {.namespace = ""};
    size_t bytes = 0;

    (void)holder_each_id((const char *)data, size, "nvidia.com/gpu", check_id, &bytes);
    if (bytes > size)
        abort();
    for (size_t count = 1; count <= 2; count++) {
        if (holder_of_list(data, size, "nvidia.com/gpu", ids, count, &holder) == HOLDER_FOUND &&
            (!holder.pod[0] || strlen(holder.pod) >= sizeof(holder.pod)))
            abort();
        if (holder_of_checkpoint((const char *)data, size, "nvidia.com/gpu", ids, count, &holder) ==
                HOLDER_FOUND &&
            !holder.uid[0])
            abort();
    }
    return 0;
}
