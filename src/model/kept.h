/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which names of an object are kept when it is read, beside HAMi's own (hami.io/): what the vendors
 * in use need. Vendors say so by prefixes; the arrays' strings last as long as the vendors.
 */

#include <stdbool.h>
#include <stddef.h>

enum {
    KEPT_NAMES_MAX = 64,
};

struct kept_names {
    size_t annotation_count, variable_count, label_count;
    const char *annotations[KEPT_NAMES_MAX]; /* prefixes; labels of pods, too */
    const char *variables[KEPT_NAMES_MAX];   /* prefixes of a container's environment */
    const char *labels[KEPT_NAMES_MAX];      /* whole names, of nodes */
    bool amounts;                            /* processors and memory are read, too */
};
