/* SPDX-License-Identifier: Apache-2.0 */

/* Binds to nodes whose agents wait for a lock. */

#include "cluster/lock.h"

#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "model/keys.h"

#define WALL (INT64_C(1795374000) * NS_PER_S) /* 2026-11-22T19:00:00Z */
#define SECOND NS_PER_S

static const struct lock_pod pod_a = {"ns", "a", "uid-a"}, pod_b = {"ns", "b", "uid-b"};
static const struct lock_set mutex = {{&vendor_mutex_lock}, 1};
static const struct vendor_lock short_lock = {"cambricon.com/dsmlu.lock", false, 120 * NS_PER_S};

static enum lock_step step(struct node_lock *lock, int64_t now_ns)
{
    int64_t until_ns;

    return node_lock_step(lock, now_ns, &until_ns);
}

/* The node is read, with this lock or none. */
static void read_node(struct node_lock *lock, const char *value, int64_t now_ns)
{
    const struct text_pair pair = {KEY_NODE_LOCK, value};
    const struct node node = {
        .name = "n", .resource_version = "7", .annotations = {&pair, value ? 1 : 0}};

    node_lock_read(lock, &node, now_ns, WALL + now_ns);
}

/* The watch shows the node. */
static void see_node(struct node_lock *lock, const char *value, int64_t now_ns)
{
    const struct text_pair pair = {KEY_NODE_LOCK, value};
    const struct node node = {
        .name = "n", .resource_version = "8", .annotations = {&pair, value ? 1 : 0}};

    node_lock_see_node(lock, &node, &mutex, now_ns, WALL + now_ns);
}

static void want(struct node_lock *lock, const struct lock_pod *pod, int64_t now_ns)
{
    lock->listed = true;
    node_lock_want(lock, pod, &mutex, now_ns);
}

/* Takes the turn on a free node, up to the Binding. */
static void take(struct node_lock *lock, const struct lock_pod *pod, int64_t now_ns)
{
    want(lock, pod, now_ns);
    assert_int_equal(step(lock, now_ns), LOCK_GET_NODE);
    read_node(lock, NULL, now_ns);
    assert_int_equal(step(lock, now_ns), LOCK_PATCH);
    node_lock_patched(lock, true, now_ns);
    assert_int_equal(step(lock, now_ns), LOCK_BIND);
}

