/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/compare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/util.h"
#include "driver/nvml.h"
#include "monitor/known.h"
#include "monitor/ledgers.h"
#include "nvml/find.h"
#include "nvml/instances.h"

enum {
    CARDS_MAX = 64,
    LISTED_MAX = 1024, /* processes of a card */
    LOOK_MS = 1000,
    FIRST_MS = 500,
    LATE_TIMES = 10, /* of LOOK_MS */
};

#define TIMES_NS (750 * NS_PER_MS) /* some looks come early */
#define CARDS_NS (10 * NS_PER_S)

/* A pod that has processes on cards. */
struct busy_pod {
    char uid[CONTAINER_UID_SIZE];
    UT_hash_handle hh;
};

struct compare {
    struct compare_options options;
    struct watchdog watchdog;
    struct compare_state state; /* the loop's */

    /* The thread's while it asks, else the loop's. */
    int result;
    struct error err;
    struct nvml *nvml;
    int64_t cards_ns, times_ns; /* of the last reading; 0: none yet */
    uint64_t times_us;          /* the same by the wall clock */
    size_t card_count;
    struct device cards[CARDS_MAX];
    struct busy_pod *pods;
    struct known_processes known;
    struct ledgers ledgers;
    struct bypass_look look;
    bool too_many; /* some grants are missing */
    struct bypass_process processes[BYPASS_PROCESSES_MAX];
    struct bypass_grant grants[BYPASS_GRANTS_MAX];
    struct bypass_time times[BYPASS_GRANTS_MAX];
    struct nvml_process listed[LISTED_MAX];
    int device_count; /* of the card that is being listed: its instances; -1: not asked yet */
    struct nvml_mig_device devices[NVML_INSTANCES_MAX];
    struct nvml_process_time samples[LISTED_MAX];
    struct bypass bypass;
};

const char *compare_procfs(const struct compare *compare)
{
    return compare->options.procfs ? compare->options.procfs : "/proc";
}

/* Processes */

static void note_pod(struct compare *compare, const char *uid)
{
    struct busy_pod *pod;

    HASH_FIND_STR(compare->pods, uid, pod);
    if (pod)
        return;
    pod = calloc(1, sizeof(*pod));
    if (!pod)
        return; /* at the next look again */
    COPY_TEXT(pod->uid, uid);
    HASH_ADD_STR(compare->pods, uid, pod);
}

static void forget_pods(struct compare *compare)
{
    struct busy_pod *pod, *next;

    HASH_ITER(hh, compare->pods, pod, next)
    {
        HASH_DEL(compare->pods, pod);
        free(pod);
    }
}

/* What limits name where a process is: the card, or its instance; NULL: that has gone. */
static const char *uuid_of(struct compare *compare, const struct device *card,
                           const struct nvml_process *listed)
{
    if (!listed->in_instance)
        return card->uuid;
    if (compare->device_count < 0)
        compare->device_count = nvml_list_mig_devices(compare->nvml, card->index, compare->devices,
                                                      NVML_INSTANCES_MAX, NULL);
    for (int i = 0; i < compare->device_count; i++) {
        if (compare->devices[i].gpu_instance == listed->gpu_instance)
            return compare->devices[i].uuid;
    }
    return NULL;
}

/* Processes that have gone meanwhile, or are on their way out, hold nothing for long: those that
 * are new are asked for here, the others once the slots were read. */
static void add_process(struct compare *compare, const struct device *card,
                        const struct nvml_process *listed)
{
    struct bypass_process *process = &compare->processes[compare->look.process_count];
    const char *uuid = uuid_of(compare, card, listed);
    struct process told;

    if (!uuid || compare->look.process_count == BYPASS_PROCESSES_MAX ||
        known_processes_read(&compare->known, compare_procfs(compare), listed->pid, &told) < 0 ||
        told.ends)
        return;
    *process = (struct bypass_process){
        .pid = listed->pid,
        .start_ticks = told.start_ticks,
        .bytes = listed->memory_bytes,
    };
    COPY_TEXT(process->uuid, uuid);
    if (told.in_pod) {
        COPY_TEXT(process->pod_uid, told.pod_uid);
        note_pod(compare, told.pod_uid);
    }
    compare->look.process_count++;
}

