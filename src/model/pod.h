/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A pod, reduced to what decisions need. Strings belong to the arena it was read into.
 *
 * Of annotations and labels those are kept whose key begins with hami.io/, scheduling.x-k8s.io/ or
 * one of the caller's prefixes and whose value is text; of resources those with a domain in their
 * name ("nvidia.com/gpu", not "cpu").
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <yyjson.h>

#include "base/arena.h"
#include "base/error.h"
#include "model/amounts.h"
#include "model/kept.h"
#include "model/quantity.h"
#include "model/request.h"
#include "model/text.h"

enum {
    POD_MAX_CONTAINERS = 256,
    POD_MAX_RESOURCES = 256, /* of one list, those without a domain included */
};

struct resource {
    const char *name;
    const char *text; /* as written; a JSON number as its digits */
    struct quantity quantity;
};

struct resource_list {
    const struct resource *items;
    size_t count;
};

/* A variable that the pod itself names; its value is not looked at. */
struct env_name {
    const char *name;
    size_t position; /* in the container's list */
};

struct container {
    const char *name;
    enum container_role role;
    const char *privilege;    /* the field by which it could drop every limit; NULL: none */
    const char *through_proc; /* where it mounts a volume by a path through /proc; NULL: nowhere */
    const struct env_name *env; /* those whose name begins with one of the caller's prefixes */
    size_t env_count;

    /* Which objects exist, for a patch that adds to them. */
    bool has_resources, has_limits, has_requests, has_env;
    struct resource_list limits, requests;
};

enum pod_phase {
    POD_PHASE_UNKNOWN = 0, /* or not told, as in metadata alone */
    POD_PENDING,
    POD_RUNNING,
    POD_SUCCEEDED,
    POD_FAILED,
};

struct pod {
    const char *namespace, *name, *uid, *resource_version; /* "" where absent */
    struct text_pairs annotations, labels;
    bool has_annotations; /* the object exists, for a patch that adds to it */
    bool deleting;        /* has a deletion timestamp */

    bool has_spec;                                          /* false: metadata alone was read */
    const char *node_name, *scheduler_name, *runtime_class; /* "" where absent */
    size_t container_count, init_count;
    const struct container *containers; /* init containers first */

    struct amounts amounts; /* if they are kept */

    bool has_priority; /* the spec's; false: not told */
    int32_t priority;
    bool never_preempts; /* its preemptionPolicy is Never */
    bool nominated;      /* kube-scheduler made room for it: its status names a node */

    enum pod_phase phase;
    bool started; /* kubelet has told of a container: all devices are allocated */
};

/*
 * Reads a Pod, or a PartialObjectMetadata of one; nothing of the value is kept. kept may be NULL.
 * -EINVAL names the
 * field that is wrong ("spec.containers[1].resources.limits[nvidia.com/gpu]: not a quantity");
 * -ENOMEM when the arena is full.
 */
int pod_read(yyjson_val *object, const struct kept_names *kept, struct arena *arena,
             struct pod *ret_pod, struct error *err);

/* True when the pod has ended: it holds nothing any more. */
bool pod_is_over(const struct pod *pod);

/* Where a container stands in the pod's spec. */
struct container_place {
    const char *list; /* "initContainers" or "containers" */
    size_t position;
};
struct container_place pod_container_place(const struct pod *pod, size_t container);

/* A container's limit of this name, else its request; NULL when it has neither. */
const struct resource *container_resource(const struct container *container, const char *name);

const struct resource *resource_find(const struct resource_list *list, const char *name);

/*
 * One letter for each init container, 'i' or 's' for a sidecar: what POD_INIT_ROLES tells of a pod
 * whose spec is not at hand. "" when it has none. NULL: the arena is full.
 */
#define POD_INIT_ROLES "hami.io/vgpu-init-containers"
const char *pod_init_roles(const struct pod *pod, struct arena *arena);
