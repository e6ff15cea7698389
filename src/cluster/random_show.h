/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The world's objects in the forms that the cluster reads; not for the judge. */

#include "cluster/cluster.h"
#include "cluster/random_world.h"

enum {
    NODE_TEXT = 4096,
};

struct shown_node {
    struct node node;
    struct text_pair pairs[8], label;
    char version[16], nvidia[NODE_TEXT], hygon[NODE_TEXT], scores[NODE_TEXT], cordon[NODE_TEXT];
    char word[NODE_TEXT];
    struct resource allocatable[4], capacity[4];
    char amounts[4][2][16];
};

struct shown_pod {
    struct pod pod; /* without a spec */
    struct text_pair pairs[14];
    char time[24], priority[16], allocations[ALLOCATIONS_TEXT];
};

void show_fill_node(const struct api_node *from, struct shown_node *shown);
void show_fill_pod(const struct api_pod *from, struct shown_pod *shown);
