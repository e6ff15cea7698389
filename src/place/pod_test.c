/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "model/keys.h"
#include "place/rules.h"

enum {
    CARDS = 3,
    CARD_MIB = 10000,
};

static const struct place_rules rules;
static const struct device_vendor vendor = {"NVIDIA", &rules, NULL};
static struct arena *arena;
static struct device cards[CARDS];
static struct place_node node = {.name = "n1", .devices = cards, .device_count = CARDS};
static const struct place_options spread = {PLACE_BINPACK, {.order = PLACE_SPREAD}};

static int set_up(void **state)
{
    (void)state;
    arena = arena_new(1 << 20);
    memset(cards, 0, sizeof(cards));
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
    place_node_update(&node);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

/* "2x3000/10": two cards with 3000 MiB and 10 cores of each; a letter before it is the role. */
struct ask {
    enum container_role role;
    unsigned count, mib, cores;
};

static struct demand demand_of(const struct ask *asks, size_t count)
{
    struct container_demand *containers = ARENA_ARRAY(arena, struct container_demand, count);

    for (size_t i = 0; i < count; i++) {
        struct request *request = ARENA_NEW(arena, struct request);

        *request = (struct request){
            .vendor = &vendor,
            .count = asks[i].count,
            .memory_bytes = asks[i].mib * MIB,
            .cores = asks[i].cores,
        };
        containers[i] = (struct container_demand){asks[i].role, asks[i].count > 0, request};
    }
    return (struct demand){.count = count, .containers = containers};
}

#define APP CONTAINER_APP
#define INIT CONTAINER_INIT
#define SIDE CONTAINER_SIDECAR

/* The devices of a pod on three empty cards a, b, c of 10,000 MiB. */
static const struct {
    const char *name;
    struct ask asks[4];
    size_t count;
    const char *devices; /* NULL: no room, for the reasons */
    const char *usage;   /* "a 1/3000/10", in the order of first use; or the reasons */
} cases[] = {
    {"one container", {{APP, 1, 3000, 10}}, 1, "c,NVIDIA,3000,10:;", "c 1/3000/10"},
    {"several cards",
     {{APP, 2, 3000, 10}},
     1,
     "c,NVIDIA,3000,10:b,NVIDIA,3000,10:;",
     "c 1/3000/10 b 1/3000/10"},
    {"a container that asks for nothing keeps its place",
     {{APP, 0, 0, 0}, {APP, 1, 100, 0}, {APP, 0, 0, 0}},
     3,
     ";c,NVIDIA,100,0:;;",
     "c 1/100/0"},
    {"containers are charged together",
     {{APP, 1, 6000, 0}, {APP, 1, 6000, 0}, {APP, 1, 6000, 0}},
     3,
     "c,NVIDIA,6000,0:;b,NVIDIA,6000,0:;a,NVIDIA,6000,0:;",
     "c 1/6000/0 b 1/6000/0 a 1/6000/0"},
    {"a pod fits as a whole or not at all",
     {{APP, 3, 6000, 0}, {APP, 1, 6000, 0}},
     2,
     NULL,
     "3/3 CardInsufficientMemory"},
    {"an init container's card is free again for the app",
     {{INIT, 3, 6000, 0}, {APP, 3, 6000, 0}},
     2,
     "c,NVIDIA,6000,0:b,NVIDIA,6000,0:a,NVIDIA,6000,0:;"
     "c,NVIDIA,6000,0:b,NVIDIA,6000,0:a,NVIDIA,6000,0:;",
     "c 1/6000/0 b 1/6000/0 a 1/6000/0"},
    {"what a pod takes is the larger of its init containers and its apps",
     {{INIT, 1, 8000, 5}, {INIT, 1, 2000, 90}, {APP, 1, 3000, 10}},
     3,
     "c,NVIDIA,8000,5:;c,NVIDIA,2000,90:;c,NVIDIA,3000,10:;",
     "c 1/8000/90"},
    {"a sidecar stays beside what comes after it",
     {{SIDE, 3, 6000, 0}, {INIT, 1, 6000, 0}, {APP, 1, 100, 0}},
     3,
     NULL,
     "3/3 CardInsufficientMemory"},
    {"an init container before the sidecar has the card to itself",
     {{INIT, 3, 6000, 0}, {SIDE, 3, 6000, 0}, {APP, 1, 4000, 0}},
     3,
     "c,NVIDIA,6000,0:b,NVIDIA,6000,0:a,NVIDIA,6000,0:;"
     "c,NVIDIA,6000,0:b,NVIDIA,6000,0:a,NVIDIA,6000,0:;c,NVIDIA,4000,0:;",
     "c 2/10000/0 b 1/6000/0 a 1/6000/0"},
    {"the reasons are those of the container that finds no room",
     {{APP, 1, 100, 0}, {APP, 4, 100, 0}},
     2,
     NULL,
     "NodeInsufficientDevice"},
};

static const char *usage_text(const struct place_usage *usage)
{
    char *text = arena_strdup(arena, "");

    for (size_t i = 0; i < usage->count; i++) {
        const struct place_share *share = &usage->shares[i];

        text = arena_printf(arena, "%s%s%s %u/%u/%u", text, i ? " " : "", share->uuid,
                            share->usage.tasks, (unsigned)(share->usage.memory_bytes / MIB),
                            share->usage.cores);
    }
    return text;
}

static void containers_share_as_they_run(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct demand demand = demand_of(cases[i].asks, cases[i].count);
        char reasons[PLACE_REASON_TEXT_SIZE];
        struct place_failure failure;
        struct placement placement;
        int r;

        print_message("%s\n", cases[i].name);
        r = place_pod(&node, &demand, &spread, arena, &placement, &failure);
        if (!cases[i].devices) {
            assert_int_equal(r, PLACE_NO_FIT);
            place_reasons_format(&failure, reasons);
            assert_string_equal(reasons, cases[i].usage);
            continue;
        }
        assert_int_equal(r, PLACE_FITS);
        assert_int_equal(placement.vendor_count, 1);
        assert_ptr_equal(placement.vendors[0].vendor, &vendor);
        assert_string_equal(pod_devices_encode(&placement.vendors[0].devices, arena),
                            cases[i].devices);
        assert_string_equal(usage_text(&placement.usage), cases[i].usage);
    }
    for (size_t i = 0; i < CARDS; i++)
        assert_int_equal(cards[i].used.tasks, 0);
}

