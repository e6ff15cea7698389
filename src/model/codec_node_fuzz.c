/* SPDX-License-Identifier: Apache-2.0 */

/* Any text is devices of a node, or an error with a reason; the devices, written again, can be read
 * again. */

#include <stdlib.h>

#include "base/arena.h"
#include "base/fuzz.h"
#include "model/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(64 << 20);
    struct registered_devices devices, again;
    struct error err = ERROR_INIT;
    const char *text;
    int r;

    text = arena_strndup(arena, (const char *)data, size);
    r = node_devices_decode(text, arena, &devices, &err);
    if (r != CODEC_EXACT && !err.text[0] && r != -12)
        abort();
    if (r < 0)
        return 0;
    text = node_devices_encode_json(&devices, arena);
    if (text && node_devices_decode(text, arena, &again, &err) != CODEC_EXACT)
        abort();
    if (text && again.count != devices.count)
        abort();
    return 0;
}
