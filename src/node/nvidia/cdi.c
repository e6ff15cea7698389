/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/cdi.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "base/util.h"
#include "config/yaml_reading.h"
#include "node/spec.h"

enum {
    KEYS_MAX = 256,
};

/* Reading */

struct reading {
    struct yaml_reading yaml;
    struct arena *arena;
};

struct item_type;

/* A key of a mapping; keys without a row are passed over. */
struct field {
    const char *name;
    int (*read)(const struct reading *reading, const yaml_node_t *value, const struct field *field,
                void *to);
    size_t member;
    const struct item_type *items; /* of lists and mappings */
    bool required;
    bool absolute; /* text that must be a path from the root */
};

/* The type of a list's items: mappings with these fields, or single values. */
struct item_type {
    size_t size;
    const struct field *fields;
    size_t field_count;
    struct field value;
};

static int read_text(const struct reading *reading, const yaml_node_t *value,
                     const struct field *field, void *to)
{
    const char *text = yaml_text(value), *copy;

    if (!text)
        return yaml_refuse(&reading->yaml, value, field->name, "not a single value");
    if (field->absolute && *text != '/')
        return yaml_refuse(&reading->yaml, value, field->name, "not an absolute path");
    copy = arena_strdup(reading->arena, text);
    if (!copy)
        return -ENOMEM;
    *(const char **)to = copy;
    return 0;
}

static int read_variable(const struct reading *reading, const yaml_node_t *value,
                         const struct field *field, void *to)
{
    const char *text = yaml_text(value);

    if (!text || *text == '=' || !strchr(text, '='))
        return yaml_refuse(&reading->yaml, value, field->name, "not a variable, NAME=value");
    return read_text(reading, value, field, to);
}

/* Decimal, or octal as YAML 1.1 has it: 0666. */
static int read_number(const struct reading *reading, const yaml_node_t *value,
                       const struct field *field, void *to)
{
    const char *text = yaml_text(value);
    uint64_t number = 0;
    bool octal = text && text[0] == '0' && text[1] && strspn(text, "01234567") == strlen(text);

    if (octal && strlen(text) < 12)
        number = strtoull(text, NULL, 8);
    else if (!text || parse_u64(text, &number) < 0 || number > UINT32_MAX)
        return yaml_refuse(&reading->yaml, value, field->name, "not a number of 32 bits");
    *(int64_t *)to = (int64_t)number;
    return 0;
}

static const struct field *find_field(const struct item_type *type, const char *name)
{
    for (size_t i = 0; i < type->field_count; i++) {
        if (strcmp(type->fields[i].name, name) == 0)
            return &type->fields[i];
    }
    return NULL;
}

static int read_pair(const struct reading *reading, const yaml_node_t *mapping,
                     const yaml_node_pair_t *pair, const struct item_type *type, void *to)
{
    const yaml_node_t *value = yaml_document_get_node(reading->yaml.tree, pair->value);
    const struct field *field;
    const char *name;
    int r;

    r = yaml_key(&reading->yaml, mapping, pair, "", &name);
    if (r < 0)
        return r;
    field = find_field(type, name);
    if (!field || yaml_is_null(value))
        return 0;
    return field->read(reading, value, field, (char *)to + field->member);
}

static int check_required(const struct reading *reading, const yaml_node_t *mapping,
                          const struct item_type *type, const void *to)
{
    for (size_t i = 0; i < type->field_count; i++) {
        const struct field *field = &type->fields[i];

        if (field->required && !*(const void *const *)((const char *)to + field->member))
            return yaml_refuse(&reading->yaml, mapping, field->name, "not given");
    }
    return 0;
}

static int read_mapping(const struct reading *reading, const yaml_node_t *value,
                        const struct field *field, void *to)
{
    const struct item_type *type = field->items;
    const yaml_node_pair_t *pair, *top;
    int r = 0;

    if (value->type != YAML_MAPPING_NODE)
        return yaml_refuse(&reading->yaml, value, field->name, "not an object");
    pair = value->data.mapping.pairs.start;
    top = value->data.mapping.pairs.top;
    if (top - pair > KEYS_MAX)
        return yaml_refuse(&reading->yaml, value, field->name, "too many keys");
    for (; pair < top && r == 0; pair++)
        r = read_pair(reading, value, pair, type, to);
    return r < 0 ? r : check_required(reading, value, type, to);
}

