/* SPDX-License-Identifier: Apache-2.0 */
#include "config/device_config.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/util.h"
#include "config/mig_config.h"
#include "config/yaml_reading.h"

#define FILE_MAX (256 * KIB)

enum {
    SPLIT_MAX = 1000,
    SCALING_MAX = 100,
};

/* Sections of vendors that are not supported. */
static const char *const other_sections[] = {
    "amd",       "awsneuron", "biren", "cambricon", "enflame", "hygon",
    "iluvatars", "kunlun",    "metax", "mthreads",  "vastai",  "vnpus",
};

/* Readers of values. Each returns NULL, or what is wrong. */

static const char *read_name(const char *text, void *to)
{
    if (strlen(text) >= NVIDIA_NAME_SIZE)
        return "too long";
    copy_text(to, NVIDIA_NAME_SIZE, text);
    return NULL;
}

static const char *read_number(const char *text, int64_t max, int64_t *ret_value)
{
    uint64_t value;

    if (parse_u64(text, &value) < 0)
        return "not a whole number";
    if (value > (uint64_t)max)
        return "out of range";
    *ret_value = (int64_t)value;
    return NULL;
}

static const char *read_int32(const char *text, void *to)
{
    int64_t value = 0;
    const char *wrong = read_number(text, INT32_MAX, &value);

    if (!wrong)
        *(int32_t *)to = (int32_t)value;
    return wrong;
}

static const char *read_int64(const char *text, void *to)
{
    return read_number(text, INT64_MAX, to);
}

static const char *read_split(const char *text, void *to)
{
    int64_t value = 0;
    const char *wrong = read_number(text, SPLIT_MAX, &value);

    if (!wrong && !value)
        wrong = "out of range";
    if (!wrong)
        *(uint32_t *)to = (uint32_t)value;
    return wrong;
}

/* Digits with a decimal point, in whatever locale; exact up to nine digits behind the point. */
static const char *read_scaling(const char *text, void *to)
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
    if (value <= 0 || value > SCALING_MAX)
        return "out of range";
    *(double *)to = value;
    return NULL;
}

/* YAML 1.1's words, as HAMi reads them. */
static const char *read_switch(const char *text, void *to)
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

static const char *read_core_policy(const char *text, void *to)
{
    static const char *const words[] = {"", "default", "force", "disable"};

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (strcmp(text, words[i]) != 0)
            continue;
        copy_text(to, sizeof(((struct nvidia_config *)0)->core_policy), text);
        return NULL;
    }
    return "none of default, force, disable";
}

static const char *read_log_level(const char *text, void *to)
{
    if (*text && (strspn(text, "01234") != 1 || text[1]))
        return "not a level from 0 to 4";
    copy_text(to, sizeof(((struct nvidia_config *)0)->log_level), text);
    return NULL;
}

/* Section nvidia. A row without a reader is a list; it is passed over, or read by mig_config.c. */
static const struct key {
    const char *name;
    const char *(*read)(const char *text, void *to);
    size_t member;
} nvidia_keys[] = {
#define KEY(name, read, member)                                                                    \
    {                                                                                              \
        name, read, offsetof(struct nvidia_config, member)                                         \
    }
    KEY("resourceCountName", read_name, count_name),
    KEY("resourceMemoryName", read_name, memory_name),
    KEY("resourceMemoryPercentageName", read_name, memory_percent_name),
    KEY("resourceCoreName", read_name, cores_name),
    KEY("resourcePriorityName", read_name, priority_name),
    KEY("overwriteEnv", read_switch, overwrite_env),
    KEY("defaultMemory", read_int32, default_memory_mib),
    KEY("defaultCores", read_int32, default_cores),
    KEY("defaultGPUNum", read_int32, default_count),
    KEY("memoryFactor", read_int32, memory_factor),
    KEY("deviceSplitCount", read_split, split_count),
    KEY("deviceMemoryScaling", read_scaling, memory_scaling),
    KEY("deviceCoreScaling", read_scaling, cores_scaling),
    KEY("preConfiguredDeviceMemory", read_int64, preconfigured_memory_mib),
    KEY("enableNumaTopology", read_switch, numa_topology),
    KEY("libCudaLogLevel", read_log_level, log_level),
    KEY("disableCoreLimit", read_switch, disable_core_limit),
    KEY("gpuCorePolicy", read_core_policy, core_policy),
    KEY("runtimeClassName", read_name, runtime_class),
#undef KEY
    {"migProfileAllowlist", NULL, 0},
    {"knownMigGeometries", NULL, 0},
};

static int read_value(const struct yaml_reading *reading, const struct key *key,
                      const yaml_node_t *value, struct nvidia_config *config)
{
    const char *text, *wrong;
    char path[64] = "nvidia.";

    strncat(path, key->name, sizeof(path) - strlen(path) - 1);
    if (yaml_is_null(value))
        return 0;
    if (strcmp(key->name, "knownMigGeometries") == 0)
        return mig_config_read(reading, value, config);
    if (!key->read)
        return value->type == YAML_SEQUENCE_NODE ? 0
                                                 : yaml_refuse(reading, value, path, "not a list");
    text = yaml_text(value);
    if (!text)
        return yaml_refuse(reading, value, path, "not a single value");
    wrong = key->read(text, (char *)config + key->member);
    return wrong ? yaml_refuse(reading, value, path, wrong) : 0;
}

