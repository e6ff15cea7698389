/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/util.h"
#include "region/limits.h"
#include "region/view.h"

enum {
    MAX_PROCESSES = 256, /* shown of one device */
};

struct gather {
    struct snapshot *snapshot;
    struct registry *registry;
    struct lease_list leases;
    struct region_view *view;
    struct region_explained *explained; /* by place in the view */
    int64_t now;
    pid_t *granted; /* processes of the leases' regions */
    size_t granted_count;
};

static struct holder *add_holder(struct snapshot *snapshot)
{
    size_t count = snapshot->holder_count;
    struct holder *holders;

    holders = realloc(snapshot->holders, (count + 1) * sizeof(*holders));
    if (!holders)
        return NULL;
    snapshot->holders = holders;
    snapshot->holder_count++;
    holders[count] = (struct holder){.age_s = -1};
    return &holders[count];
}

/* A granted device that this machine no longer has keeps the position behind the last. */
static size_t find_device(const struct local *local, const char *uuid)
{
    size_t i;

    for (i = 0; i < local->device_count; i++) {
        if (strcmp(local->devices[i].uuid, uuid) == 0)
            break;
    }
    return i;
}

static int remember_processes(struct gather *gather)
{
    const struct region_view *view = gather->view;
    size_t count = gather->granted_count;
    pid_t *pids;

    pids = realloc(gather->granted, (count + 2 * view->process_count + 1) * sizeof(*pids));
    if (!pids)
        return -ENOMEM;
    for (size_t i = 0; i < view->process_count; i++) {
        pids[count++] = view->processes[i].pid;
        pids[count++] = view->processes[i].host_pid;
    }
    gather->granted = pids;
    gather->granted_count = count;
    return 0;
}

static void read_explained(const struct gather *gather, unsigned device, struct holder *holder)
{
    for (unsigned i = 0; i < gather->view->process_count; i++) {
        const struct region_explain *launches = &gather->explained[i].launches[device];

        for (unsigned k = 0; k < REGION_LAUNCH_KINDS; k++)
            holder->launches[k] += atomic_load(&launches->launches[k]);
        holder->own_ns += atomic_load(&launches->own_ns);
        for (unsigned k = 0; k < REGION_REFUSAL_REASONS; k++)
            holder->refused[k] += atomic_load(&gather->explained[i].refusals[device].by_reason[k]);
    }
}

static void read_use(const struct gather *gather, const char *uuid, struct holder *holder)
{
    const struct region_view *view = gather->view;

    for (unsigned i = 0; i < view->device_count; i++) {
        if (strcmp(view->devices[i].uuid, uuid) != 0)
            continue;
        holder->used_bytes = view->devices[i].used.total;
        holder->refusals = view->devices[i].refusals;
        holder->throttled_ns = view->devices[i].delayed_ns;
        holder->spilled_bytes = i == 0 ? view->spilled_bytes : 0;
        holder->longest_range = region_view_longest(&view->devices[i]);
        read_explained(gather, i, holder);
    }
    holder->processes = view->process_count;
}

static bool is_suspended(const struct gather *gather, uint64_t id)
{
    char path[PATH_MAX], text[LIMITS_FILE_MAX];
    struct limits limits = LIMITS_INIT;

    return registry_limits_path(gather->registry, id, path) == 0 &&
           file_read(path, text, sizeof(text)) >= 0 && limits_parse(&limits, text, NULL) == 0 &&
           limits.suspended;
}

static int add_lease(struct gather *gather, const struct lease *lease)
{
    const bool suspended = is_suspended(gather, lease->id);
    char path[PATH_MAX];
    bool has_region;

    has_region = registry_region_path(gather->registry, lease->id, path) == 0 &&
                 region_view_read(path, gather->view, NULL) == 0 &&
                 region_view_explained(path, gather->view, gather->explained) == 0;
    if (has_region && remember_processes(gather) < 0)
        return -ENOMEM;

    for (size_t i = 0; i < lease->device_count; i++) {
        const struct lease_device *device = &lease->devices[i];
        struct holder *holder = add_holder(gather->snapshot);

        if (!holder)
            return -ENOMEM;
        holder->id = lease->id;
        holder->pid = lease->program;
        holder->age_s = MAX(gather->now - lease->started, 0);
        COPY_TEXT(holder->command, lease->command);
        holder->device = find_device(gather->snapshot->local, device->uuid);
        holder->limit_bytes = device->memory_bytes;
        holder->cores = device->cores;
        holder->suspended = suspended;
        if (has_region)
            read_use(gather, device->uuid, holder);
    }
    return 0;
}

