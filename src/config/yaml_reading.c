/* SPDX-License-Identifier: Apache-2.0 */
#include "config/yaml_reading.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"

enum {
    DEPTH_MAX = 256, /* of lists and keys in brackets */
    PIECE = 256,     /* bytes; the parser's depth is looked at before each */
};

static int give_piece(void *data, unsigned char *buffer, size_t size, size_t *ret_size)
{
    struct yaml_input *input = data;

    input->too_deep = input->parser->flow_level > DEPTH_MAX;
    if (input->too_deep)
        return 0;
    *ret_size = MIN(MIN(size, input->left), (size_t)PIECE);
    memcpy(buffer, input->text, *ret_size);
    input->text += *ret_size;
    input->left -= *ret_size;
    return 1;
}

void yaml_set_input(yaml_parser_t *parser, struct yaml_input *input, const char *text, size_t len)
{
    *input = (struct yaml_input){.parser = parser, .text = text, .left = len};
    yaml_parser_set_input(parser, give_piece, input);
}

int yaml_fail(const char *name, const yaml_parser_t *parser, const struct yaml_input *input,
              struct error *err)
{
    if (input->too_deep)
        return error_set(err, -EINVAL, "%s:%zu: too deep", name, parser->mark.line + 1);
    return error_set(err, -EINVAL, "%s:%zu:%zu: %s", name, parser->problem_mark.line + 1,
                     parser->problem_mark.column + 1,
                     parser->problem ? parser->problem : "not YAML");
}

int yaml_load(const char *name, const char *text, size_t len, yaml_document_t *ret_tree,
              struct error *err)
{
    struct yaml_input input;
    yaml_parser_t parser;
    int r = 0;

    if (!yaml_parser_initialize(&parser))
        return error_set(err, -ENOMEM, "%s: no memory", name);
    yaml_set_input(&parser, &input, text, len);
    if (!yaml_parser_load(&parser, ret_tree))
        r = yaml_fail(name, &parser, &input, err);
    yaml_parser_delete(&parser);
    return r;
}

int yaml_refuse(const struct yaml_reading *reading, const yaml_node_t *node, const char *path,
                const char *what)
{
    return error_set(reading->err, -EINVAL, "%s:%zu:%zu: %s%s%s", reading->name,
                     node->start_mark.line + 1, node->start_mark.column + 1, path,
                     *path ? ": " : "", what);
}

const char *yaml_text(const yaml_node_t *node)
{
    const char *text = (const char *)node->data.scalar.value;

    if (node->type != YAML_SCALAR_NODE || strlen(text) != node->data.scalar.length)
        return NULL;
    return text;
}

bool yaml_is_null(const yaml_node_t *node)
{
    const char *text = yaml_text(node);

    if (!text || node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    return !*text || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0;
}

int yaml_key(const struct yaml_reading *reading, const yaml_node_t *mapping,
             const yaml_node_pair_t *pair, const char *path, const char **ret_name)
{
    const yaml_node_t *node = yaml_document_get_node(reading->tree, pair->key);
    const char *name = yaml_text(node);

    if (!name)
        return yaml_refuse(reading, node, path, "a key that is not text");
    for (const yaml_node_pair_t *p = mapping->data.mapping.pairs.start; p < pair; p++) {
        const char *other = yaml_text(yaml_document_get_node(reading->tree, p->key));

        if (other && strcmp(other, name) == 0)
            return yaml_refuse(reading, node, name, "given twice");
    }
    *ret_name = name;
    return 0;
}

size_t yaml_count(const yaml_node_t *list)
{
    return (size_t)(list->data.sequence.items.top - list->data.sequence.items.start);
}

const yaml_node_t *yaml_item(const struct yaml_reading *reading, const yaml_node_t *list,
                             size_t position)
{
    return yaml_document_get_node(reading->tree, list->data.sequence.items.start[position]);
}
