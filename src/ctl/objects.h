/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A cluster out of files: Nodes, ResourceQuotas and Pods, as `kubectl get -A -o json` prints them
 * or people write them. What is bound counts; what is not waits to be asked about, by the code that
 * decides in the scheduler. So does a pod that names its node and was never made: the webhook
 * denies it.
 */

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "cluster/cluster.h"
#include "config/device_config.h"
#include "ctl/seen.h"
#include "ctl/unserved.h"

enum {
    OBJECTS_MAX_FILES = 64,
};

struct objects_options {
    const char *program;                  /* with which messages begin: "hamictl why" */
    const char *config_path;              /* the device configuration; NULL: NVIDIA's resources */
    const char *node_policy;              /* NULL: binpack */
    const char *device_policy;            /* NULL: spread */
    const char *scheduler_name;           /* NULL, "": hami-scheduler */
    const char *sought;                   /* a pod, [NAMESPACE/]NAME, to be found; NULL: none */
    bool learns;                          /* as in cluster_options */
    bool takes_view;                      /* a /debug/view will do in place of Nodes */
    bool warned_before;                   /* the same objects were admitted: no warning again */
    const char *files[OBJECTS_MAX_FILES]; /* "-": standard input */
    size_t file_count;
};

/* A pod that is not bound, as it was read. */
struct waiting_pod {
    char *text; /* JSON */
    const char *namespace, *name;
};

/* Whether this is the pod that somebody calls [NAMESPACE/]NAME. */
bool objects_is_named(const char *wanted, const char *namespace, const char *name);

/* A reader of base/options.h, whose member is the objects_options: one file more. */
int objects_read_file(char *text, void *member, struct error *err);

/* The same of node_policy and device_policy, whose words are checked. */
int objects_read_node_policy(char *text, void *member, struct error *err);
int objects_read_device_policy(char *text, void *member, struct error *err);

struct objects {
    struct device_config config;
    struct vendor_set vendors;
    struct cluster *cluster;
    struct arena *arena; /* for one question; and of the names */
    struct arena *names;
    size_t node_count, pod_count, object_count; /* object_count: of any kind */
    const char *file;                           /* that is read, for messages */
    struct seen seen;
    const char **nodes;
    size_t waiting_count;
    struct waiting_pod *waiting; /* in the files' order */
    const char *program;         /* as in the options */
    const char *scheduler_name;  /* whose pods are placed */
    const char *sought;          /* as in the options */
    const char *sought_is;       /* why the sought pod does not wait; NULL: no such pod was read */
    bool is_silent;              /* no warning is printed */
    const char *advice;          /* the webhook's warning of the pod that was admitted last, in the
                                    arena; NULL: none */
    const char *warned;          /* the last warnings that were printed; NULL: none */
    struct node_resources resources;
    char *view; /* the scheduler's own /debug/view, if a file is one; NULL: none is */
};

/* -EINVAL with file and place, or because the files have no Node; -EEXIST: a node or a pod is there
 * twice; and others. What is left out is told on standard error. The caller frees it
 * by objects_free(), always. */
int objects_load(const struct objects_options *options, struct objects *ret_objects,
                 struct error *err);
void objects_free(struct objects *objects);

/* Puts the waiting pods into an order that the seed says: the same again for the same seed. */
void objects_shuffle(struct objects *objects, uint64_t seed);

/*
 * The pod as it is after admission, in the arena, which begins anew. 1; 0: it asks for no device,
 * or is another scheduler's; -EPERM: the webhook denies it, err says why; -EINVAL, -ENOMEM. What
 * the webhook would warn of, and resources that nobody has, are printed on standard error.
 */
int objects_admit(struct objects *objects, const struct waiting_pod *waiting, struct pod *ret_pod,
                  struct error *err);
