/* SPDX-License-Identifier: Apache-2.0 */

/* What befalls cards, as NVML tells of it: events, counts of errors, cards that are lost or hang.
 */

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/clock.h"
#include "base/util.h"
#include "driver/nvml.h"
#include "simdriver/testing.h"

#define NVML(error, call) HOLDS((call) == (error))
#define FINE(call) NVML(NVML_SUCCESS, call)

enum {
    ALL = NVML_EVENT_SINGLE_BIT_ECC | NVML_EVENT_DOUBLE_BIT_ECC | NVML_EVENT_XID,
    KEPT = 256, /* events that the machine remembers */
};

static nvmlDevice_t device(unsigned index)
{
    nvmlDevice_t found;

    FINE(nvmlDeviceGetHandleByIndex_v2(index, &found));
    return found;
}

static void befall(unsigned gpu, struct sim_fault fault)
{
    HOLDS(sim_machine_fault(testing_machine(), gpu, &fault, NULL) == 0);
}

static nvmlEventSet_t new_set(unsigned long long types)
{
    nvmlEventSet_t set;

    FINE(nvmlEventSetCreate(&set));
    FINE(nvmlDeviceRegisterEvents(device(0), types, set));
    FINE(nvmlDeviceRegisterEvents(device(1), types, set));
    return set;
}

static bool next_is(nvmlEventSet_t set, unsigned gpu, unsigned long long type,
                    unsigned long long number)
{
    nvmlEventData_t data;

    return nvmlEventSetWait_v2(set, &data, 0) == NVML_SUCCESS && data.device == device(gpu) &&
           data.eventType == type && data.eventData == number &&
           data.gpuInstanceId == NVML_NO_INSTANCE;
}

static void events(void)
{
    unsigned long long types = 0;
    nvmlEventData_t data;
    nvmlEventSet_t set, second;

    FINE(nvmlInit_v2());
    befall(0, (struct sim_fault){.has_xid = true, .xid = 31});
    FINE(nvmlDeviceGetSupportedEventTypes(device(0), &types));
    HOLDS(types == (ALL | NVML_EVENT_RECOVERY_ACTION));
    set = new_set(ALL);
    second = new_set(NVML_EVENT_XID);
    NVML(NVML_ERROR_TIMEOUT, nvmlEventSetWait_v2(set, &data, 0)); /* none of before */
    befall(1, (struct sim_fault){.has_xid = true, .xid = 79, .corrected = 1, .uncorrected = 2});
    befall(0, (struct sim_fault){.has_action = true, .action = NVML_RECOVERY_GPU_RESET});
    HOLDS(next_is(set, 1, NVML_EVENT_SINGLE_BIT_ECC, 0));
    HOLDS(next_is(set, 1, NVML_EVENT_DOUBLE_BIT_ECC, 0));
    HOLDS(next_is(set, 1, NVML_EVENT_XID, 79));
    NVML(NVML_ERROR_TIMEOUT, nvmlEventSetWait_v2(set, &data, 1)); /* not registered for it */
    HOLDS(next_is(second, 1, NVML_EVENT_XID, 79));                /* each set has its own */
    NVML(NVML_ERROR_TIMEOUT, nvmlEventSetWait_v2(second, &data, 1));

    FINE(nvmlEventSetFree(set));
    NVML(NVML_ERROR_INVALID_ARGUMENT, nvmlEventSetWait_v2(set, &data, 0));
    NVML(NVML_ERROR_INVALID_ARGUMENT, nvmlEventSetFree(set));
    NVML(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceRegisterEvents(device(0), ALL, set));
    NVML(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceRegisterEvents(device(0), 1ull << 40, second));
    for (uint64_t i = 0; i < KEPT + 3; i++)
        befall(0, (struct sim_fault){.has_xid = true, .xid = i});
    HOLDS(next_is(second, 0, NVML_EVENT_XID, 3)); /* the oldest are lost */
    FINE(nvmlShutdown());
    NVML(NVML_ERROR_UNINITIALIZED, nvmlEventSetWait_v2(second, &data, 0));
}

static void no_events(void)
{
    unsigned long long types = 1;
    nvmlFieldValue_t value = {.fieldId = NVML_FIELD_RECOVERY_ACTION};
    nvmlEventData_t data;
    nvmlEventSet_t set;

    FINE(nvmlInit_v2());
    FINE(nvmlDeviceGetSupportedEventTypes(device(0), &types));
    HOLDS(types == 0);
    FINE(nvmlEventSetCreate(&set));
    NVML(NVML_ERROR_NOT_SUPPORTED, nvmlDeviceRegisterEvents(device(0), NVML_EVENT_XID, set));
    befall(0, (struct sim_fault){.has_xid = true, .xid = 79});
    NVML(NVML_ERROR_TIMEOUT, nvmlEventSetWait_v2(set, &data, 0));
    FINE(nvmlDeviceGetFieldValues(device(0), 1, &value));
    HOLDS(value.nvmlReturn == NVML_ERROR_NOT_SUPPORTED);
}

