/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/options.h"

#include <argp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/util.h"

enum kind {
    KIND_TEXT,
    KIND_BOOL,     /* Go's: "--flag", "--flag=false" */
    KIND_DURATION, /* "3s" or "300ms", in ms */
    KIND_WITHOUT,  /* a flag of HAMi's without effect here; its help says why */
};

struct row {
    const char *name;
    enum kind kind;
    size_t offset; /* in struct options */
    const char *argument;
    const char *help;
};

#define TEXT(name, field, argument, help)                                                          \
    {                                                                                              \
        name, KIND_TEXT, offsetof(struct options, field), argument, help                           \
    }
#define WITHOUT(name, help)                                                                        \
    {                                                                                              \
        name, KIND_WITHOUT, 0, "VALUE", help                                                       \
    }

static const struct row rows[] = {
    TEXT("http_bind", http_bind, "ADDRESS",
         "serve the extender and the webhook here (127.0.0.1:8080)"),
    TEXT("cert_file", cert_file, "FILE", "certificate chain, PEM; read again when it changes"),
    TEXT("key_file", key_file, "FILE", "its key"),
    TEXT("metrics-bind-address", metrics_bind, "ADDRESS",
         "serve /metrics here, without TLS (:9395)"),
    TEXT("scheduler-name", scheduler_name, "NAME",
         "the scheduler that pods with devices are given to, and the source of events"),
    {"leader-elect", KIND_BOOL, offsetof(struct options, leader_elect), "BOOL",
     "decide only while the kube-scheduler of this host holds its lease: needed by more than one "
     "replica (false)"},
    TEXT("leader-elect-resource-name", lease_name, "NAME", "the lease's"),
    TEXT("leader-elect-resource-namespace", lease_namespace, "NAMESPACE", "the lease's"),
    {"bind-timeout", KIND_DURATION, offsetof(struct options, bind_timeout_ms), "TIME",
     "how long the API server may take to bind a pod; a new leader or process waits a third longer "
     "before it decides (3s)"},
    {"force-overwrite-default-scheduler", KIND_BOOL,
     offsetof(struct options, overwrite_default_scheduler), "BOOL",
     "of pods that name default-scheduler, too (true)"},
    TEXT("device-config-file", device_config_file, "FILE", "device-config.yaml; needed"),
    TEXT("node-scheduler-policy", node_policy, "POLICY",
         "binpack or spread, for pods that do not say (binpack)"),
    TEXT("gpu-scheduler-policy", device_policy, "POLICY",
         "the same among a node's devices (spread)"),
    TEXT("node-label-selector", node_selector, "LABELS", "k=v,k=v: know only such nodes"),
    TEXT("kubeconfig", kubeconfig, "FILE",
         "else $KUBECONFIG, the pod's ServiceAccount, ~/.kube/config"),
    WITHOUT("kube-qps", "without effect: requests are not limited here but by the server"),
    WITHOUT("kube-burst", "without effect, as --kube-qps"),
    WITHOUT("kube-timeout", "without effect: each request has its own time"),
    WITHOUT("node-lock-timeout", "without effect: nodes are not locked"),
    WITHOUT("node-lock-retry-timeout", "without effect: nodes are not locked"),
    WITHOUT("legacy-metrics", "without effect: old names are not exported"),
    WITHOUT("enable-ascend", "without effect yet"),
    WITHOUT("enable-iluvatar", "without effect yet"),
    WITHOUT("profiling", "without effect"),
    WITHOUT("debug", "without effect: see -v"),
    WITHOUT("logtostderr", "without effect: it always does"),
};

enum {
    KEY_FIRST = 0x1000, /* beyond the characters */
    BIND_TIMEOUT_MIN_MS = 100,
    BIND_TIMEOUT_MAX_MS = 60000,
};

static int parse_ms(const char *text, unsigned *ret_ms)
{
    size_t digits = strspn(text, "0123456789");
    const char *unit = text + digits;
    unsigned factor = strcmp(unit, "s") == 0 ? 1000 : strcmp(unit, "ms") == 0 ? 1 : 0;

    if (digits == 0 || digits > 6 || factor == 0)
        return -1;
    *ret_ms = (unsigned)strtoul(text, NULL, 10) * factor;
    return *ret_ms >= BIND_TIMEOUT_MIN_MS && *ret_ms <= BIND_TIMEOUT_MAX_MS ? 0 : -1;
}

