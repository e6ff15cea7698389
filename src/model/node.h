/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A node, reduced to what decisions need. Strings belong to the arena it was read into. Annotations
 * are kept by the same prefixes as a pod's, labels by their names,
 * resources by having a domain in their name.
 */

#include <stdbool.h>
#include <stddef.h>
#include <yyjson.h>

#include "base/arena.h"
#include "base/error.h"
#include "model/amounts.h"
#include "model/pod.h"
#include "model/text.h"

struct node {
    const char *name, *uid, *resource_version; /* "" where absent */
    struct text_pairs annotations, labels;
    bool deleting;
    bool unschedulable; /* by its spec: cordoned, as by kubectl drain */

    bool has_status; /* false: metadata alone was read */
    bool ready;      /* condition Ready is "True" */
    struct resource_list allocatable, capacity;
    struct amounts amounts; /* allocatable, if they are kept */
};

/*
 * Reads a Node, or a PartialObjectMetadata of one; nothing of the value is kept. kept may be
 * NULL. Errors as pod_read()'s.
 */
int node_read(yyjson_val *object, const struct kept_names *kept, struct arena *arena,
              struct node *ret_node, struct error *err);
