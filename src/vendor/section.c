/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/section.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/parse.h"
#include "base/util.h"
#include "vendor/resource_name.h"

int section_refuse(const struct section_reading *reading, struct section_place place,
                   const char *path, const char *what)
{
    return error_set(reading->err, -EINVAL, "%s:%zu:%zu: %s%s%s", reading->file, place.line,
                     place.column, path, *path ? ": " : "", what);
}

static const struct section_key *find_key(const struct section_key *keys, size_t count,
                                          const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    }
    return NULL;
}

static void note_doubt(const struct section_reading *reading, struct section_place place,
                       const char *path, const char *doubt)
{
    struct section_doubts *doubts = reading->doubts;

    if (!doubt || !doubts || doubts->count == SECTION_DOUBTS_MAX)
        return;
    (void)snprintf(doubts->texts[doubts->count++], SECTION_DOUBT_SIZE, "%s:%zu:%zu: %s: %s",
                   reading->file, place.line, place.column, path, doubt);
}

static int read_value(const struct section_reading *reading, const struct section_key *key,
                      const struct section *value, const char *path, void *to)
{
    void *member = (char *)to + key->offset;
    const char *wrong;

    if (value->kind == SECTION_NOTHING)
        return 0;
    if (key->read_value)
        return key->read_value(reading, value, path, member);
    if (value->kind != SECTION_TEXT)
        return section_refuse(reading, value->place, path, "not a single value");
    wrong = key->read(value->text, member);
    if (wrong)
        return section_refuse(reading, value->place, path, wrong);
    if (key->doubt)
        note_doubt(reading, value->place, path, key->doubt(member));
    return 0;
}

int section_read_keys(const struct section_reading *reading, const struct section *section,
                      const char *path, const struct section_key *keys, size_t count, void *to)
{
    char name[128], what[128];
    int r = 0;

    if (section->kind == SECTION_NOTHING)
        return 0;
    if (section->kind != SECTION_KEYS)
        return section_refuse(reading, section->place, path, "not a section of keys");
    for (size_t i = 0; i < section->count && r == 0; i++) {
        const struct section_name *given = &section->names[i];
        const struct section_key *key = find_key(keys, count, given->text);

        (void)snprintf(name, sizeof(name), "%s.%s", path, given->text);
        (void)snprintf(what, sizeof(what), "no such key in %s", path);
        r = key ? read_value(reading, key, &section->items[i], name, to)
                : section_refuse(reading, given->place, given->text, what);
    }
    return r;
}

int section_check_list(const struct section_reading *reading, const struct section *section,
                       const char *path, size_t max)
{
    if (section->kind != SECTION_LIST)
        return section_refuse(reading, section->place, path, "not a list");
    return section->count > max ? section_refuse(reading, section->place, path, "too many") : 0;
}

/* Readers for tables. */

const char *section_read_name(const char *text, void *to)
{
    if (strlen(text) >= SECTION_NAME_SIZE)
        return "too long";
    for (const char *p = text; *p; p++) {
        if (!isalnum((unsigned char)*p) && !strchr("-_./", *p))
            return "not a name, which has letters, digits, and - _ . / only";
    }
    copy_text(to, SECTION_NAME_SIZE, text);
    return NULL;
}

const char *section_read_resource(const char *text, void *to)
{
    const char *wrong = section_read_name(text, to);

    return wrong || !*text ? wrong : resource_name_check(text);
}

static const char *read_number(const char *text, int64_t max, int64_t *ret_value)
{
    const bool is_negative = text[0] == '-';
    uint64_t value;
    const int r = parse_u64(is_negative ? text + 1 : text, &value);

    if (r < 0 && r != -ERANGE)
        return "not a whole number";
    if (is_negative)
        return "negative";
    if (r < 0 || value > (uint64_t)max)
        return "too large";
    *ret_value = (int64_t)value;
    return NULL;
}

const char *section_read_int32(const char *text, void *to)
{
    int64_t value = 0;
    const char *wrong = read_number(text, INT32_MAX, &value);

    if (!wrong)
        *(int32_t *)to = (int32_t)value;
    return wrong;
}

const char *section_read_int64(const char *text, void *to)
{
    return read_number(text, INT64_MAX, to);
}

_Static_assert(SECTION_SCALING_MAX == 100, "section_read_scaling() says so");

/* Digits with a decimal point, in whatever locale; exact up to nine digits behind the point. */
const char *section_read_scaling(const char *text, void *to)
{
    size_t whole_len = strspn(text, "0123456789"), len = whole_len;
    double value = 0, weight = 1;

    if (text[len] == '.')
        len += 1 + strspn(text + len + 1, "0123456789");
    if (!whole_len || text[len] || len > 20)
        return "not a number, as 1 or 1.5";
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '.')
            continue;
        value = value * 10 + (text[i] - '0');
        weight *= i > whole_len ? 10 : 1;
    }
    value /= weight;
    if (value <= 0 || value > SECTION_SCALING_MAX)
        return "out of range, above 0 and at most 100";
    *(double *)to = value;
    return NULL;
}

/* YAML 1.1's words, as HAMi reads them. */
const char *section_read_switch(const char *text, void *to)
{
    static const char *const words[][2] = {
        {"true", "false"}, {"yes", "no"}, {"on", "off"}, {"y", "n"}};

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (strcasecmp(text, words[i][0]) != 0 && strcasecmp(text, words[i][1]) != 0)
            continue;
        *(bool *)to = strcasecmp(text, words[i][0]) == 0;
        return NULL;
    }
    return "neither true nor false";
}
