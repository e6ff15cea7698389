/* SPDX-License-Identifier: Apache-2.0 */

/* Shares and rooms, and which node and device a cost leads to. That the costs are those of the
 * formulas, tests/packing/costs.py judges. */

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "place/rules.h"

static const struct place_rules no_rules;
static const struct device_vendor vendor = {"NVIDIA", &no_rules, NULL};
static const struct device_vendor other = {"MLU", &no_rules, NULL};

static struct device card(unsigned mib, unsigned used_mib, unsigned used_cores, unsigned tasks)
{
    struct device device = {
        .kind = 1,
        .healthy = true,
        .cores = 100,
        .max_tasks = 10,
        .memory_bytes = mib * MIB,
        .used = {.tasks = tasks, .cores = used_cores, .memory_bytes = used_mib * MIB},
        .vendor = &vendor,
        .model = "NVIDIA T4",
    };

    return device;
}

static struct request request_of(unsigned count, unsigned percent, unsigned cores)
{
    return (struct request){
        .vendor = &vendor, .count = count, .memory_percent = percent, .cores = cores};
}

static void test_what_is_left_is_the_least_of_memory_cores_and_slots(void **state)
{
    struct device sick = card(15360, 0, 0, 0);
    const struct device by_memory = card(15360, 7219, 10, 1), by_cores = card(15360, 100, 47, 1),
                        by_slots = card(15360, 10, 1, 9), full = card(15360, 0, 0, 10);

    (void)state;
    sick.healthy = false;
    assert_int_equal(scarcity_left(&by_memory), 530);
    assert_int_equal(scarcity_left(&by_cores), 530);
    assert_int_equal(scarcity_left(&by_slots), 100);
    assert_int_equal(scarcity_left(&full), 0);
    assert_int_equal(scarcity_left(&sick), 0);
}

static void test_a_share_is_the_largest_of_memory_cores_and_a_slot(void **state)
{
    const struct device device = card(15360, 0, 0, 0);
    const struct request half = request_of(1, 47, 20), busy = request_of(1, 20, 47),
                         small = request_of(1, 1, 1), whole = request_of(1, 100, 100),
                         none = {.vendor = &other, .count = 1},
                         large = {.vendor = &vendor, .count = 1, .memory_bytes = 16 * GIB},
                         typed = {.vendor = &vendor,
                                  .count = 1,
                                  .use_types = {(const char *const[]){"A100"}, 1, true}};

    (void)state;
    assert_int_equal(scarcity_share(&half, &device), 470);
    assert_int_equal(scarcity_share(&busy, &device), 470);
    assert_int_equal(scarcity_share(&small, &device), 100);
    assert_int_equal(scarcity_share(&whole, &device), 1000);
    assert_int_equal(scarcity_share(&none, &device), 0);
    assert_int_equal(scarcity_share(&large, &device), 0);
    assert_int_equal(scarcity_share(&typed, &device), 0);
}

static void test_a_demand_adds_up_what_runs_together(void **state)
{
    const struct request init = request_of(4, 10, 0), one = request_of(1, 30, 0),
                         two = request_of(2, 20, 0);
    const struct container_demand containers[] = {
        {CONTAINER_INIT, 1, &init}, {CONTAINER_APP, 1, &one}, {CONTAINER_APP, 1, &two}};
    const struct demand all = {3, containers}, apps = {2, containers + 1};
    static struct scarcity_types types;
    const struct device device = card(10000, 0, 0, 0);
    struct scarcity_demand demand;

    (void)state;
    types.count = 0;
    assert_int_equal(scarcity_types_add(&types, &device), 0);
    assert_int_equal(scarcity_types_add(&types, &device), 0);
    scarcity_demand_read(&types, &all, 4001, UINT64_MAX, &demand);
    assert_int_equal(demand.count, 4);
    assert_int_equal(demand.shares[0], 300);
    assert_int_equal(demand.memory_mib, SCARCITY_AMOUNT_MAX);
    scarcity_demand_read(&types, &apps, 4001, 1, &demand);
    assert_int_equal(demand.count, 3);
    demand = scarcity_class_of(&demand);
    assert_int_equal(demand.cpu_milli, 8000);
    assert_int_equal(demand.memory_mib, SCARCITY_MEMORY_STEP);
}

static void test_more_types_than_there_is_room_for_are_left_out(void **state)
{
    static struct scarcity_types types;
    struct device devices[SCARCITY_TYPES + 1];
    struct scarcity_room room = {0};

    (void)state;
    types.count = 0;
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
        devices[i] = card(1000 + (unsigned)i, 0, 0, 0);
        assert_int_equal(scarcity_types_add(&types, &devices[i]), i);
    }
    scarcity_room_read(&types, devices, ARRAY_SIZE(devices), &room);
    assert_int_equal(room.count, SCARCITY_TYPES);
}

/* A world of three classes: halves, whole devices, and pairs of those. */
struct world {
    struct scarcity_types types;
    struct scarcity_demand classes[3];
    struct scarcity_prices prices;
    struct scarcity_room rooms[2];
    struct device devices[2][2];
    struct place_node nodes[2];
    struct place_scarcity scarcity;
    float costs[2];
    struct arena *arena;
};

