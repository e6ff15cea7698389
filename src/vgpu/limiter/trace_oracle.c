/* SPDX-License-Identifier: Apache-2.0 */

/* What the device did for the tenants, and an oracle that goes by it. */

#include "base/util.h"
#include "region/bucket.h"
#include "vgpu/limiter/trace_state.h"

double trace_busy_of(const struct process *process)
{
    return process->busy_before_ns + process->world->device.contexts[process->context].busy_ns;
}

double trace_busy_of_tenants(const struct world *world)
{
    double busy = 0;

    for (unsigned i = 0; i < world->tenants; i++)
        busy += trace_busy_of(&world->processes[i]);
    return busy;
}

static double queued_by_tenants(const struct world *world)
{
    double queued = 0;

    for (unsigned i = 0; i < world->tenants; i++) {
        const struct process *process = &world->processes[i];

        for (unsigned j = 0; j < process->program.threads * process->program.streams; j++)
            queued += (double)trace_unfinished(&world->device, process->context, (int)j);
    }
    return queued;
}

/* What is launched and did not run yet, if its streams run side by side: it can't be taken back. */
static double launched_by(const struct process *process)
{
    double most_ns = 0;

    for (unsigned i = 0; i < process->program.threads * process->program.streams; i++)
        most_ns = MAX(most_ns, trace_left_ns(&process->world->device, process->context, (int)i));
    return most_ns;
}

static double launched_by_tenants(const struct world *world)
{
    double launched_ns = 0;

    for (unsigned i = 0; i < world->tenants; i++)
        launched_ns += launched_by(&world->processes[i]);
    return launched_ns;
}

/* Whether some of what a limit earned is left. No more is saved up than a bucket does. */
static bool oracle_has(const struct world *world, double busy_ns, unsigned cores, double longest_ns,
                       double *lost_ns)
{
    const double rate = (double)cores / 100;
    const double most_ns = MAX((double)BUCKET_CREDIT_NS * rate, 2 * longest_ns);
    double left_ns = (double)world->now_ns * rate - *lost_ns - busy_ns;

    *lost_ns += MAX(left_ns - most_ns, 0.0);
    return left_ns > 0;
}

static double longest_of_tenants(const struct world *world)
{
    double longest_ns = 0;

    for (unsigned i = 0; i < world->tenants; i++)
        longest_ns = MAX(longest_ns, world->processes[i].longest_ns);
    return longest_ns;
}

bool trace_oracle_may_go(struct process *process, int64_t *ret_until_ns)
{
    struct world *world = process->world;
    unsigned own = process->program.cores ? process->program.cores : world->cores;
    bool all_have, it_has;

    trace_advance(&world->device, (double)world->now_ns);
    *ret_until_ns = world->now_ns + 100000;
    all_have = oracle_has(world, trace_busy_of_tenants(world) + launched_by_tenants(world),
                          world->cores, longest_of_tenants(world), &world->lost_ns);
    it_has = oracle_has(world, trace_busy_of(process) + launched_by(process), own,
                        process->longest_ns, &process->lost_ns);
    return all_have && it_has && queued_by_tenants(world) < 64;
}
