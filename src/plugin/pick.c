/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/pick.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"

static bool has_count(const struct pod_devices *devices, size_t index, size_t count)
{
    return index < devices->count && devices->containers[index].count == count;
}

/* Whether a plain init container is the one that starts. */
enum turn {
    TURN_PAST,   /* it is done */
    TURN_NOW,    /* it starts now */
    TURN_UNSURE, /* it was started, and the status does not say yet whether it ended */
};

/* Nothing was handed to the pod since that refusal, so what was refused is what starts now. */
static bool was_refused(const struct node_pod *pod, const struct pod_container *container)
{
    return pod->refusal && container->refusal == pod->refusal;
}

/* Since it got its devices: the status may still be that of the run before. */
static bool has_failed(const struct pod_container *init)
{
    return init->state == INIT_FAILED && init->ended != init->ended_before;
}

static enum turn turn_of(const struct node_pod *pod, const struct pod_container *init)
{
    if (init->state == INIT_DONE)
        return TURN_PAST;
    if (was_refused(pod, init))
        return TURN_NOW;
    if (!init->ready || (init->ordered && !init->started) || has_failed(init))
        return TURN_NOW;
    return TURN_UNSURE;
}

static int find_holder(const struct node_pod *pod, const struct pod_devices *devices, size_t count,
                       const char *holder, size_t *ret_index, struct error *err)
{
    size_t index = 0;

    while (index < pod->container_count && strcmp(pod->containers[index].name, holder) != 0)
        index++;
    if (!has_count(devices, index, count))
        return error_set(
            err, -EINVAL, "container %s holds %zu devices, and the pod's annotation gives it %zu",
            holder, count, index < devices->count ? devices->containers[index].count : 0);
    *ret_index = index;
    return 0;
}

int pick_container(struct node_pod *pod, const struct pod_devices *devices, size_t device_count,
                   const char *holder, size_t *ret_index, struct error *err)
{
    size_t end = pod->container_count, last = pod->container_count;
    int r;

    if (holder) {
        r = find_holder(pod, devices, device_count, holder, &end, err);
        if (r < 0)
            return r;
        if (was_refused(pod, &pod->containers[end])) {
            *ret_index = end;
            return PICK_FOUND;
        }
    }
    for (size_t i = 0; i < end; i++) {
        enum turn turn;

        if (pod->containers[i].role != CONTAINER_INIT || !has_count(devices, i, device_count))
            continue;
        turn = turn_of(pod, &pod->containers[i]);
        last = i;
        if (turn == TURN_UNSURE)
            return PICK_BEHIND;
        if (turn == TURN_NOW) {
            *ret_index = i;
            return PICK_FOUND;
        }
    }
    if (!holder && last == pod->container_count)
        return error_set(err, -EINVAL, "no container of the pod was given %zu devices",
                         device_count);
    /* All init containers are done: it is the holder; without one, the sandbox was made anew and
     * the last init container runs again. */
    *ret_index = holder ? end : last;
    return PICK_FOUND;
}

/* One container's part of one card. */
static struct card_use use_of(const struct container_devices *devices, const char *uuid)
{
    struct card_use use = {0};

    for (size_t i = 0; i < devices->count; i++) {
        const struct container_device *device = &devices->items[i];

        if (strcmp(device->uuid, uuid) != 0)
            continue;
        use.memory_mib += (uint64_t)MAX(device->memory_mib, 0);
        use.cores += (uint64_t)MAX(device->cores, 0);
        use.tasks++;
    }
    return use;
}

static void add_use(struct card_use *to, const struct card_use *use)
{
    to->memory_mib += use->memory_mib;
    to->cores += use->cores;
    to->tasks += use->tasks;
}

static void raise_use(struct card_use *to, const struct card_use *use)
{
    to->memory_mib = MAX(to->memory_mib, use->memory_mib);
    to->cores = MAX(to->cores, use->cores);
    to->tasks = MAX(to->tasks, use->tasks);
}

void pick_add_use(const struct node_pod *pod, const struct pod_devices *devices, const char *uuid,
                  struct card_use *use)
{
    struct card_use most = {0}, lasting = {0};

    for (size_t i = 0; i < devices->count; i++) {
        struct card_use mine = use_of(&devices->containers[i], uuid);

        if (pod->containers[i].role == CONTAINER_INIT) {
            add_use(&mine, &lasting);
            raise_use(&most, &mine);
        } else {
            add_use(&lasting, &mine);
        }
    }
    raise_use(&most, &lasting);
    add_use(use, &most);
}

static int check_card(const struct card *card, const struct card_use *use, struct error *err)
{
    if (use->memory_mib > card->memory_mib)
        return error_set(err, -ENOSPC, "card %s would be given out for %llu MiB of its %u",
                         card->uuid, (unsigned long long)use->memory_mib, card->memory_mib);
    if (use->cores > card->cores)
        return error_set(err, -ENOSPC, "card %s would be given out for %llu cores of its %u",
                         card->uuid, (unsigned long long)use->cores, card->cores);
    if (use->tasks > card->max_tasks)
        return error_set(err, -ENOSPC, "card %s would be shared by %llu tasks, more than its %u",
                         card->uuid, (unsigned long long)use->tasks, card->max_tasks);
    return 0;
}

int pick_check(const struct node_pod *pod, const struct pod_devices *devices, size_t index,
               const struct cards *cards,
               void (*others)(void *data, const char *uuid, struct card_use *ret_use), void *data,
               struct error *err)
{
    const struct container_devices *mine = &devices->containers[index];
    int r = 0;

    for (size_t i = 0; i < mine->count && r == 0; i++) {
        const struct card *card = cards_get(cards, mine->items[i].uuid);
        struct card_use use = {0};

        const char *part = strchr(mine->items[i].uuid, '[');

        if (!card)
            return error_set(err, -ENODEV, "card %.96s of the pod's annotation is not here",
                             mine->items[i].uuid);
        if (card->has_parts != (part != NULL))
            return error_set(err, -EINVAL, "card %s is given out %s", card->uuid,
                             part ? "as a whole, not in instances" : "in instances alone");
        if (!card->healthy)
            return error_set(err, -ENODEV,
                             "card %s is not healthy; the container is tried again until it is",
                             card->uuid);
        if (mine->items[i].memory_mib <= 0 || mine->items[i].cores < 0)
            return error_set(err, -EINVAL, "the pod's annotation gives it %d MiB, %d cores of %s",
                             mine->items[i].memory_mib, mine->items[i].cores, card->uuid);
        others(data, part ? mine->items[i].uuid : card->uuid, &use);
        pick_add_use(pod, devices, part ? mine->items[i].uuid : card->uuid, &use);
        r = check_card(card, &use, err);
        if (r == 0 && part && use.tasks > 1)
            r = error_set(err, -ENOSPC, "instance %.120s would be given out twice",
                          mine->items[i].uuid);
    }
    return r;
}
