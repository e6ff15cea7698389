/* SPDX-License-Identifier: Apache-2.0 */

/* Memory that is made apart from its addresses: who may do what with it, and what it takes. */

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

#define PIECE (2 * MIB)
#define INVALID(call) GIVES(CUDA_ERROR_INVALID_VALUE, call)

static const CUmemAllocationProp on_device = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
};

static CUmemAllocationProp shareable(void)
{
    CUmemAllocationProp prop = on_device;

    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return prop;
}

static const CUmemAccessDesc read_write = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
};

static CUmemGenericAllocationHandle make(uint64_t bytes)
{
    CUmemAllocationProp prop = shareable();
    CUmemGenericAllocationHandle handle;

    OK(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

static CUdeviceptr reserve(uint64_t bytes)
{
    CUdeviceptr ptr;

    OK(cuMemAddressReserve(&ptr, bytes, 0, 0, 0));
    return ptr;
}

static uint64_t used(void)
{
    return testing_used_bytes();
}

/* Addresses */

static void addresses(void)
{
    CUdeviceptr a, b, c;

    GIVES(CUDA_ERROR_NOT_INITIALIZED, cuMemAddressReserve(&a, PIECE, 0, 0, 0));
    OK(cuInit(0));
    INVALID(cuMemAddressReserve(NULL, PIECE, 0, 0, 0));
    INVALID(cuMemAddressReserve(&a, 0, 0, 0, 0));
    INVALID(cuMemAddressReserve(&a, 4096, 0, 0, 0));
    INVALID(cuMemAddressReserve(&a, PIECE, 3 * MIB, 0, 0));
    INVALID(cuMemAddressReserve(&a, PIECE, 0, 0, 1));
    OK(cuMemAddressReserve(&a, 4 * PIECE, 0, 0, 0));
    OK(cuMemAddressReserve(&b, PIECE, 64 * MIB, 0, 0));
    HOLDS(a % PIECE == 0 && b % (64 * MIB) == 0 && (b < a || b >= a + 4 * PIECE));

    /* A hint is followed where it is free. */
    OK(cuMemAddressReserve(&c, PIECE, 0, a, 0));
    HOLDS(c != a);
    OK(cuMemAddressFree(c, PIECE));
    INVALID(cuMemAddressFree(c, PIECE));
    INVALID(cuMemAddressFree(a, 3 * PIECE));
    INVALID(cuMemAddressFree(a + PIECE, 3 * PIECE));
    OK(cuMemAddressFree(a, 4 * PIECE));
    OK(cuMemAddressReserve(&c, PIECE, 0, a + PIECE, 0));
    HOLDS(c == a + PIECE);

    /* More than the card has is usual. */
    OK(cuMemAddressReserve(&a, 64 * GIB, 0, 0, 0));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&a, UINT64_C(1) << 50, 0, 0, 0));
    HOLDS(used() == 0);
}

/* Making */

static void what_is_asked_for(void)
{
    CUmemAllocationProp prop = on_device;
    CUmemGenericAllocationHandle handle;
    size_t granule;

    OK(cuInit(0));
    OK(cuMemGetAllocationGranularity(&granule, &on_device, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    HOLDS(granule == PIECE);
    OK(cuMemGetAllocationGranularity(&granule, &on_device, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    INVALID(cuMemGetAllocationGranularity(&granule, &on_device, 2));
    INVALID(cuMemGetAllocationGranularity(NULL, &on_device, 0));
    INVALID(cuMemGetAllocationGranularity(&granule, NULL, 0));

    INVALID(cuMemCreate(NULL, PIECE, &on_device, 0));
    INVALID(cuMemCreate(&handle, 0, &on_device, 0));
    INVALID(cuMemCreate(&handle, PIECE + 512, &on_device, 0));
    INVALID(cuMemCreate(&handle, PIECE, &on_device, 1));
    INVALID(cuMemCreate(&handle, PIECE, NULL, 0));
    prop.type = 0;
    INVALID(cuMemCreate(&handle, PIECE, &prop, 0));
    prop = on_device;
    prop.location.id = 2;
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuMemCreate(&handle, PIECE, &prop, 0));
    prop.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT};
    INVALID(cuMemCreate(&handle, PIECE, &prop, 0));
    prop = shareable();
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST;
    INVALID(cuMemCreate(&handle, PIECE, &prop, 0));
    prop = on_device;
    prop.allocFlags.gpuDirectRDMACapable = 1;
    for (int type = CU_MEM_LOCATION_TYPE_HOST; type <= CU_MEM_LOCATION_TYPE_HOST_NUMA; type++) {
        prop.location.type = type;
        INVALID(cuMemCreate(&handle, PIECE, &prop, 0));
    }
    prop = on_device;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate(&handle, PIECE, &prop, 0));
    prop.requestedHandleTypes = 16;
    INVALID(cuMemCreate(&handle, PIECE, &prop, 0));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, 17 * GIB, &on_device, 0));
    HOLDS(used() == 0);
}

