/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/vendor.h"

#include <errno.h>
#include <string.h>

#include "vendor/nvidia/nvidia.h"

const struct vendor *const vendor_table[] = {
    &nvidia_vendor,
    NULL,
};

const struct vendor_instance *vendor_find(const struct vendor_set *set, const char *common_word)
{
    for (size_t i = 0; i < set->count; i++) {
        if (strcmp(set->instances[i].id.word, common_word) == 0)
            return &set->instances[i];
    }
    return NULL;
}

/* The demand of one container. 1: it asks for something. */
static int read_container(const struct vendor_set *set, const struct pod *pod, size_t container,
                          struct arena *arena, struct container_demand *ret_demand)
{
    struct request *requests = ARENA_ARRAY(arena, struct request, set->count);
    size_t count = 0;
    int r;

    if (!requests)
        return -ENOMEM;
    for (size_t i = 0; i < set->count; i++) {
        const struct vendor_instance *instance = &set->instances[i];

        r = instance->vendor->read_request(instance, pod, container, arena, &requests[count]);
        if (r < 0)
            return r;
        count += r > 0;
    }
    *ret_demand = (struct container_demand){
        .role = pod->containers[container].role,
        .request_count = count,
        .requests = requests,
    };
    return count > 0;
}

int vendor_read_demand(const struct vendor_set *set, const struct pod *pod, struct arena *arena,
                       struct demand *ret_demand)
{
    struct container_demand *containers;
    int r, any = 0;

    containers = ARENA_ARRAY(arena, struct container_demand, pod->container_count);
    if (!containers)
        return -ENOMEM;
    for (size_t i = 0; i < pod->container_count; i++) {
        r = read_container(set, pod, i, arena, &containers[i]);
        if (r < 0)
            return r;
        any |= r;
    }
    *ret_demand = (struct demand){.count = pod->container_count, .containers = containers};
    return any;
}

static bool has_devices(const struct pod_devices *devices)
{
    for (size_t i = 0; i < devices->count; i++) {
        if (devices->containers[i].count)
            return true;
    }
    return false;
}

int vendor_write_annotations(const struct vendor_instance *instance,
                             const struct pod_devices *devices, struct arena *arena,
                             struct text_pair ret_pairs[2])
{
    const char *text;
    int count = 0;

    if (!has_devices(devices))
        return 0;
    text = pod_devices_encode(devices, arena);
    if (!text)
        return -ENOMEM;
    ret_pairs[count++] = (struct text_pair){instance->allocated_key, text};
    if (instance->to_allocate_key)
        ret_pairs[count++] = (struct text_pair){instance->to_allocate_key, text};
    return count;
}
