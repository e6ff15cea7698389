/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * libvgpu in containers: the library, and for each container its limits and its region. Functions
 * block on the disk.
 *
 * "<hook path>/libvgpu.so.<version>-<hash>" one of each content, never written again
 * "<container's folder>/limits", "ld.so.preload", "<uuid>.cache"
 * "<hook path>/ld.so.preload" is of earlier versions, and their containers'
 */

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "node/host.h"
#include "node/spec.h"
#include "region/limits.h"

/* Where our files are in every container, whatever the host's folders. */
#define GUEST_FOLDER "/usr/local/vgpu"

enum {
    GUEST_REGION_SIZE = 64,
    GUEST_REGION_MAX = 8 << 20,
};

struct guest {
    const struct node_host *host;
    char library[PATH_MAX]; /* the versioned file on the host */
};

/*
 * The library to install: $HAMI_LIBDIR, else beside the running program, ../lib/hami of an
 * installation, or the build tree.
 */
int guest_find_library(char ret_path[PATH_MAX], struct error *err);

/*
 * Copies the library from source, and sets guest->library. The host's folders exist. What
 * containers share stays open as long as this process lives, so that none of them can lock the
 * others out.
 */
int guest_install(struct guest *guest, const char *source, const char *version, struct error *err);

/*
 * Under SELinux, containers may touch files of one type only: gives that type to the folders, from
 * which new files inherit it. sysfs is "/sys". An error, with the command for a person, where
 * SELinux is enforced and we may not set the type.
 */
int guest_label(const struct guest *guest, const char *sysfs, struct error *err);

/* Makes a new region in the container's folder, and writes what names the library, and the limits,
 * which name the region. keeps_name: the region's file has the name of the former one. */
int guest_prepare(const char *folder, const struct limits *limits_but_region, bool keeps_name,
                  char ret_region[GUEST_REGION_SIZE], struct error *err);

/* Mounts of the library and of the container's files. */
void guest_add_mounts(const struct guest *guest, const char *folder, const char *region,
                      struct spec_edits *edits);

/* Whether only we mount something there in a container. */
bool guest_has_path(const char *path);

/*
 * A container can write to its region's file, and so make it longer. Cuts each file that has more
 * than GUEST_REGION_MAX bytes, or takes much more of the disk, back to that size, which is beyond
 * what any library maps. Calls fn with its folder's name and its former bytes.
 */
int guest_trim(const struct node_host *host,
               void (*fn)(void *data, const char *entry, uint64_t bytes), void *data,
               struct error *err);
