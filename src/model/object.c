/* SPDX-License-Identifier: Apache-2.0 */
#include "model/object.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"

static const char *const always_kept[] = {"hami.io/", "scheduling.x-k8s.io/"};

struct reading reading_of(const struct kept_names *kept, struct arena *arena, struct error *err)
{
    static const struct kept_names none = {0};

    return (struct reading){.kept = kept ? kept : &none, .arena = arena, .err = err};
}

bool has_prefix(const char *name, const char *const *prefixes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    }
    return false;
}

int reading_no_memory(const struct reading *reading)
{
    return error_set(reading->err, -ENOMEM, "larger than what is set aside for it");
}

int reading_refuse(const struct reading *reading, const char *where, const char *what)
{
    return error_set(reading->err, -EINVAL, "%s: %s", where, what);
}

static yyjson_val *member(yyjson_val *parent, const char *key)
{
    yyjson_val *value = yyjson_obj_get(parent, key);

    return yyjson_is_null(value) ? NULL : value;
}

static int refuse_member(const struct reading *reading, const char *where, const char *key,
                         const char *what)
{
    return error_set(reading->err, -EINVAL, "%s%s%s: %s", where, *where ? "." : "", key, what);
}

int reading_object(const struct reading *reading, yyjson_val *parent, const char *where,
                   const char *key, yyjson_val **ret_value)
{
    yyjson_val *value = member(parent, key);

    if (value && !yyjson_is_obj(value))
        return refuse_member(reading, where, key, "not an object");
    *ret_value = value;
    return 0;
}

int reading_array(const struct reading *reading, yyjson_val *parent, const char *where,
                  const char *key, yyjson_val **ret_value)
{
    yyjson_val *value = member(parent, key);

    if (value && !yyjson_is_arr(value))
        return refuse_member(reading, where, key, "not a list");
    *ret_value = value;
    return 0;
}

/* A string of ours never holds a NUL: it would end there for us and go on for others. */
static bool is_text(yyjson_val *value)
{
    return yyjson_is_str(value) && strlen(yyjson_get_str(value)) == yyjson_get_len(value);
}

static const char *copy_value(const struct reading *reading, yyjson_val *value)
{
    return arena_strndup(reading->arena, yyjson_get_str(value), yyjson_get_len(value));
}

int reading_text(const struct reading *reading, yyjson_val *parent, const char *where,
                 const char *key, const char **ret_text)
{
    yyjson_val *value = member(parent, key);

    if (!value) {
        *ret_text = "";
        return 0;
    }
    if (!is_text(value))
        return refuse_member(reading, where, key, "not text");
    *ret_text = copy_value(reading, value);
    return *ret_text ? 0 : reading_no_memory(reading);
}

static bool has_known_prefix(const struct reading *reading, const char *key)
{
    return has_prefix(key, always_kept, ARRAY_SIZE(always_kept)) ||
           has_prefix(key, reading->kept->annotations, reading->kept->annotation_count);
}

/* A value that is no text is left out alone: a pod must not be lost for an annotation of its
 * owner's. */
static bool is_kept(const struct reading *reading, yyjson_val *key, yyjson_val *value,
                    const struct text_list *names)
{
    if (!is_text(key) || !is_text(value))
        return false;
    return names ? text_list_has(names, yyjson_get_str(key))
                 : has_known_prefix(reading, yyjson_get_str(key));
}

static int read_pairs(const struct reading *reading, yyjson_val *metadata, const char *name,
                      const struct text_list *names, struct text_pairs *ret_pairs)
{
    struct text_pair *pairs;
    yyjson_val *object, *key, *value;
    size_t at, max, count = 0;
    int r;

    r = reading_object(reading, metadata, "metadata", name, &object);
    if (r < 0 || !object)
        return r;
    yyjson_obj_foreach(object, at, max, key, value)
    {
        count += is_kept(reading, key, value, names);
    }
    pairs = ARENA_ARRAY(reading->arena, struct text_pair, count);
    if (!pairs)
        return reading_no_memory(reading);

    count = 0;
    yyjson_obj_foreach(object, at, max, key, value)
    {
        if (!is_kept(reading, key, value, names))
            continue;
        pairs[count].key = copy_value(reading, key);
        pairs[count].value = copy_value(reading, value);
        if (!pairs[count].key || !pairs[count].value)
            return reading_no_memory(reading);
        count++;
    }
    *ret_pairs = (struct text_pairs){.items = pairs, .count = count};
    return 0;
}

