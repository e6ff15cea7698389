/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What befalls devices, as NVML tells of it: a set of events, and a thread that waits for them.
 * NVML's other functions may be called meanwhile from other threads.
 */

#include <stdbool.h>
#include <stdint.h>

#include "nvml/nvml.h"

enum {
    NVML_EVENTS_MAX = 64, /* devices */
};

struct nvml_event {
    int index;           /* of the device; -1: NVML names one that it did not list */
    uint64_t type, data; /* NVML_EVENT_... (driver/nvml.h) */
};

enum nvml_watch {
    NVML_WATCHED = 1,
    NVML_WITHOUT_EVENTS, /* NVML has none of this device */
    NVML_UNWATCHED,      /* it has, and could not be made to tell them */
};

struct nvml_events;

/*
 * Events of all devices from now on: XIDs, memory errors, another recovery action. -ENOSYS where
 * NVML is too old to have any; -EIO.
 */
int nvml_events_open(struct nvml *nvml, struct nvml_events **ret_events, struct error *err);
void nvml_events_close(struct nvml_events *events);
DEFINE_CLEANUP(struct nvml_events *, nvml_events_close);

enum nvml_watch nvml_events_watch(const struct nvml_events *events, unsigned index);

/*
 * Waits for the next one: 1, or 0 when none came in time. -ENODEV when a device is lost, which NVML
 * says at once at every call; -EIO.
 */
int nvml_events_wait(struct nvml_events *events, unsigned timeout_ms, struct nvml_event *ret_event,
                     struct error *err);
