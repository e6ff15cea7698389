/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A request whose arena is too small, by whichever of its allocations: it is told -ENOMEM, nothing
 * is reserved or kept of it, and with more memory the answer is the same as ever.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/state.h"
#include "vendor/nvidia/nvidia.h"

enum {
    NODES = 250,
    STEP = 16, /* bytes, the arena's own rounding */
    ENOUGH = 1 << 20,
};

static struct nvidia_config config;
static struct vendor_set vendors;
static struct cluster *cluster;
/* Of few nodes, trying one takes more than all that is kept of each; of many it is the other way.
 */
static size_t node_count;
static const char *names[NODES + 2];

static void add_node(const char *name, bool has_devices)
{
    char text[512];
    struct text_pair pairs[1] = {{NVIDIA_REGISTER_KEY, text}};
    struct resource resources[1] = {{.name = "nvidia.com/gpu", .text = "10"}};
    const struct node node = {
        .name = name,
        .uid = name,
        .resource_version = "1",
        .annotations = {pairs, has_devices},
        .has_status = true,
        .ready = true,
        .allocatable = {resources, 1},
    };

    resources[0].quantity = (struct quantity){QUANTITY_WHOLE, 10};
    (void)snprintf(text, sizeof(text),
                   "[{\"id\":\"GPU-%s-0\",\"count\":10,\"devmem\":1000,\"devcore\":100,\"type\":"
                   "\"NVIDIA-A\",\"mode\":\"hami-core\",\"health\":true},"
                   "{\"id\":\"GPU-%s-1\",\"count\":10,\"devmem\":2000,\"devcore\":100,\"type\":"
                   "\"NVIDIA-A\",\"mode\":\"hami-core\",\"health\":true}]",
                   name, name);
    assert_int_equal(cluster_set_node(cluster, &node, NULL), 0);
}

static int set_up(void **state)
{
    const struct cluster_options options = {.vendors = &vendors};

    (void)state;
    nvidia_config_defaults(&config);
    vendors = (struct vendor_set){0};
    nvidia_add_instance(&vendors, &config);
    cluster = cluster_new(&options);
    cluster_begin(cluster, CLUSTER_NODES);
    for (size_t i = 0; i < node_count; i++) {
        static char texts[NODES][24];

        (void)snprintf(texts[i], sizeof(texts[i]), "n%zu", i);
        names[i] = texts[i];
        add_node(names[i], true);
    }
    /* One has no devices, and one is not known. */
    names[node_count] = "bare";
    names[node_count + 1] = "unknown";
    add_node("bare", false);
    cluster_complete(cluster, CLUSTER_NODES);
    cluster_begin(cluster, CLUSTER_PODS);
    cluster_complete(cluster, CLUSTER_PODS);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cluster_free(cluster);
    return 0;
}

/* An init container and two others, each of so many cards with so much memory. */
static int filter(int cards, int mib, struct arena *arena, struct cluster_answer *ret_answer)
{
    struct resource limits[2] = {{.name = "nvidia.com/gpu", .text = ""},
                                 {.name = "nvidia.com/gpumem", .text = ""}};
    struct container containers[3] = {{.name = "i", .has_resources = true, .has_limits = true},
                                      {.name = "a", .has_resources = true, .has_limits = true},
                                      {.name = "b", .has_resources = true, .has_limits = true}};
    const struct pod pod = {
        .namespace = "default",
        .name = "one",
        .uid = "one",
        .resource_version = "1",
        .has_spec = true,
        .has_priority = true,
        .node_name = "",
        .scheduler_name = "",
        .runtime_class = "",
        .init_count = 1,
        .container_count = 3,
        .containers = containers,
    };

    limits[0].quantity = (struct quantity){QUANTITY_WHOLE, cards};
    limits[1].quantity = (struct quantity){QUANTITY_WHOLE, mib};
    for (size_t i = 0; i < ARRAY_SIZE(containers); i++)
        containers[i].limits = (struct resource_list){limits, 2};
    return cluster_filter(cluster, &pod, names, node_count + 2, 0, arena, ret_answer, NULL);
}

static void assert_same_answer(const struct cluster_answer *answer,
                               const struct cluster_answer *wanted)
{
    if (wanted->node) {
        assert_string_equal(answer->node, wanted->node);
        return;
    }
    assert_string_equal(answer->summary, wanted->summary);
    assert_int_equal(answer->reasons, wanted->reasons);
    assert_int_equal(answer->failed_count, wanted->failed_count);
    for (size_t i = 0; i < wanted->failed_count; i++) {
        assert_string_equal(answer->failed[i].name, wanted->failed[i].name);
        assert_string_equal(answer->failed[i].reason, wanted->failed[i].reason);
        assert_int_equal(answer->failed[i].for_good, wanted->failed[i].for_good);
    }
}

