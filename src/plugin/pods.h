/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The pods of this node: which devices each container was given, and which containers have them. No
 * I/O.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <yyjson.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/strbuf.h"
#include "model/codec.h"
#include "model/request.h"
#include "node/node_vendor.h"

struct pods;

/* The status of an init container as the API server has it, which may be behind. */
enum init_state {
    INIT_UNKNOWN,
    INIT_RUNNING,
    INIT_FAILED, /* or waiting to be started again */
    INIT_DONE,
};

/*
 * A refusal's number, in hexadecimal, stands behind this word in the message that kubelet writes
 * into the status of the container which it wanted to start.
 */
#define POD_REFUSAL_WORD "refusal "

struct pod_container {
    char *name;
    enum container_role role;
    enum init_state state; /* of init containers */
    uint32_t refusal;      /* the number of our refusal that its status names; 0: none */
    uint64_t ended;        /* which run of it ended last, by its status: of the run's id; 0: none */
    uint64_t ended_before; /* when it got its devices: that run tells nothing of this one */
    int priority;          /* its limit of the priority's resource; -1: not said */
    bool ready;   /* its devices were handed over, in this run of the plugin or an earlier one */
    bool adopted; /* an earlier run of the plugin handed them over, and ended_before is not known */
    bool starting; /* it is about to get them, in this run of the plugin */
    unsigned turn; /* its place in the order in which the pod's got theirs; 0: in an earlier run */
    bool ordered;  /* Allocate answered them (ordered.h), not a CDI device; then it is not said that
                      it has started, but by the next */
    bool started;
    char cdi_name[32]; /* the CDI device's, or the one that its ids would have had; "" while it is
                          not ready */
};

struct node_pod {
    char *namespace, *name, *uid;
    /*
     * The annotation; "" where it has none for this node. The first that names devices is final for
     * a pod's uid: a user who may change the pod can't change its devices.
     */
    char *allocated;
    const char *allocated_key; /* the annotation's */
    bool final;                /* allocated names devices */
    bool altered;              /* by now the annotation says something else */
    bool altered_said;         /* that was logged */
    bool to_allocate;          /* the to-allocate annotation still names devices */
    bool others_allocate;      /* one of another vendor's does */
    bool labelled;             /* hami.io/vgpu-node is among its labels */
    bool phase_success;        /* its bind-phase says so */
    bool allocating;           /* its bind-phase says that it is being bound */
    bool phase_failed;         /* its bind-phase says so */
    uint32_t refusal;          /* of a start, since anything was handed over; 0: none */
    char *parts_told;          /* what this run wrote of its parts; NULL: nothing yet */
    bool over;                 /* succeeded, failed */
    bool deleting;
    bool leaving;   /* gone from the API server, while kubelet still has it */
    bool confirmed; /* seen in the watch, not only read on its own */
    unsigned age;   /* how often pods_expire() was called since it was last seen */
    unsigned list;  /* the list in which it was last seen */
    unsigned turns; /* of its containers, so far */
    size_t container_count;
    struct pod_container *containers; /* init containers first, as in the annotation */
};

/*
 * node is this node's name: annotations for another node are ignored. priority_name is the resource
 * by which a container says its task's priority, "" for none. The vendor outlives it. NULL: no
 * memory.
 */
struct pods *pods_new(const char *node, const struct node_vendor *vendor,
                      const char *priority_name);
void pods_free(struct pods *pods);
DEFINE_CLEANUP(struct pods *, pods_free);

/*
 * Adds or updates a pod from its JSON; what is known of its containers is kept. from_watch is false
 * for a pod that was read by a GET. -EINVAL with err when it is no pod, -ENOMEM.
 */
int pods_put(struct pods *pods, yyjson_val *object, bool from_watch, struct node_pod **ret_pod,
             struct error *err);

/*
 * Writes, as a Pod's JSON, what is needed to start a pod's containers again; pods_adopt() reads it
 * where the API server can't be asked. A pod has a record for each container that started; an init
 * container has ended if any of them says so. -EINVAL, -ENOMEM.
 */
void pods_record(const struct pods *pods, const struct node_pod *pod, struct strbuf *record);
int pods_adopt(struct pods *pods, yyjson_val *record, struct error *err);

/* The watch shows the pod, but it can't be read: keeps what was known of it. */
void pods_touch(struct pods *pods, const char *uid);
void pods_remove(struct pods *pods, const char *uid);

/* The first annotation, as an earlier run of the plugin saw it, becomes final. Text that names no
 * devices changes nothing. -ENOMEM. */
int pod_keep(struct node_pod *pod, const char *allocated);

/* An earlier run of the plugin handed the container its devices. */
void pod_container_adopt(struct pod_container *container);

/* From the moment that its first container has them. */
bool pod_holds_devices(const struct node_pod *pod);

struct node_pod *pods_find(struct pods *pods, const char *uid);
/* Of several pods of the name the one that is neither over nor being deleted, else any. */
struct node_pod *pods_find_name(struct pods *pods, const char *namespace, const char *name);
struct pod_container *pod_container_find(struct node_pod *pod, const char *name);

/* A list begins; a list is complete: calls gone() with each pod that it lacks and removes the pod,
 * unless it is leaving by then. */
void pods_begin(struct pods *pods);
void pods_complete(struct pods *pods, void (*gone)(void *data, struct node_pod *pod), void *data);

/* The same for pods that were read by a GET and that the watch has not shown for so many calls. */
void pods_expire(struct pods *pods, unsigned age, void (*gone)(void *data, struct node_pod *pod),
                 void *data);

/* Removes the pods that are leaving and have left. */
void pods_leave(struct pods *pods, bool (*has_left)(void *data, struct node_pod *pod), void *data);

/* Calls fn for each pod, in any order; fn may not change the table. */
void pods_each(struct pods *pods, void (*fn)(void *data, struct node_pod *pod), void *data);

/* The pod's devices, a list for each container. -EINVAL, -E2BIG, -ENOMEM with err. */
int pod_grants(const struct node_pod *pod, struct arena *arena, struct pod_devices *ret_devices,
               struct error *err);

/* Whether every container that was given devices has them. */
bool pod_is_ready(const struct node_pod *pod, const struct pod_devices *devices);
