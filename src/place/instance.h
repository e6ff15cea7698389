/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Instances of a card in MIG mode. A card is cut in one way, its group, from its first instance in
 * use to its last; which that is follows from who uses it. Inside place only.
 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "model/device.h"

struct instance {
    int group, number;
    uint32_t memory_mib, cores;
};

/* True in MIG mode, where a card is given out in instances and in no other way. */
static inline bool instance_is_needed(const struct device *device)
{
    return device->mode[0] == DEVICE_MODE_MIG[0] && strcmp(device->mode, DEVICE_MODE_MIG) == 0;
}

/*
 * The first free instance with so much memory: of the group in use, or of the first group that has
 * one. False: there is none, or how the card may be cut is not known.
 */
bool instance_find(const struct device *device, uint64_t memory_mib, struct instance *ret_instance);

/* One task more, or with by of -1 one less, on an instance; false when there can't be such a one.
 */
bool instance_use(struct device *device, int group, int number, int by);
