/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* These four have to come first. */
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "place/connected.h"
#include "place/fit.h"
#include "place/place.h"

#define B PLACE_KEY_BINPACK
#define S PLACE_KEY_SPREAD
#define N PLACE_KEY_NUMA

static const struct {
    const char *text;
    enum place_order order;
    enum place_key keys[PLACE_MAX_KEYS];
    bool mutex, connected, bad;
} policies[] = {
    {"", PLACE_SPREAD, {0}, .bad = true},
    {"binpack", PLACE_BINPACK, {0}},
    {" binpack ", PLACE_BINPACK, {0}},
    {"spread", PLACE_SPREAD, {0}},
    {"binpak", PLACE_SPREAD, {0}, .bad = true},
    {"mutex", PLACE_SPREAD, {0}, .mutex = true},
    {"topology-aware", PLACE_SPREAD, {0}, .connected = true},
    {"numa", PLACE_SPREAD, {N}},
    {"numa,binpack", PLACE_SPREAD, {N, B}},
    {"binpack, numa", PLACE_SPREAD, {B, N}},
    {"binpack numa", PLACE_SPREAD, {B, N}},
    {"spread,numa,binpack,spread,numa", PLACE_SPREAD, {S, N, B}},
    {"mutex,topology-aware", PLACE_SPREAD, {S}, .mutex = true, .connected = true},
    {"mutex,binpack,topology-aware", PLACE_SPREAD, {B}, .mutex = true, .connected = true},
    {"numa,other", PLACE_SPREAD, {N}, .bad = true},
};

static void policies_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
        struct place_policy policy = {.weights = {1, 2, 3}, .mutex = true, .keys = {B}};

        place_policy_read(policies[i].text, &policy);
        print_message("%s\n", policies[i].text);
        assert_int_equal(policy.order, policies[i].order);
        assert_memory_equal(policy.keys, policies[i].keys, sizeof(policy.keys));
        assert_int_equal(policy.mutex, policies[i].mutex);
        assert_int_equal(policy.connected, policies[i].connected);
        assert_int_equal(policy.weights.memory, 3);
        assert_int_equal(place_policy_check(policies[i].text), !policies[i].bad);
    }
}

static const struct {
    const char *text;
    struct place_weights weights;
    const char *error; /* NULL: they are good */
} weights[] = {
    {"slot=1,core=2,memory=3", {1, 2, 3}, NULL},
    {" memory=0, core=0 ,slot=7", {7, 0, 0}, NULL},
    {"slot=1,core=1", {0}, "weights of slot, core and memory are needed"},
    {"", {0}, "weights of slot, core and memory are needed"},
    {"slot=1,core=1,memory=1,slot=1", {0}, "slot has two weights"},
    {"slot=1,core=-1,memory=1", {0}, "the weight of core is not a number from 0 to 1000000"},
    {"slot=1,core=1.5,memory=1", {0}, "the weight of core is not a number from 0 to 1000000"},
    {"slot=1,core=1,memory=1000001", {0}, "the weight of memory is not a number from 0 to 1000000"},
    {"slot=1,core=1,memory=", {0}, "the weight of memory is not a number from 0 to 1000000"},
    {"slot=0,core=0,memory=0", {0}, "at least one weight must be more than 0"},
    {"slot=1,core=1,mem=1", {0}, "\"mem=1\" is none of slot=N, core=N, memory=N"},
    {"slot", {0}, "\"slot\" is none of slot=N, core=N, memory=N"},
};

static void weights_are_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(weights); i++) {
        struct error err = ERROR_INIT;
        struct place_weights read = {9, 9, 9};
        int r = place_weights_read(weights[i].text, &read, &err);

        print_message("%s\n", weights[i].text);
        assert_int_equal(r, weights[i].error ? -EINVAL : 0);
        if (weights[i].error)
            assert_string_equal(err.text, weights[i].error);
        else
            assert_memory_equal(&read, &weights[i].weights, sizeof(read));
    }
}

static void weights_count(void **state)
{
    const struct device device = {
        .max_tasks = 10,
        .cores = 100,
        .memory_bytes = 1000 * MIB,
        .used = {.tasks = 1, .cores = 20, .memory_bytes = 300 * MIB},
    };

    (void)state;
    assert_float_equal(place_score(&device, NULL, 0, &(struct place_weights){0}), 6, 1e-5);
    assert_float_equal(place_score(&device, NULL, 0, &(struct place_weights){1, 1, 1}), 6, 1e-5);
    assert_float_equal(place_score(&device, NULL, 0, &(struct place_weights){0, 0, 2}), 6, 1e-5);
    assert_float_equal(place_score(&device, NULL, 0, &(struct place_weights){5, 0, 1}), 8, 1e-5);
}

