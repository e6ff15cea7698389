/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The scheduler's decision alone, over a made cluster: NODES nodes of 8 cards, PODS pods placed.
 * Prints ns, one line each: placed p50, placed p99, refused p50, bind and its being seen p50,
 * refused p50 where eight cards are asked for and many nodes have some of them, PENDING pods asked
 * for again after a device came free, all together, the same where their demands are DEMANDS
 * different ones; four cards that are connected best, placed p50; placed p50 and refused p50 in a
 * namespace with a quota; then bytes in use.
 *
 * usage: decide NODES PODS ROUNDS
 */

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "made.h"

enum {
    PENDING = 1000,
    DEMANDS = 20,
};

static void measure(struct bench *bench, size_t rounds)
{
    int64_t *placed = calloc(rounds, sizeof(*placed)), *refused = calloc(rounds, sizeof(*refused));
    int64_t *settled = calloc(rounds, sizeof(*settled));

    for (size_t i = 0; i < rounds; i++) {
        const char *node;
        int64_t begun = clock_now_ns();

        if (made_filter(bench, "the-one", 1, 1024 + (int)made_draw(bench, 8000),
                        (int)made_draw(bench, 10), &node) != CLUSTER_PLACED)
            abort();
        placed[i] = clock_now_ns() - begun;
        begun = clock_now_ns();
        made_settle(bench, "the-one", node);
        settled[i] = clock_now_ns() - begun;
        cluster_delete_pod(bench->cluster, "the-one");

        begun = clock_now_ns();
        if (i < 100 && made_filter(bench, "too-much", 1, 2 * CARD_MIB, 0, NULL) != CLUSTER_REFUSED)
            abort();
        refused[i] = clock_now_ns() - begun;
    }
    printf("%lld\n%lld\n%lld\n%lld\n", (long long)made_part(placed, rounds, 0.5),
           (long long)made_part(placed, rounds, 0.99),
           (long long)made_part(refused, MIN(rounds, 100u), 0.5),
           (long long)made_part(settled, rounds, 0.5));
}

/* Of the processor: what else runs on the machine is not counted. */
static int64_t spent_ns(void)
{
    return clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

/* Nodes have on most cards less room than that, and on some of them more. */
static bool refuse_eight(struct bench *bench, const char *uid, int less)
{
    int r = made_filter(bench, uid, CARDS, CARD_MIB - 8192 - less, 0, NULL);

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
    printf("%lld\n", (long long)made_part(times, ARRAY_SIZE(times), 0.5));
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

static int64_t time_filters(struct bench *bench, int count, int mib, int wanted)
{
    int64_t times[200];

    for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
        int64_t begun = clock_now_ns();

        if (made_filter(bench, "the-one", count, mib + (int)i, 0, NULL) != wanted)
            abort();
        times[i] = clock_now_ns() - begun;
    }
    return made_part(times, ARRAY_SIZE(times), 0.5);
}

static void measure_connected(struct bench *bench)
{
    for (size_t i = 0; i < bench->count; i++)
        made_add_scores(bench, i);
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

int main(int argc, char **argv)
{
    static struct bench bench;
    size_t bytes;

    if (argc != 4)
        return 2;
    made_cluster(&bench, strtoul(argv[1], NULL, 10), strtoul(argv[2], NULL, 10), NULL);
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