/* Numbers that are not given are -1. */
static void set_absent(const struct item_type *type, void *to)
{
    for (size_t i = 0; i < type->field_count; i++) {
        if (type->fields[i].read == read_number)
            *(int64_t *)((char *)to + type->fields[i].member) = -1;
    }
}

static int read_list(const struct reading *reading, const yaml_node_t *value,
                     const struct field *field, void *to)
{
    const struct item_type *type = field->items;
    struct cdi_list *list = to;
    int r = 0;

    if (value->type != YAML_SEQUENCE_NODE)
        return yaml_refuse(&reading->yaml, value, field->name, "not a list");
    if (yaml_count(value) > CDI_ITEMS_MAX)
        return yaml_refuse(&reading->yaml, value, field->name, "too many entries");
    list->items = arena_alloc_array(reading->arena, yaml_count(value), type->size);
    if (!list->items)
        return -ENOMEM;
    for (size_t i = 0; i < yaml_count(value) && r == 0; i++) {
        void *item = (char *)list->items + list->count++ * type->size;

        set_absent(type, item);
        r = type->value.read(reading, yaml_item(&reading->yaml, value, i), &type->value, item);
    }
    return r;
}

/* The specification's shape */

static const struct item_type texts = {
    .size = sizeof(const char *),
    .value = {.name = "text", .read = read_text},
};
static const struct item_type variables = {
    .size = sizeof(const char *),
    .value = {.name = "env", .read = read_variable},
};
static const struct item_type numbers = {
    .size = sizeof(int64_t),
    .value = {.name = "additionalGids", .read = read_number},
};

#define FIELD(type, name_, read_, member_, ...)                                                    \
    {                                                                                              \
        .name = name_, .read = read_, .member = offsetof(struct type, member_), __VA_ARGS__        \
    }
#define MAPPINGS(type, name_, fields_)                                                             \
    static const struct item_type type##s = {                                                      \
        .size = sizeof(struct type),                                                               \
        .fields = fields_,                                                                         \
        .field_count = ARRAY_SIZE(fields_),                                                        \
        .value = {.name = name_, .read = read_mapping, .items = &type##s},                         \
    }

static const struct field node_fields[] = {
    FIELD(cdi_node, "path", read_text, path, .required = true, .absolute = true),
    FIELD(cdi_node, "hostPath", read_text, host_path, .absolute = true),
    FIELD(cdi_node, "type", read_text, type),
    FIELD(cdi_node, "permissions", read_text, permissions),
    FIELD(cdi_node, "major", read_number, major_number),
    FIELD(cdi_node, "minor", read_number, minor_number),
    FIELD(cdi_node, "fileMode", read_number, file_mode),
    FIELD(cdi_node, "uid", read_number, uid),
    FIELD(cdi_node, "gid", read_number, gid),
};
MAPPINGS(cdi_node, "deviceNodes", node_fields);

/* The source of a mount need not be a path: with type tmpfs it is none. */
static const struct field mount_fields[] = {
    FIELD(cdi_mount, "hostPath", read_text, host_path, .required = true),
    FIELD(cdi_mount, "containerPath", read_text, container_path, .required = true,
          .absolute = true),
    FIELD(cdi_mount, "type", read_text, type),
    FIELD(cdi_mount, "options", read_list, options, .items = &texts),
};
MAPPINGS(cdi_mount, "mounts", mount_fields);

static const struct field hook_fields[] = {
    FIELD(cdi_hook, "hookName", read_text, name, .required = true),
    FIELD(cdi_hook, "path", read_text, path, .required = true, .absolute = true),
    FIELD(cdi_hook, "args", read_list, args, .items = &texts),
    FIELD(cdi_hook, "env", read_list, env, .items = &variables),
    FIELD(cdi_hook, "timeout", read_number, timeout),
};
MAPPINGS(cdi_hook, "hooks", hook_fields);

