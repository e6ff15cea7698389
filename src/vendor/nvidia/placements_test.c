/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/nvidia/placements.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "vendor/nvidia/nvidia.h"
#include "vendor/vendor_fixture.h"

static struct vendor_fixture fixture;

static int set_up(void **state)
{
    static const char *const keys[][2] = {{"resourceCountName", "nvidia.com/gpu"},
                                          {"resourceMemoryName", "nvidia.com/gpumem"}};

    (void)state;
    vendor_fixture_init(&fixture, &nvidia_vendor, keys, ARRAY_SIZE(keys));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    vendor_fixture_deinit(&fixture);
    return 0;
}

/* As HAMi's plugin registers an A100. */
#define PLACE(start, size) "{\\\"start\\\":" #start ",\\\"size\\\":" #size "}"
#define PROFILE(name, mib, core, slices, places)                                                   \
    "{\\\"name\\\":\\\"" name "\\\",\\\"memoryMB\\\":" #mib ",\\\"core\\\":" #core                 \
    ",\\\"sliceCount\\\":" #slices ",\\\"placements\\\":[" places "]}"
#define ONES                                                                                       \
    PLACE(0, 1)                                                                                    \
    "," PLACE(1, 1) "," PLACE(2, 1) "," PLACE(3, 1) "," PLACE(4, 1) "," PLACE(5, 1) "," PLACE(6, 1)
#define A100                                                                                       \
    PROFILE("7g.40gb", 40192, 100, 7, PLACE(0, 8))                                                 \
    "," PROFILE("1g.5gb", 4864, 15, 1, ONES) "," PROFILE(                                          \
        "2g.10gb", 9856, 29, 2,                                                                    \
        PLACE(0, 2) "," PLACE(2, 2) "," PLACE(                                                     \
            4, 2)) "," PROFILE("4g.20gb", 19968, 58, 4,                                            \
                               PLACE(0, 4)) "," PROFILE("3g.20gb", 19968, 43, 3,                   \
                                                        PLACE(0, 4) "," PLACE(4, 4))
#define CARD(name, more)                                                                           \
    "{\\\"id\\\":\\\"" name "\\\",\\\"count\\\":7,\\\"devmem\\\":40960,\\\"devcore\\\":100,"       \
    "\\\"type\\\":\\\"NVIDIA-A100\\\",\\\"mode\\\":\\\"mig\\\",\\\"health\\\":true" more "}"
#define PROFILES ",\\\"migProfiles\\\":[" A100 "]"
#define NODE_WITH(cards, more)                                                                     \
    "{\"metadata\":{\"name\":\"n\",\"annotations\":{" more                                         \
    "\"hami.io/node-nvidia-register\":\"[" cards "]\"}}}"
#define NODE NODE_WITH(CARD("GPU-a", PROFILES), "")
#define SHARE(count, mib) "\"nvidia.com/gpu\":\"" #count "\",\"nvidia.com/gpumem\":\"" #mib "\""

#define GIVEN(device, card, profile, start, size)                                                  \
    "{\"containerIndex\":0,\"deviceIndex\":" #device ",\"gpuUUID\":\"" card                        \
    "\",\"profile\":\"" profile "\",\"placement\":{\"start\":" #start ",\"size\":" #size "}}"

/* The order is HAMi's: TestSelectMigPlacementUsesBalancedPacking, and what follows from it. */
static void instances_lie_where_hami_puts_them(void **state)
{
    static const struct {
        const char *asked, *grant, *allocations;
    } rows[] = {
        {SHARE(1, 10000), "GPU-a,NVIDIA,19968,43:;", "[" GIVEN(0, "GPU-a", "3g.20gb", 4, 4) "]"},
        {SHARE(1, 5000), "GPU-a,NVIDIA,9856,29:;", "[" GIVEN(0, "GPU-a", "2g.10gb", 0, 2) "]"},
        {SHARE(1, 1000), "GPU-a,NVIDIA,4864,15:;", "[" GIVEN(0, "GPU-a", "1g.5gb", 3, 1) "]"},
        {SHARE(1, 1000), "GPU-a,NVIDIA,4864,15:;", "[" GIVEN(0, "GPU-a", "1g.5gb", 2, 1) "]"},
    };

    (void)state;
    vendor_fixture_set_node(&fixture, NODE);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_string_equal(
            vendor_fixture_give(&fixture, "", rows[i].asked, NVIDIA_TO_ALLOCATE_KEY),
            rows[i].grant);
        assert_string_equal(text_pairs_get(&fixture.written, NVIDIA_ALLOCATED_KEY), rows[i].grant);
        assert_string_equal(text_pairs_get(&fixture.written, MIG_ALLOCATIONS_KEY),
                            rows[i].allocations);
    }
    assert_string_equal(vendor_fixture_refuse(&fixture, "", SHARE(1, 1)),
                        "1/1 CardComputeUnitsExhausted");
}

