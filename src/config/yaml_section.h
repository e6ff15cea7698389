/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* YAML as a tree of values with their places. Inside config only. */

#include <stdbool.h>

#include "base/arena.h"
#include "vendor/section.h"

/*
 * One document; the tree and its texts are the arena's. -EINVAL with line and column: it is not
 * YAML, a key is not text or stands there twice, or values are nested too deep or referred to too
 * often. -ENOMEM.
 */
int yaml_section_read(const struct section_reading *reading, const char *text, size_t len,
                      struct arena *arena, struct section *ret_root);

/*
 * If the text is a ConfigMap, blanks out all but this file in it, which keeps its lines and
 * columns. -EINVAL with line and column: it lacks the file, the file is no block that begins with
 * "|", or what stands beside it is none of a ConfigMap's; or the text is a manifest of another
 * kind. A text that is no YAML is left as it is.
 */
int yaml_unwrap(const char *name, char *text, size_t *len, const char *file, struct error *err);
