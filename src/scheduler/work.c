/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the policy scarcity has to do between decisions: a little in each turn of the loop, so that
 * no request waits for it. While something is left, the loop does not sleep.
 */

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "model/keys.h"
#include "scheduler/scheduler.h"

#define TURN_NS (200 * NS_PER_US)

static void on_idle(uv_idle_t *idle)
{
    (void)idle;
}

static void on_turn(uv_check_t *turn)
{
    struct scheduler *scheduler = turn->data;
    const int64_t end_ns = clock_now_ns() + TURN_NS;
    bool more = true;

    while (more && clock_now_ns() < end_ns)
        more = cluster_work(scheduler->cluster, 1);
    if (more)
        (void)uv_idle_start(&scheduler->work.idle, on_idle);
    else
        (void)uv_idle_stop(&scheduler->work.idle);
}

bool work_has_view(const struct scheduler *scheduler)
{
    return strcmp(scheduler->options.node_policy, "scarcity") == 0;
}

void work_start(struct scheduler *scheduler)
{
    (void)uv_idle_init(&scheduler->loop, &scheduler->work.idle);
    (void)uv_check_init(&scheduler->loop, &scheduler->work.turn);
    scheduler->work.turn.data = scheduler;
    if (work_has_view(scheduler))
        (void)uv_check_start(&scheduler->work.turn, on_turn);
}

void work_stop(struct scheduler *scheduler)
{
    uv_close((uv_handle_t *)&scheduler->work.idle, NULL);
    uv_close((uv_handle_t *)&scheduler->work.turn, NULL);
}

void work_note_policy(struct scheduler *scheduler, const struct pod *pod)
{
    const char *policy = text_pairs_get(&pod->annotations, KEY_NODE_POLICY);

    if (scheduler->work.said || !policy || strcmp(policy, "scarcity") != 0 ||
        work_has_view(scheduler))
        return;
    scheduler->work.said = true;
    log_warn("pod %s/%s asks for the policy scarcity, for which there is no view of what pods "
             "request: such pods are placed by binpack, unless --node-scheduler-policy is scarcity",
             pod->namespace, pod->name);
}