/* No context is needed, none takes it along, and the host's takes nothing of a card. */
static void what_is_made(void)
{
    CUmemAllocationProp prop = shareable(), told;
    CUmemGenericAllocationHandle handle, host;
    CUcontext context;

    OK(cuInit(0));
    handle = make(3 * PIECE);
    HOLDS(used() == 3 * PIECE);
    OK(cuMemGetAllocationPropertiesFromHandle(&told, handle));
    HOLDS(memcmp(&told, &prop, sizeof(told)) == 0);
    INVALID(cuMemGetAllocationPropertiesFromHandle(NULL, handle));
    INVALID(cuMemGetAllocationPropertiesFromHandle(&told, handle + 160));

    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuCtxDestroy_v2(context));
    HOLDS(used() == 3 * PIECE);

    prop = on_device;
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    OK(cuMemCreate(&host, PIECE, &prop, 0));
    prop.location.type = CU_MEM_LOCATION_TYPE_HOST;
    OK(cuMemCreate(&host, PIECE, &prop, 0));
    HOLDS(used() == 3 * PIECE);
    OK(cuMemRelease(handle));
    INVALID(cuMemRelease(handle));
    INVALID(cuMemRelease(0));
    HOLDS(used() == 0);
}

/* Mapping */

static void what_is_mapped(void)
{
    CUmemGenericAllocationHandle one, two, again;
    CUdeviceptr ptr, base;
    CUcontext context;
    size_t bytes;

    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    ptr = reserve(8 * PIECE);
    one = make(2 * PIECE);
    two = make(PIECE);
    INVALID(cuMemMap(ptr, PIECE / 2, 0, one, 0));
    INVALID(cuMemMap(ptr + 4096, PIECE, 0, one, 0));
    INVALID(cuMemMap(ptr, 2 * PIECE, PIECE, one, 0));
    INVALID(cuMemMap(ptr, 3 * PIECE, 0, one, 0));
    INVALID(cuMemMap(ptr, PIECE, 0, one, 1));
    INVALID(cuMemMap(ptr, PIECE, 0, one + 160, 0));
    INVALID(cuMemMap(ptr + 7 * PIECE, 2 * PIECE, 0, one, 0));
    INVALID(cuMemMap(ptr - PIECE, PIECE, 0, one, 0));
    OK(cuMemMap(ptr + PIECE, 2 * PIECE, 0, one, 0));
    INVALID(cuMemMap(ptr + PIECE, PIECE, 0, two, 0));
    INVALID(cuMemMap(ptr, 2 * PIECE, 0, one, 0));
    OK(cuMemMap(ptr + 3 * PIECE, PIECE, 0, two, 0));
    OK(cuMemMap(ptr + 4 * PIECE, PIECE, 0, one, 0));

    OK(cuMemGetAddressRange_v2(&base, &bytes, ptr + 2 * PIECE + 5));
    HOLDS(base == ptr + PIECE && bytes == 2 * PIECE);
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(ptr + 4 * PIECE + 5)));
    HOLDS(again == one);
    INVALID(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)ptr));
    INVALID(cuMemRetainAllocationHandle(NULL, (void *)(uintptr_t)(ptr + PIECE)));

    /* A run of whole mappings goes at once, a part of one does not. */
    INVALID(cuMemAddressFree(ptr, 8 * PIECE));
    INVALID(cuMemUnmap(ptr + PIECE, PIECE));
    INVALID(cuMemUnmap(ptr, 8 * PIECE));
    INVALID(cuMemUnmap(ptr + 2 * PIECE, 2 * PIECE));
    INVALID(cuMemUnmap(ptr + PIECE, 0));
    OK(cuMemUnmap(ptr + PIECE, 3 * PIECE));
    HOLDS(used() == 100 * MIB + 3 * PIECE);

    /* Made, retained and mapped: as long as any of it holds. */
    OK(cuMemRelease(one));
    OK(cuMemRelease(one));
    INVALID(cuMemRelease(one));
    OK(cuMemRelease(two));
    HOLDS(used() == 100 * MIB + 2 * PIECE);
    OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(ptr + 4 * PIECE)));
    HOLDS(again == one);
    OK(cuMemUnmap(ptr + 4 * PIECE, PIECE));
    HOLDS(used() == 100 * MIB + 2 * PIECE);
    OK(cuMemRelease(again));
    HOLDS(used() == 100 * MIB);
    OK(cuMemAddressFree(ptr, 8 * PIECE));
}

