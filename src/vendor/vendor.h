/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A vendor, as the control plane knows it.
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
#include "place/rules.h"

struct vendor;

enum {
    VENDOR_MAX_INSTANCES = 32,
};

/* A vendor with its configuration. The configuration is the owner's and outlives the instance. */
struct vendor_instance {
    const struct vendor *vendor;
    struct device_vendor id; /* its word, rules and configuration; devices and requests point here,
                                so a set stays where it is */

    /* Annotations. */
    const char *register_key;    /* on a node: its devices */
    const char *handshake_key;   /* on a node; NULL: none */
    const char *to_allocate_key; /* on a pod: the part of its grant that the plugin still has to
                                    hand out; NULL: none */
    const char *allocated_key;   /* on a pod: its grant */

    /* Resources; "" where the configuration names none. */
    const char *count_resource;
};

struct vendor_set {
    size_t count;
    struct vendor_instance instances[VENDOR_MAX_INSTANCES];
};

/* A change that admission makes. Strings are the arena's, or last as long as the configuration. */
enum mutation_kind {
    MUTATION_LIMIT,    /* set the container's limit `name` to `value` */
    MUTATION_ENV,      /* append the variable `name` with `value` to the container's environment */
    MUTATION_DROP_ENV, /* remove the variable at `position`; of a container's the last first */
    MUTATION_RUNTIME_CLASS,
    MUTATION_SCHEDULER,
    MUTATION_DROP_ANNOTATION, /* `name`, which is there */
    MUTATION_DROP_LABEL,
};

struct mutation {
    enum mutation_kind kind;
    size_t container; /* position in the pod's list */
    size_t position;
    const char *name, *value;
};

enum {
    MUTATIONS_MAX = 6 * POD_MAX_CONTAINERS + 128,
};

struct mutations {
    struct arena *arena;    /* for strings */
    struct mutation *items; /* room for MUTATIONS_MAX */
    size_t count;
};

struct vendor {
    const char *name; /* the folder's */

    /*
     * At admission, called for each container in turn: adds what must change to the mutations,
     * which hold those of the earlier containers. Returns 1 when the container asks for this
     * vendor's devices, 0 when not; -EINVAL with the field's name in err when it asks for what no
     * container can get, -ENOMEM.
     */
    int (*mutate)(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err);

    /*
     * What a container asks for. Returns 1; 0 when it asks for nothing, or for what can't be read,
     * which admission has denied before; -ENOMEM. The strings are the arena's.
     */
    int (*read_request)(const struct vendor_instance *instance, const struct pod *pod,
                        size_t container, struct arena *arena, struct request *ret_request);

    /*
     * The devices that a node registers, in its order; at most max are filled in. A device is left
     * out if an earlier one has its id or a text of it is too long; a device without an id is never
     * healthy. Returns CODEC_EXACT, or CODEC_MENDED with err saying what was wrong; -ENOENT when
     * the node has no such annotation; -EINVAL and others as the codec's.
     */
    int (*read_node)(const struct vendor_instance *instance, const struct node *node,
                     struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                     struct error *err);
};

/* All vendors, NULL-terminated. */
extern const struct vendor *const vendor_table[];

/*
 * What all containers of a pod ask of all vendors. Returns 1; 0 when they ask for nothing, and the
 * demand's lists are empty; -ENOMEM. The strings are the arena's.
 */
int vendor_read_demand(const struct vendor_set *set, const struct pod *pod, struct arena *arena,
                       struct demand *ret_demand);

/* The instance that a device, a request or a placement points to. */
static inline const struct vendor_instance *vendor_of(const struct device_vendor *id)
{
    return (const struct vendor_instance *)((const char *)id -
                                            offsetof(struct vendor_instance, id));
}

/* The instance of this common word, or NULL. */
const struct vendor_instance *vendor_find(const struct vendor_set *set, const char *common_word);

/*
 * The annotations that record a pod's grant: allocated and to-allocate. Returns their number, 0
 * when no container has a device of this vendor; -ENOMEM.
 */
int vendor_write_annotations(const struct vendor_instance *instance,
                             const struct pod_devices *devices, struct arena *arena,
                             struct text_pair ret_pairs[2]);
