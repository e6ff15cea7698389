/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/nvidia/nvidia.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "model/json.h"

static struct arena *arena;
static struct nvidia_config config;
static struct vendor_set vendors;

static int set_up(void **state)
{
    (void)state;
    arena = arena_new(1 << 20);
    nvidia_config_defaults(&config);
    vendors = (struct vendor_set){0};
    nvidia_add_instance(&vendors, &config);
    return arena ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static yyjson_val *parse(const char *text)
{
    yyjson_val *root;

    assert_int_equal(json_parse(text, strlen(text), arena, &root, NULL), 0);
    return root;
}

/* A pod of one container with these limits and annotations, both inside of {}. */
static struct pod pod_of(const char *limits, const char *annotations)
{
    struct pod pod;

    assert_int_equal(
        pod_read(parse(arena_printf(arena,
                                    "{\"metadata\":{\"annotations\":{%s}},\"spec\":{\"containers\":"
                                    "[{\"name\":\"c\",\"resources\":{\"limits\":{%s}}}]}}",
                                    annotations, limits)),
                 &vendors.kept, arena, &pod, NULL),
        0);
    return pod;
}

#define GPU "\"nvidia.com/gpu\":\"1\""

static void selection_comes_with_the_request(void **state)
{
    const struct pod pod = pod_of(
        GPU, "\"nvidia.com/use-gputype\":\"A100,H100\",\"nvidia.com/nouse-gputype\":\"\","
             "\"nvidia.com/nouse-gpuuuid\":\"GPU-a\",\"nvidia.com/vgpu-mode\":\"hami-core,mps\"");
    const struct request *request;
    struct demand demand;

    (void)state;
    assert_int_equal(vendor_read_demand(&vendors, &pod, arena, &demand), 1);
    assert_int_equal(demand.count, 1);
    assert_int_equal(demand.containers[0].request_count, 1);
    request = &demand.containers[0].requests[0];
    assert_string_equal(request->vendor->word, "NVIDIA");
    assert_int_equal(request->use_types.count, 2);
    assert_string_equal(request->use_types.items[1], "H100");
    assert_int_equal(request->avoid_types.count, 1);
    assert_string_equal(request->avoid_types.items[0], "");
    assert_int_equal(request->use_uuids.count, 0);
    assert_true(text_list_has(&request->avoid_uuids, "GPU-a"));
    assert_string_equal(request->modes, "hami-core,mps");
}

static void cards_asked_for_by_name_are_not_avoided(void **state)
{
    const struct pod pod = pod_of(GPU, "\"nvidia.com/use-gpuuuid\":\"GPU-a\","
                                       "\"nvidia.com/nouse-gpuuuid\":\"GPU-a\"");
    struct demand demand;

    (void)state;
    assert_int_equal(vendor_read_demand(&vendors, &pod, arena, &demand), 1);
    assert_int_equal(demand.containers[0].requests[0].use_uuids.count, 1);
    assert_int_equal(demand.containers[0].requests[0].avoid_uuids.count, 0);
}

/* How a request with garbage is read, should it get past admission. */
static const struct {
    const char *limits;
    unsigned count, mib, percent, cores; /* count 0: nothing is asked for */
} requests[] = {
    {GPU ",\"nvidia.com/gpumem\":\"-1\"", 1, 0, 100, 0},
    {GPU ",\"nvidia.com/gpumem\":\"2147483648\"", 1, 2147483647, 0, 0},
    {GPU ",\"nvidia.com/gpumem\":\"1Ti\"", 1, 2147483647, 0, 0},
    {GPU ",\"nvidia.com/gpumem-percentage\":\"-1\"", 1, 0, 100, 0},
    {GPU ",\"nvidia.com/gpumem-percentage\":\"0\"", 1, 0, 100, 0},
    {GPU ",\"nvidia.com/gpumem\":\"5\",\"nvidia.com/gpumem-percentage\":\"0\"", 1, 5, 0, 0},
    {GPU ",\"nvidia.com/gpucores\":\"-1\"", 1, 0, 100, 0},
    {"\"nvidia.com/gpu\":\"2147483648\"", 0, 0, 0, 0},
    {"\"nvidia.com/gpu\":\"4294967297\"", 0, 0, 0, 0},
    {"\"nvidia.com/gpumem\":\"100\"", 0, 0, 0, 0},
};

static void amounts_are_never_cut_and_never_negative(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
        const struct pod pod = pod_of(requests[i].limits, "");
        const struct request *request;
        struct demand demand;
        int r = vendor_read_demand(&vendors, &pod, arena, &demand);

        print_message("%s\n", requests[i].limits);
        assert_int_equal(r, requests[i].count > 0);
        if (!r)
            continue;
        request = &demand.containers[0].requests[0];
        assert_int_equal(request->count, requests[i].count);
        assert_int_equal(request->memory_bytes, requests[i].mib * MIB);
        assert_int_equal(request->memory_percent, requests[i].percent);
        assert_int_equal(request->cores, requests[i].cores);
    }
}