static error_t set_row(const struct row *row, const char *argument, struct options *options,
                       struct argp_state *state)
{
    char *field = (char *)options + row->offset;

    switch (row->kind) {
    case KIND_TEXT:
        *(const char **)field = argument;
        return 0;
    case KIND_BOOL:
        if (parse_bool(argument ? argument : "true", (bool *)field) < 0)
            argp_error(state, "--%s=%s: neither true nor false", row->name, argument);
        return 0;
    case KIND_DURATION:
        if (parse_ms(argument, (unsigned *)field) < 0)
            argp_error(state, "--%s=%s: not a time from 100ms to 60s", row->name, argument);
        return 0;
    case KIND_WITHOUT:
        log_info("--%s: %s", row->name, row->help);
        return 0;
    }
    return ARGP_ERR_UNKNOWN;
}

/* Go's flags are written -v=4, too. */
static error_t set_verbosity(const char *text, struct options *options, struct argp_state *state)
{
    if (parse_verbosity(text, &options->verbosity) < 0)
        argp_error(state, "-v, --verbosity=%s: not a number", text);
    return 0;
}

static void check_policy(const char *name, const char *policy, struct argp_state *state)
{
    if (strcmp(policy, "binpack") != 0 && strcmp(policy, "spread") != 0)
        argp_error(state, "--%s=%s: neither binpack nor spread", name, policy);
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct options *options = state->input;

    if (key >= KEY_FIRST && key < KEY_FIRST + (int)ARRAY_SIZE(rows))
        return set_row(&rows[key - KEY_FIRST], argument, options, state);
    if (key == 'v')
        return set_verbosity(argument, options, state);
    if (key == ARGP_KEY_ARG)
        argp_error(state, "%s: no arguments are taken", argument);
    if (key != ARGP_KEY_END)
        return ARGP_ERR_UNKNOWN;

    if (!options->device_config_file)
        argp_error(state, "--device-config-file is needed");
    if (!options->cert_file != !options->key_file)
        argp_error(state, "--cert_file and --key_file go together");
    if (options->leader_elect && (!options->lease_name || !options->lease_namespace))
        argp_error(state, "--leader-elect needs --leader-elect-resource-name and "
                          "--leader-elect-resource-namespace");
    check_policy("node-scheduler-policy", options->node_policy, state);
    check_policy("gpu-scheduler-policy", options->device_policy, state);
    return 0;
}

void options_parse(int argc, char **argv, struct options *ret_options)
{
    struct argp_option list[ARRAY_SIZE(rows) + 2] = {0};
    struct argp argp = {
        .options = list,
        .parser = parse_option,
        .doc = "Chooses nodes and devices for pods: kube-scheduler's extender, and the webhook "
               "that makes pods ready for it.",
    };
    struct options options = {
        .http_bind = "127.0.0.1:8080",
        .metrics_bind = ":9395",
        .scheduler_name = "",
        .node_policy = "binpack",
        .device_policy = "spread",
        .overwrite_default_scheduler = true,
        .bind_timeout_ms = 3000,
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        bool optional = rows[i].kind == KIND_BOOL || rows[i].kind == KIND_WITHOUT;

        list[i] = (struct argp_option){
            .name = rows[i].name,
            .key = KEY_FIRST + (int)i,
            .arg = rows[i].argument,
            .flags = optional ? OPTION_ARG_OPTIONAL : 0,
            .doc = rows[i].help,
        };
    }
    list[ARRAY_SIZE(rows)] = (struct argp_option){.name = "verbosity",
                                                  .key = 'v',
                                                  .arg = "N",
                                                  .doc = "from 5 on decisions are told in detail"};
    argp_program_version = "hami-scheduler " HAMI_VERSION;
    (void)argp_parse(&argp, argc, argv, 0, NULL, &options);
    *ret_options = options;
}
