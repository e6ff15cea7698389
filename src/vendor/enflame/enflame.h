/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Enflame's cards: whole (GCU), or in parts (vGCU) by one of two agents of gcushare. The older one
 * shares a card in slices, of which HAMi 2.8 asks by a percentage; the newer one (DRS, HAMi 2.10)
 * makes instances by the profiles that it registers.
 */

#include "vendor/vendor.h"

#define ENFLAME_PART_WORD "Enflame"
#define ENFLAME_PART_ALLOCATED_KEY "hami.io/enflame-vgpu-devices-allocated"

/* On a pod with a part of a card. */
#define ENFLAME_ASSIGNED_KEY "enflame.com/gcu-assigned"
#define ENFLAME_ASSIGNED_TIME_KEY "enflame.com/gcu-assigned-time"
#define ENFLAME_ID_KEY "enflame.com/gcu-assigned-id"
#define ENFLAME_INDEX_KEY "enflame.com/gcu-assigned-index"
#define ENFLAME_MINOR_KEY "enflame.com/gcu-assigned-minor"
#define ENFLAME_SIZE_KEY "enflame.com/gcu-request-size"
#define ENFLAME_CONTAINERS_KEY "assigned-containers"

enum {
    ENFLAME_SLICES_MAX = 100, /* of a card */
};

/* Section `enflame` of the device configuration. Names are "" where there is none. */
struct enflame_config {
    char gcu_name[SECTION_NAME_SIZE];
    char vgcu_name[SECTION_NAME_SIZE], percentage_name[SECTION_NAME_SIZE];
    int32_t slices; /* of a card, for those that ask by a percentage */
    char drs_name[SECTION_NAME_SIZE], memory_name[SECTION_NAME_SIZE], cores_name[SECTION_NAME_SIZE];
};

extern const struct vendor enflame_vendor; /* whole cards; its section has the others' keys, too */
extern const struct vendor enflame_shared_vendor, enflame_drs_vendor;

/* Adds the instance of either; -E2BIG. */
int enflame_shared_add(struct vendor_set *set, const struct enflame_config *config);
int enflame_drs_add(struct vendor_set *set, const struct enflame_config *config);

/* The devices of the first container that has any; NULL: none has. */
const struct container_devices *enflame_first_given(const struct pod_devices *given);
