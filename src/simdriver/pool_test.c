/* SPDX-License-Identifier: Apache-2.0 */

/* Memory in the order of streams: when it is had anew, and when a pool gives it back. */

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/util.h"
#include "simdriver/testing.h"

#define CONTEXT_BYTES (100 * MIB)
#define CHUNK (2 * MIB)
#define INVALID(call) GIVES(CUDA_ERROR_INVALID_VALUE, call)

static const CUmemPoolProps on_device = {
    .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
};

static struct testing t;

static uint64_t used(void)
{
    return testing_used_bytes() - CONTEXT_BYTES;
}

static CUmemoryPool begin(void)
{
    CUmemoryPool pool;

    testing_begin(&t);
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    HOLDS(used() <= 4096); /* the test's kernel */
    return pool;
}

static uint64_t told(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t value = 99;

    OK(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static void set(CUmemoryPool pool, CUmemPool_attribute attribute, cuuint64_t value)
{
    OK(cuMemPoolSetAttribute(pool, attribute, &value));
}

static void allow(CUmemoryPool pool, CUmemPool_attribute attribute, int allowed)
{
    OK(cuMemPoolSetAttribute(pool, attribute, &allowed));
}

static uint64_t reserved(CUmemoryPool pool)
{
    return told(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
}

static CUdeviceptr take(uint64_t bytes, CUstream stream)
{
    CUdeviceptr ptr;

    OK(cuMemAllocAsync(&ptr, bytes, stream));
    return ptr;
}

/* Growing and shrinking */

static void a_pool_grows(void)
{
    CUmemoryPool pool = begin(), again;
    uint64_t before = used();
    CUdeviceptr a, b, c;

    OK(cuDeviceGetMemPool(&again, 0));
    HOLDS(pool == again && reserved(pool) == 0);
    INVALID(cuMemAllocAsync(&a, 0, t.streams[0]));
    INVALID(cuMemAllocAsync(NULL, 512, t.streams[0]));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&a, 20 * GIB, t.streams[0]));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&a, UINT64_MAX - 5, t.streams[0]));
    a = take(1, t.streams[0]);
    b = take(CHUNK - 512, t.streams[1]);
    HOLDS(reserved(pool) == CHUNK && used() - before == CHUNK);
    c = take(CHUNK + 1, t.streams[1]);
    HOLDS(reserved(pool) == 3 * CHUNK && used() - before == 3 * CHUNK);
    HOLDS(told(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 2 * CHUNK + 512);
    HOLDS(a != b && b != c);

    /* Freed is not given back, until somebody waits. */
    OK(cuMemFreeAsync(a, t.streams[2]));
    OK(cuMemFreeAsync(b, t.streams[2]));
    OK(cuMemFree_v2(c));
    INVALID(cuMemFreeAsync(b, t.streams[2]));
    INVALID(cuMemFree_v2(c));
    HOLDS(reserved(pool) == 3 * CHUNK && told(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    OK(cuStreamSynchronize(t.streams[5]));
    HOLDS(reserved(pool) == 0 && used() == before);
    HOLDS(told(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 3 * CHUNK);
    set(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0);
    HOLDS(told(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 0);
}

static void a_threshold_keeps(void)
{
    CUmemoryPool pool = begin();
    CUdeviceptr pieces[8];

    set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 3 * CHUNK);
    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++)
        pieces[i] = take(CHUNK, t.streams[0]);
    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++)
        OK(cuMemFreeAsync(pieces[i], t.streams[0]));
    HOLDS(reserved(pool) == 8 * CHUNK);
    OK(cuCtxSynchronize());
    HOLDS(reserved(pool) == 3 * CHUNK);
    OK(cuMemPoolTrimTo(pool, 4 * CHUNK));
    HOLDS(reserved(pool) == 3 * CHUNK);
    pieces[0] = take(512, t.streams[0]);
    OK(cuMemPoolTrimTo(pool, 0));
    HOLDS(reserved(pool) == CHUNK);
    OK(cuMemFreeAsync(pieces[0], t.streams[0]));
    OK(cuEventRecord(t.events[0], t.streams[0]));
    OK(cuEventSynchronize(t.events[0]));
    HOLDS(reserved(pool) == CHUNK);
    OK(cuMemPoolTrimTo(pool, CHUNK - 1));
    HOLDS(reserved(pool) == CHUNK);
    OK(cuMemPoolTrimTo(pool, 0));
    HOLDS(reserved(pool) == 0);
}

/* Reuse */

/* In the stream that freed it at once; in others once that one has come so far. */
static void reuse_follows_streams(void)
{
    CUmemoryPool pool = begin();
    CUdeviceptr a, b;

    a = take(CHUNK, t.streams[0]);
    OK(testing_launch(t.kernel, t.streams[0], 1, NS_PER_MS, 0));
    OK(cuMemFreeAsync(a, t.streams[0]));
    HOLDS(told(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == CHUNK);
    HOLDS(take(CHUNK, t.streams[0]) == a);
    OK(cuMemFreeAsync(a, t.streams[0]));
    b = take(CHUNK, t.streams[1]);
    HOLDS(b != a && reserved(pool) == 2 * CHUNK);
    testing_step(2 * NS_PER_MS);
    HOLDS(told(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == CHUNK);
    HOLDS(take(CHUNK, t.streams[1]) == a);
}

static void what_nobody_waited_for(void)
{
    CUmemoryPool pool = begin();
    CUdeviceptr a;

    allow(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, 0);
    a = take(CHUNK, t.streams[0]);
    OK(cuMemFreeAsync(a, t.streams[0]));
    HOLDS(take(CHUNK, t.streams[1]) != a);
    set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
    OK(cuStreamSynchronize(t.streams[0]));
    HOLDS(take(CHUNK, t.streams[1]) == a);
}

/* Where there is no more, one stream waits for another. */
static void a_stream_is_made_to_wait(void)
{
    CUmemoryPool pool = begin();
    CUdeviceptr a, b;

    a = take(15 * GIB, t.streams[0]);
    OK(testing_launch(t.kernel, t.streams[0], 1, NS_PER_MS, 0));
    OK(cuMemFreeAsync(a, t.streams[0]));
    allow(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&b, GIB, t.streams[1]));
    allow(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1);
    b = take(GIB, t.streams[1]);
    HOLDS(b == a && reserved(pool) == 15 * GIB);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery(t.streams[1]));
    testing_step(2 * NS_PER_MS);
    OK(cuStreamQuery(t.streams[1]));
}

/* Pools */

static void pools_of_ones_own(void)
{
    CUmemPoolProps props = on_device;
    CUmemoryPool pool, other, got;
    uint64_t before;
    CUdeviceptr a;
    int flags;

    (void)begin();
    before = used();
    INVALID(cuMemPoolCreate(NULL, &on_device));
    INVALID(cuMemPoolCreate(&pool, NULL));
    props.location.id = 2;
    INVALID(cuMemPoolCreate(&pool, &props));
    props = on_device;
    props.handleTypes = 8; /* fabric */
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuMemPoolCreate(&pool, &props));
    props = on_device;
    props.maxSize = 4 * CHUNK;
    OK(cuMemPoolCreate(&pool, &props));
    props.location.id = 1;
    OK(cuMemPoolCreate(&other, &props));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&a, 4 * CHUNK + 1, pool, t.streams[0]));
    OK(cuMemAllocFromPoolAsync(&a, 3 * CHUNK + 1, pool, t.streams[0]));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync(&a, CHUNK, pool, t.streams[0]));
    HOLDS(used() - before == 4 * CHUNK);

    /* The pool says which device it is, whatever the stream's. */
    OK(cuMemAllocFromPoolAsync(&a, CHUNK, other, t.streams[0]));
    HOLDS(used() - before == 4 * CHUNK && reserved(other) == CHUNK);

    INVALID(cuDeviceSetMemPool(0, other));
    OK(cuDeviceSetMemPool(0, pool));
    OK(cuDeviceGetMemPool(&got, 0));
    HOLDS(got == pool);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&a, CHUNK, t.streams[0]));
    OK(cuMemPoolGetAccess(&flags, pool, &props.location));
    HOLDS(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    OK(cuMemPoolDestroy(pool));
    INVALID(cuMemPoolDestroy(pool));
    OK(cuDeviceGetMemPool(&got, 0));
    INVALID(cuMemPoolDestroy(got));
    OK(cuMemAllocAsync(&a, CHUNK, t.streams[0]));
}