static void a_value_says_when_and_who(void **state)
{
    static const struct {
        const char *text, *namespace, *name;
        bool readable;
        int64_t seconds;
    } cases[] = {
        {"2026-11-22T19:00:00Z,ns,a", "ns", "a", true, 0},
        {"2026-11-22T19:00:00.25Z,ns,a", "ns", "a", true, 0},
        {"2026-11-23T03:00:01+08:00,ns,a", "ns", "a", true, 1},
        {"2026-11-22T13:30:00-05:30,ns,a", "ns", "a", true, 0},
        {"2026-11-22T19:00:00Z", "", "", true, 0},
        {"2300-01-01T00:00:00Z,ns,a", "ns", "a", true, 5462744400},
        {"9999-12-31T23:59:59-24:59,ns,a", "ns", "a", true, 5462744400},
        {"2026-11-22T19:00:00Z,,", "", "", true, 0},
        {"2026-11-22T19:00:00Z,ns,", "", "", true, 0},
        {"2026-11-22T19:00:00Z,ns", "", "", false, 0},
        {"2026-11-22T19:00:00Z,ns,a,b", "", "", false, 0},
        {"2026-11-22 19:00:00,ns,a", "", "", false, 0},
        {"2026-11-22T19:00:00,ns,a", "", "", false, 0},
        {"2026-11-22T19:00:00+8:00", "", "", false, 0},
        {",ns,a", "", "", false, 0},
        {"garbage", "", "", false, 0},
        {"", "", "", false, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct lock_value value;

        lock_value_read(cases[i].text, &value);
        assert_int_equal(value.readable, cases[i].readable);
        assert_string_equal(value.holder.namespace, cases[i].namespace);
        assert_string_equal(value.holder.name, cases[i].name);
        if (value.readable)
            assert_int_equal(value.written_ns, WALL + cases[i].seconds * SECOND);
    }
}

static void the_patch_is_guarded(void **state)
{
    const struct lock_set both = {{&vendor_mutex_lock, &short_lock}, 2};
    struct strbuf patch = STRBUF_INIT(1024);
    struct node_lock lock = {.listed = true};

    (void)state;
    node_lock_want(&lock, &pod_a, &both, 0);
    assert_int_equal(step(&lock, 0), LOCK_GET_NODE);
    read_node(&lock, NULL, 0);
    assert_int_equal(step(&lock, 0), LOCK_PATCH);
    node_lock_write_patch(&lock, WALL, &patch);
    assert_string_equal(strbuf_text(&patch),
                        "{\"metadata\":{\"resourceVersion\":\"7\",\"annotations\":{"
                        "\"hami.io/mutex.lock\":\"2026-11-22T19:00:00Z,ns,a\","
                        "\"cambricon.com/dsmlu.lock\":\"2026-11-22T19:00:00Z\"}}}");
    strbuf_deinit(&patch);
}

static void a_turn_alone_writes_nothing(void **state)
{
    static const struct lock_set turn = {{&vendor_turn_lock}, 1};
    const struct node node = {.name = "n", .resource_version = "8"};
    struct node_lock lock = {.listed = false};

    (void)state;
    node_lock_want(&lock, &pod_a, &turn, 0);
    assert_int_equal(step(&lock, 0), LOCK_LIST_PODS);
    node_lock_listed(&lock, true, NULL, 0, &turn, 0);
    assert_int_equal(step(&lock, 0), LOCK_BIND);
    node_lock_bound(&lock, true, SECOND);
    node_lock_want(&lock, &pod_b, &turn, SECOND);
    assert_int_equal(step(&lock, SECOND), LOCK_REST);
    node_lock_see_node(&lock, &node, &turn, 2 * SECOND, WALL);
    assert_int_equal(step(&lock, 2 * SECOND), LOCK_GET_POD);
    node_lock_looked(&lock, LOCK_ALLOCATING, 2 * SECOND);
    assert_int_equal(step(&lock, 2 * SECOND), LOCK_REST);
    assert_int_equal(step(&lock, 4 * SECOND), LOCK_GET_POD);
    node_lock_looked(&lock, LOCK_OVER, 4 * SECOND);
    assert_int_equal(step(&lock, 4 * SECOND), LOCK_BIND);
    node_lock_give_up(&lock, 4 * SECOND);
    node_lock_bound(&lock, false, 4 * SECOND);
    assert_int_equal(step(&lock, 4 * SECOND), LOCK_REST);
    assert_true(node_lock_is_idle(&lock));
}

static void a_turn_alone_is_part_of_a_lock(void **state)
{
    struct lock_set set = {.count = 0};

    (void)state;
    assert_true(lock_set_add(&set, &vendor_turn_lock));
    assert_false(lock_set_is_written(&set));
    assert_true(lock_set_add(&set, &vendor_mutex_lock));
    assert_true(lock_set_add(&set, &vendor_turn_lock));
    assert_true(lock_set_add(&set, &short_lock));
    assert_int_equal(set.count, 2);
    assert_ptr_equal(set.items[0], &vendor_mutex_lock);
    assert_ptr_equal(set.items[1], &short_lock);
}

static void a_conflict_is_read_again(void **state)
{
    struct node_lock lock = {.listed = false};
    int64_t now = 0, until;

    (void)state;
    want(&lock, &pod_a, now);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(step(&lock, now), LOCK_GET_NODE);
        read_node(&lock, NULL, now);
        assert_int_equal(step(&lock, now), LOCK_PATCH);
        assert_int_equal(step(&lock, now), LOCK_REST);
        node_lock_patched(&lock, false, now);
        assert_int_equal(node_lock_step(&lock, now, &until), LOCK_REST);
        assert_true(until > now && until <= now + 2 * SECOND);
        now = until;
    }
}

