/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/compare.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/util.h"
#include "ctl/table.h"

enum {
    CLASSES_MAX = 16,
    TEXT_MAX = 1 << 20,
    STEPS = 1000,
};

/* Sums over all orders, and then their means. */
struct result {
    const char *policy;
    double placed, refused;
    double allocated, unallocatable; /* parts of all devices */
    size_t class_count;
    struct class_result {
        struct cluster_class class;
        double fillable;
    } classes[CLASSES_MAX];
};

/* Nodes that have processors and memory left for the pod. */
static size_t list_candidates(const struct objects *objects, const struct pod *pod,
                              const char **ret_names)
{
    size_t count = 0;

    for (size_t i = 0; i < objects->node_count; i++) {
        if (cluster_has_amounts(objects->cluster, objects->nodes[i], &pod->amounts))
            ret_names[count++] = objects->nodes[i];
    }
    return count;
}

/* 1: placed; 0: refused. */
static int place(struct objects *objects, const struct pod *pod, struct error *err)
{
    struct cluster_bind bind = {pod->namespace, pod->name, pod->uid, NULL};
    const char **names = ARENA_ARRAY(objects->arena, const char *, objects->node_count + 1);
    struct cluster_answer answer;
    struct text_pairs annotations;
    size_t count;
    int r;

    if (!names)
        return error_set(err, -ENOMEM, "out of memory");
    count = list_candidates(objects, pod, names);
    r = cluster_filter(objects->cluster, pod, names, count, 0, objects->arena, &answer, err);
    if (r < 0)
        return r;
    if (r == CLUSTER_REFUSED)
        return 0;
    bind.node = answer.node;
    r = cluster_bind(objects->cluster, &bind, 0, NS_PER_S, objects->arena, &annotations, err);
    if (r < 0)
        return r;
    cluster_bound(objects->cluster, pod->uid, CLUSTER_BOUND, 0);
    return 1;
}

static int place_all(struct objects *objects, struct result *result, struct error *err)
{
    for (size_t i = 0; i < objects->waiting_count; i++) {
        const struct waiting_pod *waiting = &objects->waiting[i];
        struct pod pod;
        int r = objects_admit(objects, waiting, &pod, err);

        if (r == 0)
            continue;
        if (r > 0)
            r = place(objects, &pod, err);
        if (r < 0 && r != -EPERM)
            return error_wrap(err, r, "pod %s/%s", waiting->namespace, waiting->name);
        result->placed += r > 0;
        result->refused += r <= 0;
        while (cluster_work(objects->cluster, STEPS))
            ;
    }
    return 0;
}

static struct class_result *find_class(struct result *result, const char *text)
{
    for (size_t i = 0; i < result->class_count; i++) {
        if (strcmp(result->classes[i].class.text, text) == 0)
            return &result->classes[i];
    }
    return NULL;
}

static void add_classes(const struct objects *objects, struct result *result)
{
    struct cluster_class classes[CLASSES_MAX];
    size_t count = cluster_classes(objects->cluster, classes, CLASSES_MAX);

    for (size_t i = 0; i < count; i++) {
        struct class_result *found = find_class(result, classes[i].text);

        if (!found && result->class_count < CLASSES_MAX) {
            found = &result->classes[result->class_count++];
            found->class = classes[i];
        }
        if (found)
            found->fillable += (double)classes[i].fillable;
    }
}

static void add_up(const struct objects *objects, struct result *result)
{
    double left = 0;
    size_t devices = 0;

    for (size_t i = 0; i < objects->node_count; i++) {
        const struct place_node *node = cluster_find_node(objects->cluster, objects->nodes[i]);

        for (uint32_t k = 0; node && k < node->device_count; k++) {
            left += node->devices[k].healthy ? scarcity_left(&node->devices[k]) : 0;
            devices += node->devices[k].healthy;
        }
    }
    result->allocated += devices ? 1 - left / SCARCITY_WHOLE / (double)devices : 0;
    cluster_renew_prices(objects->cluster);
    add_classes(objects, result);
    result->unallocatable += MAX(cluster_unallocatable(objects->cluster), 0.0);
}

/* order 0: the files'. */
static int run_order(const struct objects_options *options, unsigned order, struct result *result,
                     struct error *err)
{
    struct objects_options with = *options;
    struct objects objects = {.cluster = NULL};
    int r;

    with.node_policy = result->policy;
    with.learns = true;
    with.warned_before = options->warned_before || order > 1;
    r = objects_load(&with, &objects, err);
    if (r == 0 && order)
        objects_shuffle(&objects, order);
    if (r == 0)
        r = place_all(&objects, result, err);
    if (r == 0)
        add_up(&objects, result);
    objects_free(&objects);
    return r;
}

static int run_policy(const struct objects_options *options, unsigned orders, struct result *result,
                      struct error *err)
{
    const double runs = MAX(orders, 1u);
    int r = 0;

    for (unsigned i = 0; i < MAX(orders, 1u) && r == 0; i++)
        r = run_order(options, orders ? i + 1 : 0, result, err);
    result->placed /= runs;
    result->refused /= runs;
    result->allocated /= runs;
    result->unallocatable /= runs;
    for (size_t i = 0; i < result->class_count; i++)
        result->classes[i].fillable /= runs;
    return r;
}