/* Asks with less memory than is enough, a little more each time, until there is an answer. */
static void ask_with_growing_memory(int cards, int mib, int outcome,
                                    const struct cluster_answer *wanted)
{
    int r = -ENOMEM;

    for (size_t size = 0; size < ENOUGH && r == -ENOMEM; size += STEP) {
        CLEANUP(arena_freep) struct arena *arena = arena_new(size);
        struct cluster_answer answer = {0};

        r = filter(cards, mib, arena, &answer);
        assert_int_equal(cluster_count(cluster).reserved, r == CLUSTER_PLACED);
        if (r == -ENOMEM)
            continue;
        assert_int_equal(r, outcome);
        assert_same_answer(&answer, wanted);
    }
    assert_int_equal(r, outcome);
    cluster_delete_pod(cluster, "one");
}

static void ask_everything(void)
{
    static const struct {
        int cards, mib, outcome;
    } rows[] = {
        {1, 100, CLUSTER_PLACED},   {2, 300, CLUSTER_PLACED},
        {2, 900, CLUSTER_REFUSED},  /* one container after the other finds no room */
        {1, 5000, CLUSTER_REFUSED}, /* the first does not */
        {3, 100, CLUSTER_REFUSED},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        CLEANUP(arena_freep) struct arena *arena = arena_new(ENOUGH);
        struct cluster_answer wanted = {0};

        /* First with nothing kept of the question, then with all. */
        for (int again = 0; again < 2; again++) {
            arena_reset(arena);
            assert_int_equal(tear_down(NULL) + set_up(NULL), 0);
            assert_int_equal(filter(rows[i].cards, rows[i].mib, arena, &wanted), rows[i].outcome);
            cluster_delete_pod(cluster, "one");
            if (!again) {
                /* Another cluster, whose answers' texts are its own. */
                struct cluster *before = cluster;

                set_up(NULL);
                ask_with_growing_memory(rows[i].cards, rows[i].mib, rows[i].outcome, &wanted);
                cluster_free(cluster);
                cluster = before;
            } else {
                ask_with_growing_memory(rows[i].cards, rows[i].mib, rows[i].outcome, &wanted);
            }
        }
    }
}

static void too_little_memory_changes_nothing(void **state)
{
    static const size_t counts[] = {5, NODES};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        node_count = counts[i];
        set_up(NULL);
        ask_everything();
        tear_down(NULL);
    }
}

/* Decisions walk over them; and none takes the place of another. */
static void nodes_lie_together(void **state)
{
    struct slab *slabs = NULL;
    struct place_node *places[SLAB_NODES], *another;

    (void)state;
    for (size_t i = 0; i < SLAB_NODES; i++) {
        places[i] = slab_take(&slabs);
        assert_ptr_equal(places[i], places[0] + i);
    }
    another = slab_take(&slabs);
    assert_true(another < places[0] || another > places[SLAB_NODES - 1]);
    slab_give(slabs, places[70]);
    slab_give(slabs, another);
    assert_ptr_equal(slab_take(&slabs), another);
    for (size_t i = 1; i < SLAB_NODES; i++)
        assert_non_null(slab_take(&slabs));
    assert_ptr_equal(slab_take(&slabs), places[70]);
    slab_free(slabs);
}

/* Numbers are few: those of kinds that are gone are given out again. */
static void kinds_that_went_make_room(void **state)
{
    struct kinds *kinds = kinds_new();
    struct device devices[2] = {0};
    uint16_t first;

    (void)state;
    COPY_TEXT(devices[0].model, "stays");
    kinds_take(kinds, devices, 1);
    first = devices[0].kind;
    assert_int_not_equal(first, 0);
    for (unsigned i = 0; i < 5000; i++) {
        struct device *other = &devices[1];

        (void)snprintf(other->model, sizeof(other->model), "model %u", i);
        kinds_take(kinds, devices, 2);
        assert_int_equal(devices[0].kind, first);
        assert_int_not_equal(other->kind, 0);
        assert_int_not_equal(other->kind, first);
        kinds_give(kinds, devices, 2);
    }
    kinds_free(kinds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_little_memory_changes_nothing),
        cmocka_unit_test(nodes_lie_together),
        cmocka_unit_test(kinds_that_went_make_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