/* It goes with the last piece. */
static void a_destroyed_pool_keeps(void)
{
    CUmemoryPool pool;
    CUdeviceptr a, b;
    uint64_t before;

    (void)begin();
    before = used();
    OK(cuMemPoolCreate(&pool, &on_device));
    OK(cuMemAllocFromPoolAsync(&a, CHUNK, pool, t.streams[0]));
    OK(cuMemAllocFromPoolAsync(&b, CHUNK, pool, t.streams[0]));
    OK(cuMemFreeAsync(b, t.streams[0]));
    OK(cuMemPoolDestroy(pool));
    INVALID(cuMemAllocFromPoolAsync(&b, CHUNK, pool, t.streams[0]));
    HOLDS(used() - before == CHUNK);
    OK(cuMemFree_v2(a));
    HOLDS(used() == before);
}

/* Whose they are */

static void no_context_owns_it(void)
{
    CUdeviceptr a, base;
    CUmemoryPool pool;
    size_t bytes;

    pool = begin();
    a = take(3 * CHUNK, NULL);
    OK(cuMemGetAddressRange_v2(&base, &bytes, a + 7));
    HOLDS(base == a && bytes == 3 * CHUNK);
    OK(cuCtxDestroy_v2(t.context));
    HOLDS(testing_used_bytes() == 3 * CHUNK && reserved(pool) == 3 * CHUNK);
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemAllocAsync(&base, 512, NULL));
    testing_begin_context(&t, 0);
    OK(cuMemFreeAsync(a, t.streams[0]));
    OK(cuStreamSynchronize(t.streams[0]));
    HOLDS(used() <= 4096);
}

