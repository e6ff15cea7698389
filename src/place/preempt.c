/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "place/place.h"

/* A node while pods are taken off it and put back. */
struct clearing {
    struct place_node node; /* its devices are a copy */
    const struct demand *demand;
    const struct place_options *options;
    struct arena *arena;
};

static void take_off(struct clearing *clearing, const struct place_tenant *tenant)
{
    (void)place_usage_discharge(clearing->node.devices, clearing->node.device_count, tenant->usage);
}

static void put_back(struct clearing *clearing, const struct place_tenant *tenant)
{
    (void)place_usage_charge(clearing->node.devices, clearing->node.device_count, tenant->usage);
}

static int try_demand(struct clearing *clearing)
{
    struct arena_mark mark = arena_mark(clearing->arena);
    struct placement unused;
    int r = place_pod(&clearing->node, clearing->demand, clearing->options, clearing->arena,
                      &unused, NULL);

    arena_rewind(clearing->arena, mark);
    return r;
}

/* The most important that is not decided on yet; of equal ones the first. NULL: none is left. */
static struct place_tenant *most_important(struct place_tenant *tenants, size_t count)
{
    struct place_tenant *found = NULL;

    for (size_t i = 0; i < count; i++) {
        if (tenants[i].state == TENANT_MAY_GO && (!found || tenants[i].priority > found->priority))
            found = &tenants[i];
    }
    return found;
}

/* All that may go are off the node, and the demand fits: who need not go comes back. */
static int reprieve(struct clearing *clearing, struct place_tenant *tenants, size_t count)
{
    struct place_tenant *tenant;

    while ((tenant = most_important(tenants, count))) {
        int r;

        put_back(clearing, tenant);
        r = try_demand(clearing);
        if (r < 0)
            return r;
        tenant->state = r == PLACE_FITS ? TENANT_STAYS : TENANT_GOES;
        if (r == PLACE_NO_FIT)
            take_off(clearing, tenant);
    }
    return PLACE_FITS;
}

int place_make_room(const struct place_node *node, const struct demand *demand,
                    const struct place_options *options, struct place_tenant *tenants, size_t count,
                    struct arena *arena)
{
    struct clearing clearing = {
        .node = *node, .demand = demand, .options = options, .arena = arena};
    struct device *devices = ARENA_ARRAY(arena, struct device, node->device_count);
    int r;

    if (!devices)
        return -ENOMEM;
    if (node->device_count)
        memcpy(devices, node->devices, node->device_count * sizeof(*devices));
    clearing.node.devices = devices;
    for (size_t i = 0; i < count; i++) {
        if (tenants[i].state != TENANT_STAYS)
            take_off(&clearing, &tenants[i]);
    }
    r = try_demand(&clearing);
    return r == PLACE_FITS ? reprieve(&clearing, tenants, count) : r;
}
