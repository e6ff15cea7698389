/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The files on the host that containers use: the library, and for each container a folder and a CDI
 * specification. Each file is complete or absent, whenever we are killed: it is written under
 * another name, synced, renamed. Functions block on the disk.
 *
 * "<hook path>/libvgpu.so.<version>-<hash>" one of each content, never written again "<hook
 * path>/ld.so.preload" "<hook path>/containers/<pod uid>_<container>/pod", "limits", "<uuid>.cache"
 * "<CDI folder>/hami-<name>.json"
 */

#include "base/error.h"
#include "node/nvidia/edits.h"

enum {
    HOST_REGION_MAX = 8 << 20,
};

/*
 * Makes the folders, copies the library from source, and sets host->library. Removes half-written
 * files of an earlier run.
 */
int host_install(struct node_host *host, const char *source, const char *version,
                 struct error *err);

/*
 * Under SELinux, containers may touch files of one type only: gives that type to the folders, from
 * which new files inherit it. sysfs is "/sys". An error, with the command for a person, where
 * SELinux is enforced and we may not set the type.
 */
int host_label(const struct node_host *host, const char *sysfs, struct error *err);

/*
 * The library to install: $HAMI_LIBDIR, else beside the running program, ../lib/hami of an
 * installation, or the build tree.
 */
int host_find_library(char ret_path[PATH_MAX], struct error *err);

/*
 * The container's folder with the pod's record, a new region and its limits; sets
 * grant->region.
 */
int host_prepare(const struct node_host *host, struct container_grant *grant, struct error *err);

/*
 * A text in a folder of "containers", by its name; allocated. "pod" is the record; "grant" is what
 * versions before 0.2 kept, the pod's annotation. -ENOENT, without err, where there is none.
 */
int host_read_record(const struct node_host *host, const char *entry, const char *name,
                     char **ret_text, struct error *err);

/* Writes, or replaces, the specification of this name. */
int host_write_spec(const struct node_host *host, const struct container_grant *grant,
                    const struct cdi_choice *driver, const char *name, struct error *err);

/* Removes a specification; it may be gone already. */
void host_remove_spec(const struct node_host *host, const char *name);

/* Removes a folder of "containers" with what is in it; entry is its name. */
void host_remove_folder(const struct node_host *host, const char *entry);

/* Calls fn for each specification of ours; removes those that can't be read. */
int host_list_specs(const struct node_host *host,
                    void (*fn)(void *data, const struct spec_owner *owner), void *data,
                    struct error *err);

/*
 * A container can write to its region's file, and so make it longer. Cuts each file that has more
 * than HOST_REGION_MAX bytes, or takes much more of the disk, back to that size, which is beyond
 * what any library maps. Calls fn with its folder's name and its former bytes.
 */
int host_trim_regions(const struct node_host *host,
                      void (*fn)(void *data, const char *entry, uint64_t bytes), void *data,
                      struct error *err);

/* Calls fn for each container's folder. */
int host_list_folders(const struct node_host *host,
                      void (*fn)(void *data, const char *pod_uid, const char *entry), void *data,
                      struct error *err);
