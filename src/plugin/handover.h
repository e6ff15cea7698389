/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How a new plugin takes over from an earlier one without a gap.
 *
 * kubelet knows plugins by their resource's name alone: when the connection of an earlier plugin
 * ends, it drops the present one, calls the devices unhealthy, and refuses pods until the plugin
 * registers again. So the earlier plugin does not let its connection end: it hands the descriptor
 * to the plugin that has taken its place, which keeps it open and silent until kubelet itself is
 * started anew.
 */

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "base/cleanup.h"
#include "base/error.h"

struct handover;

enum {
    HANDOVER_MAX = 64, /* descriptors */
};

/*
 * Takes descriptors that are handed over at path, a socket that replaces an existing one. takes()
 * says whether we are registered with kubelet by now; before that nothing is taken.
 */
int handover_new(uv_loop_t *loop, const char *path, bool (*takes)(void *data), void *data,
                 struct handover **ret_handover, struct error *err);

/* Closes the descriptors, and removes the socket; the memory goes with the loop's turns. */
void handover_free(struct handover *handover);

/* Closes the descriptors: kubelet is a new process. */
void handover_forget(struct handover *handover);

/* The descriptors that it holds. */
size_t handover_held(const struct handover *handover, int ret_fds[static HANDOVER_MAX]);

/*
 * Hands descriptors over to the plugin that listens at path, and waits for a second at most. 0 when
 * they were taken; then the other plugin keeps them open, and the caller may close its own.
 */
int handover_give(const char *path, const int *fds, size_t count);