static int list_card(struct compare *compare, unsigned index)
{
    const struct device *card = &compare->cards[index];
    int count;

    if (!card->healthy)
        return 0;
    compare->device_count = -1;
    count =
        nvml_list_all_processes(compare->nvml, index, compare->listed, LISTED_MAX, &compare->err);
    for (int i = 0; i < count; i++)
        add_process(compare, card, &compare->listed[i]);
    return MIN(count, 0);
}

/* Slots */

static struct bypass_grant *get_grant(struct compare *compare, const char *pod_uid,
                                      const char *uuid)
{
    struct bypass_look *look = &compare->look;
    struct bypass_grant *grant;

    for (size_t i = 0; i < look->grant_count; i++) {
        grant = &compare->grants[i];
        if (strcmp(grant->pod_uid, pod_uid) == 0 && strcmp(grant->uuid, uuid) == 0)
            return grant;
    }
    if (look->grant_count == BYPASS_GRANTS_MAX)
        return NULL;
    grant = &compare->grants[look->grant_count++];
    *grant = (struct bypass_grant){.has_limit = true, .has_cores = true};
    COPY_TEXT(grant->pod_uid, pod_uid);
    COPY_TEXT(grant->uuid, uuid);
    return grant;
}

static void add_grants(struct compare *compare, const struct container_use *use)
{
    for (unsigned i = 0; i < use->card_count; i++) {
        const struct container_card *card = &use->cards[i];
        struct bypass_grant *grant = get_grant(compare, use->pod_uid, card->uuid);

        if (!grant) {
            compare->too_many = true;
            return;
        }
        grant->has_limit &= card->limit_bytes != 0;
        grant->has_cores &= !use->borrows && card->cores != 0 && card->cores < DEVICE_CORES;
        grant->limit_bytes += MIN(card->limit_bytes, UINT64_MAX - grant->limit_bytes);
        grant->cores += card->cores;
    }
}

/*
 * Whether a slot is a process'. Without the kernel's word (the lock was lost for a moment) what the
 * slot says of itself has to do: a pid and the time of the start, as the process itself sees them.
 */
static bool is_slot_of(const struct compare *compare, const struct region_view_process *slot,
                       struct bypass_process *process)
{
    if (slot->is_sure)
        return slot->host_pid == process->pid;
    if (slot->start_ticks && slot->start_ticks != process->start_ticks)
        return false;
    if (slot->told_pid == process->pid)
        return true;
    if (!process->inner_pid) {
        process->inner_pid = process_inner_pid(compare_procfs(compare), process->pid);
        process->inner_pid = process->inner_pid ? process->inner_pid : -1;
    }
    return process->inner_pid > 0 && slot->pid == process->inner_pid;
}

static uint64_t ledger_of(const struct region_view *view, const struct region_view_process *slot,
                          const char *uuid)
{
    for (unsigned i = 0; i < view->device_count; i++) {
        if (strcmp(view->devices[i].uuid, uuid) == 0)
            return slot->used[i].total;
    }
    return 0;
}

static void match_slot(struct compare *compare, const char *pod_uid, const char *region_path,
                       const struct region_view *view, const struct region_view_process *slot)
{
    for (size_t i = 0; i < compare->look.process_count; i++) {
        struct bypass_process *process = &compare->processes[i];

        if (strcmp(process->pod_uid, pod_uid) != 0 || !is_slot_of(compare, slot, process))
            continue;
        process->has_slot = true;
        process->is_sure = slot->is_sure && slot->start_ticks == process->start_ticks;
        process->has_ledger = slot->has_account;
        process->ledger_bytes =
            ledgers_most(&compare->ledgers, process->pid, process->start_ticks, process->uuid,
                         ledger_of(view, slot, process->uuid), compare->look.now_ns);
        if (slot->is_sure && slot->told_pid != process->pid)
            (void)region_tell_host_pid(region_path, slot->slot, process->pid);
    }
}

