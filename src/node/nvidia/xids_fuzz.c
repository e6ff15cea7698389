/* SPDX-License-Identifier: Apache-2.0 */

/* Whatever a list of XIDs holds, what is read of it is within its bounds, and each counts as said.
 */

#include "node/nvidia/xids.h"

#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct xid_rules rules = {.enabled = {.count = 0}};

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    (void)xid_list_parse(text, &rules.disabled);
    if (rules.disabled.count > XIDS_MAX)
        abort();
    for (size_t i = 0; i < rules.disabled.count; i++) {
        if (xid_counts(&rules, rules.disabled.xids[i]))
            abort();
    }
    if (rules.disabled.all && (xid_counts(&rules, 79) || !xid_rules_are_off(&rules)))
        abort();
    rules.enabled = rules.disabled;
    for (size_t i = 0; i < rules.enabled.count; i++) {
        if (!xid_counts(&rules, rules.enabled.xids[i]))
            abort();
    }
    free(text);
    return 0;
}
