/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the control plane knows of a vendor.
 *
 * struct vendor is a constant table of functions, a folder each, listed in vendor_table[]. A
 * configured instance of it carries the names and numbers of the device configuration. The generic
 * algorithms live in place and admit; a vendor states only where it differs. All of it is pure: no
 * clock, log or state, and no allocation outside the arena passed in.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "model/codec.h"
#include "model/device.h"
#include "model/node.h"
#include "model/pod.h"
#include "model/request.h"

struct vendor;

enum {
    VENDOR_MAX_INSTANCES = 32,
};

/* A vendor with its configuration. The configuration is the owner's and outlives the instance. */
struct vendor_instance {
    const struct vendor *vendor;
    const char *common_word; /* HAMi's CommonWord, "NVIDIA" */
    const void *config;      /* of the vendor's own type: struct nvidia_config */

    /* Annotations. */
    const char *register_key;    /* on a node: its devices */
    const char *handshake_key;   /* on a node; NULL: none */
    const char *to_allocate_key; /* on a pod: what the plugin still has to hand out; NULL: none */
    const char *allocated_key;   /* on a pod: what it was given */

    /* Resources; "" where the configuration names none. */
    const char *count_resource;
};

struct vendor_set {
    size_t count;
    struct vendor_instance instances[VENDOR_MAX_INSTANCES];
};

/* A change that admission makes. Strings are the arena's, or last as long as the configuration. */
enum edit_kind {
    EDIT_LIMIT,    /* set the container's limit `name` to `value` */
    EDIT_ENV,      /* append the variable `name` with `value` to the container's environment */
    EDIT_DROP_ENV, /* remove the variable at `position` of it; of one container the last first */
    EDIT_RUNTIME_CLASS,
    EDIT_SCHEDULER,
    EDIT_DROP_ANNOTATION, /* `name`, which is there */
    EDIT_DROP_LABEL,
};

struct edit {
    enum edit_kind kind;
    size_t container; /* position in the pod's list */
    size_t position;
    const char *name, *value;
};

enum {
    EDITS_MAX = 6 * POD_MAX_CONTAINERS + 128,
};

struct edits {
    struct arena *arena; /* for strings */
    struct edit *items;  /* room for EDITS_MAX */
    size_t count;
};

struct vendor {
    const char *name; /* the folder's */

    /*
     * At admission, for each container: appends what must change. Returns 1 when the container asks
     * for this vendor's devices, 0 when not; -EINVAL with the field's name in err when it asks for
     * what can never be meant, -ENOMEM. Edits of earlier containers can be seen in edits.
     */
    int (*mutate)(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct edits *edits, struct error *err);

    /*
     * What a container asks for, 1; 0: nothing. -ENOMEM. The strings are the arena's. A request
     * that can't be read is nothing: admission has denied it before.
     */
    int (*read_request)(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request);

    /*
     * The devices that a node registers, in its order; at most max are filled in. A device with
     * another's id or with a text that is too long is left out, one without an id is never healthy.
     * Returns CODEC_EXACT, or CODEC_MENDED with err saying what was wrong; -ENOENT: the node has no
     * such annotation; -EINVAL and others as the codec's.
     */
    int (*read_node)(const struct vendor_instance *instance, const struct node *node,
                     struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                     struct error *err);
};

/* All vendors, NULL-terminated. */
extern const struct vendor *const vendor_table[];

/*
 * What all containers of a pod ask for of all vendors. 1: something; 0: nothing, and the demand is
 * empty lists. -ENOMEM. The strings are the arena's.
 */
int vendor_read_demand(const struct vendor_set *set, const struct pod *pod, struct arena *arena,
                       struct demand *ret_demand);

/* The instance of this common word, or NULL. */
const struct vendor_instance *vendor_find(const struct vendor_set *set, const char *common_word);

/*
 * The annotations that record what a pod was given: allocated and to-allocate. Returns how
 * many there are, 0 when no container has a device of this vendor; -ENOMEM.
 */
int vendor_write_annotations(const struct vendor_instance *instance,
                             const struct pod_devices *devices, struct arena *arena,
                             struct text_pair ret_pairs[2]);
