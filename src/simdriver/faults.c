/* SPDX-License-Identifier: Apache-2.0 */

/* What befalls cards, for NVML to tell of (nvml_events.c). */

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "driver/nvml.h"
#include "simdriver/mig.h"

static void add_event(struct sim_state *s, unsigned gpu, uint64_t type, uint64_t data)
{
    s->recent[s->card_events % SIM_EVENTS_KEPT] =
        (struct sim_card_event){.type = type, .data = data, .gpu = gpu};
    __atomic_add_fetch(&s->card_events, 1, __ATOMIC_RELEASE);
}

static void set_condition(struct sim_health *health, enum sim_condition condition)
{
    if (condition == SIM_CARD_OK) {
        health->action = NVML_RECOVERY_NONE;
        health->corrected = health->uncorrected = 0;
        health->mig = health->mig_pending;
    }
    __atomic_store_n(&health->condition, (uint32_t)condition, __ATOMIC_RELEASE);
}

static void befall(struct sim_state *s, unsigned gpu, const struct sim_fault *fault)
{
    struct sim_health *health = &s->health[gpu];

    if (fault->has_condition)
        set_condition(health, fault->condition);
    health->corrected += fault->corrected;
    health->corrected_ever += fault->corrected;
    health->uncorrected += fault->uncorrected;
    health->uncorrected_ever += fault->uncorrected;
    if (fault->corrected)
        add_event(s, gpu, NVML_EVENT_SINGLE_BIT_ECC, 0);
    if (fault->uncorrected)
        add_event(s, gpu, NVML_EVENT_DOUBLE_BIT_ECC, 0);
    if (fault->has_action) {
        health->action = fault->action;
        add_event(s, gpu, NVML_EVENT_RECOVERY_ACTION, fault->action);
    }
    if (fault->has_compute_mode)
        health->compute_mode = fault->compute_mode;
    if (fault->has_mig)
        health->mig = health->mig_pending = fault->mig;
    if (fault->has_xid)
        add_event(s, gpu, NVML_EVENT_XID, fault->xid);
}

int sim_machine_fault(const char *path, unsigned gpu, const struct sim_fault *fault,
                      struct error *err)
{
    struct sim *sim;
    bool split;
    int r;

    r = sim_open(path, &sim, err);
    if (r < 0)
        return r;
    if (gpu >= sim->state->header.gpu_count)
        return error_set(err, -EINVAL, "%s: it has no GPU %u", path, gpu);
    if (fault->has_mig && !sim_mig_is_known(&sim->state->header.gpus[gpu]))
        return error_set(err, -EINVAL, "%s: a card of GPU %u's model has no MIG", path, gpu);
    (void)sim_lock(sim);
    split = sim_mig_has_instances(sim->state, gpu) && fault->has_mig && !fault->mig;
    if (!split)
        befall(sim->state, gpu, fault);
    sim_unlock(sim);
    if (split)
        return error_set(err, -EBUSY, "%s: GPU %u has instances", path, gpu);
    __atomic_add_fetch(&sim->state->bell, 1, __ATOMIC_ACQ_REL);
    (void)syscall(SYS_futex, &sim->state->bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    return 0;
}
