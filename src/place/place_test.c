/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "place/rules.h"

static const char *score_path;
static const struct place_rules no_rules;
static const struct device_vendor other_vendor = {"MLU", &no_rules, NULL};

static uint32_t float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* The next word of the line as a number; -1 for ">" and the line's end. */
static long next_number(char **rest)
{
    char *word = strtok_r(NULL, " \n", rest);

    return word && *word != '>' ? strtol(word, NULL, 0) : -1;
}

static void check_score(const char *name, char *rest)
{
    struct request requests[8] = {{0}};
    struct device device = {0};
    uint32_t bits;
    char *type;
    size_t count = 0;
    float score;

    COPY_TEXT(device.model, strtok_r(NULL, " ", &rest));
    device.max_tasks = (unsigned)next_number(&rest);
    device.used.tasks = (unsigned)next_number(&rest);
    device.cores = (unsigned)next_number(&rest);
    device.used.cores = (unsigned)next_number(&rest);
    device.memory_bytes = (uint64_t)next_number(&rest) * MIB;
    device.used.memory_bytes = (uint64_t)next_number(&rest) * MIB;
    bits = (uint32_t)next_number(&rest);

    while ((type = strtok_r(NULL, " \n", &rest))) {
        struct request *request = &requests[count++];

        request->count = (unsigned)next_number(&rest);
        request->memory_bytes = (uint64_t)next_number(&rest) * MIB;
        request->memory_percent = (unsigned)next_number(&rest);
        if (request->memory_percent == 101)
            request->memory_percent = 0;
        request->cores = (unsigned)next_number(&rest);
    }

    score = place_score(&device, requests, count, &(struct place_weights){0});
    if (float_bits(score) != bits)
        fail_msg("%s: %.9g is not HAMi's score", name, (double)score);
}

static void check_order(const char *name, char *rest)
{
    struct place_policy policy = {.order = PLACE_SPREAD};
    struct device devices[32] = {0};
    size_t positions[32], count = 0;
    float scores[32];
    long numa_node;

    place_policy_read(strtok_r(NULL, " ", &rest), &policy);
    while ((numa_node = next_number(&rest)) >= 0) {
        devices[count].numa_node = (int)numa_node;
        positions[count] = count;
        scores[count++] = float_of_bits((uint32_t)next_number(&rest));
    }

    place_sort(devices, scores, &policy, positions, count);
    for (size_t i = 0; i < count; i++) {
        if ((long)positions[i] != next_number(&rest))
            fail_msg("%s: place %zu is not HAMi's", name, i);
    }
}

static void check_node(const char *name, char *rest)
{
    struct device devices[64] = {0};
    uint32_t bits = (uint32_t)next_number(&rest);
    size_t count = 0;
    long tasks;

    while ((tasks = next_number(&rest)) >= 0) {
        struct device *device = &devices[count++];

        device->max_tasks = (unsigned)tasks;
        device->used.tasks = (unsigned)next_number(&rest);
        device->cores = (unsigned)next_number(&rest);
        device->used.cores = (unsigned)next_number(&rest);
        device->memory_bytes = (uint64_t)next_number(&rest) * MIB;
        device->used.memory_bytes = (uint64_t)next_number(&rest) * MIB;
    }
    /* Where HAMi's is no number, for want of devices, ours is 0, as its later releases have it. */
    if (isnan(float_of_bits(bits)))
        bits = 0;
    if (float_bits(place_node_score(devices, count)) != bits)
        fail_msg("%s: %.9g is not HAMi's score", name, (double)place_node_score(devices, count));
}

static void scores_and_orders_are_hamis(void **state)
{
    size_t scores = 0, orders = 0, nodes = 0;
    char line[4096];
    FILE *file;

    (void)state;
    file = fopen(score_path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        char *rest, *kind = strtok_r(line, " ", &rest);
        const char *name = strtok_r(NULL, " ", &rest);

        if (strcmp(kind, "device") == 0) {
            scores++;
            check_score(name, rest);
        } else if (strcmp(kind, "order") == 0) {
            orders++;
            check_order(name, rest);
        } else if (strcmp(kind, "node") == 0) {
            nodes++;
            check_node(name, rest);
        }
    }
    (void)fclose(file);
    print_message("%zu scores, %zu orders, %zu nodes\n", scores, orders, nodes);
    assert_int_equal(scores, 400);
    assert_int_equal(orders, 80);
    assert_int_equal(nodes, 80);
}

