/* SPDX-License-Identifier: Apache-2.0 */
#include "made.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "model/keys.h"

unsigned made_draw(struct bench *bench, unsigned below)
{
    bench->random ^= bench->random << 13;
    bench->random ^= bench->random >> 7;
    bench->random ^= bench->random << 17;
    return (unsigned)((bench->random >> 20) % below);
}

#define CARD_ID "GPU-%08zx-0000-0000-0000-%012u"

static void write_registration(size_t number, char *text, size_t size)
{
    strcpy(text, "[");
    for (unsigned i = 0; i < CARDS; i++)
        (void)snprintf(text + strlen(text), size - strlen(text),
                       "%s{\"id\":\"" CARD_ID "\",\"index\":%u,\"count\":10,"
                       "\"devmem\":%d,\"devcore\":100,\"type\":\"NVIDIA A100-SXM4-80GB\","
                       "\"numa\":%u,\"mode\":\"hami-core\",\"health\":true,"
                       "\"custominfo\":{\"lock\":\"none\"}}",
                       i ? "," : "", number, i, i, CARD_MIB, i / 4);
    strcat(text, "]");
}

/* Nodes of three vendors stand by turns in a mixed cluster. */
static const struct {
    const char *register_key, *names[3]; /* of devices, memory, cores */
} kinds[MADE_KINDS] = {
    {NVIDIA_REGISTER_KEY, {"nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpucores"}},
    {"hami.io/node-dcu-register", {"hygon.com/dcunum", "hygon.com/dcumem", "hygon.com/dcucores"}},
    {"hami.io/node-register-Ascend910B3",
     {"huawei.com/Ascend910B3", "huawei.com/Ascend910B3-memory", NULL}},
};

static void write_dcus(size_t number, char *text, size_t size)
{
    text[0] = '\0';
    for (unsigned i = 0; i < CARDS; i++)
        (void)snprintf(text + strlen(text), size - strlen(text),
                       "DCU-%zu-%u,4,65536,100,DCU-K100_AI,%u,true,%u,hami:", number, i, i / 4, i);
}

static void write_npus(size_t number, char *text, size_t size)
{
    strcpy(text, "[");
    for (unsigned i = 0; i < CARDS; i++)
        (void)snprintf(text + strlen(text), size - strlen(text),
                       "%s{\"id\":\"npu-%zu-%u\",\"index\":%u,\"count\":4,\"devmem\":65536,"
                       "\"devcore\":20,\"type\":\"Ascend910B3\",\"health\":true,"
                       "\"custominfo\":{\"NetworkID\":%u}}",
                       i ? "," : "", number, i, i, i / 4);
    strcat(text, "]");
}

static void write_any(enum made_kind kind, size_t number, char *text, size_t size)
{
    if (kind == MADE_NVIDIA)
        write_registration(number, text, size);
    else if (kind == MADE_HYGON)
        write_dcus(number, text, size);
    else
        write_npus(number, text, size);
}

static void add_node(struct bench *bench, size_t number)
{
    static char text[4096];
    const enum made_kind kind = bench->is_mixed ? number % MADE_KINDS : MADE_NVIDIA;
    struct text_pair pairs[1] = {{kinds[kind].register_key, text}};
    struct resource resources[1] = {{.name = kinds[kind].names[0], .text = "80"}};
    struct node node = {.uid = "", .resource_version = "", .has_status = true, .ready = true};
    char name[64];

    (void)snprintf(name, sizeof(name), "node-%05zu.example", number);
    write_any(kind, number, text, sizeof(text));
    resources[0].quantity = (struct quantity){QUANTITY_WHOLE, 80};
    node.name = name;
    node.annotations = (struct text_pairs){pairs, 1};
    node.allocatable = (struct resource_list){resources, 1};
    if (cluster_set_node(bench->cluster, &node, NULL) < 0)
        abort();
    strcpy(bench->text, name);
    bench->names[number] = bench->text;
    bench->text += NAME_SIZE;
}

int made_filter(struct bench *bench, const char *uid, int count, int mib, int cores,
                const char **ret_node)
{
    const char *const *names = kinds[bench->kind].names;
    struct resource limits[3] = {{.name = names[0], .text = ""},
                                 {.name = names[1], .text = ""},
                                 {.name = names[2], .text = ""}};
    struct container container = {.name = "c", .has_resources = true, .has_limits = true};
    const struct text_pair note = {KEY_DEVICE_POLICY, bench->policy};
    struct cluster_answer answer = {0};
    const struct pod pod = {
        .namespace = bench->namespace ? bench->namespace : "default",
        .annotations = {&note, bench->policy != NULL},
        .name = uid,
        .uid = uid,
        .resource_version = "1",
        .has_spec = true,
        .node_name = "",
        .scheduler_name = "",
        .runtime_class = "",
        .container_count = 1,
        .containers = &container,
    };
    int r;

    limits[0].quantity = (struct quantity){QUANTITY_WHOLE, count};
    limits[1].quantity = (struct quantity){QUANTITY_WHOLE, mib};
    limits[2].quantity = (struct quantity){QUANTITY_WHOLE, cores};
    container.limits = (struct resource_list){limits, names[2] ? 3 : 2};
    arena_reset(bench->arena);
    r = cluster_filter(bench->cluster, &pod, bench->names, bench->count, 0, bench->arena, &answer,
                       NULL);
    if (ret_node)
        *ret_node = answer.node;
    return r;
}

