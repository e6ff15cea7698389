/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/bypass.h"

#include <string.h>

#include "base/util.h"

const char *bypass_word(enum bypass_kind kind)
{
    static const char *const words[BYPASS_KINDS] = {
        [BYPASS_NONE] = "none",     [BYPASS_NOT_GIVEN] = "not-given", [BYPASS_NO_SLOT] = "no-slot",
        [BYPASS_LEDGER] = "ledger", [BYPASS_MEMORY] = "memory",       [BYPASS_COMPUTE] = "compute",
    };

    return words[kind];
}

static const struct bypass_grant *find_grant(const struct bypass_look *look, const char *pod_uid,
                                             const char *uuid)
{
    for (size_t i = 0; i < look->grant_count; i++) {
        if (strcmp(look->grants[i].pod_uid, pod_uid) == 0 &&
            strcmp(look->grants[i].uuid, uuid) == 0)
            return &look->grants[i];
    }
    return NULL;
}

/* A new case takes the place of one that is over, if there is no room. NULL: all of them count. */
static struct bypass_case *get_case(struct bypass *bypass, enum bypass_kind kind,
                                    const char *pod_uid, const char *uuid)
{
    struct bypass_case *item = NULL;

    for (size_t i = 0; i < bypass->count; i++) {
        item = &bypass->cases[i];
        if (item->kind == kind && strcmp(item->pod_uid, pod_uid) == 0 &&
            strcmp(item->uuid, uuid) == 0)
            return item;
    }
    item = NULL;
    if (bypass->count < BYPASS_CASES_MAX)
        item = &bypass->cases[bypass->count++];
    for (size_t i = 0; !item && i < bypass->count; i++) {
        if (!bypass->cases[i].seen && !bypass->cases[i].lasts)
            item = &bypass->cases[i];
    }
    if (!item)
        return NULL;
    *item = (struct bypass_case){.kind = kind};
    COPY_TEXT(item->pod_uid, pod_uid);
    COPY_TEXT(item->uuid, uuid);
    return item;
}

static uint64_t with_slack(uint64_t bytes)
{
    uint64_t slack = MAX(BYPASS_SLACK_BYTES, bytes / 50);

    return bytes > UINT64_MAX - slack ? UINT64_MAX : bytes + slack;
}

static bool has_bytes(const struct bypass_process *process)
{
    return process->bytes != UINT64_MAX;
}

static enum bypass_kind judge_one(const struct bypass_process *process,
                                  const struct bypass_grant *grant)
{
    if (!process->pod_uid[0])
        return BYPASS_NONE;
    if (!grant)
        return BYPASS_NOT_GIVEN;
    if (!process->has_slot)
        return BYPASS_NO_SLOT;
    if (process->has_ledger && has_bytes(process) &&
        process->bytes > with_slack(process->ledger_bytes))
        return BYPASS_LEDGER;
    return BYPASS_NONE;
}

/* The worst of several processes is told of. */
static void see(struct bypass *bypass, enum bypass_kind kind, const struct bypass_process *process,
                uint64_t held, uint64_t allowed)
{
    struct bypass_case *item = get_case(bypass, kind, process->pod_uid, process->uuid);

    if (!item || (item->seen && item->held >= held))
        return;
    item->seen = true;
    item->pid = process->pid;
    item->held = held;
    item->allowed = allowed;
}

static void judge_processes(struct bypass *bypass, struct bypass_look *look)
{
    bypass->own = 0;
    for (size_t i = 0; i < look->process_count; i++) {
        struct bypass_process *process = &look->processes[i];

        process->kind = judge_one(process, find_grant(look, process->pod_uid, process->uuid));
        process->condemned = false;
        bypass->own += !process->pod_uid[0];
        if (process->kind != BYPASS_NONE)
            see(bypass, process->kind, process, has_bytes(process) ? process->bytes : 0,
                process->kind == BYPASS_LEDGER ? process->ledger_bytes : 0);
    }
}

/* Of a pod that exceeds its limit the process that holds most is the one to go. */
static void judge_sum(struct bypass *bypass, struct bypass_look *look,
                      const struct bypass_grant *grant)
{
    struct bypass_process *most = NULL;
    uint64_t sum = 0;

    for (size_t i = 0; i < look->process_count; i++) {
        struct bypass_process *process = &look->processes[i];

        if (!has_bytes(process) || strcmp(process->pod_uid, grant->pod_uid) != 0 ||
            strcmp(process->uuid, grant->uuid) != 0)
            continue;
        sum += process->bytes;
        if (!most || process->bytes > most->bytes)
            most = process;
    }
    if (!most || sum <= with_slack(grant->limit_bytes))
        return;
    see(bypass, BYPASS_MEMORY, most, sum, grant->limit_bytes);
    if (most->kind == BYPASS_NONE)
        most->kind = BYPASS_MEMORY;
}

