/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The scheduler's decision alone, over a made cluster: NODES nodes of 8 cards, PODS pods placed.
 * Prints ns, one line each: placed p50, placed p99, refused p50, bind and its being seen p50,
 * refused p50 where eight cards are asked for and many nodes have some of them, PENDING pods asked
 * for again after a device came free, all together, the same where their demands are DEMANDS
 * different ones; four cards that are connected best, placed p50; placed p50 and refused p50 in a
 * namespace with a quota; then bytes in use.
 *
 * usage: decide NODES PODS ROUNDS [DEVICE-CONFIG]   the vendors of a device configuration, which
 * has NVIDIA's usual names; without it NVIDIA alone
 */

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "cluster/cluster.h"
#include "config/device_config.h"
#include "model/keys.h"
#include "vendor/nvidia/nvidia.h"

enum {
    CARDS = 8,
    CARD_MIB = 81920,
    PENDING = 1000,
    DEMANDS = 20,
    NAME_SIZE = 32,
};

struct bench {
    struct nvidia_config config;
    struct device_config file;
    struct vendor_set vendors;
    struct cluster *cluster;
    struct arena *arena;
    const char *policy, *namespace; /* of the pods that are asked about */
    const char **names;             /* as in a request: one behind the other in its body */
    char *text;
    size_t count;
    uint64_t random;
};

static unsigned draw(struct bench *bench, unsigned below)
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

static void add_node(struct bench *bench, size_t number)
{
    static char text[4096];
    struct text_pair pairs[1] = {{NVIDIA_REGISTER_KEY, text}};
    struct resource resources[1] = {{.name = "nvidia.com/gpu", .text = "80"}};
    struct node node = {.uid = "", .resource_version = "", .has_status = true, .ready = true};
    char name[64];

    (void)snprintf(name, sizeof(name), "node-%05zu.example", number);
    write_registration(number, text, sizeof(text));
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

static int filter_cards(struct bench *bench, const char *uid, int count, int mib, int cores,
                        const char **ret_node)
{
    struct resource limits[3] = {{.name = "nvidia.com/gpu", .text = ""},
                                 {.name = "nvidia.com/gpumem", .text = ""},
                                 {.name = "nvidia.com/gpucores", .text = ""}};
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
    container.limits = (struct resource_list){limits, 3};
    arena_reset(bench->arena);
    r = cluster_filter(bench->cluster, &pod, bench->names, bench->count, 0, bench->arena, &answer,
                       NULL);
    if (ret_node)
        *ret_node = answer.node;
    return r;
}

static int filter(struct bench *bench, const char *uid, int mib, int cores, const char **ret_node)
{
    return filter_cards(bench, uid, 1, mib, cores, ret_node);
}

/* Bound, and seen to be. */
static void settle(struct bench *bench, const char *uid, const char *node)
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

        (void)snprintf(uid, sizeof(uid), "00000000-0000-0000-0000-%012zu", i);
        if (filter(bench, uid, 4096 + (int)draw(bench, 40000), (int)draw(bench, 40), &node) !=
            CLUSTER_PLACED)
            continue;
        settle(bench, uid, strdup(node));
    }
}

static int compare(const void *a, const void *b)
{
    const int64_t *left = a, *right = b;

    return (*left > *right) - (*left < *right);
}

static int64_t part(int64_t *times, size_t count, double which)
{
    qsort(times, count, sizeof(times[0]), compare);
    return times[(size_t)((double)(count - 1) * which)];
}

static void measure(struct bench *bench, size_t rounds)
{
    int64_t *placed = calloc(rounds, sizeof(*placed)), *refused = calloc(rounds, sizeof(*refused));
    int64_t *settled = calloc(rounds, sizeof(*settled));

    for (size_t i = 0; i < rounds; i++) {
        const char *node;
        int64_t begun = clock_now_ns();

        if (filter(bench, "the-one", 1024 + (int)draw(bench, 8000), (int)draw(bench, 10), &node) !=
            CLUSTER_PLACED)
            abort();
        placed[i] = clock_now_ns() - begun;
        begun = clock_now_ns();
        settle(bench, "the-one", node);
        settled[i] = clock_now_ns() - begun;
        cluster_delete_pod(bench->cluster, "the-one");

        begun = clock_now_ns();
        if (i < 100 && filter(bench, "too-much", 2 * CARD_MIB, 0, NULL) != CLUSTER_REFUSED)
            abort();
        refused[i] = clock_now_ns() - begun;
    }
    printf("%lld\n%lld\n%lld\n%lld\n", (long long)part(placed, rounds, 0.5),
           (long long)part(placed, rounds, 0.99), (long long)part(refused, MIN(rounds, 100u), 0.5),
           (long long)part(settled, rounds, 0.5));
}