/* A profile that takes all of a card has less memory than the card. Without one nothing is the
 * whole card. */
static void a_whole_card_is_its_largest_profile(void **state)
{
    (void)state;
    vendor_fixture_set_node(&fixture, NODE);
    assert_string_equal(
        vendor_fixture_give(&fixture, "", "\"nvidia.com/gpu\":\"1\"", MIG_ALLOCATIONS_KEY),
        "[" GIVEN(0, "GPU-a", "7g.40gb", 0, 8) "]");
    vendor_fixture_set_node(&fixture, NODE);
    assert_string_equal(vendor_fixture_refuse(&fixture, "", SHARE(1, 40193)),
                        "1/1 CardNotFoundCustomFilterRule");
    vendor_fixture_set_node(
        &fixture,
        NODE_WITH(CARD("GPU-a", ",\\\"migProfiles\\\":[" PROFILE("3g.20gb", 19968, 43, 3,
                                                                 PLACE(0, 4) "," PLACE(4, 4)) "]"),
                  ""));
    assert_string_equal(vendor_fixture_refuse(&fixture, "", "\"nvidia.com/gpu\":\"1\""),
                        "1/1 CardNotFoundCustomFilterRule");
}

/* A larger profile, where all places of the smallest that would do are taken. */
static void what_has_no_place_is_larger_or_refused(void **state)
{
    (void)state;
    vendor_fixture_set_node(&fixture, NODE);
    for (int i = 0; i < 3; i++)
        assert_int_equal(vendor_fixture_place(&fixture, "", SHARE(1, 9000)), PLACE_FITS);
    assert_string_equal(vendor_fixture_refuse(&fixture, "", SHARE(1, 9000)),
                        "1/1 CardNotFoundCustomFilterRule");
    assert_string_equal(vendor_fixture_give(&fixture, "", SHARE(1, 4864), MIG_ALLOCATIONS_KEY),
                        "[" GIVEN(0, "GPU-a", "1g.5gb", 6, 1) "]");
    assert_string_equal(vendor_fixture_refuse(&fixture, "", SHARE(1, 1000)),
                        "1/1 CardComputeUnitsExhausted");
}

/* One card may serve several devices of a request, and a request several cards. As with HAMi, a
 * node with fewer cards than are asked for is none for it. */
static void a_request_may_have_several_instances_of_a_card(void **state)
{
    const char *text;

    (void)state;
    vendor_fixture_set_node(&fixture, NODE_WITH(CARD("GPU-a", PROFILES) "," CARD(
                                                    "GPU-b", PROFILES) "," CARD("GPU-c", PROFILES),
                                                ""));
    text = vendor_fixture_give(&fixture, "", SHARE(3, 19000), MIG_ALLOCATIONS_KEY);
    assert_string_equal(text, "[" GIVEN(0, "GPU-c", "3g.20gb", 4,
                                        4) "," GIVEN(1, "GPU-c", "3g.20gb", 0,
                                                     4) "," GIVEN(2, "GPU-b", "3g.20gb", 4, 4) "]");
    assert_string_equal(text_pairs_get(&fixture.written, NVIDIA_ALLOCATED_KEY),
                        "GPU-c,NVIDIA,19968,43:GPU-c,NVIDIA,19968,43:GPU-b,NVIDIA,19968,43:;");
    assert_string_equal(vendor_fixture_refuse(&fixture, "", SHARE(4, 1)), "NodeInsufficientDevice");
}

static struct place_usage usage_of(const char *grant, const char *allocations)
{
    const struct vendor_instance *instance = &fixture.vendors.instances[0];
    const struct text_pair pair = {MIG_ALLOCATIONS_KEY, allocations};
    const struct text_pairs annotations = {&pair, allocations ? 1 : 0};
    struct place_usage usage = {0};
    struct pod_devices devices;