#define CARD(id)                                                                                   \
    "{\\\"id\\\":\\\"" id "\\\",\\\"count\\\":10,\\\"devmem\\\":100,\\\"devcore\\\":100,"          \
    "\\\"type\\\":\\\"NVIDIA T4\\\",\\\"health\\\":true}"

static int read_node(const char *devices, const char *more, struct device ret_devices[4],
                     size_t *ret_count, struct error *err)
{
    const struct vendor_instance *nvidia = vendor_find(&vendors, NVIDIA_COMMON_WORD);
    struct node node;

    assert_int_equal(node_read(parse(arena_printf(arena,
                                                  "{\"metadata\":{\"name\":\"n\",\"annotations\":{"
                                                  "\"hami.io/node-nvidia-register\":\"%s\"%s}}}",
                                                  devices, more)),
                               NULL, arena, &node, NULL),
                     0);
    return nvidia->vendor->read_node(nvidia, &node, arena, ret_devices, 4, ret_count, err);
}

static void a_bad_device_costs_that_device_only(void **state)
{
    struct error err = ERROR_INIT;
    struct device devices[4];
    size_t count;

    (void)state;
    assert_int_equal(read_node("[" CARD("a") "," CARD("") "," CARD("b") "," CARD("a") "]", "",
                               devices, &count, &err),
                     CODEC_MENDED);
    assert_string_equal(err.text, "hami.io/node-nvidia-register: device 1 (\"\") has no id");
    assert_int_equal(count, 3);
    assert_true(devices[0].healthy && !devices[1].healthy && devices[2].healthy);
    assert_string_equal(devices[2].uuid, "b");

    assert_int_equal(
        read_node("[" CARD("a") "," CARD("b") "," CARD("c") "," CARD("d") "," CARD("e") "]", "",
                  devices, &count, &err),
        CODEC_MENDED);
    assert_string_equal(err.text, "hami.io/node-nvidia-register: device 4 (\"e\") is one too many");
    assert_int_equal(count, 4);

    assert_int_equal(read_node("[1]", "", devices, &count, &err), -EINVAL);
    assert_string_equal(err.text, "hami.io/node-nvidia-register: device 0: not an object");
}

static void the_operators_cordon_is_seen(void **state)
{
    struct device devices[4];
    size_t count;

    (void)state;
    assert_int_equal(read_node("[" CARD("GPU-a") "," CARD("GPU-b") "," CARD("GPU-c") "]",
                               ",\"hami.io/device-cordon\":\"GPU-c, GPU-a,GPU\"", devices, &count,
                               NULL),
                     CODEC_EXACT);
    assert_true(devices[0].cordoned && !devices[1].cordoned && devices[2].cordoned);
}

