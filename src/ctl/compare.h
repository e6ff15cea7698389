/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/error.h"
#include "ctl/objects.h"

enum {
    COMPARISON_MAX = 4,
};

struct comparison {
    const char *policies[COMPARISON_MAX];
    size_t policy_count;
    unsigned orders; /* random ones of the pods, of which the means are shown; 0: the files' */
    bool json;
};

/* A reader of base/options.h, whose member is the comparison: "scarcity,binpack". */
int comparison_read_policies(char *text, void *member, struct error *err);

/*
 * For hamictl simulate: places the pods that wait by each of these policies, and prints how much is
 * allocated, how many pods were refused, and of each class how many more would fit. Files are read
 * once for each policy and order. -EINVAL and others, with err.
 */
int compare_policies(const struct objects_options *options, const struct comparison *comparison,
                     struct error *err);
