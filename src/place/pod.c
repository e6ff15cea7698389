/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "model/keys.h"
#include "place/place.h"

/* A pod on its way over a node's devices, container after container. */
struct fitting {
    const struct place_node *node;
    const struct demand *demand;
    const struct place_options *options;
    struct arena *arena;
    struct device *devices; /* the node's; a copy of them once something is charged */
    bool copied;
    struct place_decision *decision;
};

/* The pieces of "mutex, binpack", one after the other; false at the end. */
static bool next_word(const char **rest, const char **ret_word, size_t *ret_len)
{
    *ret_word = *rest + strspn(*rest, ", ");
    *ret_len = strcspn(*ret_word, ", ");
    *rest = *ret_word + *ret_len;
    return *ret_len > 0;
}

static bool has_word(const char *text, const char *wanted)
{
    const char *word;
    size_t len;

    while (next_word(&text, &word, &len)) {
        if (len == strlen(wanted) && strncmp(word, wanted, len) == 0)
            return true;
    }
    return false;
}

/* HAMi reads an unknown word as binpack of nodes, and as spread of devices. */
static enum place_order node_order_of(const char *text)
{
    return strcmp(text, "spread") == 0 ? PLACE_SPREAD : PLACE_BINPACK;
}

static enum place_order device_order_of(const char *text)
{
    return has_word(text, "binpack") && !has_word(text, "spread") ? PLACE_BINPACK : PLACE_SPREAD;
}

void place_options_read(const struct text_pairs *annotations, const struct place_options *defaults,
                        struct place_options *ret_options)
{
    const char *node = text_pairs_get(annotations, KEY_NODE_POLICY);
    const char *device = text_pairs_get(annotations, KEY_DEVICE_POLICY);
    struct place_options options = *defaults;

    if (node)
        options.node_order = node_order_of(node);
    if (device) {
        options.policy.order = device_order_of(device);
        options.policy.mutex = has_word(device, "mutex");
    }
    *ret_options = options;
}

static int copy_devices(struct fitting *fitting)
{
    size_t count = fitting->node->device_count;
    struct device *copy;

    if (fitting->copied)
        return 0;
    copy = ARENA_ARRAY(fitting->arena, struct device, count);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, fitting->devices, count * sizeof(*copy));
    fitting->devices = copy;
    fitting->copied = true;
    return 0;
}

static int charge_decision(struct fitting *fitting)
{
    int r = copy_devices(fitting);

    if (r == 0)
        place_charge(fitting->devices, fitting->decision);
    return r;
}

/* Undoes the charges of a container that place_charge() made. */
static void discharge_container(struct fitting *fitting, const struct container_devices *devices)
{
    for (size_t i = 0; i < devices->count; i++) {
        const struct container_device *device = &devices->items[i];
        struct place_share share = {
            .uuid = device->uuid,
            .usage = {1, (unsigned)device->cores, (uint64_t)device->memory_mib * MIB},
        };
        const struct place_usage usage = {.count = 1, .shares = &share};

        (void)place_usage_discharge(fitting->devices, fitting->node->device_count, &usage);
    }
}

static const char *name_pick(const struct fitting *fitting, const struct place_pick *pick)
{
    const char *uuid = fitting->devices[pick->device].uuid;

    if (pick->mig_instance < 0)
        return arena_strdup(fitting->arena, uuid);
    return arena_printf(fitting->arena, "%s[%d-%d]", uuid, pick->mig_group, pick->mig_instance);
}

static int record_picks(const struct fitting *fitting, const char *common_word,
                        struct container_devices *ret_devices)
{
    const struct place_decision *decision = fitting->decision;
    struct container_device *items;

    items = ARENA_ARRAY(fitting->arena, struct container_device, decision->pick_count);
    if (!items)
        return -ENOMEM;
    for (size_t i = 0; i < decision->pick_count; i++) {
        const struct place_pick *pick = &decision->picks[i];

        items[i].uuid = name_pick(fitting, pick);
        items[i].type = common_word;
        items[i].memory_mib = (int32_t)(pick->memory_bytes / MIB);
        items[i].cores = (int32_t)pick->cores;
        if (!items[i].uuid)
            return -ENOMEM;
    }
    *ret_devices = (struct container_devices){.count = decision->pick_count, .items = items};
    return 0;
}

