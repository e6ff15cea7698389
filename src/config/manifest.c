/* SPDX-License-Identifier: Apache-2.0 */
#include "config/manifest.h"

#include <errno.h>
#include <string.h>
#include <yaml.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "config/yaml_reading.h"
#include "model/json.h"

enum {
    DEPTH_MAX = 64,
    TEXT_MAX = 512 << 20,
    VALUES_MORE = 10000, /* than so many for each byte of the file; aliases can multiply values: */
    VALUES_OF_BYTE = 4,
};

struct converting {
    struct yaml_reading yaml;
    struct strbuf *json;
    size_t values, values_max;
};

/* JSON's own words and numbers, which YAML reads alike. */
static bool is_json_word(const char *text)
{
    const char *p = text + (*text == '-');

    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        return true;
    if (*p == '0' && p[1] >= '0' && p[1] <= '9')
        return false;
    if (*p < '0' || *p > '9')
        return false;
    p += strspn(p, "0123456789");
    if (*p == '.' && p[1] >= '0' && p[1] <= '9') {
        p++;
        p += strspn(p, "0123456789");
    }
    return !*p;
}

static void convert_scalar(struct converting *converting, const yaml_node_t *node)
{
    const char *text = yaml_text(node);

    if (yaml_is_null(node))
        strbuf_add(converting->json, "null");
    else if (node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && is_json_word(text))
        strbuf_add(converting->json, text);
    else
        strbuf_add_json(converting->json, text);
}

static int convert(struct converting *converting, const yaml_node_t *node, unsigned depth);

static int convert_list(struct converting *converting, const yaml_node_t *node, unsigned depth)
{
    int r = 0;

    strbuf_add(converting->json, "[");
    for (size_t i = 0; i < yaml_count(node) && r == 0; i++) {
        strbuf_add(converting->json, i ? "," : "");
        r = convert(converting, yaml_item(&converting->yaml, node, i), depth + 1);
    }
    strbuf_add(converting->json, "]");
    return r;
}

static int convert_keys(struct converting *converting, const yaml_node_t *node, unsigned depth)
{
    const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
    const char *name;
    int r = 0;

    strbuf_add(converting->json, "{");
    for (; pair < node->data.mapping.pairs.top && r == 0; pair++) {
        r = yaml_key(&converting->yaml, node, pair, "", &name);
        if (r < 0)
            break;
        strbuf_add(converting->json, pair > node->data.mapping.pairs.start ? "," : "");
        strbuf_add_json(converting->json, name);
        strbuf_add(converting->json, ":");
        r = convert(converting, yaml_document_get_node(converting->yaml.tree, pair->value),
                    depth + 1);
    }
    strbuf_add(converting->json, "}");
    return r;
}

static int convert(struct converting *converting, const yaml_node_t *node, unsigned depth)
{
    if (depth > DEPTH_MAX || ++converting->values > converting->values_max)
        return error_set(converting->yaml.err, -E2BIG, "%s:%zu: too deep, or too much of it",
                         converting->yaml.name, node->start_mark.line + 1);
    if (converting->json->failed) /* what follows may be as much again */
        return error_set(converting->yaml.err, -ENOMEM, "%s: out of memory", converting->yaml.name);
    if (node->type == YAML_SEQUENCE_NODE)
        return convert_list(converting, node, depth);
    if (node->type == YAML_MAPPING_NODE)
        return convert_keys(converting, node, depth);
    if (!yaml_text(node))
        return yaml_refuse(&converting->yaml, node, "", "a NUL in a text");
    convert_scalar(converting, node);
    return 0;
}

/* An object, or each of a list's. */
static int take_object(yyjson_val *object, manifest_fn *take, void *data, struct error *err)
{
    yyjson_val *items = yyjson_obj_get(object, "items"), *item;
    size_t at, max;
    int r = 0;

    if (!yyjson_is_arr(items))
        return take(data, object, err);
    yyjson_arr_foreach(items, at, max, item)
    {
        r = take(data, item, err);
        if (r < 0)
            break;
    }
    return r;
}

static int take_json(const char *name, const char *text, size_t len, struct arena *arena,
                     manifest_fn *take, void *data, struct error *err)
{
    yyjson_val *root;
    int r = json_parse(text, len, arena, &root, err);

    return r < 0 ? error_wrap(err, r, "%s", name) : take_object(root, take, data, err);
}

static int take_document(struct yaml_reading *yaml, size_t len, struct arena *arena,
                         manifest_fn *take, void *data)
{
    const struct arena_mark mark = arena_mark(arena);
    struct strbuf json = STRBUF_IN(arena, TEXT_MAX);
    struct converting converting = {
        .yaml = *yaml,
        .json = &json,
        .values_max = VALUES_MORE + VALUES_OF_BYTE * len,
    };
    const yaml_node_t *root = yaml_document_get_root_node(yaml->tree);
    int r;

    if (!root || yaml_is_null(root))
        return 0;
    r = convert(&converting, root, 0);
    if (r == 0 && json.failed)
        r = error_set(yaml->err, -ENOMEM, "%s: out of memory", yaml->name);
    if (r == 0)
        r = take_json(yaml->name, strbuf_text(&json), json.len, arena, take, data, yaml->err);
    arena_rewind(arena, mark);
    return r;
}

static int read_documents(const char *name, yaml_parser_t *parser, const char *text, size_t len,
                          struct arena *arena, manifest_fn *take, void *data, struct error *err)
{
    struct yaml_input input;
    bool over = false;
    int r = 0;

    yaml_set_input(parser, &input, text, len);
    while (r == 0 && !over) {
        yaml_document_t tree;
        struct yaml_reading yaml = {name, &tree, err};

        if (!yaml_parser_load(parser, &tree))
            return yaml_fail(name, parser, &input, err);
        over = !yaml_document_get_root_node(&tree);
        r = take_document(&yaml, len, arena, take, data);
        yaml_document_delete(&tree);
    }
    return r;
}

int manifest_read(const char *name, const char *text, size_t len, struct arena *arena,
                  manifest_fn *take, void *data, struct error *err)
{
    const struct arena_mark mark = arena_mark(arena);
    const size_t blank = strspn(text, " \t\r\n");
    yaml_parser_t parser;
    int r;

    if (text[blank] == '{' || text[blank] == '[') {
        r = take_json(name, text, len, arena, take, data, err);
        arena_rewind(arena, mark);
        return r;
    }
    if (!yaml_parser_initialize(&parser))
        return error_set(err, -ENOMEM, "%s: no memory", name);
    r = read_documents(name, &parser, text, len, arena, take, data, err);
    yaml_parser_delete(&parser);
    return r;
}
