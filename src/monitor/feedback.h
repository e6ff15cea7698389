/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * HAMi's feedback: which containers of this node wait for others of higher priority on their cards,
 * and which are held to their share because others use the cards, too. HAMi's monitor writes both
 * into the containers' regions every five seconds, and HAMi-core obeys:
 *
 *   recent_kernel       a process sets it to 2 when it launches. Each round takes one off; what is
 *                       left above 0 is a container that is active on each of its cards. Below 0
 * the container is blocked utilization_switch  0: the share of compute is not enforced
 *
 * Lower numbers are higher priorities. Where a limits file rules, libvgpu looks at neither word
 * (docs/security.md): there the cells of a card (region/card.h) say both, within milliseconds.
 */

#include <stdbool.h>
#include <stddef.h>

#include "monitor/containers.h"

struct feedback_container {
    int priority; /* below 0: its activity counts for nobody */
    int recent_kernel, utilization_switch;
    unsigned card_count;
    unsigned cards[LIMITS_MAX_DEVICES]; /* numbers, the same for the same card */
};

/* One round over all containers of the node: changes their two words. False, and nothing is
 * changed, when there is no memory. */
bool feedback_decide(struct feedback_container *containers, size_t count);

/*
 * A round over the regions of one look at the containers: the visitor gathers them, and
 * feedback_tell() decides, and writes the words that changed, which blocks on the disk. NULL: no
 * memory.
 */
struct feedback;
struct feedback *feedback_new(void);
void feedback_free(struct feedback *feedback);
struct containers_visitor feedback_visitor(struct feedback *feedback);
void feedback_tell(struct feedback *feedback);