static const struct field edits_fields[] = {
    FIELD(cdi_edits, "env", read_list, env, .items = &variables),
    FIELD(cdi_edits, "deviceNodes", read_list, nodes, .items = &cdi_nodes),
    FIELD(cdi_edits, "mounts", read_list, mounts, .items = &cdi_mounts),
    FIELD(cdi_edits, "hooks", read_list, hooks, .items = &cdi_hooks),
    FIELD(cdi_edits, "additionalGids", read_list, gids, .items = &numbers),
};
MAPPINGS(cdi_edits, "containerEdits", edits_fields);

static const struct field device_fields[] = {
    FIELD(cdi_device, "name", read_text, name, .required = true),
    FIELD(cdi_device, "containerEdits", read_mapping, edits, .items = &cdi_editss),
};
MAPPINGS(cdi_device, "devices", device_fields);

static const struct field spec_fields[] = {
    FIELD(cdi_spec, "kind", read_text, kind, .required = true),
    FIELD(cdi_spec, "devices", read_list, devices, .items = &cdi_devices),
    FIELD(cdi_spec, "containerEdits", read_mapping, edits, .items = &cdi_editss),
};
MAPPINGS(cdi_spec, "specification", spec_fields);

int cdi_spec_parse(const char *file, const char *text, size_t len, struct arena *arena,
                   struct cdi_spec *ret_spec, struct error *err)
{
    struct cdi_spec spec = {.file = arena_strdup(arena, file)};
    const yaml_node_t *root;
    yaml_document_t tree;
    struct reading reading = {.yaml = {.name = file, .tree = &tree, .err = err}, .arena = arena};
    int r;

    if (len > CDI_FILE_MAX)
        return error_set(err, -EFBIG, "%s: more than 1 MiB", file);
    r = yaml_load(file, text, len, &tree, err);
    if (r < 0)
        return r;
    root = yaml_document_get_root_node(&tree);
    if (!root)
        r = error_set(err, -EINVAL, "%s: it is empty", file);
    else if (!spec.file)
        r = -ENOMEM;
    else
        r = read_mapping(&reading, root, &cdi_specs.value, &spec);
    yaml_document_delete(&tree);
    if (r == -ENOMEM)
        return error_set(err, r, "%s: it has too much in it", file);
    if (r == 0)
        *ret_spec = spec;
    return r;
}

/* Choosing */

static const struct cdi_device *find_device(const struct cdi_spec *spec, const char *name)
{
    const struct cdi_device *devices = spec->devices.items;

    for (size_t i = 0; i < spec->devices.count; i++) {
        if (strcmp(devices[i].name, name) == 0)
            return &devices[i];
    }
    return NULL;
}

static const struct cdi_device *find_card(const struct cdi_spec *spec, const struct cdi_card *card)
{
    const struct cdi_device *device = find_device(spec, card->uuid);
    char name[16];

    (void)snprintf(name, sizeof(name), "gpu%u", card->index);
    if (device || card->is_instance)
        return device;
    device = find_device(spec, name + strlen("gpu"));
    return device ? device : find_device(spec, name);
}

static bool has_part(const struct cdi_choice *choice, const struct cdi_edits *edits)
{
    for (size_t i = 0; i < choice->count; i++) {
        if (choice->parts[i] == edits)
            return true;
    }
    return false;
}

static int add_part(struct cdi_choice *choice, const struct cdi_edits *edits)
{
    if (has_part(choice, edits))
        return 0;
    if (choice->count == CDI_PARTS_MAX)
        return -E2BIG;
    choice->parts[choice->count++] = edits;
    return 0;
}

/* 1: added, 0: no specification has it. */
static int add_card(const struct cdi_spec *specs, size_t count, const struct cdi_card *card,
                    bool by_all, struct cdi_choice *choice)
{
    for (size_t i = 0; i < count; i++) {
        const struct cdi_device *device;
        int r;

        if (strcmp(specs[i].kind, CDI_DRIVER_KIND) != 0)
            continue;
        device = by_all ? find_device(&specs[i], "all") : find_card(&specs[i], card);
        if (!device)
            continue;
        r = add_part(choice, &specs[i].edits);
        if (r == 0)
            r = add_part(choice, &device->edits);
        return r < 0 ? r : 1;
    }
    return 0;
}