/* What cuMemAlloc gave is freed in the order of a stream, too. */
static void kinds_are_mixed(void)
{
    uint64_t before;
    CUdeviceptr a;

    (void)begin();
    before = used();
    OK(cuMemAlloc_v2(&a, CHUNK));
    OK(cuMemFreeAsync(a, t.streams[0]));
    HOLDS(used() == before);
    INVALID(cuMemFreeAsync(a, t.streams[0]));
    OK(cuMemFreeAsync(0, t.streams[0]));
}

static void captured(void)
{
    CUdeviceptr a;
    uint64_t before;
    CUgraph graph;

    (void)begin();
    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&a, CHUNK, t.streams[1]));
    OK(cuMemFreeAsync(a, t.streams[1]));
    before = used();
    OK(cuMemAllocAsync(&a, CHUNK, t.streams[0]));
    OK(cuStreamEndCapture(t.streams[0], &graph));
    HOLDS(used() == before);
    OK(cuGraphDestroy(graph));
}

/* What one process gives another one of a pool. */
struct gift {
    pid_t pid;
    int fd;
    CUmemPoolPtrExportData pointer;
};

static void go_on(int fd)
{
    HOLDS(write(fd, "x", 1) == 1);
}

static void wait_for(int fd)
{
    char c;

    HOLDS(read(fd, &c, 1) == 1);
}

static void import_from(int from, int to)
{
    struct gift gift;
    CUmemoryPool pool;
    CUdeviceptr a, b;
    char name[64];
    uint64_t before;
    int fd;

    (void)alarm(20);
    HOLDS(read(from, &gift, sizeof(gift)) == sizeof(gift));
    testing_begin(&t);
    before = testing_used_bytes();
    (void)snprintf(name, sizeof(name), "/proc/%d/fd/%d", (int)gift.pid, gift.fd);
    fd = open(name, O_RDWR | O_CLOEXEC);
    OK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, 1, 0));
    INVALID(cuMemAllocFromPoolAsync(&a, CHUNK, pool, t.streams[0]));
    INVALID(cuDeviceSetMemPool(0, pool));
    INVALID(cuMemPoolExportToShareableHandle(&fd, pool, 1, 0));
    OK(cuMemPoolImportPointer(&a, pool, &gift.pointer));
    OK(cuMemPoolImportPointer(&b, pool, &gift.pointer));
    HOLDS(a != b && testing_used_bytes() == before);
    HOLDS(told(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 2 * CHUNK);
    OK(cuMemFreeAsync(b, t.streams[0]));
    go_on(to);
    wait_for(from); /* its maker has ended the pool */
    HOLDS(testing_used_bytes() == before);
    OK(cuMemFree_v2(a));
    HOLDS(testing_used_bytes() == before - CHUNK);
    INVALID(cuMemPoolImportPointer(&a, pool, &gift.pointer));
    OK(cuMemPoolDestroy(pool));
}

