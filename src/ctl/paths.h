/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Where hamictl finds what belongs to it, and where it keeps its state. */

#include <limits.h>

#include "base/error.h"

struct paths {
    char vgpu[PATH_MAX]; /* libvgpu.so */
    char sim[PATH_MAX];  /* the folder of the simulated libcuda.so.1 and libnvidia-ml.so.1 */
};

/*
 * From $HAMI_LIBDIR, else beside the running program: ../lib/hami of an installation, or the build
 * tree. Says where, not whether anything is there.
 */
int paths_find(struct paths *ret_paths, struct error *err);

/*
 * The simulated machine that $HAMI_SIM names, by paths_resolve(), or "" when it is unset or empty.
 */
int paths_find_machine(char ret_path[PATH_MAX], struct error *err);

/* path, absolute; its last part need not exist, and is not followed if it is a link. */
int paths_absolute(const char *path, char ret_path[PATH_MAX], struct error *err);

/* The same, but a last part that is a link is followed if it leads to something: one machine has
 * one path, beside which its leases are kept. */
int paths_resolve(const char *path, char ret_path[PATH_MAX], struct error *err);

/*
 * The state directory, absolute: $HAMI_RUN_DIR; else MACHINE.run with a simulated machine; else
 * /run/hami for root, $XDG_RUNTIME_DIR/hami or /tmp/hami-UID for others. Made, with mode 0700, when
 * it is missing; -EPERM when it belongs to somebody else or others may write to it.
 */
int paths_open_state(const char *machine, char ret_path[PATH_MAX], struct error *err);
