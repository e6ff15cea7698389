/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml/events.h"

#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "nvml/internal.h"

#define WANTED                                                                                     \
    (NVML_EVENT_XID | NVML_EVENT_SINGLE_BIT_ECC | NVML_EVENT_DOUBLE_BIT_ECC |                      \
     NVML_EVENT_RECOVERY_ACTION)

struct nvml_events {
    struct nvml *nvml;
    nvmlEventSet_t set;
    unsigned count;
    nvmlDevice_t handles[NVML_EVENTS_MAX];
    enum nvml_watch watches[NVML_EVENTS_MAX];
};

static enum nvml_watch watch_device(struct nvml_events *events, unsigned index)
{
    const struct nvml *nvml = events->nvml;
    unsigned long long types = 0;
    nvmlReturn_t result;

    result = nvml->device_by_index(index, &events->handles[index]);
    if (result == NVML_SUCCESS)
        result = nvml->event_types(events->handles[index], &types);
    if (result == NVML_SUCCESS && !(types & WANTED))
        return NVML_WITHOUT_EVENTS;
    if (result == NVML_SUCCESS)
        result = nvml->register_events(events->handles[index], types & WANTED, events->set);
    if (result == NVML_ERROR_NOT_SUPPORTED)
        return NVML_WITHOUT_EVENTS;
    return result == NVML_SUCCESS ? NVML_WATCHED : NVML_UNWATCHED;
}

int nvml_events_open(struct nvml *nvml, struct nvml_events **ret_events, struct error *err)
{
    CLEANUP(nvml_events_closep) struct nvml_events *events = NULL;
    nvmlReturn_t result;

    if (!nvml->event_types || !nvml->register_events || !nvml->event_set_create ||
        !nvml->event_set_wait || !nvml->event_set_free)
        return error_set(err, -ENOSYS, "this NVML has no events");
    events = calloc(1, sizeof(*events));
    if (!events)
        return error_set(err, -ENOMEM, "no memory");
    events->nvml = nvml;
    result = nvml->event_set_create(&events->set);
    if (result != NVML_SUCCESS) {
        events->set = NULL;
        return nvml_fail(nvml, "cannot make a set of events", result, err);
    }
    result = nvml->device_count(&events->count);
    if (result != NVML_SUCCESS)
        return nvml_fail(nvml, "cannot count the GPUs", result, err);
    events->count = MIN(events->count, (unsigned)NVML_EVENTS_MAX);
    for (unsigned i = 0; i < events->count; i++)
        events->watches[i] = watch_device(events, i);
    *ret_events = TAKE(events);
    return 0;
}

void nvml_events_close(struct nvml_events *events)
{
    if (!events)
        return;
    if (events->set)
        (void)events->nvml->event_set_free(events->set);
    free(events);
}

enum nvml_watch nvml_events_watch(const struct nvml_events *events, unsigned index)
{
    return index < events->count ? events->watches[index] : NVML_UNWATCHED;
}

static int index_of(const struct nvml_events *events, nvmlDevice_t handle)
{
    for (unsigned i = 0; i < events->count; i++) {
        if (events->watches[i] == NVML_WATCHED && events->handles[i] == handle)
            return (int)i;
    }
    return -1;
}

int nvml_events_wait(struct nvml_events *events, unsigned timeout_ms, struct nvml_event *ret_event,
                     struct error *err)
{
    nvmlEventData_t data = {.eventType = 0};
    nvmlReturn_t result = events->nvml->event_set_wait(events->set, &data, timeout_ms);

    if (result == NVML_ERROR_TIMEOUT)
        return 0;
    if (result == NVML_ERROR_GPU_IS_LOST)
        return error_set(err, -ENODEV, "a GPU is lost");
    if (result != NVML_SUCCESS)
        return nvml_fail(events->nvml, "cannot wait for events", result, err);
    *ret_event = (struct nvml_event){
        .index = index_of(events, data.device),
        .type = data.eventType,
        .data = data.eventData,
    };
    return 1;
}
