/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Who uses a card past the library: what the driver says that each process of the node holds and
 * does, against what its pod was given and its slots say. No I/O, no clock.
 *
 * What is believed: NVML's list, the kernel's word on whose a process is (its cgroup) and who holds
 * a slot's lock, and the limits files, which are the node's. A slot's amounts are the tenant's to
 * write; they can only accuse him. So, for each card:
 *
 *   NOT_GIVEN  a process of a pod that was not given the card holds memory there
 *   NO_SLOT    a process of a pod that was given it is in no slot of the pod's regions: the library
 *              is not in it, or is not asked
 *   LEDGER     a process holds more than its slot had charged in any of the last looks, by the
 *              slack
 *   MEMORY     the pod's processes together hold more than its containers' limits on the card, by
 *              the slack: whatever their slots say
 *   COMPUTE    the pod's processes together were given more of the card's time, over
 *              BYPASS_COMPUTE_LOOKS looks that are a second apart, than its containers' limits, by
 *              BYPASS_COMPUTE_SLACK points. Not where the pod may use what others leave idle (core
 *              policy "default"): whether others wanted the card then is known from their own
 *              regions alone, and they could accuse a neighbour
 *
 * False alarms. A process takes its slot before its first context, so an honest one is never in
 * NVML's list without a slot; but it may lose its lock (closed descriptors) for a second; one that
 * ends while it is looked at is left out by the caller, who asks for it after the slots were read,
 * so that deaths one after another add up to nothing; what the driver takes for a context,
 * code and heaps is charged right after, about a second later at most; memory of a process that has
 * died is charged to whoever shares it within a second. So a case counts once it lasted
 * BYPASS_GRACE_NS. What it lasted runs down four times as slowly while it is not seen: whoever
 * pauses, or does it by ever new processes, gains nothing. The slack is for what drivers round and
 * is charged by an estimate where a process does not find itself in NVML's list. Memory that NVML
 * can't tell is passed over.
 *
 * Processes of the node itself (in no pod) are counted and nothing else: MPS servers, persistenced,
 * DCGM on the host. Pods of namespaces that are exempt are passed over by the caller.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "monitor/containers.h"

#define BYPASS_GRACE_NS (INT64_C(3) * 1000000000)
#define BYPASS_AGAIN_NS (INT64_C(300) * 1000000000) /* until a case is told of again */
#define BYPASS_SLACK_BYTES (UINT64_C(64) << 20)     /* or a fiftieth of what is allowed */

enum {
    BYPASS_PROCESSES_MAX = 2048, /* of all cards; a driver lists 950 of each */
    BYPASS_GRANTS_MAX = 4096,
    BYPASS_CASES_MAX = 1024,
    BYPASS_COMPUTE_LOOKS = 10,
    BYPASS_COMPUTE_SLACK = 20, /* points */
};

enum bypass_kind {
    BYPASS_NONE = 0,
    BYPASS_NOT_GIVEN,
    BYPASS_NO_SLOT,
    BYPASS_LEDGER,
    BYPASS_MEMORY,
    BYPASS_COMPUTE,
    BYPASS_KINDS,
};

/* "no-slot". */
const char *bypass_word(enum bypass_kind kind);

/* A process on a card. */
struct bypass_process {
    pid_t pid;       /* the host's */
    pid_t inner_pid; /* the same in its own pid namespace; 0: not asked yet; -1: not known */
    uint64_t start_ticks;
    char pod_uid[CONTAINER_UID_SIZE]; /* "": it is in no pod */
    char uuid[LIMITS_UUID_SIZE];      /* of the card */
    uint64_t bytes;                   /* UINT64_MAX: the driver does not tell */
    bool has_slot;
    bool is_sure;    /* it lives, and the slot is its own: by the kernel's word at this look */
    bool has_ledger; /* the slot's amounts are by our ledger */
    uint64_t ledger_bytes; /* the most of some looks: ledgers.h */

    enum bypass_kind kind; /* the judgement; BYPASS_NONE: it is honest */
    bool condemned;        /* it has lasted for the grace */
};

/* What a pod's containers may have of a card, together. */
struct bypass_grant {
    char pod_uid[CONTAINER_UID_SIZE];
    char uuid[LIMITS_UUID_SIZE];
    bool has_limit, has_cores; /* each container has one, and is held to it at all times */
    uint64_t limit_bytes;
    unsigned cores;
};

/* What a pod was given of a card's time since the last look that had any. */
struct bypass_time {
    char pod_uid[CONTAINER_UID_SIZE];
    char uuid[LIMITS_UUID_SIZE];
    unsigned percent;
};

struct bypass_look {
    int64_t now_ns;
    struct bypass_process *processes;
    size_t process_count;
    const struct bypass_grant *grants;
    size_t grant_count;
    bool has_times; /* a second has gone since they were last there */
    const struct bypass_time *times;
    size_t time_count;
};

/* One kind of bypass by one pod on one card. */
struct bypass_case {
    enum bypass_kind kind;
    char pod_uid[CONTAINER_UID_SIZE];
    char uuid[LIMITS_UUID_SIZE];
    pid_t pid;              /* of the worst process; 0: none alone */
    uint64_t held, allowed; /* bytes; percent */
    int64_t lasted_ns;
    bool seen;                /* in this look */
    bool lasts;               /* it counts */
    bool counted;             /* the caller's; false again once it does not last */
    int64_t told_ns;          /* the caller's; 0: not yet */
    unsigned looks, percents; /* COMPUTE: summed up */
};

struct bypass {
    int64_t looked_ns; /* 0: not yet */
    size_t count;
    struct bypass_case cases[BYPASS_CASES_MAX];
    size_t own; /* processes of the node itself at the last look */
};

/* Judges the processes of a look, and brings the cases up to date. */
void bypass_judge(struct bypass *bypass, struct bypass_look *look);

/* Whether a case is to be told of now; if so it is noted. */
bool bypass_take_news(struct bypass_case *item, int64_t now_ns);
