/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Numbers for kinds of devices: a model and a mode. A request remembers its verdict on each kind,
 * so that most devices need no comparison of texts.
 */

#include "cluster/state.h"

enum {
    KINDS_MAX = 1024, /* devices of further kinds get no number */
    KIND_TEXT_SIZE = DEVICE_MODEL_SIZE + DEVICE_MODE_SIZE,
};

struct kind {
    UT_hash_handle hh; /* by text */
    size_t users;      /* devices */
    uint16_t number;
    char text[KIND_TEXT_SIZE];
};

struct kinds {
    struct kind *all;
    uint16_t free_count, used; /* numbers given back; numbers ever given, from 1 on */
    uint16_t free[KINDS_MAX];
};

struct kinds *kinds_new(void)
{
    return calloc(1, sizeof(struct kinds));
}

void kinds_free(struct kinds *kinds)
{
    struct kind *kind, *next;

    if (!kinds)
        return;
    HASH_ITER(hh, kinds->all, kind, next)
    {
        HASH_DEL(kinds->all, kind);
        free(kind);
    }
    free(kinds);
}

/* The mode with its NUL, and the model. */
static size_t write_text(const struct device *device, char text[static KIND_TEXT_SIZE])
{
    size_t mode_len = strlen(device->mode), model_len = strlen(device->model);

    memcpy(text, device->mode, mode_len + 1);
    memcpy(text + mode_len + 1, device->model, model_len);
    return mode_len + 1 + model_len;
}

static uint16_t next_number(struct kinds *kinds)
{
    if (kinds->free_count)
        return kinds->free[--kinds->free_count];
    return kinds->used < KINDS_MAX ? ++kinds->used : 0;
}

static struct kind *kind_add(struct kinds *kinds, const char *text, size_t len)
{
    struct kind *kind = calloc(1, sizeof(*kind));

    if (!kind)
        return NULL;
    kind->number = next_number(kinds);
    if (!kind->number) {
        free(kind);
        return NULL;
    }
    memcpy(kind->text, text, len);
    HASH_ADD(hh, kinds->all, text, (unsigned)len, kind);
    return kind;
}

static struct kind *kind_find(const struct kinds *kinds, const struct device *device,
                              char text[static KIND_TEXT_SIZE], size_t *ret_len)
{
    struct kind *kind;

    *ret_len = write_text(device, text);
    HASH_FIND(hh, kinds->all, text, (unsigned)*ret_len, kind);
    return kind;
}

void kinds_take(struct kinds *kinds, struct device *devices, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char text[KIND_TEXT_SIZE];
        size_t len;
        struct kind *kind = kind_find(kinds, &devices[i], text, &len);

        if (!kind)
            kind = kind_add(kinds, text, len);
        devices[i].kind = kind ? kind->number : 0;
        if (kind)
            kind->users++;
    }
}

void kinds_give(struct kinds *kinds, const struct device *devices, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char text[KIND_TEXT_SIZE];
        size_t len;
        struct kind *kind = devices[i].kind ? kind_find(kinds, &devices[i], text, &len) : NULL;

        if (!kind || --kind->users)
            continue;
        kinds->free[kinds->free_count++] = kind->number;
        HASH_DEL(kinds->all, kind);
        free(kind);
    }
}
