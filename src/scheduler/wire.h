/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The extender's messages, kube-scheduler's extender API v1. Keys are read in upper or lower case,
 * as Go reads them; answers have every field, as HAMi's do. Errors stand in the answer, with status
 * 200.
 */

#include <stddef.h>
#include <yyjson.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/strbuf.h"
#include "cluster/cluster.h"
#include "cluster/term.h"
#include "model/pod.h"

enum {
    WIRE_NAME_SIZE = 256, /* Kubernetes' names are shorter */
};

/* ExtenderArgs. Strings are the arena's or the JSON's. */
struct filter_args {
    struct pod pod;
    const char **names;
    size_t count;
    struct node *nodes;  /* those that were sent whole, under these names; NULL: names alone */
    yyjson_val **wholes; /* the same, as they were sent */
};

/* ExtenderBindingArgs. */
struct bind_args {
    char namespace[WIRE_NAME_SIZE], name[WIRE_NAME_SIZE], uid[WIRE_NAME_SIZE];
    char node[WIRE_NAME_SIZE];
};

/* -EINVAL with the field's name, -ENOMEM when the arena is full. */
int wire_read_filter(yyjson_val *root, const struct kept_names *kept, struct arena *arena,
                     struct filter_args *ret_args, struct error *err);
int wire_read_bind(yyjson_val *root, struct bind_args *ret_args, struct error *err);

/* ExtenderPreemptionArgs with NodeNameToMetaVictims. Strings are the arena's or the JSON's. */
struct preempt_args {
    struct pod pod;
    struct cluster_victims *victims;
    size_t count;
};

int wire_read_preempt(yyjson_val *root, const struct kept_names *kept, struct arena *arena,
                      struct preempt_args *ret_args, struct error *err);

/* ExtenderPreemptionResult. */
void wire_write_victims(struct strbuf *buf, const struct preempt_args *args);

/* A Lease of coordination.k8s.io/v1; missing fields are 0. The holder is the JSON's. */
void wire_read_lease(yyjson_val *root, struct lease *ret_lease);

/* ExtenderFilterResult: the nodes that are left, or why none is, or the error alone. */
void wire_write_names(struct strbuf *buf, const char *const *names, size_t count);
void wire_write_nodes(struct strbuf *buf, yyjson_val *const *wholes, size_t count);
void wire_write_failed(struct strbuf *buf, const struct cluster_answer *answer);

/* {"Error": text}, for both verbs. */
void wire_write_error(struct strbuf *buf, const char *text);

/* The value of a key in upper or lower case; NULL when there is none, or object is no object. */
yyjson_val *wire_get(yyjson_val *object, const char *key);

/* The text of a key, "" when there is none. */
const char *wire_text(yyjson_val *object, const char *key);