static bool is_wanted(void *data, const char *pod_uid)
{
    const struct compare *compare = data;
    struct busy_pod *pod;

    HASH_FIND_STR(compare->pods, pod_uid, pod);
    return pod != NULL;
}

static void visit(void *data, const struct container_use *use, const char *region_path,
                  const struct region_view *view)
{
    struct compare *compare = data;

    add_grants(compare, use);
    for (unsigned i = 0; view && i < view->process_count; i++)
        match_slot(compare, use->pod_uid, region_path, view, &view->processes[i]);
}

/* If not, its number may be another one's by now. */
static bool still_lives(struct compare *compare, const struct bypass_process *process)
{
    struct process told;

    if (process_read(compare_procfs(compare), process->pid, &told) == 0 && !told.ends &&
        told.start_ticks == process->start_ticks)
        return true;
    known_processes_forget(&compare->known, process->pid);
    return false;
}

/*
 * A slot and its lock go with their process. So one that holds none, and lived when the driver
 * listed it, is asked for now that the slots were read: had it ended meanwhile it would be accused
 * for it, and deaths one after another would add up to a bypass that lasts.
 */
static void drop_ended(struct compare *compare)
{
    struct bypass_look *look = &compare->look;
    size_t kept = 0;

    for (size_t i = 0; i < look->process_count; i++) {
        const struct bypass_process *process = &compare->processes[i];

        if (process->pod_uid[0] && !process->is_sure && !still_lives(compare, process))
            continue;
        compare->processes[kept++] = *process;
    }
    look->process_count = kept;
}

/* Of one whose number was another's before, in a slot that says that one's start, the start has to
 * be known: it could not be ended. */
static void check_accused(struct compare *compare)
{
    for (size_t i = 0; i < compare->look.process_count; i++) {
        const struct bypass_process *process = &compare->processes[i];

        if (process->kind != BYPASS_NONE)
            (void)still_lives(compare, process);
    }
}

/* Time */

static const struct bypass_process *find_process(const struct compare *compare, pid_t pid,
                                                 const char *uuid)
{
    for (size_t i = 0; i < compare->look.process_count; i++) {
        if (compare->processes[i].pid == pid && strcmp(compare->processes[i].uuid, uuid) == 0)
            return &compare->processes[i];
    }
    return NULL;
}

static void add_time(struct compare *compare, const struct bypass_process *process,
                     unsigned percent)
{
    struct bypass_look *look = &compare->look;
    struct bypass_time *time;

    for (size_t i = 0; i < look->time_count; i++) {
        time = &compare->times[i];
        if (strcmp(time->pod_uid, process->pod_uid) == 0 &&
            strcmp(time->uuid, process->uuid) == 0) {
            time->percent += percent;
            return;
        }
    }
    if (look->time_count == BYPASS_GRANTS_MAX)
        return;
    time = &compare->times[look->time_count++];
    *time = (struct bypass_time){.percent = percent};
    COPY_TEXT(time->pod_uid, process->pod_uid);
    COPY_TEXT(time->uuid, process->uuid);
}

static void read_times(struct compare *compare)
{
    int64_t now_ns = clock_now_ns();
    uint64_t since_us = compare->times_us;

    compare->look.has_times = now_ns - compare->times_ns >= TIMES_NS;
    if (!compare->look.has_times)
        return;
    compare->times_ns = now_ns;
    compare->times_us = (uint64_t)clock_read_ns(CLOCK_REALTIME) / 1000;
    for (unsigned i = 0; since_us && i < compare->card_count; i++) {
        int count =
            nvml_read_process_times(compare->nvml, i, since_us, compare->samples, LISTED_MAX);

        for (int k = 0; k < count; k++) {
            const struct bypass_process *process =
                find_process(compare, compare->samples[k].pid, compare->cards[i].uuid);

            if (process && process->pod_uid[0])
                add_time(compare, process, compare->samples[k].percent);
        }
    }
}

/* Looking */

static int read_cards(struct compare *compare)
{
    int64_t now_ns = clock_now_ns();
    int count;

    if (compare->cards_ns && now_ns - compare->cards_ns < CARDS_NS)
        return 0;
    count = nvml_list(compare->nvml, compare->cards, CARDS_MAX, &compare->err);
    if (count < 0)
        return count;
    compare->card_count = (size_t)count;
    compare->cards_ns = now_ns;
    return 0;
}

