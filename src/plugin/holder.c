/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/holder.h"

#include <errno.h>
#include <string.h>
#include <yyjson.h>

#include "base/util.h"
#include "grpc/podresources.pb-c.h"

static bool has_id(const char *const *ids, size_t count, const char *id)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(ids[i], id) == 0)
            return true;
    }
    return false;
}

/* How many of a container's devices are among the ids; *ret_held: how many it has. */
static size_t count_shared(const Podresources__V1__ContainerResources *container,
                           const char *resource, const char *const *ids, size_t count,
                           size_t *ret_held)
{
    size_t shared = 0, held = 0;

    for (size_t i = 0; i < container->n_devices; i++) {
        const Podresources__V1__ContainerDevices *devices = container->devices[i];

        if (strcmp(devices->resource_name, resource) != 0)
            continue;
        held += devices->n_device_ids;
        for (size_t k = 0; k < devices->n_device_ids; k++)
            shared += has_id(ids, count, devices->device_ids[k]);
    }
    *ret_held = held;
    return shared;
}

static bool fits(const char *text, size_t size)
{
    return *text && strlen(text) < size;
}

static int keep_pod(const Podresources__V1__PodResources *pod, const char *container,
                    struct holder *holder)
{
    if (!fits(pod->name, sizeof(holder->pod)) ||
        !fits(pod->namespace_, sizeof(holder->namespace)) ||
        strlen(container) >= sizeof(holder->container))
        return -EPROTO;
    COPY_TEXT(holder->pod, pod->name);
    COPY_TEXT(holder->namespace, pod->namespace_);
    COPY_TEXT(holder->container, container);
    return HOLDER_FOUND;
}

/* Finds the container with exactly these ids; else the pod that has some of them. */
static int find_container(const Podresources__V1__ListPodResourcesResponse *list,
                          const char *resource, const char *const *ids, size_t count,
                          struct holder *holder)
{
    const Podresources__V1__PodResources *partly = NULL;

    for (size_t i = 0; i < list->n_pod_resources; i++) {
        const Podresources__V1__PodResources *pod = list->pod_resources[i];

        for (size_t k = 0; k < pod->n_containers; k++) {
            size_t held, shared;

            shared = count_shared(pod->containers[k], resource, ids, count, &held);
            if (shared == count && held == count)
                return keep_pod(pod, pod->containers[k]->name, holder);
            if (shared)
                partly = pod;
        }
    }
    return partly ? keep_pod(partly, "", holder) : HOLDER_NONE;
}

int holder_of_list(const uint8_t *message, size_t len, const char *resource, const char *const *ids,
                   size_t count, struct holder *holder)
{
    Podresources__V1__ListPodResourcesResponse *list;
    int r;

    list = podresources__v1__list_pod_resources_response__unpack(NULL, len, message);
    if (!list)
        return -EPROTO;
    r = find_container(list, resource, ids, count, holder);
    podresources__v1__list_pod_resources_response__free_unpacked(list, NULL);
    return r;
}

/* An entry's devices: {"<NUMA node>": ["id", ...], ...}. */
static bool entry_has(yyjson_val *devices, const char *const *ids, size_t count)
{
    size_t index, max, id_index, id_max, shared = 0, held = 0;
    yyjson_val *key, *list, *id;

    if (!yyjson_is_obj(devices))
        return false;
    yyjson_obj_foreach(devices, index, max, key, list)
    {
        yyjson_arr_foreach(list, id_index, id_max, id)
        {
            held++;
            shared += yyjson_is_str(id) && has_id(ids, count, yyjson_get_str(id));
        }
    }
    return held == count && shared == count;
}

static int find_entry(yyjson_val *root, const char *resource, const char *const *ids, size_t count,
                      struct holder *holder)
{
    yyjson_val *entries = yyjson_obj_get(yyjson_obj_get(root, "Data"), "PodDeviceEntries");
    size_t index, max;
    yyjson_val *entry;

    if (!yyjson_is_arr(entries) && !yyjson_is_null(entries))
        return -EPROTO;
    yyjson_arr_foreach(entries, index, max, entry)
    {
        const char *name = yyjson_get_str(yyjson_obj_get(entry, "ResourceName"));
        const char *uid = yyjson_get_str(yyjson_obj_get(entry, "PodUID"));

        if (!name || !uid || strcmp(name, resource) != 0 ||
            !entry_has(yyjson_obj_get(entry, "DeviceIDs"), ids, count))
            continue;
        if (!fits(uid, sizeof(holder->uid)))
            return -EPROTO;
        COPY_TEXT(holder->uid, uid);
        return HOLDER_FOUND;
    }
    return HOLDER_NONE;
}

int holder_of_checkpoint(const char *text, size_t len, const char *resource, const char *const *ids,
                         size_t count, struct holder *holder)
{
    yyjson_doc *doc = yyjson_read(text, len, 0);
    int r;

    if (!doc)
        return -EPROTO;
    r = find_entry(yyjson_doc_get_root(doc), resource, ids, count, holder);
    yyjson_doc_free(doc);
    return r;
}

static void each_id(yyjson_val *devices, void (*fn)(void *data, const char *id), void *data)
{
    size_t index, max, id_index, id_max;
    yyjson_val *key, *list, *id;

    if (!yyjson_is_obj(devices))
        return;
    yyjson_obj_foreach(devices, index, max, key, list)
    {
        yyjson_arr_foreach(list, id_index, id_max, id)
        {
            if (yyjson_is_str(id))
                fn(data, yyjson_get_str(id));
        }
    }
}

int holder_each_id(const char *text, size_t len, const char *resource,
                   void (*fn)(void *data, const char *id), void *data)
{
    yyjson_doc *doc = yyjson_read(text, len, 0);
    yyjson_val *entries =
        yyjson_obj_get(yyjson_obj_get(yyjson_doc_get_root(doc), "Data"), "PodDeviceEntries");
    size_t index, max;
    yyjson_val *entry;

    if (!doc)
        return -EPROTO;
    yyjson_arr_foreach(entries, index, max, entry)
    {
        const char *name = yyjson_get_str(yyjson_obj_get(entry, "ResourceName"));

        if (name && strcmp(name, resource) == 0)
            each_id(yyjson_obj_get(entry, "DeviceIDs"), fn, data);
    }
    yyjson_doc_free(doc);
    return 0;
}
