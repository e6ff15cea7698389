/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * CDI specifications of other programs. NVIDIA's toolkit writes one that lists what a container
 * needs of the driver (device nodes, libraries, hooks), for each card and for all cards. This reads
 * it, finds the edits for the chosen cards, and writes them into a specification of ours. No I/O.
 *
 * The format is the CNCF's (container-device-interface, SPEC.md). Unknown fields and intelRdt are
 * passed over; known fields must be well-formed.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/strbuf.h"

#define CDI_DRIVER_KIND "nvidia.com/gpu"

enum {
    CDI_FILE_MAX = 1 << 20, /* bytes of a specification */
    CDI_ITEMS_MAX = 1024,   /* devices of one, and entries of each list */
    CDI_SPECS_MAX = 16,     /* that are searched for a card */
    CDI_PARTS_MAX = 64,
};

struct cdi_list {
    size_t count;
    void *items;
};

struct cdi_node {
    const char *path, *host_path, *type, *permissions;       /* NULL: not given, but for path */
    int64_t major_number, minor_number, file_mode, uid, gid; /* -1: not given */
};

struct cdi_mount {
    const char *host_path, *container_path, *type; /* type NULL: not given */
    struct cdi_list options;                       /* const char * */
};

struct cdi_hook {
    const char *name, *path;
    struct cdi_list args, env; /* const char * */
    int64_t timeout;           /* -1: not given */
};

struct cdi_edits {
    struct cdi_list env;    /* const char *, "NAME=value" */
    struct cdi_list nodes;  /* struct cdi_node */
    struct cdi_list mounts; /* struct cdi_mount */
    struct cdi_list hooks;  /* struct cdi_hook */
    struct cdi_list gids;   /* int64_t */
};

struct cdi_device {
    const char *name;
    struct cdi_edits edits;
};

struct cdi_spec {
    const char *file; /* its name, for messages */
    const char *kind;
    struct cdi_list devices; /* struct cdi_device */
    struct cdi_edits edits;  /* for each of its devices */
};

/*
 * Reads YAML, of which JSON is a part. Everything is the arena's. -EINVAL with the file's name, the
 * line and what is wrong there, -EFBIG, -ENOMEM when the arena is full.
 */
int cdi_spec_parse(const char *file, const char *text, size_t len, struct arena *arena,
                   struct cdi_spec *ret_spec, struct error *err);

/* A card, as specifications may name it. */
struct cdi_card {
    const char *uuid;
    unsigned index;   /* NVML's */
    bool is_instance; /* of the card of that index: known by its uuid alone */
};

/* The edits that a container gets, in the order in which they are written. */
struct cdi_choice {
    size_t count;
    const struct cdi_edits *parts[CDI_PARTS_MAX];
    bool lacks_nodes; /* an instance is in no specification: its device nodes are to be added */
};

/*
 * The edits for the cards: by uuid, by index ("0", "gpu0"), or, where the container has every card
 * of the node, by "all". Only specifications of CDI_DRIVER_KIND are searched, and the first one
 * that has a card counts. -ENODEV names the card that none has. An instance that none has gets what
 * the first specification gives to all of its devices.
 */
int cdi_choose(const struct cdi_spec *specs, size_t spec_count, const struct cdi_card *cards,
               size_t card_count, bool has_every_card, struct cdi_choice *ret_choice,
               struct error *err);

/*
 * Write the parts of a specification's containerEdits: a list's elements, with commas before all
 * but the first, each element once. Variables and mounts for which skip() returns true are left
 * out; it gets "NAME=value", or the path in the container.
 */
void cdi_add_env(const struct cdi_choice *choice, bool (*skip)(const char *text),
                 struct strbuf *spec);
void cdi_add_mounts(const struct cdi_choice *choice, bool (*skip)(const char *path),
                    struct strbuf *spec);
void cdi_add_nodes(const struct cdi_choice *choice, struct strbuf *spec);
void cdi_add_hooks(const struct cdi_choice *choice, struct strbuf *spec);
void cdi_add_gids(const struct cdi_choice *choice, struct strbuf *spec);
