/* SPDX-License-Identifier: Apache-2.0 */

/* Learning, prices, and nodes as they are priced. Rows are in rows.c. */

#include "cluster/scarcity.h"

#include <errno.h>

#include "cluster/scarcity_state.h"

enum {
    RENEW_PART = 60, /* prices are renewed when so much of all devices arrived: one part of it */
    RENEW_ARRIVALS_MIN = 20,
    TYPES_OF_NODE = 4, /* that its registration may bring: one node can't take the room of all */
};

/* Of each arrival before, this much counts at the next. */
#define KEEP 0.9997
#define UNIT_MAX 1e100

struct scarcity *scarcity_new(void)
{
    struct scarcity *scarcity = calloc(1, sizeof(*scarcity));

    if (!scarcity)
        return NULL;
    scarcity->unit = 1;
    scarcity->now = calloc(1, sizeof(*scarcity->now));
    scarcity->next = calloc(1, sizeof(*scarcity->next));
    if (!scarcity->now || !scarcity->next) {
        scarcity_free(scarcity);
        return NULL;
    }
    return scarcity;
}

void scarcity_free(struct scarcity *scarcity)
{
    if (!scarcity)
        return;
    rows_free(scarcity);
    for (size_t i = 0; i < scarcity->class_count; i++)
        free(scarcity->classes[i].request);
    free(scarcity->now);
    free(scarcity->next);
    free(scarcity->seats);
    free(scarcity->rooms);
    free(scarcity->dirty);
    free(scarcity);
}

/* Nodes */

static int seats_grow(struct scarcity *scarcity, size_t count)
{
    struct scarcity_room *rooms;
    struct seat *seats;
    uint32_t *dirty;

    if (count <= scarcity->seat_count)
        return 0;
    count = (count + SLAB_NODES - 1) / SLAB_NODES * SLAB_NODES;
    seats = reallocarray(scarcity->seats, count, sizeof(*seats));
    if (!seats)
        return -ENOMEM;
    scarcity->seats = seats;
    rooms = reallocarray(scarcity->rooms, count, sizeof(*rooms));
    if (!rooms)
        return -ENOMEM;
    scarcity->rooms = rooms;
    dirty = reallocarray(scarcity->dirty, count, sizeof(*dirty));
    if (!dirty)
        return -ENOMEM;
    scarcity->dirty = dirty;
    if (rows_grow(scarcity, count) < 0)
        return -ENOMEM;
    memset(seats + scarcity->seat_count, 0, (count - scarcity->seat_count) * sizeof(*seats));
    memset(rooms + scarcity->seat_count, 0, (count - scarcity->seat_count) * sizeof(*rooms));
    scarcity->seat_count = count;
    return 0;
}

static uint32_t left_of(uint64_t all, uint64_t used)
{
    return (uint32_t)MIN(all - MIN(all, used), (uint64_t)SCARCITY_AMOUNT_MAX);
}

void scarcity_touch(struct cluster *cluster, struct cluster_node *node)
{
    struct scarcity *scarcity = cluster->scarcity;
    const struct place_node *place = node->place;
    struct scarcity_room *room;
    struct seat *seat;

    if (!scarcity || (!place->device_count && place->seat >= scarcity->seat_count) ||
        seats_grow(scarcity, place->seat + 1) < 0)
        return;
    seat = &scarcity->seats[place->seat];
    room = &scarcity->rooms[place->seat];
    scarcity_room_read(&scarcity->types, place->devices, place->device_count, room);
    /* A node that tells of no processors is one of which metadata alone are known. */
    room->cpu_milli = node->has.cpu_milli ? left_of(node->has.cpu_milli, node->used.cpu_milli)
                                          : SCARCITY_AMOUNT_MAX;
    room->memory_mib = node->has.memory_mib ? left_of(node->has.memory_mib, node->used.memory_mib)
                                            : SCARCITY_AMOUNT_MAX;
    scarcity->device_count += place->device_count - seat->devices;
    seat->devices = place->device_count;
    seat->taken = true;
    if (!seat->dirty)
        scarcity->dirty[scarcity->dirty_count++] = place->seat;
    seat->dirty = true;
}

void scarcity_drop_node(struct cluster *cluster, const struct cluster_node *node)
{
    struct scarcity *scarcity = cluster->scarcity;
    struct seat *seat;

    if (!scarcity || node->place->seat >= scarcity->seat_count)
        return;
    seat = &scarcity->seats[node->place->seat];
    scarcity->device_count -= seat->devices;
    seat->devices = 0;
    seat->taken = false;
    scarcity->rooms[node->place->seat] = (struct scarcity_room){0};
}

