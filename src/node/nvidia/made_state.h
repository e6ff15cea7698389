/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The inside of made.h: its files are made.c (what is wanted and asked for), records.c (what was
 * made, in memory and on the disk) and settle.c (making and ending). */

#include <pthread.h>

#include "node/nvidia/made.h"
#include "nvml/instances.h"

enum {
    RECORDS_MAX = CARDS_WHOLE_MAX * 8, /* instances of a node; no card has more than seven */
    NAME_SIZE = DEVICE_UUID_SIZE + 32, /* "GPU-uuid[0-3]", "GPU-uuid[1g.10gb@3]" */
    BOOT_SIZE = 48,
};

#define UNREADABLE_SUFFIX ".unreadable"

struct record {
    char name[NAME_SIZE];
    char card[DEVICE_UUID_SIZE];
    char uuid[DEVICE_UUID_SIZE]; /* "": it is being made, or ended */
    unsigned profile_id, start, size;
    unsigned gpu_instance, compute_instance;
    uint64_t memory_bytes;
    char profile[NVML_PROFILE_NAME_SIZE]; /* once it has a uuid and was seen */
};

struct failure {
    char name[NAME_SIZE];
    struct error why;
};

/* What the registration says of a card's profiles. */
struct offered {
    char card[DEVICE_UUID_SIZE];
    char *profiles; /* JSON; NULL: nothing */
};

struct made {
    const struct node_host *host;
    const struct nvidia_config *config;
    char boot[BOOT_SIZE];
    int lock_fd; /* -1: another plugin makes and ends the instances of this node */

    pthread_mutex_t lock; /* for all that follows, which the settling thread alone changes but for
                             what is wanted, and drops of failures */
    size_t count;
    struct record records[RECORDS_MAX];
    bool is_said; /* what is wanted was said */
    bool all;     /* nothing else is */
    bool is_full; /* not all that is wanted had room */
    size_t wanted_count;
    char wanted[RECORDS_MAX][NAME_SIZE];
    size_t failure_count;
    struct failure failures[RECORDS_MAX];
    size_t offered_count;
    struct offered offered[CARDS_MAX];
};

bool made_is_listed(char (*names)[NAME_SIZE], size_t count, const char *name);

/* records.c */

/* Takes the lock of their folder, for as long as this process lives: 1; 0: another has it. */
int records_lock(struct made *made, struct error *err);

/*
 * With the lock. Those of another boot of the machine are removed, as their instances are gone. One
 * that can't be understood is kept aside, under its name and UNREADABLE_SUFFIX: an instance that is
 * there is then nobody's that we know.
 */
int records_load(struct made *made, struct error *err);

/* On the disk alone. */
int record_write(const struct made *made, const struct record *record, struct error *err);

/* In memory alone: adds or replaces it. */
void record_put(struct made *made, const struct record *record);

/* In both, and what containers left in "cards" of an instance of that uuid, which never comes
 * again. */
void record_drop(struct made *made, const struct record *record);

/* Under the lock, or in the settling thread. */
struct record *record_find(struct made *made, const char *name);

/* Says why an instance could not be made or ended, in the log once while it stays the same. */
void failure_say(struct made *made, const char *name, const struct error *why);
/* Under the lock. */
void failure_drop(struct made *made, const char *name);
