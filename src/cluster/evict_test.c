/* SPDX-License-Identifier: Apache-2.0 */

/* Evictions where devices alone are short. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster_fixture.h"
#include "model/keys.h"

enum {
    CARD_MIB = 1000,
};

/* What the watch shows of a pod that runs on the node's card. */
static void show(struct fixture *fixture, const char *uid, const char *node, int mib, int priority,
                 bool deleting)
{
    char given[128], important[16];
    struct text_pair pairs[] = {
        {KEY_NODE, node}, {"hami.io/vgpu-devices-allocated", given}, {KEY_PRIORITY, important}};
    const struct pod pod = {
        .namespace = "default",
        .name = uid,
        .uid = uid,
        .resource_version = "2",
        .annotations = {pairs, ARRAY_SIZE(pairs)},
        .deleting = deleting,
    };

    (void)snprintf(given, sizeof(given), "GPU-%s,NVIDIA,%d,0:;", node, mib);
    (void)snprintf(important, sizeof(important), "%d", priority);
    assert_int_equal(cluster_set_pod(fixture->cluster, &pod, NULL), 0);
}

/* A pod that waits, as kube-scheduler and the API server tell of it. */
static struct pod waiting_pod(const char *uid, int mib, int priority)
{
    static struct resource limits[2] = {{.name = "nvidia.com/gpu", .text = ""},
                                        {.name = "nvidia.com/gpumem", .text = ""}};
    static struct container container = {
        .name = "c", .has_resources = true, .has_limits = true, .limits = {limits, 2}};

    limits[0].quantity = (struct quantity){QUANTITY_WHOLE, 1};
    limits[1].quantity = (struct quantity){QUANTITY_WHOLE, mib};
    return (struct pod){
        .namespace = "default",
        .name = uid,
        .uid = uid,
        .resource_version = "1",
        .has_spec = true,
        .has_priority = true,
        .priority = priority,
        .node_name = "",
        .scheduler_name = "",
        .runtime_class = "",
        .container_count = 1,
        .containers = &container,
    };
}

static int ask(struct fixture *fixture, const struct pod *pod, int64_t now_ns,
               struct cluster_answer *ret_answer)
{
    return cluster_filter(fixture->cluster, pod, fixture_nodes, ARRAY_SIZE(fixture_nodes), now_ns,
                          fixture->arena, ret_answer, NULL);
}

static int ask_for(struct fixture *fixture, const char *uid, int mib, int priority, int64_t now_ns)
{
    const struct pod pod = waiting_pod(uid, mib, priority);
    struct cluster_answer answer;

    return ask(fixture, &pod, now_ns, &answer);
}

/* How many are due; of them the last. */
static size_t due(struct fixture *fixture, int64_t now_ns, struct cluster_eviction_due *ret_due)
{
    struct cluster_eviction_due all[8];
    const size_t count =
        cluster_evictions(fixture->cluster, now_ns, fixture->arena, all, ARRAY_SIZE(all));

    if (count && ret_due)
        *ret_due = all[count - 1];
    return count;
}

static int step(struct fixture *fixture, const char *uid, int mib, int priority, int64_t now_ns,
                struct cluster_eviction *ret_eviction)
{
    const struct pod pod = waiting_pod(uid, mib, priority);

    arena_reset(fixture->arena);
    return cluster_evict(fixture->cluster, &pod, now_ns, fixture->arena, ret_eviction);
}

static void answer(struct fixture *fixture, const char *victim, enum cluster_evicted_end end,
                   bool trial, int64_t now_ns)
{
    cluster_evicted(fixture->cluster, "urgent", victim, end, trial, now_ns);
}

static void set_up(struct fixture *fixture)
{
    const struct cluster_options options = {.vendors = &fixture->vendors, .evicts = true};

    cluster_free(fixture->cluster);
    fixture->cluster = cluster_new(&options);
    fixture_list(fixture->cluster);
}

/* "urgent" was refused, and is to be looked at. */
static void begin(struct fixture *fixture, int mib, int priority)
{
    struct cluster_eviction_due looked = {0};

    assert_int_equal(ask_for(fixture, "urgent", mib, priority, 0), CLUSTER_REFUSED);
    assert_int_equal(due(fixture, SECOND - 1, NULL), 0);
    assert_int_equal(due(fixture, SECOND, &looked), 1);
    assert_false(looked.requeue);
    assert_string_equal(looked.pod.uid, "urgent");
    assert_int_equal(due(fixture, SECOND, NULL), 0);
}