/* As add_card(), what a specification gives to all of its devices. */
static int add_general(const struct cdi_spec *specs, size_t count, struct cdi_choice *choice)
{
    for (size_t i = 0; i < count; i++) {
        int r;

        if (strcmp(specs[i].kind, CDI_DRIVER_KIND) != 0)
            continue;
        r = add_part(choice, &specs[i].edits);
        choice->lacks_nodes = true;
        return r < 0 ? r : 1;
    }
    return 0;
}

int cdi_choose(const struct cdi_spec *specs, size_t spec_count, const struct cdi_card *cards,
               size_t card_count, bool has_every_card, struct cdi_choice *ret_choice,
               struct error *err)
{
    struct cdi_choice choice = {.count = 0};

    for (size_t i = 0; i < card_count; i++) {
        int r = add_card(specs, spec_count, &cards[i], false, &choice);

        if (r == 0 && has_every_card)
            r = add_card(specs, spec_count, &cards[i], true, &choice);
        if (r == 0 && cards[i].is_instance)
            r = add_general(specs, spec_count, &choice);
        if (r < 0)
            return error_set(err, r, "the CDI specifications have too many parts for it");
        if (r == 0)
            return error_set(err, -ENODEV,
                             "no CDI specification of kind " CDI_DRIVER_KIND " has card %.96s",
                             cards[i].uuid);
    }
    *ret_choice = choice;
    return 0;
}

/* Writing */

static void add_key(struct strbuf *spec, const char *key)
{
    spec_add_separator(spec);
    strbuf_add_json(spec, key);
    strbuf_add(spec, ":");
}

static void add_text(struct strbuf *spec, const char *key, const char *text)
{
    if (!text)
        return;
    add_key(spec, key);
    strbuf_add_json(spec, text);
}

static void add_number(struct strbuf *spec, const char *key, int64_t number)
{
    if (number < 0)
        return;
    add_key(spec, key);
    strbuf_addf(spec, "%lld", (long long)number);
}

static void add_texts(struct strbuf *spec, const char *key, const struct cdi_list *list)
{
    const char *const *items = list->items;

    if (!list->count)
        return;
    add_key(spec, key);
    strbuf_add(spec, "[");
    for (size_t i = 0; i < list->count; i++) {
        spec_add_separator(spec);
        strbuf_add_json(spec, items[i]);
    }
    strbuf_add(spec, "]");
}

/* Whether an element stands earlier in the choice; offset is the list's in struct cdi_edits. */
static bool is_repeated(const struct cdi_choice *choice, size_t part, size_t list_member,
                        size_t position, size_t size,
                        bool (*equal)(const void *left, const void *right))
{
    const struct cdi_list *mine = (const void *)((const char *)choice->parts[part] + list_member);
    const void *item = (const char *)mine->items + position * size;

    for (size_t i = 0; i <= part; i++) {
        const struct cdi_list *list = (const void *)((const char *)choice->parts[i] + list_member);
        size_t count = i < part ? list->count : position;

        for (size_t k = 0; k < count; k++) {
            if (equal((const char *)list->items + k * size, item))
                return true;
        }
    }
    return false;
}

static bool equal_texts(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right) == 0;
}

static bool equal_numbers(const void *left, const void *right)
{
    return *(const int64_t *)left == *(const int64_t *)right;
}

static bool equal_nodes(const void *left, const void *right)
{
    return strcmp(((const struct cdi_node *)left)->path, ((const struct cdi_node *)right)->path) ==
           0;
}

static bool equal_mounts(const void *left, const void *right)
{
    return strcmp(((const struct cdi_mount *)left)->container_path,
                  ((const struct cdi_mount *)right)->container_path) == 0;
}

static bool equal_lists(const struct cdi_list *left, const struct cdi_list *right)
{
    const char *const *mine = left->items, *const *theirs = right->items;

    if (left->count != right->count)
        return false;
    for (size_t i = 0; i < left->count; i++) {
        if (strcmp(mine[i], theirs[i]) != 0)
            return false;
    }
    return true;
}

static bool equal_hooks(const void *left, const void *right)
{
    const struct cdi_hook *mine = left, *theirs = right;

    return strcmp(mine->name, theirs->name) == 0 && strcmp(mine->path, theirs->path) == 0 &&
           equal_lists(&mine->args, &theirs->args) && equal_lists(&mine->env, &theirs->env);
}

