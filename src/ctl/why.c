/* SPDX-License-Identifier: Apache-2.0 */

/* hamictl why: why a pod has no node, node by node and device by device, by the scheduler's code.
 */

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include "base/util.h"
#include "ctl/ctl.h"
#include "ctl/objects.h"
#include "ctl/table.h"
#include "model/json.h"

enum {
    TEXT_MAX = 512 << 20,
    NODES_SHOWN = 10,
};

struct why {
    struct objects_options objects;
    const char *pod; /* "NAMESPACE/NAME" or "NAME" */
    bool json, all;
};

static error_t why_parse_option(int key, char *arg, struct argp_state *state)
{
    struct why *why = state->input;

    switch (key) {
    case 'f':
        if (why->objects.file_count == OBJECTS_MAX_FILES)
            argp_error(state, "more than %d files", OBJECTS_MAX_FILES);
        why->objects.files[why->objects.file_count++] = arg;
        return 0;
    case 'c':
        why->objects.config_path = arg;
        return 0;
    case 'g':
        why->objects.device_policy = arg;
        return 0;
    case 'a':
        why->all = true;
        return 0;
    case 'j':
        why->json = true;
        return 0;
    case ARGP_KEY_ARG:
        if (why->pod)
            argp_error(state, "\"%s\" is too much; one POD is enough", arg);
        why->pod = arg;
        return 0;
    case ARGP_KEY_END:
        if (!why->pod)
            argp_error(state, "no POD given");
        if (!why->objects.file_count)
            why->objects.files[why->objects.file_count++] = "-";
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option argp_options[] = {
    {"filename", 'f', "FILE", 0, "Nodes, pods, quotas: YAML or JSON (standard input)", 0},
    {"device-config", 'c', "FILE", 0, "device-config.yaml (NVIDIA's resources)", 0},
    {"gpu-scheduler-policy", 'g', "POLICY", 0, "as the scheduler's (spread)", 0},
    {"all", 'a', NULL, 0, "show every node, not the nearest alone", 0},
    {"json", 'j', NULL, 0, "print JSON", 0},
    {0},
};

static const struct argp argp = {
    .options = argp_options,
    .parser = why_parse_option,
    .args_doc = "[NAMESPACE/]POD",
    .doc = "Say why a pod waits: of each node the first rule that failed, device by device, with "
           "what there is and what it would take; the nearest first. Of a live cluster: kubectl "
           "get nodes,pods,resourcequotas -A -o json | hamictl why team/train-0",
};

/* A node's entry, with how near it is to taking the pod. */
struct entry {
    yyjson_val *node;
    int64_t missing;   /* devices that would have to come free, of those asked for */
    uint64_t lack_mib; /* of memory, on the device that lacks least */
};

static uint64_t number_of(yyjson_val *object, const char *in, const char *key)
{
    return yyjson_get_uint(yyjson_obj_get(yyjson_obj_get(object, in), key));
}

static const char *text_of(yyjson_val *object, const char *key)
{
    const char *text = yyjson_get_str(yyjson_obj_get(object, key));

    return text ? text : "";
}

static struct entry measure(yyjson_val *node)
{
    yyjson_val *devices = yyjson_obj_get(node, "devices"), *device;
    struct entry entry = {node, (int64_t)yyjson_get_uint(yyjson_obj_get(node, "count")),
                          UINT64_MAX};
    size_t at, max;

    if (yyjson_get_bool(yyjson_obj_get(node, "fits")))
        return (struct entry){node, INT64_MIN, 0};
    if (!yyjson_arr_size(devices))
        return (struct entry){node, INT64_MAX, UINT64_MAX};
    yyjson_arr_foreach(devices, at, max, device)
    {
        const uint64_t has = number_of(device, "has", "memory_mib");
        const uint64_t asked = number_of(device, "asked", "memory_mib");

        if (!*text_of(device, "reason"))
            entry.missing--;
        else
            entry.lack_mib = MIN(entry.lack_mib, asked > has ? asked - has : 0);
    }
    return entry;
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;

    if (left->missing != right->missing)
        return left->missing < right->missing ? -1 : 1;
    if (left->lack_mib != right->lack_mib)
        return left->lack_mib < right->lack_mib ? -1 : 1;
    return strcmp(text_of(left->node, "name"), text_of(right->node, "name"));
}

static void add_amount(struct table *table, yyjson_val *device, const char *key)
{
    table_add_cell(table, "%" PRIu64 "/%" PRIu64, number_of(device, "asked", key),
                   number_of(device, "has", key));
}

static void add_node(struct table *table, yyjson_val *node)
{
    yyjson_val *devices = yyjson_obj_get(node, "devices"), *device;
    const bool fits = yyjson_get_bool(yyjson_obj_get(node, "fits"));
    const char *of_node = text_of(node, "reason");
    const bool has_too_few = strcmp(of_node, "NodeInsufficientDevice") == 0;
    size_t at, max;

    if (!yyjson_arr_size(devices)) {
        table_add_row(table);
        table_add_cell(table, "%s", text_of(node, "name"));
        table_add_cell(table, "-");
        table_add_cell(table, "-");
        table_add_cell(table, "-");
        table_add_cell(table, "-");
        table_add_cell(table, "%s", fits ? "fits" : of_node);
        return;
    }
    yyjson_arr_foreach(devices, at, max, device)
    {
        const char *reason = text_of(device, "reason");

        table_add_row(table);
        table_add_cell(table, "%s", at ? "" : text_of(node, "name"));
        table_add_cell(table, "%s", text_of(device, "uuid"));
        add_amount(table, device, "memory_mib");
        add_amount(table, device, "cores");
        add_amount(table, device, "slots");
        table_add_cell(table, "%s", *reason ? reason : has_too_few ? of_node : "would do");
    }
}

static void print_entries(const struct entry *entries, size_t count, size_t shown,
                          struct strbuf *text)
{
    static const struct table_column columns[] = {
        {"NODE", false, false},
        {"DEVICE", false, false},
        {"MIB ASKED/FREE", true, false},
        {"CORES ASKED/FREE", true, false},
        {"TASKS ASKED/FREE", true, false},
        {"WHY", false, false},
    };
    struct table table;

    table_init(&table, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < shown; i++)
        add_node(&table, entries[i].node);
    table_finish(&table, text);
    if (shown < count)
        strbuf_addf(text, "%zu more nodes: --all shows them.\n", count - shown);
}

static void print_table(const struct why *why, yyjson_val *root, struct arena *arena,
                        struct strbuf *text)
{
    yyjson_val *nodes = yyjson_obj_get(root, "nodes"), *node;
    struct entry *entries = ARENA_ARRAY(arena, struct entry, yyjson_arr_size(nodes) + 1);
    const char *quota = text_of(root, "quota");
    size_t at, max, count = 0, fitting = 0;

    if (!entries) {
        text->failed = true;
        return;
    }
    yyjson_arr_foreach(nodes, at, max, node)
    {
        entries[count] = measure(node);
        fitting += entries[count++].missing == INT64_MIN;
    }
    qsort(entries, count, sizeof(*entries), compare_entries);
    if (*quota)
        strbuf_addf(text, "The namespace's quota leaves no room: %s\n", quota);
    if (fitting)
        strbuf_addf(text, "It fits on %zu of %zu nodes%s.\n", fitting, count,
                    *quota ? " but for the quota" : "");
    else
        strbuf_addf(text, "It fits on none of %zu nodes.\n", count);
    print_entries(entries, count, why->all ? count : MIN(count, (size_t)NODES_SHOWN), text);
}

static const struct waiting_pod *find_pod(const struct objects *objects, const char *wanted)
{
    const char *slash = strchr(wanted, '/');
    const char *name = slash ? slash + 1 : wanted;
    const size_t len = slash ? (size_t)(slash - wanted) : strlen("default");
    const char *namespace = slash ? wanted : "default";

    for (size_t i = 0; i < objects->waiting_count; i++) {
        const struct waiting_pod *pod = &objects->waiting[i];

        if (strcmp(pod->name, name) == 0 && strlen(pod->namespace) == len &&
            strncmp(pod->namespace, namespace, len) == 0)
            return pod;
    }
    return NULL;
}

static int explain(const struct why *why, struct objects *objects, struct error *err)
{
    const struct waiting_pod *waiting = find_pod(objects, why->pod);
    struct strbuf answer = STRBUF_INIT(TEXT_MAX), text = STRBUF_INIT(TEXT_MAX);
    yyjson_val *root;
    struct pod pod;
    int r;

    if (!waiting)
        return error_set(err, -ENOENT,
                         "pod %s is not among %zu pods that have no node; it may be placed already",
                         why->pod, objects->waiting_count);
    r = objects_admit(objects, waiting, &pod, err);
    if (r == -EPERM)
        return error_wrap(err, r, "the webhook denies it");
    if (r == 0)
        return error_set(err, -EINVAL, "pod %s asks for no device", why->pod);
    if (r > 0)
        r = cluster_why(objects->cluster, &pod, objects->arena, &answer, err);
    if (r == 0 && !why->json)
        r = json_parse(strbuf_text(&answer), answer.len, objects->arena, &root, err);
    if (r == 0 && !why->json) {
        print_table(why, root, objects->arena, &text);
        r = text.failed ? error_set(err, -ENOMEM, "out of memory") : 0;
    }
    if (r == 0)
        (void)fputs(strbuf_text(why->json ? &answer : &text), stdout);
    strbuf_deinit(&answer);
    strbuf_deinit(&text);
    return r;
}

int why_main(int argc, char **argv)
{
    struct why why = {.json = false};
    struct objects objects = {.cluster = NULL};
    struct error err = ERROR_INIT;
    int r;

    if (argp_parse(&argp, argc, argv, 0, NULL, &why) != 0)
        return CTL_EXIT_USAGE;
    r = objects_load(&why.objects, &objects, &err);
    if (r == 0)
        r = explain(&why, &objects, &err);
    objects_free(&objects);
    if (r == 0)
        return 0;
    (void)fprintf(stderr, "%s: %s\n", argv[0], err.text[0] ? err.text : strerror(-r));
    return CTL_EXIT_FAILURE;
}
