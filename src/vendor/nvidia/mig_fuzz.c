/* SPDX-License-Identifier: Apache-2.0 */

/* The name of a part of a card, as anybody may have written it into an annotation. */

#include "vendor/nvidia/mig.h"

#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size);
    struct container_device granted = {.uuid = text};
    struct device_usage usage = {.tasks = 1};
    int group, number;

    if (!text)
        abort();
    nvidia_rules.count(&granted, &usage);
    if (usage.parts &&
        (mig_instance_parse(text, &group, &number) < 0 || usage.parts & (usage.parts - 1)))
        abort();
    free(text);
    return 0;
}
