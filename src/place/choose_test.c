/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "place/rules.h"

enum {
    NODES = 60,
    CARDS = 10,
    ROUNDS = 3000,
};

/* A small generator: the same numbers in each run. */
static uint32_t seed = 12345;

static unsigned below(unsigned bound)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % bound;
}

static char names[NODES][16];
static struct device devices[NODES][CARDS];
static struct place_node nodes[NODES];

/* Two vendors: one gives some of its devices out in halves; the other takes half of what is asked
 * for and a quarter of the cores, waives a rule, and has a word in the nodes' scores. */

static enum place_reason take_half(const struct place_step *step, const struct device *device,
                                   struct device_usage *taken)
{
    (void)step;
    if (!device->facts || taken->memory_bytes > device->memory_bytes / 2 ||
        (device->used.parts & 3) == 3)
        return PLACE_CARD_CUSTOM_RULE;
    taken->parts = device->used.parts & 1 ? 2 : 1;
    return PLACE_REASON_COUNT;
}

static bool may_be_halved(const struct device *device)
{
    return device->facts != NULL;
}

static void want_less(const struct place_step *step, const struct device *device,
                      struct device_usage *ret_wanted)
{
    (void)step;
    (void)device;
    ret_wanted->memory_bytes /= 2;
    ret_wanted->cores /= 4;
}

static float prefer_some_nodes(const struct place_fitted *fitted)
{
    return (float)(fitted->devices[0].index % 40) * (fitted->node_order == PLACE_SPREAD ? -1 : 1);
}

static const struct place_rules halving = {.take = take_half, .is_usable = may_be_halved};
static struct place_rules sparing = {
    .want = want_less, .waived = 1u << PLACE_CARD_CORES_EXHAUSTED, .score_node = prefer_some_nodes};
static const struct device_vendor vendors[] = {{"A", &halving, NULL}, {"B", &sparing, NULL}};

static struct device any_card(size_t node, size_t card)
{
    static const char *const models[] = {"NVIDIA A100", "NVIDIA T4", "NVIDIA H100"};
    static const char *const modes[] = {"", "hami-core", "hami-core"};
    static const unsigned mib[] = {0, 50, 15360, 40960};
    static const unsigned cores[] = {100, 100, 100, 0, 200, 50};
    struct device device = {
        .healthy = below(8) > 0,
        .cordoned = below(20) == 0,
        .memory_bytes = mib[below(4)] * MIB,
        .cores = cores[below(6)],
        .max_tasks = below(11),
    };

    (void)snprintf(device.uuid, sizeof(device.uuid), "GPU-%zu-%zu", node, card);
    COPY_TEXT(device.model, models[below(3)]);
    COPY_TEXT(device.mode, modes[below(3)]);
    device.vendor = &vendors[below(3) == 0];
    device.index = below(1000);
    device.special = below(4) == 0;
    device.facts = below(2) ? &vendors : NULL;
    device.used.parts = below(4);
    if (below(3)) {
        device.used.tasks = below(11);
        device.used.cores = below(101);
        device.used.memory_bytes = device.memory_bytes / 100 * below(101);
    }
    return device;
}

static void make_nodes(void)
{
    bool ranked = below(2);

    for (size_t i = 0; i < NODES; i++) {
        /* Names in an order that is not that of the positions. */
        (void)snprintf(names[i], sizeof(names[i]), "n%02zu", (i * 37 + 11) % NODES);
        for (size_t k = 0; k < CARDS; k++)
            devices[i][k] = any_card(i, k);
        nodes[i] = (struct place_node){
            .name = names[i],
            .devices = devices[i],
            .device_count = below(CARDS + 1),
            .rank = ranked ? (uint32_t)((i * 37 + 11) % NODES) : 0,
        };
        place_node_update(&nodes[i]);
    }
}

static struct request any_request(void)
{
    static const unsigned mib[] = {0, 1, 100, 8000, 40960, 50000};
    static const unsigned percents[] = {0, 1, 10, 50, 99, 100, 101, 300};
    static const unsigned cores[] = {0, 0, 1, 30, 100, 150};

    return (struct request){
        .vendor = &vendors[below(4) == 0],
        .count = 1 + below(below(4) ? 3 : CARDS),
        .memory_bytes = mib[below(6)] * MIB + below(2),
        .memory_percent = percents[below(8)],
        .cores = cores[below(6)],
    };
}

