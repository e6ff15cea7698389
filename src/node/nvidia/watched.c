/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/watched.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "driver/nvml.h"

enum {
    WATCH_MS = 500,    /* no longer than a plugin that ends waits for its threads */
    WATCH_AGAIN_S = 1, /* after a failure */
};

void watched_init(struct watched *watched)
{
    (void)pthread_mutex_init(&watched->lock, NULL);
}

void watched_deinit(struct watched *watched)
{
    nvml_events_close(watched->events);
    (void)pthread_mutex_destroy(&watched->lock);
}

void watched_judge(struct watched *watched, struct nvml *nvml, struct card *card)
{
    enum nvml_watch watch;
    struct nvml_health reading;
    struct error why = ERROR_INIT;

    if (nvml_read_health(nvml, card->index, &reading, &why) < 0) {
        card->healthy = false;
        COPY_TEXT(card->why, why.text);
        return;
    }
    (void)pthread_mutex_lock(&watched->lock);
    if (card->index < NVML_EVENTS_MAX)
        COPY_TEXT(watched->uuids[card->index], card->uuid);
    health_judge(&watched->health, &reading, clock_now_ns(), card);
    watch = card->index < NVML_EVENTS_MAX ? watched->watches[card->index] : NVML_WITHOUT_EVENTS;
    (void)pthread_mutex_unlock(&watched->lock);
    if (card->healthy && watch == NVML_UNWATCHED && !xid_rules_are_off(&watched->health.rules)) {
        card->healthy = false;
        COPY_TEXT(card->why, "its events can't be watched");
    }
}

uint64_t watched_errors(struct watched *watched, const char *uuid)
{
    const struct health_card *record;
    uint64_t errors;

    (void)pthread_mutex_lock(&watched->lock);
    record = health_find(&watched->health, uuid);
    errors = record ? record->errors : 0;
    (void)pthread_mutex_unlock(&watched->lock);
    return errors;
}

/* Events */

/* Whether the cards are to be looked at. Events of cards that are not offered are nobody's. */
static bool take_event(struct watched *watched, const struct nvml_event *event)
{
    char uuid[DEVICE_UUID_SIZE] = "";
    bool counts = false;

    (void)pthread_mutex_lock(&watched->lock);
    if (event->index >= 0)
        COPY_TEXT(uuid, watched->uuids[event->index]);
    if (event->index < 0 || uuid[0])
        counts = health_event(&watched->health, event->index < 0 ? NULL : uuid, event->type,
                              event->data, clock_now_ns());
    (void)pthread_mutex_unlock(&watched->lock);
    if (event->type == NVML_EVENT_XID)
        log_info("card %s: XID %llu%s", uuid[0] ? uuid : "unknown", (unsigned long long)event->data,
                 counts ? "" : ", which does not count");
    return counts || event->type == NVML_EVENT_RECOVERY_ACTION;
}

/* What the former set still has is not lost: it is emptied after the new one is open. */
static void close_events(struct watched *watched, struct nvml_events *events)
{
    struct nvml_event event;

    while (events && nvml_events_wait(events, 0, &event, NULL) > 0)
        (void)take_event(watched, &event);
    nvml_events_close(events);
}

static int open_events(struct watched *watched, struct nvml *nvml, struct error *err)
{
    struct nvml_events *former = watched->events;
    int r = nvml_events_open(nvml, &watched->events, err);

    if (r < 0)
        return r;
    close_events(watched, former);
    watched->stale = false;
    (void)pthread_mutex_lock(&watched->lock);
    for (unsigned i = 0; i < NVML_EVENTS_MAX; i++) {
        watched->watches[i] = nvml_events_watch(watched->events, i);
        watched->stale |= watched->uuids[i][0] && watched->watches[i] == NVML_UNWATCHED;
    }
    (void)pthread_mutex_unlock(&watched->lock);
    return 0;
}

/* Whether nobody waits for events, and why, for the cards' sake. */
static bool set_unwatched(struct watched *watched, const char *why)
{
    bool changed;

    (void)pthread_mutex_lock(&watched->lock);
    changed = !watched->health.unwatched[0] != !why[0];
    COPY_TEXT(watched->health.unwatched, why);
    (void)pthread_mutex_unlock(&watched->lock);
    return changed;
}

/* A set that failed is opened anew, as is one that lacks a card. */
static int wait_events(struct watched *watched, struct nvml *nvml, struct error *err)
{
    struct nvml_event event;
    int r = 0;

    if (!watched->events || watched->stale)
        r = open_events(watched, nvml, err);
    if (r == 0)
        r = nvml_events_wait(watched->events, WATCH_MS, &event, err);
    if (r > 0)
        return take_event(watched, &event);
    if (r < 0)
        watched->stale = true;
    return r;
}

int watched_wait(struct watched *watched, struct nvml *nvml, struct error *err)
{
    const struct timespec pause = {.tv_sec = WATCH_AGAIN_S};
    bool was_stale = watched->stale;
    int r;

    r = xid_rules_are_off(&watched->health.rules) ? -ENOSYS : wait_events(watched, nvml, err);
    if (r >= 0)
        return set_unwatched(watched, "") || r > 0 || was_stale;
    /* What befalls other cards until a set is opened anew is not told again. */
    if (was_stale)
        (void)nanosleep(&pause, NULL);
    /* Of a lost card watched_judge() knows; an old NVML has no events to miss. */
    if (r == -ENODEV || r == -ENOSYS)
        return set_unwatched(watched, "") || r == -ENODEV;
    (void)set_unwatched(watched, err->text);
    return r;
}
