/* SPDX-License-Identifier: Apache-2.0 */

/* hamictl why: why a pod has no node, node by node and device by device, by the scheduler's code.
 */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include "base/options.h"
#include "base/spelling.h"
#include "base/util.h"
#include "ctl/ctl.h"
#include "ctl/objects.h"
#include "ctl/table.h"
#include "model/json.h"

enum {
    TEXT_MAX = 512 << 20,
    NODES_SHOWN = 10,
    UNLIKELY_MIB = 1 << 20, /* of one device */
};

struct why {
    struct objects_options objects;
    const char *pod;  /* "NAMESPACE/NAME" or "NAME" */
    const char *more; /* a second one, which is refused */
    bool json, all;
};

static void take_pod(void *options, char **words, size_t count)
{
    struct why *why = options;

    why->pod = count ? words[0] : NULL;
    why->more = count > 1 ? words[1] : NULL;
}

static int check_together(void *options, struct error *err)
{
    struct why *why = options;

    if (!why->pod || !*why->pod)
        return error_set(err, -EINVAL, "no POD given");
    if (why->pod[strlen(why->pod) - 1] == '/')
        return error_set(err, -EINVAL, "\"%s\" names no POD", why->pod);
    if (why->more)
        return error_set(err, -EINVAL, "\"%s\" is too much; one POD is enough", why->more);
    if (!why->objects.file_count)
        why->objects.files[why->objects.file_count++] = "-";
    return 0;
}

#define AT(member) offsetof(struct why, member)

static const struct option_row rows[] = {
    {"filename", 'f', 0, "FILE", objects_read_file, AT(objects),
     "Nodes, pods, quotas: YAML or JSON (standard input)"},
    {"device-config", 'c', 0, "FILE", option_text, AT(objects.config_path),
     "device-config.yaml (NVIDIA's resources)"},
    {"node-scheduler-policy", 'n', 0, "POLICY", objects_read_node_policy, AT(objects.node_policy),
     "As the scheduler's (binpack); of scarcity the price and the costs are shown"},
    {"gpu-scheduler-policy", 'g', 0, "POLICY", objects_read_device_policy,
     AT(objects.device_policy), "As the scheduler's (spread)"},
    {"scheduler-name", 0, 0, "NAME", option_text, AT(objects.scheduler_name),
     "As the scheduler's: whose pods are placed (hami-scheduler)"},
    {"all", 'a', 0, NULL, option_bool, AT(all), "Show every node, not the ten nearest alone"},
    {"json", 'j', 0, NULL, option_bool, AT(json), "Print JSON"},
};

static const struct option_table table = {
    .rows = rows,
    .count = ARRAY_SIZE(rows),
    .arguments_doc = "[NAMESPACE/]POD",
    .doc = "Say why a pod waits: of each node the first rule that failed, device by device, with "
           "what there is and what it would take; the nearest first. Of a live cluster: kubectl "
           "get nodes,pods,resourcequotas -A -o json | hamictl why team/train-0",
    .take_arguments = take_pod,
    .check = check_together,
};

/* A node's entry, with how near it is to taking the pod. */
struct entry {
    yyjson_val *node;
    int64_t missing;   /* devices that would have to come free, of those asked for */
    uint64_t lack_mib; /* of memory, on the device that lacks least */
    double cost;       /* of a node where it fits, by the policy scarcity; else INFINITY */
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
    struct entry entry = {node, (int64_t)yyjson_get_uint(yyjson_obj_get(node, "count")), UINT64_MAX,
                          INFINITY};
    yyjson_val *cost = yyjson_obj_get(node, "cost");
    size_t at, max;

    if (yyjson_get_bool(yyjson_obj_get(node, "fits")))
        return (struct entry){node, INT64_MIN, 0, cost ? yyjson_get_num(cost) : INFINITY};
    if (!yyjson_arr_size(devices))
        return (struct entry){node, INT64_MAX, UINT64_MAX, INFINITY};
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
    if (left->cost < right->cost || right->cost < left->cost)
        return left->cost < right->cost ? -1 : 1;
    return strcmp(text_of(left->node, "name"), text_of(right->node, "name"));
}

