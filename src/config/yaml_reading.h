/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Steps of reading a YAML document as libyaml has it, whose errors tell line and column. Inside
 * what reads such files. */

#include <stdbool.h>
#include <stddef.h>
#include <yaml.h>

#include "base/error.h"

/* A document while it is read, and in whose name. */
struct yaml_reading {
    const char *name;
    yaml_document_t *tree;
    struct error *err;
};

/* The caller deletes the tree. -EINVAL, -ENOMEM. */
int yaml_load(const char *name, const char *text, size_t len, yaml_document_t *ret_tree,
              struct error *err);

/* "name:line:column: path: what"; returns -EINVAL. */
int yaml_refuse(const struct yaml_reading *reading, const yaml_node_t *node, const char *path,
                const char *what);

/* A single value, or NULL when it is something else. */
const char *yaml_text(const yaml_node_t *node);

/* What YAML calls null: it is as good as a key that is left out. */
bool yaml_is_null(const yaml_node_t *node);

/* The name of a key of a mapping, which must be text and stand there once; else -EINVAL. */
int yaml_key(const struct yaml_reading *reading, const yaml_node_t *mapping,
             const yaml_node_pair_t *pair, const char *path, const char **ret_name);

/* The items of a list, whose node is of that kind, and the node of one. */
size_t yaml_count(const yaml_node_t *list);
const yaml_node_t *yaml_item(const struct yaml_reading *reading, const yaml_node_t *list,
                             size_t position);
