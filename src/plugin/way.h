/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * By which way a node's containers get their devices: what the person who runs the node asked for
 * (HAMi's and NVIDIA's device-list-strategy), held against what the node can do. Pure.
 */

#include "base/error.h"
#include "plugin/fitness.h"

/* Strategies, as a set. 0: whichever the node can do. */
enum way_strategy {
    WAY_CDI_CRI = 1 << 0,         /* CDI devices, by the field of kubelet's and the runtime's API */
    WAY_CDI_ANNOTATIONS = 1 << 1, /* CDI devices, by annotations of the container */
    WAY_ENVVAR = 1 << 2,          /* NVIDIA_VISIBLE_DEVICES, for NVIDIA's runtime */
    WAY_VOLUME_MOUNTS = 1 << 3,   /* mounts that NVIDIA's runtime reads, likewise */
};

enum way {
    WAY_UNKNOWN,   /* not known yet */
    WAY_CLOSED,    /* the strategies that were asked for do not work on this node */
    WAY_LATE,      /* Allocate names a CDI device, whose specification is written at the start */
    WAY_ANNOTATED, /* the same, named in an annotation */
    WAY_ORDERED,   /* Allocate answers all, for the one pod that is being bound (ordered.h) */
};

/* Adds the strategies of a list with commas to the set. -EINVAL with err, which has the first that
 * is unknown. */
int way_read(const char *text, unsigned *strategies, struct error *err);

/* Several strategies: the first that the node can do, in the order of enum way_strategy. */
enum way way_choose(unsigned strategies, enum fitness_outcome outcome);

static inline bool way_is_late(enum way way)
{
    return way == WAY_LATE || way == WAY_ANNOTATED;
}
