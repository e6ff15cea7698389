/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/allocations.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/util.h"
#include "model/codec.h"
#include "model/mig_allocations.h"
#include "node/nvidia/layout.h"
#include "vendor/nvidia/allowance.h"

enum {
    ARENA_MAX = 4 << 20,
    ALLOCATIONS_LIST_MAX = 1024, /* of a pod; as many as the text can hold, nearly */
};

/* Profiles */

static unsigned most_multiprocessors(const struct nvml_profile *profiles, size_t count)
{
    unsigned most = 1;

    for (size_t i = 0; i < count; i++)
        most = MAX(most, profiles[i].multiprocessors);
    return most;
}

static void format_profile(const struct nvml_profile *profile, const char *name, unsigned most,
                           struct strbuf *text)
{
    strbuf_add(text, text->len > 1 ? ",{\"name\":" : "{\"name\":");
    strbuf_add_json(text, name);
    strbuf_addf(text, ",\"memoryMB\":%llu,\"core\":%u,\"sliceCount\":%u,\"placements\":[",
                (unsigned long long)profile->memory_mib,
                (100 * profile->multiprocessors + most - 1) / most, profile->slices);
    for (size_t i = 0; i < profile->start_count; i++)
        strbuf_addf(text, "%s{\"start\":%u,\"size\":%u}", i ? "," : "", profile->starts[i],
                    profile->size);
    strbuf_add(text, "]}");
}

int allocations_format_profiles(const struct nvidia_config *config, const char *model,
                                const struct nvml_profile *profiles, size_t count,
                                struct strbuf *text)
{
    const struct nvidia_allowance *allowance = allowance_find(config, model);

    if (!allowance)
        return 0;
    strbuf_add(text, "[");
    for (size_t i = 0; i < allowance->profile_count; i++) {
        const char *name = allowance->profiles[i];
        int found = layout_find_profile(name, 0, profiles, count);

        if (found >= 0)
            format_profile(&profiles[found], name, most_multiprocessors(profiles, count), text);
    }
    strbuf_add(text, "]");
    return !text->failed && text->len > 2;
}

/* Names */

int allocations_parse_name(const char *name, char ret_profile[NVML_PROFILE_NAME_SIZE],
                           unsigned *ret_start)
{
    const char *open = strchr(name, '['), *at = open ? strchr(open, '@') : NULL;
    unsigned start;
    char end;

    if (!at || at == open + 1 || at - open - 1 >= NVML_PROFILE_NAME_SIZE ||
        sscanf(at, "@%3u%c", &start, &end) != 2 || end != ']')
        return -EINVAL;
    (void)snprintf(ret_profile, NVML_PROFILE_NAME_SIZE, "%.*s", (int)(at - open - 1), open + 1);
    *ret_start = start;
    return 0;
}

static bool is_profile(const char *text)
{
    return text && *text && strlen(text) < NVML_PROFILE_NAME_SIZE &&
           text[strspn(text, "0123456789abcdefghijklmnopqrstuvwxyz.+")] == '\0';
}

static bool name_part(const struct mig_allocation *allocation, struct pod_devices *devices,
                      struct arena *arena)
{
    struct container_device *item;

    if (!is_profile(allocation->profile) || allocation->container >= devices->count ||
        allocation->device >= devices->containers[allocation->container].count)
        return false;
    item = &devices->containers[allocation->container].items[allocation->device];
    if (strcmp(item->uuid, allocation->gpu_uuid) != 0)
        return false;
    item->uuid = arena_printf(arena, "%s[%s@%u]", allocation->gpu_uuid, allocation->profile,
                              allocation->start);
    return item->uuid != NULL;
}

static const char *name_all(const char *grant, const char *text, struct arena *arena)
{
    struct mig_allocation *allocations =
        ARENA_ARRAY(arena, struct mig_allocation, ALLOCATIONS_LIST_MAX);
    struct pod_devices devices;
    int count;

    if (!allocations || strchr(grant, '[') ||
        pod_devices_decode(grant, arena, &devices, NULL) != CODEC_EXACT)
        return NULL;
    count = mig_allocations_decode(text, strlen(text), allocations, ALLOCATIONS_LIST_MAX);
    for (int i = 0; i < count; i++) {
        if (!name_part(&allocations[i], &devices, arena))
            return NULL;
    }
    return count < 0 ? NULL : pod_devices_encode(&devices, arena);
}

char *allocations_name_parts(const char *grant, const char *allocations)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_MAX);
    const char *named = arena && allocations ? name_all(grant, allocations, arena) : NULL;

    return strdup(named ? named : grant);
}
