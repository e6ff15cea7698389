/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/nvidia/mig_config.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/parse.h"
#include "base/util.h"
#include "vendor/nvidia/models_config.h"

#define PATH "nvidia.knownMigGeometries"

/* One kind of instance. */

static const char *read_mig_number(const char *text, uint64_t max, uint32_t *to)
{
    uint64_t number;

    if (parse_u64(text, &number) < 0 || number > max)
        return "not a whole number within range";
    *to = (uint32_t)number;
    return NULL;
}

/* The node looks for the profile by it. */
static const char *read_name(const char *text, void *to)
{
    if (strlen(text) >= MIG_NAME_SIZE)
        return "not a profile's name of at most 23 bytes";
    copy_text(to, MIG_NAME_SIZE, text);
    return NULL;
}

static const char *read_core(const char *text, void *to)
{
    return read_mig_number(text, DEVICE_CORES, to);
}

static const char *read_memory(const char *text, void *to)
{
    return read_mig_number(text, DEVICE_MAX_MIB, to);
}

static const char *read_count(const char *text, void *to)
{
    return read_mig_number(text, MIG_MAX_INSTANCES, to);
}

static const struct section_key kind_keys[] = {
    {.name = "name", .read = read_name, .offset = offsetof(struct mig_kind, name)},
    {.name = "core", .read = read_core, .offset = offsetof(struct mig_kind, cores)},
    {.name = "memory", .read = read_memory, .offset = offsetof(struct mig_kind, memory_mib)},
    {.name = "count", .read = read_count, .offset = offsetof(struct mig_kind, count)},
};

static int read_group(const struct section_reading *reading, const struct section *list,
                      struct mig_group *group)
{
    unsigned instances = 0;
    int r = section_check_list(reading, list, PATH, MIG_MAX_KINDS);

    for (size_t i = 0; r == 0 && i < list->count; i++) {
        r = section_read_keys(reading, &list->items[i], PATH, kind_keys, ARRAY_SIZE(kind_keys),
                              &group->kinds[i]);
        group->kind_count = i + 1;
        instances += group->kinds[i].count;
    }
    if (r == 0 && instances > MIG_MAX_INSTANCES)
        return section_refuse(reading, list->place, PATH, "more than 8 instances");
    return r;
}

/* The models that are cut alike. */

static int read_models(const struct section_reading *reading, const struct section *list,
                       const char *path, void *to)
{
    struct nvidia_mig *mig = to;

    (void)path;
    return models_config_read(reading, list, PATH, mig->names, &mig->name_count);
}

static int read_groups(const struct section_reading *reading, const struct section *list,
                       const char *path, void *to)
{
    struct nvidia_mig *mig = to;
    int r = section_check_list(reading, list, PATH, MIG_MAX_GROUPS);

    (void)path;
    for (size_t i = 0; r == 0 && i < list->count; i++) {
        r = read_group(reading, &list->items[i], &mig->geometry.groups[i]);
        mig->geometry.group_count = i + 1;
    }
    return r;
}

static const struct section_key mig_keys[] = {
    {.name = "models", .read_value = read_models},
    {.name = "allowedGeometries", .read_value = read_groups},
};

int mig_config_read(const struct section_reading *reading, const struct section *list,
                    const char *path, void *to)
{
    struct nvidia_config *config = to;
    int r = section_check_list(reading, list, path, NVIDIA_MIG_MODELS);

    for (size_t i = 0; r == 0 && i < list->count; i++) {
        r = section_read_keys(reading, &list->items[i], PATH, mig_keys, ARRAY_SIZE(mig_keys),
                              &config->migs[i]);
        config->mig_count = i + 1;
    }
    return r;
}

/* Profiles that are allowed. */

static int read_allowed_models(const struct section_reading *reading, const struct section *list,
                               const char *path, void *to)
{
    struct nvidia_allowance *allowance = to;

    return models_config_read(reading, list, path, allowance->names, &allowance->name_count);
}

/* "1g.10gb": a number of slices, and what there is of memory. */
static bool is_profile(const char *text)
{
    size_t digits = strspn(text, "0123456789");

    return digits && text[digits] == 'g' && text[digits + 1] == '.' && text[digits + 2] &&
           strlen(text) < MIG_NAME_SIZE &&
           text[strspn(text, "0123456789abcdefghijklmnopqrstuvwxyz.+")] == '\0';
}

static int read_allowed_profiles(const struct section_reading *reading, const struct section *list,
                                 const char *path, void *to)
{
    struct nvidia_allowance *allowance = to;
    int r = section_check_list(reading, list, path, NVIDIA_MIG_PROFILES);

    for (size_t i = 0; r == 0 && i < list->count; i++) {
        const struct section *item = &list->items[i];

        if (item->kind != SECTION_TEXT || !is_profile(item->text))
            return section_refuse(reading, item->place, path, "not a profile, as 1g.10gb");
        COPY_TEXT(allowance->profiles[i], item->text);
        allowance->profile_count = i + 1;
    }
    return r;
}

static const struct section_key allowance_keys[] = {
    {.name = "models", .read_value = read_allowed_models},
    {.name = "profiles", .read_value = read_allowed_profiles},
};

int mig_config_read_allowlist(const struct section_reading *reading, const struct section *list,
                              const char *path, void *to)
{
    struct nvidia_config *config = to;
    int r = section_check_list(reading, list, path, NVIDIA_MIG_MODELS);

    for (size_t i = 0; r == 0 && i < list->count; i++) {
        struct nvidia_allowance *allowance = &config->allowances[i];

        r = section_read_keys(reading, &list->items[i], path, allowance_keys,
                              ARRAY_SIZE(allowance_keys), allowance);
        if (r == 0 && (!allowance->name_count || !allowance->profile_count))
            r = section_refuse(reading, list->items[i].place, path,
                               "an entry needs models and profiles");
        config->allowance_count = i + 1;
    }
    return r;
}
