/* SPDX-License-Identifier: Apache-2.0 */

/* Rows of costs. */

#include <errno.h>
#include <math.h>

#include "cluster/scarcity_state.h"

enum {
    LOOKS_MAX = 1 << 18, /* at groups of classes, by one decision: some 10 ms */
};

static void row_deinit(struct row *row)
{
    free(row->costs);
    free(row->next);
}

void rows_drop(struct scarcity *scarcity)
{
    for (size_t i = 0; i < scarcity->row_count; i++)
        row_deinit(&scarcity->rows[i]);
    scarcity->row_count = 0;
}

void rows_free(struct scarcity *scarcity)
{
    rows_drop(scarcity);
}

static void fill(float *costs, size_t from, size_t count, float cost)
{
    for (size_t i = from; i < count; i++)
        costs[i] = cost;
}

static int grow(float **costs, size_t before, size_t count, float cost)
{
    float *grown = reallocarray(*costs, count, sizeof(*grown));

    if (!grown)
        return -ENOMEM;
    fill(grown, before, count, cost);
    *costs = grown;
    return 0;
}

/* No cost is known. */
static void row_begin(const struct scarcity *scarcity, struct row *row)
{
    row->complete = row->has_next = false;
    row->cursor = 0;
    fill(row->costs, 0, scarcity->seat_count, INFINITY);
}

