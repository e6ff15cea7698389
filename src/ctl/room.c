/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/room.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/util.h"
#include "ctl/ctl.h"

enum {
    /* Ends of grants are told by inotify, an instant before their locks are gone. */
    LOOK_AGAIN_MS = 200,
};

static uint64_t memory_free(const struct device *device)
{
    return device->used.memory_bytes < device->memory_bytes
               ? device->memory_bytes - device->used.memory_bytes
               : 0;
}

/* Whether the request names this device, or any. */
static bool may_use(const struct request *request, const struct device *device)
{
    if (!device->healthy)
        return false;
    for (size_t i = 0; i < request->use_uuids.count; i++) {
        if (strcmp(request->use_uuids.items[i], device->uuid) == 0)
            return true;
    }
    return request->use_uuids.count == 0;
}

static const struct device *find_freest(const struct room *room, const struct device *devices)
{
    const struct device *freest = NULL;

    for (size_t i = 0; i < room->local->device_count; i++) {
        if (!may_use(room->request, &devices[i]))
            continue;
        if (!freest || memory_free(&devices[i]) > memory_free(freest))
            freest = &devices[i];
    }
    return freest;
}

static void explain(struct room *room, const struct device *devices,
                    const struct place_decision *decision)
{
    const struct device *freest = find_freest(room, devices);
    char reasons[PLACE_REASON_TEXT_SIZE], size[CTL_SIZE_TEXT];
    unsigned cores, slots;

    place_reasons_format(decision, reasons);
    if (!freest) {
        (void)snprintf(room->why, sizeof(room->why), "%s", reasons);
        return;
    }
    cores = freest->used.cores < freest->cores ? freest->cores - freest->used.cores : 0;
    slots = freest->used.slots < freest->slots ? freest->slots - freest->used.slots : 0;
    (void)snprintf(room->why, sizeof(room->why),
                   "%s; the most that is free on one card: %s, %u%% of the cores, %u of %u places "
                   "(GPU %u, %s)",
                   reasons, ctl_format_size(memory_free(freest), size), cores, slots, freest->slots,
                   freest->index, freest->uuid);
}

static void fill_grant(struct grant *grant, const struct device *devices,
                       const struct place_decision *decision)
{
    grant->device_count = decision->pick_count;
    for (size_t i = 0; i < decision->pick_count; i++) {
        const struct place_pick *pick = &decision->picks[i];

        COPY_TEXT(grant->devices[i].uuid, devices[pick->device].uuid);
        grant->devices[i].memory_bytes = pick->memory_bytes;
        grant->devices[i].cores = pick->cores;
    }
}

/* What does not fit on the empty machine will never fit. */
static bool can_ever_fit(struct room *room, struct place_decision *decision)
{
    return place_fit(room->local->devices, room->local->device_count, room->request, &room->policy,
                     decision) == PLACE_FITS;
}

/* Locked. */
static int take_locked(struct room *room, struct grant *grant, struct error *err)
{
    CLEANUP(grant_list_deinit) struct grant_list list = {0};
    struct device devices[LOCAL_MAX_DEVICES];
    struct place_decision decision;
    int r;

    r = book_list(room->book, &list, err);
    if (r < 0)
        return r;

    memcpy(devices, room->local->devices, sizeof(devices));
    book_charge(&list, devices, room->local->device_count);
    r = place_fit(devices, room->local->device_count, room->request, &room->policy, &decision);
    if (r < 0)
        return error_set(err, r, "cannot place the request: %s", strerror(-r));
    if (r == PLACE_NO_FIT) {
        explain(room, devices, &decision);
        return ROOM_NONE;
    }

    fill_grant(grant, devices, &decision);
    r = book_add(room->book, grant, err);
    if (r < 0)
        return r;
    room->fd = r;
    return ROOM_GRANTED;
}

int room_take(struct room *room, struct grant *grant, struct error *err)
{
    struct place_decision decision;
    int r;

    if (!can_ever_fit(room, &decision)) {
        explain(room, room->local->devices, &decision);
        return ROOM_NEVER;
    }

    r = book_lock(room->book, err);
    if (r < 0)
        return r;
    r = take_locked(room, grant, err);
    book_unlock(room->book);
    return r;
}

/* Wakes when a holder ends or a waiter leaves; -1 when the system has no watch to give. */
static int watch_book(const struct book *book)
{
    static const char *const folders[] = {"grants", "waiting"};
    int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    char path[PATH_MAX + 16];

    for (size_t i = 0; fd >= 0 && i < ARRAY_SIZE(folders); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", book->path, folders[i]);
        (void)inotify_add_watch(fd, path, IN_CLOSE_WRITE | IN_DELETE);
    }
    return fd;
}

static void wait_for_change(int watch, int64_t left_ns)
{
    struct pollfd poll_fd = {.fd = watch, .events = POLLIN};
    int timeout_ms = LOOK_AGAIN_MS;
    char events[4096];

    if (left_ns >= 0 && left_ns / NS_PER_MS < timeout_ms)
        timeout_ms = (int)(left_ns / NS_PER_MS) + 1;
    if (poll(&poll_fd, 1, timeout_ms) > 0)
        (void)!read(watch, events, sizeof(events));
}

/* Our turn comes when nobody is in front of us, and then when there is room. */
static int take_turn(struct room *room, struct grant *grant, uint64_t ticket, struct error *err)
{
    int r;

    r = book_lock(room->book, err);
    if (r < 0)
        return r;
    r = book_is_first(room->book, ticket) ? take_locked(room, grant, err) : ROOM_NONE;
    book_unlock(room->book);
    return r;
}

static int wait_in_queue(struct room *room, struct grant *grant, uint64_t ticket,
                         int64_t timeout_ns, void (*tell)(const struct room *room),
                         struct error *err)
{
    int64_t start_ns = clock_now_ns(), left_ns = timeout_ns;
    AUTOCLOSE int watch = watch_book(room->book);
    bool told = false;
    int r;

    for (;;) {
        r = take_turn(room, grant, ticket, err);
        if (r != ROOM_NONE)
            return r;
        if (timeout_ns >= 0) {
            left_ns = start_ns + timeout_ns - clock_now_ns();
            if (left_ns <= 0)
                return ROOM_TIMED_OUT;
        }
        if (!told)
            tell(room);
        told = true;
        wait_for_change(watch, left_ns);
    }
}

int room_wait(struct room *room, struct grant *grant, int64_t timeout_ns,
              void (*tell)(const struct room *room), struct error *err)
{
    struct place_decision decision;
    uint64_t ticket;
    int fd, r;

    if (!can_ever_fit(room, &decision)) {
        explain(room, room->local->devices, &decision);
        return ROOM_NEVER;
    }
    COPY_TEXT(room->why, "others wait in front");

    r = book_lock(room->book, err);
    if (r < 0)
        return r;
    fd = book_join_queue(room->book, &ticket, err);
    book_unlock(room->book);
    if (fd < 0)
        return fd;

    r = wait_in_queue(room, grant, ticket, timeout_ns, tell, err);
    book_leave_queue(room->book, ticket, fd);
    return r;
}
