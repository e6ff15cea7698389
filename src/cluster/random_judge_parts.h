/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the judge's files have in common (random_judge.h); nobody else's. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cluster/random_world.h"

static inline long most(long a, long b)
{
    return a > b ? a : b;
}

static inline unsigned node_number(const char *name)
{
    return (unsigned)(name[5] - '0');
}

/* Says what is wrong and who has what of the node that was looked at last, and aborts. */
void __attribute__((format(printf, 1, 2), noreturn)) judge_wrong(const char *format, ...);
void judge_looks_at(unsigned node);

/* What a device has to give, as it was shown last. */
struct room {
    bool there, healthy;
    bool whole, cut, placed; /* may be given out in this way: in instances of a geometry, or of
                                profiles */
    long mib, cores, tasks;
};

struct room judge_room_of(unsigned node, enum maker maker, unsigned device);
/* Whether the node has devices of the vendor that count. */
bool judge_is_there(unsigned node, enum maker maker);
/* The least that the quotas of a namespace say; LONG_MAX: nothing. */
long judge_bound_of(const char *space, enum maker maker, enum amount amount);
/* Others' garbage may name this device. */
bool judge_is_spoilt(unsigned node, enum maker maker, unsigned device);

/* What was asked for. */

bool judge_is_listed(const struct api_pod *pod, unsigned node, unsigned device);
unsigned judge_pieces_wanted(const struct ask *ask, enum maker maker);

/* Grants, read anew: random_judge_grants_test.c. */

/* "GPU-1-1[0-2],NVIDIA,6000,25:" */
struct piece {
    char uuid[64];
    long mib, cores;
    uint64_t parts; /* instances of a card, cores of a chip; 0: all of it is shared. Of a card that
                       is cut by profiles its slices, from PLACED on */
    uint64_t counted; /* the same as the cluster numbers them */
};

#define CUT UINT64_C(0xffff)
#define PLACED UINT64_C(0x10000)

/* False: the container's pieces are over. */
bool judge_next_piece(const char **at, enum maker maker, struct piece *ret_piece);
/* What lies where of a card: what the annotation says of this device. */
void judge_read_place(const struct written *written, size_t container, unsigned number,
                      struct piece *piece);

/* What is taken of one device, or of all of a vendor's. */
struct taken {
    long mib, cores, tasks;
    uint64_t parts, counted;
    bool whole, alone; /* in one piece: with the device's whole compute */
};

/* The most that a pod takes at any time: apps and sidecars together, an init container beside the
 * sidecars before it. uuid NULL: of all devices. */
struct taken judge_recount(const struct written *written, enum maker maker, const char *uuid);

/* All that is taken of a device. `alone`: some pod has all of its compute. */
struct sum {
    long mib, cores, tasks;
    uint64_t parts, counted;
    bool whole, alone;
};

struct sum judge_sum_of(unsigned node, enum maker maker, unsigned device);
/* What the pods of a namespace have. */
long judge_used_of(const char *space, enum maker maker, enum amount amount);