static const struct key *find_key(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(nvidia_keys); i++) {
        if (strcmp(nvidia_keys[i].name, name) == 0)
            return &nvidia_keys[i];
    }
    return NULL;
}

static bool is_other_section(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(other_sections); i++) {
        if (strcmp(other_sections[i], name) == 0)
            return true;
    }
    return false;
}

static int read_nvidia(const struct yaml_reading *reading, const yaml_node_t *section,
                       struct nvidia_config *config)
{
    const char *name;
    int r;

    if (yaml_is_null(section))
        return 0;
    if (section->type != YAML_MAPPING_NODE)
        return yaml_refuse(reading, section, "nvidia", "not a section of keys");
    for (const yaml_node_pair_t *pair = section->data.mapping.pairs.start;
         pair < section->data.mapping.pairs.top; pair++) {
        const struct key *key;

        r = yaml_key(reading, section, pair, "nvidia", &name);
        if (r < 0)
            return r;
        key = find_key(name);
        if (!key)
            return yaml_refuse(reading, yaml_document_get_node(reading->tree, pair->key), name,
                               "no such key in nvidia");
        r = read_value(reading, key, yaml_document_get_node(reading->tree, pair->value), config);
        if (r < 0)
            return r;
    }
    return 0;
}

static int read_sections(const struct yaml_reading *reading, struct device_config *config)
{
    const yaml_node_t *root = yaml_document_get_root_node(reading->tree);
    const char *name;
    int r;

    if (!root || yaml_is_null(root))
        return 0;
    if (root->type != YAML_MAPPING_NODE)
        return yaml_refuse(reading, root, "", "not sections of vendors");
    for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start;
         pair < root->data.mapping.pairs.top; pair++) {
        const yaml_node_t *value = yaml_document_get_node(reading->tree, pair->value);

        r = yaml_key(reading, root, pair, "", &name);
        if (r < 0)
            return r;
        if (strcmp(name, "nvidia") == 0) {
            config->has_nvidia = true;
            r = read_nvidia(reading, value, &config->nvidia);
        } else if (!is_other_section(name)) {
            r = yaml_refuse(reading, yaml_document_get_node(reading->tree, pair->key), name,
                            "no such section");
        }
        if (r < 0)
            return r;
    }
    return 0;
}

/* HAMi's values for missing keys; for keys without which it crashes, its chart's values. */
static void set_missing(struct nvidia_config *ret_config)
{
    *ret_config = (struct nvidia_config){
        .split_count = DEVICE_DEFAULT_MAX_TASKS,
        .memory_scaling = 1,
        .cores_scaling = 1,
    };
}

int device_config_parse(const char *name, const char *text, size_t len,
                        struct device_config *ret_config, struct error *err)
{
    struct device_config config = {.has_nvidia = false};
    yaml_document_t tree;
    int r;

    if (len > FILE_MAX)
        return error_set(err, -EFBIG, "%s: more than 256 KiB", name);
    r = yaml_load(name, text, len, &tree, err);
    if (r < 0)
        return r;
    set_missing(&config.nvidia);
    r = read_sections(&(struct yaml_reading){.name = name, .tree = &tree, .err = err}, &config);
    yaml_document_delete(&tree);
    if (r < 0)
        return r;
    *ret_config = config;
    return 0;
}

/* Pods can ask for devices only where a vendor names its counted resource. */
static int check_complete(const char *path, const struct device_config *config, struct error *err)
{
    if (!config->has_nvidia)
        return error_set(err, -EINVAL, "%s: it has no section nvidia, so there is nothing to share",
                         path);
    if (!config->nvidia.count_name[0])
        return error_set(err, -EINVAL,
                         "%s: nvidia.resourceCountName: not given; pods could not ask for a device",
                         path);
    return 0;
}

int device_config_load(const char *path, struct device_config *ret_config, struct error *err)
{
    AUTOFREE char *text = malloc(FILE_MAX + 1);
    struct device_config config;
    ssize_t len;
    int r;

    if (!text)
        return error_set(err, -ENOMEM, "%s: no memory", path);
    len = file_read(path, text, FILE_MAX + 1);
    if (len == -EFBIG)
        return error_set(err, -EFBIG, "%s: more than 256 KiB", path);
    if (len < 0)
        return error_set(err, (int)len, "%s: %s", path, strerror((int)-len));
    r = device_config_parse(path, text, (size_t)len, &config, err);
    if (r == 0)
        r = check_complete(path, &config, err);
    if (r == 0)
        *ret_config = config;
    return r;
}

void device_config_vendors(const struct device_config *config, struct vendor_set *ret_set)
{
    *ret_set = (struct vendor_set){.count = 0};
    if (config->has_nvidia)
        (void)nvidia_add_instance(ret_set, &config->nvidia);
}
