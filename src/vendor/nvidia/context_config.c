/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/nvidia/context_config.h"

#include <stddef.h>

#include "base/parse.h"
#include "base/util.h"
#include "vendor/nvidia/models_config.h"

static int read_models(const struct section_reading *reading, const struct section *list,
                       const char *path, void *to)
{
    struct nvidia_context *context = to;

    return models_config_read(reading, list, path, context->names, &context->name_count);
}

static const char *read_memory(const char *text, void *to)
{
    uint64_t mib;

    if (parse_u64(text, &mib) < 0 || !mib || mib > NVIDIA_CONTEXT_MAX_MIB)
        return "not a whole number of MiB from 1 to 65536";
    *(uint32_t *)to = (uint32_t)mib;
    return NULL;
}

static const struct section_key context_keys[] = {
    {.name = "models", .read_value = read_models},
    {.name = "memory", .read = read_memory, .offset = offsetof(struct nvidia_context, mib)},
};

int context_config_read(const struct section_reading *reading, const struct section *list,
                        const char *path, void *to)
{
    struct nvidia_config *config = to;
    int r = section_check_list(reading, list, path, NVIDIA_MIG_MODELS);

    for (size_t i = 0; r == 0 && i < list->count; i++) {
        struct nvidia_context *context = &config->contexts[i];

        r = section_read_keys(reading, &list->items[i], path, context_keys,
                              ARRAY_SIZE(context_keys), context);
        if (r == 0 && (!context->name_count || !context->mib))
            r = section_refuse(reading, list->items[i].place, path,
                               "an entry needs models and memory");
        config->context_count = i + 1;
    }
    return r;
}
