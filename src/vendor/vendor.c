/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/vendor.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "model/keys.h"

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

int vendor_read_grant(const struct vendor_instance *instance, const char *text,
                      const struct text_pairs *annotations, struct arena *arena,
                      struct pod_devices *ret_devices, struct error *err)
{
    int r = pod_devices_decode(text, arena, ret_devices, err), recalled = 0;

    if (r >= 0 && instance->vendor->recall)
        recalled = instance->vendor->recall(instance, annotations, arena, ret_devices);
    return recalled < 0 ? recalled : r;
}

static bool has_devices(const struct pod_devices *devices)
{
    for (size_t i = 0; i < devices->count; i++) {
        if (devices->containers[i].count)
            return true;
    }
    return false;
}

int vendor_annotate_add(struct vendor_annotations *annotations, const char *key, const char *value)
{
    if (!value || annotations->count == VENDOR_MAX_ANNOTATIONS)
        return -ENOMEM;
    annotations->items[annotations->count++] = (struct text_pair){key, value};
    return 0;
}

int vendor_annotate_standard(const struct vendor_instance *instance,
                             const struct vendor_grant *grant,
                             struct vendor_annotations *annotations)
{
    const char *text = pod_devices_encode(grant->given, annotations->arena);
    int r = vendor_annotate_add(annotations, instance->allocated_key, text);

    if (r < 0 || !instance->to_allocate_key)
        return r;
    return vendor_annotate_add(annotations, instance->to_allocate_key, text);
}

int vendor_write_annotations(const struct vendor_instance *instance,
                             const struct vendor_grant *grant, struct arena *arena,
                             struct text_pair ret_pairs[VENDOR_MAX_ANNOTATIONS])
{
    struct vendor_annotations annotations = {.arena = arena, .items = ret_pairs};
    int r;

    if (!has_devices(grant->given))
        return 0;
    r = instance->vendor->annotate ? instance->vendor->annotate(instance, grant, &annotations)
                                   : vendor_annotate_standard(instance, grant, &annotations);
    return r < 0 ? r : (int)annotations.count;
}

static size_t count_times(const struct vendor_time *times)
{
    size_t count = 0;

    while (times && times[count].key)
        count++;
    return count;
}

const char *vendor_grant_key(const struct vendor_instance *instance, size_t number)
{
    const size_t times = count_times(instance->vendor->times);

    if (number == 0)
        return instance->allocated_key;
    if (!instance->to_allocate_key)
        number++;
    if (number == 1)
        return instance->to_allocate_key;
    number -= 2;
    if (number < times)
        return instance->vendor->times[number].key;
    number -= times;
    return number < VENDOR_MAX_KEYS ? instance->written_keys[number] : NULL;
}

/* kubelet counts no device while the plugin is away. One that never knew of any may have an agent
 * that tells by its handshake. Whether the node itself is healthy is for
 * Kubernetes to judge. */
static bool is_counted(const struct vendor_instance *instance, const struct node *node)
{
    const struct resource *resource;

    if (!instance->count_resource[0])
        return true;
    resource = resource_find(&node->allocatable, instance->count_resource);
    if (!resource)
        return instance->handshake_key != NULL;
    return resource->quantity.value > 0;
}

bool vendor_is_alive(const struct vendor_instance *instance, const struct node *node)
{
    if (instance->vendor->is_alive)
        return instance->vendor->is_alive(instance, node);
    return is_counted(instance, node);
}

const struct vendor_lock *vendor_prepare_bind(const struct vendor_instance *instance,
                                              const struct node *node)
{
    return instance->vendor->prepare_bind ? instance->vendor->prepare_bind(instance, node) : NULL;
}

const struct vendor_lock vendor_mutex_lock = {KEY_NODE_LOCK, true, 300 * NS_PER_S};
const struct vendor_lock vendor_turn_lock = {NULL, false, 300 * NS_PER_S};

/* Adds the names that are not there yet. */
static int keep_names(const char *const *names, const char *kept[static KEPT_NAMES_MAX],
                      size_t *count)
{
    for (; names && *names; names++) {
        size_t i = 0;

        while (i < *count && strcmp(kept[i], *names) != 0)
            i++;
        if (i == KEPT_NAMES_MAX)
            return -E2BIG;
        kept[i] = *names;
        *count = MAX(*count, i + 1);
    }
    return 0;
}

int vendor_set_add(struct vendor_set *set, const struct vendor_instance *instance)
{
    const struct vendor *vendor = instance->vendor;
    struct kept_names *kept = &set->kept;

    if (set->count == VENDOR_MAX_INSTANCES ||
        keep_names(vendor->annotations, kept->annotations, &kept->annotation_count) < 0 ||
        keep_names(vendor->variables, kept->variables, &kept->variable_count) < 0 ||
        keep_names(vendor->node_labels, kept->labels, &kept->label_count) < 0)
        return -E2BIG;
    set->instances[set->count++] = *instance;
    return 0;
}
