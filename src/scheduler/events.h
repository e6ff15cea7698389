/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Events on pods, for people. kube-scheduler asks about a pod that does not fit again and again:
 * one event is written per pod and kind of reason, not one per question.
 */

#include <stdint.h>

#include "base/cleanup.h"
#include "kube/client.h"
#include "model/pod.h"

struct events;

struct event_pod {
    const char *namespace, *name, *uid, *resource_version;
};

/* component is the events' source. NULL: no memory. */
struct events *events_new(struct kube_client *kube, const char *component);
void events_free(struct events *events);
DEFINE_CLEANUP(struct events *, events_free);

/*
 * Writes a Warning, unless the last one for this pod had the same reason and kinds (bits of the
 * caller's). A failure is only logged.
 */
void events_warn(struct events *events, const struct event_pod *pod, const char *reason,
                 uint64_t kinds, const char *message);

/* The pod was placed: its next Warning is written in any case. */
void events_forget(struct events *events, const char *uid);