static void add_amount(struct table *shown, yyjson_val *device, const char *key)
{
    table_add_cell(shown, "%" PRIu64 "/%" PRIu64, number_of(device, "asked", key),
                   number_of(device, "has", key));
}

static void add_node(struct table *shown, yyjson_val *node)
{
    yyjson_val *devices = yyjson_obj_get(node, "devices"), *device;
    const bool fits = yyjson_get_bool(yyjson_obj_get(node, "fits"));
    const char *of_node = text_of(node, "reason");
    yyjson_val *cost = yyjson_obj_get(node, "cost");
    const bool has_too_few = strcmp(of_node, "NodeInsufficientDevice") == 0;
    size_t at, max;

    if (!yyjson_arr_size(devices)) {
        table_add_row(shown);
        table_add_cell(shown, "%s", text_of(node, "name"));
        table_add_cell(shown, "-");
        table_add_cell(shown, "-");
        table_add_cell(shown, "-");
        table_add_cell(shown, "-");
        if (fits && cost)
            table_add_cell(shown, "fits, costs %.4g", yyjson_get_num(cost));
        else
            table_add_cell(shown, "%s", fits ? "fits" : of_node);
        return;
    }
    yyjson_arr_foreach(devices, at, max, device)
    {
        const char *reason = text_of(device, "reason");

        table_add_row(shown);
        table_add_cell(shown, "%s", at ? "" : text_of(node, "name"));
        table_add_cell(shown, "%s", text_of(device, "uuid"));
        add_amount(shown, device, "memory_mib");
        add_amount(shown, device, "cores");
        add_amount(shown, device, "slots");
        if (has_too_few && !*reason)
            table_add_cell(shown, "%s: %" PRIu64 " asked, %zu here", of_node,
                           yyjson_get_uint(yyjson_obj_get(node, "count")), max);
        else
            table_add_cell(shown, "%s", *reason ? reason : "would do");
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
    struct table drawn;

    table_init(&drawn, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < shown; i++)
        add_node(&drawn, entries[i].node);
    table_finish(&drawn, text);
    if (shown < count)
        strbuf_addf(text, "%zu more nodes: --all shows them.\n", count - shown);
}

/* Whether a node's devices lack an amount that nobody means: with the wrong unit, mostly. */
static bool is_unlikely(const struct entry *entry)
{
    yyjson_val *device = yyjson_arr_get_first(yyjson_obj_get(entry->node, "devices"));
    const uint64_t asked = number_of(device, "asked", "memory_mib");

    return asked >= UNLIKELY_MIB && asked > number_of(device, "has", "memory_mib");
}

static void print_table(const struct why *why, yyjson_val *root, struct arena *arena,
                        struct strbuf *text)
{
    yyjson_val *nodes = yyjson_obj_get(root, "nodes"), *node;
    struct entry *entries = ARENA_ARRAY(arena, struct entry, yyjson_arr_size(nodes) + 1);
    yyjson_val *class = yyjson_obj_get(root, "class");
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
    if (class && !yyjson_get_bool(yyjson_obj_get(class, "known")))
        strbuf_addf(text,
                    "Its class is %s, which is new: no such pod is among those that run, so it has "
                    "no price yet.\n",
                    text_of(class, "name"));
    else if (class)
        strbuf_addf(text,
                    "Its class is %s: price %.4g, %.1f %% of what arrives, %llu more would fit.\n",
                    text_of(class, "name"), yyjson_get_num(yyjson_obj_get(class, "price")),
                    100 * yyjson_get_num(yyjson_obj_get(class, "share")),
                    (unsigned long long)yyjson_get_uint(yyjson_obj_get(class, "fillable")));
    if (count && is_unlikely(&entries[0]))
        strbuf_add(
            text,
            "No device has so much memory. It is counted in MiB: in nvidia.com/gpumem, 3Gi is "
            "3 Gi of MiB, and 3 GiB are 3072.\n");
    print_entries(entries, count, why->all ? count : MIN(count, (size_t)NODES_SHOWN), text);
    if (fitting)
        strbuf_add(text, "Processors, memory, taints, selectors and affinity are not looked at: "
                         "kube-scheduler's event FailedScheduling names those.\n");
}

static const struct waiting_pod *find_pod(const struct objects *objects, const char *wanted)
{
    for (size_t i = 0; i < objects->waiting_count; i++) {
        if (objects_is_named(wanted, objects->waiting[i].namespace, objects->waiting[i].name))
            return &objects->waiting[i];
    }
    return NULL;
}

enum resemblance {
    UNLIKE,
    MISSPELT,
    ELSEWHERE,    /* of the same name, in another namespace */
    OF_ITS_OWNER, /* "web-1" of the Deployment web */
};

static enum resemblance compare_pod(const char *wanted, const struct waiting_pod *waiting)
{
    const char *slash = strchr(wanted, '/'), *name = slash ? slash + 1 : wanted;
    const size_t len = strlen(name);
    const bool is_there =
        slash ? strncmp(wanted, waiting->namespace, (size_t)(slash - wanted)) == 0 &&
                    !waiting->namespace[slash - wanted]
              : strcmp(waiting->namespace, "default") == 0;

    if (!is_there)
        return strcmp(name, waiting->name) == 0 ? ELSEWHERE : UNLIKE;
    if (strncmp(name, waiting->name, len) == 0 && waiting->name[len] == '-')
        return OF_ITS_OWNER;
    return spelling_is_near(name, waiting->name) ? MISSPELT : UNLIKE;
}

/* The waiting pod that may have been meant, or NULL. */
static const struct waiting_pod *find_alike(const struct objects *objects, const char *wanted)
{
    const struct waiting_pod *alike = NULL;
    enum resemblance most = UNLIKE;

    for (size_t i = 0; i < objects->waiting_count; i++) {
        const enum resemblance resemblance = compare_pod(wanted, &objects->waiting[i]);

        if (resemblance <= most)
            continue;
        most = resemblance;
        alike = &objects->waiting[i];
    }
    return alike;
}

static int refuse_unread(const struct why *why, const struct objects *objects, struct error *err)
{
    const struct waiting_pod *alike = find_alike(objects, why->pod);

    if (objects->sought_is)
        return error_set(err, -EEXIST, "pod %s %s", why->pod, objects->sought_is);
    if (!alike)
        return error_set(err, -ENOENT, "pod %s is not among the pods that were read (%zu)",
                         why->pod, objects->pod_count);
    return error_set(err, -ENOENT,
                     "pod %s is not among the pods that were read (%zu); is %s/%s meant?", why->pod,
                     objects->pod_count, alike->namespace, alike->name);
}

static int explain(const struct why *why, struct objects *objects, struct error *err)
{
    const struct waiting_pod *waiting = find_pod(objects, why->pod);
    struct strbuf answer = STRBUF_INIT(TEXT_MAX), text = STRBUF_INIT(TEXT_MAX);
    yyjson_val *root;
    struct pod pod;
    int r;

    if (!waiting)
        return refuse_unread(why, objects, err);
    r = objects_admit(objects, waiting, &pod, err);
    if (r == -EPERM)
        return error_wrap(err, r, "the webhook denies it");
    if (r == 0 && objects->advice)
        return error_set(err, -EINVAL, "pod %s gets no device as it is: see the warning above",
                         why->pod);
    if (r == 0)
        return error_set(err, -EINVAL,
                         "pod %s asks for no device: no container's limits ask for one that is "
                         "served; is a name misspelt, or --device-config missing?",
                         why->pod);
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

    options_read(&table, argc, argv, &why);
    why.objects.program = argv[0];
    why.objects.sought = why.pod;
    r = objects_load(&why.objects, &objects, &err);
    if (r == 0)
        r = explain(&why, &objects, &err);
    objects_free(&objects);
    if (r == 0)
        return 0;
    (void)fprintf(stderr, "%s: %s\n", argv[0], err.text[0] ? err.text : strerror(-r));
    return CTL_EXIT_FAILURE;
}
