/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The CDI specification by which one container gets what it was granted: a device of kind
 * "hami.io/alloc" whose name kubelet was given before the container was known. Its environment
 * names the container, so that a plugin that starts anew can read back what it handed out. Texts
 * only, no I/O.
 */

#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"

#define SPEC_KIND "hami.io/alloc"
#define SPEC_FILE_PREFIX "hami-" /* and the device's name, and ".json" */

enum {
    SPEC_NAME_SIZE = 32,
    SPEC_MAX = 512 << 10, /* bytes of a specification */
};

/* What a container gets: the elements of each list of CDI's containerEdits, with commas between
 * them. */
struct spec_edits {
    struct strbuf env, mounts, nodes, hooks, gids;
};

#define SPEC_EDITS_INIT                                                                            \
    {                                                                                              \
        .env = STRBUF_INIT(SPEC_MAX), .mounts = STRBUF_INIT(SPEC_MAX),                             \
        .nodes = STRBUF_INIT(SPEC_MAX), .hooks = STRBUF_INIT(SPEC_MAX),                            \
        .gids = STRBUF_INIT(SPEC_MAX)                                                              \
    }

void spec_edits_deinit(struct spec_edits *edits);

/* "NAME=value". */
void spec_add_env(struct spec_edits *edits, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* A file or folder of the host, neither for programs of other users nor for device nodes. */
void spec_add_mount(struct spec_edits *edits, const char *host_path, const char *container_path,
                    bool writable);
void spec_add_node(struct spec_edits *edits, const char *path, const char *host_path);

/* A comma, unless the text is empty, or ends where a list or an object begins. */
void spec_add_separator(struct strbuf *list);

/* The container that a specification of ours is for. */
struct spec_owner {
    char name[SPEC_NAME_SIZE]; /* the device's */
    char pod_uid[64];
    char container[256];
};

/* The variables that name the owner begin so; nobody else may set them. */
#define SPEC_ENV_POD "HAMI_POD_UID="
#define SPEC_ENV_CONTAINER "HAMI_CONTAINER="

/* The name of the CDI device for kubelet's device ids, in any order. */
void spec_device_name(const char *const *ids, size_t count, char ret_name[SPEC_NAME_SIZE]);

/* Appends the specification. 0 or -ENOMEM. */
int spec_format(const char *pod_uid, const char *container, const char *name,
                const struct spec_edits *edits, struct strbuf *spec);

/* Reads the owner back from a specification. -EINVAL when it is not ours, or is cut. */
int spec_read(const char *text, size_t len, struct spec_owner *ret_owner);