static struct device card(const char *uuid)
{
    struct device device = {
        .model = "NVIDIA A100",
        .mode = "hami-core",
        .healthy = true,
        .memory_bytes = 40 * GIB,
        .cores = DEVICE_CORES,
        .max_tasks = DEVICE_DEFAULT_MAX_TASKS,
    };

    COPY_TEXT(device.uuid, uuid);
    return device;
}

#define ONLY_B                                                                                     \
    {                                                                                              \
        (const char *const[]){"GPU-b"}, 1                                                          \
    }
#define ONLY_V100                                                                                  \
    {                                                                                              \
        (const char *const[]){"v100"}, 1                                                           \
    }
#define ONLY_A100                                                                                  \
    {                                                                                              \
        (const char *const[]){"a100"}, 1                                                           \
    }

/* One card GPU-a of 40 GiB with the usage given, one request, and the outcome. */
static const struct {
    const char *name;
    struct device_usage used;
    bool sick, mutex;
    struct request request;
    const char *reasons; /* NULL: it fits */
    uint64_t memory_bytes;
} card_cases[] = {
    {.name = "an empty card takes a request",
     .request = {.count = 1, .memory_bytes = GIB},
     .memory_bytes = GIB},
    {.name = "all memory of an empty card",
     .request = {.count = 1, .memory_percent = 100},
     .memory_bytes = 40 * GIB},
    {.name = "a percentage is in whole MiB",
     .request = {.count = 1, .memory_percent = 33},
     .memory_bytes = 13516 * MIB},
    {.name = "amounts go before percentages",
     .request = {.count = 1, .memory_bytes = 5 * GIB, .memory_percent = 50},
     .memory_bytes = 5 * GIB},
    {.name = "the last MiB fits",
     .used = {1, 0, 39 * GIB},
     .request = {.count = 1, .memory_bytes = GIB},
     .memory_bytes = GIB},
    {.name = "one MiB more does not",
     .used = {1, 0, 39 * GIB + MIB},
     .request = {.count = 1, .memory_bytes = GIB},
     .reasons = "1/1 CardInsufficientMemory"},
    {.name = "half a MiB in use counts as one",
     .used = {1, 0, 39 * GIB + 1},
     .request = {.count = 1, .memory_bytes = GIB},
     .reasons = "1/1 CardInsufficientMemory"},
    {.name = "more used than there is leaves nothing",
     .used = {1, 0, 41 * GIB},
     .request = {.count = 1, .memory_bytes = MIB},
     .reasons = "1/1 CardInsufficientMemory"},
    {.name = "a sick card takes nothing",
     .sick = true,
     .request = {.count = 1},
     .reasons = "1/1 CardNotHealth"},
    {.name = "the wanted model is a part of the name in any case",
     .request = {.count = 1, .memory_bytes = MIB, .use_types = ONLY_A100},
     .memory_bytes = MIB},
    {.name = "another model does not match",
     .request = {.count = 1, .use_types = ONLY_V100},
     .reasons = "1/1 CardTypeMismatch"},
    {.name = "an avoided model does not match",
     .request = {.count = 1, .avoid_types = ONLY_A100},
     .reasons = "1/1 CardTypeMismatch"},
    {.name = "a way of sharing that is not the card's does not match",
     .request = {.count = 1, .modes = "mig,mps"},
     .reasons = "1/1 CardTypeMismatch"},
    {.name = "one of several ways will do",
     .request = {.count = 1, .memory_bytes = MIB, .modes = "mig,hami-core"},
     .memory_bytes = MIB},
    {.name = "another uuid does not match",
     .request = {.count = 1, .use_uuids = ONLY_B},
     .reasons = "1/1 CardUuidMismatch"},
    {.name = "avoiding another uuid is no constraint",
     .request = {.count = 1, .memory_bytes = MIB, .avoid_uuids = ONLY_B},
     .memory_bytes = MIB},
    {.name = "tasks run out",
     .used = {10, 0, 0},
     .request = {.count = 1},
     .reasons = "1/1 CardTimeSlicingExhausted"},
    {.name = "mutex takes only unused cards",
     .used = {1, 0, 0},
     .mutex = true,
     .request = {.count = 1},
     .reasons = "1/1 ExclusiveDeviceAllocateConflict"},
    {.name = "cores run out",
     .used = {1, 71, 0},
     .request = {.count = 1, .cores = 30},
     .reasons = "1/1 CardInsufficientCore"},
    {.name = "a whole card of cores must be unused",
     .used = {1, 0, 0},
     .request = {.count = 1, .cores = 100},
     .reasons = "1/1 ExclusiveDeviceAllocateConflict"},
    {.name = "more than a card of cores is a card",
     .request = {.count = 1, .memory_bytes = MIB, .cores = 300},
     .memory_bytes = MIB},
    {.name = "a card without cores left takes nobody",
     .used = {1, 100, 0},
     .request = {.count = 1},
     .reasons = "1/1 CardComputeUnitsExhausted"},
    {.name = "more cards than there are",
     .request = {.count = 2},
     .reasons = "NodeInsufficientDevice"},
    {.name = "cards of another vendor do not count",
     .request = {&other_vendor, 1},
     .reasons = "NodeInsufficientDevice"},
};