static void test_the_least_important_pod_goes_and_its_room_is_kept(void **state)
{
    struct fixture *fixture = *state;
    const struct pod urgent = waiting_pod("urgent", 400, 10);
    struct cluster_eviction eviction;
    struct cluster_answer placed;
    struct cluster_eviction_due again = {0};
    struct text_pairs annotations;

    set_up(fixture);
    show(fixture, "more", "a", 400, 5, false);
    show(fixture, "less", "a", 400, 4, false);
    begin(fixture, 400, 10);
    assert_int_equal(step(fixture, "urgent", 400, 10, SECOND, &eviction), CLUSTER_EVICT);
    assert_string_equal(eviction.victim.uid, "less");
    assert_string_equal(eviction.node, "a");
    assert_int_equal(eviction.count, 1);
    assert_int_equal(eviction.victim_priority, 4);
    assert_int_equal(due(fixture, 9 * SECOND, NULL), 0);
    answer(fixture, "less", CLUSTER_EVICTION_DONE, false, 9 * SECOND);

    assert_int_equal(due(fixture, 9 * SECOND, NULL), 1);
    assert_int_equal(step(fixture, "urgent", 400, 10, 9 * SECOND, &eviction), CLUSTER_EVICT_WAIT);
    show(fixture, "less", "a", 400, 4, true);
    assert_int_equal(ask(fixture, &urgent, 10 * SECOND, &placed), CLUSTER_REFUSED);
    assert_int_equal(step(fixture, "urgent", 400, 10, 11 * SECOND, &eviction), CLUSTER_EVICT_WAIT);

    cluster_delete_pod(fixture->cluster, "less");
    assert_int_equal(ask_for(fixture, "other", 400, 10, 12 * SECOND), CLUSTER_REFUSED);
    assert_int_equal(ask_for(fixture, "small", 200, 0, 12 * SECOND), CLUSTER_PLACED);
    assert_int_equal(due(fixture, 13 * SECOND, &again), 1);
    assert_int_equal(step(fixture, "urgent", 400, 10, 13 * SECOND, &eviction), CLUSTER_EVICT_FREE);
    assert_int_equal(fixture_bind(fixture, "urgent", 13 * SECOND, &annotations), -ENOENT);
    assert_int_equal(ask_for(fixture, "other", 400, 10, 14 * SECOND), CLUSTER_REFUSED);
    assert_int_equal(ask(fixture, &urgent, 15 * SECOND, &placed), CLUSTER_PLACED);
    assert_true(placed.room_made);
    assert_int_equal(due(fixture, 30 * SECOND, NULL), 0);
}

static void test_nobody_goes_in_vain(void **state)
{
    static const struct {
        const char *name;
        int mib, priority;
        bool never, nominated, unknown;
    } cases[] = {
        {"a pod that no card is large enough for", CARD_MIB + 1, 10, false, false, false},
        {"one as important", 400, 5, false, false, false},
        {"one that preempts nobody", 400, 10, true, false, false},
        {"one for which kube-scheduler makes room", 400, 10, false, true, false},
        {"one of unknown priority", 400, 10, false, false, true},
    };
    struct fixture *fixture = *state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct pod pod = waiting_pod("urgent", cases[i].mib, cases[i].priority);
        struct cluster_answer refused;

        set_up(fixture);
        show(fixture, "one", "a", 800, 5, false);
        pod.never_preempts = cases[i].never;
        pod.nominated = cases[i].nominated;
        pod.has_priority = !cases[i].unknown;
        assert_int_equal(ask(fixture, &pod, 0, &refused), CLUSTER_REFUSED);
        if (due(fixture, 5 * SECOND, NULL))
            fail_msg("%s", cases[i].name);
    }
}

