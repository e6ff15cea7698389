/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The containers of this node and their use of their cards, from their folders: the limits files,
 * and the regions, which are read and never mapped.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "region/limits.h"
#include "region/view.h"

struct containers;

enum {
    CONTAINER_NAME_SIZE = 256,
    CONTAINER_UID_SIZE = 64,
};

/* A container's use of one of its cards. */
struct container_card {
    char uuid[LIMITS_UUID_SIZE];
    unsigned index;       /* the card's number in the container */
    uint64_t limit_bytes; /* 0: none */
    unsigned cores;       /* percent, 0: no limit */
    struct region_view_memory used;
    double utilization; /* percent of the card's time, over the last seconds */
    uint64_t charged_ns, delayed_ns, launches_delayed, refusals;
    uint64_t waits[REGION_WAITS];
};

struct container_use {
    char pod_uid[CONTAINER_UID_SIZE];
    char name[CONTAINER_NAME_SIZE];
    bool has_region; /* a process made a region; else nothing is used */
    bool borrows;    /* it may use what others leave idle of its cards' time */
    int priority;    /* of its tasks; 0 is high */
    uint64_t last_kernel_time;
    uint64_t unaccounted_refused, unaccounted_allowed;
    uint64_t pinned_bytes;  /* of the host's memory */
    uint64_t spilled_bytes; /* of what it uses, that lives on the host */
    uint64_t imports;       /* pieces of memory that its processes hold and others made */
    unsigned card_count;
    struct container_card cards[LIMITS_MAX_DEVICES];
};

/* hook_path is where the plugin keeps its files. */
struct containers *containers_new(const char *hook_path);
void containers_free(struct containers *containers);

/*
 * Sees each container of the pods that wants() names, with its region's file and what is in it,
 * NULL where there is none yet.
 */
struct containers_visitor {
    bool (*wants)(void *data, const char *pod_uid);
    void (*visit)(void *data, const struct container_use *use, const char *region_path,
                  const struct region_view *view);
    void *data;
};

/* One look at all containers. */
struct containers_look {
    int64_t now_ns; /* of CLOCK_MONOTONIC: utilisation is over the time between two looks, at least
                       half a second apart */
    const struct containers_visitor *visitors; /* may be NULL */
    size_t visitor_count;

    /* What was found: the object's until the next look. */
    const struct container_use *uses;
    size_t use_count;
    int missed; /* a negative errno where a container was passed over for want of memory or
                   descriptors: what was visited is not all; else 0 */
};

/*
 * Reads all containers, with a few short reads each. Their regions' files stay open until the look
 * after the container has gone, 1,024 of them and half of the process' descriptors at most; the
 * others are opened for each look. Returns 0, or a negative errno with err set.
 */
int containers_look(struct containers *containers, struct containers_look *look, struct error *err);
