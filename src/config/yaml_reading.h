/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Steps of reading a YAML document of libyaml, with line and column in errors. Inside config
 * only. */

#include <stdbool.h>
#include <stddef.h>
#include <yaml.h>

#include "base/error.h"

/* A document while it is read; name is for messages. */
struct yaml_reading {
    const char *name;
    yaml_document_t *tree;
    struct error *err;
};

/* A text that a parser reads, at most so deep: libyaml's time goes with the square of the depth. */
struct yaml_input {
    const yaml_parser_t *parser;
    const char *text;
    size_t left;
    bool too_deep;
};

/* The input lasts as long as the parser. */
void yaml_set_input(yaml_parser_t *parser, struct yaml_input *input, const char *text, size_t len);

/* What the parser fails of, as an error; -EINVAL. */
int yaml_fail(const char *name, const yaml_parser_t *parser, const struct yaml_input *input,
              struct error *err);

/* The caller deletes the tree. -EINVAL, -ENOMEM. */
int yaml_load(const char *name, const char *text, size_t len, yaml_document_t *ret_tree,
              struct error *err);

/* "name:line:column: path: what"; returns -EINVAL. */
int yaml_refuse(const struct yaml_reading *reading, const yaml_node_t *node, const char *path,
                const char *what);

/* The text of a single value; NULL: the node is something else. */
const char *yaml_text(const yaml_node_t *node);

/* Whether it is YAML's null, which counts as a missing key. */
bool yaml_is_null(const yaml_node_t *node);

/* The name of a key of a mapping; -EINVAL unless it is text and stands there once. */
int yaml_key(const struct yaml_reading *reading, const yaml_node_t *mapping,
             const yaml_node_pair_t *pair, const char *path, const char **ret_name);

/* The number of a list's items, and one of them. */
size_t yaml_count(const yaml_node_t *list);
const yaml_node_t *yaml_item(const struct yaml_reading *reading, const yaml_node_t *list,
                             size_t position);
