/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * HAMi 2.10's annotation hami.io/vgpu-mig-allocations of a pod: which MIG profile at which place of
 * its card each device of the pod's grant is. The scheduler writes it; the node's plugin adds which
 * instance it made for it.
 */

#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"

#define MIG_ALLOCATIONS_KEY "hami.io/vgpu-mig-allocations"

enum {
    MIG_ALLOCATIONS_TEXT_MAX = 64 << 10,
    MIG_ALLOCATIONS_CONTAINERS_MAX = 1024, /* and devices of each */
    MIG_SLICES = 8,                        /* of a card's memory; places begin below it */
};

struct mig_allocation {
    unsigned container; /* its place in the annotation of the pod's devices */
    unsigned device;    /* in the container */
    char gpu_uuid[96], profile[24];
    unsigned start, size; /* of its place, in slices: size from 1 on, and no place ends beyond
                             MIG_SLICES */

    bool made; /* then what follows is there */
    char mig_uuid[96];
    unsigned gpu_instance, compute_instance;
};

/*
 * At most max of them; what follows is left out. As with HAMi, one that makes no sense spoils all:
 * one without a card, a profile or a place, that was made in part, or of whose device there are
 * two. Their number, or -EINVAL.
 */
int mig_allocations_decode(const char *text, size_t len, struct mig_allocation *ret_allocations,
                           size_t max);

/* Adds one to a list that is begun by the first one; the caller ends it with "]". Profiles are
 * taken as they are. */
void mig_allocations_add(struct strbuf *text, const struct mig_allocation *allocation);
