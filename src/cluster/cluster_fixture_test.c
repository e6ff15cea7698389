/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/cluster_fixture.h"

#include <stdio.h>

#include "base/check.h"
#include "base/util.h"
#include "model/keys.h"
#include "vendor/nvidia/nvidia.h"

const char *const fixture_nodes[2] = {"a", "b"};

void fixture_add_node(struct cluster *cluster, const char *name, unsigned mib)
{
    char text[512];
    struct text_pair pairs[1] = {{NVIDIA_REGISTER_KEY, text}};
    struct resource resources[1] = {{.name = "nvidia.com/gpu", .text = "10"}};
    const struct node node = {
        .name = name,
        .uid = name,
        .resource_version = "1",
        .annotations = {pairs, 1},
        .has_status = true,
        .ready = true,
        .allocatable = {resources, 1},
    };

    resources[0].quantity = (struct quantity){QUANTITY_WHOLE, 10};
    (void)snprintf(text, sizeof(text),
                   "[{\"id\":\"GPU-%s\",\"count\":10,\"devmem\":%u,\"devcore\":100,\"type\":"
                   "\"NVIDIA-A\",\"mode\":\"hami-core\",\"health\":true}]",
                   name, mib);
    assert_int_equal(cluster_set_node(cluster, &node, NULL), 0);
}

void fixture_list(struct cluster *cluster)
{
    cluster_begin(cluster, CLUSTER_NODES);
    fixture_add_node(cluster, "a", 1000);
    cluster_complete(cluster, CLUSTER_NODES);
    cluster_begin(cluster, CLUSTER_PODS);
    cluster_complete(cluster, CLUSTER_PODS);
}

int fixture_set_up(void **state)
{
    static struct fixture fixture;
    const struct cluster_options options = {.vendors = &fixture.vendors};

    nvidia_config_defaults(&fixture.config);
    fixture.vendors = (struct vendor_set){0};
    nvidia_add_instance(&fixture.vendors, &fixture.config);
    fixture.cluster = cluster_new(&options);
    fixture.arena = arena_new(1 << 20);
    fixture_list(fixture.cluster);
    *state = &fixture;
    return 0;
}

int fixture_tear_down(void **state)
{
    struct fixture *fixture = *state;

    cluster_free(fixture->cluster);
    arena_free(fixture->arena);
    return 0;
}

int fixture_filter_noted(struct fixture *fixture, const char *uid, int mib,
                         const struct text_pair *note, int64_t now_ns,
                         struct cluster_answer *ret_answer)
{
    struct text_pair notes[1] = {note ? *note : (struct text_pair){0}};
    struct resource limits[2] = {{.name = "nvidia.com/gpu", .text = ""},
                                 {.name = "nvidia.com/gpumem", .text = ""}};
    struct container container = {.name = "c", .has_resources = true, .has_limits = true};
    const struct pod pod = {
        .namespace = "default",
        .name = uid,
        .uid = uid,
        .resource_version = "1",
        .annotations = {notes, note != NULL},
        .has_spec = true,
        .node_name = "",
        .scheduler_name = "",
        .runtime_class = "",
        .container_count = 1,
        .containers = &container,
    };

    limits[0].quantity = (struct quantity){QUANTITY_WHOLE, 1};
    limits[1].quantity = (struct quantity){QUANTITY_WHOLE, mib};
    container.limits = (struct resource_list){limits, 2};
    return cluster_filter(fixture->cluster, &pod, fixture_nodes, ARRAY_SIZE(fixture_nodes), now_ns,
                          fixture->arena, ret_answer, NULL);
}

int fixture_filter(struct fixture *fixture, const char *uid, int mib, int64_t now_ns,
                   struct cluster_answer *ret_answer)
{
    return fixture_filter_noted(fixture, uid, mib, NULL, now_ns, ret_answer);
}

int fixture_bind(struct fixture *fixture, const char *uid, int64_t now_ns,
                 struct text_pairs *ret_annotations)
{
    const struct cluster_bind what = {"default", uid, uid, "a"};

    return cluster_bind(fixture->cluster, &what, now_ns, 1700000000 * NS_PER_S, fixture->arena,
                        ret_annotations, NULL);
}

int fixture_show_whole(struct fixture *fixture, const char *uid, const char *node, int count,
                       const struct text_pair *annotations, size_t annotation_count)
{
    struct resource limit = {.name = "nvidia.com/gpu", .text = ""};
    struct container container = {.name = "c", .has_resources = true, .has_limits = true};
    const struct pod pod = {
        .namespace = "default",
        .name = uid,
        .uid = uid,
        .resource_version = "2",
        .annotations = {annotations, annotation_count},
        .has_spec = true,
        .node_name = node,
        .scheduler_name = "",
        .runtime_class = "",
        .container_count = 1,
        .containers = &container,
    };

    limit.quantity = (struct quantity){QUANTITY_WHOLE, count};
    container.limits = (struct resource_list){&limit, 1};
    return cluster_set_pod(fixture->cluster, &pod, NULL);
}

void fixture_show(struct fixture *fixture, const char *uid, const struct text_pairs *annotations)
{
    const struct pod pod = {
        .namespace = "default",
        .name = uid,
        .uid = uid,
        .resource_version = "2",
        .annotations = *annotations,
    };

    assert_int_equal(cluster_set_pod(fixture->cluster, &pod, NULL), 0);
}

void fixture_start_bind(struct fixture *fixture, const char *uid,
                        struct text_pairs *ret_annotations)
{
    struct cluster_answer answer;

    assert_int_equal(fixture_filter(fixture, uid, 600, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(fixture_bind(fixture, uid, 0, ret_annotations), 0);
}