int reading_metadata(const struct reading *reading, yyjson_val *object,
                     const struct text_list *label_names, struct metadata *ret_metadata)
{
    struct metadata metadata = {.namespace = "", .name = "", .uid = "", .resource_version = ""};
    const struct {
        const char *key;
        const char **text;
    } texts[] = {
        {"namespace", &metadata.namespace},
        {"name", &metadata.name},
        {"uid", &metadata.uid},
        {"resourceVersion", &metadata.resource_version},
    };
    yyjson_val *value;
    int r;

    r = reading_object(reading, object, "", "metadata", &value);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        r = reading_text(reading, value, "metadata", texts[i].key, texts[i].text);
        if (r < 0)
            return r;
    }
    r = read_pairs(reading, value, "annotations", NULL, &metadata.annotations);
    if (r < 0)
        return r;
    r = read_pairs(reading, value, "labels", label_names, &metadata.labels);
    if (r < 0)
        return r;
    metadata.has_annotations = member(value, "annotations") != NULL;
    metadata.deleting = member(value, "deletionTimestamp") != NULL;
    *ret_metadata = metadata;
    return 0;
}

/* The text of a quantity: as it was written, or the digits of a JSON number. */
static const char *quantity_text(yyjson_val *value, char *buf, size_t size)
{
    if (is_text(value))
        return yyjson_get_str(value);
    if (yyjson_is_raw(value))
        (void)snprintf(buf, size, "%.*s", (int)MIN(yyjson_get_len(value), size),
                       yyjson_get_raw(value));
    else if (yyjson_is_uint(value))
        (void)snprintf(buf, size, "%" PRIu64, yyjson_get_uint(value));
    else if (yyjson_is_sint(value))
        (void)snprintf(buf, size, "%" PRId64, yyjson_get_sint(value));
    else if (yyjson_is_real(value))
        (void)snprintf(buf, size, "%.17g", yyjson_get_real(value));
    else
        return NULL;
    return buf;
}

static int read_resource(const struct reading *reading, const char *where, const char *list,
                         yyjson_val *key, yyjson_val *value, struct resource *ret_resource)
{
    struct resource resource = {0};
    const char *text;
    char buf[64];

    text = quantity_text(value, buf, sizeof(buf));
    if (!text || quantity_parse(text, strlen(text), &resource.quantity) < 0)
        return error_set(reading->err, -EINVAL, "%s.%s[%s]: not a quantity", where, list,
                         yyjson_get_str(key));
    resource.name = copy_value(reading, key);
    resource.text = arena_strdup(reading->arena, text);
    if (!resource.name || !resource.text)
        return reading_no_memory(reading);
    *ret_resource = resource;
    return 0;
}

static bool has_domain(yyjson_val *key)
{
    return is_text(key) && strchr(yyjson_get_str(key), '/');
}

int reading_resources(const struct reading *reading, yyjson_val *parent, const char *where,
                      const char *key, bool *ret_present, struct resource_list *ret_list)
{
    yyjson_val *object, *name, *value;
    struct resource *items;
    size_t at, max, count = 0;
    int r;

    r = reading_object(reading, parent, where, key, &object);
    if (r < 0)
        return r;
    *ret_present = object != NULL;
    *ret_list = (struct resource_list){0};
    if (!object)
        return 0;
    if (yyjson_obj_size(object) > POD_MAX_RESOURCES)
        return refuse_member(reading, where, key, "too many");
    yyjson_obj_foreach(object, at, max, name, value)
    {
        count += has_domain(name);
    }
    items = ARENA_ARRAY(reading->arena, struct resource, count);
    if (!items)
        return reading_no_memory(reading);

    count = 0;
    yyjson_obj_foreach(object, at, max, name, value)
    {
        if (!has_domain(name))
            continue;
        r = read_resource(reading, where, key, name, value, &items[count++]);
        if (r < 0)
            return r;
    }
    *ret_list = (struct resource_list){.items = items, .count = count};
    return 0;
}