/* The placement's entry for a vendor, made if need be; NULL: -E2BIG or -ENOMEM. */
static struct pod_devices *find_vendor(const struct fitting *fitting, struct placement *placement,
                                       const char *common_word, int *ret_error)
{
    size_t count = placement->vendor_count;
    struct container_devices *containers;

    for (size_t i = 0; i < count; i++) {
        if (strcmp(placement->vendors[i].common_word, common_word) == 0)
            return &placement->vendors[i].devices;
    }
    *ret_error = -E2BIG;
    if (count == PLACE_MAX_VENDORS)
        return NULL;
    *ret_error = -ENOMEM;
    containers = ARENA_ARRAY(fitting->arena, struct container_devices, fitting->demand->count);
    if (!containers)
        return NULL;
    placement->vendors[count].common_word = common_word;
    placement->vendors[count].devices.containers = containers;
    placement->vendors[count].devices.count = fitting->demand->count;
    placement->vendor_count++;
    return &placement->vendors[count].devices;
}

/* An init container's devices are free for the next container. */
static void end_turn(struct fitting *fitting, struct placement *placement, size_t container)
{
    if (fitting->demand->containers[container].role != CONTAINER_INIT)
        return;
    for (size_t i = 0; i < placement->vendor_count; i++)
        discharge_container(fitting, &placement->vendors[i].devices.containers[container]);
}

static int fit_container(struct fitting *fitting, size_t container, struct placement *placement)
{
    const struct container_demand *demand = &fitting->demand->containers[container];
    struct pod_devices *devices;
    int r;

    for (size_t i = 0; i < demand->request_count; i++) {
        const struct request *request = &demand->requests[i];

        r = place_fit(fitting->devices, fitting->node->device_count, request,
                      &fitting->options->policy, fitting->decision);
        if (r != PLACE_FITS)
            return r;
        devices = find_vendor(fitting, placement, request->type, &r);
        if (!devices)
            return r;
        r = record_picks(fitting, request->type, &devices->containers[container]);
        if (r < 0)
            return r;
        r = charge_decision(fitting);
        if (r < 0)
            return r;
    }
    if (demand->request_count)
        end_turn(fitting, placement, container);
    return PLACE_FITS;
}

static char *roles_of(const struct demand *demand, struct arena *arena)
{
    char *roles = arena_alloc(arena, demand->count + 1);

    for (size_t i = 0; roles && i < demand->count; i++) {
        if (demand->containers[i].role == CONTAINER_APP)
            break;
        roles[i] = container_role_letter(demand->containers[i].role);
    }
    return roles;
}

static int add_usage(const struct fitting *fitting, struct placement *placement)
{
    const char *roles = roles_of(fitting->demand, fitting->arena);
    int r;

    if (!roles)
        return -ENOMEM;
    placement->usage.alone = fitting->options->policy.mutex;
    for (size_t i = 0; i < placement->vendor_count; i++) {
        r = place_usage_add_pod(&placement->usage, &placement->vendors[i].devices, roles,
                                fitting->arena);
        if (r < 0)
            return r;
    }
    return 0;
}

int place_pod(const struct place_node *node, const struct demand *demand,
              const struct place_options *options, struct arena *arena,
              struct placement *ret_placement, struct place_failure *ret_failure)
{
    struct place_decision decision;
    struct fitting fitting = {
        .node = node,
        .demand = demand,
        .options = options,
        .arena = arena,
        .devices = node->devices,
        .decision = &decision,
    };
    struct placement placement = {.vendor_count = 0};
    int r;

    for (size_t i = 0; i < demand->count; i++) {
        r = fit_container(&fitting, i, &placement);
        if (r == PLACE_NO_FIT && ret_failure)
            *ret_failure = decision.failure;
        if (r != PLACE_FITS)
            return r;
    }
    r = add_usage(&fitting, &placement);
    if (r < 0)
        return r;
    *ret_placement = placement;
    return PLACE_FITS;
}
