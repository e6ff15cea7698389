/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/ledgers.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/util.h"
#include "region/limits.h"

struct ledger_key {
    uint64_t start_ticks;
    int64_t pid;
    char uuid[LIMITS_UUID_SIZE];
};

struct ledger_row {
    struct ledger_key key;
    int64_t half;                      /* of LEDGERS_NS: the last one in which something was said */
    uint64_t most_bytes, before_bytes; /* the most in it, and in the one before */
    UT_hash_handle hh;
};

static struct ledger_row *get_row(struct ledgers *ledgers, const struct ledger_key *key)
{
    struct ledger_row *row;

    HASH_FIND(hh, ledgers->rows, key, sizeof(*key), row);
    if (row)
        return row;
    row = calloc(1, sizeof(*row));
    if (!row)
        return NULL;
    row->key = *key;
    HASH_ADD(hh, ledgers->rows, key, sizeof(row->key), row);
    return row;
}

uint64_t ledgers_most(struct ledgers *ledgers, pid_t pid, uint64_t start_ticks, const char *uuid,
                      uint64_t bytes, int64_t now_ns)
{
    const int64_t half = now_ns / (LEDGERS_NS / 2);
    struct ledger_key key;
    struct ledger_row *row;

    memset(&key, 0, sizeof(key)); /* all of it is compared */
    key.pid = pid;
    key.start_ticks = start_ticks;
    COPY_TEXT(key.uuid, uuid);
    row = get_row(ledgers, &key);
    if (!row)
        return bytes;
    if (row->half != half) {
        row->before_bytes = row->half == half - 1 ? row->most_bytes : 0;
        row->most_bytes = 0;
        row->half = half;
    }
    row->most_bytes = MAX(row->most_bytes, bytes);
    return MAX(row->most_bytes, row->before_bytes);
}

static void forget(struct ledgers *ledgers, int64_t before_half)
{
    struct ledger_row *row, *next;

    HASH_ITER(hh, ledgers->rows, row, next)
    {
        if (row->half >= before_half)
            continue;
        HASH_DEL(ledgers->rows, row);
        free(row);
    }
}

void ledgers_forget_old(struct ledgers *ledgers, int64_t now_ns)
{
    forget(ledgers, now_ns / (LEDGERS_NS / 2) - 1);
}

void ledgers_deinit(struct ledgers *ledgers)
{
    forget(ledgers, INT64_MAX);
}
