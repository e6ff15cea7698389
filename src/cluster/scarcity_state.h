/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The records of scarcity.h. Inside scarcity.c, rows.c and fillable.c only. */

#include "cluster/scarcity.h"

enum {
    ROWS_MAX = 128,
    SIGHTINGS = 64,
    COUNTED_SETS = 32768, /* of pods that were counted as arrivals, so many uids' hashes each: */
    COUNTED_WAYS = 2,
};

/* A class, and how often it arrived. */
struct learned {
    struct scarcity_demand demand;
    struct request *request; /* of one of its pods */
    double arrivals;
};

/* A place of a node in the tables. */
struct seat {
    bool taken, dirty; /* dirty: the rows' costs are of an earlier state */
    uint32_t devices;
};

/* What a demand costs on each node, by seat. */
struct row {
    struct scarcity_demand demand, class;
    uint64_t used; /* when it was asked for last */
    bool complete; /* else up to cursor, INFINITY behind it */
    bool has_next; /* it takes part in the renewal that is under way */
    size_t cursor;
    float *costs, *next; /* by the prices in force, by those to come */
};

enum renewal {
    RENEWAL_NONE = 0,
    RENEWAL_ADDS_UP,
    RENEWAL_PRICES_NODES,
    RENEWAL_COUNTS_ANEW, /* by the prices in force, for those who look at the classes */
};

struct scarcity {
    struct scarcity_types types;

    size_t class_count;
    struct learned classes[SCARCITY_CLASSES];
    double unit;                     /* what the latest arrival counts */
    uint64_t arrived, arrived_milli; /* since the prices were renewed */
    unsigned renewals;
    uint64_t counted_uids[COUNTED_SETS][COUNTED_WAYS]; /* the latest first */
    bool forced;                                       /* the prices are to be renewed next */
    bool counted; /* else what would fit is to be counted next */

    size_t seat_count;
    struct seat *seats;
    struct scarcity_room *rooms;
    uint32_t *dirty;
    size_t dirty_count;
    uint64_t device_count;

    struct scarcity_prices *now, *next;
    enum renewal phase;
    size_t cursor; /* the next seat */
    size_t next_count, known_count;
    struct scarcity_demand next_classes[SCARCITY_CLASSES], known_classes[SCARCITY_CLASSES];
    /* Arrivals in terms of the latest, since prices are floats. */
    double next_arrivals[SCARCITY_CLASSES], next_fills[SCARCITY_CLASSES];
    double known_arrivals[SCARCITY_CLASSES], known_fills[SCARCITY_CLASSES];
    double known_prices[SCARCITY_CLASSES];
    double next_left, known_left; /* thousandths of devices, on all nodes */

    size_t row_count;
    struct row rows[ROWS_MAX];
    uint64_t asked;                /* questions so far */
    uint64_t sightings[SIGHTINGS]; /* hashes of demands that had no row of their own */
    size_t sighting;
    struct scarcity_sight sight; /* for one node at a time */
};

/* scarcity.c: the prices are to be renewed next, whatever has arrived. */
void scarcity_renew(struct scarcity *scarcity);

/* rows.c */
void rows_free(struct scarcity *scarcity);
void rows_drop(struct scarcity *scarcity);
int rows_grow(struct scarcity *scarcity, size_t seat_count);
/* Prices a node in all rows. */
void rows_price(struct scarcity *scarcity, size_t seat);
void rows_price_next(struct scarcity *scarcity, size_t seat);
void rows_begin_next(struct scarcity *scarcity);
void rows_switch(struct scarcity *scarcity);
/* Goes on with a row that is not complete; false: all are. */
bool rows_step(struct scarcity *scarcity);
/* The costs of a demand. Not exact: those of another one of its class, or with INFINITY for nodes
 * whose cost is not known yet. -ENOMEM. */
int rows_find(struct scarcity *scarcity, const struct scarcity_demand *demand,
              const float **ret_costs, bool *ret_exact);