/* NUMA nodes and scores of five devices, the last of the list on index 0. */
static void keys_sort(void **state)
{
    static const struct {
        enum place_key keys[PLACE_MAX_KEYS];
        size_t sorted[5];
    } rows[] = {
        {{B}, {4, 1, 3, 2, 0}},    {{S}, {2, 0, 3, 4, 1}},    {{N}, {4, 2, 0, 3, 1}},
        {{N, B}, {4, 2, 0, 1, 3}}, {{S, N}, {2, 0, 3, 4, 1}}, {{B, N}, {4, 1, 3, 2, 0}},
    };
    static const float scores[] = {3, 1, 3, 2, 1};
    struct device devices[5] = {
        {.numa_node = 1, .index = 4}, {.numa_node = 2, .index = 3}, {.numa_node = 1, .index = 2},
        {.numa_node = 2, .index = 1}, {.numa_node = 0, .index = 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct place_policy policy = {.order = PLACE_BINPACK};
        size_t positions[5] = {0, 1, 2, 3, 4};

        memcpy(policy.keys, rows[i].keys, sizeof(policy.keys));
        place_sort(devices, scores, &policy, positions, 5);
        for (size_t k = 0; k < 5; k++)
            assert_int_equal(positions[k], rows[i].sorted[k]);
    }
}

/* Connected sets, against a search that looks into all of them. */

enum {
    CARDS = 10,
};

static int32_t table[64][64];

static unsigned links; /* calls */

static int32_t link_of(const struct device *from, const struct device *to)
{
    links++;
    return table[from->index][to->index];
}

static const struct place_rules rules = {.link = link_of};

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

static int64_t sum_of(uint32_t set, size_t count)
{
    int64_t sum = 0;

    for (size_t i = 0; i < count; i++) {
        for (size_t k = i + 1; k < count; k++)
            sum += set >> i & set >> k & 1 ? table[i][k] : 0;
    }
    return sum;
}

/* Sets in the order in which HAMi lists them: by their first device, then the second. Bit by bit
 * backwards, that is the order of the numbers. */
static uint32_t turned(uint32_t set, size_t count)
{
    uint32_t out = 0;

    for (size_t i = 0; i < count; i++)
        out |= (set >> i & 1) << (count - 1 - i);
    return out;
}

static uint32_t find_best_set(size_t count, size_t wanted)
{
    int64_t best = INT64_MIN;
    uint32_t found = 0;

    for (uint32_t set = 0; set < 1u << count; set++) {
        int64_t sum = sum_of(set, count);

        if ((size_t)__builtin_popcount(set) != wanted || sum < best)
            continue;
        if (sum == best && turned(set, count) < turned(found, count))
            continue;
        best = sum;
        found = set;
    }
    return found;
}

static void the_best_connected_set_is_found(void **state)
{
    struct device devices[CARDS] = {{0}};
    uint32_t seed = 1;

    (void)state;
    for (unsigned i = 0; i < CARDS; i++)
        devices[i].index = i;
    for (unsigned round = 0; round < 3000; round++) {
        const uint32_t steps = 1 + next_random(&seed) % 6;
        const size_t count = 2 + next_random(&seed) % (CARDS - 1);
        const size_t wanted = 2 + next_random(&seed) % count;
        size_t positions[CARDS];
        uint32_t chosen = 0, all = 0;

        for (size_t i = 0; i < count; i++) {
            positions[i] = i;
            for (size_t k = 0; k < count; k++)
                table[i][k] = (int32_t)(next_random(&seed) % steps * 100) - 100;
        }
        connected_choose(&rules, devices, positions, count, wanted, NULL);
        /* Where a budget refuses one that is chosen, the others follow, each once. */
        for (size_t i = 0; i < count; i++)
            all |= 1u << positions[i];
        assert_int_equal(all, (1u << count) - 1);
        if (wanted > count)
            continue;
        for (size_t i = 0; i < wanted; i++) {
            chosen |= 1u << positions[i];
            if (i)
                assert_true(positions[i] > positions[i - 1]);
        }
        assert_int_equal(chosen, find_best_set(count, wanted));
    }
}

/* Random scores are the hardest for the bound; of 64 devices something good is found all the same.
 */
static void many_devices_take_bounded_time(void **state)
{
    struct device devices[64] = {{0}};
    size_t positions[64];
    uint32_t seed = 7;
    int64_t sum = 0;

    (void)state;
    for (unsigned i = 0; i < 64; i++) {
        devices[i].index = i;
        positions[i] = i;
        for (size_t k = 0; k < 64; k++)
            table[i][k] = (int32_t)(next_random(&seed) % 1000);
    }
    connected_choose(&rules, devices, positions, 64, 8, NULL);
    for (size_t i = 0; i < 8; i++) {
        for (size_t k = i + 1; k < 8; k++)
            sum += table[positions[i]][positions[k]];
    }
    assert_true(sum > 28 * 700);

    /* The first is the best connected one by far, whatever the search still comes to. */
    for (size_t k = 0; k < 64; k++) {
        positions[k] = k;
        table[0][k] = table[k][0] = 1000;
    }
    connected_choose(&rules, devices, positions, 64, 8, NULL);
    assert_int_equal(positions[0], 0);
}

static void of_single_devices_the_worst_connected_is_taken(void **state)
{
    struct device devices[4] = {{.index = 0}, {.index = 1}, {.index = 2}, {.index = 3}};
    size_t positions[] = {3, 1, 2, 0};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 4; k++)
            table[i][k] = i == 2 || k == 2 || i == 0 || k == 0 ? 10 : 100;
    }
    connected_choose(&rules, devices, positions, 4, 1, NULL);
    assert_int_equal(positions[0], 2);
}