/* Bound, and seen to be. */
void made_settle(struct bench *bench, const char *uid, const char *node)
{
    const struct cluster_bind what = {"default", uid, uid, node};
    struct text_pairs annotations;
    struct pod pod = {.namespace = "default", .name = uid, .uid = uid, .resource_version = "2"};

    if (cluster_bind(bench->cluster, &what, 0, 0, bench->arena, &annotations, NULL) < 0)
        abort();
    cluster_bound(bench->cluster, uid, CLUSTER_BOUND, 0);
    pod.annotations = annotations;
    if (cluster_set_pod(bench->cluster, &pod, NULL) < 0)
        abort();
}

static void place_pods(struct bench *bench, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *node;
        char uid[64];

        bench->kind = bench->is_mixed ? i % MADE_KINDS : MADE_NVIDIA;
        (void)snprintf(uid, sizeof(uid), "00000000-0000-0000-0000-%012zu", i);
        if (made_filter(bench, uid, 1, 4096 + (int)made_draw(bench, 40000),
                        (int)made_draw(bench, 40), &node) != CLUSTER_PLACED)
            continue;
        made_settle(bench, uid, strdup(node));
    }
}

static int compare(const void *a, const void *b)
{
    const int64_t *left = a, *right = b;

    return (*left > *right) - (*left < *right);
}

int64_t made_part(int64_t *times, size_t count, double which)
{
    qsort(times, count, sizeof(times[0]), compare);
    return times[(size_t)((double)(count - 1) * which)];
}

/* Cards of one half of a node are connected well, and the halves are not; one node of the cluster.
 */
void made_add_scores(struct bench *bench, size_t number)
{
    static char text[4096], scores[8192];
    struct text_pair pairs[] = {{NVIDIA_REGISTER_KEY, text}, {NVIDIA_SCORE_KEY, scores}};
    struct resource resources[1] = {{.name = "nvidia.com/gpu", .text = "80"}};
    const struct node node = {
        .name = bench->names[number],
        .uid = "",
        .resource_version = "",
        .has_status = true,
        .ready = true,
        .annotations = {pairs, ARRAY_SIZE(pairs)},
        .allocatable = {resources, 1},
    };

    write_registration(number, text, sizeof(text));
    strcpy(scores, "[");
    for (unsigned i = 0; i < CARDS; i++) {
        (void)snprintf(scores + strlen(scores), sizeof(scores) - strlen(scores),
                       "%s{\"uuid\":\"" CARD_ID "\",\"score\":{", i ? "," : "", number, i);
        for (unsigned k = 0; k < CARDS; k++)
            (void)snprintf(scores + strlen(scores), sizeof(scores) - strlen(scores),
                           "%s\"" CARD_ID "\":%u", k ? "," : "", number, k,
                           i / 4 == k / 4 ? 100 + (i * 7 + k * 13) % 40 : 10 + (i + k) % 5);
        strcat(scores, "}}");
    }
    strcat(scores, "]");
    resources[0].quantity = (struct quantity){QUANTITY_WHOLE, 80};
    if (cluster_set_node(bench->cluster, &node, NULL) < 0)
        abort();
}

static void make_vendors(struct bench *bench, const char *path)
{
    struct error err = ERROR_INIT;

    if (!path) {
        nvidia_config_defaults(&bench->config);
        (void)nvidia_add_instance(&bench->vendors, &bench->config);
    } else if (device_config_load(path, &bench->file, &err) < 0 ||
               device_config_vendors(&bench->file, &bench->vendors) < 0) {
        (void)fprintf(stderr, "decide: %s\n", err.text);
        exit(EXIT_FAILURE);
    }
}

void made_cluster(struct bench *bench, size_t nodes, size_t pods, const char *config)
{
    const struct cluster_options options = {.vendors = &bench->vendors,
                                            .defaults = {.node_order = PLACE_SPREAD}};

    bench->random = 88172645463325252;
    bench->count = nodes;
    make_vendors(bench, config);
    bench->cluster = cluster_new(&options);
    bench->arena = arena_new(1u << 30);
    bench->names = calloc(nodes, sizeof(*bench->names));
    bench->text = calloc(nodes, NAME_SIZE);

    cluster_begin(bench->cluster, CLUSTER_NODES);
    for (size_t i = 0; i < nodes; i++)
        add_node(bench, i);
    cluster_complete(bench->cluster, CLUSTER_NODES);
    cluster_begin(bench->cluster, CLUSTER_PODS);
    cluster_complete(bench->cluster, CLUSTER_PODS);
    place_pods(bench, pods);
    bench->kind = MADE_NVIDIA;
}
