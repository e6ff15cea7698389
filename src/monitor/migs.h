/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The MIG instances that a pod was given, by its annotation hami.io/vgpu-mig-allocations. No I/O.
 */

#include <stddef.h>
#include <yyjson.h>

#define MIGS_KEY "hami.io/vgpu-mig-allocations"

enum {
    MIGS_MAX = 64, /* of a pod */
    MIGS_TEXT_MAX = 64 << 10,
    MIGS_CONTAINERS_MAX = 1024, /* and devices of each */
};

struct mig {
    unsigned container; /* its place in the annotation of the pod's devices */
    unsigned device;    /* in the container */
    char gpu_uuid[96], mig_uuid[96], profile[32];
    unsigned gpu_instance, compute_instance;
};

/*
 * Reads those that were made: all three of their runtime fields are there. An entry without them is
 * still to be made, and left out; one that makes no sense spoils all, as with HAMi. Their number,
 * or -EINVAL.
 */
int migs_parse(const char *text, size_t len, struct mig *ret_migs, size_t max);
