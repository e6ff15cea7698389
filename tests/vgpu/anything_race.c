/* SPDX-License-Identifier: Apache-2.0 */

/* Threads that take, launch and give back in all ways, all at once: anything.h. */

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "anything.h"
#include "cu.h"

static void *library;

#define RACE_OWN 24
#define RACE_PIECE ((size_t)2 << 20)

struct racer {
    pthread_t thread;
    unsigned seed, count;
    uint64_t limit;
    unsigned granted, refused, strange;
};

static unsigned draw(struct racer *r, unsigned below)
{
    return (unsigned)rand_r(&r->seed) % below;
}

static void race_memory(struct racer *r, uint64_t *own)
{
    unsigned i = draw(r, RACE_OWN);
    cu_free_fn *give = (cu_free_fn *)dlsym(library, "cuMemFree_v2");
    cu_alloc_fn *take = (cu_alloc_fn *)dlsym(library, "cuMemAlloc_v2");
    unsigned long long got = 0;
    int result;

    if (own[i]) {
        r->strange += give(own[i]) != CU_OK;
        own[i] = 0;
        return;
    }
    result = take(&got, r->limit / (1 + draw(r, 200)) + draw(r, 4096));
    own[i] = result == CU_OK ? got : 0;
    r->granted += result == CU_OK;
    r->refused += result == CU_OUT_OF_MEMORY;
    r->strange += result != CU_OK && result != CU_OUT_OF_MEMORY;
}

/* Made, mapped twice, and let go of in one of the orders that there are. */
static void race_mapped(struct racer *r, cu_ptr at)
{
    static const struct cu_allocation_prop prop = {.type = 1, .location_type = 1};
    cu_create_fn *make = (cu_create_fn *)dlsym(library, "cuMemCreate");
    cu_free_fn *release = (cu_free_fn *)dlsym(library, "cuMemRelease");
    cu_map_fn *map = (cu_map_fn *)dlsym(library, "cuMemMap");
    cu_unmap_fn *unmap = (cu_unmap_fn *)dlsym(library, "cuMemUnmap");
    cu_retain_handle_fn *retain =
        (cu_retain_handle_fn *)dlsym(library, "cuMemRetainAllocationHandle");
    size_t bytes = RACE_PIECE * (1 + draw(r, 8));
    cu_ptr handle = 0;
    int result = make(&handle, bytes, &prop, 0);

    r->granted += result == CU_OK;
    r->refused += result == CU_OUT_OF_MEMORY;
    r->strange += result != CU_OK && result != CU_OUT_OF_MEMORY;
    if (result != CU_OK)
        return;
    r->strange += map(at, bytes, 0, handle, 0) != CU_OK;
    r->strange += map(at + bytes, RACE_PIECE, 0, handle, 0) != CU_OK;
    if (draw(r, 2)) {
        r->strange += release(handle) != CU_OK;
        r->strange += retain(&handle, (void *)(uintptr_t)at) != CU_OK;
    }
    if (draw(r, 2)) {
        r->strange += unmap(at, bytes + RACE_PIECE) != CU_OK;
        r->strange += release(handle) != CU_OK;
    } else {
        r->strange += unmap(at + bytes, RACE_PIECE) != CU_OK;
        r->strange += release(handle) != CU_OK;
        r->strange += unmap(at, bytes) != CU_OK;
    }
}

/* From a pool, and back, which the stream may have done or not. */
static void race_pool(struct racer *r, void *stream)
{
    cu_alloc_async_fn *take = (cu_alloc_async_fn *)dlsym(library, "cuMemAllocAsync");
    cu_free_async_fn *give = (cu_free_async_fn *)dlsym(library, "cuMemFreeAsync");
    cu_stream_fn *wait = (cu_stream_fn *)dlsym(library, "cuStreamSynchronize");
    unsigned long long got[4] = {0};

    for (unsigned i = 0; i < 4; i++) {
        int result = take(&got[i], r->limit / (8 + draw(r, 200)) + draw(r, 4096), stream);

        r->granted += result == CU_OK;
        r->refused += result == CU_OUT_OF_MEMORY;
        r->strange += result != CU_OK && result != CU_OUT_OF_MEMORY;
        got[i] = result == CU_OK ? got[i] : 0;
    }
    for (unsigned i = 0; i < 4; i++)
        r->strange += got[i] && give(got[i], stream) != CU_OK;
    if (draw(r, 3) == 0)
        (void)wait(stream);
}