void scarcity_add_types(struct cluster *cluster, const struct device *devices, size_t count)
{
    struct scarcity *scarcity = cluster->scarcity;
    const size_t before = scarcity ? scarcity->types.count : 0;

    for (size_t i = 0; scarcity && i < count && scarcity->types.count < before + TYPES_OF_NODE; i++)
        (void)scarcity_types_add(&scarcity->types, &devices[i]);
    if (!scarcity || scarcity->types.count == before)
        return;
    for (size_t i = 0; i < scarcity->class_count; i++) {
        struct learned *class = &scarcity->classes[i];

        for (size_t k = before; k < scarcity->types.count; k++)
            class->demand.shares[k] =
                (uint16_t)scarcity_share(class->request, &scarcity->types.samples[k]);
        class->demand = scarcity_class_of(&class->demand);
    }
    /* What is known of costs is not of these devices. */
    rows_drop(scarcity);
    scarcity_renew(scarcity);
}

/* Learning */

static struct learned *find_class(struct scarcity *scarcity, const struct scarcity_demand *class)
{
    for (size_t i = 0; i < scarcity->class_count; i++) {
        if (memcmp(&scarcity->classes[i].demand, class, sizeof(*class)) == 0)
            return &scarcity->classes[i];
    }
    return NULL;
}

static const struct request *first_request(const struct demand *demand)
{
    for (size_t i = 0; i < demand->count; i++) {
        if (demand->containers[i].request_count)
            return &demand->containers[i].requests[0];
    }
    return NULL;
}

/* The class that arrived least gives way when there is no room. */
static struct learned *add_class(struct scarcity *scarcity, const struct scarcity_demand *class,
                                 const struct demand *demand)
{
    struct request *request = request_copy(first_request(demand));
    struct learned *learned = scarcity->classes;

    if (!request)
        return NULL;
    for (size_t i = 1; i < scarcity->class_count; i++) {
        if (scarcity->classes[i].arrivals < learned->arrivals)
            learned = &scarcity->classes[i];
    }
    if (scarcity->class_count < SCARCITY_CLASSES)
        learned = &scarcity->classes[scarcity->class_count++];
    else
        free(learned->request);
    *learned = (struct learned){.demand = *class, .request = request};
    return learned;
}

/* All counts in terms of a smaller unit. */
static void rescale(struct scarcity *scarcity)
{
    for (size_t i = 0; i < scarcity->class_count; i++)
        scarcity->classes[i].arrivals /= scarcity->unit;
    scarcity->unit = 1;
}

static unsigned size_of(const struct scarcity_demand *demand)
{
    unsigned most = 0;

    for (size_t i = 0; i < SCARCITY_TYPES; i++)
        most = MAX(most, demand->shares[i]);
    return most * demand->count;
}

/* A pod that waits is asked about again and again, whenever devices come free; each counts once, or
 * those that wait would outweigh all that arrive. Of many pods the earliest are forgotten. */
static bool was_counted(struct scarcity *scarcity, const char *uid)
{
    const uint64_t hash = hash_bytes(uid, strlen(uid));
    uint64_t *set = scarcity->counted_uids[hash % COUNTED_SETS];

    for (size_t i = 0; i < COUNTED_WAYS; i++) {
        if (set[i] == hash)
            return true;
    }
    memmove(set + 1, set, (COUNTED_WAYS - 1) * sizeof(set[0]));
    set[0] = hash;
    return false;
}

void scarcity_learn(struct cluster *cluster, const char *uid, const struct demand *demand,
                    const struct amounts *amounts)
{
    struct scarcity *scarcity = cluster->scarcity;
    struct scarcity_demand exact, class;
    struct learned *learned;

    if (!scarcity || !demand || !first_request(demand) || was_counted(scarcity, uid))
        return;
    scarcity_demand_read(&scarcity->types, demand, amounts->cpu_milli, amounts->memory_mib, &exact);
    class = scarcity_class_of(&exact);
    learned = find_class(scarcity, &class);
    if (!learned)
        learned = add_class(scarcity, &class, demand);
    if (!learned)
        return;
    scarcity->unit /= KEEP;
    learned->arrivals += scarcity->unit;
    scarcity->arrived++;
    scarcity->arrived_milli += size_of(&exact);
    if (scarcity->unit > UNIT_MAX)
        rescale(scarcity);
}

/* Renewal of the prices */

static bool is_due(const struct scarcity *scarcity)
{
    if (!scarcity->class_count || !scarcity->device_count)
        return false;
    if (scarcity->forced)
        return true;
    if (scarcity->arrived >= RENEW_ARRIVALS_MIN && scarcity->renewals < 3)
        return true;
    return scarcity->arrived &&
           scarcity->arrived_milli >=
               (uint64_t)scarcity->device_count * SCARCITY_WHOLE / RENEW_PART &&
           scarcity->arrived >= MIN(scarcity->device_count, (uint64_t)RENEW_ARRIVALS_MIN);
}

void scarcity_renew(struct scarcity *scarcity)
{
    scarcity->phase = RENEWAL_NONE;
    scarcity->forced = scarcity->class_count > 0;
}

