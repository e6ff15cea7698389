/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/match.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"

enum {
    ARENA_MAX = 4 << 20,
};

/* The first container that was granted devices and has none; kubelet asks in this order, init
 * containers first. container_count: all have theirs. */
static size_t find_next(const struct node_pod *pod, const struct pod_devices *devices)
{
    for (size_t i = 0; i < devices->count; i++) {
        if (devices->containers[i].count && !pod->containers[i].ready)
            return i;
    }
    return pod->container_count;
}

static bool is_waiting(const struct node_pod *pod)
{
    return pod->allocating && pod->allocated[0] && !pod->over;
}

/* After a loss of kubelet's own records, and with the same ids as before. */
static size_t find_again(struct node_pod *const *pods, size_t pod_count, const char *name,
                         struct match *match)
{
    size_t found = 0;

    for (size_t i = 0; i < pod_count; i++) {
        struct node_pod *pod = pods[i];

        for (size_t k = 0; k < pod->container_count && !pod->over; k++) {
            if (!pod->containers[k].ordered || strcmp(pod->containers[k].cdi_name, name) != 0)
                continue;
            *match = (struct match){pod, k, .again = true};
            found++;
        }
    }
    return found;
}

static int check_count(const struct match *match, size_t count, struct error *err)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_MAX);
    struct pod_devices devices;
    size_t granted;
    int r;

    if (!arena)
        return error_set(err, -ENOMEM, "no memory");
    r = pod_grants(match->pod, arena, &devices, err);
    granted = r == 0 && match->index < devices.count ? devices.containers[match->index].count : 0;
    if (r == 0 && granted == count)
        return MATCH_FOUND;
    if (r == 0)
        (void)error_set(err, 0,
                        "kubelet asks for %zu devices, and container %s of %s/%s, whose turn it "
                        "is, was granted %zu: it is for another pod, or was not bound by "
                        "hami-scheduler",
                        count, match->pod->containers[match->index].name, match->pod->namespace,
                        match->pod->name, granted);
    return MATCH_COUNT;
}

/* Whether the pod waits, and its next container. */
static int look_at(struct node_pod *pod, struct match *ret_match, struct error *err)
{
    CLEANUP(arena_freep) struct arena *arena = NULL;
    struct pod_devices devices;
    size_t next;

    if (!is_waiting(pod))
        return MATCH_NONE;
    arena = arena_new(ARENA_MAX);
    if (!arena)
        return error_set(err, -ENOMEM, "no memory");
    next = pod_grants(pod, arena, &devices, NULL) == 0 ? find_next(pod, &devices) : 0;
    if (next >= pod->container_count)
        return MATCH_NONE;
    *ret_match = (struct match){.pod = pod, .index = next};
    return MATCH_FOUND;
}

int match_container(struct node_pod *const *pods, size_t pod_count, const char *name, size_t count,
                    struct match *ret_match, struct error *err)
{
    struct match match = {.pod = NULL}, other;
    size_t found;
    int r;

    for (size_t i = 0; i < pod_count; i++) {
        r = look_at(pods[i], &other, err);
        if (r < 0)
            return r;
        if (r == MATCH_NONE)
            continue;
        if (match.pod) {
            (void)error_set(err, 0,
                            "two pods wait for devices, %s/%s and %s/%s, and for which one kubelet "
                            "asks can't be told",
                            match.pod->namespace, match.pod->name, other.pod->namespace,
                            other.pod->name);
            return MATCH_SEVERAL;
        }
        match = other;
    }
    found = match.pod ? 1 : find_again(pods, pod_count, name, &match);
    if (found == 0) {
        (void)error_set(err, 0,
                        "no pod of this node is being bound: the pod was not bound by "
                        "hami-scheduler, or somebody else's allocation was taken for its own; "
                        "delete it");
        return MATCH_NONE;
    }
    if (found > 1) {
        (void)error_set(err, 0,
                        "%zu containers had these devices, and for which one kubelet asks "
                        "again can't be told: delete the pods",
                        found);
        return MATCH_SEVERAL;
    }
    r = check_count(&match, count, err);
    if (r == MATCH_FOUND)
        *ret_match = match;
    return r;
}