static struct place_usage usage_of(const char *text, const char *roles)
{
    struct place_usage usage = {0};
    struct pod_devices devices;

    assert_true(pod_devices_decode(text, arena, &devices, NULL) > 0);
    assert_int_equal(place_usage_add_pod(&usage, &vendor, &devices, roles, arena), 0);
    return usage;
}

static void a_charge_is_given_back_exactly(void **state)
{
    static const char garbage[] = "a,NVIDIA,-5,2147483647:a,x,2147483647,-1:;zz,NVIDIA,1,1:;";
    struct place_usage usage, wild;

    (void)state;
    usage = usage_of("a,NVIDIA,100,5:;b,NVIDIA,200,6:a,NVIDIA,1,1:;", "");
    assert_string_equal(usage_text(&usage), "a 2/101/6 b 1/200/6");
    wild = usage_of(garbage, "");
    assert_int_equal(place_usage_charge(cards, CARDS, &usage), 0);
    assert_int_equal(place_usage_charge(cards, CARDS, &wild), 1);
    assert_int_equal(place_usage_discharge(cards, CARDS, &usage), 0);
    assert_int_equal(place_usage_discharge(cards, CARDS, &wild), 1);
    for (size_t i = 0; i < CARDS; i++) {
        assert_int_equal(cards[i].used.tasks, 0);
        assert_int_equal(cards[i].used.cores, 0);
        assert_int_equal(cards[i].used.memory_bytes, 0);
    }
}

static void garbage_can_not_make_a_full_card_look_free(void **state)
{
    struct place_usage usage;
    char *text = arena_alloc(arena, 200000);

    (void)state;
    for (int i = 0; i < 4000; i++)
        strcat(text, "a,NVIDIA,2147483647,2147483647:");
    usage = usage_of(text, "");
    for (int i = 0; i < 100000; i++) {
        (void)place_usage_charge(cards, CARDS, &usage);
        assert_true(cards[0].used.memory_bytes >= cards[0].memory_bytes);
        assert_true(cards[0].used.cores >= cards[0].cores);
    }
}

static void without_roles_all_containers_count_together(void **state)
{
    struct place_usage usage;

    (void)state;
    usage = usage_of("a,NVIDIA,100,5:;a,NVIDIA,200,6:;", "i");
    assert_string_equal(usage_text(&usage), "a 1/200/6");
    usage = usage_of("a,NVIDIA,100,5:;a,NVIDIA,200,6:;", "s");
    assert_string_equal(usage_text(&usage), "a 2/300/11");
    usage = usage_of("a,NVIDIA,100,5:;a,NVIDIA,200,6:;", "");
    assert_string_equal(usage_text(&usage), "a 2/300/11");
}

