/* SPDX-License-Identifier: Apache-2.0 */

/* NVML: how cards are, and what befalls them while somebody waits for it. */

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "simdriver/nvml_guest.h"

enum {
    SETS_MAX = 64,
};

/* A look at the lost is worth while now and then: no event tells of them. */
#define LOOK_NS (100 * NS_PER_MS)

struct nvmlEventSet_st {
    bool in_use;
    uint64_t next;                /* number of the first event that was not looked at yet */
    uint64_t types[SIM_MAX_GPUS]; /* that are wanted of each card */
    uint64_t since[SIM_MAX_GPUS]; /* earlier ones are not told of */
};

static struct nvmlEventSet_st sets[SETS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_set(const struct nvmlEventSet_st *set)
{
    return set >= sets && set < sets + SETS_MAX && set->in_use;
}

PUBLIC nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int error,
                                                unsigned int counter, unsigned long long *count)
{
    const struct sim_health *health;
    unsigned i;
    nvmlReturn_t r = nvml_check_device(device, &i);

    if (r != NVML_SUCCESS)
        return r;
    if (!count || error > NVML_ECC_UNCORRECTED || counter > NVML_ECC_AGGREGATE)
        return NVML_ERROR_INVALID_ARGUMENT;
    (void)nvml_enter();
    health = &nvml_machine()->state->health[i];
    if (error == NVML_ECC_CORRECTED)
        *count = counter == NVML_ECC_VOLATILE ? health->corrected : health->corrected_ever;
    else
        *count = counter == NVML_ECC_VOLATILE ? health->uncorrected : health->uncorrected_ever;
    sim_unlock(nvml_machine());
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count,
                                             nvmlFieldValue_t *values)
{
    const struct sim_state *s;
    unsigned i;
    nvmlReturn_t r = nvml_check_device(device, &i);

    if (r != NVML_SUCCESS)
        return r;
    if (count <= 0 || !values)
        return NVML_ERROR_INVALID_ARGUMENT;
    s = nvml_machine()->state;
    for (int k = 0; k < count; k++) {
        bool known = values[k].fieldId == NVML_FIELD_RECOVERY_ACTION &&
                     s->header.driver.recovery == SIM_RECOVERY_TOLD;

        values[k].nvmlReturn = known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
        values[k].valueType = 1;
        values[k].value.ullVal = 0;
        if (known)
            values[k].value.uiVal = __atomic_load_n(&s->health[i].action, __ATOMIC_ACQUIRE);
    }
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode)
{
    unsigned i;
    nvmlReturn_t r = nvml_check_device(device, &i);

    if (r != NVML_SUCCESS)
        return r;
    if (!mode)
        return NVML_ERROR_INVALID_ARGUMENT;
    *mode = __atomic_load_n(&nvml_machine()->state->health[i].compute_mode, __ATOMIC_ACQUIRE);
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned int mode)
{
    unsigned i;
    nvmlReturn_t r = nvml_check_device(device, &i);

    if (r != NVML_SUCCESS)
        return r;
    if (mode != NVML_COMPUTE_DEFAULT && mode != NVML_COMPUTE_PROHIBITED &&
        mode != NVML_COMPUTE_EXCLUSIVE)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (geteuid() != 0)
        return NVML_ERROR_NO_PERMISSION;
    __atomic_store_n(&nvml_machine()->state->health[i].compute_mode, mode, __ATOMIC_RELEASE);
    return NVML_SUCCESS;
}

/* Events */

static uint64_t types_of(const struct sim_state *s)
{
    if (s->header.driver.events == SIM_EVENTS_NONE)
        return 0;
    return NVML_EVENT_SINGLE_BIT_ECC | NVML_EVENT_DOUBLE_BIT_ECC | NVML_EVENT_XID |
           (s->header.driver.recovery == SIM_RECOVERY_TOLD ? NVML_EVENT_RECOVERY_ACTION : 0);
}

PUBLIC nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    unsigned i;
    nvmlReturn_t r = nvml_check_device(device, &i);

    if (r != NVML_SUCCESS)
        return r;
    if (!types)
        return NVML_ERROR_INVALID_ARGUMENT;
    *types = types_of(nvml_machine()->state);
    return NVML_SUCCESS;
}