#define MIG_CARD(id, model)                                                                        \
    "{\\\"id\\\":\\\"" id "\\\",\\\"count\\\":7,\\\"devmem\\\":100,\\\"devcore\\\":100,"           \
    "\\\"mode\\\":\\\"mig\\\",\\\"type\\\":\\\"" model "\\\",\\\"health\\\":true}"

/* With and without scores. */
static void a_card_knows_which_profiles_are_not_allowed(void **state)
{
    static const char *const more[] = {"", ",\"hami.io/node-nvidia-score\":\"[]\""};

    (void)state;
    config.mig_count = config.allowance_count = 1;
    config.migs[0] = (struct nvidia_mig){
        .name_count = 2,
        .names = {"A30", "A100"},
        .geometry = {2, {{1, {{1, 1, 2, "1g.6gb"}}}, {1, {{1, 1, 1, "4g.24gb"}}}}}};
    config.allowances[0] = (struct nvidia_allowance){1, 1, {"A30"}, {"4g.24gb"}};
    for (size_t i = 0; i < ARRAY_SIZE(more); i++) {
        const struct nvidia_facts *facts[2];
        struct device devices[4];
        size_t count;

        assert_int_equal(
            read_node("[" MIG_CARD("a", "NVIDIA A30") "," MIG_CARD("b", "NVIDIA A100") "]", more[i],
                      devices, &count, NULL),
            CODEC_EXACT);
        facts[0] = devices[0].facts;
        facts[1] = devices[1].facts;
        assert_int_equal(facts[0]->barred, 0x3);
        assert_int_equal(facts[1]->barred, 0);
        assert_ptr_equal(facts[0]->geometry, facts[1]->geometry);
    }
}

static void a_node_without_the_annotation_has_none(void **state)
{
    const struct vendor_instance *nvidia = vendor_find(&vendors, NVIDIA_COMMON_WORD);
    struct error err = ERROR_INIT;
    struct node node = {0};
    size_t count;

    (void)state;
    assert_int_equal(nvidia->vendor->read_node(nvidia, &node, arena, NULL, 0, &count, &err),
                     -ENOENT);
    assert_string_equal(err.text, "no annotation hami.io/node-nvidia-register");
    assert_null(vendor_find(&vendors, "MLU"));
}

static void a_grant_goes_into_two_annotations(void **state)
{
    struct container_device device = {"GPU-a", "NVIDIA", 3000, 30};
    struct container_devices containers[] = {{0, NULL}, {1, &device}};
    const struct pod_devices devices = {2, containers}, none = {1, containers};
    const struct vendor_grant grant = {.given = &devices}, nothing = {.given = &none};
    struct text_pair pairs[VENDOR_MAX_ANNOTATIONS];

    (void)state;
    assert_int_equal(vendor_write_annotations(&vendors.instances[0], &grant, arena, pairs), 2);
    assert_string_equal(pairs[0].key, "hami.io/vgpu-devices-allocated");
    assert_string_equal(pairs[0].value, ";GPU-a,NVIDIA,3000,30:;");
    assert_string_equal(pairs[1].key, "hami.io/vgpu-devices-to-allocate");
    assert_string_equal(pairs[1].value, pairs[0].value);
    assert_int_equal(vendor_write_annotations(&vendors.instances[0], &nothing, arena, pairs), 0);
}

#define SCORED(id)                                                                                 \
    "{\"id\":\"" id "\",\"count\":1,\"devmem\":1,\"devcore\":100,\"type\":\"NVIDIA\","             \
    "\"health\":true}"

static const struct device_vendor *read_cards(const char *scores, struct device devices[3],
                                              int *ret_r)
{
    const struct vendor_instance *instance = &vendors.instances[0];
    struct text_pair pairs[] = {
        {NVIDIA_REGISTER_KEY, "[" SCORED("a") "," SCORED("b") "," SCORED("c") "]"},
        {NVIDIA_SCORE_KEY, scores},
    };
    const struct node node = {.name = "n",
                              .annotations = {.count = scores ? 2 : 1, .items = pairs}};
    size_t count = 0;

    *ret_r = instance->vendor->read_node(instance, &node, arena, devices, 3, &count, NULL);
    assert_int_equal(count, 3);
    return &instance->id;
}

