/* SPDX-License-Identifier: Apache-2.0 */

/* hamictl simulate: what the scheduler would do with pods, by its own code. */

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "ctl/ctl.h"
#include "ctl/objects.h"
#include "ctl/table.h"
#include "model/keys.h"

enum {
    TEXT_MAX = 256 << 20,
};

/* Kubernetes' bounds on what a namespace, name or message may be keep these short. */
struct outcome {
    const char *namespace, *name;
    char *node;    /* "": nowhere */
    char *devices; /* as the annotations say, vendor by vendor; or why it has none */
};

struct simulate {
    struct objects_options objects;
    bool json;
};

static void add_file(struct argp_state *state, struct objects_options *options, char *path)
{
    if (options->file_count == OBJECTS_MAX_FILES)
        argp_error(state, "more than %d files", OBJECTS_MAX_FILES);
    options->files[options->file_count++] = path;
}

static error_t simulate_parse_option(int key, char *arg, struct argp_state *state)
{
    struct simulate *simulate = state->input;

    switch (key) {
    case 'f':
    case ARGP_KEY_ARG:
        add_file(state, &simulate->objects, arg);
        return 0;
    case 'c':
        simulate->objects.config_path = arg;
        return 0;
    case 'n':
        simulate->objects.node_policy = arg;
        return 0;
    case 'g':
        simulate->objects.device_policy = arg;
        return 0;
    case 'j':
        simulate->json = true;
        return 0;
    case ARGP_KEY_END:
        if (!simulate->objects.file_count)
            argp_error(state, "no FILE given");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option argp_options[] = {
    {"filename", 'f', "FILE", 0, "Nodes, pods, quotas: YAML or JSON; - is standard input", 0},
    {"device-config", 'c', "FILE", 0, "device-config.yaml (NVIDIA's resources)", 0},
    {"node-scheduler-policy", 'n', "POLICY", 0, "as the scheduler's (binpack)", 0},
    {"gpu-scheduler-policy", 'g', "POLICY", 0, "as the scheduler's (spread)", 0},
    {"json", 'j', NULL, 0, "print JSON", 0},
    {0},
};

static const struct argp argp = {
    .options = argp_options,
    .parser = simulate_parse_option,
    .args_doc = "FILE...",
    .doc = "Say where pods that wait would be placed, and what they would be given, in the order "
           "of the files. Of a live cluster: kubectl get nodes,pods,resourcequotas -A -o json | "
           "hamictl simulate - pods.yaml",
};

/* The annotations that record devices, one behind the other. */
static char *devices_of(const struct vendor_set *vendors, const struct text_pairs *annotations)
{
    struct strbuf text = STRBUF_INIT(1 << 20);

    for (size_t i = 0; i < vendors->count; i++) {
        const char *devices = text_pairs_get(annotations, vendors->instances[i].allocated_key);

        if (devices)
            strbuf_addf(&text, "%s%s", text.len ? " " : "", devices);
    }
    return text.text;
}

static int decide(struct objects *objects, const struct pod *pod, struct outcome *outcome,
                  struct error *err)
{
    struct cluster_answer answer;
    struct cluster_bind bind = {pod->namespace, pod->name, pod->uid, NULL};
    struct text_pairs annotations;
    int r = cluster_filter(objects->cluster, pod, objects->nodes, objects->node_count, 0,
                           objects->arena, &answer, err);

    if (r < 0)
        return r;
    if (r == CLUSTER_REFUSED) {
        outcome->node = strdup("");
        outcome->devices = strdup(answer.summary);
        return 0;
    }
    bind.node = answer.node;
    outcome->node = strdup(answer.node);
    r = cluster_bind(objects->cluster, &bind, 0, NS_PER_S, objects->arena, &annotations, err);
    if (r < 0)
        return r;
    cluster_bound(objects->cluster, pod->uid, CLUSTER_BOUND, 0);
    outcome->devices = devices_of(&objects->vendors, &annotations);
    return 0;
}

/* 1: there is an outcome; 0: the pod asks for no device. */
static int simulate_pod(struct objects *objects, const struct waiting_pod *waiting,
                        struct outcome *outcome, struct error *err)
{
    struct pod pod;
    int r = objects_admit(objects, waiting, &pod, err);

    *outcome = (struct outcome){.namespace = waiting->namespace, .name = waiting->name};
    if (r == 0)
        return 0;
    if (r == -EPERM) {
        outcome->node = strdup("");
        if (asprintf(&outcome->devices, "denied: %s", err->text) < 0)
            outcome->devices = NULL;
    } else if (r > 0) {
        r = decide(objects, &pod, outcome, err);
    }
    if (r < 0 && r != -EPERM)
        return error_wrap(err, r, "pod %s/%s", waiting->namespace, waiting->name);
    return outcome->node && outcome->devices ? 1 : error_set(err, -ENOMEM, "out of memory");
}

static void print_table(const struct outcome *outcomes, size_t count, struct strbuf *text)
{
    static const struct table_column columns[] = {
        {"NAMESPACE", false, false},
        {"POD", false, false},
        {"NODE", false, false},
        {"DEVICES", false, false},
    };
    struct table table;

    table_init(&table, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < count; i++) {
        table_add_row(&table);
        table_add_cell(&table, "%s", outcomes[i].namespace);
        table_add_cell(&table, "%s", outcomes[i].name);
        table_add_cell(&table, "%s", *outcomes[i].node ? outcomes[i].node : "-");
        table_add_cell(&table, "%s", outcomes[i].devices);
    }
    table_finish(&table, text);
}

static void print_json(const struct outcome *outcomes, size_t count, struct strbuf *text)
{
    strbuf_add(text, "[");
    for (size_t i = 0; i < count; i++) {
        strbuf_add(text, i ? ",\n{\"namespace\":" : "\n{\"namespace\":");
        strbuf_add_json(text, outcomes[i].namespace);
        strbuf_add(text, ",\"name\":");
        strbuf_add_json(text, outcomes[i].name);
        strbuf_add(text, *outcomes[i].node ? ",\"node\":" : ",\"node\":null,\"reason\":");
        if (*outcomes[i].node) {
            strbuf_add_json(text, outcomes[i].node);
            strbuf_add(text, ",\"devices\":");
        }
        strbuf_add_json(text, outcomes[i].devices);
        strbuf_add(text, "}");
    }
    strbuf_add(text, "\n]\n");
}

static size_t count_placed(const struct outcome *outcomes, size_t count)
{
    size_t placed = 0;

    for (size_t i = 0; i < count; i++)
        placed += *outcomes[i].node != '\0';
    return placed;
}

static int simulate_all(const struct simulate *simulate, struct objects *objects, struct error *err)
{
    AUTOFREE struct outcome *outcomes = calloc(objects->waiting_count + 1, sizeof(struct outcome));
    struct strbuf text = STRBUF_INIT(TEXT_MAX);
    size_t count = 0;
    int r = outcomes ? 0 : error_set(err, -ENOMEM, "out of memory");

    for (size_t i = 0; i < objects->waiting_count && r >= 0; i++) {
        r = simulate_pod(objects, &objects->waiting[i], &outcomes[count], err);
        count += r != 0;
    }
    if (r >= 0 && simulate->json)
        print_json(outcomes, count, &text);
    else if (r >= 0)
        print_table(outcomes, count, &text);
    if (r >= 0 && text.failed)
        r = error_set(err, -ENOMEM, "out of memory");
    if (r >= 0 && (count || simulate->json))
        (void)fputs(strbuf_text(&text), stdout);
    if (r >= 0 && !simulate->json)
        (void)printf("%zu of %zu pods that ask for devices have a node, of %zu nodes. Processors, "
                     "taints and affinity are not looked at.\n",
                     count_placed(outcomes, count), count, objects->node_count);
    for (size_t i = 0; outcomes && i < count; i++) {
        free(outcomes[i].node);
        free(outcomes[i].devices);
    }
    strbuf_deinit(&text);
    return r < 0 ? r : 0;
}

int simulate_main(int argc, char **argv)
{
    struct simulate simulate = {.json = false};
    struct objects objects = {.cluster = NULL};
    struct error err = ERROR_INIT;
    int r;

    if (argp_parse(&argp, argc, argv, 0, NULL, &simulate) != 0)
        return CTL_EXIT_USAGE;
    r = objects_load(&simulate.objects, &objects, &err);
    if (r == 0)
        r = simulate_all(&simulate, &objects, &err);
    objects_free(&objects);
    if (r == 0)
        return 0;
    (void)fprintf(stderr, "%s: %s\n", argv[0], err.text[0] ? err.text : strerror(-r));
    return CTL_EXIT_FAILURE;
}
