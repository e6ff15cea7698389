/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A vendor, as the control plane knows it.
 *
 * struct vendor is a constant table of functions, a folder each, listed in vendor_table[]
 * (src/vendor/meson.build). A configured instance of it carries the names and numbers of the device
 * configuration. The generic algorithms live in place and admit; a vendor states only where it
 * differs. All of it is pure: no clock, log or state, and no allocation outside the arena passed
 * in.
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
#include "vendor/section.h"

struct vendor;

enum {
    VENDOR_MAX_INSTANCES = 32,
    VENDOR_MAX_RESOURCES = 8,
    VENDOR_MAX_KEYS = 8,
    VENDOR_MAX_ANNOTATIONS = 16, /* that one vendor writes on a pod */
};

/* A vendor with its configuration. The configuration is the owner's and outlives the instance. */
struct vendor_instance {
    const struct vendor *vendor;
    struct device_vendor id; /* its word, rules and configuration; devices and requests point here,
                                so a set stays where it is */

    /* Annotations. */
    const char *register_key;    /* on a node: its devices */
    const char *handshake_key;   /* on a node; NULL: none. vendor/handshake.h; nothing else is to
                                    be done for it */
    const char *to_allocate_key; /* on a pod: the part of its grant that the plugin still has to
                                    hand out; NULL: none */
    const char *allocated_key;   /* on a pod: its grant */

    /* On a pod: others that annotate() writes, but for the vendor's times, or that its agent does;
     * a new pod has none of them. NULL-terminated unless full. */
    const char *written_keys[VENDOR_MAX_KEYS];

    bool changes_all_pods; /* at admission, also those that ask for nothing of it */

    /* Resources; "" where the configuration names none. */
    const char *count_resource;
    const char *memory_resource; /* what a ResourceQuota may bound; NULL or "": nothing */
    const char *cores_resource;
    int32_t memory_unit_mib;                     /* of the memory resource; 0 and 1: one */
    const char *resources[VENDOR_MAX_RESOURCES]; /* all that a pod asks for, the counted one, too;
                                                    NULL-terminated unless full */
    const char *hint_resource; /* one of them that takes nothing of a device; NULL: none */
};

struct vendor_set {
    size_t count;
    struct vendor_instance instances[VENDOR_MAX_INSTANCES];
    struct kept_names kept; /* what reading pods and nodes has to keep for these vendors */
};

/* Adds a copy. -E2BIG: there are too many, or they need too many names kept. */
int vendor_set_add(struct vendor_set *set, const struct vendor_instance *instance);

/* A change that admission makes. Strings are the arena's, or last as long as the configuration. */
enum mutation_kind {
    MUTATION_LIMIT,    /* set the container's limit `name` to `value` */
    MUTATION_REQUEST,  /* the same of its requests */
    MUTATION_ENV,      /* append the variable `name` with `value` to the container's environment */
    MUTATION_DROP_ENV, /* remove the variable at `position`; of a container's the last first */
    MUTATION_RUNTIME_CLASS,
    MUTATION_SCHEDULER,
    MUTATION_ANNOTATION,      /* set the pod's annotation `name` to `value` */
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

/* A pod's grant of one vendor, when it is written down. */
struct vendor_grant {
    const struct pod *pod;
    const char *node;             /* its name */
    const struct device *devices; /* the node's, in which place_find_device() finds a granted one */
    size_t device_count;
    const struct pod_devices *given;
};

/* Annotations while they are added; vendor_annotate_add(). */
struct vendor_annotations {
    struct arena *arena;     /* for texts */
    struct text_pair *items; /* room for VENDOR_MAX_ANNOTATIONS */
    size_t count;
};

/* An annotation on a pod that tells when it was bound, in each vendor's own unit. */
struct vendor_time {
    const char *key;
    bool in_ns; /* strictly rising from pod to pod; else seconds */
};

/*
 * What must be written on a node before a pod is bound to it: a lock under which its agent looks
 * for the pod of an allocation. Without a key nothing is written, and yet only one pod at a time is
 * bound, because the agent takes the oldest that it finds.
 */
struct vendor_lock {
    const char *key;  /* an annotation of the node; NULL: none */
    bool names_pod;   /* "TIME,NAMESPACE,NAME"; else the time alone, RFC 3339 */
    int64_t until_ns; /* of such an age it may be broken */
};

/* HAMi's lock, under which the agents of most vendors look: hami.io/mutex.lock, five minutes. */
extern const struct vendor_lock vendor_mutex_lock;
/* No lock, but one pod at a time. */
extern const struct vendor_lock vendor_turn_lock;

struct vendor {
    const char *name; /* the folder's */

    /*
     * Its section of the device configuration, read into config_size bytes: first what holds for
     * keys that are not given, then those that are. check_section() is for a whole file: -EINVAL
     * when pods could ask for nothing. add_instances() adds the configured instances, which keep
     * pointing into the config; -E2BIG. Other errors are -EINVAL with the place.
     */
    const char *section;
    size_t config_size;
    void (*set_missing)(void *ret_config);
    int (*read_section)(const struct section_reading *reading, const struct section *section,
                        void *config);
    int (*check_section)(const struct section_reading *reading, const void *config); /* or NULL */
    int (*add_instances)(struct vendor_set *set, const void *config);

