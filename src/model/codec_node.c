/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <yyjson.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "model/codec.h"
#include "model/codec_number.h"
#include "model/json.h"

enum {
    TEXT_FIELDS_OLD = 7,
    TEXT_FIELDS = 9,
};

#define TEXT_DEFAULT_MODE "hami-core"

struct field {
    const char *text;
    size_t len;
};

/* The first thing that was mended is what err tells. */
struct decoding {
    struct arena *arena;
    struct error *err;
    bool mended;
};

static int node_outcome(const struct decoding *decoding)
{
    return decoding->mended ? CODEC_MENDED : CODEC_EXACT;
}

/* The JSON form: one row for each key that is read. */

enum member_kind {
    MEMBER_TEXT,
    MEMBER_INT32,
    MEMBER_INT64,
    MEMBER_UINT64,
    MEMBER_BOOL,
    MEMBER_KEPT_OBJECT, /* as it is */
    MEMBER_KEPT_ARRAY,
    MEMBER_OBJECT, /* only looked at for its type, as HAMi does */
    MEMBER_ARRAY,
};

static const struct member {
    const char *key;
    enum member_kind kind;
    size_t offset;
} members[] = {
    {"id", MEMBER_TEXT, offsetof(struct registered_device, id)},
    {"index", MEMBER_UINT64, offsetof(struct registered_device, index)},
    {"count", MEMBER_INT32, offsetof(struct registered_device, count)},
    {"devmem", MEMBER_INT32, offsetof(struct registered_device, devmem)},
    {"devcore", MEMBER_INT32, offsetof(struct registered_device, devcore)},
    {"type", MEMBER_TEXT, offsetof(struct registered_device, type)},
    {"numa", MEMBER_INT64, offsetof(struct registered_device, numa)},
    {"mode", MEMBER_TEXT, offsetof(struct registered_device, mode)},
    {"health", MEMBER_BOOL, offsetof(struct registered_device, health)},
    {"custominfo", MEMBER_KEPT_OBJECT, offsetof(struct registered_device, custom)},
    {"migprofiles", MEMBER_KEPT_ARRAY, offsetof(struct registered_device, profiles)},
    {"devicepairscore", MEMBER_OBJECT, 0},
    {"migtemplate", MEMBER_ARRAY, 0},
};

static const struct member *find_member(yyjson_val *key)
{
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        if (strlen(members[i].key) == yyjson_get_len(key) &&
            strcasecmp(members[i].key, yyjson_get_str(key)) == 0)
            return &members[i];
    }
    return NULL;
}

static const char *read_text(const struct decoding *decoding, yyjson_val *value, void *to)
{
    const char **text = to;

    if (!yyjson_is_str(value))
        return "not text";
    if (strlen(yyjson_get_str(value)) != yyjson_get_len(value))
        return "holds a NUL";
    *text = arena_strndup(decoding->arena, yyjson_get_str(value), yyjson_get_len(value));
    return NULL;
}

static const char *read_signed(yyjson_val *value, int64_t min, int64_t max, int64_t *ret_value)
{
    if (!yyjson_is_int(value))
        return "not a whole number";
    if (yyjson_is_uint(value) ? yyjson_get_uint(value) > (uint64_t)max
                              : yyjson_get_sint(value) < min)
        return "out of range";
    *ret_value = yyjson_get_sint(value);
    return NULL;
}

static const char *read_int32(yyjson_val *value, int32_t *to)
{
    int64_t number = 0;
    const char *wrong = read_signed(value, INT32_MIN, INT32_MAX, &number);

    if (!wrong)
        *to = (int32_t)number;
    return wrong;
}

static const char *read_uint64(yyjson_val *value, uint64_t *to)
{
    if (!yyjson_is_uint(value))
        return yyjson_is_int(value) ? "out of range" : "not a whole number";
    *to = yyjson_get_uint(value);
    return NULL;
}