/* The node "a", as the fixture has it. */
static void cordon(struct fixture *fixture)
{
    struct text_pair registered = {
        NVIDIA_REGISTER_KEY,
        "[{\"id\":\"GPU-a\",\"count\":10,\"devmem\":1000,\"devcore\":100,\"type\":"
        "\"NVIDIA-A\",\"mode\":\"hami-core\",\"health\":true}]"};
    struct resource resources[1] = {{.name = "nvidia.com/gpu", .text = "10"}};
    const struct node node = {.name = "a",
                              .uid = "a",
                              .resource_version = "2",
                              .annotations = {&registered, 1},
                              .unschedulable = true,
                              .has_status = true,
                              .ready = true,
                              .allocatable = {resources, 1}};

    resources[0].quantity = (struct quantity){QUANTITY_WHOLE, 10};
    assert_int_equal(cluster_set_node(fixture->cluster, &node, NULL), 0);
}

static void test_nobody_goes_from_a_node_that_was_cordoned_meanwhile(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_eviction eviction;

    set_up(fixture);
    show(fixture, "one", "a", 800, 5, false);
    begin(fixture, 400, 10);
    cordon(fixture);
    assert_int_equal(step(fixture, "urgent", 400, 10, SECOND, &eviction), CLUSTER_EVICT_OVER);

    /* A pod for which kube-scheduler names a cordoned node tolerates it. */
    set_up(fixture);
    show(fixture, "one", "a", 800, 5, false);
    cordon(fixture);
    begin(fixture, 400, 10);
    assert_int_equal(step(fixture, "urgent", 400, 10, SECOND, &eviction), CLUSTER_EVICT);
}

static void test_what_kube_scheduler_evicts_itself_is_left_to_it(void **state)
{
    struct fixture *fixture = *state;
    const struct pod urgent = waiting_pod("urgent", 400, 10);
    const char *found[] = {"plain"};
    struct cluster_victims victims = {"a", found, 1, 0};
    size_t count = 1;

    set_up(fixture);
    show(fixture, "one", "a", 800, 5, false);
    assert_int_equal(ask_for(fixture, "urgent", 400, 10, 0), CLUSTER_REFUSED);
    assert_int_equal(
        cluster_preempt(fixture->cluster, &urgent, &victims, &count, fixture->arena, NULL), 0);
    assert_int_equal(count, 1);
    assert_int_equal(due(fixture, 5 * SECOND, NULL), 0);
}

static void test_of_several_victims_all_are_tried_before_one_goes(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_eviction eviction;
    struct cluster_eviction_due later = {0};
    const char *gone[2];

    set_up(fixture);
    show(fixture, "one", "a", 500, 5, false);
    show(fixture, "two", "a", 500, 4, false);
    begin(fixture, 800, 10);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(step(fixture, "urgent", 800, 10, SECOND, &eviction), CLUSTER_EVICT_TRY);
        assert_int_equal(eviction.count, 2);
        answer(fixture, eviction.victim.uid, CLUSTER_EVICTION_DONE, true, SECOND);
        assert_int_equal(due(fixture, SECOND, NULL), 1);
    }
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(step(fixture, "urgent", 800, 10, SECOND, &eviction), CLUSTER_EVICT);
        gone[i] = eviction.victim.uid;
        answer(fixture, eviction.victim.uid, CLUSTER_EVICTION_DONE, false, SECOND);
    }
    assert_string_equal(gone[0], "two");
    assert_string_equal(gone[1], "one");
    assert_int_equal(step(fixture, "urgent", 800, 10, SECOND, &eviction), CLUSTER_EVICT_WAIT);

    set_up(fixture);
    show(fixture, "one", "a", 500, 5, false);
    show(fixture, "two", "a", 500, 4, false);
    begin(fixture, 800, 10);
    assert_int_equal(step(fixture, "urgent", 800, 10, SECOND, &eviction), CLUSTER_EVICT_TRY);
    answer(fixture, eviction.victim.uid, CLUSTER_EVICTION_REFUSED, true, SECOND);
    assert_int_equal(step(fixture, "urgent", 800, 10, SECOND, &eviction), CLUSTER_EVICT_OVER);
    assert_int_equal(due(fixture, 5 * SECOND, NULL), 0);
    assert_int_equal(due(fixture, 6 * SECOND, &later), 1);
    assert_true(later.requeue);
    assert_int_equal(due(fixture, 6 * SECOND, NULL), 0);
    assert_int_equal(ask_for(fixture, "urgent", 800, 10, 7 * SECOND), CLUSTER_REFUSED);
    assert_int_equal(due(fixture, 20 * SECOND, NULL), 0);
    assert_int_equal(due(fixture, 61 * SECOND, NULL), 0);
    assert_int_equal(ask_for(fixture, "urgent", 800, 10, 61 * SECOND), CLUSTER_REFUSED);
    assert_int_equal(due(fixture, 62 * SECOND, NULL), 1);
}

