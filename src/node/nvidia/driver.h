/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How containers of this node come by the driver: its libraries, its device nodes.
 *
 * NVIDIA's toolkit writes it down as a CDI specification and keeps that fresh; what it says of a
 * card is laid into ours (cdi.h), and nothing else is needed of the node. Where there is none, the
 * libraries below a driver root are mounted one by one, if a root is given. Where there is neither,
 * the NVIDIA runtime has to bring the driver: as the node's default, or by a runtime class.
 */

#include "node/nvidia/cdi.h"

/* Where the toolkit's files are looked for; of the first folder that has a card its edits count. */
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
    DRIVER_NONE = 1, /* neither: the runtime's business */
    DRIVER_TOOLKIT,
    DRIVER_ROOT,
};

/*
 * Reads what changed in the folders since it was last asked. -EINVAL, -EFBIG with the file's name
 * where the toolkit's is malformed and there is no other, -ENOENT where nothing is below the root,
 * -ENOMEM.
 */
int driver_look(struct driver *driver, struct error *err);

/*
 * The edits for the cards, good until the next driver_look(); none with DRIVER_NONE. Errors as
 * driver_look(), which it begins with, and -ENODEV where the toolkit's specification lacks a card.
 */
int driver_choose(struct driver *driver, const struct cdi_card *cards, size_t count,
                  bool has_every_card, struct cdi_choice *ret_choice, struct error *err);
