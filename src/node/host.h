/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The files on the host by which containers get what they were granted, whatever the vendor: for
 * each container a folder and a CDI specification. Each file is complete or absent, whenever we are
 * killed: it is written under another name, synced, renamed. Functions block on the disk.
 *
 * "<hook path>/containers/<pod uid>_<container>/pod", and what the vendor adds
 * "<hook path>/cards/<card>/<pod uid>_<container>", what the vendor has of a container for a card
 * "<CDI folder>/hami-<name>.json"
 */

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "model/device.h"
#include "node/spec.h"

/* The host's root in our own pod, if we run in one; see deploy/node.yaml. */
#define HOST_ROOT "/driver-root"

/* What a file is called until it is complete. */
#define HOST_HALF_SUFFIX ".new"

enum {
    GRANT_DEVICES_MAX = 16,
};

struct node_host {
    char hook_path[PATH_MAX]; /* "/usr/local/vgpu" */
    char cdi_folder[PATH_MAX];
};

struct granted_device {
    char uuid[DEVICE_UUID_SIZE];
    uint64_t memory_bytes;
    unsigned cores; /* 0 or 100: no limit */
    unsigned index; /* the card's */
    bool has_minor;
    unsigned minor;
    bool is_instance; /* a part of that card (card.h) */
    unsigned gpu_instance, compute_instance;
};

struct container_grant {
    const char *pod_uid, *container;
    const char *record; /* the pod's record (pods_record()) */
    int priority;       /* -1: not said */
    bool laid_out;      /* the edits are part of Allocate's answer, which kubelet keeps: files have
                           the same names at every start, and hooks and groups do not count */
    size_t device_count;
    struct granted_device devices[GRANT_DEVICES_MAX];
};

/* Makes the folders, and removes half-written files of an earlier run. */
int host_install(const struct node_host *host, struct error *err);

/* The container's folder: made, with the pod's record in it. */
int host_prepare(const struct node_host *host, const struct container_grant *grant,
                 char ret_folder[PATH_MAX], struct error *err);

/*
 * A text in a folder of "containers", by its name; allocated. "pod" is the record; "grant" is what
 * versions before 0.2 kept, the pod's annotation. -ENOENT, without err, where there is none.
 */
int host_read_record(const struct node_host *host, const char *entry, const char *name,
                     char **ret_text, struct error *err);

/* Writes, or replaces, the specification of this name. */
int host_write_spec(const struct node_host *host, const struct container_grant *grant,
                    const char *name, const struct spec_edits *edits, struct error *err);

/* Removes a specification; it may be gone already. */
void host_remove_spec(const struct node_host *host, const char *name);

/* Removes what the vendor has of a container in a card's folder: files of the entry's name, or of
 * that with more behind a dot. */
void host_remove_from_card(const char *folder, const char *entry);

/* Removes a folder of "containers" with what is in it, and what "cards" has of it; entry is its
 * name. */
void host_remove_folder(const struct node_host *host, const char *entry);

/* Calls fn for each specification of ours; removes those that can't be read. */
int host_list_specs(const struct node_host *host,
                    void (*fn)(void *data, const struct spec_owner *owner), void *data,
                    struct error *err);

/* Calls fn for each container's folder. */
int host_list_folders(const struct node_host *host,
                      void (*fn)(void *data, const char *pod_uid, const char *entry), void *data,
                      struct error *err);

/* For a vendor's own files. */

int host_make_folder(const char *path, mode_t mode, struct error *err);

/* Writes under another name, syncs, then renames: a reader sees the whole file or none. */
int host_write_file(const char *path, const char *bytes, size_t len, mode_t mode,
                    struct error *err);

/* Calls fn with each name in a folder, which may be absent. */
int host_list(const char *folder, void (*fn)(void *data, const char *name), void *data,
              struct error *err);

/* Removes the files of a folder whose names begin and end so. */
void host_sweep(const char *folder, const char *prefix, const char *suffix);
