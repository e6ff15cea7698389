/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a context takes for itself on this node's cards, measured once for each kind: a card's
 * model, and for an instance its profile, by the present driver. Containers get it in their limits,
 * for where NVML does not name their processes.
 *
 * It is measured by a short-lived process of this program's (measure.h) on a healthy card in the
 * default compute mode, when nobody is listed there; once a minute on one that is in use and has
 * room, where NVML may name our process all the same. Nothing that a container does or writes goes
 * into it.
 *
 * "<hook path>/contexts" keeps it: "driver VERSION", then lines "BYTES MODEL". It is replaced as a
 * whole after each measurement; what was measured with another driver is dropped.
 */

#include "node/card.h"
#include "node/host.h"
#include "nvml/nvml.h"
#include "vendor/nvidia/nvidia.h"

struct sizes;

struct sizes_options {
    const struct node_host *host;
    const char *root;  /* the driver's, as we see it; NULL: not given */
    const char *sysfs; /* "/sys": below it is what our container may use of memory */
    uint64_t limit_ms; /* how long measuring may take; 0: 30 s */
};

/* Reads what is kept. The options' texts outlive it. -ENOMEM. */
int sizes_new(const struct sizes_options *options, struct sizes **ret_sizes, struct error *err);
/* Ends what is being measured. */
void sizes_free(struct sizes *sizes);

/*
 * Takes in what was measured, and begins to measure what is missing, one kind at a time; not where
 * the configuration says it. Called every few seconds by the thread that finds the cards; does not
 * wait for the measuring process.
 */
void sizes_step(struct sizes *sizes, struct nvml *nvml, const struct nvidia_config *config,
                const struct cards *cards);

/* In bytes, by a card's type; 0: not known. From any thread; sizes may be NULL. */
uint64_t sizes_find(struct sizes *sizes, const char *type);
