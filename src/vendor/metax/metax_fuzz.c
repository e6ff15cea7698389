/* SPDX-License-Identifier: Apache-2.0 */

/* A registration, as anybody who may write a Node may have written it. */

#include "vendor/metax/metax.h"

#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct metax_config config = {.vcount_name = "metax-tech.com/sgpu"};
    const struct vendor_instance instance = metax_sgpu_instance(&config);
    static struct device devices[PLACE_MAX_DEVICES];
    struct arena *arena = arena_new(64 << 20);
    char *text = strndup((const char *)data, size);
    const struct text_pair pair = {instance.register_key, text};
    const struct node node = {.name = "n", .annotations = {&pair, 1}};
    size_t count = 0;
    int r;

    if (!arena || !text)
        abort();
    r = instance.vendor->read_node(&instance, &node, arena, devices, PLACE_MAX_DEVICES, &count,
                                   NULL);
    for (size_t i = 0; r > 0 && i < count; i++) {
        if (devices[i].healthy && !devices[i].uuid[0])
            abort();
        if (!devices[i].facts || devices[i].vendor != &instance.id)
            abort();
    }
    arena_free(arena);
    free(text);
    return 0;
}
