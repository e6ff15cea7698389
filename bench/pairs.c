/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What other vendors' sections cost: the same decisions over two made clusters, one that knows
 * NVIDIA alone and one that knows all vendors of a device configuration, by turns, so that whatever
 * else goes on meets both alike. Then a cluster with nodes of three vendors. Prints a line each:
 * what, the median of the one and of the other in ns; of the mixed cluster the median alone.
 *
 * usage: pairs NODES PODS ROUNDS DEVICE-CONFIG   which has NVIDIA's usual names
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/util.h"
#include "made.h"

enum {
    ROUNDS_MAX = 10000,
};

static size_t rounds;

/* One decision, timed. */
static int64_t time_one(struct bench *bench, int count, int mib, int wanted)
{
    const int64_t begun = clock_now_ns();
    const int r = made_filter(bench, "the-one", count, mib, 0, NULL);
    const int64_t taken = clock_now_ns() - begun;

    if (r != wanted)
        abort();
    return taken;
}

static void compare(const char *what, struct bench *alone, struct bench *all, int count, int mib,
                    int wanted)
{
    static int64_t first[ROUNDS_MAX], second[ROUNDS_MAX];

    for (size_t i = 0; i < rounds; i++) {
        /* Each is the first by turns. */
        struct bench *a = i % 2 ? all : alone, *b = i % 2 ? alone : all;
        int64_t a_ns = time_one(a, count, mib + (int)i, wanted);
        int64_t b_ns = time_one(b, count, mib + (int)i, wanted);

        first[i] = i % 2 ? b_ns : a_ns;
        second[i] = i % 2 ? a_ns : b_ns;
    }
    printf("%s\t%lld\t%lld\n", what, (long long)made_part(first, rounds, 0.5),
           (long long)made_part(second, rounds, 0.5));
}

static void for_both(struct bench *alone, struct bench *all, const char *policy,
                     const char *namespace)
{
    alone->policy = all->policy = policy;
    alone->namespace = all->namespace = namespace;
}

static void bound(struct bench *bench)
{
    struct resource hard = {
        .name = "limits.nvidia.com/gpumem", .text = "", .quantity = {QUANTITY_WHOLE, 20000}};
    const struct quota quota = {"bounded", "q", {&hard, 1}};

    if (cluster_set_quota(bench->cluster, &quota, NULL) < 0)
        abort();
}

static void compare_all(struct bench *alone, struct bench *all)
{
    compare("a part of a card", alone, all, 1, 1024, CLUSTER_PLACED);
    compare("two cards", alone, all, 2, 1024, CLUSTER_PLACED);
    compare("refused, eight cards", alone, all, CARDS, CARD_MIB - 8192 - (int)rounds,
            CLUSTER_REFUSED);
    bound(alone);
    bound(all);
    for_both(alone, all, NULL, "bounded");
    compare("within a quota", alone, all, 1, 1024, CLUSTER_PLACED);
    compare("refused by a quota", alone, all, 1, 20001, CLUSTER_REFUSED);
    for (size_t i = 0; i < alone->count; i++) {
        made_add_scores(alone, i);
        made_add_scores(all, i);
    }
    for_both(alone, all, "topology-aware", NULL);
    compare("four of eight cards, connected best", alone, all, 4, 1024, CLUSTER_PLACED);
    for_both(alone, all, NULL, NULL);
}

static void measure_mixed(struct bench *mixed)
{
    static const char *const words[MADE_KINDS] = {"NVIDIA", "Hygon", "Ascend"};
    static int64_t times[ROUNDS_MAX];

    for (int refused = 0; refused < 2; refused++) {
        for (enum made_kind kind = 0; kind < MADE_KINDS; kind++) {
            mixed->kind = kind;
            for (size_t i = 0; i < rounds; i++)
                times[i] = time_one(mixed, refused ? CARDS + 1 : 1, 1024 + (int)i,
                                    refused ? CLUSTER_REFUSED : CLUSTER_PLACED);
            printf("three vendors' nodes, %s%s\t%lld\n", words[kind], refused ? ", refused" : "",
                   (long long)made_part(times, rounds, 0.5));
        }
    }
}

int main(int argc, char **argv)
{
    static struct bench alone, all, mixed = {.is_mixed = true};
    size_t nodes, pods;

    if (argc != 5)
        return 2;
    nodes = strtoul(argv[1], NULL, 10);
    pods = strtoul(argv[2], NULL, 10);
    rounds = MIN(strtoul(argv[3], NULL, 10), (unsigned long)ROUNDS_MAX);
    made_cluster(&alone, nodes, pods, NULL);
    made_cluster(&all, nodes, pods, argv[4]);
    compare_all(&alone, &all);
    made_cluster(&mixed, nodes, pods, argv[4]);
    measure_mixed(&mixed);
    return 0;
}