static bool choose_last_and_first(const struct place_step *step, const struct place_set *set,
                                  size_t *ret_chosen, struct place_failure *failure)
{
    (void)step;
    (void)failure;
    ret_chosen[0] = set->count - 1;
    ret_chosen[1] = 0;
    return true;
}

/* A percentage of the last and of the first are more than the namespace may have. */
static void a_set_that_a_budget_refuses_is_not_made_up_of_others(void **state)
{
    static const struct place_rules choosing = {.choose = choose_last_and_first};
    static const struct device_vendor chooser = {"C", &choosing, NULL};
    static const uint64_t mib[] = {400, 300, 200};
    const struct place_budget budget = {&chooser, 450, INT64_MAX};
    const struct place_policy policy = {.order = PLACE_SPREAD};
    struct type_memo memo = {0};
    const struct request request = {
        .vendor = &chooser, .count = 2, .memory_percent = 90, .memo = &memo};
    const struct place_ask ask = {.request = &request, .budget = &budget};
    struct place_decision decision;
    struct device devices[3];

    (void)state;
    for (size_t i = 0; i < 3; i++)
        devices[i] = (struct device){.vendor = &chooser,
                                     .healthy = true,
                                     .max_tasks = 4,
                                     .cores = DEVICE_CORES,
                                     .memory_bytes = mib[i] * MIB};
    assert_int_equal(place_fit(devices, 3, &ask, &policy, &decision), PLACE_NO_FIT);
    assert_int_equal(decision.failure.reasons[PLACE_QUOTA], 1);
}

/* Each card is of another NUMA node, and two of one are wanted. */
static void a_card_is_given_once_where_no_numa_node_has_enough(void **state)
{
    static const struct device_vendor vendor = {"X", &rules, NULL};
    const struct place_policy policy = {.order = PLACE_BINPACK, .connected = true};
    const struct request request = {
        .vendor = &vendor, .count = 2, .memory_bytes = MIB, .one_numa_node = true};
    const struct place_ask ask = {.request = &request};
    struct place_decision decision;
    struct device devices[4];

    (void)state;
    for (unsigned best = 0; best < 16; best++) {
        for (unsigned i = 0; i < 4; i++) {
            devices[i] = (struct device){
                .vendor = &vendor,
                .healthy = true,
                .index = i,
                .numa_node = (int)i,
                .max_tasks = 4,
                .cores = DEVICE_CORES,
                .memory_bytes = 10 * MIB,
            };
            for (unsigned k = 0; k < 4; k++)
                table[i][k] = i + 4 * k == best || k + 4 * i == best ? 100 : 10;
        }
        assert_int_equal(place_fit(devices, 4, &ask, &policy, &decision), PLACE_NO_FIT);
    }
}