    /* What pods and nodes need to keep for this vendor, NULL: nothing. Lists end with NULL. */
    const char *const *annotations; /* prefixes */
    const char *const *wishes;      /* of the annotations those, whole, by which a user says what
                                       devices a pod wants: a misspelt one is warned of */
    const char *const *variables;   /* prefixes of a container's environment */
    const char *const *node_labels; /* whole names */

    /* What read_node() makes devices of, beside the registration: while all of it stays the same,
     * so do the devices. Lists end with NULL; NULL: nothing. */
    const char *const *node_annotations;
    const char *const *node_resources; /* amounts of resources that are not the instance's */
    bool counts_resources; /* what is there, and allocatable, of the instance's resources */

    /* What a quota's amount of the memory resource is in MiB, where its text matters; NULL: its
     * value in the instance's unit. */
    int64_t (*bound_mib)(const struct resource *bound);

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

    /*
     * Whether the node's agent is there, so that its devices can be had. NULL: while kubelet has
     * any device of the counted resource allocatable; where the agent has a handshake
     * (vendor_instance.handshake_key), unless kubelet says that there is none. A handshake is
     * followed beside it, whatever this says: see vendor/handshake.h.
     */
    bool (*is_alive)(const struct vendor_instance *instance, const struct node *node);

    /* When the agent is silent, nothing is written; false: its handshake is set to "Deleted_TIME".
     */
    bool leaves_handshake;

    /*
     * What must be true of the node before a Binding to it. NULL, or returns NULL: nothing. The
     * lock is a constant. For most agents: &vendor_mutex_lock where the node has the register_key;
     * for those that look for pods by a time, &vendor_turn_lock.
     * The lock is then written, honoured and removed for the vendor (cluster/lock.h).
     */
    const struct vendor_lock *(*prepare_bind)(const struct vendor_instance *instance,
                                              const struct node *node);

    /* Its agent waits for vendor_mutex_lock, and removes it when it is done: of two such agents in
     * one pod the second finds no lock. Not NVIDIA's, since our own plugin waits for none. */
    bool shares_lock;

    /*
     * Why a pod that mutate() has let pass will not start all the same, since the agent can't serve
     * it: fills a text with the field's name, in the arena, and returns 1. Returns 0 when nothing
     * is known against the pod; -ENOMEM. NULL: nothing is known against any.
     */
    int (*warn)(const struct vendor_instance *instance, const struct pod *pod, struct arena *arena,
                const char **ret_text);

    /*
     * The annotations that record a grant in which some container has a device. NULL: those of
     * vendor_annotate_standard(), which the vendor's own function may call, too. -ENOMEM.
     */
    int (*annotate)(const struct vendor_instance *instance, const struct vendor_grant *grant,
                    struct vendor_annotations *annotations);

    /*
     * What of a grant does not stand in its text: sets `parts` of the devices, from the annotations
     * of the pod that has them. NULL: nothing. -ENOMEM.
     */
    int (*recall)(const struct vendor_instance *instance, const struct text_pairs *annotations,
                  struct arena *arena, struct pod_devices *devices);
    const char *const *recalled; /* the annotations that it reads; the list ends with NULL */

    const struct vendor_time *times; /* that ends with a NULL key; NULL: none */
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

/* vendor.is_alive, or the general rule. How its handshake stands is the cluster's to know. */
bool vendor_is_alive(const struct vendor_instance *instance, const struct node *node);

/* vendor.prepare_bind; NULL: nothing. */
const struct vendor_lock *vendor_prepare_bind(const struct vendor_instance *instance,
                                              const struct node *node);

/* pod_devices_decode() of a pod's annotation, and vendor.recall. */
int vendor_read_grant(const struct vendor_instance *instance, const char *text,
                      const struct text_pairs *annotations, struct arena *arena,
                      struct pod_devices *ret_devices, struct error *err);

/*
 * The annotations that record a pod's grant. Returns their number, 0 when no container has a device
 * of this vendor; -ENOMEM.
 */
int vendor_write_annotations(const struct vendor_instance *instance,
                             const struct vendor_grant *grant, struct arena *arena,
                             struct text_pair ret_pairs[VENDOR_MAX_ANNOTATIONS]);

/* For vendor.annotate: the instance's allocated_key and to_allocate_key, with HAMi's text. -ENOMEM.
 */
int vendor_annotate_standard(const struct vendor_instance *instance,
                             const struct vendor_grant *grant,
                             struct vendor_annotations *annotations);

/* The strings last as long as the arena. -ENOMEM: value is NULL, or there are too many. */
int vendor_annotate_add(struct vendor_annotations *annotations, const char *key, const char *value);

/* Each key of a pod's annotations that records a grant of this instance, by number; NULL after the
 * last. */
const char *vendor_grant_key(const struct vendor_instance *instance, size_t number);