static void each_rule_has_its_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(card_cases); i++) {
        const struct place_policy policy = {.mutex = card_cases[i].mutex};
        struct device device = card("GPU-a");
        char text[PLACE_REASON_TEXT_SIZE];
        struct place_decision decision;
        int r;

        print_message("%s\n", card_cases[i].name);
        device.healthy = !card_cases[i].sick;
        device.used = card_cases[i].used;
        r = place_fit(&device, 1, &(struct place_ask){.request = &card_cases[i].request}, &policy,
                      &decision);
        if (!card_cases[i].reasons) {
            assert_int_equal(r, PLACE_FITS);
            assert_int_equal(decision.picks[0].taken.memory_bytes, card_cases[i].memory_bytes);
            continue;
        }
        assert_int_equal(r, PLACE_NO_FIT);
        place_reasons_format(&decision.failure, text);
        assert_string_equal(text, card_cases[i].reasons);
    }
}

static void reasons_are_counted_and_sorted(void **state)
{
    const struct request request = {.count = 2, .memory_bytes = 30 * GIB};
    const struct place_policy policy = {PLACE_SPREAD};
    struct device devices[8];
    char text[PLACE_REASON_TEXT_SIZE];
    struct place_decision decision;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
        devices[i] = card("GPU-x");
        devices[i].healthy = i > 1;
        devices[i].used.memory_bytes = i == 7 ? 0 : 20 * GIB;
    }
    assert_int_equal(
        place_fit(devices, 8, &(struct place_ask){.request = &request}, &policy, &decision),
        PLACE_NO_FIT);
    place_reasons_format(&decision.failure, text);
    assert_string_equal(text, "1/8 AllocatedCardsInsufficientRequest, 2/8 CardNotHealth, "
                              "5/8 CardInsufficientMemory");
}

static size_t first_pick(struct device *devices, size_t count, enum place_order order)
{
    const struct request request = {.count = 1, .memory_bytes = GIB};
    const struct place_policy policy = {order};
    struct place_decision decision;

    assert_int_equal(
        place_fit(devices, count, &(struct place_ask){.request = &request}, &policy, &decision),
        PLACE_FITS);
    place_charge(devices, &decision);
    return decision.picks[0].device;
}

static void spread_goes_round_and_binpack_fills_up(void **state)
{
    struct device devices[3] = {card("GPU-a"), card("GPU-b"), card("GPU-c")};

    (void)state;
    assert_int_equal(first_pick(devices, 3, PLACE_SPREAD), 2);
    assert_int_equal(first_pick(devices, 3, PLACE_SPREAD), 1);
    assert_int_equal(first_pick(devices, 3, PLACE_SPREAD), 0);
    assert_int_equal(first_pick(devices, 3, PLACE_SPREAD), 2);
    assert_int_equal(first_pick(devices, 3, PLACE_BINPACK), 2);
    assert_int_equal(first_pick(devices, 3, PLACE_BINPACK), 2);
    assert_int_equal(devices[2].used.tasks, 4);
    assert_int_equal(devices[2].used.memory_bytes, 4 * GIB);
}

