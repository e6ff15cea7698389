/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "place/connected.h"
#include "place/fit.h"
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
    struct place_explanation *explanation; /* NULL: none is wanted */
};

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
static void discharge_container(struct fitting *fitting, const struct device_vendor *vendor,
                                const struct container_devices *devices)
{
    for (size_t i = 0; i < devices->count; i++) {
        const struct container_device *device = &devices->items[i];
        struct place_share share = {
            .vendor = vendor,
            .uuid = device->uuid,
            .usage = usage_of_granted(vendor, device),
        };
        const struct place_usage usage = {.count = 1, .shares = &share};

        (void)place_usage_discharge(fitting->devices, fitting->node->device_count, &usage);
    }
}

static const char *name_pick(const struct fitting *fitting, const struct place_pick *pick)
{
    const struct device *device = &fitting->devices[pick->device];
    const struct place_rules *rules = rules_of(device->vendor);

    if (!device->special || !rules->name)
        return arena_strdup(fitting->arena, device->uuid);
    return rules->name(device, &pick->taken, fitting->arena);
}

static int record_picks(const struct fitting *fitting, const struct device_vendor *vendor,
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
        items[i].type = vendor ? vendor->word : "";
        items[i].memory_mib = (int32_t)(pick->taken.memory_bytes / MIB);
        items[i].cores = (int32_t)pick->taken.cores;
        items[i].parts = pick->taken.parts;
        if (!items[i].uuid)
            return -ENOMEM;
    }
    *ret_devices = (struct container_devices){.count = decision->pick_count, .items = items};
    return 0;
}

/* The placement's entry for a vendor, or NULL. */
static struct pod_devices *find_vendor(struct placement *placement,
                                       const struct device_vendor *vendor)
{
    for (size_t i = 0; i < placement->vendor_count; i++) {
        if (placement->vendors[i].vendor == vendor)
            return &placement->vendors[i].devices;
    }
    return NULL;
}

/* The same, made if need be. -E2BIG, -ENOMEM. */
static int get_vendor(const struct fitting *fitting, struct placement *placement,
                      const struct device_vendor *vendor, struct pod_devices **ret_devices)
{
    size_t count = placement->vendor_count;
    struct container_devices *containers;

    *ret_devices = find_vendor(placement, vendor);
    if (*ret_devices)
        return 0;
    if (count == PLACE_MAX_VENDORS)
        return -E2BIG;
    containers = ARENA_ARRAY(fitting->arena, struct container_devices, fitting->demand->count);
    if (!containers)
        return -ENOMEM;
    placement->vendors[count].vendor = vendor;
    placement->vendors[count].devices.containers = containers;
    placement->vendors[count].devices.count = fitting->demand->count;
    placement->vendor_count++;
    *ret_devices = &placement->vendors[count].devices;
    return 0;
}

/* An init container's devices are free for the next container. */
static void end_turn(struct fitting *fitting, struct placement *placement, size_t container)
{
    if (fitting->demand->containers[container].role != CONTAINER_INIT)
        return;
    for (size_t i = 0; i < placement->vendor_count; i++)
        discharge_container(fitting, placement->vendors[i].vendor,
                            &placement->vendors[i].devices.containers[container]);
}

/* What the budget leaves for a container, beside those before it that go on. */
static struct place_budget budget_beside(const struct fitting *fitting,
                                         const struct place_budget *budget,
                                         const struct pod_devices *given, size_t container)
{
    struct place_budget left = *budget;

    for (size_t i = 0; given && i < container; i++) {
        const struct container_devices *devices = &given->containers[i];

        if (fitting->demand->containers[i].role == CONTAINER_INIT)
            continue;
        for (size_t k = 0; k < devices->count; k++) {
            const struct device_usage usage = usage_of_granted(budget->vendor, &devices->items[k]);

            if (left.memory_mib != INT64_MAX)
                left.memory_mib -= (int64_t)(usage.memory_bytes / MIB);
            if (left.cores != INT64_MAX)
                left.cores -= cores_counted(rules_of(budget->vendor), &usage);
        }
    }
    return left;
}

