/* SPDX-License-Identifier: Apache-2.0 */
#include "config/mig_config.h"

#include <errno.h>
#include <string.h>

#include "base/parse.h"
#include "base/util.h"

#define PATH "nvidia.knownMigGeometries"

/* A key of a mapping, and its reader. */
struct member {
    const char *name;
    int (*read)(const struct yaml_reading *reading, const yaml_node_t *value, void *to);
};

static int check_list(const struct yaml_reading *reading, const yaml_node_t *node, size_t max)
{
    if (node->type != YAML_SEQUENCE_NODE)
        return yaml_refuse(reading, node, PATH, "not a list");
    return yaml_count(node) > max ? yaml_refuse(reading, node, PATH, "too many") : 0;
}

/* Reads a mapping; each of its keys must be one of the members. */
static int read_mapping(const struct yaml_reading *reading, const yaml_node_t *node,
                        const struct member *members, size_t count, void *to)
{
    const char *name;
    int r;

    if (node->type != YAML_MAPPING_NODE)
        return yaml_refuse(reading, node, PATH, "not keys and values");
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        size_t i = 0;

        r = yaml_key(reading, node, pair, PATH, &name);
        if (r < 0)
            return r;
        while (i < count && strcmp(members[i].name, name) != 0)
            i++;
        if (i == count)
            return yaml_refuse(reading, yaml_document_get_node(reading->tree, pair->key), name,
                               "no such key in " PATH);
        r = members[i].read(reading, yaml_document_get_node(reading->tree, pair->value), to);
        if (r < 0)
            return r;
    }
    return 0;
}

/* One kind of instance. */

static int read_mig_number(const struct yaml_reading *reading, const yaml_node_t *value,
                           uint64_t max, uint32_t *to)
{
    const char *text = yaml_text(value);
    uint64_t number;

    if (!text || parse_u64(text, &number) < 0 || number > max)
        return yaml_refuse(reading, value, PATH, "not a whole number within range");
    *to = (uint32_t)number;
    return 0;
}

static int skip_name(const struct yaml_reading *reading, const yaml_node_t *value, void *to)
{
    (void)to;
    return yaml_text(value) ? 0 : yaml_refuse(reading, value, PATH, "not a name");
}

static int read_core(const struct yaml_reading *reading, const yaml_node_t *value, void *to)
{
    return read_mig_number(reading, value, DEVICE_CORES, &((struct mig_kind *)to)->cores);
}

static int read_memory(const struct yaml_reading *reading, const yaml_node_t *value, void *to)
{
    return read_mig_number(reading, value, DEVICE_MAX_MIB, &((struct mig_kind *)to)->memory_mib);
}

static int read_count(const struct yaml_reading *reading, const yaml_node_t *value, void *to)
{
    return read_mig_number(reading, value, MIG_MAX_INSTANCES, &((struct mig_kind *)to)->count);
}

static const struct member kind_members[] = {
    {"name", skip_name},
    {"core", read_core},
    {"memory", read_memory},
    {"count", read_count},
};

static int read_group(const struct yaml_reading *reading, const yaml_node_t *list,
                      struct mig_group *group)
{
    unsigned instances = 0;
    int r = check_list(reading, list, MIG_MAX_KINDS);

    for (size_t i = 0; r == 0 && i < yaml_count(list); i++) {
        r = read_mapping(reading, yaml_item(reading, list, i), kind_members,
                         ARRAY_SIZE(kind_members), &group->kinds[i]);
        group->kind_count = i + 1;
        instances += group->kinds[i].count;
    }
    if (r == 0 && instances > MIG_MAX_INSTANCES)
        return yaml_refuse(reading, list, PATH, "more than 8 instances");
    return r;
}

/* The models that are cut alike. */

static int read_models(const struct yaml_reading *reading, const yaml_node_t *list, void *to)
{
    struct nvidia_mig *mig = to;
    int r = check_list(reading, list, NVIDIA_MIG_NAMES);

    for (size_t i = 0; r == 0 && i < yaml_count(list); i++) {
        const yaml_node_t *item = yaml_item(reading, list, i);
        const char *text = yaml_text(item);

        if (!text || !*text || strlen(text) >= sizeof(mig->names[0]))
            return yaml_refuse(reading, item, PATH, "not a model's name of at most 47 bytes");
        COPY_TEXT(mig->names[i], text);
        mig->name_count = i + 1;
    }
    return r;
}

static int read_groups(const struct yaml_reading *reading, const yaml_node_t *list, void *to)
{
    struct nvidia_mig *mig = to;
    int r = check_list(reading, list, MIG_MAX_GROUPS);

    for (size_t i = 0; r == 0 && i < yaml_count(list); i++) {
        r = read_group(reading, yaml_item(reading, list, i), &mig->geometry.groups[i]);
        mig->geometry.group_count = i + 1;
    }
    return r;
}

static const struct member mig_members[] = {
    {"models", read_models},
    {"allowedGeometries", read_groups},
};

int mig_config_read(const struct yaml_reading *reading, const yaml_node_t *list,
                    struct nvidia_config *config)
{
    int r = check_list(reading, list, NVIDIA_MIG_MODELS);

    for (size_t i = 0; r == 0 && i < yaml_count(list); i++) {
        r = read_mapping(reading, yaml_item(reading, list, i), mig_members, ARRAY_SIZE(mig_members),
                         &config->migs[i]);
        config->mig_count = i + 1;
    }
    return r;
}
