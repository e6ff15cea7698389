/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/answer.h"

#include <errno.h>
#include <string.h>
#include <yyjson.h>

#include "base/cleanup.h"

/* One of the lists that are laid out: makes a message of an element. */
struct list_type {
    size_t size; /* of a message */
    int (*read)(yyjson_val *item, struct arena *arena, void *message, struct error *err);
};

static char *copy_member(yyjson_val *item, const char *key, struct arena *arena)
{
    const char *text = yyjson_get_str(yyjson_obj_get(item, key));

    return text ? arena_strdup(arena, text) : NULL;
}

static int read_variable(yyjson_val *item, struct arena *arena, void *message, struct error *err)
{
    char *text = arena_strdup(arena, yyjson_get_str(item)), *equals;
    V1beta1__EnvsEntry *entry = message;

    if (!text)
        return error_set(err, -ENOMEM, "no memory");
    equals = strchr(text, '=');
    if (!equals)
        return error_set(err, -EINVAL, "\"%.64s\" is no variable, NAME=value", text);
    *equals = '\0';
    v1beta1__envs_entry__init(entry);
    entry->key = text;
    entry->value = equals + 1;
    return 0;
}

static bool has_option(yyjson_val *mount, const char *wanted)
{
    size_t index, max;
    yyjson_val *item;

    yyjson_arr_foreach(yyjson_obj_get(mount, "options"), index, max, item)
    {
        if (yyjson_equals_str(item, wanted))
            return true;
    }
    return false;
}

static int read_mount(yyjson_val *item, struct arena *arena, void *message, struct error *err)
{
    const char *type = yyjson_get_str(yyjson_obj_get(item, "type"));
    V1beta1__Mount *mount = message;

    v1beta1__mount__init(mount);
    mount->host_path = copy_member(item, "hostPath", arena);
    mount->container_path = copy_member(item, "containerPath", arena);
    mount->read_only = has_option(item, "ro");
    if (!mount->host_path || !mount->container_path)
        return error_set(err, -ENOMEM, "no memory");
    if (type && *type && strcmp(type, "bind") != 0 && strcmp(type, "none") != 0)
        return error_set(err, -EINVAL,
                         "%.96s is to be a mount of type %.16s, and without CDI there are bind "
                         "mounts alone",
                         mount->container_path, type);
    return 0;
}

static int read_node(yyjson_val *item, struct arena *arena, void *message, struct error *err)
{
    V1beta1__DeviceSpec *node = message;

    v1beta1__device_spec__init(node);
    node->container_path = copy_member(item, "path", arena);
    node->host_path = copy_member(item, "hostPath", arena);
    node->permissions = copy_member(item, "permissions", arena);
    if (!node->host_path || !*node->host_path)
        node->host_path = node->container_path;
    if (!node->permissions || !*node->permissions)
        node->permissions = (char *)"rw";
    return node->container_path ? 0 : error_set(err, -ENOMEM, "no memory");
}

static const struct list_type variables = {sizeof(V1beta1__EnvsEntry), read_variable};
static const struct list_type mounts = {sizeof(V1beta1__Mount), read_mount};
static const struct list_type nodes = {sizeof(V1beta1__DeviceSpec), read_node};

static int read_items(yyjson_val *root, const struct list_type *type, struct arena *arena,
                      void ***ret_items, size_t *ret_count, struct error *err)
{
    size_t count = yyjson_arr_size(root), index, max;
    void **items = arena_alloc_array(arena, count + 1, sizeof(*items));
    char *messages = arena_alloc_array(arena, count + 1, type->size);
    yyjson_val *item;
    int r;

    if (!items || !messages)
        return error_set(err, -ENOMEM, "no memory");
    yyjson_arr_foreach(root, index, max, item)
    {
        items[index] = messages + index * type->size;
        r = type->read(item, arena, items[index], err);
        if (r < 0)
            return r;
    }
    *ret_items = items;
    *ret_count = count;
    return 0;
}

/* The list has the elements alone, with commas between them. */
static int read_list(const struct strbuf *list, const struct list_type *type, struct arena *arena,
                     void ***ret_items, size_t *ret_count, struct error *err)
{
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(SPEC_MAX + 2);
    yyjson_doc *doc;
    int r;

    strbuf_addf(&text, "[%s]", list->len ? list->text : "");
    if (text.failed || list->failed)
        return error_set(err, -ENOMEM, "what the container is to get is too long");
    doc = yyjson_read(text.text, text.len, 0);
    if (!doc)
        return error_set(err, -ENOMEM, "no memory");
    r = read_items(yyjson_doc_get_root(doc), type, arena, ret_items, ret_count, err);
    yyjson_doc_free(doc);
    return r;
}

int answer_lay_out(const struct spec_edits *edits, struct arena *arena,
                   V1beta1__ContainerAllocateResponse *ret_response, struct error *err)
{
    V1beta1__ContainerAllocateResponse response;
    void **items[3];
    int r;

    v1beta1__container_allocate_response__init(&response);
    r = read_list(&edits->env, &variables, arena, &items[0], &response.n_envs, err);
    if (r == 0)
        r = read_list(&edits->mounts, &mounts, arena, &items[1], &response.n_mounts, err);
    if (r == 0)
        r = read_list(&edits->nodes, &nodes, arena, &items[2], &response.n_devices, err);
    if (r < 0)
        return r;
    response.envs = (V1beta1__EnvsEntry **)items[0];
    response.mounts = (V1beta1__Mount **)items[1];
    response.devices = (V1beta1__DeviceSpec **)items[2];
    *ret_response = response;
    return 0;
}
