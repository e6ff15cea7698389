/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The world of cluster_random_test: a pretended API server, whose watches deliver late and whose
 * lists come in pieces.
 */

#include <stdbool.h>
#include <stdint.h>

#include "cluster/cluster.h"

enum {
    NODES = 6,
    CARDS = 3,
    PODS = 60,
    QUEUE = 4096,
    TEXT = 2048,
    CARD_MIB = 24000,
    CARD_TASKS = 4,
};

/* The API's objects. */
struct api_node {
    char name[32];
    bool exists, garbage, plugin_away;
    bool sick[CARDS];
};

struct api_pod {
    char uid[32], name[32];
    bool exists, garbage;
    unsigned inits; /* which containers it has before its app: see filter_among() */
    int count, memory, percent, cores; /* its request; 0: not given */
    char node[32];                     /* "": not bound */
    char devices[TEXT], roles[16];
    bool binding; /* the cluster has handed out a bind that is not answered yet */
    bool tried;   /* the API server has carried it out, or refused; its answer is on its way */
    bool unknown; /* its answer was lost */
    char bind_node[32], bind_devices[TEXT], bind_roles[16];
    bool decided; /* a filter chose a node */
    bool refused; /* by the last filter, among these nodes; it was not said to be requeued */
    size_t refused_among;
    int64_t refused_ns;
    char decided_node[32];
};

enum event_kind {
    NODE_CHANGED,
    NODE_GONE,
    POD_CHANGED,
    POD_GONE,
};

/* Objects as they were when the event happened. */
struct event {
    enum event_kind kind;
    struct api_node node;
    struct api_pod pod;
};

/* A list that is being read: what there was when it began. */
struct listing {
    bool runs;
    unsigned next;
    struct api_node nodes[NODES];
    struct api_pod pods[PODS];
};

extern struct world {
    struct api_node nodes[NODES];
    struct api_pod pods[PODS];
    struct event queue[2][QUEUE]; /* of nodes, of pods: each kind comes in its order */
    unsigned head[2], tail[2];
    struct listing listings[2]; /* likewise */
    int64_t now_ns;
    unsigned next_uid;
    uint64_t random;
    struct cluster *cluster;
    struct arena *arena;
    uint64_t placed, refused, bound, conflicts, requeued, late, gone, terms;
} world;

enum show {
    SHOW_WATCHED,
    SHOW_READ, /* after a bind without an answer */
};

/* A random number from 0 to below - 1. */
unsigned world_draw(unsigned below);

/* An event for the watch; an object that it does not concern is NULL. */
void world_enqueue(enum event_kind kind, const struct api_node *node, const struct api_pod *pod);

/* 0: of nodes, 1: of pods. Up to so many events, or objects of a list that is being read. */
void world_deliver(unsigned which, unsigned count);
void world_continue_list(unsigned which, unsigned count);
void world_move_on(unsigned which, unsigned count);

/* A list in pieces, while pods are filtered and bound; the watch brings the changes meanwhile after
 * it. */
void world_begin_list(unsigned which);

/* A list at once, of the present objects: events that the watch has not delivered are in it. */
void world_list(struct cluster *cluster);

/* The same of world.cluster; gives up lists that are being read. */
void world_relist(void);

void world_show_pod(struct cluster *cluster, const struct api_pod *from, enum show how);
