/* SPDX-License-Identifier: Apache-2.0 */

/* Any bytes are a message of each kind that peers send, or none; a message can be packed again. */

#include <stdlib.h>

#include "base/fuzz.h"
#include "base/util.h"
#include "grpc/deviceplugin.pb-c.h"
#include "grpc/podresources.pb-c.h"

static const ProtobufCMessageDescriptor *const kinds[] = {
    &v1beta1__allocate_request__descriptor,
    &v1beta1__pre_start_container_request__descriptor,
    &v1beta1__register_request__descriptor,
    &v1beta1__list_and_watch_response__descriptor,
    &v1beta1__allocate_response__descriptor,
    &podresources__v1__list_pod_resources_response__descriptor,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        ProtobufCMessage *message = protobuf_c_message_unpack(kinds[i], NULL, size, data);
        uint8_t *packed;
        size_t len;

        if (!message)
            continue;
        len = protobuf_c_message_get_packed_size(message);
        packed = malloc(len + 1);
        if (!packed || protobuf_c_message_pack(message, packed) != len)
            abort();
        free(packed);
        protobuf_c_message_free_unpacked(message, NULL);
    }
    return 0;
}