static void test_after_a_doubtful_answer_nobody_else_is_asked(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_eviction eviction;

    for (unsigned shown = 0; shown < 2; shown++) {
        set_up(fixture);
        show(fixture, "one", "a", 500, 5, false);
        begin(fixture, 800, 10);
        assert_int_equal(step(fixture, "urgent", 800, 10, SECOND, &eviction), CLUSTER_EVICT);
        answer(fixture, "one", CLUSTER_EVICTION_DOUBTFUL, false, SECOND);
        assert_int_equal(due(fixture, SECOND, NULL), 0);
        assert_int_equal(due(fixture, 3 * SECOND, NULL), 1);
        assert_int_equal(step(fixture, "urgent", 800, 10, 3 * SECOND, &eviction),
                         CLUSTER_EVICT_WAIT);
        if (shown)
            cluster_delete_pod(fixture->cluster, "one");
        assert_int_equal(step(fixture, "urgent", 800, 10, 16 * SECOND, &eviction),
                         shown ? CLUSTER_EVICT_FREE : CLUSTER_EVICT_OVER);
        if (!shown)
            assert_int_equal(due(fixture, 300 * SECOND, NULL), 0);
    }
}

/* As after a restart: what an earlier process evicted is still ending. */
static void test_a_pod_that_is_going_already_counts_as_gone(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_eviction eviction;

    set_up(fixture);
    show(fixture, "one", "a", 500, 5, true);
    show(fixture, "two", "a", 500, 4, false);
    begin(fixture, 500, 10);
    assert_int_equal(step(fixture, "urgent", 500, 10, SECOND, &eviction), CLUSTER_EVICT_WAIT);
    assert_int_equal(eviction.count, 0);
    cluster_delete_pod(fixture->cluster, "one");
    assert_int_equal(ask_for(fixture, "other", 500, 9, 2 * SECOND), CLUSTER_REFUSED);
    assert_int_equal(step(fixture, "urgent", 500, 10, 3 * SECOND, &eviction), CLUSTER_EVICT_FREE);
}

static void test_a_pod_that_never_ends_is_not_waited_for_again(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_eviction_due again = {0};
    struct cluster_eviction eviction;

    set_up(fixture);
    fixture_add_node(fixture->cluster, "b", CARD_MIB);
    show(fixture, "stuck", "a", 1000, 5, true);
    show(fixture, "two", "b", 1000, 4, false);
    begin(fixture, 1000, 10);
    assert_int_equal(step(fixture, "urgent", 1000, 10, SECOND, &eviction), CLUSTER_EVICT_WAIT);
    assert_int_equal(step(fixture, "urgent", 1000, 10, 600 * SECOND, &eviction),
                     CLUSTER_EVICT_OVER);
    assert_int_equal(ask_for(fixture, "urgent", 1000, 10, 600 * SECOND), CLUSTER_REFUSED);
    assert_int_equal(due(fixture, 605 * SECOND, &again), 1);
    assert_true(again.requeue);
    assert_int_equal(ask_for(fixture, "urgent", 1000, 10, 606 * SECOND), CLUSTER_REFUSED);
    assert_int_equal(step(fixture, "urgent", 1000, 10, 607 * SECOND, &eviction), CLUSTER_EVICT);
    assert_string_equal(eviction.victim.uid, "two");
}

