/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What this process holds, by handle: device addresses and modules, each with its size, device and
 * context. Open addressing in anonymous memory of our own, 16 bytes an entry, in shards with a lock
 * each, so that threads seldom meet; what is taken soon after it was added costs the same however
 * many entries there are.
 */

#include <stdbool.h>
#include <stdint.h>

enum live_kind {
    LIVE_ADDRESS,
    LIVE_MODULE,
    LIVE_KINDS,
};

struct live_entry {
    uint64_t units;   /* of LEDGER_UNIT bytes, at most 34 bits */
    unsigned device;  /* place in vgpu.devices */
    unsigned context; /* number from contexts.h */
};

/* False when there is no memory for it. An older entry of that handle is hidden, or replaced. */
bool live_add(enum live_kind kind, uint64_t handle, const struct live_entry *entry);

/* Takes an entry out; false when it is not ours. */
bool live_take(enum live_kind kind, uint64_t handle, struct live_entry *ret_entry);

/* Takes out all entries of a context, and adds up their units. */
void live_take_context(enum live_kind kind, unsigned context, uint64_t *ret_units);
