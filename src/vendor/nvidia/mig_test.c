/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/nvidia/mig.h"

#include <string.h>

#include "base/check.h"
#include "base/util.h"

enum {
    CARDS = 3,
    CARD_MIB = 10000,
};

static const struct device_vendor vendor = {"NVIDIA", &nvidia_rules, NULL};
static const struct place_options spread = {PLACE_BINPACK, {.order = PLACE_SPREAD}};
static struct arena *arena;
static struct device cards[CARDS];
static struct place_node node = {.name = "n1", .devices = cards, .device_count = CARDS};

static int set_up(void **state)
{
    (void)state;
    arena = arena_new(1 << 20);
    for (size_t i = 0; i < CARDS; i++) {
        cards[i] = (struct device){
            .vendor = &vendor,
            .model = "NVIDIA A100",
            .healthy = true,
            .memory_bytes = CARD_MIB * MIB,
            .cores = DEVICE_CORES,
            .max_tasks = DEVICE_DEFAULT_MAX_TASKS,
        };
        cards[i].uuid[0] = (char)('a' + i);
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static void put_into_mig_mode(struct device *card, const struct mig_geometry *geometry)
{
    struct nvidia_facts *facts = ARENA_NEW(arena, struct nvidia_facts);

    COPY_TEXT(card->mode, MIG_MODE);
    card->special = true;
    facts->geometry = geometry;
    card->facts = facts;
}

static struct demand demand_of(const enum container_role *roles, size_t count, unsigned cards_each,
                               unsigned mib)
{
    struct container_demand *containers = ARENA_ARRAY(arena, struct container_demand, count);

    for (size_t i = 0; i < count; i++) {
        struct request *request = ARENA_NEW(arena, struct request);

        *request =
            (struct request){.vendor = &vendor, .count = cards_each, .memory_bytes = mib * MIB};
        containers[i] = (struct container_demand){roles[i], 1, request};
    }
    return (struct demand){.count = count, .containers = containers};
}

static struct demand demand_of_app(unsigned cards_each, unsigned mib)
{
    static const enum container_role role = CONTAINER_APP;

    return demand_of(&role, 1, cards_each, mib);
}

static struct place_usage usage_of(const char *text)
{
    struct place_usage usage = {0};
    struct pod_devices devices;

    assert_true(pod_devices_decode(text, arena, &devices, NULL) > 0);
    assert_int_equal(place_usage_add_pod(&usage, &vendor, &devices, "", arena), 0);
    return usage;
}

/* A card of 40 GiB: seven of 5, or one of 5 and three of 10, or two of 20, or one of 40. */
static const struct mig_geometry geometry = {
    .group_count = 4,
    .groups =
        {
            {1, {{5120, 14, 7}}},
            {2, {{5120, 14, 1}, {10240, 28, 3}}},
            {1, {{20480, 42, 2}}},
            {1, {{40960, 100, 1}}},
        },
};

static void a_card_used_against_its_mode_takes_nothing_new(void **state)
{
    const struct demand demand = demand_of_app(3, 100);
    struct place_usage usage = usage_of("b[0-1],NVIDIA,100,5:;");
    char reasons[PLACE_REASON_TEXT_SIZE];
    struct place_failure failure;
    struct placement placement;

    (void)state;
    assert_int_equal(place_usage_charge(cards, CARDS, &usage), 0);
    assert_int_equal(cards[1].used.tasks, 1);
    assert_int_equal(place_pod(&node, &demand, &spread, arena, &placement, &failure), PLACE_NO_FIT);
    place_reasons_format(&failure, reasons);
    assert_string_equal(reasons, "1/3 CardNotHealth, 2/3 AllocatedCardsInsufficientRequest");
    assert_int_equal(place_usage_discharge(cards, CARDS, &usage), 0);
    assert_int_equal(place_pod(&node, &demand, &spread, arena, &placement, &failure), PLACE_FITS);
}

/* Grants that name no instance that there may be. */
static void a_card_in_mig_mode_used_as_a_whole_takes_nothing_new(void **state)
{
    static const char *const texts[] = {"a,NVIDIA,100,5:;", "a[8-0],NVIDIA,1,1:;",
                                        "a[0-8],NVIDIA,1,1:;", "a[0--1],NVIDIA,1,1:;",
                                        "a[x],NVIDIA,1,1:;"};

    (void)state;
    put_into_mig_mode(&cards[0], &geometry);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct place_usage usage = usage_of(texts[i]);

        assert_int_equal(place_usage_charge(cards, 1, &usage), 0);
        assert_int_equal(cards[0].misused, 1);
        assert_int_equal(place_usage_discharge(cards, 1, &usage), 0);
        assert_int_equal(cards[0].misused, 0);
    }
}

static void a_card_of_unknown_geometry_takes_nothing(void **state)
{
    const struct demand demand = demand_of_app(3, 100);
    char reasons[PLACE_REASON_TEXT_SIZE];
    struct place_failure failure;
    struct placement placement;

    (void)state;
    put_into_mig_mode(&cards[1], NULL);
    place_node_update(&node);
    assert_int_equal(node.usable, 2);
    assert_int_equal(place_pod(&node, &demand, &spread, arena, &placement, &failure), PLACE_NO_FIT);
    place_reasons_format(&failure, reasons);
    assert_string_equal(reasons,
                        "1/3 CardNotFoundCustomFilterRule, 2/3 AllocatedCardsInsufficientRequest");
}

/* Pods that come one after the other to one such card, and the outcome of each. */
static const struct {
    unsigned mib;
    int gone; /* the pod that goes before it; -1: none */
    const char *devices;
} instances[] = {
    {5121, -1, "a[1-1],NVIDIA,10240,28:;"},
    {100, -1, "a[1-0],NVIDIA,5120,14:;"},
    {100, -1, "a[1-2],NVIDIA,10240,28:;"},
    {10240, -1, "a[1-3],NVIDIA,10240,28:;"},
    {100, -1, NULL},
    {10240, 0, "a[1-1],NVIDIA,10240,28:;"},
    {20480, -1, NULL},
};

static int place_on_first(unsigned mib, struct placement *ret_placement)
{
    const struct demand demand = demand_of_app(1, mib);
    struct place_node first = {.name = "n1", .devices = cards, .device_count = 1};

    return place_pod(&first, &demand, &spread, arena, ret_placement, NULL);
}

static void a_card_in_mig_mode_is_given_out_in_instances(void **state)
{
    struct placement placements[ARRAY_SIZE(instances)], last;

    (void)state;
    put_into_mig_mode(&cards[0], &geometry);
    cards[0].memory_bytes = 40960 * MIB;
    for (size_t i = 0; i < ARRAY_SIZE(instances); i++) {
        if (instances[i].gone >= 0)
            (void)place_usage_discharge(cards, 1, &placements[instances[i].gone].usage);
        if (!instances[i].devices) {
            assert_int_equal(place_on_first(instances[i].mib, &last), PLACE_NO_FIT);
            continue;
        }
        assert_int_equal(place_on_first(instances[i].mib, &placements[i]), PLACE_FITS);
        assert_string_equal(pod_devices_encode(&placements[i].vendors[0].devices, arena),
                            instances[i].devices);
        assert_int_equal(place_usage_charge(cards, 1, &placements[i].usage), 0);
    }
    for (size_t i = 1; i < ARRAY_SIZE(instances); i++) {
        if (instances[i].devices)
            (void)place_usage_discharge(cards, 1, &placements[i].usage);
    }
    assert_int_equal(cards[0].used.tasks, 0);
    assert_int_equal(place_on_first(20481, &last), PLACE_FITS);
    assert_string_equal(pod_devices_encode(&last.vendors[0].devices, arena),
                        "a[3-0],NVIDIA,40960,100:;");
}

static void bar(struct device *card, unsigned group, uint64_t numbers)
{
    struct nvidia_facts *facts = ARENA_NEW(arena, struct nvidia_facts);

    *facts = *(const struct nvidia_facts *)card->facts;
    facts->barred |= numbers << group * MIG_MAX_INSTANCES;
    card->facts = facts;
}

/* Of several numbers of a group those that are allowed keep theirs. */
static void a_profile_that_is_not_allowed_is_not_given_out(void **state)
{
    static const struct {
        unsigned mib;
        const char *devices, *reasons; /* one of both */
    } rows[] = {
        {5000, "a[1-1],NVIDIA,10240,28:;", NULL},
        {20480, NULL, "1/1 CardMigProfileNotAllowed"},
        {40960, "a[3-0],NVIDIA,40960,100:;", NULL},
    };
    char reasons[PLACE_REASON_TEXT_SIZE];
    struct place_failure failure;
    struct placement placement;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct demand demand = demand_of_app(1, rows[i].mib);
        struct place_node first = {.name = "n1", .devices = cards, .device_count = 1};

        put_into_mig_mode(&cards[0], &geometry);
        cards[0].memory_bytes = 40960 * MIB;
        bar(&cards[0], 0, 0x7f);
        bar(&cards[0], 1, 0x1);
        bar(&cards[0], 2, 0x3);
        if (!rows[i].devices)
            bar(&cards[0], 3, 0x1);
        if (rows[i].devices) {
            assert_int_equal(place_on_first(rows[i].mib, &placement), PLACE_FITS);
            assert_string_equal(pod_devices_encode(&placement.vendors[0].devices, arena),
                                rows[i].devices);
            continue;
        }
        assert_int_equal(place_pod(&first, &demand, &spread, arena, &placement, &failure),
                         PLACE_NO_FIT);
        place_reasons_format(&failure, reasons);
        assert_string_equal(reasons, rows[i].reasons);
    }
}