static const char *read_bool(yyjson_val *value, bool *to)
{
    if (!yyjson_is_bool(value))
        return "neither true nor false";
    *to = yyjson_get_bool(value);
    return NULL;
}

/* Of no memory the caller hears with the next text. */
static const char *read_kept(const struct decoding *decoding, yyjson_val *value, const char **to)
{
    yyjson_alc alc = json_alc(decoding->arena);

    if (yyjson_get_len(value))
        *to = yyjson_val_write_opts(value, 0, &alc, NULL, NULL);
    return NULL;
}

/* NULL, or why the value is wrong. */
static const char *read_member(const struct decoding *decoding, const struct member *member,
                               yyjson_val *value, struct registered_device *device)
{
    void *to = (char *)device + member->offset;

    switch (member->kind) {
    case MEMBER_TEXT:
        return read_text(decoding, value, to);
    case MEMBER_INT32:
        return read_int32(value, to);
    case MEMBER_INT64:
        return read_signed(value, INT64_MIN, INT64_MAX, to);
    case MEMBER_UINT64:
        return read_uint64(value, to);
    case MEMBER_BOOL:
        return read_bool(value, to);
    case MEMBER_KEPT_OBJECT:
        return yyjson_is_obj(value) ? read_kept(decoding, value, to) : "not an object";
    case MEMBER_KEPT_ARRAY:
        return yyjson_is_arr(value) ? read_kept(decoding, value, to) : "not a list";
    case MEMBER_OBJECT:
        return yyjson_is_obj(value) ? NULL : "not an object";
    case MEMBER_ARRAY:
        return yyjson_is_arr(value) ? NULL : "not a list";
    }
    return NULL;
}

static int decode_object(const struct decoding *decoding, yyjson_val *object, size_t position,
                         struct registered_device *ret_device)
{
    struct registered_device device = {.id = "", .type = "", .mode = ""};
    yyjson_val *key, *value;
    size_t at, max;

    if (!yyjson_is_obj(object))
        return error_set(decoding->err, -EINVAL, "device %zu: not an object", position);
    yyjson_obj_foreach(object, at, max, key, value)
    {
        const struct member *member = find_member(key);
        const char *wrong;

        if (!member || yyjson_is_null(value))
            continue;
        wrong = read_member(decoding, member, value, &device);
        if (wrong)
            return error_set(decoding->err, -EINVAL, "device %zu: %s: %s", position, member->key,
                             wrong);
    }
    if (!device.id || !device.type || !device.mode)
        return -ENOMEM;
    *ret_device = device;
    return 0;
}

static int decode_array(const struct decoding *decoding, yyjson_val *array,
                        struct registered_devices *ret_devices)
{
    size_t count = yyjson_arr_size(array), at, max;
    struct registered_device *items;
    yyjson_val *value;
    int r;

    if (count > CODEC_MAX_DEVICES)
        return error_set(decoding->err, -E2BIG, "more than %d devices", CODEC_MAX_DEVICES);
    items = ARENA_ARRAY(decoding->arena, struct registered_device, count);
    if (!items)
        return -ENOMEM;
    yyjson_arr_foreach(array, at, max, value)
    {
        r = decode_object(decoding, value, at, &items[at]);
        if (r < 0)
            return r;
    }
    *ret_devices = (struct registered_devices){.items = items, .count = count};
    return CODEC_EXACT;
}

int node_devices_decode_json(const char *text, size_t len, struct arena *arena,
                             struct registered_devices *ret_devices, struct error *err)
{
    struct decoding decoding = {.arena = arena, .err = err};
    yyjson_val *root;
    int r;

    if (len > CODEC_MAX_TEXT)
        return error_set(err, -E2BIG, "longer than %d bytes", CODEC_MAX_TEXT);
    r = json_parse(text, len, arena, &root, err);
    if (r < 0)
        return r;
    if (yyjson_is_null(root)) {
        *ret_devices = (struct registered_devices){0};
        return CODEC_EXACT;
    }
    if (!yyjson_is_arr(root))
        return error_set(err, -EINVAL, "not a list of devices");
    return decode_array(&decoding, root, ret_devices);
}

