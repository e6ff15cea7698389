/* SPDX-License-Identifier: Apache-2.0 */

/* Any body is answered with JSON, or refused with a reason; a patch is a list of steps. */

#include "admit/admit.h"

#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"
#include "model/json.h"
#include "vendor/nvidia/nvidia.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct admit_options options = {"hami-scheduler", true};
    CLEANUP(arena_freep) struct arena *arena = arena_new(64 << 20);
    struct vendor_set vendors = {0};
    struct nvidia_config config;
    struct error err = ERROR_INIT;
    const char *body;
    yyjson_val *root;
    size_t len;
    int r;

    nvidia_config_defaults(&config);
    config.overwrite_env = true;
    memcpy(config.core_policy, "force", sizeof("force"));
    memcpy(config.runtime_class, "nvidia", sizeof("nvidia"));
    nvidia_add_instance(&vendors, &config);

    r = admit_review(&options, &vendors, (const char *)data, size, arena, &body, &len, &err);
    if (r < 0) {
        if (!err.text[0])
            abort();
        return 0;
    }
    if (json_parse(body, len, arena, &root, &err) < 0 ||
        !yyjson_is_str(yyjson_obj_get(yyjson_obj_get(root, "response"), "uid")))
        abort();
    return 0;
}
