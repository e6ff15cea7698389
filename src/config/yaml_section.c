/* SPDX-License-Identifier: Apache-2.0 */
#include "config/yaml_section.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "config/yaml_reading.h"

/* An alias may refer to the very value that it stands in, or double a value again and again. */
enum {
    DEPTH_MAX = 16,
    VALUES_MAX = 20000,
};

struct converting {
    const struct section_reading *reading;
    struct yaml_reading yaml; /* the same, for yaml_key() */
    struct arena *arena;
    size_t values;
};

static struct section_place place_of(const yaml_node_t *node)
{
    return (struct section_place){node->start_mark.line + 1, node->start_mark.column + 1};
}

static int no_memory(const struct converting *converting)
{
    return error_set(converting->reading->err, -ENOMEM, "%s: no memory", converting->reading->file);
}

static int convert(struct converting *converting, const yaml_node_t *node, const char *path,
                   unsigned depth, struct section *ret_section);

static int convert_list(struct converting *converting, const yaml_node_t *node, const char *path,
                        unsigned depth, struct section *section)
{
    const yaml_node_item_t *from = node->data.sequence.items.start;
    size_t count = (size_t)(node->data.sequence.items.top - from);
    struct section *items = ARENA_ARRAY(converting->arena, struct section, count);
    int r = 0;

    if (!items)
        return no_memory(converting);
    for (size_t i = 0; i < count && r == 0; i++)
        r = convert(converting, yaml_document_get_node(converting->yaml.tree, from[i]), path,
                    depth + 1, &items[i]);
    section->kind = SECTION_LIST;
    section->count = count;
    section->items = items;
    return r;
}

static int convert_keys(struct converting *converting, const yaml_node_t *node, const char *path,
                        unsigned depth, struct section *section)
{
    const yaml_node_pair_t *from = node->data.mapping.pairs.start;
    const char *name;
    size_t count = (size_t)(node->data.mapping.pairs.top - from);
    struct section *items = ARENA_ARRAY(converting->arena, struct section, count);
    struct section_name *names = ARENA_ARRAY(converting->arena, struct section_name, count);
    int r = 0;

    if (!items || !names)
        return no_memory(converting);
    for (size_t i = 0; i < count && r == 0; i++) {
        r = yaml_key(&converting->yaml, node, &from[i], path, &name);
        if (r < 0)
            return r;
        names[i].text = arena_strdup(converting->arena, name);
        names[i].place = place_of(yaml_document_get_node(converting->yaml.tree, from[i].key));
        r = !names[i].text
                ? no_memory(converting)
                : convert(converting, yaml_document_get_node(converting->yaml.tree, from[i].value),
                          names[i].text, depth + 1, &items[i]);
    }
    section->kind = SECTION_KEYS;
    section->count = count;
    section->items = items;
    section->names = names;
    return r;
}

static int convert(struct converting *converting, const yaml_node_t *node, const char *path,
                   unsigned depth, struct section *ret_section)
{
    *ret_section = (struct section){.place = place_of(node)};
    if (depth > DEPTH_MAX)
        return section_refuse(converting->reading, place_of(node), path, "nested too deep");
    if (++converting->values > VALUES_MAX)
        return section_refuse(converting->reading, place_of(node), path, "too many values");
    if (node->type == YAML_SEQUENCE_NODE)
        return convert_list(converting, node, path, depth, ret_section);
    if (node->type == YAML_MAPPING_NODE)
        return convert_keys(converting, node, path, depth, ret_section);
    if (yaml_is_null(node))
        return 0;
    if (!yaml_text(node))
        return section_refuse(converting->reading, place_of(node), path, "not a single value");
    ret_section->kind = SECTION_TEXT;
    ret_section->text = arena_strdup(converting->arena, yaml_text(node));
    return ret_section->text ? 0 : no_memory(converting);
}

int yaml_section_read(const struct section_reading *reading, const char *text, size_t len,
                      struct arena *arena, struct section *ret_root)
{
    yaml_document_t tree;
    struct converting converting = {
        .reading = reading,
        .yaml = {.name = reading->file, .tree = &tree, .err = reading->err},
        .arena = arena,
    };
    const yaml_node_t *root;
    int r = yaml_load(reading->file, text, len, &tree, reading->err);

    if (r < 0)
        return r;
    root = yaml_document_get_root_node(&tree);
    *ret_root = (struct section){.kind = SECTION_NOTHING};
    if (root)
        r = convert(&converting, root, "", 0, ret_root);
    yaml_document_delete(&tree);
    return r;
}

