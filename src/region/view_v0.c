/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Regions of version 0: those of HAMi-core before 1.0, whose processes may still run. The layout is
 * HAMi's (pkg/monitor/nvidia/v0); it has no version, and is told by its size.
 */

#include "region/view_v0.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/util.h"

struct v0_memory {
    uint64_t context, module, data, offset, total;
};

struct v0_slot {
    int32_t pid, host_pid;
    struct v0_memory used[REGION_DEVICES];
    uint64_t monitor_used[REGION_DEVICES];
    struct {
        uint64_t decoder, encoder, sm;
    } util[REGION_DEVICES];
    int32_t status, padding;
};

struct v0_head {
    int32_t magic, sm_init;
    uint32_t owner_pid;
    char sem[32];
    int32_t padding;
    uint64_t device_count;
    char uuids[REGION_DEVICES][REGION_UUID_SIZE];
    uint64_t limits[REGION_DEVICES], cores[REGION_DEVICES];
};

struct v0_tail {
    int32_t slot_count, utilization_switch, recent_kernel, priority;
};

#define SLOTS_AT sizeof(struct v0_head)
#define TAIL_AT (SLOTS_AT + REGION_SLOTS * sizeof(struct v0_slot))

_Static_assert(sizeof(struct v0_head) == 1848, "as HAMi has it");
_Static_assert(sizeof(struct v0_slot) == 1168, "as HAMi has it");
_Static_assert(TAIL_AT + sizeof(struct v0_tail) == VIEW_V0_SIZE, "as HAMi has it");

_Static_assert(TAIL_AT + offsetof(struct v0_tail, utilization_switch) == VIEW_V0_UTILIZATION_SWITCH,
               "as HAMi has it");
_Static_assert(TAIL_AT + offsetof(struct v0_tail, recent_kernel) == VIEW_V0_RECENT_KERNEL,
               "as HAMi has it");

static bool read_part(int fd, void *to, size_t size, size_t at)
{
    return pread(fd, to, size, (off_t)at) == (ssize_t)size;
}

static void view_devices(const struct v0_head *head, struct region_view *view)
{
    view->device_count = (unsigned)MIN(head->device_count, (uint64_t)REGION_DEVICES);
    for (unsigned i = 0; i < view->device_count; i++) {
        struct region_view_device *device = &view->devices[i];

        memcpy(device->uuid, head->uuids[i], REGION_UUID_SIZE);
        device->uuid[REGION_UUID_SIZE] = '\0';
        device->limit_bytes = head->limits[i];
        device->cores = (unsigned)MIN(head->cores[i], UINT64_C(100));
    }
}

static void view_slot(const struct v0_slot *slot, unsigned index, struct region_view *view)
{
    struct region_view_process *process = &view->processes[view->process_count++];

    *process = (struct region_view_process){
        .slot = index,
        .pid = slot->pid,
        .host_pid = slot->host_pid,
        .told_pid = slot->host_pid,
    };
    for (unsigned i = 0; i < view->device_count; i++) {
        const struct v0_memory *used = &slot->used[i];
        struct region_view_memory *sum = &view->devices[i].used;

        process->used[i] = (struct region_view_memory){
            .total = used->total,
            .context = used->context,
            .module = used->module,
            .data = used->data,
        };
        sum->total += used->total;
        sum->context += used->context;
        sum->module += used->module;
        sum->data += used->data;
        view->devices[i].sm_util += (unsigned)MIN(slot->util[i].sm, UINT64_C(100));
    }
}

/* A slot is believed as long as its status says that its process lives. */
int view_v0_read(int fd, struct region_view *view)
{
    struct v0_head head;
    struct v0_tail tail;
    struct v0_slot slot;

    if (!read_part(fd, &head, sizeof(head), 0) || !read_part(fd, &tail, sizeof(tail), TAIL_AT) ||
        head.magic != REGION_MAGIC)
        return -EPROTO;
    view->priority = tail.priority;
    view->recent_kernel = tail.recent_kernel;
    view->utilization_switch = tail.utilization_switch;
    view_devices(&head, view);
    for (int i = 0; i < MAX(0, MIN(tail.slot_count, REGION_SLOTS)); i++) {
        if (!read_part(fd, &slot, sizeof(slot), SLOTS_AT + (size_t)i * sizeof(slot)))
            return -EPROTO;
        if (slot.pid != 0 && slot.status != REGION_STATUS_DEAD)
            view_slot(&slot, (unsigned)i, view);
    }
    return 0;
}
