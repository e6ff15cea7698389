/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/registered.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"

static unsigned not_negative(int32_t value)
{
    return value > 0 ? (unsigned)value : 0;
}

/* Why a device makes no sense, or NULL: such a device is listed, and never healthy. */
static const char *check_sense(const struct registered_device *registered)
{
    if (!*registered->id)
        return "has no id";
    if (strpbrk(registered->id, ",:;[]"))
        return "has an id that can't be one";
    if (registered->devmem > DEVICE_MAX_MIB)
        return "has more memory than there is";
    return NULL;
}

/* Why a device can't be listed, or NULL. */
static const char *check_size(const struct registered_device *registered)
{
    if (strlen(registered->id) >= DEVICE_UUID_SIZE)
        return "has an id that is too long";
    if (strlen(registered->type) >= DEVICE_MODEL_SIZE)
        return "has a type that is too long";
    if (strlen(registered->mode) >= DEVICE_MODE_SIZE)
        return "has a mode that is too long";
    return NULL;
}

static void fill_device(const struct registered_device *registered, struct device *ret_device)
{
    *ret_device = (struct device){
        .index = (unsigned)registered->index,
        .numa_node = (int)MAX(MIN(registered->numa, (int64_t)INT32_MAX), (int64_t)-1),
        .healthy = registered->health,
        .memory_bytes = not_negative(registered->devmem) * MIB,
        .cores = not_negative(registered->devcore),
        .max_tasks = not_negative(registered->count),
    };
    COPY_TEXT(ret_device->uuid, registered->id);
    COPY_TEXT(ret_device->model, registered->type);
    COPY_TEXT(ret_device->mode, registered->mode);
}

static bool is_listed(const struct device *devices, size_t count, const char *uuid)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(devices[i].uuid, uuid) == 0)
            return true;
    }
    return false;
}

/* The devices of a node while they are filled in. err gets the first thing that is wrong. */
struct filling {
    const struct vendor_instance *instance;
    const struct node *node;
    struct arena *arena;
    registered_finish_fn *finish;
    struct device *devices;
    size_t count, max;
    bool mended;
    struct error *err;
};

static void tell_mended(struct filling *filling, size_t position, const char *id, const char *wrong)
{
    if (!filling->mended)
        (void)error_set(filling->err, 0, "device %zu (\"%.64s\") %s", position, id, wrong);
    filling->mended = true;
}

static int add_device(struct filling *filling, size_t position,
                      const struct registered_device *registered)
{
    struct device *device = &filling->devices[filling->count];
    const char *wrong = check_size(registered);

    if (!wrong && filling->count == filling->max)
        wrong = "is one too many";
    if (!wrong && is_listed(filling->devices, filling->count, registered->id))
        wrong = "is listed twice";
    if (wrong) {
        tell_mended(filling, position, registered->id, wrong);
        return 0;
    }
    fill_device(registered, device);
    device->vendor = &filling->instance->id;
    if (filling->finish && filling->finish(filling->node, registered, filling->arena, device) < 0)
        return -ENOMEM;
    filling->count++;
    wrong = check_sense(registered);
    if (!wrong)
        return 0;
    tell_mended(filling, position, registered->id, wrong);
    device->healthy = false;
    return 0;
}

int registered_list(const struct vendor_instance *instance, const struct node *node,
                    const struct registered_devices *registered, int outcome, struct arena *arena,
                    struct device *ret_devices, size_t max, size_t *ret_count, struct error *err,
                    registered_finish_fn *finish)
{
    struct filling filling = {.instance = instance,
                              .node = node,
                              .finish = finish,
                              .arena = arena,
                              .devices = ret_devices,
                              .max = max,
                              .mended = outcome == CODEC_MENDED,
                              .err = err};

    for (size_t i = 0; i < registered->count; i++) {
        if (add_device(&filling, i, &registered->items[i]) < 0)
            return error_set(err, -ENOMEM, "out of memory");
    }
    *ret_count = filling.count;
    if (!filling.mended)
        return CODEC_EXACT;
    return error_wrap(err, CODEC_MENDED, "%s", instance->register_key);
}

int registered_read(const struct vendor_instance *instance, const struct node *node,
                    struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                    struct error *err, registered_finish_fn *finish)
{
    const char *text = text_pairs_get(&node->annotations, instance->register_key);
    struct registered_devices registered;
    int r;

    if (!text)
        return error_set(err, -ENOENT, "no annotation %s", instance->register_key);
    r = node_devices_decode(text, arena, &registered, err);
    if (r < 0)
        return error_wrap(err, r, "%s", instance->register_key);
    return registered_list(instance, node, &registered, r, arena, ret_devices, max, ret_count, err,
                           finish);
}