static void a_cordoned_card_takes_nothing(void **state)
{
    const struct ask ask = {APP, 3, 100, 0};
    const struct demand demand = demand_of(&ask, 1);
    char reasons[PLACE_REASON_TEXT_SIZE];
    struct place_failure failure;
    struct placement placement;

    (void)state;
    cards[0].cordoned = true;
    assert_int_equal(place_pod(&node, &demand, &spread, arena, &placement, &failure), PLACE_NO_FIT);
    place_reasons_format(&failure, reasons);
    assert_string_equal(reasons, "1/3 CardCordoned, 2/3 AllocatedCardsInsufficientRequest");
}

/* Two vendors' devices of a node with the same uuid are charged apart. */
static void a_grant_is_charged_to_its_vendors_device(void **state)
{
    static const struct device_vendor other = {"MLU", &rules, NULL};
    struct place_usage usage = {0};
    struct pod_devices devices;

    (void)state;
    COPY_TEXT(cards[1].uuid, "a");
    cards[1].vendor = &other;
    assert_true(pod_devices_decode("a,MLU,300,5:;", arena, &devices, NULL) > 0);
    assert_int_equal(place_usage_add_pod(&usage, &other, &devices, "", arena), 0);
    assert_true(pod_devices_decode("a,NVIDIA,100,5:;", arena, &devices, NULL) > 0);
    assert_int_equal(place_usage_add_pod(&usage, &vendor, &devices, "", arena), 0);
    assert_string_equal(usage_text(&usage), "a 1/300/5 a 1/100/5");
    assert_int_equal(place_usage_charge(cards, CARDS, &usage), 0);
    assert_int_equal(cards[0].used.memory_bytes, 100 * MIB);
    assert_int_equal(cards[1].used.memory_bytes, 300 * MIB);
    assert_ptr_equal(place_find_device(cards, CARDS, &other, "a"), &cards[1]);
    assert_int_equal(place_usage_discharge(cards, CARDS, &usage), 0);
    assert_int_equal(cards[1].used.tasks, 0);
}

/* a is the emptier card for this request alone; for both of the container's together it is b. */
static void a_devices_score_counts_the_requests_of_all_vendors(void **state)
{
    static const struct device_vendor other = {"MLU", &rules, NULL};
    const struct request requests[] = {{&vendor, 1, .memory_bytes = 100 * MIB},
                                       {&other, 1, .memory_bytes = 4000 * MIB}};
    struct container_demand container = {CONTAINER_APP, 1, requests};
    const struct demand demand = {1, &container};
    struct placement placement;

    (void)state;
    cards[0].used.memory_bytes = 2000 * MIB;
    cards[1].memory_bytes = 20000 * MIB;
    cards[1].used.memory_bytes = 5000 * MIB;
    cards[2].vendor = &other;
    assert_int_equal(place_pod(&node, &demand, &spread, arena, &placement, NULL), PLACE_FITS);
    assert_string_equal(pod_devices_encode(&placement.vendors[0].devices, arena),
                        "a,NVIDIA,100,0:;");
    container.request_count = 2;
    assert_int_equal(place_pod(&node, &demand, &spread, arena, &placement, NULL), PLACE_FITS);
    assert_int_equal(placement.vendor_count, 2);
    assert_string_equal(pod_devices_encode(&placement.vendors[0].devices, arena),
                        "b,NVIDIA,100,0:;");
    assert_string_equal(pod_devices_encode(&placement.vendors[1].devices, arena), "c,MLU,4000,0:;");
}

static const struct {
    const char *node, *device; /* annotations, NULL: none */
    enum place_order node_order, order;
    bool mutex;
} policies[] = {
    {NULL, NULL, PLACE_SPREAD, PLACE_BINPACK, false},
    {"binpack", "spread", PLACE_BINPACK, PLACE_SPREAD, false},
    {"spread", "binpack", PLACE_SPREAD, PLACE_BINPACK, false},
    {"scarcity", NULL, PLACE_SCARCITY, PLACE_BINPACK, false},
    {"", "", PLACE_BINPACK, PLACE_SPREAD, false},
    {"other", "other", PLACE_BINPACK, PLACE_SPREAD, false},
    {NULL, "mutex", PLACE_SPREAD, PLACE_SPREAD, true},
    {NULL, "binpack, mutex", PLACE_SPREAD, PLACE_SPREAD, true}, /* a chain: see policy_test.c */
    {NULL, "mutexes", PLACE_SPREAD, PLACE_SPREAD, false},
};

