/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Gives a container of a pod what it was granted: checks it, and writes the container's files. */

#include "plugin/plugin.h"

struct giving {
    struct plugin *plugin;
    const struct node_resource *resource; /* whose ids kubelet gave the container */
    const char *name;                     /* of the CDI device that is made of them */
};

/*
 * devices are the pod's, of which the container of this number gets its own. -EAGAIN: a part of a
 * card is still being made. The arena is for what is not kept.
 */
int give_devices(const struct giving *giving, struct node_pod *pod, size_t index,
                 const struct pod_devices *devices, struct arena *arena, struct error *err);
