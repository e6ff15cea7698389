/* SPDX-License-Identifier: Apache-2.0 */

/* Agents that have a handshake, and a neighbour of theirs that has none. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster.h"
#include "model/keys.h"

#define WALL (INT64_C(1795374000) * NS_PER_S) /* 2026-11-22T19:00:00Z */
#define S NS_PER_S

/* A device where the node has the annotation. */
static int read_node(const struct vendor_instance *instance, const struct node *node,
                     struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                     struct error *err)
{
    (void)arena;
    (void)max;
    (void)err;
    if (!text_pairs_get(&node->annotations, instance->register_key))
        return -ENOENT;
    ret_devices[0] = (struct device){.vendor = &instance->id, .healthy = true};
    COPY_TEXT(ret_devices[0].uuid, instance->id.word);
    *ret_count = 1;
    return CODEC_EXACT;
}

static const struct place_rules rules;
static const struct vendor vendor = {.name = "made-up", .read_node = read_node};
static const struct vendor silent_vendor = {
    .name = "leaves", .read_node = read_node, .leaves_handshake = true};

static const struct vendor_set set = {
    .count = 3,
    .instances = {{.vendor = &vendor,
                   .id = {"A", &rules, NULL},
                   .register_key = "register-a",
                   .allocated_key = "allocated-a",
                   .handshake_key = "handshake-a",
                   .count_resource = "a/count"},
                  {.vendor = &vendor,
                   .id = {"B", &rules, NULL},
                   .register_key = "register-b",
                   .allocated_key = "allocated-b",
                   .count_resource = ""},
                  {.vendor = &silent_vendor,
                   .id = {"C", &rules, NULL},
                   .register_key = "register-c",
                   .allocated_key = "allocated-c",
                   .handshake_key = "handshake-c",
                   .count_resource = "c/count"}},
};

static struct cluster *cluster;

static int set_up(void **state)
{
    const struct cluster_options options = {.vendors = &set};

    (void)state;
    cluster = cluster_new(&options);
    return cluster ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    cluster_free(cluster);
    return 0;
}

/* The watch shows the node; counted NULL: kubelet never knew of such devices. */
static void show(const char *word, const char *value, const char *counted)
{
    char handshake[32];
    const struct text_pair pairs[] = {
        {"register-b", "yes"},
        {word[0] == 'a' ? "register-a" : "register-c", "yes"},
        {handshake, value},
    };
    const struct resource resource = {
        .name = word[0] == 'a' ? "a/count" : "c/count",
        .text = counted,
        .quantity = {.value = counted ? counted[0] - '0' : 0},
    };
    const struct node node = {
        .name = "n",
        .annotations = {pairs, value ? 3 : 2},
        .has_status = true,
        .allocatable = {&resource, counted ? 1 : 0},
    };

    (void)snprintf(handshake, sizeof(handshake), "handshake-%s", word);
    assert_int_equal(cluster_set_node(cluster, &node, NULL), 0);
}

static bool has_device(const char *word)
{
    const struct place_node *node = cluster_find_node(cluster, "n");

    for (size_t i = 0; node && i < node->device_count; i++) {
        if (strcmp(node->devices[i].uuid, word) == 0)
            return true;
    }
    return false;
}

/* What is written at this moment: "", or the value. */
static const char *look(int64_t now_ns)
{
    static struct cluster_handshake write;
    size_t count = cluster_handshakes(cluster, now_ns, WALL + now_ns, &write, 1);

    if (!count)
        return "";
    assert_string_equal(write.node, "n");
    return write.value;
}

static void an_agent_that_writes_is_never_asked(void **state)
{
    char value[64];

    (void)state;
    for (int64_t now = 0; now < 600 * S; now += S) {
        if (now % (30 * S) == 0) {
            (void)snprintf(value, sizeof(value), "Reported %lld", (long long)now);
            show("a", value, NULL);
        }
        assert_string_equal(look(now), "");
        assert_true(has_device("A") && has_device("B"));
    }
}

/* Whether the node is shown as an object with this registration. */
static bool shows(const char *key)
{
    struct strbuf text = STRBUF_INIT(1 << 20);
    bool found;

    cluster_objects(cluster, &text);
    found = strstr(strbuf_text(&text), key) != NULL;
    strbuf_deinit(&text);
    return found;
}

static void one_that_falls_silent_loses_its_devices_and_nothing_else(void **state)
{
    (void)state;
    show("a", "Reported_x", NULL);
    assert_string_equal(look(0), "");
    assert_string_equal(look(59 * S), "");
    assert_string_equal(look(60 * S), "Requesting_2026-11-22 19:01:00");
    assert_string_equal(look(61 * S), ""); /* the watch will show it */
    show("a", "Requesting_2026-11-22 19:01:00", NULL);
    assert_string_equal(look(62 * S), "");
    assert_string_equal(look(119 * S), "");
    assert_true(has_device("A"));
    assert_true(shows("\"annotations\":{\"register-a\":\"yes\",\"register-b\":\"yes\"}"));
    assert_string_equal(look(120 * S), "Deleted_2026-11-22 19:02:00");
    assert_false(has_device("A"));
    assert_true(has_device("B"));
    assert_true(shows("\"annotations\":{\"register-b\":\"yes\"}"));
    show("a", "Requesting_2026-11-22 19:01:00", NULL); /* another event of the node */
    assert_false(has_device("A"));
    show("a", "Deleted_2026-11-22 19:02:00", NULL);
    assert_string_equal(look(500 * S), "");
    assert_false(has_device("A"));
    show("a", "Reported_y", NULL);
    assert_true(has_device("A") && has_device("B"));
    assert_string_equal(look(501 * S), "");
}