static void a_turn_lasts_until_the_allocations_are_over(void **state)
{
    struct node_lock lock = {.listed = false};

    (void)state;
    take(&lock, &pod_a, 0);
    want(&lock, &pod_b, 0);
    assert_int_equal(step(&lock, 0), LOCK_REST);
    node_lock_bound(&lock, true, 0);
    assert_int_equal(step(&lock, LOCK_LOOK_FIRST_NS), LOCK_GET_POD);
    node_lock_looked(&lock, LOCK_ALLOCATING, LOCK_LOOK_FIRST_NS);
    see_node(&lock, NULL, LOCK_LOOK_FIRST_NS);
    assert_int_equal(step(&lock, LOCK_LOOK_FIRST_NS), LOCK_REST); /* the lock is gone, that's all */
    assert_int_equal(step(&lock, 2 * SECOND), LOCK_GET_POD);
    node_lock_looked(&lock, LOCK_OVER, 2 * SECOND);
    assert_int_equal(step(&lock, 2 * SECOND), LOCK_GET_NODE); /* the next pod's */
    read_node(&lock, NULL, 2 * SECOND);
    assert_int_equal(step(&lock, 2 * SECOND), LOCK_PATCH);
    node_lock_patched(&lock, true, 2 * SECOND);
    assert_int_equal(step(&lock, 2 * SECOND), LOCK_BIND);
    assert_string_equal(lock.turn.name, "b");
}

static void a_pod_made_anew_is_another(void **state)
{
    const struct lock_pod anew = {"ns", "a", "uid-c"}, unknown = {"ns", "a", ""};
    struct node_lock lock = {.listed = false};

    (void)state;
    take(&lock, &pod_a, 0);
    node_lock_bound(&lock, true, 0);
    want(&lock, &anew, SECOND);
    assert_true(lock.taken);
    assert_string_equal(lock.turn.uid, "uid-a");
    /* The same one is not bound when it asks again. */
    want(&lock, &pod_a, SECOND);
    assert_false(lock.taken);

    lock = (struct node_lock){.listed = false};
    take(&lock, &pod_a, 0);
    node_lock_bound(&lock, true, 0);
    want(&lock, &unknown, SECOND);
    assert_false(lock.taken);
}

static void a_lock_that_its_agent_leaves_is_removed(void **state)
{
    static const struct {
        enum lock_progress progress;
        int64_t after_ns;
    } cases[] = {{LOCK_OVER, LOCK_GRACE_NS}, {LOCK_GONE, 0}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct strbuf patch = STRBUF_INIT(1024);
        struct node_lock lock = {.listed = false};
        int64_t now = SECOND;

        take(&lock, &pod_a, 0);
        node_lock_bound(&lock, true, 0);
        assert_int_equal(step(&lock, now), LOCK_GET_POD);
        node_lock_looked(&lock, cases[i].progress, now);
        if (cases[i].after_ns)
            assert_int_equal(step(&lock, now + cases[i].after_ns - 1), LOCK_REST);
        now += cases[i].after_ns;
        assert_int_equal(step(&lock, now), LOCK_GET_NODE);
        read_node(&lock, "2026-11-22T19:00:00Z,ns,a", now);
        assert_int_equal(step(&lock, now), LOCK_PATCH);
        node_lock_write_patch(&lock, WALL, &patch);
        assert_string_equal(strbuf_text(&patch),
                            "{\"metadata\":{\"resourceVersion\":\"7\",\"annotations\":{"
                            "\"hami.io/mutex.lock\":null}}}");
        node_lock_patched(&lock, true, now);
        assert_int_equal(step(&lock, now), LOCK_REST);
        assert_true(node_lock_is_idle(&lock));
        strbuf_deinit(&patch);
    }
}

static void somebody_elses_lock_is_never_removed_for_ours(void **state)
{
    struct node_lock lock = {.listed = false};

    (void)state;
    take(&lock, &pod_a, 0);
    node_lock_bound(&lock, false, 0);
    assert_int_equal(step(&lock, 0), LOCK_GET_NODE);
    read_node(&lock, "2026-11-22T19:00:00Z,ns,other", 0);
    assert_int_equal(step(&lock, 0), LOCK_REST);
    assert_true(node_lock_is_idle(&lock));
}

