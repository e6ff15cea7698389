/* SPDX-License-Identifier: Apache-2.0 */

/* Devices and demands, as shares: what scarcity.c adds up. */

#include <math.h>
#include <string.h>

#include "base/util.h"
#include "place/fit.h"
#include "place/scarcity.h"

/* Types */

/* Kinds have numbers that are given again to others; a sample outlives its kind. */
static bool is_alike(const struct device *a, const struct device *b)
{
    return a->vendor == b->vendor && a->memory_bytes == b->memory_bytes && a->cores == b->cores &&
           a->max_tasks == b->max_tasks && a->special == b->special &&
           strcmp(a->model, b->model) == 0 && strcmp(a->mode, b->mode) == 0;
}

size_t scarcity_types_find(const struct scarcity_types *types, const struct device *device)
{
    for (size_t i = 0; i < types->count; i++) {
        if (is_alike(&types->samples[i], device))
            return i;
    }
    return SCARCITY_TYPES;
}

size_t scarcity_types_add(struct scarcity_types *types, const struct device *device)
{
    const size_t found = scarcity_types_find(types, device);
    struct device *sample;

    if (found < SCARCITY_TYPES || types->count == SCARCITY_TYPES)
        return found;
    sample = &types->samples[types->count];
    *sample = *device;
    sample->used = (struct device_usage){0};
    sample->misused = 0;
    sample->healthy = true;
    sample->cordoned = false;
    sample->kind = 0;
    sample->facts = NULL;
    sample->facts_size = 0;
    memset(sample->part_users, 0, sizeof(sample->part_users));
    return types->count++;
}

/* Demands */

/* To the nearest thousandth. */
static uint64_t part_of(uint64_t amount, uint64_t total)
{
    return (amount * SCARCITY_WHOLE + total / 2) / total;
}

unsigned scarcity_share(const struct request *request, const struct device *device)
{
    const uint64_t total_mib = device->memory_bytes / MIB;
    struct device_usage wanted;
    uint64_t share = 1;

    if (device->vendor != request->vendor || !fit_want(request, device, &wanted))
        return 0;
    if (total_mib)
        share = MAX(share, part_of(wanted.memory_bytes / MIB, total_mib));
    if (device->cores)
        share = MAX(share, part_of(wanted.cores, device->cores));
    if (device->max_tasks)
        share = MAX(share, (uint64_t)(SCARCITY_WHOLE / device->max_tasks));
    return share <= SCARCITY_WHOLE ? (unsigned)share : 0;
}

static void take_shares(const struct scarcity_types *types, const struct request *request,
                        struct scarcity_demand *demand)
{
    for (size_t i = 0; i < types->count; i++) {
        const unsigned share = scarcity_share(request, &types->samples[i]);

        demand->shares[i] = MAX(demand->shares[i], (uint16_t)share);
    }
}

/* The most of init containers and of those that go on, of one vendor. */
static void add_devices(const struct scarcity_types *types, const struct demand *asked,
                        struct scarcity_demand *demand)
{
    const struct device_vendor *vendor = NULL;
    unsigned most = 0, running = 0;

    for (size_t i = 0; i < asked->count; i++) {
        const struct container_demand *container = &asked->containers[i];

        for (size_t k = 0; k < container->request_count; k++) {
            const struct request *request = &container->requests[k];

            vendor = vendor ? vendor : request->vendor;
            if (request->vendor != vendor)
                continue;
            take_shares(types, request, demand);
            if (container->role == CONTAINER_INIT)
                most = MAX(most, running + request->count);
            else
                running += request->count;
        }
    }
    demand->count = MIN(MAX(most, running), (unsigned)PLACE_MAX_DEVICES);
}

void scarcity_demand_read(const struct scarcity_types *types, const struct demand *demand,
                          uint64_t cpu_milli, uint64_t memory_mib,
                          struct scarcity_demand *ret_demand)
{
    struct scarcity_demand read = {
        .cpu_milli = (uint32_t)MIN(cpu_milli, (uint64_t)SCARCITY_AMOUNT_MAX),
        .memory_mib = (uint32_t)MIN(memory_mib, (uint64_t)SCARCITY_AMOUNT_MAX),
    };

    if (demand)
        add_devices(types, demand, &read);
    *ret_demand = read;
}

/* Nodes */

unsigned scarcity_left(const struct device *device)
{
    const uint64_t total_mib = device->memory_bytes / MIB;
    uint64_t left = SCARCITY_WHOLE;

    if (!fit_is_usable(device))
        return 0;
    if (total_mib)
        left = MIN(left, part_of(device_free_mib(device), total_mib));
    if (device->cores)
        left = MIN(left, part_of(device_free_cores(device), device->cores));
    if (device->max_tasks && device->used.tasks)
        left =
            MIN(left, (uint64_t)(device->max_tasks - MIN(device->max_tasks, device->used.tasks)) *
                          SCARCITY_WHOLE / device->max_tasks);
    return (unsigned)left;
}

static void add_entry(struct scarcity_room *room, size_t type, unsigned left)
{
    size_t at = 0;

    while (at < room->count && (room->entries[at].type != type || room->entries[at].left != left))
        at++;
    if (at == SCARCITY_ENTRIES || (at < room->count && room->entries[at].count == UINT8_MAX))
        return;
    if (at == room->count)
        room->entries[room->count++] =
            (struct scarcity_entry){.left = (uint16_t)left, .type = (uint8_t)type};
    room->entries[at].count++;
}

static size_t entry_of(const struct scarcity_types *types, const struct scarcity_room *room,
                       const struct device *device)
{
    const size_t type = scarcity_types_find(types, device);
    const unsigned left = scarcity_left(device);
    size_t at = 0;

    while (at < room->count && (room->entries[at].type != type || room->entries[at].left != left))
        at++;
    return at;
}

void scarcity_price_devices(const struct scarcity_types *types,
                            const struct scarcity_prices *prices, const struct scarcity_room *room,
                            const struct scarcity_demand *demand, const struct device *devices,
                            size_t count, float *ret_costs)
{
    float costs[SCARCITY_ENTRIES + 1];
    struct scarcity_sight sight;

    scarcity_see(prices, room, &sight);
    for (size_t i = 0; i < room->count; i++)
        costs[i] =
            demand->count == 1 ? scarcity_cost_of(&sight, demand, i) : (float)room->entries[i].left;
    costs[room->count] = INFINITY;
    for (size_t i = 0; i < count; i++)
        ret_costs[i] = costs[entry_of(types, room, &devices[i])];
}

void scarcity_room_read(const struct scarcity_types *types, const struct device *devices,
                        size_t count, struct scarcity_room *ret_room)
{
    size_t type = SCARCITY_TYPES;

    ret_room->count = 0;
    for (size_t i = 0; i < count; i++) {
        if (type == SCARCITY_TYPES || !is_alike(&types->samples[type], &devices[i]))
            type = scarcity_types_find(types, &devices[i]);
        if (type < SCARCITY_TYPES)
            add_entry(ret_room, type, scarcity_left(&devices[i]));
    }
}
