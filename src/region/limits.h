/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a container may use, as written for it.
 *
 * The words are HAMi's environment names. Where the node agent (or hamictl) wrote a file "limits"
 * beside libvgpu.so, that file rules and the environment can only lower what it says; where there
 * is none, the environment rules, as with HAMi-core. A value that can't be read is an error, never
 * "no limit". Nothing is allocated: safe inside libvgpu.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    LIMITS_MAX_DEVICES = 16,
    LIMITS_UUID_SIZE = 96,
    LIMITS_PATH_SIZE = 1024,
    LIMITS_FILE_MAX = 16384,
};

/* What managed memory is charged. */
enum limits_managed {
    LIMITS_MANAGED_RESIDENT =
        0,               /* what may be on the device; what does not fit lives on the host */
    LIMITS_MANAGED_FULL, /* all of it, and what does not fit is refused */
    LIMITS_MANAGED_FREE, /* nothing */
};

struct limits_device {
    char uuid[LIMITS_UUID_SIZE]; /* "" where the devices are not named */
    uint64_t memory_bytes;       /* 0: no limit */
    uint64_t context_bytes;      /* what a context takes for itself; 0: not known */
    unsigned cores;              /* percent of the device's time; 0: no limit */
    unsigned common_cores;       /* the same before limits_lower() */

    /* In a file: what the container's environment was given when the file was first written. An
     * environment that still says so lowers nothing. */
    uint64_t given_memory_bytes;
    unsigned given_cores;
};

struct limits {
    unsigned device_count; /* devices named by UUID; 0: all that there are, known by their order */
    struct limits_device devices[LIMITS_MAX_DEVICES];
    char region_path[LIMITS_PATH_SIZE]; /* "": not said */
    uint64_t region_inode;              /* the file's, where it can be replaced; 0: not said */
    char cells[LIMITS_PATH_SIZE];       /* folder with the container's cell of each card, by UUID:
                                           see card.h; "": there are none */
    char cards[LIMITS_PATH_SIZE]; /* folder with each card's folder of cells, by UUID; "": what
                                     others leave idle is not used */
    char ranks[LIMITS_PATH_SIZE]; /* the same folder, where containers of higher priority in it go
                                     first; "": none does */
    int priority;                 /* 0 is high; 1 unless said */
    bool cores_disabled;          /* the core policy "disable": no share is enforced */
    bool cores_forced; /* the core policy "force": HAMi's monitor does not switch shares off */
    bool only_granted; /* show the named devices and no others */
    enum limits_managed managed;
    bool suspended;         /* its processes launch nothing until that is taken back */
    bool oversubscribed;    /* what the card has no room for, within the limit, lives on the host */
    bool allow_imports;     /* let memory be imported that is not known to be the container's */
    bool allow_unaccounted; /* let allocation calls pass that are not accounted for */
};

#define LIMITS_INIT                                                                                \
    {                                                                                              \
        .priority = 1                                                                              \
    }

/* The policy of a word: resident, full, free. -EINVAL. */
int limits_read_managed(const char *word, enum limits_managed *ret_managed);

/* Whether any device has a limit, or devices are named. */
bool limits_any(const struct limits *limits);

/* Adds the KEY=VALUE lines of a file's text. Empty lines and lines that start with # are skipped.
 */
int limits_parse(struct limits *limits, const char *text, struct error *err);

/* Adds what the environment (environ's form, terminated by NULL) says. Where a value can't be read
 * the others are added all the same; the error is of the first such. */
int limits_parse_environment(struct limits *limits, char *const *environment, struct error *err);

/* Lowers each limit to the other's where that is lower and not what was given in the beginning;
 * everything else of the other is ignored. */
void limits_lower(struct limits *limits, const struct limits *other);

/* Writes a file's text, for limits_parse(). Returns its length, or -ENOBUFS. */
int limits_format(const struct limits *limits, char *text, size_t size);
