/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/node_config.h"

#include <errno.h>
#include <string.h>
#include <yyjson.h>

#include "base/file.h"
#include "base/log.h"
#include "base/util.h"
#include "config/device_config.h"

enum {
    FILE_MAX = 1 << 20,
};

int nvidia_config_load(const char *path, struct nvidia_config *ret_config, struct error *err)
{
    struct device_config config;
    const struct nvidia_config *own;
    int r;

    if (!path || !*path) {
        nvidia_config_defaults(ret_config);
        return 0;
    }
    r = device_config_load(path, &config, err);
    if (r < 0)
        return r;
    own = device_config_of(&config, &nvidia_vendor);
    if (own)
        *ret_config = *own;
    else
        r = error_set(err, -EINVAL, "%s: it has no section nvidia", path);
    device_config_deinit(&config);
    return r;
}

struct target {
    const char *name; /* of the file, for messages */
    struct nvidia_config *config;
    struct card_filter *filter;
    char *mode;
    struct error *err;
};

static int node_config_refuse(const struct target *target, const char *key, const char *why)
{
    return error_set(target->err, -EINVAL, "%s: nodeconfig: %s: %s", target->name, key, why);
}

static int read_number(const struct target *target, yyjson_val *value, const char *key, double max,
                       double *ret_number)
{
    double number = yyjson_get_num(value);

    if (!yyjson_is_num(value) || number < 0 || number > max)
        return node_config_refuse(target, key, "not a number, or out of range");
    *ret_number = number;
    return 0;
}

static int read_text(const struct target *target, yyjson_val *value, const char *key, char *to,
                     size_t size)
{
    const char *text = yyjson_get_str(value);

    if (!text || strlen(text) >= size)
        return node_config_refuse(target, key, "not a text, or too long");
    if (*text)
        copy_text(to, size, text);
    return 0;
}

static int read_split(const struct target *target, yyjson_val *value, const char *key)
{
    double number = 0;
    int r = read_number(target, value, key, 1000, &number);

    if (r == 0 && number >= 1)
        target->config->split_count = (uint32_t)number;
    return r;
}

static int read_memory_scaling(const struct target *target, yyjson_val *value, const char *key)
{
    double number = 0;
    int r = read_number(target, value, key, 1000, &number);

    if (r == 0 && number > 0)
        target->config->memory_scaling = number;
    return r;
}

static int read_core_scaling(const struct target *target, yyjson_val *value, const char *key)
{
    double number = 0;
    int r = read_number(target, value, key, 1000, &number);

    if (r == 0 && number > 0)
        target->config->cores_scaling = number;
    return r;
}

static int read_preconfigured(const struct target *target, yyjson_val *value, const char *key)
{
    double number = 0;
    int r = read_number(target, value, key, INT32_MAX, &number);

    if (r == 0 && number > 0)
        target->config->preconfigured_memory_mib = (int64_t)number;
    return r;
}

static int read_context(const struct target *target, yyjson_val *value, const char *key)
{
    double number = 0;
    int r = read_number(target, value, key, NVIDIA_CONTEXT_MAX_MIB, &number);

    if (r == 0 && number > 0)
        target->config->context_mib = (uint32_t)number;
    return r;
}

static int read_log_level(const struct target *target, yyjson_val *value, const char *key)
{
    return read_text(target, value, key, target->config->log_level,
                     sizeof(target->config->log_level));
}

static int read_mode(const struct target *target, yyjson_val *value, const char *key)
{
    char mode[DEVICE_MODE_SIZE] = "";
    int r = read_text(target, value, key, mode, sizeof(mode));

    if (r == 0 && mode[0])
        copy_text(target->mode, DEVICE_MODE_SIZE, mode);
    return r;
}

static int read_filter_uuids(const struct target *target, yyjson_val *list,
                             struct card_filter *filter)
{
    size_t index, max;
    yyjson_val *item;

    yyjson_arr_foreach(list, index, max, item)
    {
        const char *uuid = yyjson_get_str(item);

        if (!uuid || strlen(uuid) >= sizeof(filter->uuids[0]) || filter->uuid_count == CARDS_MAX)
            return node_config_refuse(target, "filterdevices.uuid",
                                      "not a list of at most 64 uuids");
        COPY_TEXT(filter->uuids[filter->uuid_count], uuid);
        filter->uuid_count++;
    }
    return 0;
}

static int read_filter_indices(const struct target *target, yyjson_val *list,
                               struct card_filter *filter)
{
    size_t index, max;
    yyjson_val *item;

