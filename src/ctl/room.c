/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/room.h"

#include <errno.h>
#include <inttypes.h>
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
    /* A descriptor's end is told an instant before its lock is gone, so look once more. */
    FIRST_LOOK_AGAIN_MS = 100,
    BEHIND_LOOK_AGAIN_MS = 1000,
};

#define UNKNOWN_BYTES (UINT64_C(1) << 50) /* taken as enough for anybody */

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
        if (!freest || device_free_mib(&devices[i]) > device_free_mib(freest))
            freest = &devices[i];
    }
    return freest;
}

static void explain(struct room *room, const struct device *devices,
                    const struct place_decision *decision)
{
    const struct device *freest = find_freest(room, devices);
    char reasons[PLACE_REASON_TEXT_SIZE], size[CTL_SIZE_TEXT];
    const char *but = "";
    unsigned cores, tasks;

    place_reasons_format(&decision->failure, reasons);
    /* Such a card counts as not healthy. */
    for (size_t i = 0; i < room->local->device_count; i++) {
        if (room->local->is_split[i])
            but = "; a card in MIG mode is not shared by hamictl run";
    }
    if (!freest) {
        (void)snprintf(room->why, sizeof(room->why), "%s%s", reasons, but);
        return;
    }
    if (room->request->count > room->local->device_count) {
        (void)snprintf(room->why, sizeof(room->why),
                       "%s; --gpus asks for %u cards, and this machine has %zu", reasons,
                       room->request->count, room->local->device_count);
        return;
    }
    cores = device_free_cores(freest);
    tasks = freest->used.tasks < freest->max_tasks ? freest->max_tasks - freest->used.tasks : 0;
    (void)snprintf(
        room->why, sizeof(room->why),
        "%s%s; the most that is free on one card: %s, %u%% of the cores, %u of %u places "
        "(GPU %u, %s)",
        reasons, but, ctl_format_size(device_free_mib(freest) * MIB, size), cores, tasks,
        freest->max_tasks, freest->index, freest->uuid);
}

static void fill_lease(struct lease *lease, const struct device *devices,
                       const struct place_decision *decision)
{
    lease->device_count = decision->pick_count;
    for (size_t i = 0; i < decision->pick_count; i++) {
        const struct place_pick *pick = &decision->picks[i];

        COPY_TEXT(lease->devices[i].uuid, devices[pick->device].uuid);
        lease->devices[i].memory_bytes = pick->taken.memory_bytes;
        lease->devices[i].cores = pick->taken.cores;
    }
}

/*
 * Beside a program that exceeds its card there is no room for another one, which would find the
 * card full: so only a card without a lease is taken as if it had what is asked for.
 */
static int find_place(const struct room *room, const struct device *devices,
                      struct place_decision *ret_decision)
{
    struct device widened[LOCAL_MAX_DEVICES];

    memcpy(widened, devices, room->local->device_count * sizeof(*devices));
    for (size_t i = 0; room->oversubscribes && i < room->local->device_count; i++) {
        if (!widened[i].used.tasks)
            widened[i].memory_bytes = MAX(widened[i].memory_bytes, room->request->memory_bytes);
    }
    return place_fit(widened, room->local->device_count,
                     &(struct place_ask){.request = room->request}, &room->policy, ret_decision);
}

/* What does not fit on the empty machine will never fit. */
static bool can_ever_fit(struct room *room, struct place_decision *decision)
{
    return find_place(room, room->local->devices, decision) == PLACE_FITS;
}

/* Whether all cards together would do, were they well and shared. Of one that is lost its memory is
 * not known. */
static bool would_fit_whole(const struct room *room)
{
    struct device whole[LOCAL_MAX_DEVICES];
    struct place_decision decision;

    for (size_t i = 0; i < room->local->device_count; i++) {
        whole[i] = room->local->devices[i];
        whole[i].healthy = true;
        if (!whole[i].memory_bytes)
            whole[i].memory_bytes = UNKNOWN_BYTES;
    }
    return find_place(room, whole, &decision) == PLACE_FITS;
}

static bool would_fit_oversubscribed(const struct room *room)
{
    const struct room wider = {
        .local = room->local,
        .request = room->request,
        .policy = room->policy,
        .oversubscribes = true,
    };
    struct place_decision decision;

    return find_place(&wider, room->local->devices, &decision) == PLACE_FITS;
}

/* What speaks against the empty machine; 0: nothing. */
static int refuse_at_all(struct room *room)
{
    struct place_decision decision;

    if (can_ever_fit(room, &decision))
        return 0;
    explain(room, room->local->devices, &decision);
    if (would_fit_whole(room))
        return ROOM_AILING;
    return would_fit_oversubscribed(room) ? ROOM_TOO_MUCH : ROOM_NEVER;
}