static bool is_granted(const struct gather *gather, pid_t pid)
{
    for (size_t i = 0; i < gather->granted_count; i++) {
        if (gather->granted[i] == pid)
            return true;
    }
    for (size_t i = 0; i < gather->leases.count; i++) {
        if (gather->leases.leases[i].program == pid)
            return true;
    }
    return false;
}

static void read_command(pid_t pid, char ret_command[LEASE_COMMAND_SIZE])
{
    char path[32], name[LEASE_COMMAND_SIZE];

    (void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    if (file_read(path, name, sizeof(name)) < 0)
        COPY_TEXT(name, "?");
    name[strcspn(name, "\n")] = '\0';
    copy_text(ret_command, LEASE_COMMAND_SIZE, name);
}

/* Processes on a device that no lease explains. */
static int add_others(struct gather *gather, size_t device)
{
    struct local *local = gather->snapshot->local;
    struct nvml_process processes[MAX_PROCESSES];
    int count;

    count = nvml_list_processes(local->nvml, local->devices[device].index, processes, MAX_PROCESSES,
                                NULL);
    for (int i = 0; i < count; i++) {
        struct holder *holder;

        if (is_granted(gather, processes[i].pid))
            continue;
        holder = add_holder(gather->snapshot);
        if (!holder)
            return -ENOMEM;
        holder->pid = processes[i].pid;
        holder->device = device;
        holder->processes = 1;
        if (processes[i].memory_bytes != UINT64_MAX)
            holder->used_bytes = processes[i].memory_bytes;
        read_command(processes[i].pid, holder->command);
    }
    return 0;
}

static int list_leases(struct gather *gather, struct error *err)
{
    int r;

    r = registry_lock(gather->registry, err);
    if (r < 0)
        return r;
    r = registry_list(gather->registry, &gather->leases, err);
    registry_unlock(gather->registry);
    return r;
}

static int gather_all(struct gather *gather, struct error *err)
{
    struct snapshot *snapshot = gather->snapshot;
    struct local *local = snapshot->local;
    int r;

    r = list_leases(gather, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < local->device_count; i++)
        local->devices[i].used = (struct device_usage){0};
    registry_charge(&gather->leases, local->devices, local->device_count);

    for (size_t i = 0; r == 0 && i < gather->leases.count; i++)
        r = add_lease(gather, &gather->leases.leases[i]);
    for (size_t i = 0; r == 0 && i < local->device_count; i++) {
        snapshot->has_status[i] = nvml_read_status(local->nvml, local->devices[i].index,
                                                   &snapshot->statuses[i], NULL) == 0;
        r = add_others(gather, i);
    }
    return r < 0 ? error_set(err, r, "cannot list who holds what: %s", strerror(-r)) : 0;
}

int snapshot_take(struct local *local, struct registry *registry, struct snapshot *ret_snapshot,
                  struct error *err)
{
    struct snapshot snapshot = {.local = local};
    struct gather gather = {
        .snapshot = &snapshot,
        .registry = registry,
        .now = (int64_t)time(NULL),
    };
    int r;

    gather.view = malloc(sizeof(*gather.view));
    gather.explained = calloc(REGION_SLOTS, sizeof(*gather.explained));
    r = gather.view && gather.explained ? gather_all(&gather, err)
                                        : error_set(err, -ENOMEM, "out of memory");
    free(gather.view);
    free(gather.explained);
    free(gather.granted);
    lease_list_deinit(&gather.leases);
    if (r < 0) {
        snapshot_deinit(&snapshot);
        return r;
    }
    *ret_snapshot = snapshot;
    return 0;
}

void snapshot_deinit(struct snapshot *snapshot)
{
    free(snapshot->holders);
    snapshot->holders = NULL;
    snapshot->holder_count = 0;
}