static void test_the_room_is_given_up(void **state)
{
    static const char *const ends[] = {"gone", "time", "term", "placed", "unknown"};
    struct fixture *fixture = *state;
    struct cluster_eviction eviction;

    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        int64_t now_ns = 3 * SECOND;

        set_up(fixture);
        show(fixture, "one", "a", 1000, 5, false);
        begin(fixture, 1000, 10);
        assert_int_equal(step(fixture, "urgent", 1000, 10, SECOND, &eviction), CLUSTER_EVICT);
        answer(fixture, "one", CLUSTER_EVICTION_DONE, false, SECOND);
        cluster_delete_pod(fixture->cluster, "one");
        assert_int_equal(step(fixture, "urgent", 1000, 10, 2 * SECOND, &eviction),
                         CLUSTER_EVICT_FREE);
        assert_int_equal(ask_for(fixture, "other", 1000, 9, now_ns), CLUSTER_REFUSED);
        if (i == 0) {
            cluster_evict_over(fixture->cluster, "urgent");
        } else if (i == 1) {
            now_ns = 62 * SECOND;
            assert_int_equal(step(fixture, "urgent", 1000, 10, now_ns, &eviction),
                             CLUSTER_EVICT_OVER);
        } else if (i == 2) {
            cluster_begin_term(fixture->cluster);
        } else if (i == 3) {
            fixture_add_node(fixture->cluster, "b", 1100);
            assert_int_equal(ask_for(fixture, "urgent", 1100, 10, now_ns), CLUSTER_PLACED);
        } else {
            cluster_evict_unknown(fixture->cluster, "urgent", now_ns);
            assert_int_equal(ask_for(fixture, "other", 1000, 9, now_ns), CLUSTER_REFUSED);
            now_ns = 62 * SECOND;
            cluster_evict_unknown(fixture->cluster, "urgent", now_ns);
        }
        if (ask_for(fixture, "other", 1000, 9, now_ns) != CLUSTER_PLACED)
            fail_msg("%s: the room is kept", ends[i]);
        assert_int_equal(step(fixture, "urgent", 1000, 10, now_ns, &eviction), CLUSTER_EVICT_OVER);
    }
}

static void set_quota(struct fixture *fixture, const char *amount)
{
    struct resource hard = {.name = "limits.nvidia.com/gpumem", .text = amount};
    const struct quota quota = {"default", "q", {&hard, 1}};

    assert_int_equal(quantity_parse(amount, strlen(amount), &hard.quantity), 0);
    assert_true(cluster_set_quota(fixture->cluster, &quota, NULL) >= 0);
}

/* What is kept for the pod does not count against itself; a quota that refuses the pod ends it. */
static void test_quotas_hold(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_eviction eviction;

    for (unsigned asked = 0; asked < 2; asked++) {
        set_up(fixture);
        show(fixture, "one", "a", 1000, 5, false);
        set_quota(fixture, "2000");
        begin(fixture, 1000, 10);
        for (unsigned i = 0; i < 2; i++) {
            assert_int_equal(step(fixture, "urgent", 1000, 10, SECOND, &eviction), CLUSTER_EVICT);
            cluster_evict_unknown(fixture->cluster, "urgent", SECOND);
        }
        set_quota(fixture, "1999");
        if (asked)
            assert_int_equal(ask_for(fixture, "urgent", 1000, 10, 2 * SECOND), CLUSTER_REFUSED);
        assert_int_equal(step(fixture, "urgent", 1000, 10, 3 * SECOND, &eviction),
                         CLUSTER_EVICT_OVER);
        assert_int_equal(due(fixture, 20 * SECOND, NULL), asked ? 0 : 1);
        set_quota(fixture, "3000");
        cluster_delete_pod(fixture->cluster, "one");
        assert_int_equal(ask_for(fixture, "other", 1000, 0, 20 * SECOND), CLUSTER_PLACED);
    }
}

static void test_room_is_made_for_the_most_important(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_eviction eviction;
    struct cluster_eviction_due looked = {0};

    set_up(fixture);
    show(fixture, "one", "a", 1000, 5, false);
    begin(fixture, 1000, 10);
    assert_int_equal(step(fixture, "urgent", 1000, 10, SECOND, &eviction), CLUSTER_EVICT);
    answer(fixture, "one", CLUSTER_EVICTION_DONE, false, SECOND);
    assert_int_equal(step(fixture, "urgent", 1000, 10, SECOND, &eviction), CLUSTER_EVICT_WAIT);
    show(fixture, "one", "a", 1000, 5, true);

    assert_int_equal(ask_for(fixture, "equal", 1000, 10, 2 * SECOND), CLUSTER_REFUSED);
    assert_int_equal(ask_for(fixture, "first", 1000, 11, 4 * SECOND), CLUSTER_REFUSED);
    assert_int_equal(due(fixture, 5 * SECOND, &looked), 2);
    assert_string_equal(looked.pod.uid, "first");
    assert_int_equal(step(fixture, "first", 1000, 11, 5 * SECOND, &eviction), CLUSTER_EVICT_WAIT);
    assert_int_equal(step(fixture, "urgent", 1000, 10, 5 * SECOND, &eviction), CLUSTER_EVICT_OVER);
    cluster_delete_pod(fixture->cluster, "one");
    assert_int_equal(ask_for(fixture, "urgent", 1000, 10, 6 * SECOND), CLUSTER_REFUSED);
    assert_int_equal(ask_for(fixture, "first", 1000, 11, 6 * SECOND), CLUSTER_PLACED);
}