/* Where instances are short, the list is not the reason. */
static void what_the_list_does_not_change_has_its_own_reason(void **state)
{
    const struct demand demand = demand_of_app(1, 20480);
    struct place_node first = {.name = "n1", .devices = cards, .device_count = 1};
    struct place_usage usage = usage_of("a[1-1],NVIDIA,10240,28:;");
    char reasons[PLACE_REASON_TEXT_SIZE];
    struct place_failure failure;
    struct placement placement;

    (void)state;
    put_into_mig_mode(&cards[0], &geometry);
    cards[0].memory_bytes = 40960 * MIB;
    bar(&cards[0], 2, 0x3);
    assert_int_equal(place_usage_charge(cards, 1, &usage), 0);
    assert_int_equal(place_pod(&first, &demand, &spread, arena, &placement, &failure),
                     PLACE_NO_FIT);
    place_reasons_format(&failure, reasons);
    assert_string_equal(reasons, "1/1 CardNotFoundCustomFilterRule");
}

static void containers_share_a_card_in_mig_mode_as_they_run(void **state)
{
    static const enum container_role roles[] = {CONTAINER_INIT, CONTAINER_SIDECAR, CONTAINER_APP};
    const struct demand demand = demand_of(roles, 3, 1, 100);
    struct placement placement;

    (void)state;
    for (size_t i = 0; i < CARDS; i++)
        put_into_mig_mode(&cards[i], &geometry);
    cards[0].healthy = cards[1].healthy = false;
    assert_int_equal(place_pod(&node, &demand, &spread, arena, &placement, NULL), PLACE_FITS);
    assert_string_equal(pod_devices_encode(&placement.vendors[0].devices, arena),
                        "c[0-0],NVIDIA,5120,14:;c[0-0],NVIDIA,5120,14:;c[0-1],NVIDIA,5120,14:;");
    assert_int_equal(placement.usage.count, 2);
    assert_string_equal(placement.usage.shares[0].uuid, "c[0-0]");
    assert_string_equal(placement.usage.shares[1].uuid, "c[0-1]");
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(placement.usage.shares[i].usage.tasks, 1);
        assert_int_equal(placement.usage.shares[i].usage.memory_bytes, 5120 * MIB);
        assert_int_equal(placement.usage.shares[i].usage.cores, 14);
    }
}

