/* SPDX-License-Identifier: Apache-2.0 */
#include "model/json.h"

#include <errno.h>
#include <string.h>

static void *take(void *ctx, size_t size)
{
    return arena_alloc_raw(ctx, size);
}

static void *grow(void *ctx, void *old, size_t old_size, size_t size)
{
    void *bytes;

    if (size <= old_size)
        return old;
    bytes = arena_alloc_raw(ctx, size);
    return bytes && old_size ? memcpy(bytes, old, old_size) : bytes;
}

static void leave(void *ctx, void *bytes)
{
    (void)ctx;
    (void)bytes;
}

yyjson_alc json_alc(struct arena *arena)
{
    return (yyjson_alc){.malloc = take, .realloc = grow, .free = leave, .ctx = arena};
}

int json_parse(const char *text, size_t len, struct arena *arena, yyjson_val **ret_root,
               struct error *err)
{
    yyjson_alc alc = json_alc(arena);
    yyjson_read_err wrong = {0};
    yyjson_doc *doc;

    /* Without the flag for reading in place, the text is copied and not written to. */
    doc = yyjson_read_opts((char *)(uintptr_t)text, len, YYJSON_READ_NOFLAG, &alc, &wrong);
    if (doc) {
        *ret_root = yyjson_doc_get_root(doc);
        return 0;
    }
    if (wrong.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION)
        return error_set(err, -ENOMEM, "larger than what is set aside for it");
    return error_set(err, -EINVAL, "not JSON: %s, at byte %zu", wrong.msg ? wrong.msg : "empty",
                     wrong.pos);
}