static bool comes_before(const struct place_node *a, float more_of_a, const struct place_node *b,
                         float more_of_b, enum place_order order)
{
    const float left = a->score + more_of_a, right = b->score + more_of_b;

    if (left != right)
        return order == PLACE_BINPACK ? left > right : left < right;
    return strcmp(a->name, b->name) < 0;
}

/* The best of those on which the pod fits, found the long way. */
static size_t best_of_all(const struct demand *demand, const struct place_options *options,
                          struct arena *arena)
{
    struct placement placement;
    size_t best = NODES;
    float more = 0;

    for (size_t i = 0; i < NODES; i++) {
        if (place_pod(&nodes[i], demand, options, arena, &placement, NULL) != PLACE_FITS)
            continue;
        if (best < NODES &&
            !comes_before(&nodes[i], placement.score, &nodes[best], more, options->node_order))
            continue;
        best = i;
        more = placement.score;
    }
    return best;
}

static void the_choice_is_the_best_node_that_fits(void **state)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(8 << 20);
    const struct place_node *list[NODES];
    unsigned placed = 0;

    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        struct request requests[2] = {any_request(), any_request()};
        struct container_demand containers[2] = {
            {.role = below(4) ? CONTAINER_APP : CONTAINER_INIT, 1, &requests[0]},
            {.role = CONTAINER_APP, below(2), &requests[1]},
        };
        const struct demand demand = {2, containers};
        const struct place_options options = {
            below(2) ? PLACE_BINPACK : PLACE_SPREAD,
            {.order = below(2) ? PLACE_BINPACK : PLACE_SPREAD, .mutex = below(5) == 0},
        };
        struct placement placement;
        size_t wanted, position;
        int r;

        if (round % 10 == 0)
            make_nodes();
        sparing.score_most = below(2) ? 39 : 0; /* known, or not */
        sparing.score_least = -sparing.score_most;
        for (size_t i = 0; i < NODES; i++)
            list[i] = &nodes[i];
        wanted = best_of_all(&demand, &options, arena);
        r = place_choose(list, NODES, &demand, &options, arena, &position, &placement);
        assert_int_equal(r, wanted == NODES ? PLACE_NO_FIT : PLACE_FITS);
        if (r == PLACE_FITS)
            assert_int_equal(position, wanted);
        placed += r == PLACE_FITS;
        arena_reset(arena);
    }
    print_message("%u of %d placed\n", placed, ROUNDS);
    assert_in_range(placed, ROUNDS / 10, ROUNDS * 9 / 10);
}

/* What is kept of them says that they may fit: the memory is one card's, the cores another's. */
static void make_misleading_nodes(size_t fitting, size_t first_card)
{
    for (size_t i = 0; i < NODES; i++) {
        for (size_t k = 0; k < CARDS; k++) {
            struct device *device = &devices[i][k];

            *device = (struct device){
                .vendor = &vendors[0],
                .healthy = true,
                .cores = 100,
                .max_tasks = 10,
                .memory_bytes = 40960 * MIB,
            };
            (void)snprintf(device->uuid, sizeof(device->uuid), "GPU-%zu-%zu", i, k);
            COPY_TEXT(device->model, "NVIDIA A100");
            if (i == fitting && k >= first_card)
                continue;
            device->used.tasks = 1;
            if (k % 2)
                device->used.memory_bytes = 40000 * MIB;
            else
                device->used.cores = 90;
        }
        (void)snprintf(names[i], sizeof(names[i]), "n%02zu", i);
        nodes[i] = (struct place_node){
            .name = names[i], .devices = devices[i], .device_count = CARDS, .rank = (uint32_t)i};
        place_node_update(&nodes[i]);
    }
}

/* Binpack comes to the emptiest node last. */
static void a_node_behind_many_that_seem_to_fit_is_found(void **state)
{
    static const struct {
        size_t fitting, first_card;
        unsigned count;
    } rows[] = {{NODES - 1, CARDS - 1, 1}, {NODES - 1, CARDS - 2, 2}, {NODES - 1, 0, CARDS},
                {NODES / 2, CARDS - 1, 1}, {NODES / 2, CARDS - 3, 3}, {0, CARDS - 1, 1}};
    CLEANUP(arena_freep) struct arena *arena = arena_new(8 << 20);
    const struct place_node *list[NODES];

    (void)state;
    for (size_t i = 0; i < NODES; i++)
        list[i] = &nodes[i];
    for (size_t row = 0; row < ARRAY_SIZE(rows); row++) {
        struct request request = {.vendor = &vendors[0],
                                  .count = rows[row].count,
                                  .memory_bytes = 8000 * MIB,
                                  .cores = 30};
        struct container_demand container = {CONTAINER_APP, 1, &request};
        const struct demand demand = {1, &container};
        const struct place_options options = {PLACE_BINPACK, {.order = PLACE_SPREAD}};
        struct placement placement;
        size_t position;

        make_misleading_nodes(rows[row].fitting, rows[row].first_card);
        assert_int_equal(place_choose(list, NODES, &demand, &options, arena, &position, &placement),
                         PLACE_FITS);
        assert_int_equal(position, rows[row].fitting);
        request.count++;
        assert_int_equal(place_choose(list, NODES, &demand, &options, arena, &position, &placement),
                         PLACE_NO_FIT);
        arena_reset(arena);
    }
}

