/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which container of a pod is about to start, given that kubelet starts one with so many devices;
 * and whether the node has what it was given. Pure.
 */

#include "base/error.h"
#include "node/nvidia/card.h"
#include "plugin/pods.h"

enum pick_outcome {
    PICK_FOUND = 1,
    PICK_BEHIND, /* the pod's status does not tell yet: ask again in a moment */
};

/*
 * holder is the container that kubelet says holds the devices, or NULL when it only says which pod.
 * kubelet says nothing of plain init containers and gives their devices again to those that come
 * after, so a holder may stand for an init container before it: then the pod's status and what was
 * handed over already decide. -EINVAL, with err, when no container fits.
 */
int pick_container(struct node_pod *pod, const struct pod_devices *devices, size_t device_count,
                   const char *holder, size_t *ret_index, struct error *err);

/* What pods hold of a card. */
struct card_use {
    uint64_t memory_mib, cores, tasks;
};

/* Adds what one pod holds of a card: its containers together, or an init container if it is more.
 */
void pick_add_use(const struct node_pod *pod, const struct pod_devices *devices, const char *uuid,
                  struct card_use *use);

/*
 * Whether each card that the container was given is here, is healthy, and has room for the pod
 * beside what others hold of it. others gives that for a uuid. -ENODEV or -ENOSPC with err.
 */
int pick_check(const struct node_pod *pod, const struct pod_devices *devices, size_t index,
               const struct cards *cards,
               void (*others)(void *data, const char *uuid, struct card_use *ret_use), void *data,
               struct error *err);
