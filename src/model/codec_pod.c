/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "model/codec.h"
#include "model/codec_number.h"

/* The first thing that was mended is what err tells. */
struct decoding {
    struct arena *arena;
    struct error *err;
    bool mended;
    size_t devices; /* so far, in all containers */
};

struct field {
    const char *text;
    size_t len;
};

static void say_mended(struct decoding *decoding, const char *what, const struct field *uuid,
                       const struct field *field)
{
    if (!decoding->mended)
        (void)error_set(decoding->err, 0, "device \"%.*s\": %s is not a number: \"%.*s\"",
                        (int)MIN(uuid->len, 96u), uuid->text, what, (int)MIN(field->len, 32u),
                        field->text);
    decoding->mended = true;
}

static int32_t read_amount(struct decoding *decoding, const char *what, const struct field *uuid,
                           const struct field *field)
{
    int64_t value;

    if (!codec_number(field->text, field->len, INT32_MIN, INT32_MAX, &value))
        say_mended(decoding, what, uuid, field);
    return (int32_t)value;
}

/* "uuid,type,mem,cores" and whatever follows. */
static int decode_device(struct decoding *decoding, const char *text, size_t len,
                         struct container_device *ret_device)
{
    enum { UUID, TYPE, MEMORY, CORES, FIELDS };
    const char *rest = text;
    struct field fields[FIELDS];
    size_t count = 0;

    while (count < FIELDS &&
           codec_piece(&rest, text + len, ',', &fields[count].text, &fields[count].len))
        count++;
    if (count < FIELDS)
        return error_set(decoding->err, -EINVAL, "device \"%.*s\": fewer than 4 fields",
                         (int)MIN(len, (size_t)96), text);

    ret_device->uuid = arena_strndup(decoding->arena, fields[UUID].text, fields[UUID].len);
    ret_device->type = arena_strndup(decoding->arena, fields[TYPE].text, fields[TYPE].len);
    if (!ret_device->uuid || !ret_device->type)
        return -ENOMEM;
    ret_device->memory_mib = read_amount(decoding, "memory", &fields[UUID], &fields[MEMORY]);
    ret_device->cores = read_amount(decoding, "cores", &fields[UUID], &fields[CORES]);
    return 0;
}

static size_t count_devices(const char *text, size_t len)
{
    const char *rest = text, *piece;
    size_t piece_len, count = 0;

    while (codec_piece(&rest, text + len, ':', &piece, &piece_len))
        count += memchr(piece, ',', piece_len) != NULL;
    return count;
}

static int decode_container(struct decoding *decoding, const char *text, size_t len,
                            struct container_devices *ret_devices)
{
    struct container_devices devices = {0};
    const char *rest = text, *piece;
    size_t piece_len, count = count_devices(text, len);
    int r;

    decoding->devices += count;
    if (decoding->devices > CODEC_MAX_DEVICES)
        return error_set(decoding->err, -E2BIG, "more than %d devices", CODEC_MAX_DEVICES);
    devices.items = ARENA_ARRAY(decoding->arena, struct container_device, count);
    if (!devices.items)
        return -ENOMEM;
    while (codec_piece(&rest, text + len, ':', &piece, &piece_len)) {
        if (!memchr(piece, ',', piece_len))
            continue;
        r = decode_device(decoding, piece, piece_len, &devices.items[devices.count++]);
        if (r < 0)
            return r;
    }
    *ret_devices = devices;
    return 0;
}

static int pod_outcome(const struct decoding *decoding)
{
    return decoding->mended ? CODEC_MENDED : CODEC_EXACT;
}

int container_devices_decode(const char *text, size_t len, struct arena *arena,
                             struct container_devices *ret_devices, struct error *err)
{
    struct decoding decoding = {.arena = arena, .err = err};
    int r;

    if (len > CODEC_MAX_TEXT)
        return error_set(err, -E2BIG, "longer than %d bytes", CODEC_MAX_TEXT);
    r = decode_container(&decoding, text, len, ret_devices);
    return r < 0 ? r : pod_outcome(&decoding);
}

static size_t count_containers(const char *text, size_t len)
{
    const char *rest = text, *piece;
    size_t piece_len, count = 0;

    while (codec_piece(&rest, text + len, ';', &piece, &piece_len))
        count += rest || piece_len;
    return count;
}

int pod_devices_decode(const char *text, struct arena *arena, struct pod_devices *ret_devices,
                       struct error *err)
{
    struct decoding decoding = {.arena = arena, .err = err};
    size_t len = strlen(text), count, piece_len;
    struct container_devices *containers;
    const char *rest = text, *piece;
    int r;

    if (len > CODEC_MAX_TEXT)
        return error_set(err, -E2BIG, "longer than %d bytes", CODEC_MAX_TEXT);
    count = count_containers(text, len);
    if (count > CODEC_MAX_CONTAINERS)
        return error_set(err, -E2BIG, "more than %d containers", CODEC_MAX_CONTAINERS);
    containers = ARENA_ARRAY(arena, struct container_devices, count);
    if (!containers)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        (void)codec_piece(&rest, text + len, ';', &piece, &piece_len);
        r = decode_container(&decoding, piece, piece_len, &containers[i]);
        if (r == -EINVAL)
            return error_wrap(err, r, "container %zu", i);
        if (r < 0)
            return r;
    }
    *ret_devices = (struct pod_devices){.count = count, .containers = containers};
    return pod_outcome(&decoding);
}

static void add_container(struct strbuf *buf, const struct container_devices *devices)
{
    for (size_t i = 0; i < devices->count; i++)
        strbuf_addf(buf, "%s,%s,%d,%d:", devices->items[i].uuid, devices->items[i].type,
                    devices->items[i].memory_mib, devices->items[i].cores);
}

const char *container_devices_encode(const struct container_devices *devices, struct arena *arena)
{
    struct strbuf buf = STRBUF_IN(arena, CODEC_MAX_TEXT);

    add_container(&buf, devices);
    return buf.failed ? NULL : strbuf_text(&buf);
}

const char *pod_devices_encode(const struct pod_devices *devices, struct arena *arena)
{
    struct strbuf buf = STRBUF_IN(arena, CODEC_MAX_TEXT);

    for (size_t i = 0; i < devices->count; i++) {
        add_container(&buf, &devices->containers[i]);
        strbuf_add(&buf, ";");
    }
    return buf.failed ? NULL : strbuf_text(&buf);
}