/* What happens to a pod that wants the turn of a node with this lock, in eight seconds. */
static void a_lock_in_the_way(void **state)
{
    static const struct {
        const char *value;
        enum lock_progress holder;
        bool free;
    } cases[] = {
        {NULL, LOCK_UNKNOWN, true},
        {"2026-11-22T18:59:50Z,ns,b", LOCK_ALLOCATING, false},
        {"2026-11-22T18:59:50Z,ns,b", LOCK_UNBOUND, false},
        {"2026-11-22T18:59:50Z,ns,b", LOCK_UNKNOWN, false},
        {"2026-11-22T18:59:50Z,ns,b", LOCK_OVER, true},
        {"2026-11-22T18:59:50Z,ns,b", LOCK_GONE, true},
        {"2026-11-22T18:59:50Z,ns,a", LOCK_UNKNOWN, true}, /* its own, of an earlier try */
        {"2026-11-22T18:54:59Z,ns,b", LOCK_ALLOCATING, true},
        {"2026-11-22T18:55:20Z,ns,b", LOCK_ALLOCATING, false},
        {"2026-11-22T19:10:00Z,ns,b", LOCK_ALLOCATING, false},
        {"2026-11-22T18:59:50Z", LOCK_UNKNOWN, false},
        {"2026-11-22T18:54:59Z", LOCK_UNKNOWN, true},
        {"garbage", LOCK_UNKNOWN, false},
        {"", LOCK_UNKNOWN, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct node_lock lock = {.listed = false};
        const char *value = cases[i].value;
        bool bound = false;
        int64_t until;

        want(&lock, &pod_a, 0);
        for (int64_t now = 0; now < 8 * SECOND && !bound; now += SECOND / 20) {
            switch (node_lock_step(&lock, now, &until)) {
            case LOCK_GET_NODE:
                read_node(&lock, value, now);
                break;
            case LOCK_GET_POD:
                node_lock_looked(&lock, cases[i].holder, now);
                break;
            case LOCK_PATCH:
                value = lock.taken ? NULL : "ours";
                node_lock_patched(&lock, true, now);
                break;
            case LOCK_BIND:
                bound = true;
                break;
            default:
                break;
            }
        }
        assert_int_equal(bound, cases[i].free);
        if (!bound)
            assert_string_equal(value, cases[i].value);
    }
}

/* An answer that comes when no pod waits any more was not judged for the next one. */
static void a_node_is_read_for_the_pod_that_wants_it(void **state)
{
    struct node_lock lock = {.listed = false};

    (void)state;
    want(&lock, &pod_a, 0);
    assert_int_equal(step(&lock, 0), LOCK_GET_NODE);
    node_lock_give_up(&lock, 0);
    read_node(&lock, "2026-11-22T18:59:50Z,ns,other", 0);
    want(&lock, &pod_b, 0);
    assert_int_equal(step(&lock, 0), LOCK_GET_NODE);
    read_node(&lock, "2026-11-22T18:59:50Z,ns,other", 0);
    assert_int_equal(step(&lock, 0), LOCK_GET_POD); /* the other's turn */
    assert_string_equal(lock.turn.name, "other");
}

/* Not by what was seen, or not seen, before. */
static void an_unreadable_lock_has_its_five_minutes(void **state)
{
    static const char *const before[] = {NULL, ""};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(before); i++) {
        struct node_lock lock = {.listed = false};
        const int64_t now = 1000 * SECOND;

        see_node(&lock, before[i], 0);
        (void)step(&lock, 0);
        lock.running = false;
        see_node(&lock, NULL, SECOND);
        want(&lock, &pod_a, now);
        assert_int_equal(step(&lock, now), LOCK_GET_NODE);
        read_node(&lock, "", now);
        assert_true(lock.taken && !lock.turn.name[0]);
        for (int64_t at = now; at < now + 299 * SECOND; at += SECOND) {
            const enum lock_step next = step(&lock, at);

            assert_true(next == LOCK_REST || next == LOCK_GET_NODE);
            if (next == LOCK_GET_NODE)
                read_node(&lock, "", at);
        }
    }
}

/* The API server may carry it out yet. */
static void a_bind_without_an_answer_keeps_its_turn_for_a_while(void **state)
{
    struct node_lock lock = {.listed = false};
    const int64_t now = 1000 * SECOND;

    (void)state;
    take(&lock, &pod_a, now);
    node_lock_bound(&lock, true, now);
    for (int64_t at = now + SECOND; at < now + LOCK_UNBOUND_NS; at += 5 * SECOND) {
        assert_int_equal(step(&lock, at), LOCK_GET_POD);
        node_lock_looked(&lock, LOCK_UNBOUND, at);
        assert_false(lock.gone);
    }
    assert_int_equal(step(&lock, now + LOCK_UNBOUND_NS), LOCK_GET_POD);
    node_lock_looked(&lock, LOCK_UNBOUND, now + LOCK_UNBOUND_NS);
    assert_true(lock.gone);
}