static void price(struct world *world, const struct request *request)
{
    const struct container_demand container = {CONTAINER_APP, 1, request};
    static struct scarcity_sight sight;
    struct scarcity_demand demand;

    scarcity_demand_read(&world->types, &(struct demand){1, &container}, 1000, 0, &demand);
    for (size_t i = 0; i < 2; i++) {
        struct scarcity_room *room = &world->rooms[i];

        scarcity_room_read(&world->types, world->devices[i], 2, room);
        room->cpu_milli = 32000;
        room->memory_mib = SCARCITY_AMOUNT_MAX;
        place_node_update(&world->nodes[i]);
        scarcity_see(&world->prices, room, &sight);
        world->costs[i] = scarcity_cost(&sight, &demand, NULL);
    }
}

static struct world *world_of(const struct device devices[static 4])
{
    static const double arrivals[] = {1, 1, 1}, fills[] = {2000, 1000, 0};
    static struct world world;

    world = (struct world){.arena = arena_new(1 << 20)};
    memcpy(world.devices, devices, sizeof(world.devices));
    assert_int_equal(scarcity_types_add(&world.types, &devices[0]), 0);
    world.classes[0] = (struct scarcity_demand){.count = 1, .cpu_milli = 4000, .shares = {500}};
    world.classes[1] = (struct scarcity_demand){.count = 1, .cpu_milli = 4000, .shares = {1000}};
    world.classes[2] = (struct scarcity_demand){.count = 2, .cpu_milli = 4000, .shares = {1000}};
    scarcity_prices_init(&world.prices, world.classes, 3);
    scarcity_set_prices(&world.prices, world.classes, arrivals, fills, 4000);
    for (uint32_t i = 0; i < 2; i++)
        world.nodes[i] = (struct place_node){
            .name = i ? "b" : "a", .devices = world.devices[i], .device_count = 2, .seat = i};
    world.scarcity = (struct place_scarcity){
        .types = &world.types,
        .prices = &world.prices,
        .rooms = world.rooms,
        .costs = world.costs,
        .demand = {.cpu_milli = 1000},
        .exact = true,
    };
    return &world;
}

/* Node and device, as "a1"; "-": nowhere. */
static const char *choose(struct world *world, const struct request *request)
{
    static char text[3];
    const struct container_demand container = {CONTAINER_APP, 1, request};
    const struct demand demand = {1, &container};
    const struct place_options options = {.node_order = PLACE_SCARCITY,
                                          .scarcity = &world->scarcity};
    const struct place_node *const nodes[] = {&world->nodes[0], &world->nodes[1]};
    struct placement placement;
    size_t position;
    int r;

    price(world, request);
    for (size_t i = 0; i < 4; i++)
        COPY_TEXT(world->devices[i / 2][i % 2].uuid, i % 2 ? "1" : "0");
    r = place_choose(nodes, 2, &demand, &options, world->arena, &position, &placement);
    if (r != PLACE_FITS)
        return "-";
    text[0] = nodes[position]->name[0];
    text[1] = placement.vendors[0].devices.containers[0].items[0].uuid[0];
    return text;
}

static void test_a_small_pod_leaves_the_pair_alone(void **state)
{
    const struct device free = card(10000, 0, 0, 0), half = card(10000, 5000, 50, 1);
    struct world *world = world_of((const struct device[]){free, free, free, half});
    const struct request request = request_of(1, 30, 30), pair = request_of(2, 100, 100);

    (void)state;
    assert_string_equal(choose(world, &request), "b1");
    assert_string_equal(choose(world, &pair), "a0");
    arena_free(world->arena);
}

static void test_a_device_that_fits_exactly_is_taken_before_one_that_is_free(void **state)
{
    const struct device free = card(10000, 0, 0, 0), half = card(10000, 5000, 50, 1),
                        most = card(10000, 7000, 70, 1);
    struct world *world = world_of((const struct device[]){most, most, free, most});
    const struct request small = request_of(1, 30, 30), large = request_of(1, 40, 40);

    (void)state;
    assert_string_equal(choose(world, &small), "a0");
    assert_string_equal(choose(world, &large), "b0");
    world->devices[0][1] = half;
    assert_string_equal(choose(world, &small), "a0");
    assert_string_equal(choose(world, &large), "a1");
    arena_free(world->arena);
}

/* Pricing costs many times what fitting does, and a pod that waits is refused by thousands of
 * nodes. Without rooms there is nothing to price by. */
static void test_a_node_without_room_is_not_priced(void **state)
{
    const struct device full = card(10000, 10000, 100, 1);
    struct world *world = world_of((const struct device[]){full, full, full, full});
    const struct request request = request_of(1, 30, 30);
    const struct container_demand container = {CONTAINER_APP, 1, &request};
    const struct demand demand = {1, &container};
    const struct place_options options = {.node_order = PLACE_SCARCITY,
                                          .scarcity = &world->scarcity};
    struct placement placement;
    struct place_failure failure;

    world->scarcity.rooms = NULL;
    assert_int_equal(
        place_pod(&world->nodes[0], &demand, &options, world->arena, &placement, &failure),
        PLACE_NO_FIT);
    assert_int_equal(failure.candidates, 2);
    arena_free(world->arena);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_left_is_the_least_of_memory_cores_and_slots),
        cmocka_unit_test(test_a_share_is_the_largest_of_memory_cores_and_a_slot),
        cmocka_unit_test(test_a_demand_adds_up_what_runs_together),
        cmocka_unit_test(test_more_types_than_there_is_room_for_are_left_out),
        cmocka_unit_test(test_a_small_pod_leaves_the_pair_alone),
        cmocka_unit_test(test_a_node_without_room_is_not_priced),
        cmocka_unit_test(test_a_device_that_fits_exactly_is_taken_before_one_that_is_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
