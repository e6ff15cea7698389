/* SPDX-License-Identifier: Apache-2.0 */

/* A pod's grant, a NUL, and its allocations, whatever they hold: the grant comes back as it was, or
 * with names of instances in the places of its cards' uuids, which can be read again. */

#include "node/nvidia/allocations.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fuzz.h"
#include "model/codec.h"

static void check_device(const struct container_device *before,
                         const struct container_device *after)
{
    char profile[NVML_PROFILE_NAME_SIZE];
    size_t len = strlen(before->uuid);
    unsigned start;

    if (before->memory_mib != after->memory_mib || before->cores != after->cores)
        abort();
    if (strcmp(before->uuid, after->uuid) == 0)
        return;
    if (strncmp(before->uuid, after->uuid, len) != 0 || after->uuid[len] != '[' ||
        allocations_parse_name(after->uuid, profile, &start) < 0 || start >= NVML_SLICES)
        abort();
}

static void check(const char *grant, const char *named)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(8 << 20);
    struct pod_devices before, after;

    if (!arena || strcmp(grant, named) == 0)
        return;
    if (pod_devices_decode(grant, arena, &before, NULL) != CODEC_EXACT ||
        pod_devices_decode(named, arena, &after, NULL) != CODEC_EXACT ||
        before.count != after.count)
        abort();
    for (size_t i = 0; i < before.count; i++) {
        if (before.containers[i].count != after.containers[i].count)
            abort();
        for (size_t k = 0; k < before.containers[i].count; k++)
            check_device(&before.containers[i].items[k], &after.containers[i].items[k]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 2), *named;
    const char *allocations;

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = text[size + 1] = '\0';
    allocations = text + strlen(text) + 1;
    named = allocations_name_parts(text, allocations < text + size ? allocations : "");
    if (named)
        check(text, named);
    free(named);
    free(text);
    return 0;
}
