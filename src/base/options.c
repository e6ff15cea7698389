/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options.h"

#include <argp.h>
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/log.h"
#include "base/parse.h"

enum {
    EXIT_USAGE = 2,     /* as of hamictl, and of Go's programs; argp's own is EX_USAGE, 64 */
    KEY_FIRST = 0x1000, /* of options without a letter: beyond the characters */
    ROWS_MAX = 64,
};

/* argp's input. */
struct reading {
    const struct option_table *table;
    void *options;
};

static int key_of(const struct option_table *table, size_t position)
{
    const struct option_row *row = &table->rows[position];

    return row->letter ? row->letter : KEY_FIRST + (int)position;
}

static const struct option_row *find_row(const struct option_table *table, int key)
{
    for (size_t i = 0; i < table->count; i++) {
        if (!(table->rows[i].flags & OPTION_OTHER_NAME) && key_of(table, i) == key)
            return &table->rows[i];
    }
    return NULL;
}

static void read_row(const struct option_row *row, char *text, struct argp_state *state)
{
    struct reading *reading = state->input;
    struct error err = ERROR_INIT;

    if (row->flags & OPTION_NO_EFFECT)
        log_info("--%s: %s", row->name, row->help ? row->help : "without effect here");
    else if (row->read(text, (char *)reading->options + row->offset, &err) < 0)
        argp_error(state, "--%s: %s", row->name, err.text);
}

static void check_all(struct argp_state *state)
{
    struct reading *reading = state->input;
    struct error err = ERROR_INIT;

    if (reading->table->check && reading->table->check(reading->options, &err) < 0)
        argp_error(state, "%s", err.text);
}

static error_t on_help_key(int key, char *text, struct argp_state *state)
{
    (void)text;
    if (key != 'h')
        return ARGP_ERR_UNKNOWN;
    argp_state_help(state, stdout, ARGP_HELP_STD_HELP);
    return 0;
}

static const struct argp_option help_option[] = {{.key = 'h', .flags = OPTION_HIDDEN}, {0}};
static const struct argp help_argp = {.options = help_option, .parser = on_help_key};

const struct argp_child options_help[] = {{.argp = &help_argp}, {0}};

static error_t on_key(int key, char *text, struct argp_state *state)
{
    struct reading *reading = state->input;
    const struct option_row *row = find_row(reading->table, key);

    if (row) {
        read_row(row, text, state);
        return 0;
    }
    switch (key) {
    case ARGP_KEY_ARG:
        if (!reading->table->take_arguments)
            argp_error(state, "%s: no arguments are taken", text);
        return ARGP_ERR_UNKNOWN; /* argp then comes with all of them */
    case ARGP_KEY_ARGS:
        reading->table->take_arguments(reading->options, &state->argv[state->next],
                                       (size_t)(state->argc - state->next));
        return 0;
    case ARGP_KEY_END:
        check_all(state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int argp_flags(unsigned flags)
{
    return (flags & (OPTION_MAY_STAND_ALONE | OPTION_NO_EFFECT) ? OPTION_ARG_OPTIONAL : 0) |
           (flags & OPTION_UNLISTED ? OPTION_HIDDEN : 0) |
           (flags & OPTION_OTHER_NAME ? OPTION_ALIAS : 0);
}

void options_read(const struct option_table *table, int argc, char **argv, void *options)
{
    struct argp_option list[ROWS_MAX + 1] = {0};
    const struct argp argp = {
        .options = list,
        .parser = on_key,
        .doc = table->doc,
        .args_doc = table->arguments_doc,
        .children = options_help,
    };
    struct reading reading = {table, options};

    assert(table->count <= ROWS_MAX);
    for (size_t i = 0; i < table->count; i++) {
        const struct option_row *row = &table->rows[i];
        bool other_name = row->flags & OPTION_OTHER_NAME;

        list[i] = (struct argp_option){
            .name = row->name,
            .key = other_name ? 0 : key_of(table, i),
            .arg = row->flags & OPTION_NO_EFFECT ? "VALUE" : row->argument,
            .flags = argp_flags(row->flags),
            .doc = row->help,
        };
    }
    if (argp_err_exit_status == EX_USAGE)
        argp_err_exit_status = EXIT_USAGE;
    if (table->version)
        argp_program_version = table->version;
    if (argp_parse(&argp, argc, argv, table->in_order ? ARGP_IN_ORDER : 0, NULL, &reading) != 0)
        exit(argp_err_exit_status);
}

int option_text(char *text, void *member, struct error *err)
{
    (void)err;
    *(const char **)member = text;
    return 0;
}

int option_root(char *text, void *member, struct error *err)
{
    (void)err;
    *(const char **)member = strcmp(text, "/") == 0 ? "" : text;
    return 0;
}

int option_bool(char *text, void *member, struct error *err)
{
    bool value = true;

    if (text && parse_bool(text, &value) < 0)
        return error_set(err, -EINVAL, "\"%s\" is neither true nor false", text);
    *(bool *)member = value;
    return 0;
}

int option_not(char *text, void *member, struct error *err)
{
    bool value = true;
    int r = option_bool(text, &value, err);

    if (r == 0)
        *(bool *)member = !value;
    return r;
}

int option_verbosity(char *text, void *member, struct error *err)
{
    unsigned level;

    (void)member;
    if (parse_verbosity(text, &level) < 0)
        return error_set(err, -EINVAL, "\"%s\" is not a number", text);
    log_set_verbosity(level);
    return 0;
}
