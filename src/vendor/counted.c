/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/counted.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

enum {
    ID_TAIL_MAX = 24, /* of the bytes of an id: what follows the node's name */
};

int64_t counted_amount(const struct resource_list *resources, const char *name)
{
    const struct resource *found = *name ? resource_find(resources, name) : NULL;

    return found && found->quantity.form == QUANTITY_WHOLE ? MAX(found->quantity.value, 0) : 0;
}

/* Of those that are there; all where nothing is said. */
static int64_t count_healthy(const struct node *node, const char *name, int64_t count)
{
    if (!resource_find(&node->allocatable, name))
        return count;
    return MIN(counted_amount(&node->allocatable, name), count);
}

/* Of a long name the first part is enough: an id tells apart the devices of one node. */
static void name_device(const struct node *node, const char *word, size_t number,
                        struct device *device)
{
    (void)snprintf(device->uuid, sizeof(device->uuid), "%.*s-%s-%zu",
                   DEVICE_UUID_SIZE - ID_TAIL_MAX - 1, node->name, word, number);
}

int counted_list(const struct vendor_instance *instance, const struct node *node,
                 const struct counted *counted, struct device *ret_devices, size_t max,
                 size_t *ret_count, struct error *err)
{
    const size_t listed = (size_t)MIN(MAX(counted->count, INT64_C(0)), (int64_t)max);

    if (counted->count <= 0)
        return error_set(err, -ENOENT, "no %s", counted->resource);
    for (size_t i = 0; i < listed; i++) {
        ret_devices[i] = counted->sample;
        ret_devices[i].vendor = &instance->id;
        ret_devices[i].index = (unsigned)i;
        ret_devices[i].healthy = (int64_t)i >= counted->count - counted->healthy;
        name_device(node, counted->word, i, &ret_devices[i]);
    }
    *ret_count = listed;
    if (listed == (size_t)counted->count)
        return CODEC_EXACT;
    return error_set(err, CODEC_MENDED, "status.capacity[%s]: more devices than a node can have",
                     counted->resource);
}

int counted_read(const struct vendor_instance *instance, const struct node *node, const char *word,
                 const struct device *sample, struct device *ret_devices, size_t max,
                 size_t *ret_count, struct error *err)
{
    const int64_t count = counted_amount(&node->capacity, instance->count_resource);
    const struct counted counted = {
        .resource = instance->count_resource,
        .word = word,
        .count = count,
        .healthy = count_healthy(node, instance->count_resource, count),
        .sample = *sample,
    };

    return counted_list(instance, node, &counted, ret_devices, max, ret_count, err);
}
