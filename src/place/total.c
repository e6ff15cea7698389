/* SPDX-License-Identifier: Apache-2.0 */
#include "base/util.h"
#include "place/fit.h"
#include "place/place.h"

/* Whatever is asked for, sums must not wrap round. */
#define MOST_MIB ((uint64_t)INT64_MAX / 2)

static uint64_t add_mib(uint64_t sum, uint64_t mib)
{
    return MIN(sum + MIN(mib, MOST_MIB), MOST_MIB);
}

/* A percentage of a card that is not chosen yet may be as good as nothing. */
static struct place_total least_of(const struct container_demand *container,
                                   const struct device_vendor *vendor)
{
    struct place_total total = {.vendor = vendor};

    for (size_t i = 0; i < container->request_count; i++) {
        const struct request *request = &container->requests[i];
        const uint64_t mib = (request->memory_bytes + MIB - 1) / MIB;

        if (request->vendor != vendor || rules_of(vendor)->want || !request->count)
            continue;
        total.memory_mib =
            add_mib(total.memory_mib, request->count * MIN(mib, MOST_MIB / request->count));
        total.cores += (uint64_t)request->count * MIN(request->cores, (unsigned)DEVICE_CORES);
    }
    return total;
}

struct place_total place_demand_total(const struct demand *demand,
                                      const struct device_vendor *vendor)
{
    struct place_total most = {.vendor = vendor}, running = {0};

    for (size_t i = 0; i < demand->count; i++) {
        const struct place_total least = least_of(&demand->containers[i], vendor);

        most.memory_mib = MAX(most.memory_mib, add_mib(running.memory_mib, least.memory_mib));
        most.cores = MAX(most.cores, running.cores + least.cores);
        if (demand->containers[i].role == CONTAINER_INIT)
            continue;
        running.memory_mib = add_mib(running.memory_mib, least.memory_mib);
        running.cores += least.cores;
    }
    return most;
}