    assert_int_equal(
        vendor_read_grant(instance, grant, &annotations, fixture.arena, &devices, NULL),
        CODEC_EXACT);
    assert_int_equal(place_usage_add_pod(&usage, &instance->id, &devices, "", fixture.arena), 0);
    return usage;
}

/* What is read from a pod's annotations is what was charged when it was placed. */
static void a_grant_is_recalled_as_it_was_placed(void **state)
{
    struct place_usage usage;
    const char *text;

    (void)state;
    vendor_fixture_set_node(&fixture, NODE_WITH(CARD("GPU-a", "") "," CARD("GPU-b", PROFILES), ""));
    text = vendor_fixture_give(&fixture, "", SHARE(2, 9000), MIG_ALLOCATIONS_KEY);
    usage = usage_of(text_pairs_get(&fixture.written, NVIDIA_ALLOCATED_KEY), text);
    assert_int_equal(place_usage_discharge(fixture.devices, 2, &usage), 0);
    assert_int_equal(fixture.devices[1].used.parts, 0);
    assert_int_equal(fixture.devices[1].used.tasks, 0);
    assert_int_equal(fixture.devices[1].used.memory_bytes, 0);
    assert_int_equal(place_usage_charge(fixture.devices, 2, &usage), 0);
    assert_string_equal(vendor_fixture_give(&fixture, "", SHARE(1, 9000), MIG_ALLOCATIONS_KEY),
                        "[" GIVEN(0, "GPU-b", "2g.10gb", 4, 2) "]");
}

