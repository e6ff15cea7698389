/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a container with a part of NVIDIA's cards needs: limits for libvgpu, environment, mounts,
 * device nodes.
 */

#include "node/card.h"
#include "node/host.h"
#include "node/nvidia/cdi.h"
#include "node/nvidia/guest.h"
#include "node/nvidia/sizes.h"
#include "vendor/nvidia/nvidia.h"

#if defined(__x86_64__)
#define DRIVER_LIBRARY_FOLDER "/usr/lib/x86_64-linux-gnu"
#elif defined(__aarch64__)
#define DRIVER_LIBRARY_FOLDER "/usr/lib/aarch64-linux-gnu"
#else
#error "where are libraries on this machine?"
#endif

/* The node's files and settings that all of its containers' edits need. */
struct edits_source {
    const struct nvidia_config *config;
    const struct guest *guest;
    struct sizes *sizes;        /* of contexts, measured; may be NULL */
    const char *dev_root;       /* in front of /dev/nvidia0 on the host; "" for none */
    const char *procfs;         /* where the driver says which device nodes an instance has */
    bool pass_device_specs;     /* list device nodes, unless the driver's edits do */
    bool by_mounts;             /* without CDI the runtime is told of the cards by mounts */
    char sim_machine[PATH_MAX]; /* a simulated machine's state file; "" with real cards */
    char sim_folder[PATH_MAX];  /* of the simulated libraries */
};

/* The limits, but for the region's path. Of the node's cards their models are looked at. */
void edits_limits(const struct edits_source *source, const struct container_grant *grant,
                  const struct cards *cards, struct limits *ret_limits);

/* Whether containers may use what others leave idle of their cards: the core policy "default". */
bool edits_lend(const struct edits_source *source);

/*
 * Adds to edits what the container gets. driver has the edits that bring the driver, none where the
 * runtime does. folder is the container's, region the name of its region's file there.
 */
void edits_add(const struct edits_source *source, const struct container_grant *grant,
               const struct cdi_choice *driver, const char *folder, const char *region,
               struct spec_edits *edits);
