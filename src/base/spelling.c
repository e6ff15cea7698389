/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spelling.h"

#include <stdint.h>
#include <string.h>

#include "base/util.h"

enum {
    LETTERS_MAX = 127,
};

struct letters {
    char items[LETTERS_MAX + 1];
    size_t count;
};

static bool strip(const char *text, struct letters *ret_letters)
{
    ret_letters->count = 0;
    for (; *text; text++) {
        if (*text == '-')
            continue;
        if (ret_letters->count == LETTERS_MAX)
            return false;
        ret_letters->items[ret_letters->count++] = *text;
    }
    return true;
}

/* Levenshtein's, row by row; beyond 127 letters nobody asks. */
static size_t distance(const struct letters *one, const struct letters *other)
{
    size_t row[LETTERS_MAX + 1];

    for (size_t k = 0; k <= other->count; k++)
        row[k] = k;
    for (size_t i = 1; i <= one->count; i++) {
        size_t before = row[0];

        row[0] = i;
        for (size_t k = 1; k <= other->count; k++) {
            const size_t above = row[k];
            const size_t replaced = before + (one->items[i - 1] != other->items[k - 1]);

            row[k] = MIN(MIN(above, row[k - 1]) + 1, replaced);
            before = above;
        }
    }
    return row[other->count];
}

size_t spelling_distance(const char *one, const char *other)
{
    struct letters left, right;

    return strip(one, &left) && strip(other, &right) ? distance(&left, &right) : SIZE_MAX;
}

bool spelling_is_near(const char *one, const char *other)
{
    return strcmp(one, other) != 0 && spelling_distance(one, other) <= SPELLING_NEAR;
}
