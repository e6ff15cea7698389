/* SPDX-License-Identifier: Apache-2.0 */

/* Any JSON is a pod and a node, or an error with a reason. */

#include <stdlib.h>

#include "base/fuzz.h"
#include "model/json.h"
#include "model/node.h"
#include "model/pod.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct kept_names kept = {1, 1, 2, {"nvidia.com/"}, {"CUDA_"}, {"gpu", "zone"}};
    CLEANUP(arena_freep) struct arena *arena = arena_new(16 << 20);
    struct error err = ERROR_INIT;
    struct node node;
    struct pod pod;
    yyjson_val *root;

    if (json_parse((const char *)data, size, arena, &root, &err) < 0) {
        if (!err.text[0])
            abort();
        return 0;
    }
    if (pod_read(root, &kept, arena, &pod, &err) < 0 && !err.text[0])
        abort();
    err.text[0] = '\0';
    if (node_read(root, &kept, arena, &node, &err) < 0 && !err.text[0])
        abort();
    return 0;
}
