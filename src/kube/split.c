/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/split.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

enum {
    DEPTH_MAX = 1000,
};

void split_begin(struct split *split, bool is_list)
{
    struct split_text object = split->object, envelope = split->envelope;

    object.len = envelope.len = 0;
    *split = (struct split){.is_list = is_list, .object = object, .envelope = envelope};
}

void split_deinit(struct split *split)
{
    free(split->object.text);
    free(split->envelope.text);
    *split = (struct split){0};
}

static int split_add(struct split_text *to, const char *bytes, size_t len, size_t max)
{
    size_t size = to->size ? to->size : 4096;
    char *text;

    if (len > max - to->len)
        return -EFBIG;
    while (size < to->len + len)
        size *= 2;
    if (size != to->size) {
        text = realloc(to->text, size + SPLIT_PADDING);
        if (!text)
            return -ENOMEM;
        to->text = text;
        to->size = size;
    }
    memcpy(to->text + to->len, bytes, len);
    to->len += len;
    memset(to->text + to->len, 0, SPLIT_PADDING);
    return 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Whether the envelope ends in the key of the list's elements and their bracket. */
static bool at_items(const struct split *split)
{
    static const char key[] = "\"items\"";
    const struct split_text *envelope = &split->envelope;
    size_t len = envelope->len - 1;

    while (len && is_blank(envelope->text[len - 1]))
        len--;
    if (!len || envelope->text[--len] != ':')
        return false;
    while (len && is_blank(envelope->text[len - 1]))
        len--;
    if (len <= strlen(key) || memcmp(envelope->text + len - strlen(key), key, strlen(key)) != 0)
        return false;
    return envelope->text[len - strlen(key) - 1] != '\\';
}

/* The meaning of a byte outside of strings. */
enum step {
    STEP_ON,    /* it belongs to the object or envelope being gathered */
    STEP_SKIP,  /* it stands between objects */
    STEP_ARRAY, /* it opens an array that may be the list's elements */
    STEP_LEAVE, /* it closes the list's elements */
    STEP_END,   /* it is an object's last */
    STEP_WRONG,
};

/* The depth at which the object begins: an element lies within its list's braces and brackets. */
static unsigned floor_of(const struct split *split)
{
    return split->in_items ? 2 : 0;
}

static enum step step_open(struct split *split, char c)
{
    if (split->depth == DEPTH_MAX || (split->depth == floor_of(split) && c != '{'))
        return STEP_WRONG;
    split->depth++;
    if (split->is_list && !split->in_items && split->depth == 2 && c == '[')
        return STEP_ARRAY;
    return STEP_ON;
}

static enum step step_close(struct split *split)
{
    if (split->depth > floor_of(split))
        return --split->depth == floor_of(split) ? STEP_END : STEP_ON;
    return split->in_items ? STEP_LEAVE : STEP_WRONG;
}

static enum step split_step(struct split *split, char c)
{
    switch (c) {
    case '{':
    case '[':
        return step_open(split, c);
    case '}':
    case ']':
        return step_close(split);
    default:
        if (split->depth == floor_of(split))
            return is_blank(c) || (split->in_items && c == ',') ? STEP_SKIP : STEP_WRONG;
        split->in_string = c == '"';
        return STEP_ON;
    }
}

/* Moves over the inside of a string. Returns the number of bytes that belong to it. */
static size_t skip_string(struct split *split, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (split->escaped) {
            split->escaped = false;
        } else if (bytes[i] == '\\') {
            split->escaped = true;
        } else if (bytes[i] == '"') {
            split->in_string = false;
            return i + 1;
        }
    }
    return len;
}

static int split_gather(struct split *split, const char *bytes, const char *end)
{
    size_t len = (size_t)(end - bytes);

    if (!len)
        return 0;
    if (split->is_list && !split->in_items)
        return split_add(&split->envelope, bytes, len, SPLIT_ENVELOPE_MAX);
    return split_add(&split->object, bytes, len, SPLIT_OBJECT_MAX);
}

static enum split_outcome hand_out(struct split *split, char **ret_object, size_t *ret_len)
{
    bool is_envelope = split->is_list && !split->in_items;
    struct split_text *text = is_envelope ? &split->envelope : &split->object;

    split->done = true;
    *ret_object = text->text;
    *ret_len = text->len;
    return is_envelope ? SPLIT_ENVELOPE : SPLIT_OBJECT;
}

/* Moves on to the next byte that ends a run of bytes with one destination. Returns its meaning. */
static enum step find_end(struct split *split, const char **p, const char *end)
{
    enum step what = STEP_ON;

    while (*p < end && what == STEP_ON) {
        if (split->in_string) {
            *p += skip_string(split, *p, (size_t)(end - *p));
            continue;
        }
        what = split_step(split, **p);
        (*p)++;
    }
    return what;
}

int split_next(struct split *split, const char **bytes, size_t *len, char **ret_object,
               size_t *ret_len)
{
    const char *run = *bytes, *end = *bytes + *len;
    enum step what = STEP_ON;
    int r = 0;

    if (split->done) {
        split->object.len = 0;
        split->done = false;
    }
    while (run < end && what != STEP_END && r == 0) {
        const char *p = run;

        what = find_end(split, &p, end);
        if (what == STEP_WRONG)
            return -EPROTO;
        if (what == STEP_LEAVE) {
            split->in_items = false;
            split->depth--;
        }
        if (what != STEP_SKIP)
            r = split_gather(split, run, p);
        if (what == STEP_ARRAY && r == 0)
            split->in_items = at_items(split);
        run = p;
    }
    *bytes = run;
    *len = (size_t)(end - run);
    if (r < 0)
        return r;
    return what == STEP_END ? (int)hand_out(split, ret_object, ret_len) : SPLIT_MORE;
}