/* The colon form. */

static int64_t node_read_number(struct decoding *decoding, const char *what,
                                const struct field *field, int64_t min, int64_t max)
{
    int64_t value;

    if (!codec_number(field->text, field->len, min, max, &value)) {
        if (!decoding->mended)
            (void)error_set(decoding->err, 0, "%s is not a number that fits: \"%.*s\"", what,
                            (int)MIN(field->len, (size_t)32), field->text);
        decoding->mended = true;
    }
    return value;
}

static bool read_health(struct decoding *decoding, const struct field *field)
{
    bool value;

    if (!codec_bool(field->text, field->len, &value)) {
        if (!decoding->mended)
            (void)error_set(decoding->err, 0, "health is neither true nor false: \"%.*s\"",
                            (int)MIN(field->len, (size_t)32), field->text);
        decoding->mended = true;
    }
    return value;
}

static size_t split_fields(const char *text, size_t len, struct field fields[TEXT_FIELDS + 1])
{
    const char *rest = text;
    size_t count = 0;

    while (count < TEXT_FIELDS + 1 &&
           codec_piece(&rest, text + len, ',', &fields[count].text, &fields[count].len))
        count++;
    return count;
}

static int decode_segment(struct decoding *decoding, const char *text, size_t len,
                          struct registered_device *ret_device)
{
    enum { ID, COUNT, MEMORY, CORES, TYPE, NUMA, HEALTH, INDEX, MODE };
    struct registered_device device = {.mode = TEXT_DEFAULT_MODE};
    struct field fields[TEXT_FIELDS + 1];
    size_t count = split_fields(text, len, fields);

    if (count != TEXT_FIELDS && count != TEXT_FIELDS_OLD)
        return error_set(decoding->err, -EINVAL, "device \"%.*s\": neither 7 nor 9 fields",
                         (int)MIN(len, (size_t)96), text);
    device.id = arena_strndup(decoding->arena, fields[ID].text, fields[ID].len);
    device.type = arena_strndup(decoding->arena, fields[TYPE].text, fields[TYPE].len);
    device.count =
        (int32_t)node_read_number(decoding, "count", &fields[COUNT], INT32_MIN, INT32_MAX);
    device.devmem =
        (int32_t)node_read_number(decoding, "memory", &fields[MEMORY], INT32_MIN, INT32_MAX);
    device.devcore =
        (int32_t)node_read_number(decoding, "cores", &fields[CORES], INT32_MIN, INT32_MAX);
    device.numa = node_read_number(decoding, "numa", &fields[NUMA], INT64_MIN, INT64_MAX);
    device.health = read_health(decoding, &fields[HEALTH]);
    if (count == TEXT_FIELDS) {
        device.index = (uint64_t)node_read_number(decoding, "index", &fields[INDEX], 0, INT64_MAX);
        device.mode = arena_strndup(decoding->arena, fields[MODE].text, fields[MODE].len);
    }
    if (!device.id || !device.type || !device.mode)
        return -ENOMEM;
    *ret_device = device;
    return 0;
}

static size_t count_segments(const char *text, size_t len)
{
    const char *rest = text, *piece;
    size_t piece_len, count = 0;

    while (codec_piece(&rest, text + len, ':', &piece, &piece_len))
        count += memchr(piece, ',', piece_len) != NULL;
    return count;
}

int node_devices_decode_text(const char *text, size_t len, struct arena *arena,
                             struct registered_devices *ret_devices, struct error *err)
{
    struct decoding decoding = {.arena = arena, .err = err};
    struct registered_devices devices = {0};
    const char *rest = text, *piece;
    size_t piece_len, count;
    int r;

