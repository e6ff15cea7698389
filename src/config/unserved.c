/* SPDX-License-Identifier: Apache-2.0 */
#include "config/unserved.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

/* The keys are those of HAMi 2.8 to 2.10. */

struct shape {
    const char *name;
    const char *const *names; /* keys, each with a single value; NULL-terminated */
    bool is_list;             /* of such keys */
};

#define NAMES(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static const struct shape sections[] = {
    {.name = "biren", .names = NAMES("resourceCountName")},
    {.name = "enflame",
     .names = NAMES("resourceNameGCU", "resourceNameDRSGCU", "resourceNameGCUMemory",
                    "resourceNameGCUCore", "resourceNameVGCU", "resourceNameVGCUPercentage")},
    {.name = "vastai", .names = NAMES("resourceCountName")},
};

static bool has_name(const struct shape *shape, const char *name)
{
    for (size_t i = 0; shape->names[i]; i++) {
        if (strcmp(shape->names[i], name) == 0)
            return true;
    }
    return false;
}

static int read_key(const struct section_reading *reading, const struct shape *shape,
                    const struct section_name *name, const struct section *value, const char *path)
{
    char inner[128], what[128];

    (void)snprintf(inner, sizeof(inner), "%s.%s", path, name->text);
    if (has_name(shape, name->text))
        return value->kind == SECTION_TEXT || value->kind == SECTION_NOTHING
                   ? 0
                   : section_refuse(reading, value->place, inner, "not a single value");
    (void)snprintf(what, sizeof(what), "no such key in %s", path);
    return section_refuse(reading, name->place, name->text, what);
}

static int read_keys(const struct section_reading *reading, const struct shape *shape,
                     const struct section *section, const char *path)
{
    int r = 0;

    if (section->kind == SECTION_NOTHING)
        return 0;
    if (section->kind != SECTION_KEYS)
        return section_refuse(reading, section->place, path, "not a section of keys");
    for (size_t i = 0; i < section->count && r == 0; i++)
        r = read_key(reading, shape, &section->names[i], &section->items[i], path);
    return r;
}

/* An empty section is a list of nothing, too. */
static int read_shape(const struct section_reading *reading, const struct shape *shape,
                      const struct section *section, const char *path)
{
    int r = 0;

    if (!shape->is_list || section->kind == SECTION_NOTHING ||
        (section->kind == SECTION_KEYS && !section->count))
        return read_keys(reading, shape, section, path);
    if (section->kind != SECTION_LIST)
        return section_refuse(reading, section->place, path, "not a list");
    for (size_t i = 0; i < section->count && r == 0; i++)
        r = read_keys(reading, shape, &section->items[i], path);
    return r;
}

int unserved_read(const struct section_reading *reading, const struct section_name *name,
                  const struct section *section)
{
    for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
        if (strcmp(sections[i].name, name->text) == 0)
            return read_shape(reading, &sections[i], section, name->text);
    }
    return section_refuse(reading, name->place, name->text, "no such section");
}
