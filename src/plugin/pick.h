/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which container of a pod is about to start, given that kubelet starts one with so many devices;
 * and whether the node has the devices that it was given. Pure.
 */

#include "base/error.h"
#include "node/card.h"
#include "plugin/pods.h"

enum pick_outcome {
    PICK_FOUND = 1,
    PICK_BEHIND, /* the pod's status does not show it yet: try again in a moment. If kubelet is
                    refused with a number (pods.h), the status names the container next time */
};

/*
 * holder is the container that holds the devices by kubelet's account, or NULL when kubelet names
 * the pod only. kubelet does not list plain init containers, and gives their devices again to later
 * containers. So the container that starts may be an init container before the holder: then the
 * pod's status decides, and which containers have their devices already. -EINVAL, with err, when no
 * container fits.
 */
int pick_container(struct node_pod *pod, const struct pod_devices *devices, size_t device_count,
                   const char *holder, size_t *ret_index, struct error *err);

/* The part of a card that pods hold. */
struct card_use {
    uint64_t memory_mib, cores, tasks;
};

/* Adds what a pod holds of a card at most, when its init containers or when its other containers
 * run. */
void pick_add_use(const struct node_pod *pod, const struct pod_devices *devices, const char *uuid,
                  struct card_use *use);

/*
 * Whether each card of the container's grant is on this node, is healthy, and has room for the pod
 * beside the other pods. others() says what those hold of a card. -ENODEV or -ENOSPC with err.
 */
int pick_check(const struct node_pod *pod, const struct pod_devices *devices, size_t index,
               const struct cards *cards,
               void (*others)(void *data, const char *uuid, struct card_use *ret_use), void *data,
               struct error *err);
