/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How one plugin follows another without a moment in which there is none.
 *
 * kubelet knows plugins by their resource's name alone: when the connection of an earlier one ends,
 * it drops the present one, calls the devices unhealthy, and refuses pods until it is told again.
 * So the earlier one does not let its connection end: it hands its descriptor to the one that has
 * taken its place, which keeps it open and silent until kubelet itself is started anew.
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
 * Takes what is handed over at path, a socket that replaces one that is there. takes() says whether
 * kubelet knows us by now; else nothing is taken.
 */
int handover_new(uv_loop_t *loop, const char *path, bool (*takes)(void *data), void *data,
                 struct handover **ret_handover, struct error *err);

/* Closes what it has, and removes its socket; the memory goes with the loop's turns. */
void handover_free(struct handover *handover);

/* Closes what it has: kubelet is another one. */
void handover_forget(struct handover *handover);

/* What it has. */
size_t handover_held(const struct handover *handover, int ret_fds[static HANDOVER_MAX]);

/*
 * Hands these over to whoever is at path, and waits for a second at most. 0 when they were taken;
 * then they are kept open by the other, and may be closed.
 */
int handover_give(const char *path, const int *fds, size_t count);
