/* SPDX-License-Identifier: Apache-2.0 */

/* Any bytes, in pieces of any length, are a bounded message, the beginning of one, or an error. */

#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"
#include "base/util.h"
#include "grpc/h2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct grpc_frame frame = {.max = 1 << 16};
    size_t piece = size ? (size_t)data[0] + 1 : 1, at = 1, len;
    char decoded[64], encoded[256];
    int r = GRPC_FRAME_MORE;

    while (at < size && r > 0) {
        r = grpc_frame_add(&frame, data + at, MIN(piece, size - at));
        at += MIN(piece, size - at);
        if (r > 0 && (r == GRPC_FRAME_DONE) != grpc_frame_is_done(&frame))
            abort();
    }
    if (r == GRPC_FRAME_DONE) {
        (void)grpc_frame_message(&frame, &len);
        if (len > frame.max)
            abort();
    }
    grpc_frame_deinit(&frame);

    grpc_decode_message((const char *)data, size, decoded, sizeof(decoded));
    if (strlen(decoded) >= sizeof(decoded))
        abort();
    grpc_encode_message(decoded, encoded, sizeof(encoded));
    return 0;
}
