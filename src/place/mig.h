/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Instances of a card in MIG mode. A card is cut in one way, its group, for as long as any instance
 * is in use; which group that is follows from the instances in use. Inside place only.
 */

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "model/device.h"

struct mig_instance {
    int group, number;
    uint32_t memory_mib, cores;
};

/* True in MIG mode, where a card is given out in instances and in no other way. */
static inline bool mig_is_on(const struct device *device)
{
    return device->mode[0] == DEVICE_MODE_MIG[0] && strcmp(device->mode, DEVICE_MODE_MIG) == 0;
}

/*
 * The first free instance with so much memory, of the group in use, or of the first group that has
 * one. False: there is none, or it is not known how the card may be cut.
 */
bool mig_instance_find(const struct device *device, uint64_t memory_mib,
                       struct mig_instance *ret_instance);

/* One task more on an instance, or one less if by is -1. False: a card has no such instance. */
bool mig_instance_use(struct device *device, int group, int number, int by);
