/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/ascend/config.h"

#include <stdio.h>
#include <string.h>

#include "base/util.h"

#define PATH "vnpus"

static const char *read_short(const char *text, void *to)
{
    char whole[SECTION_NAME_SIZE];
    const char *wrong = section_read_name(text, whole);

    if (wrong)
        return wrong;
    if (!*text || strlen(text) >= sizeof(((struct ascend_template *)0)->name))
        return "not a name of at most 63 letters";
    copy_text(to, sizeof(((struct ascend_template *)0)->name), text);
    return NULL;
}

static const char *skip(const char *text, void *to)
{
    (void)text;
    (void)to;
    return NULL;
}

static const struct section_key template_keys[] = {
    {.name = "name", .read = read_short, .offset = offsetof(struct ascend_template, name)},
    {.name = "memory",
     .read = section_read_int32,
     .offset = offsetof(struct ascend_template, memory_mib)},
    {.name = "aiCore", .read = skip},
    {.name = "aiCPU", .read = skip},
};

static void sort_templates(struct ascend_chip *chip)
{
    for (size_t i = 1; i < chip->template_count; i++) {
        struct ascend_template moved = chip->templates[i];
        size_t k = i;

        for (; k > 0 && chip->templates[k - 1].memory_mib > moved.memory_mib; k--)
            chip->templates[k] = chip->templates[k - 1];
        chip->templates[k] = moved;
    }
}

static int read_templates(const struct section_reading *reading, const struct section *list,
                          const char *path, void *to)
{
    struct ascend_chip *chip = to;
    int r = section_check_list(reading, list, path, ASCEND_TEMPLATES);

    for (size_t i = 0; r == 0 && i < list->count; i++) {
        r = section_read_keys(reading, &list->items[i], path, template_keys,
                              ARRAY_SIZE(template_keys), &chip->templates[i]);
        chip->template_count = i + 1;
    }
    sort_templates(chip);
    return r;
}

static const struct section_key chip_keys[] = {
#define KEY(key, reader, member)                                                                   \
    {                                                                                              \
        .name = key, .read = reader, .offset = offsetof(struct ascend_chip, member)                \
    }
    KEY("commonWord", read_short, word),
    KEY("resourceName", section_read_resource, count_name),
    KEY("resourceMemoryName", section_read_resource, memory_name),
    KEY("resourceCoreName", section_read_resource, cores_name),
    KEY("runtimeClassName", section_read_name, runtime_class),
    KEY("memoryAllocatable", section_read_int32, allocatable_mib),
    KEY("memoryCapacity", section_read_int32, capacity_mib),
    KEY("memoryFactor", section_read_int32, memory_factor),
    KEY("overwriteEnv", section_read_switch, hides_chips),
    KEY("superPod", section_read_switch, is_super_pod),
#undef KEY
    {.name = "templates", .read_value = read_templates},
    {.name = "chipName", .read = skip},
    {.name = "aiCore", .read = skip},
    {.name = "aiCPU", .read = skip},
};

static int check_chip(const struct section_reading *reading, const struct section *section,
                      const struct ascend_config *config, const struct ascend_chip *chip)
{
    if (!chip->word[0] || !chip->count_name[0])
        return section_refuse(reading, section->place, PATH,
                              "a chip needs commonWord and resourceName");
    for (const struct ascend_chip *other = config->chips; other < chip; other++) {
        if (strcmp(other->word, chip->word) == 0)
            return section_refuse(reading, section->place, PATH, "a commonWord is given twice");
    }
    return 0;
}

/* HAMi's keys of the annotations. */
static void name_keys(struct ascend_chip *chip)
{
    const struct {
        char *key;
        const char *form;
    } keys[] = {
        {chip->register_key, "hami.io/node-register-%s"},
        {chip->handshake_key, "hami.io/node-handshake-%s"},
        {chip->allocate_key, "hami.io/%s-devices-to-allocate"},
        {chip->allocated_key, "hami.io/%s-devices-allocated"},
        {chip->use_key, "hami.io/use-%s-uuid"},
        {chip->avoid_key, "hami.io/no-use-%s-uuid"},
        {chip->chip_key, "huawei.com/%s"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        const char *at = strchr(keys[i].form, '%');

        (void)snprintf(keys[i].key, ASCEND_KEY_SIZE, "%.*s%s%s", (int)(at - keys[i].form),
                       keys[i].form, chip->word, at + 2);
    }
}

static int read_chips(const struct section_reading *reading, const struct section *list,
                      const char *path, void *to)
{
    struct ascend_config *config = to;
    int r = section_check_list(reading, list, path, ASCEND_CHIPS);

    for (size_t i = 0; r == 0 && i < list->count; i++) {
        struct ascend_chip *chip = &config->chips[i];

        r = section_read_keys(reading, &list->items[i], path, chip_keys, ARRAY_SIZE(chip_keys),
                              chip);
        if (r == 0)
            r = check_chip(reading, &list->items[i], config, chip);
        name_keys(chip);
        chip->config = config;
        config->count = i + 1;
    }
    return r;
}

static const struct section_key keys[] = {
    {.name = "hamiVnpuCore",
     .read = section_read_switch,
     .offset = offsetof(struct ascend_config, soft_split)},
    {.name = "configs", .read_value = read_chips},
};

void ascend_config_missing(void *ret_config)
{
    *(struct ascend_config *)ret_config = (struct ascend_config){.count = 0};
}

/* HAMi 2.8 has the list of chips where 2.10 has keys. */
int ascend_config_read(const struct section_reading *reading, const struct section *section,
                       void *config)
{
    if (section->kind == SECTION_LIST)
        return read_chips(reading, section, PATH, config);
    return section_read_keys(reading, section, PATH, keys, ARRAY_SIZE(keys), config);
}

int32_t ascend_trim(const struct ascend_chip *chip, int64_t mib, const char **ret_name)
{
    *ret_name = "";
    for (size_t i = 0; i < chip->template_count; i++) {
        if (mib > chip->templates[i].memory_mib)
            continue;
        *ret_name = chip->templates[i].name;
        return chip->templates[i].memory_mib;
    }
    return mib <= chip->capacity_mib ? chip->allocatable_mib : 0;
}