/* Captured, launched, with something left over or not, and trimmed or not. */
static void race_graph(struct racer *r, void *stream)
{
    cu_begin_fn *begin = (cu_begin_fn *)dlsym(library, "cuStreamBeginCapture_v2");
    cu_end_fn *end = (cu_end_fn *)dlsym(library, "cuStreamEndCapture");
    cu_instantiate_fn *make = (cu_instantiate_fn *)dlsym(library, "cuGraphInstantiateWithFlags");
    cu_graph_launch_fn *launch = (cu_graph_launch_fn *)dlsym(library, "cuGraphLaunch");
    cu_ctx_fn *end_exec = (cu_ctx_fn *)dlsym(library, "cuGraphExecDestroy");
    cu_ctx_fn *end_graph = (cu_ctx_fn *)dlsym(library, "cuGraphDestroy");
    cu_release_fn *trim = (cu_release_fn *)dlsym(library, "cuDeviceGraphMemTrim");
    cu_alloc_async_fn *take = (cu_alloc_async_fn *)dlsym(library, "cuMemAllocAsync");
    cu_free_async_fn *give = (cu_free_async_fn *)dlsym(library, "cuMemFreeAsync");
    unsigned long long got[2] = {0};
    void *graph = NULL, *exec = NULL;
    bool keeps = draw(r, 2);
    int result;

    r->strange += begin(stream, 2) != CU_OK;
    for (unsigned i = 0; i < 2; i++) {
        r->strange += take(&got[i], r->limit / (40 + draw(r, 50)), stream) != CU_OK;
        if (i == 0 || !keeps)
            r->strange += give(got[i], stream) != CU_OK;
    }
    r->strange += end(stream, &graph) != CU_OK;
    result = make(&exec, graph, 0);
    if (result == CU_OUT_OF_MEMORY) {
        r->refused++;
        r->strange += end_graph(graph) != CU_OK;
        return;
    }
    r->strange += result != CU_OK;
    result = launch(exec, stream);
    r->granted += result == CU_OK;
    r->refused += result == CU_OUT_OF_MEMORY;
    r->strange += result != CU_OK && result != CU_OUT_OF_MEMORY;
    if (draw(r, 2))
        r->strange += trim(0) != CU_OK;
    r->strange += end_exec(exec) != CU_OK || end_graph(graph) != CU_OK;
    if (keeps && result == CU_OK)
        r->strange += give(got[1], stream) != CU_OK;
}

static void race_array(struct racer *r)
{
    const struct cu_array3d shape = {64 * (1 + draw(r, 64)), 64 * (1 + draw(r, 64)), 0, 32, 1, 0};
    cu_array_create_fn *make = (cu_array_create_fn *)dlsym(library, "cuArray3DCreate_v2");
    cu_ctx_fn *end = (cu_ctx_fn *)dlsym(library, "cuArrayDestroy");
    void *array = NULL;
    int result = make(&array, &shape);

    r->granted += result == CU_OK;
    r->refused += result == CU_OUT_OF_MEMORY;
    r->strange += result != CU_OK && result != CU_OUT_OF_MEMORY;
    if (result == CU_OK)
        r->strange += end(array) != CU_OK;
}

static void race_context(void)
{
    cu_ctx_create_fn *make = (cu_ctx_create_fn *)dlsym(library, "cuCtxCreate_v2");
    cu_ctx_fn *end = (cu_ctx_fn *)dlsym(library, "cuCtxDestroy_v2");
    void *context = NULL;

    if (make(&context, 0, 0) == CU_OK)
        (void)end(context);
}