/* A card that fails is passed over; the others are looked at. */
static int list_cards(struct compare *compare)
{
    int r = 0;

    if (!compare->options.procfs && !process_sees_host())
        return error_set(&compare->err, -EPERM,
                         "the pids of other containers are not seen here (hostPID)");
    if (!compare->nvml)
        r = nvml_find(compare->options.driver_root, driver_usual_roots, &compare->nvml,
                      &compare->err);
    if (r == 0)
        r = read_cards(compare);
    if (r < 0)
        return r;
    compare->look = (struct bypass_look){
        .now_ns = clock_now_ns(),
        .processes = compare->processes,
        .grants = compare->grants,
        .times = compare->times,
    };
    compare->too_many = false;
    forget_pods(compare);
    for (unsigned i = 0; i < compare->card_count; i++) {
        if (list_card(compare, i) < 0)
            compare->cards_ns = 0; /* to be read anew */
    }
    known_processes_forget_unseen(&compare->known);
    read_times(compare);
    return 0;
}

static void ask(void *data)
{
    struct compare *compare = data;

    compare->err.text[0] = '\0';
    compare->result = list_cards(compare);
}

/* Where what was given is not all known nobody is accused. */
static int look(struct compare *compare)
{
    const struct containers_visitor visitor = {is_wanted, visit, compare};
    const bool is_listed = compare->result == 0;
    struct error err = ERROR_INIT;
    int r;

    r = compare->options.look(compare->options.data, is_listed ? &visitor : NULL, &err);
    if (!is_listed)
        return compare->result;
    if (r == 0 && compare->too_many)
        r = error_set(&err, -E2BIG, "pods that use the cards were given more than %d of them",
                      BYPASS_GRANTS_MAX);
    if (r < 0) {
        compare->err = err;
        return r;
    }
    ledgers_forget_old(&compare->ledgers, compare->look.now_ns);
    drop_ended(compare);
    bypass_judge(&compare->bypass, &compare->look);
    check_accused(compare);
    return 0;
}

static void on_listed(void *data)
{
    struct compare *compare = data;
    struct compare_state *state = &compare->state;
    int r = look(compare);

    if (r < 0 && strcmp(compare->err.text, state->why.text) != 0)
        log_warn("who uses the cards is not compared with what was given: %s", compare->err.text);
    state->up = r == 0;
    state->why = compare->err;
    if (!state->up)
        return;
    state->looked_ns = clock_now_ns();
    compare->options.done(compare->options.data, &compare->bypass, &compare->look);
}

static void on_late(void *data)
{
    struct compare *compare = data;

    compare->state.up = false;
    (void)error_set(&compare->state.why, -ETIMEDOUT, "NVML does not answer");
    log_warn("NVML does not answer; nobody watches who uses the cards");
}

static const struct watchdog_ops ops = {.ask = ask, .done = on_listed, .late = on_late};

struct compare *compare_new(uv_loop_t *loop, const struct compare_options *options)
{
    struct watchdog_options watchdog = {
        .ops = &ops,
        .first_ms = FIRST_MS,
        .period_ms = LOOK_MS,
        .late_periods = LATE_TIMES,
    };
    struct compare *compare = calloc(1, sizeof(*compare));

    if (!compare)
        return NULL;
    compare->options = *options;
    watchdog.data = compare;
    watchdog_start(&compare->watchdog, loop, &watchdog);
    return compare;
}

void compare_stop(struct compare *compare)
{
    if (compare)
        watchdog_stop(&compare->watchdog);
}

void compare_free(struct compare *compare)
{
    if (!compare)
        return;
    forget_pods(compare);
    known_processes_deinit(&compare->known);
    ledgers_deinit(&compare->ledgers);
    nvml_close(compare->nvml);
    free(compare);
}

bool compare_is_asking(const struct compare *compare)
{
    return compare->watchdog.asking;
}

void compare_read_state(const struct compare *compare, struct compare_state *ret_state)
{
    *ret_state = compare->state;
}
