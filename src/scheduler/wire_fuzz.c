/* SPDX-License-Identifier: Apache-2.0 */

/* Any body, as a filter's, as a bind's and as a Lease: refused with a reason, or within bounds. */

#include "scheduler/wire.h"

#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"

static void try_filter(yyjson_val *root, struct arena *arena)
{
    struct error err = ERROR_INIT;
    struct filter_args args;
    struct strbuf buf = STRBUF_INIT(1 << 22);
    int r;

    r = wire_read_filter(root, NULL, arena, &args, &err);
    if (r < 0 && !err.text[0])
        abort();
    if (r == 0) {
        wire_write_names(&buf, args.names, args.count);
        for (size_t i = 0; i < args.count; i++) {
            if (!args.names[i])
                abort();
        }
    }
    strbuf_deinit(&buf);
}

static void try_preempt(yyjson_val *root, struct arena *arena)
{
    struct error err = ERROR_INIT;
    struct preempt_args args;
    struct strbuf buf = STRBUF_INIT(1 << 22);
    int r;

    r = wire_read_preempt(root, NULL, arena, &args, &err);
    if (r < 0 && !err.text[0])
        abort();
    if (r == 0)
        wire_write_victims(&buf, &args);
    strbuf_deinit(&buf);
}

static void try_bind(yyjson_val *root)
{
    struct error err = ERROR_INIT;
    struct bind_args args;
    int r;

    r = wire_read_bind(root, &args, &err);
    if (r < 0 && !err.text[0])
        abort();
    if (r == 0 && (!args.name[0] || !memchr(args.node, 0, sizeof(args.node))))
        abort();
}

static void try_lease(yyjson_val *root)
{
    const struct term_options options = {.host = "h", .bind_ns = 1};
    struct lease lease;
    struct term term;

    wire_read_lease(root, &lease);
    if (!lease.holder || lease.acquired_wall_ns < 0 || lease.renewed_wall_ns < 0 ||
        lease.duration_ns < 0)
        abort();
    term_init(&term, &options, 0);
    (void)term_see(&term, &lease, 0, 1, INT64_C(1800000000000000000));
    (void)term_may_send(&term, 2, INT64_C(1800000000000000000));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct arena *arena;
    yyjson_doc *doc;

    if (!arena)
        arena = arena_new(1 << 22);
    arena_reset(arena);
    doc = yyjson_read((const char *)data, size, 0);
    if (doc) {
        try_filter(yyjson_doc_get_root(doc), arena);
        try_preempt(yyjson_doc_get_root(doc), arena);
        try_bind(yyjson_doc_get_root(doc));
        try_lease(yyjson_doc_get_root(doc));
    }
    yyjson_doc_free(doc);
    return 0;
}