int rows_grow(struct scarcity *scarcity, size_t seat_count)
{
    for (size_t i = 0; i < scarcity->row_count; i++) {
        struct row *row = &scarcity->rows[i];

        if (grow(&row->costs, scarcity->seat_count, seat_count, row->complete ? 0 : INFINITY) < 0 ||
            grow(&row->next, scarcity->seat_count, seat_count, 0) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* What has no devices costs nothing. */
static bool see(struct scarcity *scarcity, const struct scarcity_prices *prices, size_t seat)
{
    if (!scarcity->rooms[seat].count)
        return false;
    scarcity_see(prices, &scarcity->rooms[seat], &scarcity->sight);
    return true;
}

static void price_row(struct scarcity *scarcity, struct row *row, size_t seat)
{
    row->costs[seat] = see(scarcity, scarcity->now, seat)
                           ? scarcity_cost(&scarcity->sight, &row->demand, NULL)
                           : 0;
}

void rows_price(struct scarcity *scarcity, size_t seat)
{
    const bool seen = see(scarcity, scarcity->now, seat);

    for (size_t i = 0; i < scarcity->row_count; i++) {
        struct row *row = &scarcity->rows[i];

        if (row->complete || seat < row->cursor)
            row->costs[seat] = seen ? scarcity_cost(&scarcity->sight, &row->demand, NULL) : 0;
    }
}

void rows_price_next(struct scarcity *scarcity, size_t seat)
{
    const bool seen = see(scarcity, scarcity->next, seat);

    for (size_t i = 0; i < scarcity->row_count; i++) {
        struct row *row = &scarcity->rows[i];

        if (row->has_next)
            row->next[seat] = seen ? scarcity_cost(&scarcity->sight, &row->demand, NULL) : 0;
    }
}

void rows_begin_next(struct scarcity *scarcity)
{
    for (size_t i = 0; i < scarcity->row_count; i++) {
        struct row *row = &scarcity->rows[i];

        row->has_next = true;
        memset(row->next, 0, scarcity->seat_count * sizeof(row->next[0]));
    }
}

/* A row that was begun meanwhile has costs by the old prices: it is begun again. */
void rows_switch(struct scarcity *scarcity)
{
    for (size_t i = 0; i < scarcity->row_count; i++) {
        struct row *row = &scarcity->rows[i];
        float *old = row->costs;

        if (!row->has_next) {
            row_begin(scarcity, row);
            continue;
        }
        row->complete = true;
        row->has_next = false;
        row->costs = row->next;
        row->next = old;
    }
}

bool rows_step(struct scarcity *scarcity)
{
    for (size_t i = 0; i < scarcity->row_count; i++) {
        struct row *row = &scarcity->rows[i];

        if (row->complete)
            continue;
        if (row->cursor < scarcity->seat_count)
            price_row(scarcity, row, row->cursor++);
        else
            row->complete = true;
        return true;
    }
    return false;
}

static bool is_same(const struct scarcity_demand *a, const struct scarcity_demand *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* The demand's own row; else *ret_alike is a complete one of its class, the latest used, or NULL.
 */
static struct row *find_row(struct scarcity *scarcity, const struct scarcity_demand *demand,
                            const struct scarcity_demand *class, struct row **ret_alike)
{
    *ret_alike = NULL;
    for (size_t i = 0; i < scarcity->row_count; i++) {
        struct row *row = &scarcity->rows[i];

        if (is_same(&row->demand, demand))
            return row;
        if (row->complete && is_same(&row->class, class) &&
            (!*ret_alike || row->used > (*ret_alike)->used))
            *ret_alike = row;
    }
    return NULL;
}

/* NULL: no memory. */
static struct row *take_row(struct scarcity *scarcity)
{
    struct row *row = &scarcity->rows[scarcity->row_count];

    if (scarcity->row_count == ROWS_MAX) {
        row = scarcity->rows;
        for (size_t i = 1; i < ROWS_MAX; i++)
            row = scarcity->rows[i].used < row->used ? &scarcity->rows[i] : row;
        return row;
    }
    *row = (struct row){
        .costs = calloc(scarcity->seat_count, sizeof(float)),
        .next = calloc(scarcity->seat_count, sizeof(float)),
    };
    if (!row->costs || !row->next) {
        row_deinit(row);
        return NULL;
    }
    scarcity->row_count++;
    return row;
}

static struct row *add_row(struct scarcity *scarcity, const struct scarcity_demand *demand,
                           const struct scarcity_demand *class)
{
    struct row *row = take_row(scarcity);

    if (!row)
        return NULL;
    row->demand = *demand;
    row->class = *class;
    row_begin(scarcity, row);
    return row;
}

/* How many nodes one decision prices, so that neither a demand of a class that nobody asked for nor
 * a thousand nodes that changed at once hold up the others. */
static size_t nodes_max(const struct scarcity *scarcity)
{
    return LOOKS_MAX / (scarcity->now->group_count + 1);
}

/* As far as the decision gets with it; the rest is done in steps. */
static void go_on(struct scarcity *scarcity, struct row *row)
{
    for (size_t left = nodes_max(scarcity); !row->complete && left; left--) {
        if (row->cursor == scarcity->seat_count)
            row->complete = true;
        else
            price_row(scarcity, row, row->cursor++);
    }
}

/* Nodes that changed since the row was priced. */
static void refresh(struct scarcity *scarcity, struct row *row)
{
    const size_t count = MIN(scarcity->dirty_count, nodes_max(scarcity));

    for (size_t i = 0; i < count; i++)
        price_row(scarcity, row, scarcity->dirty[i]);
}

/* Whether the demand was asked for lately, and had no row. */
static bool was_sighted(struct scarcity *scarcity, const struct scarcity_demand *demand)
{
    const uint64_t hash = hash_bytes(demand, sizeof(*demand));

    for (size_t i = 0; i < SIGHTINGS; i++) {
        if (scarcity->sightings[i] == hash)
            return true;
    }
    scarcity->sightings[scarcity->sighting++ % SIGHTINGS] = hash;
    return false;
}

int rows_find(struct scarcity *scarcity, const struct scarcity_demand *demand,
              const float **ret_costs, bool *ret_exact)
{
    const struct scarcity_demand class = scarcity_class_of(demand);
    struct row *alike, *row = find_row(scarcity, demand, &class, &alike);

    scarcity->asked++;
    if (!row && alike && was_sighted(scarcity, demand)) {
        row = add_row(scarcity, demand, &class);
        if (row == alike)
            alike = NULL;
    } else if (!row && !alike) {
        row = add_row(scarcity, demand, &class);
    }
    if (row)
        row->used = scarcity->asked;
    if (row && !alike)
        go_on(scarcity, row);
    *ret_exact = row && row->complete;
    if (!*ret_exact && alike)
        row = alike;
    if (!row)
        return -ENOMEM;
    row->used = scarcity->asked;
    refresh(scarcity, row);
    *ret_costs = row->costs;
    return 0;
}
