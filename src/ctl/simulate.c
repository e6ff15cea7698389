/* SPDX-License-Identifier: Apache-2.0 */

/* hamictl simulate: what the scheduler would do with pods, by its own code. */

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "base/util.h"
#include "ctl/compare.h"
#include "ctl/ctl.h"
#include "ctl/objects.h"
#include "ctl/table.h"
#include "model/keys.h"

enum {
    TEXT_MAX = 256 << 20,
    WORK_STEPS = 1000,
    ORDERS = 5, /* of pods, whose means a comparison shows */
};

/* Kubernetes' bounds on what a namespace, name or message may be keep these short. */
struct outcome {
    const char *namespace, *name;
    char *node;    /* "": nowhere */
    char *devices; /* as the annotations say, vendor by vendor; or why it has none */
};

struct simulate {
    struct objects_options objects;
    struct comparison comparison; /* without policies: one run, pod by pod */
    bool in_order;
    char **words; /* files that are named without an option */
    size_t word_count;
};

static void take_words(void *options, char **words, size_t count)
{
    struct simulate *simulate = options;

    simulate->words = words;
    simulate->word_count = count;
}

static int check_files(void *options, struct error *err)
{
    struct simulate *simulate = options;
    int r = 0;

    for (size_t i = 0; i < simulate->word_count && r == 0; i++)
        r = objects_read_file(simulate->words[i], &simulate->objects, err);
    if (r == 0 && !simulate->objects.file_count)
        r = error_set(err, -EINVAL, "no FILE given");
    if (r == 0 && simulate->in_order && !simulate->comparison.policy_count)
        r = error_set(err, -EINVAL,
                      "--in-order goes with --policy; without it the order is the files' anyway");
    return r;
}

#define AT(member) offsetof(struct simulate, member)

static const struct option_row rows[] = {
    {"filename", 'f', 0, "FILE", objects_read_file, AT(objects),
     "Nodes, pods, quotas: YAML or JSON; - is standard input"},
    {"device-config", 'c', 0, "FILE", option_text, AT(objects.config_path),
     "device-config.yaml (NVIDIA's resources)"},
    {"node-scheduler-policy", 'n', 0, "POLICY", objects_read_node_policy, AT(objects.node_policy),
     "As the scheduler's (binpack)"},
    {"gpu-scheduler-policy", 'g', 0, "POLICY", objects_read_device_policy,
     AT(objects.device_policy), "As the scheduler's (spread)"},
    {"scheduler-name", 0, 0, "NAME", option_text, AT(objects.scheduler_name),
     "As the scheduler's: whose pods are placed (hami-scheduler)"},
    {"policy", 'p', 0, "POLICIES", comparison_read_policies, AT(comparison),
     "Compare node policies: binpack,spread,scarcity, or some of them; the means of five random "
     "orders of the pods"},
    {"in-order", 'i', 0, NULL, option_bool, AT(in_order),
     "With --policy: place the pods once, in the order of the files"},
    {"json", 'j', 0, NULL, option_bool, AT(comparison.json), "Print JSON"},
};

static const struct option_table table = {
    .rows = rows,
    .count = ARRAY_SIZE(rows),
    .arguments_doc = "FILE...",
    .doc = "Say where pods that wait would be placed, and what they would be given, in the order "
           "of the files. Of a live cluster: kubectl get nodes,pods,resourcequotas -A -o json | "
           "hamictl simulate - pods.yaml",
    .take_arguments = take_words,
    .check = check_files,
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
    while (cluster_work(objects->cluster, WORK_STEPS))
        ;
    return 0;
}

/* NULL: out of memory. */
static char *say(const char *what, const char *why)
{
    char *text;

    return asprintf(&text, "%s: %s", what, why) < 0 ? NULL : text;
}

/* 1: there is an outcome; 0: the pod asks for no device, and does not seem to be meant to. */
static int simulate_pod(struct objects *objects, const struct waiting_pod *waiting,
                        struct outcome *outcome, struct error *err)
{
    struct pod pod;
    int r = objects_admit(objects, waiting, &pod, err);

    *outcome = (struct outcome){.namespace = waiting->namespace, .name = waiting->name};
    if (r == 0 && !objects->advice)
        return 0;
    if (r == 0) {
        outcome->node = strdup("");
        outcome->devices = say("no device as it is", objects->advice);
    } else if (r == -EPERM) {
        outcome->node = strdup("");
        outcome->devices = say("denied", err->text);
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
    struct table shown;

    table_init(&shown, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < count; i++) {
        table_add_row(&shown);
        table_add_cell(&shown, "%s", outcomes[i].namespace);
        table_add_cell(&shown, "%s", outcomes[i].name);
        table_add_cell(&shown, "%s", *outcomes[i].node ? outcomes[i].node : "-");
        table_add_cell(&shown, "%s", outcomes[i].devices);
    }
    table_finish(&shown, text);
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
    if (r >= 0 && simulate->comparison.json)
        print_json(outcomes, count, &text);
    else if (r >= 0)
        print_table(outcomes, count, &text);
    if (r >= 0 && text.failed)
        r = error_set(err, -ENOMEM, "out of memory");
    if (r >= 0 && (count || simulate->comparison.json))
        (void)fputs(strbuf_text(&text), stdout);
    if (r >= 0 && !simulate->comparison.json)
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
    struct simulate simulate = {.comparison.orders = ORDERS};
    struct objects objects = {.cluster = NULL};
    struct error err = ERROR_INIT;
    int r;

    options_read(&table, argc, argv, &simulate);
    simulate.objects.program = argv[0];
    if (simulate.in_order)
        simulate.comparison.orders = 0;
    if (simulate.comparison.policy_count)
        r = compare_policies(&simulate.objects, &simulate.comparison, &err);
    else
        r = objects_load(&simulate.objects, &objects, &err);
    if (r == 0 && !simulate.comparison.policy_count)
        r = simulate_all(&simulate, &objects, &err);
    objects_free(&objects);
    if (r == 0)
        return 0;
    (void)fprintf(stderr, "%s: %s\n", argv[0], err.text[0] ? err.text : strerror(-r));
    return CTL_EXIT_FAILURE;
}
