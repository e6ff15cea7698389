/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The pods of this node, as far as handing out devices needs them: what each container was given,
 * and which of them have it. No I/O.
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

struct pods;

/* An init container's own status, as the API server has it: it may be behind. */
enum init_state {
    INIT_UNKNOWN,
    INIT_RUNNING,
    INIT_FAILED, /* or waiting to be started again */
    INIT_DONE,
};

struct pod_container {
    char *name;
    enum container_role role;
    enum init_state state; /* of init containers */
    int priority;          /* its limit of the priority's resource; -1: not said */
    bool ready;            /* its devices were handed over, in this life of ours or an earlier */
    char cdi_name[32];     /* under which; "" while it is not ready */
};

struct node_pod {
    char *namespace, *name, *uid;
    /*
     * The annotation; "" where it has none for this node. The first that names devices is final for
     * a pod's uid: whoever may change a pod can't change what its containers may use.
     */
    char *allocated;
    bool final;         /* it is that one */
    bool altered;       /* by now the annotation says something else */
    bool altered_said;  /* which was logged */
    bool to_allocate;   /* the other annotation still names devices */
    bool labelled;      /* hami.io/vgpu-node is among its labels */
    bool phase_success; /* its bind-phase says so */
    bool over;          /* succeeded, failed */
    bool deleting;
    bool leaving;   /* gone from the API server, and kubelet has it still */
    bool confirmed; /* seen in the watch, not only read on its own */
    unsigned age;   /* how often pods_expire() was called since it was last seen */
    unsigned list;  /* the list in which it was last seen */
    size_t container_count;
    struct pod_container *containers; /* init containers first, as in the annotation */
};

/*
 * node is this node's name: annotations that are for another are nobody's. priority_name is the
 * resource by which a container says its task's priority, "" for none. NULL: no memory.
 */
struct pods *pods_new(const char *node, const char *priority_name);
void pods_free(struct pods *pods);
DEFINE_CLEANUP(struct pods *, pods_free);

/*
 * Adds or renews a pod out of its JSON. What is known of its containers is kept. from_watch: else
 * it was read on its own. -EINVAL with err when it is no pod, -ENOMEM.
 */
int pods_put(struct pods *pods, yyjson_val *object, bool from_watch, struct node_pod **ret_pod,
             struct error *err);

/*
 * Writes what must be known of a pod to start its containers again, as a Pod's JSON: pods_adopt()
 * reads it where the API server can't be asked. Of several records of a pod, each from the start of
 * a container, all that they say of ended init containers is true. -EINVAL, -ENOMEM.
 */
void pods_record(const struct pods *pods, const struct node_pod *pod, struct strbuf *record);
int pods_adopt(struct pods *pods, yyjson_val *record, struct error *err);

/* It is there, says the watch, but can't be read: what was known of it stays true. */
void pods_touch(struct pods *pods, const char *uid);
void pods_remove(struct pods *pods, const char *uid);

/* What an earlier life of ours found first. Text that names no devices changes nothing. -ENOMEM. */
int pod_keep(struct node_pod *pod, const char *allocated);

struct node_pod *pods_find(struct pods *pods, const char *uid);
/* Of several of the name the one that is neither over nor deleted, else any. */
struct node_pod *pods_find_name(struct pods *pods, const char *namespace, const char *name);
struct pod_container *pod_container_find(struct node_pod *pod, const char *name);

/* A list begins; one is complete: pods that it lacks are given to gone and, unless they are leaving
 * then, removed. */
void pods_begin(struct pods *pods);
void pods_complete(struct pods *pods, void (*gone)(void *data, struct node_pod *pod), void *data);

/* Does so with pods that were read on their own and that the watch has not brought for long. */
void pods_expire(struct pods *pods, unsigned age, void (*gone)(void *data, struct node_pod *pod),
                 void *data);

/* Removes the pods that are leaving and have left. */
void pods_leave(struct pods *pods, bool (*has_left)(void *data, struct node_pod *pod), void *data);

/* Any order; fn may not change the table. */
void pods_each(struct pods *pods, void (*fn)(void *data, struct node_pod *pod), void *data);

/* What the pod was given, a list for each container. -EINVAL, -E2BIG, -ENOMEM with err. */
int pod_grants(const struct node_pod *pod, struct arena *arena, struct pod_devices *ret_devices,
               struct error *err);

/* Whether every container that was given devices has them. */
bool pod_is_ready(const struct node_pod *pod, const struct pod_devices *devices);