/* The value of a key; NULL: there is none. */
static const yaml_node_t *find_value(yaml_document_t *tree, const yaml_node_t *mapping,
                                     const char *name)
{
    if (!mapping || mapping->type != YAML_MAPPING_NODE)
        return NULL;
    for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++) {
        const char *text = yaml_text(yaml_document_get_node(tree, pair->key));

        if (text && strcmp(text, name) == 0)
            return yaml_document_get_node(tree, pair->value);
    }
    return NULL;
}

/* 1; 0: it is no manifest, since no section is called kind; -EINVAL: it is one of another kind. */
static int is_map(const struct yaml_reading *reading)
{
    const yaml_node_t *root = yaml_document_get_root_node(reading->tree);
    const yaml_node_t *kind = find_value(reading->tree, root, "kind");
    const char *text = kind ? yaml_text(kind) : NULL;

    if (!kind)
        return 0;
    if (text && strcmp(text, "ConfigMap") == 0)
        return 1;
    return yaml_refuse(reading, kind, "kind",
                       "the manifest is no ConfigMap that holds a device configuration");
}

/* Of another style its lines are not those of the map, and no error could name them. */
static int find_file(const struct yaml_reading *reading, const char *file,
                     const yaml_node_t **ret_found)
{
    const yaml_node_t *root = yaml_document_get_root_node(reading->tree);
    const yaml_node_t *data = find_value(reading->tree, root, "data");
    const yaml_node_t *found = find_value(reading->tree, data, file);

    if (!found)
        return yaml_refuse(reading, data ? data : root, file, "the ConfigMap's data lacks it");
    if (!yaml_text(found) || found->data.scalar.style != YAML_LITERAL_SCALAR_STYLE)
        return yaml_refuse(reading, found, file, "not a block that begins with \"|\"");
    *ret_found = found;
    return 0;
}

/* Lines of blanks are nothing in YAML. Marks count characters, so lines are counted. */
static void keep_lines(char *text, size_t *len, size_t first, size_t end)
{
    size_t line = 0;

    for (size_t i = 0; i < *len; i++) {
        if (line >= end) {
            *len = i;
            return;
        }
        if (text[i] == '\n')
            line++;
        else if (line < first)
            text[i] = ' ';
    }
}

static bool is_key_of_map(const char *name)
{
    static const char *const names[] = {"apiVersion", "kind",       "metadata",
                                        "data",       "binaryData", "immutable"};

    for (size_t i = 0; name && i < ARRAY_SIZE(names); i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return false;
}

/* Whoever adds a section and misses the file's indentation has added it to the ConfigMap. */
static int check_map(const struct yaml_reading *reading, const yaml_node_t *root)
{
    static const char what[] =
        "it stands outside of the file in data; a section belongs into that, "
        "with the file's indentation";
    const yaml_node_t *data = find_value(reading->tree, root, "data");

    for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start;
         pair < root->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(reading->tree, pair->key);
        const char *name = yaml_text(key);

        if (!is_key_of_map(name))
            return yaml_refuse(reading, key, name ? name : "", what);
    }
    for (const yaml_node_pair_t *pair = data->data.mapping.pairs.start;
         pair < data->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(reading->tree, pair->key);

        if (!yaml_text(yaml_document_get_node(reading->tree, pair->value)))
            return yaml_refuse(reading, key, yaml_text(key) ? yaml_text(key) : "", what);
    }
    return 0;
}

static int unwrap(const struct yaml_reading *reading, char *text, size_t *len, const char *file)
{
    const yaml_node_t *found = NULL;
    int r = is_map(reading);

    if (r <= 0)
        return r;
    r = find_file(reading, file, &found);
    if (r == 0)
        r = check_map(reading, yaml_document_get_root_node(reading->tree));
    if (r == 0)
        keep_lines(text, len, found->start_mark.line + 1,
                   found->end_mark.line + (found->end_mark.column > 0));
    return r;
}

int yaml_unwrap(const char *name, char *text, size_t *len, const char *file, struct error *err)
{
    struct error unused = ERROR_INIT;
    yaml_document_t tree;
    int r;

    if (yaml_load("", text, *len, &tree, &unused) < 0)
        return 0;
    r = unwrap(&(struct yaml_reading){name, &tree, err}, text, len, file);
    yaml_document_delete(&tree);
    return r;
}
