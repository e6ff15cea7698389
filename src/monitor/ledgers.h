/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the slots of processes said that these hold of a card, over the last looks. The driver is
 * asked before the slots are read, and how long that takes is for tenants to say: whoever takes
 * memory and gives it back again and again would be seen to hold more than its slot says. So what
 * NVML says is held against the most of some looks.
 */

#include <stdint.h>
#include <sys/types.h>

#define LEDGERS_NS (INT64_C(10) * 1000000000) /* until an amount is forgotten, at the latest */

struct ledger_row;

struct ledgers {
    struct ledger_row *rows; /* NULL: none */
};

/*
 * The most that the slot of this process said of this card in the last half of LEDGERS_NS or more,
 * the bytes that it says now included. Without memory these.
 */
uint64_t ledgers_most(struct ledgers *ledgers, pid_t pid, uint64_t start_ticks, const char *uuid,
                      uint64_t bytes, int64_t now_ns);

/* Forgets those of whom nothing was said since LEDGERS_NS ago. */
void ledgers_forget_old(struct ledgers *ledgers, int64_t now_ns);

void ledgers_deinit(struct ledgers *ledgers);
