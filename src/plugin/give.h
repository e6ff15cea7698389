/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Gives a container of a pod what it was granted: checks it, and writes the container's files. */

#include "plugin/plugin.h"

/* In the folder of a container that Allocate answered without CDI: the name of its ids, then what
 * its cards were. */
#define GIVE_ORDERED_FILE "ordered"
/* There, too: it has started once. */
#define GIVE_STARTED_FILE "started"

struct giving {
    struct plugin *plugin;
    const struct node_resource *resource; /* whose ids kubelet gave the container */
    const char *name;                     /* of the CDI device that is made of them */
    struct spec_edits *laid_out; /* gets the edits, for Allocate's answer; NULL: they become the
                                    specification of the CDI device */
    bool again; /* with laid_out: the container has them already, and starts again */
};

/*
 * devices are the pod's, of which the container of this number gets its own. -EAGAIN: a part of a
 * card is still being made. -ESTALE: what Allocate answered names other device nodes than its cards
 * have by now. The arena is for what is not kept.
 */
int give_devices(const struct giving *giving, struct node_pod *pod, size_t index,
                 const struct pod_devices *devices, struct arena *arena, struct error *err);
