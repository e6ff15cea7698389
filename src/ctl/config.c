/* SPDX-License-Identifier: Apache-2.0 */

/* hamictl config: a device configuration held to its rules, and what follows from it. */

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/options.h"
#include "base/util.h"
#include "config/device_config.h"
#include "ctl/config_render.h"
#include "ctl/ctl.h"

enum {
    TEXT_MAX = 1 << 20,
};

struct config {
    const char *verb, *path;
};

static error_t config_parse_option(int key, char *arg, struct argp_state *state)
{
    struct config *config = state->input;

    switch (key) {
    case ARGP_KEY_ARG:
        if (!config->verb)
            config->verb = arg;
        else if (!config->path)
            config->path = arg;
        else
            argp_error(state, "\"%s\" is too much; one FILE is enough", arg);
        return 0;
    case ARGP_KEY_END:
        if (!config->verb)
            argp_error(state, "say what to do: check or render");
        if (strcmp(config->verb, "check") != 0 && strcmp(config->verb, "render") != 0)
            argp_error(state, "\"%s\" is neither check nor render", config->verb);
        if (!config->path)
            argp_error(state, "no FILE given");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .parser = config_parse_option,
    .children = options_help,
    .args_doc = "check FILE\nrender FILE",
    .doc = "Hold a device configuration, or the ConfigMap that holds it, to its rules; print the "
           "manifests that follow from it.",
};

static void print_checked(const char *path, const struct device_config *config,
                          const struct vendor_set *vendors)
{
    for (size_t i = 0; i < config->doubts->count; i++)
        (void)fprintf(stderr, "hamictl config: warning: %s\n", config->doubts->texts[i]);
    (void)printf("%s:", path);
    for (size_t i = 0; i < vendors->count; i++)
        (void)printf("%s %s (%s)", i ? "," : "", vendors->instances[i].id.word,
                     vendors->instances[i].count_resource);
    (void)printf("\n");
}

static int print_manifests(const struct vendor_set *vendors, struct error *err)
{
    struct strbuf text = STRBUF_INIT(TEXT_MAX);
    int r = 0;

    config_render(&text, vendors);
    if (text.failed)
        r = error_set(err, -ENOMEM, "out of memory");
    else
        (void)fputs(strbuf_text(&text), stdout);
    strbuf_deinit(&text);
    return r;
}

/* "-" is standard input, as in the other subcommands. */
static int load(const char *path, struct device_config *ret_config, struct error *err)
{
    AUTOFREE char *text = NULL;
    size_t len;

    if (strcmp(path, "-") != 0)
        return device_config_load(path, ret_config, err);
    text = malloc(TEXT_MAX + 1);
    if (!text)
        return error_set(err, -ENOMEM, "out of memory");
    if (isatty(STDIN_FILENO))
        (void)fputs("hamictl: standard input is a terminal: a device configuration is awaited "
                    "there, up to Ctrl-D\n",
                    stderr);
    len = fread(text, 1, TEXT_MAX, stdin);
    if (ferror(stdin))
        return error_set(err, -EIO, "-: can't be read");
    text[len] = '\0';
    return device_config_read(path, text, len, ret_config, err);
}

static int config_run(const struct config *what, struct error *err)
{
    struct device_config config;
    struct vendor_set vendors;
    int r;

    r = load(what->path, &config, err);
    if (r < 0)
        return r;
    r = device_config_vendors(&config, &vendors);
    if (r < 0)
        (void)error_set(err, r, "%s: more vendors than can be served", what->path);
    else if (strcmp(what->verb, "check") == 0)
        print_checked(what->path, &config, &vendors);
    else
        r = print_manifests(&vendors, err);
    device_config_deinit(&config);
    return r;
}

int config_main(int argc, char **argv)
{
    struct config config = {NULL, NULL};
    struct error err = ERROR_INIT;

    if (argp_parse(&argp, argc, argv, 0, NULL, &config) != 0)
        return CTL_EXIT_USAGE;
    if (config_run(&config, &err) == 0)
        return 0;
    (void)fprintf(stderr, "%s: %s\n", argv[0], err.text);
    return CTL_EXIT_FAILURE;
}