static const struct place_budget *find_budget(const struct place_options *options,
                                              const struct device_vendor *vendor)
{
    for (size_t i = 0; i < options->budget_count; i++) {
        if (options->budgets[i].vendor == vendor)
            return &options->budgets[i];
    }
    return NULL;
}

static void explain(const struct fitting *fitting, const struct place_ask *ask)
{
    struct place_explanation *explanation = fitting->explanation;

    explanation->container = ask->container;
    explanation->request = ask->request;
    explanation->failure = fitting->decision->failure;
    fit_explain(fitting->devices, fitting->node->device_count, ask, &fitting->options->policy,
                explanation->verdicts);
}

/* What taking each device costs, beside what the containers before took. */
static void price_devices(const struct fitting *fitting, const struct request *request,
                          float ret_costs[static PLACE_MAX_DEVICES])
{
    const struct place_scarcity *scarcity = fitting->options->scarcity;
    const size_t count = MIN(fitting->node->device_count, (uint32_t)PLACE_MAX_DEVICES);
    const struct container_demand container = {.request_count = 1, .requests = request};
    struct scarcity_demand demand;
    struct scarcity_room room;

    scarcity_demand_read(scarcity->types, &(struct demand){1, &container},
                         scarcity->demand.cpu_milli, scarcity->demand.memory_mib, &demand);
    room = scarcity->rooms[fitting->node->seat];
    scarcity_room_read(scarcity->types, fitting->devices, count, &room);
    scarcity_price_devices(scarcity->types, scarcity->prices, &room, &demand, fitting->devices,
                           count, ret_costs);
}

/*
 * Whether the order of devices says which are taken and never whether the pod fits: what was
 * refused is refused until something changes, and prices change by themselves. So the pod has to
 * have one request, and where there is a budget it has to take as much of any device.
 */
static bool may_order_by_cost(const struct fitting *fitting, const struct request *request)
{
    const struct demand *demand = fitting->demand;
    size_t requests = 0;

    for (size_t i = 0; i < demand->count; i++)
        requests += demand->containers[i].request_count;
    if (requests != 1)
        return false;
    return !find_budget(fitting->options, request->vendor) || request->count == 1 ||
           (request->memory_bytes && !rules_of(request->vendor)->want);
}

static int fit_request(struct fitting *fitting, size_t container, const struct request *request,
                       struct placement *placement)
{
    const struct container_demand *demand = &fitting->demand->containers[container];
    const struct place_budget *budget = find_budget(fitting->options, request->vendor);
    struct place_budget left;
    struct place_ask ask = {
        .request = request,
        .requests = demand->requests,
        .request_count = demand->request_count,
        .given = find_vendor(placement, request->vendor),
        .container = container,
    };
    float costs[PLACE_MAX_DEVICES];
    struct pod_devices *devices;
    int r;

    if (budget) {
        left = budget_beside(fitting, budget, ask.given, container);
        ask.budget = &left;
    }
    r = place_fit(fitting->devices, fitting->node->device_count, &ask, &fitting->options->policy,
                  fitting->decision);
    /* Pricing costs many times what fitting does, and a pod is refused by all nodes. */
    if (r == PLACE_FITS && fitting->options->scarcity && may_order_by_cost(fitting, request)) {
        price_devices(fitting, request, costs);
        ask.costs = costs;
        r = place_fit(fitting->devices, fitting->node->device_count, &ask,
                      &fitting->options->policy, fitting->decision);
    }
    if (r == PLACE_NO_FIT && fitting->explanation)
        explain(fitting, &ask);
    if (r != PLACE_FITS)
        return r;
    r = get_vendor(fitting, placement, request->vendor, &devices);
    if (r == 0)
        r = record_picks(fitting, request->vendor, &devices->containers[container]);
    if (r == 0)
        r = charge_decision(fitting);
    return r < 0 ? r : PLACE_FITS;
}

static int fit_container(struct fitting *fitting, size_t container, struct placement *placement)
{
    const struct container_demand *demand = &fitting->demand->containers[container];
    int r;

    for (size_t i = 0; i < demand->request_count; i++) {
        r = fit_request(fitting, container, &demand->requests[i], placement);
        if (r != PLACE_FITS)
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
        r = place_usage_add_pod(&placement->usage, placement->vendors[i].vendor,
                                &placement->vendors[i].devices, roles, fitting->arena);
        if (r < 0)
            return r;
    }
    return 0;
}