/* Of the processor: what else runs on the machine is not counted. */
static int64_t spent_ns(void)
{
    return clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

/* Nodes have on most cards less room than that, and on some of them more. */
static bool refuse_eight(struct bench *bench, const char *uid, int less)
{
    int r = filter_cards(bench, uid, CARDS, CARD_MIB - 8192 - less, 0, NULL);

    if (r != CLUSTER_REFUSED && r != CLUSTER_PLACED)
        abort();
    return r == CLUSTER_REFUSED;
}

static void measure_eight(struct bench *bench)
{
    int64_t times[100];

    for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
        int64_t begun = spent_ns();

        if (!refuse_eight(bench, "eight", (int)i))
            abort();
        times[i] = spent_ns() - begun;
    }
    printf("%lld\n", (long long)part(times, ARRAY_SIZE(times), 0.5));
}

static int64_t ask_all(struct bench *bench, int demands)
{
    int64_t begun = spent_ns();

    for (int i = 0; i < PENDING; i++) {
        char uid[64];

        (void)snprintf(uid, sizeof(uid), "pending-%d", i);
        (void)refuse_eight(bench, uid, 200 + i % demands);
    }
    return spent_ns() - begun;
}

static void measure_pending(struct bench *bench, int demands, size_t gone)
{
    char uid[64];

    (void)ask_all(bench, demands);
    (void)snprintf(uid, sizeof(uid), "00000000-0000-0000-0000-%012zu", gone);
    cluster_delete_pod(bench->cluster, uid);
    printf("%lld\n", (long long)ask_all(bench, demands));
}

/* Cards of one half of a node are connected well, and the halves are not; one node of the cluster.
 */
static void add_scores(struct bench *bench, size_t number)
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

static int64_t time_filters(struct bench *bench, int count, int mib, int wanted)
{
    int64_t times[200];

    for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
        int64_t begun = clock_now_ns();

        if (filter_cards(bench, "the-one", count, mib + (int)i, 0, NULL) != wanted)
            abort();
        times[i] = clock_now_ns() - begun;
    }
    return part(times, ARRAY_SIZE(times), 0.5);
}

static void measure_connected(struct bench *bench)
{
    for (size_t i = 0; i < bench->count; i++)
        add_scores(bench, i);
    bench->policy = "topology-aware";
    printf("%lld\n", (long long)time_filters(bench, 4, 1024, CLUSTER_PLACED));
    bench->policy = NULL;
}

static void measure_quota(struct bench *bench)
{
    struct resource hard = {
        .name = "limits.nvidia.com/gpumem", .text = "", .quantity = {QUANTITY_WHOLE, 8192}};
    const struct quota quota = {"bounded", "q", {&hard, 1}};

    if (cluster_set_quota(bench->cluster, &quota, NULL) < 0)
        abort();
    bench->namespace = "bounded";
    printf("%lld\n", (long long)time_filters(bench, 1, 1024, CLUSTER_PLACED));
    printf("%lld\n", (long long)time_filters(bench, 1, 8193, CLUSTER_REFUSED));
    bench->namespace = NULL;
}

/* The vendors of a file, or NVIDIA alone. */
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

int main(int argc, char **argv)
{
    static struct bench bench = {.random = 88172645463325252};
    struct cluster_options options = {.vendors = &bench.vendors,
                                      .defaults = {.node_order = PLACE_SPREAD}};
    size_t pods, bytes;

    if (argc != 4 && argc != 5)
        return 2;
    bench.count = strtoul(argv[1], NULL, 10);
    pods = strtoul(argv[2], NULL, 10);
    make_vendors(&bench, argv[4]);
    bench.cluster = cluster_new(&options);
    bench.arena = arena_new(1u << 30);
    bench.names = calloc(bench.count, sizeof(*bench.names));
    bench.text = calloc(bench.count, NAME_SIZE);

    cluster_begin(bench.cluster, CLUSTER_NODES);
    for (size_t i = 0; i < bench.count; i++)
        add_node(&bench, i);
    cluster_complete(bench.cluster, CLUSTER_NODES);
    cluster_begin(bench.cluster, CLUSTER_PODS);
    cluster_complete(bench.cluster, CLUSTER_PODS);
    place_pods(&bench, pods);
    measure(&bench, strtoul(argv[3], NULL, 10));
    measure_eight(&bench);
    measure_pending(&bench, 1, 1);
    measure_pending(&bench, DEMANDS, 2);
    bytes = mallinfo2().uordblks;
    measure_connected(&bench);
    measure_quota(&bench);
    printf("%zu\n", bytes);
    return 0;
}
