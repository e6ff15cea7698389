/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Made clusters of nodes with 8 cards, and pods placed on them, for the benchmarks. */

#include "cluster/cluster.h"
#include "config/device_config.h"
#include "vendor/nvidia/nvidia.h"

enum {
    CARDS = 8,
    CARD_MIB = 81920,
    NAME_SIZE = 32,
};

enum made_kind { MADE_NVIDIA = 0, MADE_HYGON, MADE_ASCEND, MADE_KINDS };

struct bench {
    bool is_mixed; /* nodes of each kind by turns; set before made_cluster() */
    struct nvidia_config config;
    struct device_config file;
    struct vendor_set vendors;
    struct cluster *cluster;
    struct arena *arena;
    enum made_kind kind;            /* of the devices that are asked for */
    const char *policy, *namespace; /* of the pods that are asked about */
    const char **names;             /* as in a request: one behind the other in its body */
    char *text;
    size_t count;
    uint64_t random;
};

/* config NULL: NVIDIA alone. */
void made_cluster(struct bench *bench, size_t nodes, size_t pods, const char *config);
/* Nodes say how their cards are connected: in halves, of which each is connected well. */
void made_add_scores(struct bench *bench, size_t number);

unsigned made_draw(struct bench *bench, unsigned below);
int made_filter(struct bench *bench, const char *uid, int count, int mib, int cores,
                const char **ret_node);
/* Bound, and seen to be. */
void made_settle(struct bench *bench, const char *uid, const char *node);
/* The times are sorted; 0.5: the median. */
int64_t made_part(int64_t *times, size_t count, double which);
