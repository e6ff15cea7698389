/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* JSON in an arena, read by yyjson. */

#include <stddef.h>
#include <yyjson.h>

#include "base/arena.h"
#include "base/error.h"

/* An allocator for yyjson, whose memory is the arena's; nothing needs to be freed. */
yyjson_alc json_alc(struct arena *arena);

/*
 * The document's root, which lives as long as the arena. -EINVAL with the place in err; -ENOMEM.
 * The arena gives some 12 to 20 times the length.
 */
int json_parse(const char *text, size_t len, struct arena *arena, yyjson_val **ret_root,
               struct error *err);
