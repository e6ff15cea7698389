/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Lists of text, whose strings belong to the list's maker: mostly an arena. */

#include <stdbool.h>
#include <stddef.h>

struct text_list {
    const char *const *items;
    size_t count;
    bool sorted; /* by strcmp(), so that one need not be looked for among all */
};

/* An annotation, a label, a variable of the environment. */
struct text_pair {
    const char *key, *value;
};

struct text_pairs {
    const struct text_pair *items;
    size_t count;
};

bool text_list_has(const struct text_list *list, const char *text);

/* Whether a part of the text is this, in upper or lower case. */
bool text_contains(const char *text, const char *part);

/* Whether text is one or more of these words, with commas and blanks between them. */
bool text_is_made_of(const char *text, const char *const *words);

/* The value of a key, or NULL. */
const char *text_pairs_get(const struct text_pairs *pairs, const char *key);