static void shared(void)
{
    CUmemPoolProps props = on_device;
    struct gift gift = {.pid = getpid()};
    int there[2], back[2], status;
    CUmemoryPool pool;
    CUdeviceptr a;
    uint64_t before;
    pid_t pid;

    HOLDS(pipe(there) == 0 && pipe(back) == 0);
    pid = fork();
    if (pid == 0) {
        import_from(there[0], back[1]);
        _exit(0);
    }
    (void)begin();
    before = testing_used_bytes();
    OK(cuMemPoolCreate(&pool, &props));
    INVALID(cuMemPoolExportToShareableHandle(&gift.fd, pool, 1, 0));
    OK(cuMemPoolDestroy(pool));
    props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    OK(cuMemPoolCreate(&pool, &props));
    OK(cuMemPoolExportToShareableHandle(&gift.fd, pool, 1, 0));
    OK(cuMemAllocFromPoolAsync(&a, CHUNK, pool, t.streams[0]));
    OK(cuMemPoolExportPointer(&gift.pointer, a));
    HOLDS(testing_used_bytes() == before + CHUNK);
    HOLDS(write(there[1], &gift, sizeof(gift)) == sizeof(gift));
    wait_for(back[0]);

    /* It gives nothing back before its end, and then what others have is theirs. */
    OK(cuMemFree_v2(a));
    OK(cuMemPoolTrimTo(pool, 0));
    HOLDS(told(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == CHUNK);
    OK(cuMemPoolDestroy(pool));
    go_on(there[1]);
    HOLDS(waitpid(pid, &status, 0) == pid && status == 0);
    HOLDS(testing_used_bytes() == before);
}

HOLDS_IN(a_pool_grows_by_chunks_and_shrinks_when_somebody_waits, "", a_pool_grows)
HOLDS_IN(a_pool_keeps_what_its_threshold_says, "", a_threshold_keeps)
HOLDS_IN(freed_memory_goes_to_its_stream_at_once, "", reuse_follows_streams)
HOLDS_IN(reuse_may_need_that_the_host_waited, "", what_nobody_waited_for)
HOLDS_IN(without_room_a_stream_waits_for_another, "", a_stream_is_made_to_wait)
HOLDS_IN(a_program_makes_pools, "", pools_of_ones_own)
HOLDS_IN(a_destroyed_pool_keeps_what_is_given_out, "", a_destroyed_pool_keeps)
HOLDS_IN(it_belongs_to_no_context, "", no_context_owns_it)
HOLDS_IN(other_memory_is_freed_in_order, "", kinds_are_mixed)
HOLDS_IN(processes_share_pools, "", shared)
HOLDS_IN(a_capture_does_not_forbid_it, "", captured)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_grows_by_chunks_and_shrinks_when_somebody_waits),
        cmocka_unit_test(a_pool_keeps_what_its_threshold_says),
        cmocka_unit_test(freed_memory_goes_to_its_stream_at_once),
        cmocka_unit_test(reuse_may_need_that_the_host_waited),
        cmocka_unit_test(without_room_a_stream_waits_for_another),
        cmocka_unit_test(a_program_makes_pools),
        cmocka_unit_test(a_destroyed_pool_keeps_what_is_given_out),
        cmocka_unit_test(it_belongs_to_no_context),
        cmocka_unit_test(other_memory_is_freed_in_order),
        cmocka_unit_test(processes_share_pools),
        cmocka_unit_test(a_capture_does_not_forbid_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
