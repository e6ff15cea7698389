/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A program's command line from one table: each option's name, how its argument is read, and where
 * the value goes. Over argp, which makes --help and --version of it.
 */

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/*
 * Reads an option's argument into a member of the program's options. text is NULL for an option
 * without argument. It lasts as long as the program, and may be written to. Negative, with err set,
 * ends the program with a message that begins with the option's name.
 */
typedef int option_read_fn(char *text, void *member, struct error *err);

enum option_flags {
    OPTION_MAY_STAND_ALONE = 1 << 0, /* the argument may be missing */
    OPTION_UNLISTED = 1 << 1,        /* not in --help */
    OPTION_OTHER_NAME = 1 << 2,      /* of the row above: only the name is looked at */
    OPTION_NO_EFFECT = 1 << 3,       /* accepted for HAMi's sake, and logged; help says why */
};

struct option_row {
    const char *name;
    char letter;          /* 0: none */
    unsigned flags;       /* enum option_flags */
    const char *argument; /* its name in --help; NULL: it takes none */
    option_read_fn *read;
    size_t offset; /* of the member */
    const char *help;
};

struct option_table {
    const struct option_row *rows;
    size_t count;
    const char *version; /* for --version; NULL: no such option */
    const char *doc;     /* for --help, "before\vafter the options" */
    const char *arguments_doc;
    /* Takes the words that are no options; NULL: they are an error. */
    void (*take_arguments)(void *options, char **words, size_t count);
    /* Checks the options as a whole, as option_read_fn; may be NULL. */
    int (*check)(void *options, struct error *err);
    bool in_order; /* the first word that is no option ends the options */
};

/* Prints help, version or an error, and exits then, after an error with 2 unless the program has
 * set argp_err_exit_status. options holds the defaults. */
void options_read(const struct option_table *table, int argc, char **argv, void *options);

/* -h, beside argp's own -? and --help: the children of an argp that no table makes. */
extern const struct argp_child options_help[];

/* Readers. Members: */
option_read_fn option_text; /* const char * */
option_read_fn option_root; /* const char *; "/" is "", which stands in front of a path as well */
option_read_fn option_bool; /* bool: "--flag", "--flag=false", as Go's */
option_read_fn option_not;  /* bool: the opposite */
option_read_fn option_verbosity; /* none: sets the log's */