static void race_code(struct racer *r, void *stream)
{
    cu_module_load_fn *load = (cu_module_load_fn *)dlsym(library, "cuModuleLoadData");
    cu_module_fn *unload = (cu_module_fn *)dlsym(library, "cuModuleUnload");
    cu_function_fn *find = (cu_function_fn *)dlsym(library, "cuModuleGetFunction");
    cu_launch_fn *launch = (cu_launch_fn *)dlsym(library, "cuLaunchKernel");
    cu_stream_fn *wait = (cu_stream_fn *)dlsym(library, "cuStreamSynchronize");
    void *module = NULL, *function = NULL, *params[2] = {NULL};
    uint64_t ns = 1000;

    if (load(&module, "hamisim-module 1\nsize=200000\nkernel one\nkernel two\n") != CU_OK)
        return;
    params[0] = &ns;
    if (find(&function, module, draw(r, 2) ? "one" : "two") == CU_OK) {
        for (unsigned i = draw(r, 10); i; i--)
            (void)launch(function, 1 + draw(r, 200), 1, 1, 32, 1, 1, 0, stream, params, NULL);
    }
    (void)wait(stream);
    (void)unload(module);
}

static void *race_one(void *argument)
{
    struct racer *r = argument;
    cu_retain_fn *retain = (cu_retain_fn *)dlsym(library, "cuDevicePrimaryCtxRetain");
    cu_release_fn *release = (cu_release_fn *)dlsym(library, "cuDevicePrimaryCtxRelease_v2");
    cu_ctx_fn *set = (cu_ctx_fn *)dlsym(library, "cuCtxSetCurrent");
    cu_stream_create_fn *make = (cu_stream_create_fn *)dlsym(library, "cuStreamCreate");
    cu_stream_fn *end = (cu_stream_fn *)dlsym(library, "cuStreamDestroy_v2");
    cu_free_fn *give = (cu_free_fn *)dlsym(library, "cuMemFree_v2");
    cu_reserve_fn *reserve = (cu_reserve_fn *)dlsym(library, "cuMemAddressReserve");
    uint64_t own[RACE_OWN] = {0};
    void *context = NULL, *stream = NULL;
    cu_ptr at = 0;

    if (retain(&context, 0) != CU_OK)
        return NULL;
    (void)set(context);
    /* The others may have all memory by now, of which a stream takes some. */
    if (make(&stream, 1) != CU_OK) {
        r->refused++;
        (void)release(0);
        return NULL;
    }
    r->strange += reserve(&at, 9 * RACE_PIECE, 0, 0, 0) != CU_OK;
    for (unsigned i = 0; i < r->count; i++) {
        unsigned what = draw(r, 100);

        if (what < 50)
            race_memory(r, own);
        else if (what < 55)
            race_graph(r, stream);
        else if (what < 60)
            race_array(r);
        else if (what < 70)
            race_mapped(r, at);
        else if (what < 80)
            race_pool(r, stream);
        else if (what < 98)
            race_code(r, stream);
        else
            race_context();
    }
    for (unsigned i = 0; i < RACE_OWN; i++) {
        if (own[i])
            r->strange += give(own[i]) != CU_OK;
    }
    (void)end(stream);
    (void)release(0);
    return NULL;
}

struct race_result race(unsigned seed, unsigned count, uint64_t limit)
{
    struct race_result all = {0};
    struct racer racers[THREADS] = {0};

    library = entries_driver();
    for (unsigned i = 0; i < THREADS; i++) {
        racers[i] = (struct racer){.seed = seed + i, .count = count, .limit = limit};
        (void)pthread_create(&racers[i].thread, NULL, race_one, &racers[i]);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        (void)pthread_join(racers[i].thread, NULL);
        all.granted += racers[i].granted;
        all.refused += racers[i].refused;
        all.strange += racers[i].strange;
    }
    return all;
}
