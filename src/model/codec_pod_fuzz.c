/* SPDX-License-Identifier: Apache-2.0 */

/* Any text is a pod's devices, or an error with a reason; the devices, written again, are read as
 * the same. */

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fuzz.h"
#include "model/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(64 << 20);
    struct pod_devices devices, again;
    struct error err = ERROR_INIT;
    const char *text, *back;
    int r;

    text = arena_strndup(arena, (const char *)data, size);
    r = pod_devices_decode(text, arena, &devices, &err);
    if (r != CODEC_EXACT && !err.text[0] && r != -12)
        abort();
    if (r < 0)
        return 0;
    text = pod_devices_encode(&devices, arena);
    if (!text)
        return 0;
    if (pod_devices_decode(text, arena, &again, &err) != CODEC_EXACT)
        abort();
    back = pod_devices_encode(&again, arena);
    if (back && strcmp(text, back) != 0)
        abort();
    return 0;
}
