/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One lease of the node-local ledger (registry.h), and its file of KEY=VALUE lines. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "model/device.h"

enum {
    LEASE_MAX_DEVICES = 16,
    LEASE_COMMAND_SIZE = 256,
};

struct lease_device {
    char uuid[DEVICE_UUID_SIZE];
    uint64_t memory_bytes;
    unsigned cores;      /* percent; 0: no share */
    uint64_t held_bytes; /* of a lease that was changed: what its program holds */
};

struct lease {
    uint64_t id;     /* the file's name */
    pid_t keeper;    /* the hamictl that made it */
    pid_t program;   /* 0 until it has started */
    int64_t started; /* Unix seconds */
    char command[LEASE_COMMAND_SIZE];
    size_t device_count;
    struct lease_device devices[LEASE_MAX_DEVICES];
};

/* Writes all but the id and the program, at once. */
int lease_write(int fd, const struct lease *lease);

/*
 * Reads a lease's text, all but the id, and destroys it. -EBADMSG when it is not one. Lines with an
 * unknown key are skipped; a line without its end is still being written and not there yet.
 */
int lease_parse(char *text, struct lease *ret_lease, struct error *err);

/* A lease's amounts, in the lines that lease_parse() reads; those of another text take the place of
 * the lease's, device by device: -EBADMSG. */
int lease_format_amounts(const struct lease *lease, char *text, size_t size);
int lease_parse_amounts(char *text, struct lease *lease);

/* The same for a file, from its start. */
int lease_read(int fd, struct lease *ret_lease, struct error *err);

/* Words of a command line, blanks between them, control characters replaced, cut to fit. */
void lease_set_command(struct lease *lease, char *const *words);

/* For qsort(), of uint64_t. */
int lease_compare_ids(const void *a, const void *b);
