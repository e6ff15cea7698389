/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One grant of the node-local ledger (book.h), and its file of KEY=VALUE lines. */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "model/device.h"

enum {
    GRANT_MAX_DEVICES = 16,
    GRANT_COMMAND_SIZE = 256,
};

struct grant_device {
    char uuid[DEVICE_UUID_SIZE];
    uint64_t memory_bytes;
    unsigned cores; /* percent; 0: no share */
};

struct grant {
    uint64_t id;     /* the file's name */
    pid_t keeper;    /* the hamictl that made it */
    pid_t program;   /* 0 until it has started */
    int64_t started; /* Unix seconds */
    char command[GRANT_COMMAND_SIZE];
    size_t device_count;
    struct grant_device devices[GRANT_MAX_DEVICES];
};

/* Writes all but the id and the program, at once. */
int grant_write(int fd, const struct grant *grant);

/*
 * Reads a grant's text, all but the id, and destroys it. -EBADMSG when it is not one. Lines with an
 * unknown key are skipped; a line without its end is still being written and not there yet.
 */
int grant_parse(char *text, struct grant *ret_grant, struct error *err);

/* The same for a file, from its start. */
int grant_read(int fd, struct grant *ret_grant, struct error *err);

/* Words of a command line, blanks between them, control characters replaced, cut to fit. */
void grant_set_command(struct grant *grant, char *const *words);

/* For qsort(), of uint64_t. */
int grant_compare_ids(const void *a, const void *b);