static void renewal_begin(struct scarcity *scarcity)
{
    scarcity->arrived = 0;
    scarcity->arrived_milli = 0;
    scarcity->forced = false;
    scarcity->counted = true;
    scarcity->next_left = 0;
    scarcity->renewals++;
    scarcity->next_count = scarcity->class_count;
    for (size_t i = 0; i < scarcity->class_count; i++) {
        scarcity->next_classes[i] = scarcity->classes[i].demand;
        scarcity->next_arrivals[i] = scarcity->classes[i].arrivals / scarcity->unit;
        scarcity->next_fills[i] = 0;
    }
    scarcity_prices_init(scarcity->next, scarcity->next_classes, scarcity->next_count);
    scarcity->cursor = 0;
    scarcity->phase = RENEWAL_ADDS_UP;
}

static void renewal_price(struct scarcity *scarcity)
{
    const double capacity = (double)scarcity->device_count * SCARCITY_WHOLE;

    scarcity_set_prices(scarcity->next, scarcity->next_classes, scarcity->next_arrivals,
                        scarcity->next_fills, capacity);
    rows_begin_next(scarcity);
    scarcity->cursor = 0;
    scarcity->phase = RENEWAL_PRICES_NODES;
}

static void renewal_end(struct scarcity *scarcity)
{
    struct scarcity_prices *old = scarcity->now;

    scarcity->now = scarcity->next;
    scarcity->next = old;
    scarcity->known_left = scarcity->next_left;
    for (size_t i = 0; i < scarcity->now->class_count; i++)
        scarcity->known_prices[scarcity->now->given[i]] = (double)scarcity->now->price[i];
    scarcity->known_count = scarcity->next_count;
    memcpy(scarcity->known_classes, scarcity->next_classes,
           scarcity->next_count * sizeof(scarcity->next_classes[0]));
    memcpy(scarcity->known_fills, scarcity->next_fills, sizeof(scarcity->next_fills));
    memcpy(scarcity->known_arrivals, scarcity->next_arrivals, sizeof(scarcity->next_arrivals));
    rows_switch(scarcity);
    scarcity->phase = RENEWAL_NONE;
}

static void count_begin(struct scarcity *scarcity)
{
    memset(scarcity->next_fills, 0, sizeof(scarcity->next_fills));
    scarcity->next_left = 0;
    scarcity->counted = true;
    scarcity->cursor = 0;
    scarcity->phase = RENEWAL_COUNTS_ANEW;
}

static void count_end(struct scarcity *scarcity)
{
    memcpy(scarcity->known_fills, scarcity->next_fills, sizeof(scarcity->next_fills));
    scarcity->known_left = scarcity->next_left;
    scarcity->phase = RENEWAL_NONE;
}

static void add_room(struct scarcity *scarcity, const struct scarcity_room *room)
{
    scarcity_add_fill(scarcity->phase == RENEWAL_ADDS_UP ? scarcity->next : scarcity->now, room,
                      scarcity->next_fills);
    for (uint32_t i = 0; i < room->count; i++)
        scarcity->next_left += room->entries[i].left * room->entries[i].count;
}

static void renewal_step(struct scarcity *scarcity)
{
    if (scarcity->cursor < scarcity->seat_count) {
        const size_t seat = scarcity->cursor++;

        if (!scarcity->rooms[seat].count)
            return;
        if (scarcity->phase == RENEWAL_PRICES_NODES)
            rows_price_next(scarcity, seat);
        else
            add_room(scarcity, &scarcity->rooms[seat]);
        return;
    }
    if (scarcity->phase == RENEWAL_ADDS_UP)
        renewal_price(scarcity);
    else if (scarcity->phase == RENEWAL_PRICES_NODES)
        renewal_end(scarcity);
    else
        count_end(scarcity);
}

static void price_dirty(struct scarcity *scarcity)
{
    const uint32_t seat = scarcity->dirty[--scarcity->dirty_count];

    scarcity->seats[seat].dirty = false;
    rows_price(scarcity, seat);
    if (scarcity->phase == RENEWAL_PRICES_NODES && seat < scarcity->cursor)
        rows_price_next(scarcity, seat);
}

bool scarcity_step(struct cluster *cluster)
{
    struct scarcity *scarcity = cluster->scarcity;

    if (!scarcity)
        return false;
    if (scarcity->dirty_count)
        price_dirty(scarcity);
    else if (scarcity->phase != RENEWAL_NONE)
        renewal_step(scarcity);
    else if (is_due(scarcity))
        renewal_begin(scarcity);
    else if (!scarcity->counted && scarcity->known_count)
        count_begin(scarcity);
    else
        return rows_step(scarcity);
    return true;
}

int scarcity_view(struct cluster *cluster, const struct demand *demand,
                  const struct amounts *amounts, struct place_scarcity *ret_view)
{
    struct scarcity *scarcity = cluster->scarcity;

    *ret_view = (struct place_scarcity){
        .types = &scarcity->types,
        .prices = scarcity->now,
        .rooms = scarcity->rooms,
    };
    scarcity_demand_read(&scarcity->types, demand, amounts->cpu_milli, amounts->memory_mib,
                         &ret_view->demand);
    return rows_find(scarcity, &ret_view->demand, &ret_view->costs, &ret_view->exact);
}