static void write_node(const struct cdi_node *node, struct strbuf *spec)
{
    strbuf_add(spec, "{");
    add_text(spec, "path", node->path);
    add_text(spec, "hostPath", node->host_path);
    add_text(spec, "type", node->type);
    add_number(spec, "major", node->major_number);
    add_number(spec, "minor", node->minor_number);
    add_number(spec, "fileMode", node->file_mode);
    add_text(spec, "permissions", node->permissions);
    add_number(spec, "uid", node->uid);
    add_number(spec, "gid", node->gid);
    strbuf_add(spec, "}");
}

static void write_mount(const struct cdi_mount *mount, struct strbuf *spec)
{
    strbuf_add(spec, "{");
    add_text(spec, "hostPath", mount->host_path);
    add_text(spec, "containerPath", mount->container_path);
    add_text(spec, "type", mount->type);
    add_texts(spec, "options", &mount->options);
    strbuf_add(spec, "}");
}

static void write_hook(const struct cdi_hook *hook, struct strbuf *spec)
{
    strbuf_add(spec, "{");
    add_text(spec, "hookName", hook->name);
    add_text(spec, "path", hook->path);
    add_texts(spec, "args", &hook->args);
    add_texts(spec, "env", &hook->env);
    add_number(spec, "timeout", hook->timeout);
    strbuf_add(spec, "}");
}

void cdi_add_env(const struct cdi_choice *choice, bool (*skip)(const char *text),
                 struct strbuf *spec)
{
    for (size_t part = 0; part < choice->count; part++) {
        const struct cdi_list *list = &choice->parts[part]->env;
        const char *const *items = list->items;

        for (size_t i = 0; i < list->count; i++) {
            if (skip(items[i]) || is_repeated(choice, part, offsetof(struct cdi_edits, env), i,
                                              sizeof(*items), equal_texts))
                continue;
            spec_add_separator(spec);
            strbuf_add_json(spec, items[i]);
        }
    }
}

void cdi_add_mounts(const struct cdi_choice *choice, bool (*skip)(const char *path),
                    struct strbuf *spec)
{
    for (size_t part = 0; part < choice->count; part++) {
        const struct cdi_list *list = &choice->parts[part]->mounts;
        const struct cdi_mount *items = list->items;

        for (size_t i = 0; i < list->count; i++) {
            if (skip(items[i].container_path) ||
                is_repeated(choice, part, offsetof(struct cdi_edits, mounts), i, sizeof(*items),
                            equal_mounts))
                continue;
            spec_add_separator(spec);
            write_mount(&items[i], spec);
        }
    }
}

void cdi_add_nodes(const struct cdi_choice *choice, struct strbuf *spec)
{
    for (size_t part = 0; part < choice->count; part++) {
        const struct cdi_list *list = &choice->parts[part]->nodes;
        const struct cdi_node *items = list->items;

        for (size_t i = 0; i < list->count; i++) {
            if (is_repeated(choice, part, offsetof(struct cdi_edits, nodes), i, sizeof(*items),
                            equal_nodes))
                continue;
            spec_add_separator(spec);
            write_node(&items[i], spec);
        }
    }
}

void cdi_add_hooks(const struct cdi_choice *choice, struct strbuf *spec)
{
    for (size_t part = 0; part < choice->count; part++) {
        const struct cdi_list *list = &choice->parts[part]->hooks;
        const struct cdi_hook *items = list->items;

        for (size_t i = 0; i < list->count; i++) {
            if (is_repeated(choice, part, offsetof(struct cdi_edits, hooks), i, sizeof(*items),
                            equal_hooks))
                continue;
            spec_add_separator(spec);
            write_hook(&items[i], spec);
        }
    }
}

void cdi_add_gids(const struct cdi_choice *choice, struct strbuf *spec)
{
    for (size_t part = 0; part < choice->count; part++) {
        const struct cdi_list *list = &choice->parts[part]->gids;
        const int64_t *items = list->items;

        for (size_t i = 0; i < list->count; i++) {
            if (is_repeated(choice, part, offsetof(struct cdi_edits, gids), i, sizeof(*items),
                            equal_numbers))
                continue;
            spec_add_separator(spec);
            strbuf_addf(spec, "%lld", (long long)items[i]);
        }
    }
}
