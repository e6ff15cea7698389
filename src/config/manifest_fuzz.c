/* SPDX-License-Identifier: Apache-2.0 */
#include "config/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"

static int take(void *data, yyjson_val *object, struct error *err)
{
    (void)err;
    *(size_t *)data += yyjson_get_len(object);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size);
    struct arena *arena = arena_new(16 << 20);
    struct error err = ERROR_INIT;
    size_t taken = 0;
    int r;

    if (!text || !arena)
        abort();
    r = manifest_read("m", text, strlen(text), arena, take, &taken, &err);
    if (r < 0 && !err.text[0])
        abort();
    arena_free(arena);
    free(text);
    return 0;
}