static void *cause(void *unused)
{
    const struct timespec pause = {.tv_nsec = 100 * NS_PER_MS};

    (void)nanosleep(&pause, NULL);
    befall(1, (struct sim_fault){.has_xid = true, .xid = 48});
    return unused;
}

static void waits(void)
{
    int64_t began_ns = clock_now_ns(), took_ns;
    nvmlEventData_t data;
    nvmlEventSet_t set;
    pthread_t thread;

    FINE(nvmlInit_v2());
    set = new_set(NVML_EVENT_XID);
    NVML(NVML_ERROR_TIMEOUT, nvmlEventSetWait_v2(set, &data, 50));
    HOLDS(clock_now_ns() - began_ns >= 50 * NS_PER_MS);
    HOLDS(pthread_create(&thread, NULL, cause, NULL) == 0);
    began_ns = clock_now_ns();
    FINE(nvmlEventSetWait_v2(set, &data, 30000));
    took_ns = clock_now_ns() - began_ns;
    HOLDS(data.eventData == 48);
    HOLDS(took_ns < 5 * NS_PER_S); /* woken, not timed out */
    HOLDS(pthread_join(thread, NULL) == 0);
}

static unsigned long long errors(unsigned kind, unsigned counter)
{
    unsigned long long count = 77;

    FINE(nvmlDeviceGetTotalEccErrors(device(1), kind, counter, &count));
    return count;
}

static unsigned action(void)
{
    nvmlFieldValue_t values[2] = {{.fieldId = NVML_FIELD_RECOVERY_ACTION}, {.fieldId = 1}};

    FINE(nvmlDeviceGetFieldValues(device(1), 2, values));
    HOLDS(values[0].nvmlReturn == NVML_SUCCESS);
    HOLDS(values[1].nvmlReturn == NVML_ERROR_NOT_SUPPORTED);
    return values[0].value.uiVal;
}

static void counts(void)
{
    unsigned long long count;

    FINE(nvmlInit_v2());
    befall(1, (struct sim_fault){.corrected = 3,
                                 .uncorrected = 1,
                                 .has_action = true,
                                 .action = NVML_RECOVERY_NODE_REBOOT});
    HOLDS(errors(NVML_ECC_CORRECTED, NVML_ECC_VOLATILE) == 3);
    HOLDS(errors(NVML_ECC_UNCORRECTED, NVML_ECC_VOLATILE) == 1);
    HOLDS(action() == NVML_RECOVERY_NODE_REBOOT);
    befall(1, (struct sim_fault){.has_condition = true, .condition = SIM_CARD_OK});
    HOLDS(errors(NVML_ECC_CORRECTED, NVML_ECC_VOLATILE) == 0);
    HOLDS(errors(NVML_ECC_UNCORRECTED, NVML_ECC_VOLATILE) == 0);
    HOLDS(errors(NVML_ECC_CORRECTED, NVML_ECC_AGGREGATE) == 3);
    HOLDS(errors(NVML_ECC_UNCORRECTED, NVML_ECC_AGGREGATE) == 1);
    HOLDS(action() == NVML_RECOVERY_NONE);
    FINE(nvmlDeviceGetTotalEccErrors(device(0), 1, 0, &count));
    HOLDS(count == 0); /* another card's are its own */
    NVML(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceGetTotalEccErrors(device(0), 2, 0, &count));
}

static void modes(void)
{
    unsigned mode = 77, current = 77, pending = 77;

    FINE(nvmlInit_v2());
    FINE(nvmlDeviceGetComputeMode(device(1), &mode));
    FINE(nvmlDeviceGetMigMode(device(1), &current, &pending));
    HOLDS(mode == NVML_COMPUTE_DEFAULT && current == 0 && pending == 0);
    befall(1, (struct sim_fault){.has_compute_mode = true,
                                 .compute_mode = NVML_COMPUTE_EXCLUSIVE,
                                 .has_mig = true,
                                 .mig = true});
    FINE(nvmlDeviceGetComputeMode(device(1), &mode));
    FINE(nvmlDeviceGetMigMode(device(1), &current, &pending));
    HOLDS(mode == NVML_COMPUTE_EXCLUSIVE && current == 1 && pending == 1);
    FINE(nvmlDeviceGetComputeMode(device(0), &mode));
    HOLDS(mode == NVML_COMPUTE_DEFAULT);
}