/* By our own clock, whatever times it claims. */
static void a_lock_that_stays_the_same_is_broken_after_five_minutes(void **state)
{
    static const char *const values[] = {"garbage", "", "2099-01-01T00:00:00Z",
                                         "2099-01-01T00:00:00Z,ns,b"};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        struct node_lock lock = {.listed = true};
        int64_t now = 0, until, removed = 0;

        for (; now < 310 * SECOND && !removed; now += SECOND / 4) {
            see_node(&lock, values[i], now);
            switch (node_lock_step(&lock, now, &until)) {
            case LOCK_GET_NODE:
                read_node(&lock, values[i], now);
                break;
            case LOCK_GET_POD:
                node_lock_looked(&lock, LOCK_ALLOCATING, now);
                break;
            case LOCK_PATCH:
                removed = now;
                break;
            default:
                break;
            }
        }
        assert_in_range(removed, 300 * SECOND, 306 * SECOND);
    }
}

static void a_lock_of_a_pod_that_is_not_bound_goes_after_half_a_minute(void **state)
{
    struct node_lock lock = {.listed = true};
    int64_t now = 0, until;
    enum lock_step what = LOCK_REST;

    (void)state;
    for (; now < 60 * SECOND && what != LOCK_PATCH; now += SECOND / 4) {
        see_node(&lock, "2026-11-22T19:00:00Z,ns,b", now);
        what = node_lock_step(&lock, now, &until);
        if (what == LOCK_GET_POD)
            node_lock_looked(&lock, LOCK_UNBOUND, now);
        else if (what == LOCK_GET_NODE)
            read_node(&lock, "2026-11-22T19:00:00Z,ns,b", now);
    }
    assert_in_range(now, 30 * SECOND, 36 * SECOND);
}

static void who_gives_up_leaves_no_lock(void **state)
{
    struct node_lock lock = {.listed = false};

    (void)state;
    want(&lock, &pod_a, 0);
    assert_int_equal(step(&lock, 0), LOCK_GET_NODE);
    read_node(&lock, NULL, 0);
    assert_int_equal(step(&lock, 0), LOCK_PATCH);
    node_lock_give_up(&lock, 0);
    want(&lock, &pod_b, 0); /* the next of the queue */
    node_lock_patched(&lock, true, 0);
    assert_int_equal(step(&lock, 0), LOCK_GET_NODE);
    read_node(&lock, "2026-11-22T19:00:00Z,ns,a", 0);
    assert_int_equal(step(&lock, 0), LOCK_PATCH);
    node_lock_patched(&lock, true, 0);
    assert_int_equal(step(&lock, 0), LOCK_GET_NODE);
    read_node(&lock, NULL, 0);
    assert_int_equal(step(&lock, 0), LOCK_PATCH);
    node_lock_patched(&lock, true, 0);
    assert_int_equal(step(&lock, 0), LOCK_BIND);
    assert_string_equal(lock.turn.name, "b");
}

static void an_allocation_of_an_earlier_term_has_the_turn(void **state)
{
    struct node_lock lock = {.listed = false};

    (void)state;
    node_lock_want(&lock, &pod_a, &mutex, 0);
    assert_int_equal(step(&lock, 0), LOCK_LIST_PODS);
    node_lock_listed(&lock, false, NULL, 0, &mutex, 0);
    assert_int_equal(step(&lock, 0), LOCK_REST);
    assert_int_equal(step(&lock, SECOND), LOCK_LIST_PODS);
    node_lock_listed(&lock, true, &pod_b, 10 * SECOND, &mutex, SECOND);
    assert_int_equal(step(&lock, SECOND), LOCK_GET_POD);
    node_lock_looked(&lock, LOCK_OVER, SECOND);
    assert_int_equal(step(&lock, SECOND), LOCK_LIST_PODS); /* there may be another */
    node_lock_listed(&lock, true, &pod_b, 301 * SECOND, &mutex, SECOND);
    assert_int_equal(step(&lock, SECOND), LOCK_GET_NODE);
}

/* The node's agents are not to be seen just then: their allocations go on all the same. */
static void an_allocation_has_the_turn_whatever_the_node_shows(void **state)
{
    static const struct lock_set none = {.count = 0};
    struct node_lock lock = {.listed = false};

    (void)state;
    node_lock_want(&lock, &pod_a, &mutex, 0);
    assert_int_equal(step(&lock, 0), LOCK_LIST_PODS);
    node_lock_listed(&lock, true, &pod_b, 299 * SECOND, &none, 0);
    assert_int_equal(step(&lock, 0), LOCK_GET_POD);
    assert_string_equal(lock.turn.name, "b");
    node_lock_looked(&lock, LOCK_GONE, 0);
    assert_int_equal(step(&lock, 0), LOCK_LIST_PODS);
    node_lock_listed(&lock, true, &pod_b, 301 * SECOND, &none, 0);
    assert_int_equal(step(&lock, 0), LOCK_GET_NODE);
}

