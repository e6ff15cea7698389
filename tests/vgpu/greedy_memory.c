/* SPDX-License-Identifier: Apache-2.0 */

/* Of greedy.c: memory that is set, and copied by lists and descriptions that change in the call. */

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "greedy_ways.h"

uint64_t new_memory(void)
{
    typedef int alloc_fn(uint64_t * ptr, size_t bytes);
    uint64_t ptr;

    must(((alloc_fn *)symbol("cuMemAlloc_v2"))(&ptr, MEMORY), "cuMemAlloc");
    return ptr;
}

void way_sets(void)
{
    typedef int set_fn(uint64_t ptr, unsigned value, size_t count, cu_handle stream);
    set_fn *set = (set_fn *)symbol("cuMemsetD32Async");
    uint64_t ptr = new_memory();

    while (!stopped) {
        for (int i = 0; i < DEPTH; i++)
            must(set(ptr, 1, MEMORY / 4, stream), "cuMemsetD32Async");
        must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
}

void way_copies(void)
{
    typedef int copy_fn(uint64_t to, uint64_t from, size_t bytes, cu_handle stream);
    copy_fn *some[] = {
        (copy_fn *)symbol("cuMemcpyDtoDAsync_v2"),
        (copy_fn *)symbol("cuMemcpyAsync"),
    };
    uint64_t to = new_memory(), from = new_memory();

    while (!stopped) {
        for (int i = 0; i < DEPTH; i++)
            must(some[i % 2](to, from, MEMORY, stream), "cuMemcpyAsync");
        must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
}

/* As the API reference has CUDA_MEMCPY2D. */
struct rows {
    struct {
        size_t x, y;
        int type;
        const void *host;
        uint64_t ptr;
        cu_handle array;
        size_t pitch;
    } from, to;
    size_t width, height;
};

static volatile struct rows rows;
enum {
    LIST = 64,
};

static volatile uint64_t list_to[LIST], list_from[LIST];
static size_t list_bytes[LIST];

/* What is of the host, or nothing, costs nothing. */
static void *change(void *unused)
{
    for (unsigned i = 0; !stopped; i++) {
        rows.from.type = i % 2 ? 1 : 2;
        list_from[0] = i % 2 ? 0 : list_from[1];
    }
    return unused;
}

static void changed(const char *way)
{
    typedef int rows_fn(const volatile struct rows *rows, cu_handle stream);
    typedef int list_fn(const volatile uint64_t *to, const volatile uint64_t *from,
                        const size_t *bytes, size_t count, const void *attributes,
                        const size_t *indices, size_t attribute_count, cu_handle stream);
    rows_fn *copy_rows = (rows_fn *)symbol("cuMemcpy2DAsync_v2");
    list_fn *copy_list = (list_fn *)symbol("cuMemcpyBatchAsync_v2");
    pthread_t thread;

    rows.to.type = rows.from.type = 2;
    rows.to.ptr = new_memory();
    rows.from.ptr = new_memory();
    for (int i = 0; i < LIST; i++) {
        list_to[i] = rows.to.ptr;
        list_from[i] = rows.from.ptr;
        list_bytes[i] = i ? 16 : MEMORY;
    }
    rows.to.pitch = rows.from.pitch = rows.width = 1 << 20;
    rows.height = MEMORY >> 20;
    if (pthread_create(&thread, NULL, change, NULL) != 0)
        exit(1);
    for (unsigned i = 0; !stopped; i++) {
        if (strcmp(way, "rows-changed") == 0)
            (void)copy_rows(&rows, stream);
        else
            (void)copy_list(list_to, list_from, list_bytes, LIST, NULL, NULL, 0, stream);
        if (i % DEPTH == 0)
            must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
    (void)pthread_join(thread, NULL);
}

/* The driver does all of a list but the last, which it refuses. */
static void refused_list(size_t last_bytes)
{
    typedef int list_fn(const uint64_t *to, const uint64_t *from, const size_t *bytes, size_t count,
                        const void *attributes, const size_t *indices, size_t attribute_count,
                        cu_handle stream);
    list_fn *copy_list = (list_fn *)symbol("cuMemcpyBatchAsync_v2");
    uint64_t to[9], from[9];
    size_t bytes[9];

    to[0] = new_memory();
    from[0] = new_memory();
    for (int i = 0; i < 9; i++) {
        to[i] = to[0];
        from[i] = from[0];
        bytes[i] = i < 8 ? MEMORY : last_bytes;
    }
    while (!stopped) {
        if (copy_list(to, from, bytes, 9, NULL, NULL, 0, stream) == 0)
            exit(1);
        must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
}

void way_bad_list(void)
{
    refused_list(2 * (size_t)MEMORY);
}

/* All sizes together are 0. */
void way_round_list(void)
{
    refused_list(-8 * (size_t)MEMORY);
}

enum {
    LATE_COPIES = 64,
    LATE_REST = 200000,
};
#define LATE_MEMORY ((size_t)4 << 30)

static struct late {
    cu_ptr at, memory;
    cu_handle context;
    _Atomic int asked, mapped;
} late;

static void *map_late(void *unused)
{
    struct {
        int location[2], flags;
    } access = {{1, 0}, 3};
    typedef int access_fn(cu_ptr ptr, size_t bytes, const void *access, size_t count);
    cu_map_fn *map = (cu_map_fn *)symbol("cuMemMap");
    cu_unmap_fn *unmap = (cu_unmap_fn *)symbol("cuMemUnmap");
    access_fn *allow = (access_fn *)symbol("cuMemSetAccess");

    (void)unused;
    must(cu.set_current(late.context), "cuCtxSetCurrent");
    for (unsigned round = 0; !stopped; round++) {
        while (!late.asked && !stopped)
            usleep(50);
        usleep(4000 + 2000 * (round % 6));
        must(map(late.at, LATE_MEMORY, 0, late.memory, 0), "cuMemMap");
        must(allow(late.at, LATE_MEMORY, &access, 1), "cuMemSetAccess");
        late.mapped = 1;
        while (late.asked)
            usleep(50);
        must(unmap(late.at, LATE_MEMORY), "cuMemUnmap");
        late.mapped = 0;
    }
    return NULL;
}

void way_mapped_late(void)
{
    typedef int list_fn(const uint64_t *to, const uint64_t *from, const size_t *bytes, size_t count,
                        const void *attributes, const size_t *indices, size_t attribute_count,
                        cu_handle stream);
    static const struct cu_allocation_prop prop = {.type = 1, .location_type = 1};
    static uint64_t at[LATE_COPIES + LATE_REST];
    static size_t bytes[LATE_COPIES + LATE_REST];
    cu_ctx_out_fn *current = (cu_ctx_out_fn *)symbol("cuCtxGetCurrent");
    list_fn *copy_list = (list_fn *)symbol("cuMemcpyBatchAsync_v2");
    pthread_t thread;

    must(current(&late.context), "cuCtxGetCurrent");
    must(((cu_create_fn *)symbol("cuMemCreate"))(&late.memory, LATE_MEMORY, &prop, 0),
         "cuMemCreate");
    must(((cu_reserve_fn *)symbol("cuMemAddressReserve"))(&late.at, LATE_MEMORY, 0, 0, 0),
         "cuMemAddressReserve");
    for (size_t i = 0; i < LATE_COPIES + LATE_REST; i++) {
        at[i] = i < LATE_COPIES ? late.at : 16;
        bytes[i] = i < LATE_COPIES ? LATE_MEMORY : 1;
    }
    if (pthread_create(&thread, NULL, map_late, NULL) != 0)
        exit(1);
    while (!stopped) {
        late.asked = 1;
        (void)copy_list(at, at, bytes, LATE_COPIES + LATE_REST, NULL, NULL, 0, stream);
        must(cu.stream_sync(stream), "cuStreamSynchronize");
        late.asked = 0;
        while (late.mapped && !stopped)
            usleep(50);
    }
    (void)pthread_join(thread, NULL);
}

void way_rows_changed(void)
{
    changed("rows-changed");
}

void way_list_changed(void)
{
    changed("list-changed");
}