static void print_policies(const struct result *results, size_t count, struct strbuf *text)
{
    static const struct table_column columns[] = {
        {"POLICY", false, false},
        {"PLACED", true, false},
        {"REFUSED", true, false},
        {"ALLOCATED", true, false},
        {"FREE BUT OF NO USE", true, false},
    };
    struct table shown;

    table_init(&shown, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < count; i++) {
        table_add_row(&shown);
        table_add_cell(&shown, "%s", results[i].policy);
        table_add_cell(&shown, "%.5g", results[i].placed);
        table_add_cell(&shown, "%.5g", results[i].refused);
        table_add_cell(&shown, "%.1f%%", 100 * results[i].allocated);
        table_add_cell(&shown, "%.1f%%", 100 * results[i].unallocatable);
    }
    table_finish(&shown, text);
}

static void print_classes(struct result *results, size_t count, struct strbuf *text)
{
    struct table_column columns[COMPARISON_MAX + 1] = {
        {"MORE OF THIS CLASS WOULD FIT", false, false}};
    struct table shown;

    for (size_t i = 0; i < count; i++)
        columns[i + 1] = (struct table_column){results[i].policy, true, false};
    table_init(&shown, columns, count + 1);
    for (size_t i = 0; i < results[0].class_count; i++) {
        const char *class = results[0].classes[i].class.text;

        table_add_row(&shown);
        table_add_cell(&shown, "%s", class);
        for (size_t k = 0; k < count; k++) {
            const struct class_result *found = find_class(&results[k], class);

            if (found)
                table_add_cell(&shown, "%.5g", found->fillable);
            else
                table_add_cell(&shown, "-");
        }
    }
    table_finish(&shown, text);
}

static void print_json(const struct result *results, size_t count, struct strbuf *text)
{
    strbuf_add(text, "[");
    for (size_t i = 0; i < count; i++) {
        const struct result *result = &results[i];

        strbuf_addf(text,
                    "%s\n{\"policy\":\"%s\",\"placed\":%.6g,\"refused\":%.6g,\"allocated\":%.6f,"
                    "\"unallocatable\":%.6f,\"fillable\":{",
                    i ? "," : "", result->policy, result->placed, result->refused,
                    result->allocated, result->unallocatable);
        for (size_t k = 0; k < result->class_count; k++) {
            strbuf_add(text, k ? "," : "");
            strbuf_add_json(text, result->classes[k].class.text);
            strbuf_addf(text, ":%.6g", result->classes[k].fillable);
        }
        strbuf_add(text, "}}");
    }
    strbuf_add(text, "\n]\n");
}

int comparison_read_policies(char *text, void *member, struct error *err)
{
    struct comparison *comparison = member;
    char *rest = text, *word;
    enum place_order unread;

    comparison->policy_count = 0;
    while ((word = strsep(&rest, ","))) {
        if (!place_node_order_read(word, &unread))
            return error_set(err, -EINVAL, "\"%s\" is none of " PLACE_NODE_ORDERS, word);
        if (comparison->policy_count == COMPARISON_MAX)
            return error_set(err, -EINVAL, "more than %d policies", COMPARISON_MAX);
        comparison->policies[comparison->policy_count++] = word;
    }
    return 0;
}

/* Standard input is read several times: out of memory. */
static int keep_input(struct objects_options *options, char path[static 32], struct error *err)
{
    char piece[65536];
    size_t len;
    int fd = -1;

    for (size_t i = 0; i < options->file_count; i++) {
        if (strcmp(options->files[i], "-") != 0)
            continue;
        if (fd < 0)
            fd = memfd_create("input", MFD_CLOEXEC);
        while (fd >= 0 && (len = fread(piece, 1, sizeof(piece), stdin)) > 0) {
            if (write(fd, piece, len) != (ssize_t)len)
                return error_set(err, -ENOMEM, "standard input: out of memory");
        }
        if (fd < 0)
            return error_set(err, -errno, "standard input: %s", strerror(errno));
        (void)snprintf(path, 32, "/proc/self/fd/%d", fd);
        options->files[i] = path;
    }
    return 0;
}

int compare_policies(const struct objects_options *options, const struct comparison *comparison,
                     struct error *err)
{
    struct objects_options with = *options;
    struct result *results = calloc(COMPARISON_MAX, sizeof(*results));
    struct strbuf text = STRBUF_INIT(TEXT_MAX);
    const size_t count = comparison->policy_count;
    char path[32];
    int r = results ? keep_input(&with, path, err) : error_set(err, -ENOMEM, "out of memory");

    for (size_t i = 0; i < count && r == 0; i++) {
        results[i].policy = comparison->policies[i];
        with.warned_before = i > 0;
        r = run_policy(&with, comparison->orders, &results[i], err);
    }
    if (r == 0 && comparison->json) {
        print_json(results, count, &text);
    } else if (r == 0) {
        print_policies(results, count, &text);
        strbuf_add(&text, "\n");
        print_classes(results, count, &text);
    }
    if (r == 0)
        (void)fputs(strbuf_text(&text), stdout);
    strbuf_deinit(&text);
    free(results);
    return r;
}