/* How far the allocations of a pod are, of one vendor with an annotation of what is left. */
static void how_far_a_pod_is(void **state)
{
    static struct vendor_set set = {
        .count = 1,
        .instances = {{.allocated_key = "given", .to_allocate_key = "left"}},
    };
    static const struct {
        const char *left, *phase, *node, *uid;
        enum pod_phase runs;
        bool started;
        enum lock_progress wanted;
    } cases[] = {
        {"DCU-0,DCU,1,1:;", "allocating", "n", "uid-a", POD_PENDING, false, LOCK_ALLOCATING},
        {";DCU-0,DCU,1,1:;", "success", "n", "uid-a", POD_PENDING, false, LOCK_ALLOCATING},
        {";;", "allocating", "n", "uid-a", POD_PENDING, false, LOCK_OVER},
        {"", "allocating", "n", "uid-a", POD_PENDING, false, LOCK_OVER},
        {NULL, "allocating", "n", "uid-a", POD_PENDING, false, LOCK_OVER},
        {"DCU-0,DCU,1,1:;", "failed", "n", "uid-a", POD_PENDING, false, LOCK_OVER},
        {"DCU-0,DCU,1,1:;", "allocating", "n", "uid-a", POD_PENDING, true, LOCK_OVER},
        {"DCU-0,DCU,1,1:;", "allocating", "n", "uid-a", POD_FAILED, false, LOCK_GONE},
        {"DCU-0,DCU,1,1:;", "allocating", "m", "uid-a", POD_PENDING, false, LOCK_GONE},
        {"DCU-0,DCU,1,1:;", "allocating", "", "uid-a", POD_PENDING, false, LOCK_UNBOUND},
        {"DCU-0,DCU,1,1:;", "allocating", "n", "uid-z", POD_PENDING, false, LOCK_GONE},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct text_pair notes[] = {
            {"given", "x"}, {KEY_BIND_PHASE, cases[i].phase}, {"left", cases[i].left}};
        const struct pod pod = {
            .namespace = "ns",
            .name = "a",
            .uid = cases[i].uid,
            .node_name = cases[i].node,
            .has_spec = true,
            .phase = cases[i].runs,
            .started = cases[i].started,
            .annotations = {notes, cases[i].left ? 3 : 2},
        };

        assert_int_equal(lock_pod_progress(&set, &pod, &pod_a, "n"), cases[i].wanted);
    }
    assert_int_equal(lock_pod_progress(&set, NULL, &pod_a, "n"), LOCK_GONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_says_when_and_who),
        cmocka_unit_test(the_patch_is_guarded),
        cmocka_unit_test(a_turn_alone_writes_nothing),
        cmocka_unit_test(a_turn_alone_is_part_of_a_lock),
        cmocka_unit_test(a_conflict_is_read_again),
        cmocka_unit_test(a_turn_lasts_until_the_allocations_are_over),
        cmocka_unit_test(a_pod_made_anew_is_another),
        cmocka_unit_test(a_lock_that_its_agent_leaves_is_removed),
        cmocka_unit_test(somebody_elses_lock_is_never_removed_for_ours),
        cmocka_unit_test(a_lock_in_the_way),
        cmocka_unit_test(a_node_is_read_for_the_pod_that_wants_it),
        cmocka_unit_test(an_unreadable_lock_has_its_five_minutes),
        cmocka_unit_test(a_bind_without_an_answer_keeps_its_turn_for_a_while),
        cmocka_unit_test(a_lock_that_stays_the_same_is_broken_after_five_minutes),
        cmocka_unit_test(a_lock_of_a_pod_that_is_not_bound_goes_after_half_a_minute),
        cmocka_unit_test(who_gives_up_leaves_no_lock),
        cmocka_unit_test(an_allocation_of_an_earlier_term_has_the_turn),
        cmocka_unit_test(an_allocation_has_the_turn_whatever_the_node_shows),
        cmocka_unit_test(how_far_a_pod_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