/* Root may set one, others may not; what is not simulated is not there for root, nor for others. */
static void changes(void)
{
    nvmlReturn_t (*set_limit)(nvmlDevice_t, unsigned) =
        (nvmlReturn_t(*)(nvmlDevice_t, unsigned))dlsym(RTLD_DEFAULT,
                                                       "nvmlDeviceSetPowerManagementLimit");
    unsigned mode = 77;

    FINE(nvmlInit_v2());
    NVML(NVML_ERROR_INVALID_ARGUMENT, nvmlDeviceSetComputeMode(device(0), 7));
    if (geteuid() != 0)
        return;
    FINE(nvmlDeviceSetComputeMode(device(0), NVML_COMPUTE_PROHIBITED));
    NVML(NVML_ERROR_NOT_SUPPORTED, set_limit(device(0), 100000));
    HOLDS(seteuid(65534) == 0);
    NVML(NVML_ERROR_NO_PERMISSION, nvmlDeviceSetComputeMode(device(0), NVML_COMPUTE_DEFAULT));
    NVML(NVML_ERROR_NO_PERMISSION, set_limit(device(0), 100000));
    HOLDS(seteuid(0) == 0);
    FINE(nvmlDeviceGetComputeMode(device(0), &mode));
    HOLDS(mode == NVML_COMPUTE_PROHIBITED);
}

static void lost(void)
{
    char text[NVML_DEVICE_UUID_BUFFER_SIZE];
    nvmlDevice_t found, was;
    nvmlEventData_t data;
    nvmlMemory_t memory;
    nvmlEventSet_t set;
    unsigned count;

    FINE(nvmlInit_v2());
    was = device(1);
    set = new_set(NVML_EVENT_XID);
    befall(1, (struct sim_fault){.has_condition = true, .condition = SIM_CARD_LOST});
    NVML(NVML_ERROR_GPU_IS_LOST, nvmlDeviceGetHandleByIndex_v2(1, &found));
    NVML(NVML_ERROR_GPU_IS_LOST, nvmlDeviceGetMemoryInfo(was, &memory));
    NVML(NVML_ERROR_GPU_IS_LOST, nvmlDeviceGetUUID(was, text, sizeof(text)));
    NVML(NVML_ERROR_GPU_IS_LOST, nvmlEventSetWait_v2(set, &data, 1000));
    befall(0, (struct sim_fault){.has_xid = true, .xid = 79});
    NVML(NVML_ERROR_GPU_IS_LOST, nvmlEventSetWait_v2(set, &data, 0));
    FINE(nvmlDeviceGetCount_v2(&count));
    HOLDS(count == 2);
    FINE(nvmlDeviceGetMemoryInfo(device(0), &memory));
    befall(1, (struct sim_fault){.has_condition = true, .condition = SIM_CARD_OK});
    FINE(nvmlDeviceGetMemoryInfo(was, &memory));
    HOLDS(next_is(set, 0, NVML_EVENT_XID, 79));
    NVML(NVML_ERROR_TIMEOUT, nvmlEventSetWait_v2(set, &data, 0));
}

static void *ask(void *answered)
{
    nvmlMemory_t memory;

    FINE(nvmlDeviceGetMemoryInfo(device(1), &memory));
    __atomic_store_n((bool *)answered, true, __ATOMIC_RELEASE);
    return NULL;
}

static void hangs(void)
{
    const struct timespec pause = {.tv_nsec = 200 * NS_PER_MS};
    bool answered = false;
    nvmlMemory_t memory;
    pthread_t thread;

    FINE(nvmlInit_v2());
    befall(1, (struct sim_fault){.has_condition = true, .condition = SIM_CARD_HANGS});
    HOLDS(pthread_create(&thread, NULL, ask, &answered) == 0);
    (void)nanosleep(&pause, NULL);
    HOLDS(!__atomic_load_n(&answered, __ATOMIC_ACQUIRE));
    FINE(nvmlDeviceGetMemoryInfo(device(0), &memory)); /* the other one answers */
    befall(1, (struct sim_fault){.has_condition = true, .condition = SIM_CARD_OK});
    HOLDS(pthread_join(thread, NULL) == 0);
    HOLDS(answered);
}

static void a_set_has_the_events_of_its_cards_from_then_on(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", events), 0);
}

static void a_driver_may_have_no_events_and_no_opinion(void **state)
{
    (void)state;
    assert_int_equal(testing_run("events=none recovery-action=unknown", no_events), 0);
}

static void whoever_waits_is_woken(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", waits), 0);
}

static void errors_are_counted_until_a_reset_and_for_ever(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", counts), 0);
}

static void a_card_has_its_modes(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", modes), 0);
}

static void only_root_changes_a_card(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", changes), 0);
}

static void a_lost_card_says_so_whatever_is_asked(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", lost), 0);
}

static void a_card_that_hangs_answers_when_it_is_well(void **state)
{
    (void)state;
    assert_int_equal(testing_run("", hangs), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_has_the_events_of_its_cards_from_then_on),
        cmocka_unit_test(a_driver_may_have_no_events_and_no_opinion),
        cmocka_unit_test(whoever_waits_is_woken),
        cmocka_unit_test(errors_are_counted_until_a_reset_and_for_ever),
        cmocka_unit_test(a_card_has_its_modes),
        cmocka_unit_test(only_root_changes_a_card),
        cmocka_unit_test(a_lost_card_says_so_whatever_is_asked),
        cmocka_unit_test(a_card_that_hangs_answers_when_it_is_well),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