/* A card is used in the way that it is in now; while anything else is on it, it takes nothing. */
static void a_grant_of_another_way_is_a_misuse(void **state)
{
    static const char place[] = "[" GIVEN(0, "GPU-a", "1g.5gb", 3, 1) "]";
    static const struct {
        const char *node, *grant, *allocations;
        bool misused;
    } rows[] = {
        {NODE, "GPU-a,NVIDIA,4864,15:;", place, false},
        {NODE, "GPU-a,NVIDIA,4864,15:;", NULL, true},
        {NODE, "GPU-a,NVIDIA,4864,15:;", "", true},
        {NODE, "GPU-a,NVIDIA,4864,15:;", "garbage", true},
        {NODE, "GPU-a,NVIDIA,4864,15:;", "[" GIVEN(0, "GPU-b", "1g.5gb", 3, 1) "]", true},
        {NODE, "GPU-a,NVIDIA,4864,15:;", "[" GIVEN(1, "GPU-a", "1g.5gb", 3, 1) "]", true},
        {NODE, "GPU-a[0-3],NVIDIA,4864,15:;", NULL, true},
        {NODE, "GPU-a[0-3],NVIDIA,4864,15:;", "[" GIVEN(0, "GPU-a[0-3]", "1g.5gb", 3, 1) "]", true},
        {NODE_WITH("{\\\"id\\\":\\\"GPU-a\\\",\\\"type\\\":\\\"NVIDIA\\\"}", ""),
         "GPU-a,NVIDIA,4864,15:;", place, true},
        {NODE_WITH("{\\\"id\\\":\\\"GPU-a\\\",\\\"type\\\":\\\"NVIDIA\\\"}", ""),
         "GPU-a,NVIDIA,4864,15:;", NULL, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct place_usage usage = usage_of(rows[i].grant, rows[i].allocations);

        vendor_fixture_set_node(&fixture, rows[i].node);
        assert_int_equal(place_usage_charge(fixture.devices, 1, &usage), 0);
        assert_int_equal(fixture.devices[0].misused, rows[i].misused);
    }
}

/* Our plugin takes both ways, HAMi's of 2.10 only this one. */
static void the_configuration_comes_first_where_the_agent_takes_both(void **state)
{
    static const char *const custom[] = {"", ",\\\"custominfo\\\":{\\\"lock\\\":\\\"none\\\"}",
                                         ",\\\"custominfo\\\":{\\\"lock\\\":\\\"turn\\\"}"};
    struct nvidia_config *config = (struct nvidia_config *)(void *)fixture.config;

    (void)state;
    for (size_t known = 0; known < 2; known++) {
        config->mig_count = known;
        config->migs[0] = (struct nvidia_mig){
            .names = {"A100"}, .name_count = 1, .geometry = {1, {{1, {{40000, 100, 1, "x"}}}}}};
        for (size_t i = 0; i < ARRAY_SIZE(custom); i++) {
            const char *node = arena_printf(fixture.arena, NODE_WITH(CARD("GPU-a", "%s%s"), ""),
                                            PROFILES, custom[i]);

            vendor_fixture_set_node(&fixture, node);
            assert_string_equal(
                vendor_fixture_give(&fixture, "", SHARE(1, 1000), NVIDIA_ALLOCATED_KEY),
                known && i > 0 ? "GPU-a[0-0],NVIDIA,40000,100:;" : "GPU-a,NVIDIA,4864,15:;");
        }
    }
    config->mig_count = 0;
}

/* Scores come into the facts behind the profiles. */
static void cards_with_profiles_have_scores(void **state)
{
    const struct nvidia_facts *facts;

    (void)state;
    vendor_fixture_set_node(
        &fixture,
        NODE_WITH(CARD("GPU-a", PROFILES) "," CARD("GPU-b", ""),
                  "\"hami.io/node-nvidia-score\":\"[{\\\"uuid\\\":\\\"GPU-a\\\",\\\"score\\\":"
                  "{\\\"GPU-b\\\":120}}]\","));
    facts = fixture.devices[0].facts;
    assert_int_equal(facts->profile_count, 5);
    assert_string_equal(facts->profiles[0].name, "1g.5gb");
    assert_string_equal(facts->profiles[4].name, "7g.40gb");
    assert_int_equal(nvidia_scores(facts)[0], 0);
    assert_int_equal(nvidia_scores(facts)[1], 120);
    assert_int_equal(fixture.devices[0].facts_size,
                     (const char *)&nvidia_scores(facts)[2] - (const char *)facts);
    assert_int_equal(vendor_fixture_place(&fixture, "", SHARE(1, 1000)), PLACE_FITS);
}

/*
 * Random pods come and go. The judge knows a card as eight slices, and HAMi's rules of which
 * profile and which place.
 */
static const struct {
    const char *name;
    long mib;
    unsigned size, places;
    unsigned starts[7]; /* in HAMi's order */
} judged[] = {
    {"1g.5gb", 4864, 1, 7, {6, 5, 4, 3, 2, 1, 0}},
    {"2g.10gb", 9856, 2, 3, {0, 2, 4}},
    {"3g.20gb", 19968, 4, 2, {4, 0}},
    {"4g.20gb", 19968, 4, 1, {0}},
    {"7g.40gb", 40192, 8, 1, {0}},
};

static bool is_free(const bool slices[static MIG_SLICES], unsigned start, unsigned size)
{
    for (unsigned i = start; i < start + size; i++) {
        if (slices[i])
            return false;
    }
    return true;
}

/* The annotation of the one instance; "": there is none. */
static const char *judge(const bool slices[static MIG_SLICES], long mib, unsigned *ret_start,
                         unsigned *ret_size)
{
    for (size_t i = 0; i < ARRAY_SIZE(judged); i++) {
        for (unsigned k = 0; judged[i].mib >= mib && k < judged[i].places; k++) {
            *ret_start = judged[i].starts[k];
            *ret_size = judged[i].size;
            if (is_free(slices, *ret_start, *ret_size))
                return arena_printf(
                    fixture.arena,
                    "[{\"containerIndex\":0,\"deviceIndex\":0,\"gpuUUID\":\"GPU-a\",\"profile\":"
                    "\"%s\",\"placement\":{\"start\":%u,\"size\":%u}}]",
                    judged[i].name, *ret_start, *ret_size);
        }
    }
    return "";
}

static void pods_that_come_and_go_lie_where_hami_puts_them(void **state)
{
    static const long asked[] = {1000, 4864, 4865, 9000, 15000, 19968, 19969, 40192, 41000};
    struct place_usage held[MIG_SLICES];
    unsigned starts[MIG_SLICES], sizes[MIG_SLICES], count = 0, given = 0, seed = 7;
    bool slices[MIG_SLICES] = {false};
    struct arena_mark mark;

    (void)state;
    vendor_fixture_set_node(&fixture, NODE);
    for (int step = 0; step < 3000; step++) {
        const long mib = asked[(unsigned)rand_r(&seed) % ARRAY_SIZE(asked)];
        unsigned start = 0, size = 0;
        const char *wanted, *got;

        if (count && rand_r(&seed) % 2) {
            const unsigned gone = (unsigned)rand_r(&seed) % count--;

            assert_int_equal(place_usage_discharge(fixture.devices, 1, &held[gone]), 0);
            memset(&slices[starts[gone]], 0, sizes[gone]);
            held[gone] = held[count];
            starts[gone] = starts[count];
            sizes[gone] = sizes[count];
        }
        if (!count) /* nothing is kept of those before */
            arena_rewind(fixture.arena, step ? mark : (mark = arena_mark(fixture.arena)));
        if (fixture.devices[0].used.cores >= DEVICE_CORES)
            continue; /* HAMi's general rule: what is left has no compute */
        wanted = judge(slices, mib, &start, &size);
        got = vendor_fixture_give(
            &fixture, "",
            arena_printf(fixture.arena, "\"nvidia.com/gpu\":\"1\",\"nvidia.com/gpumem\":\"%ld\"",
                         mib),
            MIG_ALLOCATIONS_KEY);
        /* HAMi's general rule of memory comes first. */
        if (!*got && *wanted && mib > (long)device_free_mib(&fixture.devices[0]))
            continue;
        assert_string_equal(got, wanted);
        if (!*got)
            continue;
        given++;
        held[count] = usage_of(text_pairs_get(&fixture.written, NVIDIA_ALLOCATED_KEY), got);
        starts[count] = start;
        sizes[count++] = size;
        memset(&slices[start], 1, size);
    }
    assert_true(given > 500);
}

static void profiles_that_make_no_sense_are_left_out(void **state)
{
    static const struct {
        const char *text;
        int count;
    } rows[] = {
        {"[]", 0},
        {"{}", 0},
        {"garbage", 0},
        {"[{\"name\":\"1g.5gb\",\"memoryMB\":5120}]", 1}, /* without a place nothing gets it */
        {"[1,{\"name\":\"1g.5gb\",\"memoryMB\":5120,\"core\":14}]", 1},
        {"[{\"name\":\"\",\"memoryMB\":5120}]", 0},
        {"[{\"name\":\"123456789012345678901234\",\"memoryMB\":5120}]", 0},
        {"[{\"name\":\"1g.5gb\"}]", 0},
        {"[{\"name\":\"1g.5gb\",\"memoryMB\":-1}]", 0},
        {"[{\"name\":\"1g.5gb\",\"memoryMB\":1e3}]", 0},
        {"[{\"name\":\"1g.5gb\",\"memoryMB\":16777217}]", 0},
        {"[{\"name\":\"1g.5gb\",\"memoryMB\":5120,\"core\":101}]", 0},
        {"[{\"name\":\"1g.5gb\",\"memoryMB\":5120,\"sliceCount\":9}]", 0},
    };
    static const char places[] =
        "[{\"name\":\"x\",\"memoryMB\":1,\"placements\":[{\"start\":8,\"size\":1},{\"start\":7,"
        "\"size\":2},{\"start\":1},{\"start\":-1,\"size\":1},1,{\"start\":7,\"size\":1},"
        "{\"size\":8}]}]";
    struct mig_profile profiles[PLACEMENTS_PROFILES_MAX];
    struct strbuf many = STRBUF_IN(fixture.arena, 4096);

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (placements_read_profiles(rows[i].text, fixture.arena, profiles) != rows[i].count)
            fail_msg("%s", rows[i].text);
    }
    assert_int_equal(placements_read_profiles(places, fixture.arena, profiles), 1);
    assert_true(profiles[0].places == (UINT64_C(1) << 56 | UINT64_C(1) << 7));
    for (int i = 0; i < 2 * PLACEMENTS_PROFILES_MAX; i++)
        strbuf_addf(&many, "%s{\"name\":\"x\",\"memoryMB\":%d}", i ? "," : "[", 100 - i);
    strbuf_add(&many, "]");
    assert_int_equal(placements_read_profiles(strbuf_text(&many), fixture.arena, profiles),
                     PLACEMENTS_PROFILES_MAX);
    assert_int_equal(profiles[0].memory_mib, 100 - PLACEMENTS_PROFILES_MAX + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(instances_lie_where_hami_puts_them, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_whole_card_is_its_largest_profile, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_has_no_place_is_larger_or_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_request_may_have_several_instances_of_a_card, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_grant_is_recalled_as_it_was_placed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_grant_of_another_way_is_a_misuse, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_configuration_comes_first_where_the_agent_takes_both,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(cards_with_profiles_have_scores, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pods_that_come_and_go_lie_where_hami_puts_them, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(profiles_that_make_no_sense_are_left_out, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
