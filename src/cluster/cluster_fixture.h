/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A cluster of one node and functions that act on it, for the tests of cluster. */

#include "cluster/cluster.h"
#include "vendor/nvidia/nvidia.h"

#define SECOND INT64_C(1000000000)

struct fixture {
    struct nvidia_config config;
    struct vendor_set vendors;
    struct cluster *cluster;
    struct arena *arena;
};

extern const char *const fixture_nodes[2]; /* "a", "b" */

/* A node with one card, "GPU-NAME". */
void fixture_add_node(struct cluster *cluster, const char *name, unsigned mib);

/* A complete list: node a with a card of 1000 MiB, and no pod. */
void fixture_list(struct cluster *cluster);

/* cmocka's: *state is the fixture. */
int fixture_set_up(void **state);
int fixture_tear_down(void **state);

/* A filter of a pod that asks for one card and so much memory, among fixture_nodes; note is an
 * annotation of the pod, or NULL. */
int fixture_filter_noted(struct fixture *fixture, const char *uid, int mib,
                         const struct text_pair *note, int64_t now_ns,
                         struct cluster_answer *ret_answer);
int fixture_filter(struct fixture *fixture, const char *uid, int mib, int64_t now_ns,
                   struct cluster_answer *ret_answer);

/* A bind to node a begins. */
int fixture_bind(struct fixture *fixture, const char *uid, int64_t now_ns,
                 struct text_pairs *ret_annotations);

/* The watch shows a whole pod, which runs on this node. */
int fixture_show_whole(struct fixture *fixture, const char *uid, const char *node, int count,
                       const struct text_pair *annotations, size_t annotation_count);

/* The watch shows it bound, with what its Binding wrote. */
void fixture_show(struct fixture *fixture, const char *uid, const struct text_pairs *annotations);

/* A pod of 600 MiB is placed on node a, and its bind has begun. */
void fixture_start_bind(struct fixture *fixture, const char *uid,
                        struct text_pairs *ret_annotations);

#define FIXTURE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)