static void policies_are_the_pods_before_the_defaults(void **state)
{
    const struct place_options defaults = {PLACE_SPREAD, {.order = PLACE_BINPACK}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
        struct text_pair pairs[2];
        struct text_pairs annotations = {.items = pairs};
        struct place_options options;

        if (policies[i].node)
            pairs[annotations.count++] = (struct text_pair){KEY_NODE_POLICY, policies[i].node};
        if (policies[i].device)
            pairs[annotations.count++] = (struct text_pair){KEY_DEVICE_POLICY, policies[i].device};
        place_options_read(&annotations, &defaults, &options);
        assert_int_equal(options.node_order, policies[i].node_order);
        assert_int_equal(options.policy.order, policies[i].order);
        assert_int_equal(options.policy.mutex, policies[i].mutex);
    }
}

static void a_full_arena_is_an_error_and_no_crash(void **state)
{
    static const struct ask asks[] = {{INIT, 2, 100, 0}, {SIDE, 1, 100, 0}, {APP, 3, 100, 0}};
    const struct demand demand = demand_of(asks, 3);
    struct placement placement;

    (void)state;
    for (size_t size = 0; size < 10000; size += 16) {
        CLEANUP(arena_freep) struct arena *small = arena_new(size);
        int r = place_pod(&node, &demand, &spread, small, &placement, NULL);

        assert_true(r == -12 || r == PLACE_FITS);
    }
}

static unsigned draw(unsigned below)
{
    static uint64_t random = 88172645463325252;

    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return (unsigned)((random >> 20) % below);
}

static void use_cards_by_chance(void)
{
    static const unsigned cores[] = {0, 50, 100, 150, 200};

    for (size_t i = 0; i < CARDS; i++) {
        unsigned all = cores[draw(ARRAY_SIZE(cores))];

        cards[i].cores = all;
        cards[i].max_tasks = 1 + draw(5);
        cards[i].healthy = draw(10) > 0;
        cards[i].used.tasks = draw(cards[i].max_tasks + 1);
        cards[i].used.cores = cards[i].used.tasks ? MIN(draw(5) * 50, all) : 0;
        cards[i].used.memory_bytes = cards[i].used.tasks ? draw(CARD_MIB + 1) * MIB : 0;
    }
    place_node_update(&node);
}

/* The same demand, each container held to the card that it was given before. */
static struct demand pin(const struct demand *demand, const struct placement *placement)
{
    struct container_demand *containers =
        ARENA_ARRAY(arena, struct container_demand, demand->count);

    for (size_t i = 0; i < demand->count; i++) {
        struct request *request = ARENA_NEW(arena, struct request);
        const char **uuid = ARENA_ARRAY(arena, const char *, 1);

        *request = demand->containers[i].requests[0];
        *uuid = placement->vendors[0].devices.containers[i].items[0].uuid;
        request->use_uuids = (struct text_list){.items = uuid, .count = 1};
        containers[i] = demand->containers[i];
        containers[i].requests = request;
    }
    return (struct demand){.count = demand->count, .containers = containers};
}

/* A promise may be taken up again only where it would be made again. */
static void a_pod_that_fits_by_its_usage_would_be_placed_again(void **state)
{
    unsigned fitted = 0, refused = 0;

    (void)state;
    for (unsigned i = 0; i < 200000; i++) {
        struct ask asks[3];
        size_t count = 1 + draw(3);
        struct placement placement, again;
        struct demand demand, pinned;

        arena_reset(arena);
        for (size_t k = 0; k < count; k++)
            asks[k] =
                (struct ask){(enum container_role)draw(3), 1, 1 + draw(CARD_MIB / 2), draw(3) * 50};
        demand = demand_of(asks, count);
        use_cards_by_chance();
        if (place_pod(&node, &demand, &spread, arena, &placement, NULL) != PLACE_FITS)
            continue;
        use_cards_by_chance();
        if (!place_usage_fits(cards, CARDS, &placement.usage)) {
            refused++;
            continue;
        }
        fitted++;
        pinned = pin(&demand, &placement);
        assert_int_equal(place_pod(&node, &pinned, &spread, arena, &again, NULL), PLACE_FITS);
    }
    assert_true(fitted > 1000 && refused > 1000);
}

enum {
    VICTIMS = 5,
};