    if (len > CODEC_MAX_TEXT)
        return error_set(err, -E2BIG, "longer than %d bytes", CODEC_MAX_TEXT);
    if (!memchr(text, ':', len))
        return error_set(err, -EINVAL, "no ':' after a device");
    count = count_segments(text, len);
    if (count > CODEC_MAX_DEVICES)
        return error_set(err, -E2BIG, "more than %d devices", CODEC_MAX_DEVICES);
    devices.items = ARENA_ARRAY(arena, struct registered_device, count);
    if (!devices.items)
        return -ENOMEM;
    while (codec_piece(&rest, text + len, ':', &piece, &piece_len)) {
        if (!memchr(piece, ',', piece_len))
            continue;
        r = decode_segment(&decoding, piece, piece_len, &devices.items[devices.count++]);
        if (r < 0)
            return r;
    }
    *ret_devices = devices;
    return node_outcome(&decoding);
}

int node_devices_decode(const char *text, struct arena *arena,
                        struct registered_devices *ret_devices, struct error *err)
{
    const char *start = text + strspn(text, " \t\r\n");
    size_t len = strlen(text);

    if (*start != '[' && *start != '{' && memchr(text, ':', len))
        return node_devices_decode_text(text, len, arena, ret_devices, err);
    return node_devices_decode_json(text, len, arena, ret_devices, err);
}

/* Encoding. */

static void add_text(struct strbuf *buf, const char *key, const char *text)
{
    if (!*text)
        return;
    strbuf_addf(buf, "\"%s\":", key);
    strbuf_add_json(buf, text);
    strbuf_add(buf, ",");
}

static void add_number(struct strbuf *buf, const char *key, int64_t value)
{
    if (value)
        strbuf_addf(buf, "\"%s\":%" PRId64 ",", key, value);
}

/* Zero values are left out; the pair score is always there, and always empty. */
static void add_object(struct strbuf *buf, const struct registered_device *device)
{
    strbuf_add(buf, "{");
    add_text(buf, "id", device->id);
    if (device->index)
        strbuf_addf(buf, "\"index\":%" PRIu64 ",", device->index);
    add_number(buf, "count", device->count);
    add_number(buf, "devmem", device->devmem);
    add_number(buf, "devcore", device->devcore);
    add_text(buf, "type", device->type);
    add_number(buf, "numa", device->numa);
    add_text(buf, "mode", device->mode);
    if (device->own_profiles)
        strbuf_addf(buf, "\"migProfiles\":%s,", device->own_profiles);
    if (device->health)
        strbuf_add(buf, "\"health\":true,");
    if (device->own_custom)
        strbuf_addf(buf, "\"custominfo\":%s,", device->own_custom);
    strbuf_add(buf, "\"devicepairscore\":{}}");
}

const char *node_devices_encode_json(const struct registered_devices *devices, struct arena *arena)
{
    struct strbuf buf = STRBUF_IN(arena, CODEC_MAX_TEXT);

    strbuf_add(&buf, "[");
    for (size_t i = 0; i < devices->count; i++) {
        strbuf_add(&buf, i ? "," : "");
        add_object(&buf, &devices->items[i]);
    }
    strbuf_add(&buf, "]");
    return buf.failed ? NULL : strbuf_text(&buf);
}

const char *node_devices_encode_text(const struct registered_devices *devices, struct arena *arena)
{
    struct strbuf buf = STRBUF_IN(arena, CODEC_MAX_TEXT);

    for (size_t i = 0; i < devices->count; i++) {
        const struct registered_device *device = &devices->items[i];

        strbuf_addf(&buf, "%s,%d,%d,%d,%s,%" PRId64 ",%s,%" PRIu64 ",%s:", device->id,
                    device->count, device->devmem, device->devcore, device->type, device->numa,
                    device->health ? "true" : "false", device->index, device->mode);
    }
    return buf.failed ? NULL : strbuf_text(&buf);
}