#define WITH_CARDS(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

/* Two cards are full of tasks; the third gives what is asked for, and the node's kept numbers don't
 * rule it out. */
static void one_card_gives_several_instances(void **state)
{
    const struct demand demand = demand_of_app(3, 10000);
    const struct place_node *nodes[] = {&node};
    struct placement placement;
    size_t position;

    (void)state;
    for (size_t i = 0; i < CARDS; i++) {
        put_into_mig_mode(&cards[i], &geometry);
        cards[i].memory_bytes = 40960 * MIB;
        cards[i].used.tasks = i ? cards[i].max_tasks : 0;
    }
    place_node_update(&node);
    assert_int_equal(place_choose(nodes, 1, &demand, &spread, arena, &position, &placement),
                     PLACE_FITS);
    assert_string_equal(pod_devices_encode(&placement.vendors[0].devices, arena),
                        "a[1-1],NVIDIA,10240,28:a[1-2],NVIDIA,10240,28:a[1-3],NVIDIA,10240,28:;");
    assert_int_equal(place_usage_charge(cards, CARDS, &placement.usage), 0);
    assert_int_equal(cards[0].used.tasks, 3);
    assert_int_equal(cards[0].used.parts, 0xe << MIG_MAX_INSTANCES);
    place_node_update(&node);
    assert_int_equal(place_choose(nodes, 1, &demand, &spread, arena, &position, &placement),
                     PLACE_NO_FIT);
}