/* Pods of one container each that together fill the cards by chance. */
static size_t fill_with_victims(struct place_victim *victims, struct place_usage *usages)
{
    size_t count = 0;

    for (size_t i = 0; i < CARDS; i++)
        cards[i].used = (struct device_usage){0};
    place_node_update(&node);
    for (size_t i = 0; i < VICTIMS; i++) {
        const struct ask ask = {APP, 1 + draw(2), 1 + draw(CARD_MIB), draw(3) * 25};
        const struct demand demand = demand_of(&ask, 1);
        struct placement placement;

        if (place_pod(&node, &demand, &spread, arena, &placement, NULL) != PLACE_FITS)
            continue;
        usages[count] = placement.usage;
        (void)place_usage_charge(cards, CARDS, &usages[count]);
        place_node_update(&node);
        victims[count] = (struct place_victim){&usages[count], (int32_t)draw(3), draw(3)};
        count++;
    }
    return count;
}

static bool fits_without(const struct demand *demand, const struct place_victim *victims,
                         size_t count, size_t but)
{
    struct placement placement;
    int r;

    for (size_t i = 0; i < count; i++) {
        if (victims[i].state == VICTIM_EVICTED && i != but)
            (void)place_usage_discharge(cards, CARDS, victims[i].usage);
    }
    r = place_pod(&node, demand, &spread, arena, &placement, NULL);
    for (size_t i = 0; i < count; i++) {
        if (victims[i].state == VICTIM_EVICTED && i != but)
            (void)place_usage_charge(cards, CARDS, victims[i].usage);
    }
    return r == PLACE_FITS;
}

/* No pod is evicted in vain: with all victims gone the demand fits, and with any added victim back
 * it does not. */
static void only_pods_in_the_way_are_evicted(void **state)
{
    unsigned made = 0, in_vain = 0, added = 0;

    (void)state;
    for (unsigned i = 0; i < 50000; i++) {
        struct place_victim before[VICTIMS], victims[VICTIMS];
        struct place_usage usages[VICTIMS];
        const struct ask ask = {APP, 1 + draw(CARDS), 1 + draw(CARD_MIB), draw(5) * 25};
        struct device were[CARDS];
        struct demand demand;
        size_t count;
        int r;

        arena_reset(arena);
        count = fill_with_victims(before, usages);
        demand = demand_of(&ask, 1);
        memcpy(victims, before, sizeof(victims));
        memcpy(were, cards, sizeof(were));
        r = place_preempt(&node, &demand, &spread, victims, count, arena, NULL);
        assert_memory_equal(were, cards, sizeof(were));
        if (r == PLACE_NO_FIT) {
            for (size_t k = 0; k < count; k++)
                victims[k].state =
                    before[k].state == VICTIM_REPRIEVED ? VICTIM_REPRIEVED : VICTIM_EVICTED;
            assert_false(fits_without(&demand, victims, count, VICTIMS));
            in_vain++;
            continue;
        }
        made++;
        assert_true(fits_without(&demand, victims, count, VICTIMS));
        for (size_t k = 0; k < count; k++) {
            assert_int_not_equal(victims[k].state, VICTIM_POTENTIAL);
            if (before[k].state != VICTIM_POTENTIAL)
                assert_int_equal(victims[k].state, before[k].state);
            else if (victims[k].state == VICTIM_EVICTED) {
                added++;
                assert_false(fits_without(&demand, victims, count, k));
            }
        }
    }
    assert_true(made > 1000 && in_vain > 1000 && added > 1000);
}

static void the_least_important_goes(void **state)
{
    const struct ask whole = {APP, 1, CARD_MIB, 0}, want = {APP, 2, CARD_MIB / 2, 0};
    const struct demand demand = demand_of(&want, 1), holds = demand_of(&whole, 1);
    static const int32_t priorities[CARDS] = {7, -3, 5};
    struct place_victim victims[CARDS];
    struct placement placements[CARDS];

    (void)state;
    for (size_t i = 0; i < CARDS; i++) {
        assert_int_equal(place_pod(&node, &holds, &spread, arena, &placements[i], NULL),
                         PLACE_FITS);
        (void)place_usage_charge(cards, CARDS, &placements[i].usage);
        place_node_update(&node);
        victims[i] = (struct place_victim){&placements[i].usage, priorities[i], VICTIM_POTENTIAL};
    }
    assert_int_equal(place_preempt(&node, &demand, &spread, victims, CARDS, arena, NULL),
                     PLACE_FITS);
    assert_int_equal(victims[0].state, VICTIM_REPRIEVED);
    assert_int_equal(victims[1].state, VICTIM_EVICTED);
    assert_int_equal(victims[2].state, VICTIM_EVICTED);
}

