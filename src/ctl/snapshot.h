/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What `hamictl top` shows: the devices, and who holds and uses them, at one moment. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ctl/lease.h"
#include "ctl/local.h"
#include "ctl/registry.h"
#include "region/region.h"

/* A lease on one device, or a process that uses a device without one. */
struct holder {
    uint64_t id;   /* of the lease; 0: none */
    pid_t pid;     /* 0: the program has not started yet */
    int64_t age_s; /* negative: not known */
    char command[LEASE_COMMAND_SIZE];
    size_t device; /* position in the local devices */
    uint64_t limit_bytes;
    uint64_t used_bytes; /* by its region; without a lease, by NVML */
    unsigned cores;      /* percent; 0: no share */
    bool suspended;      /* it launches nothing (`hamictl resize --suspend`) */
    unsigned processes;
    uint64_t refusals;      /* allocations refused for the limit */
    uint64_t throttled_ns;  /* for which its launches waited */
    unsigned longest_range; /* of the waits, plus 1 (REGION_WAIT_MS); 0: none */
    /* Of its living processes, by region_launch_kind; and what our own code took for them. */
    uint64_t launches[REGION_LAUNCH_KINDS];
    uint64_t own_ns;
    uint64_t refused[REGION_REFUSAL_REASONS]; /* its living processes, by region_refusal */
    uint64_t spilled_bytes; /* of used_bytes, on all its devices; told of the first one only */
};

struct snapshot {
    struct local *local; /* its devices carry what is granted */
    struct nvml_status statuses[LOCAL_MAX_DEVICES];
    bool has_status[LOCAL_MAX_DEVICES];
    struct holder *holders;
    size_t holder_count;
};

/* Looks. Regions are read, never mapped; one that cannot be read counts as unused so far. */
int snapshot_take(struct local *local, struct registry *registry, struct snapshot *ret_snapshot,
                  struct error *err);
void snapshot_deinit(struct snapshot *snapshot);
