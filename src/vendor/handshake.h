/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The handshake of HAMi's agents: an annotation of the node (vendor_instance.handshake_key) that
 * the agent writes each half minute or so. HAMi's scheduler asks, "Requesting_TIME", and an agent
 * that wrote nothing for 60 s after it is silent: its devices are not given out, and the scheduler
 * writes "Deleted_TIME". Agents never read it, they write on their own clock.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/* An agent that wrote nothing for so long since it was asked is silent. */
#define HANDSHAKE_SILENT_NS (INT64_C(60) * 1000000000)

enum handshake_state {
    HANDSHAKE_REPORTED = 0, /* the agent's own words, whatever they are; or none */
    HANDSHAKE_ASKED,
    HANDSHAKE_SILENT, /* was asked a minute ago, or it can't be read when */
    HANDSHAKE_DELETED,
    HANDSHAKE_STATES,
};

/* What is made of it. */
enum handshake_verdict {
    HANDSHAKE_ASK = 1, /* there; to be asked whether it still is */
    HANDSHAKE_WAIT,    /* as it was */
    HANDSHAKE_GONE,    /* its devices are not given out; to be written: Deleted */
    HANDSHAKE_STAYS_GONE,
};

/* HAMi's rules differ between releases; the third is ours. */
enum handshake_rule {
    HANDSHAKE_RULE_2_8 = 0,
    HANDSHAKE_RULE_2_10,
    HANDSHAKE_RULE_HERE,
    HANDSHAKE_RULES,
};

/* value NULL: there is none. Times are read as UTC; *ret_asked_ns, with HANDSHAKE_ASKED and
 * HANDSHAKE_SILENT: when it was asked, since 1970; 0: it can't be read. */
enum handshake_state handshake_read(const char *value, int64_t wall_ns, int64_t *ret_asked_ns);

/* counted: kubelet has some of the devices allocatable. */
enum handshake_verdict handshake_judge(enum handshake_state state, bool counted,
                                       enum handshake_rule rule);

enum {
    HANDSHAKE_TEXT_SIZE = 40,
};

/* "Requesting_2026-01-31 12:00:00", "Deleted_...", in UTC. */
const char *handshake_write(const char *word, int64_t wall_ns, char to[static HANDSHAKE_TEXT_SIZE]);
#define HANDSHAKE_REQUESTING "Requesting"
#define HANDSHAKE_DELETED_WORD "Deleted"
