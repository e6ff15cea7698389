/* SPDX-License-Identifier: Apache-2.0 */

/* Over a made-up NVML of four devices. */

#include "nvml/events.h"

#include <errno.h>

#include "base/check.h"
#include "nvml/internal.h"

enum {
    DEVICES = 4,
    OTHER_TYPE = 0x10, /* that nobody asks for */
};

static char devices[DEVICES];
static nvmlReturn_t found[DEVICES], registered[DEVICES]; /* results of the calls for each */
static unsigned long long types[DEVICES], wanted[DEVICES];
static nvmlReturn_t created, counted, waited;
static nvmlEventData_t next;
static unsigned open_sets, device_total, asked_last;

static const char *say(nvmlReturn_t result)
{
    (void)result;
    return "made up";
}

static unsigned index_of(nvmlDevice_t device)
{
    return (unsigned)((char *)(void *)device - devices);
}

static nvmlReturn_t device_count(unsigned *count)
{
    *count = device_total;
    return counted;
}

static nvmlReturn_t device_by_index(unsigned index, nvmlDevice_t *device)
{
    asked_last = index;
    if (index >= DEVICES)
        return NVML_ERROR_GPU_IS_LOST;
    *device = (nvmlDevice_t)(void *)&devices[index];
    return found[index];
}

static nvmlReturn_t event_types(nvmlDevice_t device, unsigned long long *ret_types)
{
    *ret_types = types[index_of(device)];
    return NVML_SUCCESS;
}

static nvmlReturn_t register_events(nvmlDevice_t device, unsigned long long asked,
                                    nvmlEventSet_t set)
{
    (void)set;
    wanted[index_of(device)] = asked;
    return registered[index_of(device)];
}

static nvmlReturn_t event_set_create(nvmlEventSet_t *set)
{
    static char made;

    *set = (nvmlEventSet_t)(void *)&made;
    open_sets += created == NVML_SUCCESS;
    return created;
}

static nvmlReturn_t event_set_wait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms)
{
    (void)set;
    assert_int_equal(timeout_ms, 20);
    *data = next;
    return waited;
}

static nvmlReturn_t event_set_free(nvmlEventSet_t set)
{
    assert_non_null(set);
    open_sets--;
    return NVML_SUCCESS;
}

static struct nvml nvml;

static int set_up(void **state)
{
    (void)state;
    nvml = (struct nvml){
        .error_string = say,
        .device_count = device_count,
        .device_by_index = device_by_index,
        .event_types = event_types,
        .register_events = register_events,
        .event_set_create = event_set_create,
        .event_set_wait = event_set_wait,
        .event_set_free = event_set_free,
    };
    created = counted = waited = NVML_SUCCESS;
    open_sets = 0;
    device_total = DEVICES;
    for (unsigned i = 0; i < DEVICES; i++) {
        found[i] = registered[i] = NVML_SUCCESS;
        types[i] = NVML_EVENT_XID | OTHER_TYPE;
        wanted[i] = 0;
    }
    return 0;
}

static struct nvml_events *open_events(void)
{
    struct nvml_events *events;

    assert_int_equal(nvml_events_open(&nvml, &events, NULL), 0);
    assert_int_equal(open_sets, 1);
    return events;
}

static void each_device_is_watched_as_far_as_it_can_be(void **state)
{
    struct nvml_events *events;

    (void)state;
    types[1] = OTHER_TYPE;
    registered[2] = NVML_ERROR_NOT_SUPPORTED;
    found[3] = NVML_ERROR_GPU_IS_LOST;
    events = open_events();
    assert_int_equal(nvml_events_watch(events, 0), NVML_WATCHED);
    assert_int_equal(wanted[0], NVML_EVENT_XID);
    assert_int_equal(nvml_events_watch(events, 1), NVML_WITHOUT_EVENTS);
    assert_int_equal(wanted[1], 0);
    assert_int_equal(nvml_events_watch(events, 2), NVML_WITHOUT_EVENTS);
    assert_int_equal(nvml_events_watch(events, 3), NVML_UNWATCHED);
    assert_int_equal(nvml_events_watch(events, DEVICES), NVML_UNWATCHED);
    nvml_events_close(events);
    assert_int_equal(open_sets, 0);
}

static void of_more_devices_than_there_is_room_for_the_first_are_watched(void **state)
{
    struct nvml_events *events;

    (void)state;
    device_total = NVML_EVENTS_MAX + 1;
    events = open_events();
    assert_int_equal(asked_last, NVML_EVENTS_MAX - 1);
    assert_int_equal(nvml_events_watch(events, 0), NVML_WATCHED);
    assert_int_equal(nvml_events_watch(events, NVML_EVENTS_MAX), NVML_UNWATCHED);
    nvml_events_close(events);
}

static void what_cannot_be_opened_leaves_no_set(void **state)
{
    struct nvml_events *events = NULL;

    (void)state;
    created = NVML_ERROR_UNKNOWN;
    assert_int_equal(nvml_events_open(&nvml, &events, NULL), -EIO);
    created = NVML_SUCCESS;
    counted = NVML_ERROR_UNKNOWN;
    assert_int_equal(nvml_events_open(&nvml, &events, NULL), -EIO);
    counted = NVML_SUCCESS;
    nvml.event_set_wait = NULL;
    assert_int_equal(nvml_events_open(&nvml, &events, NULL), -ENOSYS);
    assert_null(events);
    assert_int_equal(open_sets, 0);
}

static void an_event_names_its_device(void **state)
{
    struct nvml_events *events;
    struct nvml_event event;

    (void)state;
    registered[3] = NVML_ERROR_UNKNOWN;
    events = open_events();
    next = (nvmlEventData_t){
        .device = (nvmlDevice_t)(void *)&devices[2], .eventType = NVML_EVENT_XID, .eventData = 79};
    assert_int_equal(nvml_events_wait(events, 20, &event, NULL), 1);
    assert_int_equal(event.index, 2);
    assert_int_equal(event.type, NVML_EVENT_XID);
    assert_int_equal(event.data, 79);
    next.device = (nvmlDevice_t)(void *)&devices[3];
    assert_int_equal(nvml_events_wait(events, 20, &event, NULL), 1);
    assert_int_equal(event.index, -1);
    nvml_events_close(events);
}

static void without_an_event_it_is_told_why(void **state)
{
    struct nvml_events *events = open_events();
    struct nvml_event event;

    (void)state;
    waited = NVML_ERROR_TIMEOUT;
    assert_int_equal(nvml_events_wait(events, 20, &event, NULL), 0);
    waited = NVML_ERROR_GPU_IS_LOST;
    assert_int_equal(nvml_events_wait(events, 20, &event, NULL), -ENODEV);
    waited = NVML_ERROR_UNKNOWN;
    assert_int_equal(nvml_events_wait(events, 20, &event, NULL), -EIO);
    nvml_events_close(events);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(each_device_is_watched_as_far_as_it_can_be, set_up),
        cmocka_unit_test_setup(of_more_devices_than_there_is_room_for_the_first_are_watched,
                               set_up),
        cmocka_unit_test_setup(what_cannot_be_opened_leaves_no_set, set_up),
        cmocka_unit_test_setup(an_event_names_its_device, set_up),
        cmocka_unit_test_setup(without_an_event_it_is_told_why, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
