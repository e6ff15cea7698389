/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The names of this node's pods, by uid. No I/O. */

#include <yyjson.h>

struct pod_names;

struct pod_name {
    const char *namespace, *name;
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