static void test_a_pod_that_is_being_bound_may_be_asked_to_go_later(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_eviction eviction;
    struct text_pairs annotations;

    set_up(fixture);
    assert_int_equal(ask_for(fixture, "one", 800, 4, 0), CLUSTER_PLACED);
    assert_int_equal(fixture_bind(fixture, "one", 0, &annotations), 0);
    begin(fixture, 400, 10);
    assert_int_equal(step(fixture, "urgent", 400, 10, SECOND, &eviction), CLUSTER_EVICT_OVER);
    assert_int_equal(ask_for(fixture, "urgent", 400, 10, 2 * SECOND), CLUSTER_REFUSED);
    show(fixture, "one", "a", 800, 4, false);
    assert_int_equal(due(fixture, 6 * SECOND, NULL), 1);
    assert_int_equal(ask_for(fixture, "urgent", 400, 10, 6 * SECOND), CLUSTER_REFUSED);
    assert_int_equal(due(fixture, 7 * SECOND, NULL), 1);
    assert_int_equal(step(fixture, "urgent", 400, 10, 7 * SECOND, &eviction), CLUSTER_EVICT);
    assert_string_equal(eviction.victim.uid, "one");
}

static void test_one_search_a_second(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_eviction_due later = {0};

    set_up(fixture);
    fixture_add_node(fixture->cluster, "b", 1000);
    show(fixture, "one", "a", 1000, 5, false);
    show(fixture, "two", "b", 1000, 5, false);
    assert_int_equal(ask_for(fixture, "urgent", 1000, 10, 0), CLUSTER_REFUSED);
    assert_int_equal(ask_for(fixture, "second", 1000, 10, 1), CLUSTER_REFUSED);
    assert_int_equal(due(fixture, SECOND, NULL), 1);
    assert_int_equal(due(fixture, SECOND + 1, &later), 1);
    assert_string_equal(later.pod.uid, "second");
    assert_true(later.requeue);
    assert_int_equal(ask_for(fixture, "second", 1000, 10, 2 * SECOND), CLUSTER_REFUSED);
    assert_int_equal(due(fixture, 3 * SECOND, &later), 1);
    assert_false(later.requeue);
}

/* At random, against a judge that knows cards as sums. */

struct held {
    char uid[16];
    unsigned node;
    int mib, priority;
    bool gone;
};

/* The least that the most important victim can be, over both cards; INT32_MAX: nobody's going
 * helps. */
static int least_highest(const struct held *pods, size_t count, int mib, int priority)
{
    int best = INT32_MAX;

    for (unsigned node = 0; node < 2; node++) {
        for (int highest = 0; highest < priority; highest++) {
            int left = CARD_MIB;

            for (size_t i = 0; i < count; i++) {
                if (pods[i].node == node && pods[i].priority > highest)
                    left -= pods[i].mib;
            }
            if (left >= mib)
                best = MIN(best, highest);
        }
    }
    return best;
}

static int left_on(const struct held *pods, size_t count, unsigned node)
{
    int left = CARD_MIB;

    for (size_t i = 0; i < count; i++)
        left -= pods[i].node == node && !pods[i].gone ? pods[i].mib : 0;
    return left;
}

static size_t fill(struct fixture *fixture, struct held *pods)
{
    const size_t count = 1 + (size_t)rand() % 10;
    size_t made = 0;

    for (size_t i = 0; i < count; i++) {
        struct held *pod = &pods[made];

        *pod = (struct held){
            .node = (unsigned)rand() % 2, .mib = 50 * (1 + rand() % 12), .priority = rand() % 6};
        (void)snprintf(pod->uid, sizeof(pod->uid), "pod-%zu", i);
        if (left_on(pods, made, pod->node) < pod->mib)
            continue;
        show(fixture, pod->uid, fixture_nodes[pod->node], pod->mib, pod->priority, false);
        made++;
    }
    return made;
}

