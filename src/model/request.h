/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Requests: what one container, or one command of `hamictl run`, asks of one vendor; and a pod's
 * demand. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/device.h"
#include "model/text.h"

/* A request's verdict on a kind of its vendor's devices; see device.kind. */
enum type_verdict {
    TYPE_MISMATCH = 0, /* not of the types or modes that are asked for */
    TYPE_MATCHES,
};

struct type_memo {
    struct {
        uint16_t kind; /* 0: none */
        uint8_t verdict;
    } entries[16]; /* by the kind's last bits */
};

struct request {
    const struct device_vendor *vendor; /* whose devices; NULL: nobody's */
    unsigned count;                     /* devices; the amounts below are of each */
    uint64_t memory_bytes;              /* 0: see memory_percent */
    unsigned memory_percent; /* of the card, when memory_bytes is 0; 0: no memory is asked for */
    unsigned cores;          /* percent of the card; 0: no share is asked for */

    /* Verdicts on kinds of devices: many devices are of few kinds. */
    struct type_memo *memo; /* NULL: found out each time */

    /* Empty lists do not constrain. UUIDs match exactly, types as a part of the model's name. */
    struct text_list use_uuids, avoid_uuids;
    struct text_list use_types, avoid_types;

    bool one_numa_node; /* all devices are of one NUMA node */
    const char *modes;  /* ways of sharing: a device's must be a part of it; NULL: any */

    /* For the vendor's rules: bytes in which no address stands, since requests are compared by
     * them. */
    const void *wishes;
    size_t wishes_size;
};

/* When a container runs, from which follows what it may share with the others of its pod. */
enum container_role {
    CONTAINER_APP = 0,
    CONTAINER_INIT,    /* before the apps, alone but for the sidecars started before it */
    CONTAINER_SIDECAR, /* an init container that is restarted always: from its turn on to the end */
};

/* As in the text of pod_init_roles(). */
static inline char container_role_letter(enum container_role role)
{
    return role == CONTAINER_SIDECAR ? 's' : 'i';
}

struct container_demand {
    enum container_role role;
    size_t request_count; /* at most one of each vendor */
    const struct request *requests;
};

/* All containers of a pod, those that ask for nothing included; init containers come first. */
struct demand {
    size_t count;
    const struct container_demand *containers;
};