static unsigned used_tasks(const char *word)
{
    const struct place_node *node = cluster_find_node(cluster, "n");

    for (size_t i = 0; node && i < node->device_count; i++) {
        if (strcmp(node->devices[i].uuid, word) == 0)
            return node->devices[i].used.tasks;
    }
    return 0;
}

static void what_is_used_of_its_neighbours_stays_as_it_is(void **state)
{
    static const struct text_pair pairs[] = {{KEY_NODE, "n"}, {"allocated-b", "B,B,0,0:;"}};
    const struct pod pod = {
        .namespace = "x", .name = "p", .uid = "p", .annotations = {pairs, ARRAY_SIZE(pairs)}};

    (void)state;
    show("a", "Reported", NULL);
    assert_int_equal(cluster_set_pod(cluster, &pod, NULL), 0);
    assert_int_equal(used_tasks("B"), 1);
    show("a", "Requesting", NULL);
    (void)look(0);
    assert_false(has_device("A"));
    assert_int_equal(used_tasks("B"), 1);
    cluster_delete_pod(cluster, "p");
    assert_int_equal(used_tasks("B"), 0);
}

/* Some are honestly silent for five minutes. */
static void one_that_kubelet_counts_devices_of_keeps_them(void **state)
{
    (void)state;
    show("a", "Requesting_2026-11-22 18:00:00", "4");
    assert_string_equal(look(0), "");
    assert_string_equal(look(600 * S), "");
    assert_true(has_device("A"));
    show("a", "Requesting_2026-11-22 18:00:00", "0");
    assert_false(has_device("A")); /* at once: kubelet says that it is away */
}

/* As a scheduler that starts then sees it. */
static void one_that_was_gone_and_is_counted_again_is_there(void **state)
{
    (void)state;
    show("a", "Requesting_2026-11-22 18:00:00", "0");
    (void)look(0);
    assert_false(has_device("A"));
    show("a", "Requesting_2026-11-22 18:00:00", "4"); /* Deleted was not written */
    assert_true(has_device("A"));
    assert_string_equal(look(S), "");
    show("a", "Deleted_2026-11-22 19:00:00", "4");
    assert_false(has_device("A"));
    show("a", "Requesting_2026-11-22 19:00:30", "4"); /* somebody else's */
    assert_true(has_device("A"));
}

static void a_request_of_any_time_is_over_in_a_minute(void **state)
{
    static const char *const values[] = {"Requesting_2099-01-01 00:00:00", "Requesting_what",
                                         "Requesting", "Requesting_2300-01-01 00:00:00",
                                         "Requesting_9999-12-31 23:59:59"};
    static const int64_t seconds[] = {60, 0, 0, 60, 60};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        int64_t now = 0;

        show("a", "Reported", NULL);
        (void)look(0);
        show("a", values[i], NULL);
        while (now < 100 * S && !look(now)[0])
            now += S;
        assert_int_equal(now, seconds[i] * S);
        assert_false(has_device("A"));
    }
}

static void what_is_not_shown_is_written_again(void **state)
{
    (void)state;
    show("a", "Reported", NULL);
    (void)look(0);
    assert_int_equal(look(60 * S)[0], 'R');
    assert_string_equal(look(74 * S), "");
    assert_int_equal(look(75 * S)[0], 'R');
}

static void one_whose_vendor_says_so_is_left_as_it_is(void **state)
{
    (void)state;
    show("c", "Requesting_2026-11-22 18:00:00", NULL);
    assert_true(has_device("C"));
    assert_string_equal(look(0), "");
    assert_false(has_device("C"));
    assert_true(has_device("B"));
}

/* A scheduler that does not decide writes nothing, and knows the same. */
static void who_may_not_write_knows_all_the_same(void **state)
{
    (void)state;
    show("a", "Requesting_2026-11-22 18:00:00", NULL);
    assert_int_equal(cluster_handshakes(cluster, 0, WALL, NULL, 0), 0);
    assert_false(has_device("A"));
    assert_int_equal(look(S)[0], 'D'); /* once it decides */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_agent_that_writes_is_never_asked),
        TEST(one_that_falls_silent_loses_its_devices_and_nothing_else),
        TEST(what_is_used_of_its_neighbours_stays_as_it_is),
        TEST(one_that_kubelet_counts_devices_of_keeps_them),
        TEST(one_that_was_gone_and_is_counted_again_is_there),
        TEST(a_request_of_any_time_is_over_in_a_minute),
        TEST(what_is_not_shown_is_written_again),
        TEST(one_whose_vendor_says_so_is_left_as_it_is),
        TEST(who_may_not_write_knows_all_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
