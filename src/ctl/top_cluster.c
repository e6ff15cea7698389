/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/top_cluster.h"

#include <errno.h>
#include <inttypes.h>
#include <yyjson.h>

#include "base/util.h"
#include "ctl/table.h"
#include "model/json.h"

enum {
    VIEW_MAX = 512 << 20,
};

static const char *text_of(yyjson_val *object, const char *key)
{
    const char *text = yyjson_get_str(yyjson_obj_get(object, key));

    return text ? text : "";
}

static uint64_t number_of(yyjson_val *object, const char *key)
{
    return yyjson_get_uint(yyjson_obj_get(object, key));
}

static void add_share(struct table *table, yyjson_val *of, yyjson_val *all, const char *key)
{
    table_add_cell(table, "%" PRIu64 "/%" PRIu64, number_of(of, key), number_of(all, key));
}

static const char *state_of(yyjson_val *device)
{
    if (!yyjson_get_bool(yyjson_obj_get(device, "healthy")))
        return "sick";
    return yyjson_get_bool(yyjson_obj_get(device, "cordoned")) ? "cordoned" : "ok";
}

static void add_device(struct table *table, const char *node, yyjson_val *device)
{
    yyjson_val *used = yyjson_obj_get(device, "used");

    table_add_row(table);
    table_add_cell(table, "%s", node);
    table_add_cell(table, "%s", text_of(device, "uuid"));
    table_add_cell(table, "%s", text_of(device, "model"));
    table_add_cell(table, "%s", state_of(device));
    add_share(table, used, device, "memory_mib");
    add_share(table, used, device, "cores");
    add_share(table, used, device, "slots");
}

static void print_nodes(yyjson_val *nodes, struct strbuf *text)
{
    static const struct table_column columns[] = {
        {"NODE", false, false},          {"DEVICE", false, false},
        {"MODEL", false, false},         {"STATE", false, false},
        {"MIB USED/ALL", true, false},   {"CORES USED/ALL", true, false},
        {"TASKS USED/ALL", true, false},
    };
    yyjson_val *node, *device;
    struct table table;
    size_t at, max, k, most;

    table_init(&table, columns, ARRAY_SIZE(columns));
    yyjson_arr_foreach(nodes, at, max, node)
    {
        if (*text_of(node, "absent")) {
            table_add_row(&table);
            table_add_cell(&table, "%s", text_of(node, "name"));
            table_add_cell(&table, "-");
            table_add_cell(&table, "%s", text_of(node, "absent"));
        }
        yyjson_arr_foreach(yyjson_obj_get(node, "devices"), k, most, device)
        {
            add_device(&table, k ? "" : text_of(node, "name"), device);
        }
    }
    table_finish(&table, text);
}

static void add_pods(struct table *table, yyjson_val *pods, const char *state)
{
    yyjson_val *pod, *device;
    size_t at, max, k, most;

    yyjson_arr_foreach(pods, at, max, pod)
    {
        yyjson_arr_foreach(yyjson_obj_get(pod, "devices"), k, most, device)
        {
            table_add_row(table);
            table_add_cell(table, "%s", k ? "" : text_of(pod, "namespace"));
            table_add_cell(table, "%s", k ? "" : text_of(pod, "name"));
            table_add_cell(table, "%s", k ? "" : state);
            table_add_cell(table, "%s", k ? "" : text_of(pod, "node"));
            table_add_cell(table, "%s", text_of(device, "uuid"));
            table_add_cell(table, "%" PRIu64, number_of(device, "memory_mib"));
            table_add_cell(table, "%" PRIu64, number_of(device, "cores"));
        }
    }
}

static void print_pods(yyjson_val *root, struct strbuf *text)
{
    static const struct table_column columns[] = {
        {"NAMESPACE", false, false}, {"POD", false, false},    {"STATE", false, false},
        {"NODE", false, false},      {"DEVICE", false, false}, {"MIB", true, false},
        {"CORES", true, false},
    };
    struct table table;

    table_init(&table, columns, ARRAY_SIZE(columns));
    add_pods(&table, yyjson_obj_get(root, "pods"), "bound");
    add_pods(&table, yyjson_obj_get(root, "reserved"), "reserved");
    strbuf_add(text, "\n");
    if (table_is_empty(&table))
        strbuf_add(text, "No pod holds a device.\n");
    table_finish(&table, text);
}

static void print_quotas(yyjson_val *quotas, struct strbuf *text)
{
    static const struct table_column columns[] = {
        {"NAMESPACE", false, false},
        {"RESOURCE", false, false},
        {"USED/QUOTA", true, false},
    };
    yyjson_val *quota;
    struct table table;
    size_t at, max;

    if (!yyjson_arr_size(quotas))
        return;
    table_init(&table, columns, ARRAY_SIZE(columns));
    yyjson_arr_foreach(quotas, at, max, quota)
    {
        table_add_row(&table);
        table_add_cell(&table, "%s", text_of(quota, "namespace"));
        table_add_cell(&table, "%s", text_of(quota, "resource"));
        table_add_cell(&table, "%" PRIu64 "/%" PRIu64, number_of(quota, "used"),
                       number_of(quota, "limit"));
    }
    strbuf_add(text, "\n");
    table_finish(&table, text);
}

static int print_view(struct objects *objects, const char *view, size_t len, bool json,
                      struct strbuf *text, struct error *err)
{
    yyjson_val *root;
    int r;

    if (json) {
        strbuf_add(text, view);
        return 0;
    }
    arena_reset(objects->arena);
    r = json_parse(view, len, objects->arena, &root, err);
    if (r < 0)
        return r;
    print_nodes(yyjson_obj_get(root, "nodes"), text);
    print_pods(root, text);
    print_quotas(yyjson_obj_get(root, "quotas"), text);
    return 0;
}

int top_print_cluster(const struct objects_options *options, bool json, struct strbuf *text,
                      struct error *err)
{
    struct strbuf view = STRBUF_INIT(VIEW_MAX);
    struct objects objects;
    int r = objects_load(options, &objects, err);

    if (r == 0 && objects.view) {
        r = print_view(&objects, objects.view, strlen(objects.view), json, text, err);
    } else if (r == 0) {
        cluster_view(objects.cluster, &view);
        r = view.failed ? error_set(err, -ENOMEM, "out of memory")
                        : print_view(&objects, strbuf_text(&view), view.len, json, text, err);
    }
    strbuf_deinit(&view);
    objects_free(&objects);
    return r;
}
