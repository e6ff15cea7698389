/* SPDX-License-Identifier: Apache-2.0 */

/* How a node's cards are connected, as a node's agent may have written it. */

#include "vendor/nvidia/score.h"

#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"
#include "vendor/nvidia/mig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size);
    struct arena *arena = arena_new(1 << 20);
    struct device devices[3] = {{.uuid = "a"}, {.uuid = "b"}, {.uuid = ""}};

    if (!text || !arena)
        abort();
    if (nvidia_read_scores(text, devices, 3, arena, NULL) == 0) {
        for (size_t i = 0; i < 9; i++) {
            const struct nvidia_facts *facts = devices[i / 3].facts;

            if (facts->number != i / 3 || (i / 3 == i % 3 && facts->geometry))
                abort();
            (void)nvidia_rules.link(&devices[i / 3], &devices[i % 3]);
        }
    }
    arena_free(arena);
    free(text);
    return 0;
}