    yyjson_arr_foreach(list, index, max, item)
    {
        uint64_t number = yyjson_get_uint(item);

        if (!yyjson_is_uint(item) || number > UINT32_MAX || filter->index_count == CARDS_MAX)
            return node_config_refuse(target, "filterdevices.index",
                                      "not a list of at most 64 numbers");
        filter->indices[filter->index_count++] = (unsigned)number;
    }
    return 0;
}

static int read_filter(const struct target *target, yyjson_val *value, const char *key)
{
    struct card_filter filter = {0};
    int r;

    if (!yyjson_is_obj(value))
        return node_config_refuse(target, key, "not an object");
    r = read_filter_uuids(target, yyjson_obj_get(value, "uuid"), &filter);
    if (r == 0)
        r = read_filter_indices(target, yyjson_obj_get(value, "index"), &filter);
    if (r == 0 && (filter.uuid_count || filter.index_count))
        *target->filter = filter;
    return r;
}

static const struct {
    const char *key;
    int (*read)(const struct target *target, yyjson_val *value, const char *key);
} keys[] = {
    {"devicesplitcount", read_split},         {"devicememoryscaling", read_memory_scaling},
    {"devicecorescaling", read_core_scaling}, {"preconfigureddevicememory", read_preconfigured},
    {"libcudaloglevel", read_log_level},      {"operatingmode", read_mode},
    {"filterdevices", read_filter},           {"contextsize", read_context},
};

/* HAMi's file may have keys of its own; a misspelt one is told of. */
static void say_unknown(const struct target *target, yyjson_val *entry)
{
    yyjson_val *key, *value;
    size_t index, max;

    yyjson_obj_foreach(entry, index, max, key, value)
    {
        const char *name = yyjson_get_str(key);
        bool known = strcmp(name, "name") == 0;

        (void)value;
        for (size_t i = 0; i < ARRAY_SIZE(keys) && !known; i++)
            known = strcmp(name, keys[i].key) == 0;
        if (!known)
            log_warn("%s: nodeconfig: %.64s has no effect", target->name, name);
    }
}

static int read_entry(const struct target *target, yyjson_val *entry)
{
    int r = 0;

    say_unknown(target, entry);

    for (size_t i = 0; i < ARRAY_SIZE(keys) && r == 0; i++) {
        yyjson_val *value = yyjson_obj_get(entry, keys[i].key);

        if (value && !yyjson_is_null(value))
            r = keys[i].read(target, value, keys[i].key);
    }
    return r;
}

static int read_entries(const struct target *target, yyjson_val *root, const char *node)
{
    yyjson_val *entries = yyjson_obj_get(root, "nodeconfig"), *entry;
    size_t index, max;
    int r = 0;

    if (!yyjson_is_arr(entries))
        return error_set(target->err, -EINVAL, "%s: no list nodeconfig", target->name);
    yyjson_arr_foreach(entries, index, max, entry)
    {
        const char *name = yyjson_get_str(yyjson_obj_get(entry, "name"));

        if (r == 0 && name && strcmp(name, node) == 0)
            r = read_entry(target, entry);
    }
    return r;
}

int node_config_parse(const char *name, const char *text, size_t len, const char *node,
                      struct nvidia_config *config, struct card_filter *filter,
                      char mode[DEVICE_MODE_SIZE], struct error *err)
{
    struct target target = {name, config, filter, mode, err};
    yyjson_read_err why;
    yyjson_doc *doc;
    int r;

    doc = yyjson_read_opts((char *)text, len, 0, NULL, &why);
    if (!doc)
        return error_set(err, -EINVAL, "%s: byte %zu: %s", name, why.pos, why.msg);
    r = read_entries(&target, yyjson_doc_get_root(doc), node);
    yyjson_doc_free(doc);
    return r;
}

int node_config_load(const char *path, const char *node, struct nvidia_config *config,
                     struct card_filter *filter, char mode[DEVICE_MODE_SIZE], struct error *err)
{
    AUTOFREE char *text = malloc(FILE_MAX);
    ssize_t len;

    if (!text)
        return error_set(err, -ENOMEM, "%s: no memory", path);
    len = file_read(path, text, FILE_MAX);
    if (len == -ENOENT)
        return 0;
    if (len < 0)
        return error_set(err, (int)len, "%s: %s", path, strerror((int)-len));
    return node_config_parse(path, text, (size_t)len, node, config, filter, mode, err);
}