#define WITH_CARDS(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

/* On a card of which a part is used, and which is full to the last byte, slot or percent then. */
static void a_usage_fits_up_to_the_last_bit(void **state)
{
    static const struct {
        const char *name;
        struct device_usage used, wanted;
        bool alone, fits;
    } rows[] = {
        {"all", {0}, {DEVICE_DEFAULT_MAX_TASKS, 99, CARD_MIB * MIB}, false, true},
        {"the rest", {1, 40, 4000 * MIB}, {9, 59, 6000 * MIB}, false, true},
        {"all compute of the rest", {1, 40, 0}, {1, 60, 0}, false, true},
        {"a byte more", {1, 0, 4000 * MIB}, {1, 10, 6000 * MIB + 1}, false, false},
        {"a slot more", {1, 0, 0}, {10, 10, 0}, false, false},
        {"a percent more", {1, 40, 0}, {1, 61, 0}, false, false},
        {"no compute, and none is left", {1, 100, 0}, {1, 0, 0}, false, false},
        {"no compute, and some is left", {1, 99, 0}, {1, 0, 0}, false, true},
        {"a whole card's compute", {0}, {1, 100, 0}, false, true},
        {"the same beside another", {1, 0, 0}, {1, 100, 0}, false, false},
        {"a bit beside a whole card's", {1, 100, 0}, {1, 1, 0}, false, false},
        {"alone", {0}, {1, 1, 0}, true, true},
        {"alone beside another", {1, 0, 0}, {1, 1, 0}, true, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct place_share share = {.vendor = &vendor, .uuid = "b", .usage = rows[i].wanted};
        const struct place_usage usage = {.alone = rows[i].alone, .count = 1, .shares = &share};

        cards[1].used = rows[i].used;
        if (place_usage_fits(cards, CARDS, &usage) != rows[i].fits)
            fail_msg("%s", rows[i].name);
        cards[1].healthy = false;
        assert_false(place_usage_fits(cards, CARDS, &usage));
        cards[1].healthy = true;
        cards[1].misused = 1;
        assert_false(place_usage_fits(cards, CARDS, &usage));
        cards[1].misused = 0;
        share.uuid = "d";
        assert_false(place_usage_fits(cards, CARDS, &usage));
    }
}

/* Two of three cards are free and one is full; somebody's going helps as far as there are cards. */
static void what_nobodys_going_would_help_is_for_good(void **state)
{
    static const struct {
        unsigned count, mib, full;
        bool for_good;
    } rows[] = {
        {3, 1000, 1, false},        {3, 1000, 2, false},        {3, 1000, 3, false},
        {1, CARD_MIB, 3, false},    {1, CARD_MIB + 1, 0, true}, {3, CARD_MIB + 1, 1, true},
        {2, CARD_MIB + 1, 3, true},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct ask ask = {APP, rows[i].count, rows[i].mib, 0};
        const struct demand demand = demand_of(&ask, 1);
        struct place_failure failure = {0};
        struct placement placement;

        for (size_t k = 0; k < CARDS; k++)
            cards[k].used.memory_bytes = k < rows[i].full ? CARD_MIB * MIB : 0;
        assert_int_equal(place_pod(&node, &demand, &spread, arena, &placement, &failure),
                         PLACE_NO_FIT);
        assert_int_equal(failure.for_good, rows[i].for_good);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_CARDS(containers_share_as_they_run),
        WITH_CARDS(a_charge_is_given_back_exactly),
        WITH_CARDS(garbage_can_not_make_a_full_card_look_free),
        WITH_CARDS(without_roles_all_containers_count_together),
        WITH_CARDS(a_cordoned_card_takes_nothing),
        WITH_CARDS(a_grant_is_charged_to_its_vendors_device),
        WITH_CARDS(a_devices_score_counts_the_requests_of_all_vendors),
        WITH_CARDS(only_pods_in_the_way_are_evicted),
        WITH_CARDS(the_least_important_goes),
        WITH_CARDS(a_pod_that_fits_by_its_usage_would_be_placed_again),
        WITH_CARDS(policies_are_the_pods_before_the_defaults),
        WITH_CARDS(a_full_arena_is_an_error_and_no_crash),
        WITH_CARDS(a_usage_fits_up_to_the_last_bit),
        WITH_CARDS(what_nobodys_going_would_help_is_for_good),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