/* What the vendors have to say of the node, for these devices. */
static float score_more(const struct fitting *fitting, const struct placement *placement)
{
    float score = 0;

    for (size_t i = 0; i < placement->vendor_count; i++) {
        const struct place_rules *rules = rules_of(placement->vendors[i].vendor);
        const struct place_fitted fitted = {
            .vendor = placement->vendors[i].vendor,
            .devices = fitting->node->devices,
            .device_count = fitting->node->device_count,
            .given = &placement->vendors[i].devices,
            .node_order =
                fitting->options->node_order == PLACE_SPREAD ? PLACE_SPREAD : PLACE_BINPACK,
        };

        if (rules->score_node)
            score += rules->score_node(&fitted);
    }
    return score;
}

static int fit_pod(const struct place_node *node, const struct demand *demand,
                   const struct place_options *options, struct arena *arena,
                   struct placement *ret_placement, struct place_failure *ret_failure,
                   struct place_explanation *explanation)
{
    struct place_decision decision;
    struct fitting fitting = {
        .node = node,
        .demand = demand,
        .options = options,
        .arena = arena,
        .devices = node->devices,
        .decision = &decision,
        .explanation = explanation,
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
    placement.score = score_more(&fitting, &placement);
    *ret_placement = placement;
    return PLACE_FITS;
}

static size_t count_requests(const struct demand *demand)
{
    size_t count = 0;

    for (size_t i = 0; i < demand->count; i++)
        count += demand->containers[i].request_count;
    return count;
}

/*
 * Connected devices are searched for only where the pod fits: a search costs many times what a
 * look at a node's devices costs, and a pod of several requests would have one for each of them on
 * each node that refuses it in the end. It may fit with the devices as they come, and not with
 * those that are connected best; then it gets the former.
 */
static int fit_connected(const struct place_node *node, const struct demand *demand,
                         const struct place_options *options, struct arena *arena,
                         struct placement *ret_placement, struct place_failure *ret_failure,
                         struct place_explanation *explanation)
{
    struct place_options searching = *options, plain = *options;
    unsigned looks = CONNECTED_POD_STEPS, none = 0;
    const bool several = count_requests(demand) > 1;
    const struct arena_mark mark = arena_mark(arena);
    int r = PLACE_FITS;

    searching.policy.looks_left = &looks;
    plain.policy.looks_left = &none;
    if (several)
        r = fit_pod(node, demand, &plain, arena, ret_placement, ret_failure, explanation);
    if (r != PLACE_FITS)
        return r;
    arena_rewind(arena, mark);
    r = fit_pod(node, demand, &searching, arena, ret_placement, ret_failure, explanation);
    if (r != PLACE_NO_FIT || !several)
        return r;
    arena_rewind(arena, mark);
    return fit_pod(node, demand, &plain, arena, ret_placement, ret_failure, explanation);
}

static int fit_by_policy(const struct place_node *node, const struct demand *demand,
                         const struct place_options *options, struct arena *arena,
                         struct placement *ret_placement, struct place_failure *ret_failure,
                         struct place_explanation *explanation)
{
    return (options->policy.connected ? fit_connected : fit_pod)(
        node, demand, options, arena, ret_placement, ret_failure, explanation);
}

int place_pod(const struct place_node *node, const struct demand *demand,
              const struct place_options *options, struct arena *arena,
              struct placement *ret_placement, struct place_failure *ret_failure)
{
    return fit_by_policy(node, demand, options, arena, ret_placement, ret_failure, NULL);
}

int place_explain(const struct place_node *node, const struct demand *demand,
                  const struct place_options *options, struct arena *arena,
                  struct place_explanation *ret_explanation)
{
    struct place_explanation explanation = {.count = node->device_count};
    struct placement placement;
    int r;

    explanation.verdicts = ARENA_ARRAY(arena, struct place_verdict, node->device_count);
    if (!explanation.verdicts)
        return -ENOMEM;
    r = fit_by_policy(node, demand, options, arena, &placement, NULL, &explanation);
    explanation.fits = r == PLACE_FITS;
    *ret_explanation = explanation;
    return r;
}
