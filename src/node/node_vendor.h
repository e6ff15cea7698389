/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a node does for a vendor's cards: the table by which hami-device-plugin finds them, watches
 * them, and hands parts of them to containers, as struct vendor is what the control plane knows of
 * a vendor. NVIDIA's is node/nvidia/node.h. A node program is linked with one, and has one `node`,
 * the vendor's own.
 *
 * Functions are called on the program's loop and may block on the disk only, but for find() and
 * watch(), which may block for as long as a driver does: each is called in a thread of its own,
 * never twice at once, and what it shares with the others is the vendor's to guard.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "model/codec.h"
#include "node/card.h"
#include "node/host.h"
#include "node/spec.h"

enum {
    NODE_RESOURCES_MAX = 16,
    NODE_RESOURCE_SIZE = 64,
    NODE_AMOUNTS_MAX = 8,
    NODE_NOTES_MAX = 4,
};

/* What kubelet counts, and where it finds us for that; each is a registration of its own. */
struct node_resource {
    char name[NODE_RESOURCE_SIZE];     /* "nvidia.com/gpu" */
    char endpoint[NODE_RESOURCE_SIZE]; /* our socket's name, beside kubelet's: "nvidia-gpu.sock" */
    /* kubelet's ids are the cards' own: who is given an id has that card, whole, and no scheduler
     * chose it. */
    bool is_direct;
};

/* How devices come to containers on this node. */
struct node_way {
    bool is_ordered;     /* Allocate answers all, without CDI (container_grant.laid_out): binds must
                            come one at a time, which the vendor's annotations say to the scheduler */
    bool by_runtime;     /* a person chose that the runtime brings the driver, by a variable... */
    bool by_mounts;      /* ...or by mounts */
    const char *handler; /* the runtime's default handler; "": it does not say */
};

/* What a vendor says of itself when it starts. */
struct node_offer {
    struct node_resource resources[NODE_RESOURCES_MAX];
    size_t resource_count;
    char priority_resource[NODE_RESOURCE_SIZE]; /* by which a container says its task's priority;
                                                   "": none */
};

struct node_setup {
    const char *node_name;
    const char *device_config_file, *node_config_file; /* NULL: not given */
    const struct node_host *host;                      /* its folders exist; it outlives the node */
    const void *own;                                   /* the vendor's own options */
};

/* Environment of a container, as Allocate answers it. */
struct node_variable {
    const char *name, *value;
};

/* An annotation of the Node. */
struct node_note {
    const char *key;   /* the vendor's for ever */
    const char *value; /* the arena's; NULL: there is to be none */
};

/* A part of the Node's capacity. */
struct node_amount {
    char name[NODE_RESOURCE_SIZE];
    uint64_t amount;
};

/* The Node's condition that says whether containers get the driver, and else what to do. */
struct node_condition {
    bool ready;
    char reason[32];   /* "": there is none */
    char message[512]; /* as long as an error's text */
};

/* A part of a card that is there: a card's instance. */
struct node_part {
    char uuid[DEVICE_UUID_SIZE];
    uint64_t memory_bytes;
    unsigned gpu_instance, compute_instance;
};

/*
 * What became of a word on which parts are wanted. In an update two plugins serve a node for a
 * while, and only one of them makes and ends parts: the earlier one, until it has ended.
 */
enum node_want {
    NODE_WANT_SAME = 1,
    NODE_WANT_CHANGED, /* it differs from the former one: find() is to be called at once */
    NODE_WANT_LATER,   /* not taken: another plugin still serves the node; to be said again */
    NODE_WANT_FULL,    /* there are too many: the first of them were taken, nothing is ended, and
                          find_part() says of the others that they can't be made */
    NODE_WANT_ADOPT,   /* not taken: that one has just ended; what it left on the disk is to be read
                          first, and then this is to be said again */
};

struct node_vendor {
    const char *name; /* "NVIDIA" */

    /* Annotations of pods. */
    const char *allocated_key, *to_allocate_key;

    /*
     * What Allocate answers beside the CDI device's name, which a runtime without CDI passes over.
     * The specification overrides it.
     */
    const struct node_variable *variables;
    size_t variable_count;

    /* Reads the configuration and installs what containers need. The driver is not opened yet. */
    int (*start)(const struct node_setup *setup, void **ret_node, struct node_offer *ret_offer,
                 struct error *err);
    void (*stop)(void *node);

    /*
     * The cards as they are now, healthy or not. known are those of the former call, NULL at first:
     * a card that does not answer keeps its data from there. Where the driver can't be opened or
     * fails as a whole a negative errno, and *ret_cards are the known ones, none healthy.
     */
    int (*find)(void *node, const struct cards *known, struct cards *ret_cards, struct error *err);

    /* The Node's annotations, always the same keys; the count. -ENOMEM: the arena is full. */
    int (*annotate)(void *node, const struct cards *cards, struct arena *arena,
                    struct node_note ret_notes[NODE_NOTES_MAX]);

    /*
     * What stands between this node's containers and the driver. why_no_cards: find()'s, NULL once
     * it has found them. handler: the runtime's default handler, "" where it does not say.
     */
    void (*describe)(void *node, const char *why_no_cards, const char *handler,
                     struct node_condition *ret_condition);

    /*
     * Whether the cards can be handed over, and how: writes the container's own files into its
     * folder, and adds to edits. The cards are healthy, and this node's; cards are all there are.
     */
    int (*prepare)(void *node, const struct container_grant *grant, const struct cards *cards,
                   const char *folder, struct spec_edits *edits, struct error *err);

    /* NULL where there is none of that. */

    /* Called when it is known by which way containers get their devices, and when that changes.
     * NULL: the vendor needs CDI. The handler's text outlives the node. */
    void (*set_way)(void *node, const struct node_way *way);

    /* After each find() that succeeded: resources that are new by the cards found go to the end of
     * the offer. */
    void (*offer)(void *node, struct node_offer *offer);

    /*
     * Waits some seconds for something to befall a card: 1, the cards are to be found again at
     * once; 0, nothing happened. A negative errno, with why, when it can't be told: it is called
     * again all the same. Not before find() succeeded.
     */
    int (*watch)(void *node, struct error *err);

    /* The annotation of a pod that says which parts of cards its grant is, where the grant names
     * cards alone; and the grant with the parts' names in it, allocated. NULL: no memory. */
    const char *parts_key;
    char *(*name_parts)(const char *grant, const char *parts);

    /*
     * Parts of cards that containers are to have, by their names in annotations; all: no others.
     * find() makes what is missing and, with all, ends what is not wanted. The names are good for
     * this call only.
     */
    enum node_want (*want)(void *node, const char *const *names, size_t count, bool all);
    /* 1: the part is there; 0: it is not made yet; a negative errno, with why: it can't be. */
    int (*find_part)(void *node, const char *name, struct node_part *ret_part, struct error *err);

    /* The pod's annotation that says which parts its containers have, by their grants: 1; 0: there
     * is none, or not all are there yet. -ENOMEM: the arena is full. */
    int (*describe_parts)(void *node, const struct pod_devices *devices, struct arena *arena,
                          struct node_note *ret_note);

    /* What the cards add up to, as the Node's capacity; the count. */
    size_t (*amounts)(void *node, const struct cards *cards,
                      struct node_amount ret_amounts[NODE_AMOUNTS_MAX]);
    /* Cuts files that containers made longer than they may be; calls fn for each. */
    int (*trim)(void *node, void (*fn)(void *data, const char *entry, uint64_t bytes), void *data,
                struct error *err);
};