static void pairs_of_cards_have_scores(void **state)
{
    static const struct {
        const char *text;
        int r;
        int32_t a_to_b, b_to_a, a_to_c;
    } rows[] = {
        {NULL, CODEC_EXACT, 0, 0, 0},
        {"[]", CODEC_EXACT, 0, 0, 0},
        {"null", CODEC_EXACT, 0, 0, 0},
        {"[null]", CODEC_EXACT, 0, 0, 0},
        {"[{\"uuid\":\"a\",\"score\":{\"b\":120,\"c\":-3,\"x\":9}}]", CODEC_EXACT, 120, 0, -3},
        {"[{\"uuid\":\"x\",\"score\":{\"b\":1}},{\"uuid\":\"b\",\"score\":{\"a\":7}}]", CODEC_EXACT,
         0, 7, 0},
        {"[{\"uuid\":\"a\",\"score\":{\"b\":99999999999}}]", CODEC_EXACT, INT32_MAX, 0, 0},
        {"[{\"uuid\":\"a\",\"score\":{\"b\":1.5}}]", -EINVAL, 0, 0, 0},
        {"[{\"uuid\":\"x\",\"score\":{\"b\":\"1\"}}]", -EINVAL, 0, 0, 0},
        {"[{\"uuid\":1}]", -EINVAL, 0, 0, 0},
        {"[{\"uuid\":\"a\",\"score\":[1]}]", -EINVAL, 0, 0, 0},
        {"[7]", -EINVAL, 0, 0, 0},
        {"{}", -EINVAL, 0, 0, 0},
        {"bad", -EINVAL, 0, 0, 0},
        {"", -EINVAL, 0, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct device cards[3];
        int r;
        const struct place_rules *rules = read_cards(rows[i].text, cards, &r)->rules;

        print_message("%s\n", rows[i].text ? rows[i].text : "none");
        assert_int_equal(r, rows[i].r);
        if (r < 0)
            continue;
        assert_int_equal(rules->link(&cards[0], &cards[1]), rows[i].a_to_b);
        assert_int_equal(rules->link(&cards[1], &cards[0]), rows[i].b_to_a);
        assert_int_equal(rules->link(&cards[0], &cards[2]), rows[i].a_to_c);
    }
}

static void all_cards_of_one_numa_node_are_a_wish(void **state)
{
    static const struct {
        const char *text;
        bool wish;
    } rows[] = {{"true", true},   {"1", true},   {"T", true},
                {"false", false}, {"no", false}, {"", false}};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct vendor_instance *instance = &vendors.instances[0];
        const struct pod pod =
            pod_of(GPU, arena_printf(arena, "\"nvidia.com/numa-bind\":\"%s\"", rows[i].text));
        struct request request;

        assert_int_equal(instance->vendor->read_request(instance, &pod, 0, arena, &request), 1);
        assert_int_equal(request.one_numa_node, rows[i].wish);
    }
}

/* A card in MIG mode, as each plugin registers it. */
#define REGISTERED(more)                                                                           \
    "[{\"id\":\"a\",\"count\":7,\"devmem\":40960,\"devcore\":100,\"type\":\"NVIDIA-A100\","        \
    "\"mode\":\"mig\",\"health\":true" more "}]"
#define PROFILES ",\"migProfiles\":[{\"name\":\"1g.5gb\",\"placements\":[]}]"