static void who_has_access(void)
{
    CUmemAccessDesc access[2] = {read_write, read_write};
    CUmemLocation here = read_write.location, host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    unsigned long long flags = 9;
    CUdeviceptr ptr;

    OK(cuInit(0));
    ptr = reserve(4 * PIECE);
    OK(cuMemMap(ptr, PIECE, 0, make(PIECE), 0));
    OK(cuMemMap(ptr + PIECE, PIECE, 0, make(PIECE), 0));
    OK(cuMemGetAccess(&flags, &here, ptr));
    HOLDS(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    INVALID(cuMemSetAccess(ptr, 3 * PIECE, &read_write, 1));
    INVALID(cuMemSetAccess(ptr, PIECE / 2, &read_write, 1));
    INVALID(cuMemSetAccess(ptr, PIECE, &read_write, 0));
    INVALID(cuMemSetAccess(ptr, PIECE, NULL, 1));
    access[1].flags = 2;
    INVALID(cuMemSetAccess(ptr, 2 * PIECE, access, 2));
    OK(cuMemGetAccess(&flags, &here, ptr));
    HOLDS(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    access[1] = (CUmemAccessDesc){.location = host, .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    INVALID(cuMemSetAccess(ptr, 2 * PIECE, access, 2));
    access[1].location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuMemSetAccess(ptr, 2 * PIECE, access, 2));

    OK(cuMemSetAccess(ptr, 2 * PIECE, &read_write, 1));
    OK(cuMemGetAccess(&flags, &here, ptr + PIECE + 1));
    HOLDS(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    INVALID(cuMemGetAccess(&flags, &here, ptr + 2 * PIECE));

    /* What is mapped anew is nobody's. */
    OK(cuMemUnmap(ptr, PIECE));
    OK(cuMemMap(ptr, PIECE, 0, make(PIECE), 0));
    OK(cuMemGetAccess(&flags, &here, ptr));
    HOLDS(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

/* Sharing */

static CUmemGenericAllocationHandle import(int fd)
{
    CUmemGenericAllocationHandle handle;

    OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, 1));
    return handle;
}

/* An open descriptor holds the memory, and so does an import, which takes none. */
static uint64_t used_by(pid_t pid)
{
    static struct sim_view view;

    HOLDS(sim_machine_view(testing_machine(), &view, NULL) == 0);
    for (unsigned i = 0; i < view.process_count; i++) {
        if (view.processes[i].pid == pid)
            return view.processes[i].used_bytes[0];
    }
    return 0;
}

static void a_descriptor_holds(void)
{
    CUmemGenericAllocationHandle handle, other, private;
    int fd, second, none;

    OK(cuInit(0));
    OK(cuMemCreate(&private, PIECE, &on_device, 0));
    INVALID(cuMemExportToShareableHandle(&fd, private, 1, 0));
    OK(cuMemRelease(private));
    handle = make(PIECE);
    INVALID(cuMemExportToShareableHandle(NULL, handle, 1, 0));
    INVALID(cuMemExportToShareableHandle(&fd, handle, 1, 1));
    INVALID(cuMemExportToShareableHandle(&fd, handle, 2, 0));
    OK(cuMemExportToShareableHandle(&fd, handle, 1, 0));
    OK(cuMemExportToShareableHandle(&second, handle, 1, 0));
    HOLDS(fd != second && (fcntl(fd, F_GETFD) & FD_CLOEXEC));

    none = open("/dev/null", O_RDWR);
    INVALID(cuMemImportFromShareableHandle(&other, (void *)(intptr_t)none, 1));
    INVALID(cuMemImportFromShareableHandle(&other, (void *)(intptr_t)-1, 1));
    INVALID(cuMemImportFromShareableHandle(&other, (void *)(intptr_t)fd, 8));
    other = import(fd);
    HOLDS(other != handle && used() == PIECE);

    HOLDS(used_by(getpid()) == PIECE);
    OK(cuMemRelease(handle));
    HOLDS(used() == PIECE && used_by(getpid()) == 0); /* though its maker has imported it */
    OK(cuMemRelease(other));
    HOLDS(used() == PIECE);
    HOLDS(close(fd) == 0);
    other = import(second);
    HOLDS(close(second) == 0);
    HOLDS(used() == PIECE);
    OK(cuMemRelease(other));
    HOLDS(used() == 0);
}

static int pipes[3][2];

/* The importer begins first, and is given the descriptor as a copy of the exporter's. */
static void importer(void)
{
    struct {
        pid_t pid;
        int fd;
    } from;
    int fd;

    HOLDS(read(pipes[0][0], &from, sizeof(from)) == sizeof(from));
    OK(cuInit(0));
    fd = testing_descriptor_of(from.pid, from.fd);
    HOLDS(fd >= 0);
    (void)import(fd);
    HOLDS(close(fd) == 0);
    HOLDS(write(pipes[1][1], "k", 1) == 1);
    (void)pause();
}

/* Lets go of it, but for its descriptor, when it is told so; then of that. */
static void maker_of(CUmemGenericAllocationHandle handle)
{
    struct {
        pid_t pid;
        int fd;
    } from = {.pid = getpid()};
    char c;

    OK(cuMemExportToShareableHandle(&from.fd, handle, 1, 0));
    HOLDS(write(pipes[0][1], &from, sizeof(from)) == sizeof(from));
    HOLDS(read(pipes[2][0], &c, 1) == 1);
    OK(cuMemRelease(handle));
    HOLDS(write(pipes[1][1], "k", 1) == 1);
    HOLDS(read(pipes[2][0], &c, 1) == 1);
    HOLDS(close(from.fd) == 0);
    OK(cuMemCreate(&handle, PIECE, &on_device, 0)); /* the simulator looks then */
    HOLDS(write(pipes[1][1], "k", 1) == 1);
    (void)pause();
}

static pid_t begin_sharing(pid_t *ret_importer)
{
    pid_t maker;
    char c;

    HOLDS(pipe(pipes[0]) == 0 && pipe(pipes[1]) == 0 && pipe(pipes[2]) == 0);
    *ret_importer = fork();
    if (*ret_importer == 0)
        importer();
    maker = fork();
    if (maker == 0) {
        testing_offer_descriptors();
        OK(cuInit(0));
        maker_of(make(4 * PIECE));
    }
    HOLDS(read(pipes[1][0], &c, 1) == 1);
    HOLDS(used() == 4 * PIECE && used_by(maker) == 4 * PIECE && used_by(*ret_importer) == 0);
    return maker;
}

static void tell_maker(void)
{
    char c;

    HOLDS(write(pipes[2][1], "k", 1) == 1);
    HOLDS(read(pipes[1][0], &c, 1) == 1);
}

/* What its maker has let go of is counted for nobody while a descriptor of it is open, then for who
 * has it. */
static void an_open_descriptor_hides_it(void)
{
    pid_t other, maker = begin_sharing(&other);

    tell_maker();
    HOLDS(used() == 4 * PIECE && used_by(maker) == 0 && used_by(other) == 0);
    tell_maker();
    HOLDS(used() == 5 * PIECE && used_by(maker) == PIECE && used_by(other) == 4 * PIECE);
    HOLDS(kill(maker, SIGKILL) == 0 && kill(other, SIGKILL) == 0);
    HOLDS(waitpid(maker, NULL, 0) == maker && waitpid(other, NULL, 0) == other);
    HOLDS(used() == 0);
}

/* It is counted for who made it, and after that one's end for who has it. */
static void an_import_outlives_its_maker(void)
{
    pid_t other, maker = begin_sharing(&other);

    HOLDS(kill(maker, SIGKILL) == 0 && waitpid(maker, NULL, 0) == maker);
    HOLDS(used() == 4 * PIECE && used_by(other) == 4 * PIECE);
    HOLDS(kill(other, SIGKILL) == 0 && waitpid(other, NULL, 0) == other);
    HOLDS(used() == 0);
}

static void captured(void)
{
    CUmemGenericAllocationHandle handle;
    struct testing t;
    CUgraph graph;

    testing_begin(&t);
    OK(cuStreamBeginCapture_v2(t.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemCreate(&handle, PIECE, &on_device, 0));
    GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(t.streams[0], &graph));
}

static void stale_release(void)
{
    CUmemGenericAllocationHandle handle;

    OK(cuInit(0));
    handle = make(PIECE);
    OK(cuMemRelease(handle));
    (void)signal(SIGSEGV, SIG_DFL); /* cmocka's goes on */
    (void)cuMemRelease(handle);
}

HOLDS_IN(addresses_are_reserved_apart, "", addresses)
HOLDS_IN(what_makes_no_sense_is_not_made, "", what_is_asked_for)
HOLDS_IN(memory_belongs_to_no_context, "", what_is_made)
HOLDS_IN(memory_lives_while_a_handle_or_a_mapping_does, "", what_is_mapped)
HOLDS_IN(access_is_set_for_whole_mappings, "", who_has_access)
HOLDS_IN(a_descriptor_holds_memory, "", a_descriptor_holds)
HOLDS_IN(an_import_outlives_the_maker, "", an_import_outlives_its_maker)
HOLDS_IN(a_descriptor_hides_what_its_maker_has_left, "", an_open_descriptor_hides_it)
HOLDS_IN(a_capture_forbids_it, "", captured)

static void a_dead_handle_is_an_error_or_the_end(void **state)
{
    int status = testing_run("stale-handles=crash", stale_release);

    (void)state;
    assert_int_equal(testing_run("", stale_release), 0);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_reserved_apart),
        cmocka_unit_test(what_makes_no_sense_is_not_made),
        cmocka_unit_test(memory_belongs_to_no_context),
        cmocka_unit_test(memory_lives_while_a_handle_or_a_mapping_does),
        cmocka_unit_test(access_is_set_for_whole_mappings),
        cmocka_unit_test(a_descriptor_holds_memory),
        cmocka_unit_test(an_import_outlives_the_maker),
        cmocka_unit_test(a_descriptor_hides_what_its_maker_has_left),
        cmocka_unit_test(a_capture_forbids_it),
        cmocka_unit_test(a_dead_handle_is_an_error_or_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
