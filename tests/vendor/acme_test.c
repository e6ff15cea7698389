/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the seam between vendors and all the rest carries, shown with a vendor that does what no
 * real one does: alone (-DACME_ALONE, where no other vendor is compiled), and beside NVIDIA.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "admit/admit.h"
#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster.h"
#include "config/device_config.h"
#include "model/json.h"

extern const struct vendor acme_vendor;

#ifndef ACME_ALONE
extern const struct vendor nvidia_vendor;

const struct vendor *const vendor_table[] = {&nvidia_vendor, &acme_vendor, NULL};
#endif

static const char config_text[] = "acme:\n"
                                  "  benchName: acme.example/bench\n"
                                  "  cushionName: acme.example/cushion\n"
                                  "  seatMemory: 200\n";

static struct arena *arena;
static struct device_config config;
static struct vendor_set vendors;
static struct cluster *cluster;

static void begin(const char *text)
{
    const struct cluster_options options = {.vendors = &vendors, .defaults = {PLACE_BINPACK}};
    struct error err = ERROR_INIT;

    if (device_config_parse("d.yaml", text, strlen(text), &config, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(device_config_vendors(&config, &vendors), 0);
    cluster = cluster_new(&options);
    assert_non_null(cluster);
    for (enum cluster_kind kind = CLUSTER_NODES; kind < CLUSTER_KINDS; kind++) {
        cluster_begin(cluster, kind);
        cluster_complete(cluster, kind);
    }
}

static int set_up(void **state)
{
    (void)state;
    arena = arena_new(4 << 20);
    begin(config_text);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    cluster_free(cluster);
    device_config_deinit(&config);
    arena_free(arena);
    return 0;
}

static yyjson_val *parse(const char *text)
{
    yyjson_val *root;

    assert_int_equal(json_parse(text, strlen(text), arena, &root, NULL), 0);
    return root;
}

#define OPEN "\"acme.example/open\":\"yes\""

/* A node with so many benches in two rows, 0 and 1 in turn. */
static void set_node(const char *name, int benches, const char *annotations)
{
    const char *text =
        arena_printf(arena,
                     "{\"metadata\":{\"name\":\"%s\",\"labels\":{\"acme.example/rows\":\"2\"},"
                     "\"annotations\":{%s}},\"status\":{\"allocatable\":"
                     "{\"acme.example/bench\":\"%d\",\"nvidia.com/gpu\":\"10\"}}}",
                     name, annotations, benches);
    struct node node;

    assert_int_equal(node_read(parse(text), &vendors.kept, arena, &node, NULL), 0);
    assert_int_equal(cluster_set_node(cluster, &node, NULL), 0);
}

static struct pod pod_of(const char *uid, const char *limits, const char *more)
{
    const char *text = arena_printf(
        arena,
        "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"d\",\"uid\":\"%s\"%s},\"spec\":"
        "{\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{%s}}}]}}",
        uid, uid, more, limits);
    struct pod pod;

    assert_int_equal(pod_read(parse(text), &vendors.kept, arena, &pod, NULL), 0);
    return pod;
}

static const char *const nodes[] = {"n1", "n2"};

static int ask(const char *uid, const char *limits, struct cluster_answer *ret_answer)
{
    const struct pod pod = pod_of(uid, limits, "");
    struct error err = ERROR_INIT;
    int r = cluster_filter(cluster, &pod, nodes, 2, 0, arena, ret_answer, &err);

    if (r < 0)
        fail_msg("%s", err.text);
    return r;
}

/* Places and binds it; the Binding's annotations. */
static struct text_pairs give(const char *uid, const char *limits, const char *node)
{
    const struct cluster_bind bind = {"d", uid, uid, node};
    struct cluster_answer answer;
    struct text_pairs annotations;

    assert_int_equal(ask(uid, limits, &answer), CLUSTER_PLACED);
    assert_string_equal(answer.node, node);
    assert_int_equal(cluster_bind(cluster, &bind, 0, 5 * NS_PER_S, arena, &annotations, NULL), 0);
    return annotations;
}

static const char *seats_of(const char *uid, const char *limits, const char *node)
{
    const struct text_pairs annotations = give(uid, limits, node);

    return text_pairs_get(&annotations, "acme.example/given");
}

static void refuses(const char *uid, const char *limits, const char *why)
{
    struct cluster_answer answer;

    assert_int_equal(ask(uid, limits, &answer), CLUSTER_REFUSED);
    if (!strstr(answer.summary, why))
        fail_msg("%s", answer.summary);
}

#define BENCHES(count) "\"acme.example/bench\":\"" #count "\""
#define CUSHION ",\"acme.example/cushion\":\"1\""

static void a_vendor_reads_its_section(void **state)
{
    static const struct {
        const char *text, *error;
    } rows[] = {
        {"acme:\n  seats: 3\n", "d.yaml:2:3: seats: no such key in acme"},
        {"acme: {seatMemory: x}\n", "d.yaml:1:20: acme.seatMemory: not a whole number"},
        {"acme: [1]\n", "d.yaml:1:7: acme: not a section of keys"},
    };

    (void)state;
    assert_int_equal(vendors.count, 1);
    assert_string_equal(vendors.instances[0].resources[1], "acme.example/cushion");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct error err = ERROR_INIT;
        struct device_config other;

        assert_int_equal(
            device_config_parse("d.yaml", rows[i].text, strlen(rows[i].text), &other, &err),
            -EINVAL);
        assert_string_equal(err.text, rows[i].error);
    }
}

static void a_vendor_completes_and_denies_pods(void **state)
{
    static const struct admit_options options = {"hami-scheduler", true};
    struct pod pod = pod_of("p", BENCHES(1),
                            ",\"annotations\":{\"acme.example/given\":\"x\",\"ACME_ROWS\":\"x\","
                            "\"acme.example/seated-at\":\"1\",\"acme.example/hat\":\"red\"}");
    struct admit_answer answer;
    struct env_name own = {"ACME_SEAT", 0};
    struct container container = pod.containers[0];

    (void)state;
    assert_int_equal(admit_pod(&options, &vendors, &pod, arena, &answer), ADMIT_PATCHED);
    assert_non_null(strstr(answer.patch, "{\"name\":\"ACME\",\"value\":\"seated\"}"));
    assert_non_null(strstr(answer.patch, "/metadata/annotations/acme.example~1given"));
    assert_non_null(strstr(answer.patch, "/metadata/annotations/ACME_ROWS"));
    assert_non_null(strstr(answer.patch, "/metadata/annotations/acme.example~1seated-at"));
    assert_null(strstr(answer.patch, "hat"));

    container.env = &own;
    container.env_count = 1;
    pod.containers = &container;
    assert_int_equal(admit_pod(&options, &vendors, &pod, arena, &answer), ADMIT_DENIED);
    assert_string_equal(answer.message, "a seat can't be wished for");
}

/* 800 MiB a bench, 200 a seat and 400 with a cushion; seats 0, 2, 4, 6. */
static void seats_are_given_as_the_vendor_says(void **state)
{
    (void)state;
    set_node("n1", 1, OPEN);
    assert_string_equal(seats_of("a", BENCHES(1), "n1"), "n1-bench-0[0],Acme,200,0:;");
    assert_string_equal(seats_of("b", BENCHES(1) CUSHION, "n1"), "n1-bench-0[2],Acme,400,0:;");
    refuses("c", BENCHES(1) CUSHION, "1/1 CardInsufficientMemory");
    assert_string_equal(seats_of("d", BENCHES(1), "n1"), "n1-bench-0[4],Acme,200,0:;");
    refuses("e", BENCHES(1), "1/1 CardInsufficientMemory");
    cluster_delete_pod(cluster, "b");
    assert_string_equal(seats_of("e", BENCHES(1), "n1"), "n1-bench-0[2],Acme,200,0:;");
}

static void the_vendors_own_rule_has_the_last_word(void **state)
{
    static const char small[] = "acme: {seatMemory: 1}\n";

    (void)tear_down(state);
    arena = arena_new(4 << 20);
    begin(small);
    set_node("n1", 1, OPEN);
    for (char uid[] = "a"; uid[0] < 'e'; uid[0]++)
        assert_non_null(seats_of(uid, BENCHES(1), "n1"));
    refuses("z", BENCHES(1), "1/1 CardNotFoundCustomFilterRule");
}

/* Benches 0, 2 and 4 are of one row, 1 and 3 of the other. */
static void the_vendor_chooses_the_set(void **state)
{
    (void)state;
    set_node("n1", 5, OPEN);
    refuses("a", BENCHES(4), "5/5 CardNotFoundCustomFilterRule");
    assert_string_equal(
        seats_of("b", BENCHES(3), "n1"),
        "n1-bench-4[0],Acme,200,0:n1-bench-2[0],Acme,200,0:n1-bench-0[0],Acme,200,0:;");
}

/* n2 is the fuller node, but the only bench that is left there is cold. */
static void the_vendor_has_a_word_in_a_nodes_score(void **state)
{
    (void)state;
    set_node("n2", 2, OPEN);
    assert_non_null(seats_of("a", BENCHES(1) CUSHION, "n2"));
    assert_non_null(seats_of("b", BENCHES(1) CUSHION, "n2"));
    set_node("n2", 2, "");
    set_node("n1", 8, OPEN);
    assert_non_null(seats_of("c", BENCHES(4), "n1"));
    set_node("n2", 2, OPEN);
    assert_non_null(seats_of("d", BENCHES(1), "n1"));
}

static void a_grant_is_written_as_the_vendor_says(void **state)
{
    struct text_pairs first, second;

    (void)state;
    set_node("n1", 4, OPEN);
    first = give("a", BENCHES(2), "n1");
    second = give("b", BENCHES(1), "n1");
    assert_string_equal(text_pairs_get(&first, "ACME_ROWS"), "0/2 0/0 ");
    assert_string_equal(text_pairs_get(&second, "ACME_ROWS"), "0/2 ");
    assert_string_equal(text_pairs_get(&first, "acme.example/seated-at"), "5000000000");
    assert_string_equal(text_pairs_get(&second, "acme.example/seated-at"), "5000000001");
    assert_string_equal(text_pairs_get(&first, "hami.io/bind-time"), "5");
}

static void a_node_has_devices_while_its_agent_is_there(void **state)
{
    (void)state;
    set_node("n1", 2, "");
    refuses("a", BENCHES(1), "nodes have no devices");
    set_node("n1", 2, OPEN);
    assert_non_null(seats_of("b", BENCHES(1), "n1"));
    set_node("n1", 1, OPEN);
    refuses("d", BENCHES(2), "NodeInsufficientDevice");
}

/* One of its own, which HAMi has never heard of. */
static void an_agent_may_wait_for_a_lock(void **state)
{
    const char *const turnstile = OPEN ",\"acme.example/turnstile-in-use\":\"yes\"";
    struct lock_set locks;

    (void)state;
    set_node("n1", 2, OPEN);
    (void)give("a", BENCHES(1), "n1");
    assert_int_equal(cluster_pod_locks(cluster, "a").count, 0);
    set_node("n1", 2, turnstile);
    (void)give("b", BENCHES(1), "n1");
    locks = cluster_pod_locks(cluster, "b");
    assert_int_equal(locks.count, 1);
    assert_string_equal(locks.items[0]->key, "acme.example/turnstile");
    cluster_allow_locks(cluster, false);
    set_node("n1", 2, turnstile);
    refuses("c", BENCHES(1), "nodes have no devices");
}

/* What is in force comes out of annotations alone, to the same view. */
static void seats_are_known_again_after_a_restart(void **state)
{
    struct text_pairs given[3];
    struct strbuf before = STRBUF_INIT(1 << 20), after = STRBUF_INIT(1 << 20);
    static const char *const uids[] = {"a", "b", "c"};

    (void)state;
    set_node("n1", 3, OPEN);
    for (size_t i = 0; i < 3; i++) {
        struct pod pod = {.namespace = "d", .name = uids[i], .uid = uids[i]};

        given[i] = give(uids[i], i == 1 ? BENCHES(2) : BENCHES(1) CUSHION, "n1");
        pod.annotations = given[i];
        cluster_bound(cluster, uids[i], CLUSTER_BOUND, 0);
        assert_int_equal(cluster_set_pod(cluster, &pod, NULL), 0);
    }
    cluster_view(cluster, &before);
    cluster_free(cluster);
    device_config_deinit(&config);
    begin(config_text);
    for (size_t i = 3; i-- > 0;) {
        const struct pod pod = {
            .namespace = "d", .name = uids[i], .uid = uids[i], .annotations = given[i]};

        assert_int_equal(cluster_set_pod(cluster, &pod, NULL), 0);
    }
    set_node("n1", 3, OPEN);
    cluster_view(cluster, &after);
    assert_string_equal(strbuf_text(&before), strbuf_text(&after));
    strbuf_deinit(&before);
    strbuf_deinit(&after);
}

#ifndef ACME_ALONE
#define CARD                                                                                       \
    ",\"hami.io/node-nvidia-register\":\"[{\\\"id\\\":\\\"GPU-a\\\",\\\"count\\\":10,"             \
    "\\\"devmem\\\":1000,\\\"devcore\\\":100,\\\"type\\\":\\\"NVIDIA Bench\\\","                   \
    "\\\"health\\\":true}]\""

/* The card's model names the other vendor's device, and the pod gets each vendor's own. */
static void two_vendors_share_a_node_and_a_pod(void **state)
{
    struct text_pairs annotations;

    (void)tear_down(state);
    arena = arena_new(4 << 20);
    begin("acme: {seatMemory: 200}\nnvidia: {resourceCountName: nvidia.com/gpu, "
          "resourceMemoryName: nvidia.com/gpumem}\n");
    assert_int_equal(vendors.count, 2);
    set_node("n1", 1, OPEN CARD);
    annotations =
        give("a", BENCHES(1) ",\"nvidia.com/gpu\":\"1\",\"nvidia.com/gpumem\":\"300\"", "n1");
    assert_string_equal(text_pairs_get(&annotations, "acme.example/given"),
                        "n1-bench-0[0],Acme,200,0:;");
    assert_string_equal(text_pairs_get(&annotations, "hami.io/vgpu-devices-allocated"),
                        "GPU-a,NVIDIA,300,0:;");
    refuses("b", BENCHES(2), "1/1 AllocatedCardsInsufficientRequest");
    set_node("n1", 1, "\"x\":\"\"" CARD);
    annotations = give("c", "\"nvidia.com/gpu\":\"1\",\"nvidia.com/gpumem\":\"300\"", "n1");
    assert_null(text_pairs_get(&annotations, "acme.example/given"));
}
#endif

#define WITH_CLUSTER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_CLUSTER(a_vendor_reads_its_section),
        WITH_CLUSTER(a_vendor_completes_and_denies_pods),
        WITH_CLUSTER(seats_are_given_as_the_vendor_says),
        WITH_CLUSTER(the_vendors_own_rule_has_the_last_word),
        WITH_CLUSTER(the_vendor_chooses_the_set),
        WITH_CLUSTER(the_vendor_has_a_word_in_a_nodes_score),
        WITH_CLUSTER(a_grant_is_written_as_the_vendor_says),
        WITH_CLUSTER(a_node_has_devices_while_its_agent_is_there),
        WITH_CLUSTER(an_agent_may_wait_for_a_lock),
        WITH_CLUSTER(seats_are_known_again_after_a_restart),
#ifndef ACME_ALONE
        WITH_CLUSTER(two_vendors_share_a_node_and_a_pod),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
