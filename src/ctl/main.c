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

static int help_main(int argc, char **argv);

static const struct subcommand subcommands[] = {
    {"hamictl run", "run a program with a part of a GPU", run_main},
    {"hamictl resize", "change what a program that runs may use", resize_main},
    {"hamictl top", "show the GPUs, and who holds and uses what", top_main},
    {"hamictl region", "show, watch and check a container's shared region", region_main},
    {"hamictl sim", "make, show and remove a simulated machine", sim_main, .has_verbs = true},
    {"hamictl config", "check a device configuration, print what follows from it", config_main},
    {"hamictl simulate", "say where pods of a Kubernetes cluster would be placed", simulate_main},
    {"hamictl why", "say why a pod of a Kubernetes cluster waits", why_main},
    {"hamictl help", "say more of a subcommand, and of a verb of sim", help_main},
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

static int refuse_unknown(const char *word)
{
    (void)fprintf(stderr, "hamictl: there is no subcommand \"%s\"; see hamictl --help\n", word);
    return CTL_EXIT_USAGE;
}

static bool is_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 ||
           strcmp(word, "-?") == 0;
}

/* "hamictl help" is --help, "hamictl help run" is "hamictl run --help", and "hamictl help sim
 * create" is "hamictl sim create --help". Words after another subcommand would be a program to run.
 */
static int help_main(int argc, char **argv)
{
    char *words[] = {program_invocation_name, (char *)"--help", NULL, NULL};
    int count = 2;
    const struct subcommand *subcommand;

    if (argc < 2 || is_help(argv[1]))
        return argp_parse(&argp, count, words, 0, NULL, NULL);
    subcommand = find_subcommand(argv[1]);
    if (!subcommand)
        return refuse_unknown(argv[1]);
    if (subcommand->has_verbs && argc > 2) {
        words[count++] = words[1];
        words[1] = argv[2];
    }
    return main_call(subcommand, count, words);
}

int main(int argc, char **argv)
{
    struct arguments arguments = {0, NULL};
    const struct subcommand *subcommand;

    file_hold_standard();
    argp_err_exit_status = CTL_EXIT_USAGE;
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &arguments) != 0)
        return CTL_EXIT_USAGE;

    subcommand = find_subcommand(arguments.argv[0]);
    return subcommand ? main_call(subcommand, arguments.argc, arguments.argv)
                      : refuse_unknown(arguments.argv[0]);
}