static void a_card_whose_agent_wants_placements_is_not_cut_by_ours(void **state)
{
    static const struct {
        const char *text;
        bool usable;
    } rows[] = {
        {REGISTERED(""), true},                                             /* HAMi 2.8 */
        {REGISTERED(PROFILES), false},                                      /* HAMi 2.10 */
        {REGISTERED(PROFILES ",\"custominfo\":{\"lock\":\"none\"}"), true}, /* ours */
        {REGISTERED(PROFILES ",\"custominfo\":{\"lock\":\"turn\"}"), true},
        {REGISTERED(",\"custominfo\":{\"lock\":\"none\"}"), true},
    };
    const struct vendor_instance *instance = &vendors.instances[0];

    (void)state;
    nvidia_config_defaults(&config);
    config.migs[0] = (struct nvidia_mig){.names = {"A100"}, .name_count = 1};
    config.mig_count = 1;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct text_pair pair = {NVIDIA_REGISTER_KEY, rows[i].text};
        const struct node node = {.name = "n", .annotations = {&pair, 1}};
        struct device card;
        size_t count = 0;

        print_message("%s\n", rows[i].text);
        assert_int_equal(
            instance->vendor->read_node(instance, &node, arena, &card, 1, &count, NULL),
            CODEC_EXACT);
        assert_int_equal(count, 1);
        assert_int_equal(instance->id.rules->is_usable(&card), rows[i].usable);
    }
}

static void who_registered_the_cards_says_whether_there_is_a_lock(void **state)
{
    static const struct {
        const char *text;
        const struct vendor_lock *lock;
    } cases[] = {
        {"[{\"id\":\"GPU-a\",\"health\":true,\"devicepairscore\":{}}]",
         &vendor_mutex_lock}, /* HAMi's plugin */
        {"GPU-a,10,1000,100,NVIDIA-A,0,true:", &vendor_mutex_lock},
        {"[{\"id\":\"GPU-a\",\"custominfo\":{\"lock\":\"none\"},\"devicepairscore\":{}}]", NULL},
        {"[{\"id\": \"GPU-a\", \"custominfo\": {\"lock\": \"none\"}}]", NULL},
        {"[{\"id\":\"\\\"lock\\\":\\\"none\\\"\"}]", &vendor_mutex_lock},
        {"[{\"id\":\"GPU-a\",\"custominfo\":{\"lock\":\"mutex\"}}]", &vendor_mutex_lock},
        {"[{\"id\":\"GPU-a\",\"custominfo\":{\"lock\":\"turn\"}}]", &vendor_turn_lock},
        {"[{\"id\":\"GPU-a\",\"custominfo\":{\"lock\":\"turning\"}}]", &vendor_mutex_lock},
        {"[{\"id\":\"GPU-a\",\"custominfo\":{\"lock\":", &vendor_mutex_lock},
    };
    const struct vendor_instance instance = {.vendor = &nvidia_vendor,
                                             .register_key = NVIDIA_REGISTER_KEY};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct text_pair pair = {NVIDIA_REGISTER_KEY, cases[i].text};
        const struct node node = {.annotations = {&pair, 1}};

        assert_ptr_equal(vendor_prepare_bind(&instance, &node), cases[i].lock);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selection_comes_with_the_request),
        cmocka_unit_test(cards_asked_for_by_name_are_not_avoided),
        cmocka_unit_test(amounts_are_never_cut_and_never_negative),
        cmocka_unit_test(a_bad_device_costs_that_device_only),
        cmocka_unit_test(the_operators_cordon_is_seen),
        cmocka_unit_test(a_card_knows_which_profiles_are_not_allowed),
        cmocka_unit_test(a_node_without_the_annotation_has_none),
        cmocka_unit_test(a_grant_goes_into_two_annotations),
        cmocka_unit_test(pairs_of_cards_have_scores),
        cmocka_unit_test(all_cards_of_one_numa_node_are_a_wish),
        cmocka_unit_test(a_card_whose_agent_wants_placements_is_not_cut_by_ours),
        cmocka_unit_test(who_registered_the_cards_says_whether_there_is_a_lock),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
