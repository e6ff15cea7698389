/* SPDX-License-Identifier: Apache-2.0 */

/* hamictl: sharing a local GPU without Kubernetes, and seeing what is going on. */

#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/options.h"
#include "base/util.h"
#include "ctl/ctl.h"
#include "ctl/patience.h"

struct subcommand {
    const char *name; /* as it calls itself in messages, "hamictl NAME" */
    const char *summary;
    int (*main)(int argc, char **argv);
    bool has_verbs; /* which have a help of their own */
};

static const struct subcommand subcommands[] = {
    {"hamictl run", "run a program with a part of a GPU", run_main},
    {"hamictl resize", "change what a program that runs may use", resize_main},
    {"hamictl top", "show the GPUs, and who holds and uses what", top_main},
    {"hamictl region", "show, watch and check a container's shared region", region_main},
    {"hamictl sim", "make, show and remove a simulated machine", sim_main, .has_verbs = true},
    {"hamictl config", "check a device configuration, print what follows from it", config_main},
    {"hamictl simulate", "say where pods of a Kubernetes cluster would be placed", simulate_main},
    {"hamictl why", "say why a pod of a Kubernetes cluster waits", why_main},
};

struct arguments {
    int argc;
    char **argv; /* from the subcommand's name on; NULL: none given */
};

static const char *main_word_of(const struct subcommand *subcommand)
{
    return strchr(subcommand->name, ' ') + 1;
}

static const struct subcommand *find_subcommand(const char *word)
{
    for (size_t i = 0; i < ARRAY_SIZE(subcommands); i++) {
        if (strcmp(word, main_word_of(&subcommands[i])) == 0)
            return &subcommands[i];
    }
    return NULL;
}

static int main_call(const struct subcommand *subcommand, int argc, char **argv)
{
    int code;

    argv[0] = (char *)subcommand->name;
    code = subcommand->main(argc, argv);
    if (patience_is_lost()) {
        (void)fflush(stdout);
        _exit(code);
    }
    /* What was printed may not have been written yet, and half an answer is none. */
    if (code != 0 || (fflush(stdout) == 0 && !ferror(stdout)))
        return code;
    (void)fprintf(stderr, "%s: cannot write to standard output: %s\n", subcommand->name,
                  strerror(errno));
    return CTL_EXIT_FAILURE;
}

static error_t main_parse_option(int key, char *arg, struct argp_state *state)
{
    struct arguments *arguments = state->input;

    (void)arg;
    switch (key) {
    case ARGP_KEY_ARG:
        arguments->argv = &state->argv[state->next - 1];
        arguments->argc = state->argc - (state->next - 1);
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "no subcommand given");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The list of subcommands, out of their table. */
static char *filter_help(int key, const char *text, void *input)
{
    char *list = NULL;
    size_t size;
    FILE *stream;

    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC)
        return (char *)text;

    stream = open_memstream(&list, &size);
    if (!stream)
        return NULL;
    (void)fputs("Subcommands:\n", stream);
    for (size_t i = 0; i < ARRAY_SIZE(subcommands); i++)
        (void)fprintf(stream, "  %-10s %s\n", main_word_of(&subcommands[i]),
                      subcommands[i].summary);
    (void)fputs("\n\"hamictl help SUBCOMMAND\" and \"man hamictl-SUBCOMMAND\" say more.\n", stream);
    (void)fclose(stream);
    return list;
}

static const struct argp argp = {
    .parser = main_parse_option,
    .args_doc = "SUBCOMMAND [ARGUMENT...]",
    .doc = "Share GPUs of this machine among programs, with limits on memory and compute.\v ",
    .children = options_help,
    .help_filter = filter_help,
};

PUBLIC const char *argp_program_version = "hamictl " HAMI_VERSION;

/* "hamictl help" is --help, "hamictl help run" is "hamictl run --help", and "hamictl help sim
 * create" is "hamictl sim create --help". Words after another subcommand would be a program to run.
 */
static int show_help(const struct arguments *arguments, char *program)
{
    char *argv[] = {program, (char *)"--help", NULL, NULL};
    int argc = 2;
    const struct subcommand *subcommand;

    if (arguments->argc < 2)
        return argp_parse(&argp, 2, argv, 0, NULL, NULL);
    subcommand = find_subcommand(arguments->argv[1]);
    if (subcommand && subcommand->has_verbs && arguments->argc > 2) {
        argv[argc++] = argv[1];
        argv[1] = arguments->argv[2];
    }
    if (subcommand)
        return main_call(subcommand, argc, argv);
    (void)fprintf(stderr, "hamictl: there is no subcommand \"%s\"; see hamictl --help\n",
                  arguments->argv[1]);
    return CTL_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {0, NULL};
    const struct subcommand *subcommand;

    file_hold_standard();
    argp_err_exit_status = CTL_EXIT_USAGE;
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &arguments) != 0)
        return CTL_EXIT_USAGE;

    if (strcmp(arguments.argv[0], "help") == 0)
        return show_help(&arguments, argv[0]);
    subcommand = find_subcommand(arguments.argv[0]);
    if (subcommand)
        return main_call(subcommand, arguments.argc, arguments.argv);
    (void)fprintf(stderr, "hamictl: there is no subcommand \"%s\"; see hamictl --help\n",
                  arguments.argv[0]);
    return CTL_EXIT_USAGE;
}
