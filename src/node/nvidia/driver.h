/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How containers of this node get the driver: its libraries and device nodes.
 *
 * NVIDIA's toolkit keeps a CDI specification of the driver up to date; its edits for a card are
 * copied into ours (cdi.h), and nothing else is needed of the node. Without it, the libraries below
 * a driver root are mounted one by one, if a root is given. Without either, the NVIDIA runtime has
 * to bring the driver: as the node's default, or by a runtime class.
 */

#include "node/nvidia/cdi.h"

/* Folders of the toolkit's files; the first folder that has a card counts. */
#define DRIVER_CDI_FOLDERS "/var/run/cdi,/etc/cdi"
#define DRIVER_CURE "nvidia-ctk cdi generate --output=/var/run/cdi/nvidia.yaml"

struct driver;

struct driver_config {
    const char *cdi_folders; /* with commas between them */
    const char *root;        /* on the host; NULL: none is given, nothing is mounted from it */
    const char *seen_root;   /* the same, as we see it */
};

/* The config's texts outlive it. NULL: no memory. */
struct driver *driver_new(const struct driver_config *config);
void driver_free(struct driver *driver);
DEFINE_CLEANUP(struct driver *, driver_free);

enum driver_source {
    DRIVER_NONE = 1, /* neither: the runtime has to bring it */
    DRIVER_TOOLKIT,
    DRIVER_ROOT,
};

/*
 * Reads the folders' changes since the last call. -EINVAL, -EFBIG with the file's name if the
 * toolkit's only specification is malformed, -ENOENT if there is no driver below the root, -ENOMEM.
 */
int driver_look(struct driver *driver, struct error *err);

/*
 * Calls driver_look(), then fills in the edits for the cards, good until the next driver_look();
 * none with DRIVER_NONE. Errors as driver_look(), and -ENODEV if the toolkit's specification lacks
 * a card.
 */
int driver_choose(struct driver *driver, const struct cdi_card *cards, size_t count,
                  bool has_every_card, struct cdi_choice *ret_choice, struct error *err);
