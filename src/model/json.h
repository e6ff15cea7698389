/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* JSON in an arena: yyjson reads it, and text goes out as HAMi's Go writes it. */

#include <stddef.h>
#include <yyjson.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/strbuf.h"

/* An allocator for yyjson, whose memory is the arena's; nothing needs to be freed. */
yyjson_alc json_alc(struct arena *arena);

/*
 * The document's root, which lives as long as the arena. -EINVAL with the place in err; -ENOMEM.
 * The arena gives some 12 to 20 times the length.
 */
int json_parse(const char *text, size_t len, struct arena *arena, yyjson_val **ret_root,
               struct error *err);

/* A string, quotes included; <, > and & are escaped. Bytes that are not UTF-8 become U+FFFD. */
void json_add_text(struct strbuf *buf, const char *text);