/* One device of this vendor is asked for. Only node 5 can be looked into, and is taken. */
static void choose_node_5(const struct device_vendor *vendor, enum place_order order)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(8 << 20);
    const struct place_node *list[NODES];
    const struct request request = {.vendor = vendor, .count = 1};
    struct container_demand container = {CONTAINER_APP, 1, &request};
    const struct demand demand = {1, &container};
    const struct place_options options = {order, {.order = PLACE_SPREAD}};
    struct placement placement;
    size_t position;

    for (size_t i = 0; i < NODES; i++) {
        list[i] = &nodes[i];
        place_node_update(&nodes[i]);
        nodes[i].devices = i == 5 ? devices[i] : NULL;
    }
    assert_int_equal(place_choose(list, NODES, &demand, &options, arena, &position, &placement),
                     PLACE_FITS);
    assert_int_equal(position, 5);
}

static void nodes_of_other_vendors_are_not_looked_into(void **state)
{
    static const struct device_vendor own = {"AWSNeuron", &sparing, NULL};

    (void)state;
    make_misleading_nodes(0, 0);
    for (size_t k = 0; k < CARDS; k++)
        devices[5][k].vendor = &own;
    choose_node_5(&own, PLACE_SPREAD);
}

static float prefer_none(const struct place_fitted *fitted)
{
    (void)fitted;
    return 0;
}

static void nodes_that_a_vendor_cannot_make_the_best_are_not_looked_into(void **state)
{
    static const struct place_rules rules = {.score_node = prefer_none, .score_most = 1};
    static const struct device_vendor own = {"Ascend", &rules, NULL};

    (void)state;
    make_misleading_nodes(0, 0);
    for (size_t i = 0; i < NODES; i++) {
        for (size_t k = 0; k < CARDS; k++) {
            devices[i][k].vendor = &own;
            devices[i][k].used = (struct device_usage){.tasks = i == 5 ? 9 : 0};
        }
    }
    choose_node_5(&own, PLACE_BINPACK);
}

static void of_no_nodes_none_is_chosen(void **state)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(1 << 16);
    const struct place_options options = {PLACE_BINPACK, {.order = PLACE_SPREAD}};
    const struct demand nothing = {0};
    struct placement placement;
    size_t position;

    (void)state;
    assert_int_equal(place_choose(NULL, 0, &nothing, &options, arena, &position, &placement),
                     PLACE_NO_FIT);
}

static void reasons_of_many_nodes_are_told_together(void **state)
{
    struct place_failure few = {.too_few_devices = true};
    struct place_failure full = {.candidates = 8};
    struct place_totals totals = {0};
    char text[PLACE_REASON_TEXT_SIZE];

    (void)state;
    full.reasons[PLACE_CARD_INSUFFICIENT_MEMORY] = 3;
    full.reasons[PLACE_CARD_TYPE_MISMATCH] = 5;
    for (int i = 0; i < 3; i++)
        place_totals_add(&totals, &full, 1);
    place_totals_add(&totals, &few, 1);
    place_totals_format(&totals, text);
    assert_string_equal(
        text, "1/4 NodeInsufficientDevice, 15/24 CardTypeMismatch, 9/24 CardInsufficientMemory");
    assert_int_equal(totals.reason_nodes[PLACE_CARD_TYPE_MISMATCH], 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_choice_is_the_best_node_that_fits),
        cmocka_unit_test(a_node_behind_many_that_seem_to_fit_is_found),
        cmocka_unit_test(nodes_of_other_vendors_are_not_looked_into),
        cmocka_unit_test(nodes_that_a_vendor_cannot_make_the_best_are_not_looked_into),
        cmocka_unit_test(of_no_nodes_none_is_chosen),
        cmocka_unit_test(reasons_of_many_nodes_are_told_together),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