/* The card's tasks bound how many it gives, too. */
static void instances_of_a_request_count_as_tasks(void **state)
{
    const struct demand demand = demand_of_app(3, 5000);
    char reasons[PLACE_REASON_TEXT_SIZE];
    struct place_failure failure;
    struct placement placement;

    (void)state;
    for (size_t i = 0; i < CARDS; i++) {
        put_into_mig_mode(&cards[i], &geometry);
        cards[i].memory_bytes = 40960 * MIB;
        cards[i].max_tasks = i ? 0 : 2;
    }
    assert_int_equal(place_pod(&node, &demand, &spread, arena, &placement, &failure), PLACE_NO_FIT);
    place_reasons_format(&failure, reasons);
    assert_string_equal(reasons,
                        "2/3 AllocatedCardsInsufficientRequest, 3/3 CardTimeSlicingExhausted");
}

/* Of instances together, and in the mode that the card is in now. */
static void what_was_promised_is_given_only_as_long_as_it_fits(void **state)
{
    static const struct {
        const char *grant;
        bool mig, fits;
        unsigned mib, tasks;
    } rows[] = {
        {"a[0-0],NVIDIA,5120,14:a[0-1],NVIDIA,5120,14:;", true, true, 40960, 7},
        {"a[0-0],NVIDIA,5120,14:a[0-1],NVIDIA,5120,14:;", true, false, 10239, 7},
        {"a[0-0],NVIDIA,5120,14:a[0-1],NVIDIA,5120,14:;", true, false, 40960, 1},
        {"a[0-0],NVIDIA,5120,60:a[0-1],NVIDIA,5120,60:;", true, false, 40960, 7},
        {"a[0-0],NVIDIA,5120,14:;", true, true, 5120, 1},
        {"a[0-0],NVIDIA,5120,14:;", false, false, 40960, 7},
        {"a,NVIDIA,5120,14:;", false, true, 40960, 7},
        {"a,NVIDIA,5120,14:;", true, false, 40960, 7},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct place_usage usage = usage_of(rows[i].grant);

        cards[0].special = false;
        if (rows[i].mig)
            put_into_mig_mode(&cards[0], &geometry);
        cards[0].memory_bytes = rows[i].mib * MIB;
        cards[0].max_tasks = rows[i].tasks;
        if (place_usage_fits(cards, CARDS, &usage) != rows[i].fits)
            fail_msg("row %zu", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_CARDS(a_card_used_against_its_mode_takes_nothing_new),
        WITH_CARDS(a_card_in_mig_mode_used_as_a_whole_takes_nothing_new),
        WITH_CARDS(a_card_of_unknown_geometry_takes_nothing),
        WITH_CARDS(a_card_in_mig_mode_is_given_out_in_instances),
        WITH_CARDS(a_profile_that_is_not_allowed_is_not_given_out),
        WITH_CARDS(what_the_list_does_not_change_has_its_own_reason),
        WITH_CARDS(containers_share_a_card_in_mig_mode_as_they_run),
        WITH_CARDS(one_card_gives_several_instances),
        WITH_CARDS(instances_of_a_request_count_as_tasks),
        WITH_CARDS(what_was_promised_is_given_only_as_long_as_it_fits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
