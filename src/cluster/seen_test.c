/* SPDX-License-Identifier: Apache-2.0 */

/* What the watch shows of a pod that runs already, again and again. */

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster.h"
#include "model/keys.h"
#include "vendor/nvidia/nvidia.h"

static struct nvidia_config config;
static struct vendor_set vendors;

static struct cluster *new_cluster(void)
{
    const struct cluster_options options = {.vendors = &vendors};
    struct resource resources[1] = {{.name = "nvidia.com/gpu", .text = "10"}};
    struct text_pair pairs[1] = {
        {NVIDIA_REGISTER_KEY, "[{\"id\":\"GPU-a\",\"count\":10,\"devmem\":1000,\"devcore\":100,"
                              "\"type\":\"NVIDIA-A\",\"mode\":\"hami-core\",\"health\":true}]"}};
    struct node node = {.name = "a", .uid = "a", .resource_version = "1", .has_status = true};
    struct cluster *cluster;

    nvidia_config_defaults(&config);
    vendors = (struct vendor_set){0};
    nvidia_add_instance(&vendors, &config);
    cluster = cluster_new(&options);
    resources[0].quantity = (struct quantity){QUANTITY_WHOLE, 10};
    node.ready = true;
    node.annotations = (struct text_pairs){pairs, 1};
    node.allocatable = (struct resource_list){resources, 1};
    cluster_begin(cluster, CLUSTER_NODES);
    assert_int_equal(cluster_set_node(cluster, &node, NULL), 0);
    cluster_complete(cluster, CLUSTER_NODES);
    cluster_begin(cluster, CLUSTER_PODS);
    cluster_complete(cluster, CLUSTER_PODS);

    /* A registration that can't be read is told as such; what was known stays. */
    pairs[0].value = "[{";
    assert_int_equal(cluster_set_node(cluster, &node, NULL), -EINVAL);
    pairs[0].value = "[{\"id\":\"GPU-a\",\"count\":10,\"devmem\":1000,\"devcore\":100,"
                     "\"type\":\"NVIDIA-A\",\"mode\":\"hami-core\",\"health\":true}]";
    assert_int_equal(cluster_set_node(cluster, &node, NULL), 0);
    return cluster;
}

static int show(struct cluster *cluster, const char *devices, struct error *err)
{
    const struct text_pair pairs[] = {{KEY_NODE, "a"}, {"hami.io/vgpu-devices-allocated", devices}};
    const struct pod pod = {
        .namespace = "default",
        .name = "one",
        .uid = "one",
        .resource_version = "2",
        .annotations = {pairs, ARRAY_SIZE(pairs)},
    };

    return cluster_set_pod(cluster, &pod, err);
}

static void a_pod_is_seen_again_and_keeps_what_it_has(void **state)
{
    struct cluster *cluster = new_cluster();
    struct error err = ERROR_INIT;
    struct cluster_pod_view view;

    (void)state;
    assert_int_equal(show(cluster, "GPU-a,NVIDIA,600,10:;", &err), 0);
    assert_int_equal(show(cluster, "GPU-a,NVIDIA,600,10:;", &err), 0);
    assert_string_equal(err.text, "");
    assert_int_equal(cluster_count(cluster).pods, 1);
    assert_int_equal(show(cluster, "GPU-a,NVIDIA,1,1:;", &err), 1);
    assert_non_null(strstr(err.text, "written over"));
    assert_true(cluster_find_pod(cluster, "one", &view));
    assert_int_equal(view.usage->shares[0].usage.memory_bytes, 600 * MIB);
    cluster_free(cluster);
}

/* Both lists have the same number. */
static void a_pod_and_a_node_of_one_name_are_two(void **state)
{
    struct cluster *cluster = new_cluster();

    (void)state;
    /* The list of nodes lacks the only one; a pod of its name is all that is kept. */
    cluster_begin(cluster, CLUSTER_NODES);
    cluster_begin(cluster, CLUSTER_PODS);
    cluster_keep(cluster, CLUSTER_PODS, "a");
    cluster_complete(cluster, CLUSTER_PODS);
    cluster_complete(cluster, CLUSTER_NODES);
    assert_int_equal(cluster_count(cluster).nodes, 0);
    cluster_free(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pod_is_seen_again_and_keeps_what_it_has),
        cmocka_unit_test(a_pod_and_a_node_of_one_name_are_two),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