static void several_cards_are_all_or_none(void **state)
{
    const struct request request = {.count = 2, .memory_bytes = GIB, .cores = 50};
    const struct place_policy policy = {PLACE_SPREAD};
    struct device devices[2] = {card("GPU-a"), card("GPU-b")};
    struct place_decision decision;

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            place_fit(devices, 2, &(struct place_ask){.request = &request}, &policy, &decision),
            PLACE_FITS);
        assert_int_equal(decision.pick_count, 2);
        assert_int_not_equal(decision.picks[0].device, decision.picks[1].device);
        place_charge(devices, &decision);
    }
    assert_int_equal(
        place_fit(devices, 2, &(struct place_ask){.request = &request}, &policy, &decision),
        PLACE_NO_FIT);
}

static void bounds_are_told_not_overrun(void **state)
{
    static struct device devices[PLACE_MAX_DEVICES + 1];
    const struct place_policy policy = {PLACE_SPREAD};
    struct request request = {.count = 1};
    struct place_decision decision;

    (void)state;
    assert_int_equal(place_fit(devices, PLACE_MAX_DEVICES + 1,
                               &(struct place_ask){.request = &request}, &policy, &decision),
                     -E2BIG);
    request.count = UINT32_MAX;
    assert_int_equal(place_fit(devices, PLACE_MAX_DEVICES, &(struct place_ask){.request = &request},
                               &policy, &decision),
                     PLACE_NO_FIT);
    assert_true(decision.failure.too_few_devices);
}

/* A vendor's own rule of which devices suit comes before the general ones, and only for special
 * devices; what a refusal says is the vendor's last word. */
static enum place_reason suits_even(const struct place_step *step, const struct device *device)
{
    (void)step;
    return device->index % 2 ? PLACE_MODE_NOT_FIT : PLACE_REASON_COUNT;
}

static void tell_double(const struct place_step *step, struct place_failure *failure)
{
    (void)step;
    for (size_t i = 0; i < PLACE_REASON_COUNT; i++)
        failure->reasons[i] *= 2;
}

static void a_vendor_says_what_suits_and_what_is_told(void **state)
{
    static const struct place_rules rules = {.suits = suits_even, .tell = tell_double};
    static const struct device_vendor vendor = {"EVEN", &rules, NULL};
    const struct request request = {.vendor = &vendor, .count = 3, .memory_bytes = 2 * MIB};
    const struct place_policy policy = {PLACE_SPREAD};
    struct device devices[4] = {0};
    struct place_decision decision;

    (void)state;
    for (unsigned i = 0; i < ARRAY_SIZE(devices); i++)
        devices[i] = (struct device){
            .vendor = &vendor,
            .healthy = true,
            .special = true,
            .index = i,
            .max_tasks = 1,
            .cores = 100,
            .memory_bytes = i < 2 ? MIB : 2 * MIB,
        };
    assert_int_equal(
        place_fit(devices, ARRAY_SIZE(devices), &(struct place_ask){&request}, &policy, &decision),
        PLACE_NO_FIT);
    assert_int_equal(decision.failure.reasons[PLACE_MODE_NOT_FIT], 4);
    assert_int_equal(decision.failure.reasons[PLACE_CARD_INSUFFICIENT_MEMORY], 2);
    assert_int_equal(decision.failure.reasons[PLACE_TOO_FEW_PICKED], 2);

    devices[1].special = devices[3].special = false;
    devices[0].memory_bytes = 2 * MIB;
    assert_int_equal(
        place_fit(devices, ARRAY_SIZE(devices), &(struct place_ask){&request}, &policy, &decision),
        PLACE_FITS);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_and_orders_are_hamis),
        cmocka_unit_test(each_rule_has_its_reason),
        cmocka_unit_test(reasons_are_counted_and_sorted),
        cmocka_unit_test(spread_goes_round_and_binpack_fills_up),
        cmocka_unit_test(several_cards_are_all_or_none),
        cmocka_unit_test(bounds_are_told_not_overrun),
        cmocka_unit_test(a_vendor_says_what_suits_and_what_is_told),
    };

    score_path = argc > 1 ? argv[1] : "tests/data/score.txt";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