/* Of three cards two are connected, and the third is the one with little left. */
static struct place_node three_cards(struct device devices[static 3])
{
    static const struct device_vendor vendor = {"X", &rules, NULL};
    struct place_node node = {.name = "n", .devices = devices, .device_count = 3};

    for (unsigned i = 0; i < 3; i++) {
        devices[i] = (struct device){
            .vendor = &vendor,
            .healthy = true,
            .index = i,
            .max_tasks = 200,
            .cores = DEVICE_CORES,
            .memory_bytes = 1000 * MIB,
            .used = {.memory_bytes = i == 2 ? 500 * MIB : 0},
        };
        devices[i].uuid[0] = (char)('a' + i);
        for (unsigned k = 0; k < 3; k++)
            table[i][k] = i < 2 && k < 2 ? 100 : 10;
    }
    place_node_update(&node);
    return node;
}

/* Two cards, and so much of one card. */
static int place_two_and_one(const struct place_node *node, uint64_t mib, struct arena *arena,
                             struct placement *ret_placement)
{
    static const struct place_options connected = {PLACE_BINPACK,
                                                   {.order = PLACE_BINPACK, .connected = true}};
    const struct device_vendor *vendor = node->devices[0].vendor;
    const struct request requests[] = {{.vendor = vendor, .count = 2, .memory_bytes = 100 * MIB},
                                       {.vendor = vendor, .count = 1, .memory_bytes = mib * MIB}};
    struct container_demand containers[] = {{CONTAINER_APP, 1, &requests[0]},
                                            {CONTAINER_APP, 1, &requests[1]}};
    const struct demand demand = {2, containers};

    return place_pod(node, &demand, &connected, arena, ret_placement, NULL);
}

static void nothing_is_searched_where_the_pod_does_not_fit(void **state)
{
    struct arena *arena = arena_new(1 << 20);
    struct device devices[3];
    const struct place_node node = three_cards(devices);
    struct placement placement;

    (void)state;
    links = 0;
    assert_int_equal(place_two_and_one(&node, 1001, arena, &placement), PLACE_NO_FIT);
    assert_int_equal(links, 0);
    assert_int_equal(place_two_and_one(&node, 800, arena, &placement), PLACE_FITS);
    assert_true(links > 0);
    assert_string_equal(pod_devices_encode(&placement.vendors[0].devices, arena),
                        "b,X,100,0:a,X,100,0:;b,X,800,0:;");
    arena_free(arena);
}

/* All that a and b have is wanted of one card: the pair is not the connected one. */
static void a_pod_that_fits_unconnected_alone_is_placed(void **state)
{
    struct arena *arena = arena_new(1 << 20);
    struct device devices[3];
    const struct place_node node = three_cards(devices);
    struct placement placement;

    (void)state;
    assert_int_equal(place_two_and_one(&node, 1000, arena, &placement), PLACE_FITS);
    assert_string_equal(pod_devices_encode(&placement.vendors[0].devices, arena),
                        "c,X,100,0:b,X,100,0:;a,X,1000,0:;");
    arena_free(arena);
}

static void a_pods_searches_share_what_they_may_look_at(void **state)
{
    struct device devices[4] = {{.index = 0}, {.index = 1}, {.index = 2}, {.index = 3}};
    unsigned looks = 16; /* a guess, and nothing beyond it */

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 4; k++)
            table[i][k] = i > 1 && k > 1 ? 100 : 10;
    }
    for (unsigned round = 0; round < 2; round++) {
        size_t positions[] = {0, 1, 2, 3};

        connected_choose(&rules, devices, positions, 4, 2, &looks);
        assert_int_equal(positions[0], round == 0 ? 2 : 0);
    }
    assert_int_equal(looks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_are_read),
        cmocka_unit_test(weights_are_read),
        cmocka_unit_test(weights_count),
        cmocka_unit_test(keys_sort),
        cmocka_unit_test(the_best_connected_set_is_found),
        cmocka_unit_test(a_set_that_a_budget_refuses_is_not_made_up_of_others),
        cmocka_unit_test(many_devices_take_bounded_time),
        cmocka_unit_test(of_single_devices_the_worst_connected_is_taken),
        cmocka_unit_test(nothing_is_searched_where_the_pod_does_not_fit),
        cmocka_unit_test(a_pod_that_fits_unconnected_alone_is_placed),
        cmocka_unit_test(a_pods_searches_share_what_they_may_look_at),
        cmocka_unit_test(a_card_is_given_once_where_no_numa_node_has_enough),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
