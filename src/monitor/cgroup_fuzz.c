/* SPDX-License-Identifier: Apache-2.0 */

/* Any text names a pod by a uid that is one, or none. */

#include "monitor/cgroup.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char uid[CGROUP_UID_SIZE], *text = malloc(size + 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (cgroup_read_pod(text, uid) && (strspn(uid, "0123456789abcdefABCDEF-") != strlen(uid) ||
                                       (strlen(uid) != 36 && strlen(uid) != 32)))
        abort();
    free(text);
    return 0;
}
