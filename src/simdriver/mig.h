/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * MIG of a simulated card: a card in MIG mode is cut into GPU instances, each with memory and
 * multiprocessors of its own. A GPU instance holds one compute instance, as large as itself, and is
 * then a device of its own to contexts, memory and time (SIM_DEVICES in machine.h): what happens in
 * it touches no other.
 *
 * Under the machine's lock, all of it. Outcomes are NVML's.
 */

#include "driver/nvml.h"
#include "simdriver/state.h"

/* A way of cutting a card, the same for all cards that are known here. */
struct sim_mig_profile {
    unsigned enumerator, id; /* NVML's two numbers for it */
    unsigned slices;         /* of computing, of which a card has seven */
    unsigned size;           /* memory slices, of which a card has eight */
    unsigned step, last;     /* it may begin at 0, step, ... last */
    unsigned max;            /* instances of it on a card */
};

enum {
    SIM_MIG_PROFILES = 7,
    SIM_MIG_SLICES = 8,
    SIM_MIG_NAME_SIZE = 24,
};

extern const struct sim_mig_profile sim_mig_profiles[SIM_MIG_PROFILES];

/* Whether cards of this model have MIG. */
bool sim_mig_is_known(const struct sim_gpu_spec *card);

/* What an instance of a profile has of the card: for a card whose memory or multiprocessors are not
 * those of its model, shares alike. "1g.10gb" is its name. */
uint64_t sim_mig_memory_mib(const struct sim_gpu_spec *card, unsigned profile);
unsigned sim_mig_multiprocessors(const struct sim_gpu_spec *card, unsigned profile);
void sim_mig_name(const struct sim_gpu_spec *card, unsigned profile,
                  char ret_name[SIM_MIG_NAME_SIZE]);

/* The profile of an id or of an enumerator; -1. */
int sim_mig_by_id(unsigned id);
int sim_mig_by_enumerator(unsigned enumerator);

/* Whether any context, or memory, is on the device; of a GPU, its instances included. */
bool sim_mig_is_used(const struct sim_state *s, unsigned device);

bool sim_mig_has_instances(const struct sim_state *s, unsigned gpu);

/* Whether an instance could begin there now. */
bool sim_mig_is_free(const struct sim_state *s, unsigned gpu, unsigned profile, unsigned start);

/* The MIG device of that text, "MIG-uuid" or, as drivers before 470 name them,
 * "MIG-GPU-uuid/gpu instance/compute instance"; -1. */
int sim_mig_find(const struct sim_state *s, const char *text, size_t len);

/* NVML's number for an instance; its placement decides. */
unsigned sim_mig_id(unsigned profile, unsigned start);

nvmlReturn_t sim_mig_create(struct sim_state *s, unsigned gpu, unsigned profile, unsigned start);
nvmlReturn_t sim_mig_create_compute(struct sim_state *s, unsigned gpu, unsigned start);
nvmlReturn_t sim_mig_destroy_compute(struct sim_state *s, unsigned device);
nvmlReturn_t sim_mig_destroy(struct sim_state *s, unsigned device);

/* NVML_SUCCESS; then *ret_activation says whether the mode has changed, or is to change. */
nvmlReturn_t sim_mig_set_mode(struct sim_state *s, unsigned gpu, unsigned mode,
                              nvmlReturn_t *ret_activation);
