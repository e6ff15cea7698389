/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/limiter/costs.h"

#include <string.h>

#include "base/util.h"

enum {
    NEIGHBOURS = 8,  /* looked at for a line */
    KNOWN_AFTER = 3, /* measurements until a shape is believed */
    MEMORY = 64,     /* measurements that the mean remembers */
    SQUARE_MEMORY = 1024,
    ALONE_MEMORY = 16,
    FEW = 16,   /* after so few measurements each launch is measured, after n one in n / FEW, */
    MANY = 512, /* until there are so many */
    PRIOR = 16, /* measurements until a shape stands for itself and not for its function */
};

static uint64_t hash_of(const struct launch *launch)
{
    uint64_t hash = (uint64_t)(uintptr_t)launch->function;

    for (unsigned i = 0; i < 3; i++)
        hash = (hash ^ launch->grid[i] ^ (uint64_t)launch->block[i] << 32) *
               UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static bool cost_is_of(const struct cost *cost, const struct launch *launch)
{
    return cost->function == launch->function &&
           memcmp(cost->grid, launch->grid, sizeof(cost->grid)) == 0 &&
           memcmp(cost->block, launch->block, sizeof(cost->block)) == 0;
}

struct cost *costs_of(struct costs *costs, const struct launch *launch)
{
    uint64_t hash = hash_of(launch);
    struct cost *least = NULL;

    for (unsigned i = 0; i < NEIGHBOURS; i++) {
        struct cost *cost = &costs->lines[(hash + i) % COSTS_LINES];

        if (cost_is_of(cost, launch))
            return cost;
        if (!least || (least->function && (!cost->function || cost->measured < least->measured)))
            least = cost;
    }

    *least = (struct cost){.function = launch->function};
    memcpy(least->grid, launch->grid, sizeof(least->grid));
    memcpy(least->block, launch->block, sizeof(least->block));
    return least;
}

double cost_expected(const struct cost *cost)
{
    return cost->measured ? cost->mean_ns : COSTS_FIRST_NS;
}

bool cost_is_known(const struct cost *cost)
{
    return cost->measured >= KNOWN_AFTER;
}

bool cost_is_long(const struct cost *cost)
{
    return cost->measured && cost->square >= COSTS_ALWAYS_NS * COSTS_ALWAYS_NS;
}

/* NULL when there is none yet. */
static const struct cost *find(const struct costs *costs, const struct launch *launch)
{
    uint64_t hash = hash_of(launch);

    for (unsigned i = 0; i < NEIGHBOURS; i++) {
        const struct cost *cost = &costs->lines[(hash + i) % COSTS_LINES];

        if (cost_is_of(cost, launch))
            return cost;
    }
    return NULL;
}

/* All shapes of a function together: the line of the shape that no launch has. */
static struct launch any_shape(const void *function)
{
    return (struct launch){.function = function, .grid = {0, 0, 1}};
}

static double root_mean_square(const struct costs *costs, const struct cost *cost)
{
    struct launch launch = any_shape(cost->function);
    const struct cost *all = cost->measured < PRIOR ? find(costs, &launch) : NULL;

    /* A new shape of a function that was long in another may be long as well. */
    return __builtin_sqrt(all ? MAX(cost->square, all->square) : cost->square);
}

double cost_risk_ns(const struct costs *costs, const struct cost *cost)
{
    double root, least_ns;

    if (!cost_is_known(cost) || cost_is_long(cost))
        return 0;
    root = root_mean_square(costs, cost);
    least_ns = cost->measured < MANY ? COSTS_GAP_NS * FEW / cost->measured : COSTS_LEAST_NS;
    return root >= COSTS_ALWAYS_NS ? 0 : MAX(root, least_ns);
}

/* Also where each is measured by now: this one was drawn when that was not so. */
bool cost_is_doubtful(const struct cost *cost, double length_ns)
{
    return cost_is_known(cost) && length_ns > 1.5 * cost->mean_ns + 20e3;
}

static void learn_square(struct cost *cost, double length_ns)
{
    double weight = 1.0 / MIN(cost->measured + 1, (unsigned)SQUARE_MEMORY);

    cost->square += weight * (length_ns * length_ns - cost->square);
}

void cost_learn_alone(struct cost *cost, double length_ns)
{
    float length = (float)length_ns;

    cost->alone_ns += cost->alone_ns ? (length - cost->alone_ns) / ALONE_MEMORY : length;
}

bool costs_learn(struct costs *costs, struct cost *cost, double length_ns)
{
    struct launch all = any_shape(cost->function);
    double before = cost->mean_ns;
    struct cost *function;

    cost->mean_ns += (length_ns - cost->mean_ns) / MIN(cost->measured + 1, (unsigned)MEMORY);
    cost->mean_ns = MAX(cost->mean_ns, COSTS_LEAST_NS);
    learn_square(cost, length_ns);
    cost->measured += cost->measured < INT32_MAX;
    cost->unseen = 0;

    /* A full neighbourhood may give the function the shape's own line. */
    function = costs_of(costs, &all);
    if (function != cost) {
        learn_square(function, length_ns);
        function->measured += function->measured < INT32_MAX;
    }
    return cost->mean_ns > 1.05 * before || cost->mean_ns < 0.95 * before;
}