static struct held *find_held(struct held *pods, size_t count, const char *uid)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(pods[i].uid, uid) == 0)
            return &pods[i];
    }
    return NULL;
}

/* Plays the API server until nothing more is asked. Returns the most important that went. */
static int play(struct fixture *fixture, struct held *pods, size_t count, int mib, int priority)
{
    int highest = -1;
    int64_t now_ns = SECOND;

    for (unsigned i = 0; i < 100; i++) {
        struct cluster_eviction eviction;
        const int next = step(fixture, "urgent", mib, priority, now_ns, &eviction);
        struct held *victim;

        if (next != CLUSTER_EVICT && next != CLUSTER_EVICT_TRY)
            break;
        victim = find_held(pods, count, eviction.victim.uid);
        assert_true(victim && !victim->gone && victim->priority < priority);
        answer(fixture, victim->uid, CLUSTER_EVICTION_DONE, next == CLUSTER_EVICT_TRY, now_ns);
        if (next == CLUSTER_EVICT_TRY)
            continue;
        highest = MAX(highest, victim->priority);
        victim->gone = true;
        if (rand() % 2)
            cluster_delete_pod(fixture->cluster, victim->uid);
    }
    for (size_t i = 0; i < count; i++) {
        if (pods[i].gone)
            cluster_delete_pod(fixture->cluster, pods[i].uid);
    }
    return highest;
}

static void test_at_random_nobody_goes_who_could_stay(void **state)
{
    struct fixture *fixture = *state;
    unsigned made = 0;

    srand(1);
    for (unsigned round = 0; round < 3000; round++) {
        struct held pods[10];
        const int mib = 50 * (1 + rand() % 22), priority = rand() % 7;
        size_t count;
        int best;

        set_up(fixture);
        fixture_add_node(fixture->cluster, "b", CARD_MIB);
        arena_reset(fixture->arena);
        count = fill(fixture, pods);
        best = least_highest(pods, count, mib, priority);
        if (ask_for(fixture, "urgent", mib, priority, 0) == CLUSTER_PLACED)
            continue;
        assert_int_equal(due(fixture, SECOND, NULL), best != INT32_MAX);
        if (best == INT32_MAX)
            continue;
        made++;
        assert_int_equal(play(fixture, pods, count, mib, priority), best);
        for (size_t i = 0; i < count; i++) {
            if (pods[i].gone)
                assert_true(left_on(pods, count, pods[i].node) - pods[i].mib < mib);
        }
        if (left_on(pods, count, 0) < 2 * mib && left_on(pods, count, 1) < 2 * mib)
            assert_int_equal(ask_for(fixture, "other", mib, priority, 2 * SECOND), CLUSTER_REFUSED);
        assert_int_equal(ask_for(fixture, "urgent", mib, priority, 2 * SECOND), CLUSTER_PLACED);
    }
    assert_true(made > 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_the_least_important_pod_goes_and_its_room_is_kept),
        FIXTURE_TEST(test_nobody_goes_in_vain),
        FIXTURE_TEST(test_nobody_goes_from_a_node_that_was_cordoned_meanwhile),
        FIXTURE_TEST(test_what_kube_scheduler_evicts_itself_is_left_to_it),
        FIXTURE_TEST(test_of_several_victims_all_are_tried_before_one_goes),
        FIXTURE_TEST(test_after_a_doubtful_answer_nobody_else_is_asked),
        FIXTURE_TEST(test_a_pod_that_is_going_already_counts_as_gone),
        FIXTURE_TEST(test_a_pod_that_never_ends_is_not_waited_for_again),
        FIXTURE_TEST(test_the_room_is_given_up),
        FIXTURE_TEST(test_quotas_hold),
        FIXTURE_TEST(test_room_is_made_for_the_most_important),
        FIXTURE_TEST(test_a_pod_that_is_being_bound_may_be_asked_to_go_later),
        FIXTURE_TEST(test_one_search_a_second),
        FIXTURE_TEST(test_at_random_nobody_goes_who_could_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
