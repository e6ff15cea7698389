/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/links.h"

#include <string.h>

#include "base/arena.h"
#include "base/check.h"
#include "driver/nvml.h"

static struct card_links direct(const char *own, const char *to, size_t count)
{
    struct card_links card = {.count = count};

    strcpy(card.bus_id, own);
    for (size_t i = 0; i < count; i++)
        strcpy(card.links[i].bus_id, to);
    return card;
}

static struct card_links switched(const char *own, size_t count)
{
    struct card_links card = direct(own, "c3:00.0", count);

    for (size_t i = 0; i < count; i++)
        card.links[i].to_switch = true;
    return card;
}

static void a_pair_scores_as_in_hami(void **state)
{
    static const struct {
        int level, points;
    } levels[] = {
        {NVML_TOPOLOGY_SYSTEM, 10},   {NVML_TOPOLOGY_NODE, 20},   {NVML_TOPOLOGY_HOSTBRIDGE, 30},
        {NVML_TOPOLOGY_MULTIPLE, 40}, {NVML_TOPOLOGY_SINGLE, 50}, {NVML_TOPOLOGY_INTERNAL, 60},
        {-5 /* it is not told */, 0},
    };
    const struct card_links a = direct("3b:00.0", "5e:00.0", 0), b = direct("5e:00.0", "", 0);

    (void)state;
    for (size_t i = 0; i < sizeof(levels) / sizeof(levels[0]); i++)
        assert_int_equal(links_score(&a, &b, levels[i].level), levels[i].points);
}

static void nvlinks_count_a_hundred_each(void **state)
{
    struct card_links a = direct("3b:00.0", "5e:00.0", 4), b = direct("5e:00.0", "3b:00.0", 4);
    struct card_links c = direct("af:00.0", "3b:00.0", 2);
    struct card_links many = switched("07:00.0", 18), few = switched("0f:00.0", 12);

    (void)state;
    assert_int_equal(links_score(&a, &b, NVML_TOPOLOGY_SYSTEM), 410);
    assert_int_equal(links_score(&b, &a, NVML_TOPOLOGY_SYSTEM), 410);
    assert_int_equal(links_score(&many, &few, NVML_TOPOLOGY_NODE), 1220);
    assert_int_equal(links_score(&few, &many, NVML_TOPOLOGY_NODE), 1220);
    /* c knows of links to a, and a of none to c. */
    assert_int_equal(links_score(&a, &c, NVML_TOPOLOGY_NODE), 0);
    assert_int_equal(links_score(&c, &a, NVML_TOPOLOGY_NODE), 0);
    /* One without links to a switch is reached by PCIe alone. */
    assert_int_equal(links_score(&many, &b, NVML_TOPOLOGY_NODE), 20);
    /* Direct ones count before those to switches. */
    a.links[3].to_switch = true;
    assert_int_equal(links_score(&a, &b, NVML_TOPOLOGY_SYSTEM), 310);
}

static void scores_are_written_as_in_hami(void **state)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(1 << 20);
    struct cards cards = {.count = 2, .items = {{.uuid = "GPU-a"}, {.uuid = "GPU-b"}}};

    (void)state;
    assert_null(links_encode(&cards, arena));
    cards.items[0].links[1] = 120;
    cards.items[1].links[0] = 100;
    assert_string_equal(links_encode(&cards, arena),
                        "[{\"uuid\":\"GPU-a\",\"score\":{\"GPU-b\":120}},"
                        "{\"uuid\":\"GPU-b\",\"score\":{\"GPU-a\":100}}]");
    cards.count = 0;
    assert_null(links_encode(&cards, arena));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pair_scores_as_in_hami),
        cmocka_unit_test(nvlinks_count_a_hundred_each),
        cmocka_unit_test(scores_are_written_as_in_hami),
    };

    return cmocka_run_group_tests_name("node/nvidia/links", tests, NULL, NULL);
}