/* A mean over so many looks: held is the last mean, so that a burst is none. */
static void judge_time(struct bypass *bypass, const struct bypass_look *look,
                       const struct bypass_time *time)
{
    const struct bypass_grant *grant = find_grant(look, time->pod_uid, time->uuid);
    struct bypass_case *item;

    if (!grant || !grant->has_cores)
        return;
    item = get_case(bypass, BYPASS_COMPUTE, time->pod_uid, time->uuid);
    if (!item)
        return;
    item->allowed = grant->cores;
    item->percents += MIN(time->percent, 100u);
    if (++item->looks < BYPASS_COMPUTE_LOOKS)
        return;
    item->held = item->percents / item->looks;
    item->looks = item->percents = 0;
}

static void judge_times(struct bypass *bypass, const struct bypass_look *look)
{
    for (size_t i = 0; look->has_times && i < look->time_count; i++)
        judge_time(bypass, look, &look->times[i]);
    for (size_t i = 0; i < bypass->count; i++) {
        struct bypass_case *item = &bypass->cases[i];

        if (item->kind == BYPASS_COMPUTE)
            item->seen = item->held > item->allowed + BYPASS_COMPUTE_SLACK;
    }
}

/* A pod that uses no time any more has no samples. */
static void cool_times(struct bypass *bypass, const struct bypass_look *look)
{
    for (size_t i = 0; look->has_times && i < bypass->count; i++) {
        struct bypass_case *item = &bypass->cases[i];
        bool has_sample = item->kind != BYPASS_COMPUTE;

        for (size_t k = 0; !has_sample && k < look->time_count; k++)
            has_sample = strcmp(look->times[k].pod_uid, item->pod_uid) == 0 &&
                         strcmp(look->times[k].uuid, item->uuid) == 0;
        if (!has_sample)
            item->held = item->percents = item->looks = 0;
    }
}

static bool is_over(const struct bypass_case *item, int64_t now_ns)
{
    return !item->seen && !item->lasts && item->lasted_ns == 0 && !item->looks &&
           (!item->told_ns || now_ns - item->told_ns >= BYPASS_AGAIN_NS);
}

/* COMPUTE is a mean over longer than the grace already. */
static void update_case(struct bypass_case *item, int64_t passed_ns)
{
    bool lasted = item->lasts;

    if (item->seen)
        item->lasted_ns = MIN(item->lasted_ns + passed_ns, BYPASS_GRACE_NS);
    else
        item->lasted_ns = MAX(item->lasted_ns - passed_ns / 4, INT64_C(0));
    item->lasts = item->seen &&
                  (item->kind == BYPASS_COMPUTE || lasted || item->lasted_ns >= BYPASS_GRACE_NS);
    item->counted &= item->lasts;
}

static void update_cases(struct bypass *bypass, int64_t now_ns)
{
    /* A look that comes late, as after a driver hung, counts as one of usual distance. */
    int64_t passed_ns =
        bypass->looked_ns ? MIN(now_ns - bypass->looked_ns, BYPASS_GRACE_NS / 3) : 0;
    size_t kept = 0;

    bypass->looked_ns = now_ns;
    for (size_t i = 0; i < bypass->count; i++) {
        update_case(&bypass->cases[i], passed_ns);
        if (is_over(&bypass->cases[i], now_ns))
            continue;
        if (kept != i)
            bypass->cases[kept] = bypass->cases[i];
        kept++;
    }
    bypass->count = kept;
}

static void condemn(const struct bypass *bypass, struct bypass_look *look)
{
    for (size_t i = 0; i < look->process_count; i++) {
        struct bypass_process *process = &look->processes[i];

        for (size_t k = 0; process->kind && !process->condemned && k < bypass->count; k++) {
            const struct bypass_case *item = &bypass->cases[k];

            process->condemned = item->lasts && item->kind == process->kind &&
                                 strcmp(item->pod_uid, process->pod_uid) == 0 &&
                                 strcmp(item->uuid, process->uuid) == 0;
        }
    }
}

void bypass_judge(struct bypass *bypass, struct bypass_look *look)
{
    for (size_t i = 0; i < bypass->count; i++)
        bypass->cases[i].seen = false;
    judge_processes(bypass, look);
    for (size_t i = 0; i < look->grant_count; i++) {
        if (look->grants[i].has_limit)
            judge_sum(bypass, look, &look->grants[i]);
    }
    cool_times(bypass, look);
    judge_times(bypass, look);
    update_cases(bypass, look->now_ns);
    condemn(bypass, look);
}

bool bypass_take_news(struct bypass_case *item, int64_t now_ns)
{
    if (!item->lasts || (item->told_ns && now_ns - item->told_ns < BYPASS_AGAIN_NS))
        return false;
    item->told_ns = now_ns;
    return true;
}
