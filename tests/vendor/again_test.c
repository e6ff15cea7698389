/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A scheduler that starts knows of a pod what the API server does: its annotations alone. For
 * vendors whose grants say more than so much of a device, what the next pods are told is the same
 * before and after.
 */

#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster.h"
#include "config/device_config.h"
#include "model/json.h"

static const char config_text[] = "amd: {resourceCountName: amd.com/gpu, resourceMemoryName: "
                                  "amd.com/gpumem, resourceCoreName: amd.com/gpucores}\n"
                                  "awsneuron: {resourceCountName: aws.amazon.com/neuron, "
                                  "resourceCoreName: aws.amazon.com/neuroncore}\n"
                                  "kunlun: {resourceVCountName: kunlunxin.com/vxpu, "
                                  "resourceVMemoryName: kunlunxin.com/vxpu-memory}\n"
                                  "metax: {resourceVCountName: metax-tech.com/sgpu, "
                                  "resourceVCoreName: metax-tech.com/vcore}\n"
                                  "vnpus: [{commonWord: Ascend910B3, resourceName: "
                                  "huawei.com/Ascend910B3, memoryAllocatable: 65536, "
                                  "memoryCapacity: 65536, resourceCoreName: "
                                  "huawei.com/Ascend910B3-core, resourceMemoryName: "
                                  "huawei.com/Ascend910B3-memory}]\n";

struct asked {
    const char *annotations, *limits;
    const char *answer; /* a part of the refusal; NULL: it is placed */
};

static const struct row {
    const char *annotations, *status; /* of the node */
    struct asked pods[3];             /* the first is placed, and known by its annotations then */
} rows[] = {
#define METAX                                                                                      \
    "\"metax-tech.com/node-gpu-devices\":\"[{\\\"uuid\\\":\\\"m\\\",\\\"totalDevCount\\\":16,"     \
    "\\\"totalCompute\\\":100,\\\"totalVRam\\\":65536,\\\"healthy\\\":true}]\""
#define CLASS(text) "\"metax-tech.com/sgpu-app-class\":\"" text "\""
#define QOS(text) "\"metax-tech.com/sgpu-qos-policy\":\"" text "\""
#define SHARE "\"metax-tech.com/sgpu\":\"1\",\"metax-tech.com/vcore\":\"10\""
    {METAX,
     "",
     {{CLASS("online"), SHARE, NULL},
      {CLASS("offline"), SHARE, "CardAppClassMismatch"},
      {"", SHARE, "CardAppClassMismatch"}}},
    {METAX,
     "",
     {{QOS("fixed-share"), SHARE, NULL},
      {QOS("best-effort"), SHARE, "CardQosPolicyMismatch"},
      {QOS("fixed-share"), SHARE, "CardInsufficientMemory"}}},
#define NEURON(devices, cores)                                                                     \
    "\"capacity\":{\"aws.amazon.com/neuron\":\"" #devices                                          \
    "\",\"aws.amazon.com/neuroncore\":\"" #cores                                                   \
    "\"},\"allocatable\":{\"aws.amazon.com/neuron\":\"" #devices "\"}"
#define CORES(count) "\"aws.amazon.com/neuroncore\":\"" #count "\""
    {"",
     NEURON(1, 2),
     {{"", CORES(1), NULL}, {"", CORES(2), "CardInsufficientCore"}, {"", CORES(1), NULL}}},
#define XPU                                                                                        \
    "\"hami.io/node-register-xpu\":\"[{\\\"id\\\":\\\"x\\\",\\\"count\\\":4,\\\"devmem\\\":98304," \
    "\\\"devcore\\\":100,\\\"type\\\":\\\"XPU\\\",\\\"health\\\":true}]\","                        \
    "\"hami.io/node-handshake-xpu\":\"Reported_2026-11-22 07:06:53\""
#define PART(mib) "\"kunlunxin.com/vxpu\":\"1\",\"kunlunxin.com/vxpu-memory\":\"" #mib "\""
    {XPU,
     "\"allocatable\":{\"kunlunxin.com/vxpu\":\"4\"}",
     {{"", PART(24576), NULL}, {"", PART(49152), "NumaNotFit"}, {"", PART(24576), NULL}}},
#define AMD                                                                                        \
    "\"hami.io/node-amd-register\":\"[{\\\"id\\\":\\\"a\\\",\\\"count\\\":4,\\\"devmem\\\":1000,"  \
    "\\\"devcore\\\":304,\\\"type\\\":\\\"AMD Instinct\\\",\\\"health\\\":true}]\""
#define UNITS(percent)                                                                             \
    "\"amd.com/gpu\":\"1\",\"amd.com/gpumem\":\"1\",\"amd.com/gpucores\":\"" #percent "\""
    {AMD,
     "\"allocatable\":{\"amd.com/gpu\":\"4\"}",
     {{"", UNITS(50), NULL}, {"", UNITS(51), "CardInsufficientCore"}, {"", UNITS(50), NULL}}},
#define ASCEND                                                                                     \
    "\"hami-vnpu-core\":\"true\",\"hami.io/node-register-Ascend910B3\":\"[{\\\"id\\\":\\\"h\\\","  \
    "\\\"count\\\":4,\\\"devmem\\\":65536,\\\"devcore\\\":20,\\\"type\\\":\\\"Ascend910B3\\\","    \
    "\\\"health\\\":true}]\",\"hami.io/node-handshake-Ascend910B3\":"                              \
    "\"Reported_2026.11.22 07:06:53\""
#define SOFT "\"huawei.com/vnpu-mode\":\"hami-core\""
#define CHIP(percent)                                                                              \
    "\"huawei.com/Ascend910B3\":\"1\",\"huawei.com/Ascend910B3-memory\":\"100\","                  \
    "\"huawei.com/Ascend910B3-core\":\"" #percent "\""
    {ASCEND,
     "\"allocatable\":{\"huawei.com/Ascend910B3\":\"4\"}",
     {{SOFT, CHIP(60), NULL}, {SOFT, CHIP(41), "CardInsufficientCore"}, {SOFT, CHIP(40), NULL}}},
};