/* Locked. */
static int take_locked(struct room *room, struct lease *lease, struct error *err)
{
    CLEANUP(lease_list_deinit) struct lease_list list = {0};
    struct device devices[LOCAL_MAX_DEVICES];
    struct place_decision decision;
    int r;

    r = registry_list(room->registry, &list, err);
    if (r < 0)
        return r;

    memcpy(devices, room->local->devices, sizeof(devices));
    registry_charge(&list, devices, room->local->device_count);
    r = find_place(room, devices, &decision);
    if (r < 0)
        return error_set(err, r, "cannot place the request: %s", strerror(-r));
    if (r == PLACE_NO_FIT) {
        explain(room, devices, &decision);
        return ROOM_NONE;
    }

    fill_lease(lease, devices, &decision);
    r = registry_add(room->registry, lease, err);
    if (r < 0)
        return r;
    room->fd = r;
    return ROOM_GRANTED;
}

int room_take(struct room *room, struct lease *lease, struct error *err)
{
    int r = refuse_at_all(room);

    if (r)
        return r;
    r = registry_lock(room->registry, err);
    if (r < 0)
        return r;
    r = take_locked(room, lease, err);
    registry_unlock(room->registry);
    return r;
}

/* A place in the queue, and what would bring its turn. */
struct place {
    uint64_t id;
    int fd;
    int notify; /* inotify, -1 while the system has none to give (128 for each user) */
    int watch;
    uint64_t predecessor; /* 0: we are first */
    uint64_t watched;     /* the predecessor that the watch is of */
};

/*
 * Whoever is first watches the leases; everybody else only who is in front, so that one leaving
 * wakes one. A descriptor's end is a close, also when its process was killed.
 */
static void watch_for_turn(struct place *place, const struct registry *registry)
{
    char path[PATH_MAX + 32];

    if (place->notify < 0)
        place->notify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    /* Taking a watch away is an event by itself: each round would wake the next. */
    if (place->watch >= 0 && place->watched == place->predecessor)
        return;
    if (place->watch >= 0)
        (void)inotify_rm_watch(place->notify, place->watch);
    place->watched = place->predecessor;
    if (place->predecessor) {
        (void)snprintf(path, sizeof(path), "%s/waiting/%" PRIu64, registry->path,
                       place->predecessor);
        place->watch = inotify_add_watch(place->notify, path, IN_CLOSE_WRITE | IN_ATTRIB);
    } else {
        (void)snprintf(path, sizeof(path), "%s/grants", registry->path);
        place->watch = inotify_add_watch(place->notify, path, IN_CLOSE_WRITE | IN_DELETE);
    }
}

static void wait_for_change(const struct place *place, int64_t left_ns)
{
    struct pollfd poll_fd = {.fd = place->notify, .events = POLLIN};
    bool slow = place->predecessor && place->notify >= 0;
    int timeout_ms = slow ? BEHIND_LOOK_AGAIN_MS : FIRST_LOOK_AGAIN_MS;
    char events[4096];

    if (left_ns >= 0 && left_ns / NS_PER_MS < timeout_ms)
        timeout_ms = (int)(left_ns / NS_PER_MS) + 1;
    if (poll(&poll_fd, 1, timeout_ms) > 0)
        (void)!read(place->notify, events, sizeof(events));
}

/* Our turn comes when nobody is in front of us, and then when there is room. */
static int take_turn(struct room *room, struct lease *lease, struct place *place, struct error *err)
{
    int r;

    r = registry_lock(room->registry, err);
    if (r < 0)
        return r;
    place->predecessor = registry_find_predecessor(room->registry, place->id);
    watch_for_turn(place, room->registry);
    r = place->predecessor ? ROOM_NONE : take_locked(room, lease, err);
    if (r == ROOM_GRANTED)
        registry_leave_queue(room->registry, place->id, take_fd(&place->fd));
    registry_unlock(room->registry);
    return r;
}

static int wait_in_queue(struct room *room, struct lease *lease, struct place *place,
                         int64_t timeout_ns, void (*tell)(const struct room *room),
                         struct error *err)
{
    int64_t start_ns = clock_now_ns(), left_ns = timeout_ns;
    bool told = false;
    int r;

    for (;;) {
        r = take_turn(room, lease, place, err);
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
        wait_for_change(place, left_ns);
    }
}

int room_wait(struct room *room, struct lease *lease, int64_t timeout_ns,
              void (*tell)(const struct room *room), struct error *err)
{
    struct place place = {.fd = -1, .notify = -1, .watch = -1};
    int r = refuse_at_all(room);

    if (r)
        return r;
    (void)snprintf(room->why, sizeof(room->why), "others wait in front");

    r = registry_lock(room->registry, err);
    if (r < 0)
        return r;
    place.fd = registry_join_queue(room->registry, &place.id, err);
    registry_unlock(room->registry);
    if (place.fd < 0)
        return place.fd;

    r = wait_in_queue(room, lease, &place, timeout_ns, tell, err);
    if (place.fd >= 0)
        registry_leave_queue(room->registry, place.id, place.fd);
    close_p(&place.notify);
    return r;
}
