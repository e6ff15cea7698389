/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Resources that a pod asks for and that nobody has: most are misspelt, and such a pod waits for
 * ever, since kube-scheduler finds no node with them. The decision about devices passes over them.
 */

#include "base/arena.h"
#include "base/strbuf.h"
#include "model/node.h"
#include "vendor/vendor.h"

/* The names of what nodes have. Begins as zeros. */
struct node_resources {
    void *tree; /* tsearch(3)'s, of strings of an arena */
};

/* Adds what the node has; new names are copied into the arena. -ENOMEM. */
int node_resources_add(struct node_resources *resources, const struct node *node,
                       struct arena *arena);
void node_resources_deinit(struct node_resources *resources);

/*
 * Adds a line for each amount of a container that no node has and no vendor of the set serves:
 * "spec.containers[0].resources.limits[x/y]: no section ...". Kubernetes' own resources and
 * amounts of 0 are passed over, and a request beside a limit.
 */
void unserved_describe(const struct node_resources *resources, const struct vendor_set *vendors,
                       const struct pod *pod, struct strbuf *text);
