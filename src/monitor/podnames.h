/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The names of this node's pods, by uid, and which MIG instances they were given. No I/O. */

#include <yyjson.h>

#include "model/mig_allocations.h"

struct pod_names;

/* An instance that a container has. */
struct pod_mig {
    char container[64];        /* "": the pod has no such container */
    struct mig_allocation mig; /* made */
};

struct pod_name {
    const char *namespace, *name;
    size_t mig_count;
    const struct pod_mig *migs;
};

struct pod_names *pod_names_new(void);
void pod_names_free(struct pod_names *names);

/* A list begins; names that are not put before it is complete are forgotten then. */
void pod_names_begin(struct pod_names *names);
void pod_names_put(struct pod_names *names, yyjson_val *object);
void pod_names_remove(struct pod_names *names, yyjson_val *object);
void pod_names_complete(struct pod_names *names);

/* Good until the names change; NULL: no such pod. */
const struct pod_name *pod_names_find(const struct pod_names *names, const char *uid);

/* Calls fn for each pod. */
void pod_names_each(const struct pod_names *names,
                    void (*fn)(void *data, const struct pod_name *pod), void *data);