static struct arena *arena;
static struct device_config config;
static struct vendor_set vendors;

static yyjson_val *parse(const char *text)
{
    yyjson_val *root;

    if (json_parse(text, strlen(text), arena, &root, NULL) < 0)
        fail_msg("no JSON: %s", text);
    return root;
}

static struct cluster *start(const struct row *row)
{
    const struct cluster_options options = {.vendors = &vendors};
    struct cluster *cluster = cluster_new(&options);
    const char *text =
        arena_printf(arena, "{\"metadata\":{\"name\":\"n\",\"annotations\":{%s}},\"status\":{%s}}",
                     row->annotations, row->status);
    struct node node;

    assert_non_null(cluster);
    assert_int_equal(node_read(parse(text), &vendors.kept, arena, &node, NULL), 0);
    for (enum cluster_kind kind = CLUSTER_NODES; kind < CLUSTER_KINDS; kind++) {
        cluster_begin(cluster, kind);
        if (kind == CLUSTER_NODES)
            assert_int_equal(cluster_set_node(cluster, &node, NULL), 0);
        cluster_complete(cluster, kind);
    }
    return cluster;
}

static const char *write_pod(const struct asked *asked, const char *uid)
{
    return arena_printf(
        arena,
        "{\"metadata\":{\"name\":\"%s\",\"namespace\":\"d\",\"uid\":\"%s\",\"annotations\":{%s}},"
        "\"spec\":{\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{%s}}}]}}",
        uid, uid, asked->annotations, asked->limits);
}

static void ask(struct cluster *cluster, const struct asked *asked, const char *uid)
{
    static const char *const names[] = {"n"};
    struct cluster_answer answer;
    struct error err = ERROR_INIT;
    struct pod pod;
    int r;

    assert_int_equal(pod_read(parse(write_pod(asked, uid)), &vendors.kept, arena, &pod, NULL), 0);
    r = cluster_filter(cluster, &pod, names, 1, 0, arena, &answer, &err);
    if (r < 0)
        fail_msg("%s", err.text);
    if (r != (asked->answer ? CLUSTER_REFUSED : CLUSTER_PLACED) ||
        (asked->answer && !strstr(answer.summary, asked->answer)))
        fail_msg("%s %s: %s", asked->annotations, asked->limits,
                 r == CLUSTER_REFUSED ? answer.summary : "placed");
}

/* The pod as a watch of metadata brings it after its Binding. */
static struct pod bind(struct cluster *cluster, const struct asked *asked)
{
    const struct cluster_bind bind = {"d", "a", "a", "n"};
    struct text_pairs written;
    const char *annotations = asked->annotations;
    struct pod pod;

    ask(cluster, asked, "a");
    assert_int_equal(cluster_bind(cluster, &bind, 0, 5 * NS_PER_S, arena, &written, NULL), 0);
    for (size_t i = 0; i < written.count; i++) {
        struct strbuf value = STRBUF_IN(arena, 1 << 16);

        strbuf_add_json(&value, written.items[i].value);
        annotations = arena_printf(arena, "%s%s\"%s\":%s", annotations, *annotations ? "," : "",
                                   written.items[i].key, strbuf_text(&value));
    }
    assert_int_equal(
        pod_read(parse(arena_printf(arena,
                                    "{\"metadata\":{\"name\":\"a\",\"namespace\":\"d\","
                                    "\"uid\":\"a\",\"annotations\":{%s}}}",
                                    annotations)),
                 &vendors.kept, arena, &pod, NULL),
        0);
    return pod;
}

static void a_scheduler_that_starts_answers_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct cluster *before = start(&rows[i]), *after = start(&rows[i]);
        const struct pod pod = bind(before, &rows[i].pods[0]);

        assert_int_equal(cluster_set_pod(after, &pod, NULL), 0);
        for (size_t k = 1; k < ARRAY_SIZE(rows[i].pods); k++) {
            ask(before, &rows[i].pods[k], "b");
            ask(after, &rows[i].pods[k], "b");
        }
        cluster_delete_pod(after, "a");
        ask(after, &rows[i].pods[0], "c");
        cluster_free(before);
        cluster_free(after);
        arena_reset(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scheduler_that_starts_answers_the_same),
    };
    struct error err = ERROR_INIT;
    int failed;

    arena = arena_new(64 << 20);
    if (!arena ||
        device_config_parse("d.yaml", config_text, strlen(config_text), &config, &err) < 0 ||
        device_config_vendors(&config, &vendors) < 0) {
        print_message("%s\n", err.text);
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_config_deinit(&config);
    arena_free(arena);
    return failed;
}