PUBLIC nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    nvmlReturn_t r = nvml_check();

    if (r != NVML_SUCCESS)
        return r;
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    (void)pthread_mutex_lock(&lock);
    r = NVML_ERROR_UNKNOWN;
    for (unsigned i = 0; i < SETS_MAX && r != NVML_SUCCESS; i++) {
        if (sets[i].in_use)
            continue;
        sets[i] = (struct nvmlEventSet_st){
            .in_use = true,
            .next = __atomic_load_n(&nvml_machine()->state->card_events, __ATOMIC_ACQUIRE),
        };
        *set = &sets[i];
        r = NVML_SUCCESS;
    }
    (void)pthread_mutex_unlock(&lock);
    return r;
}

PUBLIC nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    nvmlReturn_t r = nvml_check();

    if (r != NVML_SUCCESS)
        return r;
    (void)pthread_mutex_lock(&lock);
    r = is_set(set) ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
    if (r == NVML_SUCCESS)
        set->in_use = false;
    (void)pthread_mutex_unlock(&lock);
    return r;
}

/* All of the types or none, as the reference says. */
PUBLIC nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                             nvmlEventSet_t set)
{
    unsigned i;
    nvmlReturn_t r = nvml_check_device(device, &i);

    if (r != NVML_SUCCESS)
        return r;
    (void)pthread_mutex_lock(&lock);
    if (!is_set(set)) {
        r = NVML_ERROR_INVALID_ARGUMENT;
    } else if (!types || types & ~types_of(nvml_machine()->state)) {
        r = NVML_ERROR_NOT_SUPPORTED;
    } else {
        set->types[i] |= types;
        set->since[i] = __atomic_load_n(&nvml_machine()->state->card_events, __ATOMIC_ACQUIRE);
    }
    (void)pthread_mutex_unlock(&lock);
    return r;
}

/* With the machine locked: the set's next event. */
static bool take_event(struct nvmlEventSet_st *set, const struct sim_state *s,
                       nvmlEventData_t *data)
{
    if (s->card_events - set->next > SIM_EVENTS_KEPT)
        set->next = s->card_events - SIM_EVENTS_KEPT;
    while (set->next < s->card_events) {
        uint64_t number = set->next++;
        const struct sim_card_event *event = &s->recent[number % SIM_EVENTS_KEPT];

        if (event->gpu >= SIM_MAX_GPUS || number < set->since[event->gpu] ||
            !(set->types[event->gpu] & event->type))
            continue;
        *data = (nvmlEventData_t){
            .device = nvml_handle(event->gpu),
            .eventType = event->type,
            .eventData = event->data,
            .gpuInstanceId = NVML_NO_INSTANCE,
            .computeInstanceId = NVML_NO_INSTANCE,
        };
        return true;
    }
    return false;
}

static bool any_lost(const struct nvmlEventSet_st *set, const struct sim_state *s)
{
    for (unsigned i = 0; i < s->header.gpu_count; i++) {
        if (set->types[i] && s->health[i].condition == SIM_CARD_LOST)
            return true;
    }
    return false;
}

/* One look; -1: nothing yet. */
static int look(nvmlEventSet_t set, nvmlEventData_t *data)
{
    struct sim *sim = nvml_machine();
    int r = -1;

    (void)pthread_mutex_lock(&lock);
    (void)sim_lock(sim);
    if (!is_set(set))
        r = NVML_ERROR_INVALID_ARGUMENT;
    else if (any_lost(set, sim->state))
        r = NVML_ERROR_GPU_IS_LOST;
    else if (take_event(set, sim->state, data))
        r = NVML_SUCCESS;
    sim_unlock(sim);
    (void)pthread_mutex_unlock(&lock);
    return r;
}

/* By the host's clock, also on a machine whose own is stopped. */
PUBLIC nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
                                        unsigned int timeout_ms)
{
    int64_t until_ns = clock_now_ns() + (int64_t)timeout_ms * NS_PER_MS;
    nvmlReturn_t r = nvml_check();

    if (r != NVML_SUCCESS)
        return r;
    if (!data)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (;;) {
        uint32_t *bell = &nvml_machine()->state->bell;
        uint32_t rung = __atomic_load_n(bell, __ATOMIC_ACQUIRE);
        int64_t left_ns = until_ns - clock_now_ns();
        struct timespec pause = clock_timespec(MAX(MIN(left_ns, LOOK_NS), INT64_C(0)));

        r = look(set, data);
        if (r >= 0)
            return r;
        if (left_ns <= 0)
            return NVML_ERROR_TIMEOUT;
        (void)syscall(SYS_futex, bell, FUTEX_WAIT, rung, &pause, NULL, 0);
    }
}
