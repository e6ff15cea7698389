/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The policy scarcity: a pod goes where it takes the least of what is scarce.
 *
 * Pods come in classes: so many devices, such a share of each, so many processors and so much
 * memory of the node. A class has a price: the higher, the more of it arrives, and the less of it
 * still fits in the cluster. A placement costs what it takes away from all classes on its node,
 * each times its price. Shares are thousandths of a device, of its memory, its compute or its
 * slots, whichever is more.
 *
 * The formulas for a class m that asks for k devices and the share g of each, and c processors:
 *
 *   fill    what copies of m alone could still fill of a node:
 *           min(floor(sum over devices of floor(left / g) / k), floor(processors left / c)) * k * g
 *   usable  the sum of what is left on devices with at least g, if there are k of them and c
 *           processors; else 0
 *   K       the sum of fill over all nodes, as a part of all devices
 *   b       m's share of the arrivals * (k * g / 1000)^-1/2, and 4 times that where k > 1
 *   price   b / (K + 0.01)^3, scaled so that the sum of prices is the sum of b
 *   cost    of a placement: the sum over m of price * (fill + usable before it - those after it)
 *
 * Memory of the node bounds fill and usable as processors do. Where a class's share differs from
 * device to device of one node, k * g is k times their mean.
 *
 * Pure, as all of place is.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/device.h"
#include "model/request.h"

enum {
    SCARCITY_WHOLE = 1000, /* a whole device */
    SCARCITY_STEP = 50,    /* classes round shares up to multiples of it, */
    SCARCITY_STEPS = SCARCITY_WHOLE / SCARCITY_STEP,
    SCARCITY_CPU_STEP = 4000,      /* processors, in thousandths, */
    SCARCITY_MEMORY_STEP = 16384,  /* and MiB of the node's memory */
    SCARCITY_AMOUNT_MAX = 1 << 21, /* more of either counts as so much: floats hold it exactly */

    SCARCITY_TYPES = 32, /* of devices; what is of a further one costs nothing */
    SCARCITY_CLASSES = 256,
    SCARCITY_ENTRIES = 32, /* of one node */
};

/* Devices of one type are alike but for what is used of them. */
struct scarcity_types {
    size_t count;
    struct device samples[SCARCITY_TYPES]; /* unused, healthy, without facts */
};

/* Position of the device's type; SCARCITY_TYPES: it is not known. scarcity_types_add() makes it
 * known if there is room. */
size_t scarcity_types_find(const struct scarcity_types *types, const struct device *device);
size_t scarcity_types_add(struct scarcity_types *types, const struct device *device);

/* What one pod asks for, as the policy sees it. */
struct scarcity_demand {
    uint32_t count;                  /* devices; 0: processors and memory alone */
    uint32_t cpu_milli, memory_mib;  /* of the node */
    uint16_t shares[SCARCITY_TYPES]; /* of a device of each type; 0: it can't have one */
};

/*
 * Of containers that run together the devices are added up, and the share is the largest; of a pod
 * with devices of several vendors, the first vendor's count. demand may be NULL: no devices.
 */
void scarcity_demand_read(const struct scarcity_types *types, const struct demand *demand,
                          uint64_t cpu_milli, uint64_t memory_mib,
                          struct scarcity_demand *ret_demand);

/* The share of one request on a device, 0: it can't have it. */
unsigned scarcity_share(const struct request *request, const struct device *device);

/* What a demand's class asks for. */
struct scarcity_demand scarcity_class_of(const struct scarcity_demand *demand);

/* What is left on a node: devices of one type with as much left each make one entry. */
struct scarcity_entry {
    uint16_t left; /* thousandths */
    uint8_t type, count;
};

struct scarcity_room {
    uint32_t cpu_milli, memory_mib;
    uint32_t count;
    struct scarcity_entry entries[SCARCITY_ENTRIES];
};

/* Of a device; 0 where it can take nothing. */
unsigned scarcity_left(const struct device *device);

/* Fills in the entries, not processors and memory. Devices of an unknown type are left out, and the
 * fullest where there are too many entries. */
void scarcity_room_read(const struct scarcity_types *types, const struct device *devices,
                        size_t count, struct scarcity_room *ret_room);

/* Classes with their prices, in a form that is quick to add up. Classes that differ in processors
 * and memory alone make a group. */
struct scarcity_group {
    uint32_t count;       /* devices of a copy */
    uint16_t first, last; /* its classes */
    uint8_t steps[SCARCITY_TYPES];
};

struct scarcity_prices {
    size_t group_count, class_count;
    struct scarcity_group groups[SCARCITY_CLASSES];
    /* Of each class; q copies of it fit by processors: floor(left * rate + base). */
    float cpu_rate[SCARCITY_CLASSES], cpu_base[SCARCITY_CLASSES];
    float memory_rate[SCARCITY_CLASSES], memory_base[SCARCITY_CLASSES];
    float price[SCARCITY_CLASSES];
    uint16_t given[SCARCITY_CLASSES]; /* its position in the list that was given */
};

/* At most SCARCITY_CLASSES classes, with devices; prices are 0. */
void scarcity_prices_init(struct scarcity_prices *ret_prices, const struct scarcity_demand *classes,
                          size_t count);

/* Adds, for each class in the order given, what copies of it alone could fill of this node. */
void scarcity_add_fill(const struct scarcity_prices *prices, const struct scarcity_room *room,
                       double *fills);

/*
 * Sets the prices. arrivals and fills are in the order that was given: how often each class
 * arrived, in any unit, and what scarcity_add_fill() added up. capacity: thousandths of all
 * devices.
 */
void scarcity_set_prices(struct scarcity_prices *prices, const struct scarcity_demand *classes,
                         const double *arrivals, const double *fills, double capacity);

/* A node with what its groups can still have: for the costs of several demands on it. */
struct scarcity_sight {
    const struct scarcity_prices *prices;
    const struct scarcity_room *room;
    struct scarcity_group_sight {
        uint32_t copies_by_one; /* sum of floor(left / share) */
        uint32_t fitting;       /* devices with at least the share */
        float left;             /* on these */
        float size;             /* of a copy: devices times their share */
    } groups[SCARCITY_CLASSES];
    double value; /* the sum of price * (fill + usable) */
};

void scarcity_see(const struct scarcity_prices *prices, const struct scarcity_room *room,
                  struct scarcity_sight *ret_sight);

/*
 * The least that the demand costs on this node; INFINITY: it does not fit, as far as shares say.
 * *ret_entry is the entry of the device that is taken, of a demand for one device; may be NULL. Of
 * several, those with the least left are taken.
 */
float scarcity_cost(const struct scarcity_sight *sight, const struct scarcity_demand *demand,
                    size_t *ret_entry);

/*
 * What the demand costs on each of the node's devices, whose entries the room has; of a demand for
 * several, how much of the device is left, since those with the least are taken. INFINITY as above.
 */
void scarcity_price_devices(const struct scarcity_types *types,
                            const struct scarcity_prices *prices, const struct scarcity_room *room,
                            const struct scarcity_demand *demand, const struct device *devices,
                            size_t count, float *ret_costs);

/* The same for a demand for one device that takes it of this entry. */
float scarcity_cost_of(const struct scarcity_sight *sight, const struct scarcity_demand *demand,
                       size_t entry);
