/* SPDX-License-Identifier: Apache-2.0 */

/* Multicast objects: who joins, what is bound, and that they take no memory. */

#include <fcntl.h>
#include <setjmp.h>
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

static const CUmulticastObjectProp team = {
    .numDevices = 2,
    .size = 4 * PIECE,
    .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
};

static CUmemGenericAllocationHandle make(int device, uint64_t bytes)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    CUmemGenericAllocationHandle handle;

    OK(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

static void binding(void)
{
    CUmemGenericAllocationHandle object, memory;
    CUdeviceptr ptr;
    size_t granule;
    int value;

    OK(cuInit(0));
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0));
    HOLDS(value == 1);
    OK(cuMulticastGetGranularity(&granule, &team, 0));
    HOLDS(granule == PIECE);
    INVALID(cuMulticastCreate(NULL, &team));
    INVALID(cuMulticastCreate(&object, NULL));
    OK(cuMulticastCreate(&object, &team));
    OK(cuMulticastAddDevice(object, 0));
    INVALID(cuMulticastAddDevice(object, 0));
    OK(cuMulticastAddDevice(object, 1));
    HOLDS(testing_used_bytes() == 0);

    memory = make(0, 4 * PIECE);
    INVALID(cuMulticastAddDevice(memory, 0));
    INVALID(cuMulticastBindMem(object, 512, memory, 0, PIECE, 0));
    INVALID(cuMulticastBindMem(object, 0, memory, 0, 5 * PIECE, 0));
    OK(cuMulticastBindMem(object, 0, memory, 0, 4 * PIECE, 0));
    INVALID(cuMulticastBindMem(object, PIECE, memory, 0, PIECE, 0));
    OK(cuMemAddressReserve(&ptr, 4 * PIECE, 0, 0, 0));
    OK(cuMemMap(ptr, 4 * PIECE, 0, object, 0));

    /* It holds what is bound; unbound as it was bound, that is gone. */
    OK(cuMemRelease(memory));
    HOLDS(testing_used_bytes() == 4 * PIECE);
    INVALID(cuMulticastUnbind(object, 0, 0, PIECE));
    OK(cuMulticastUnbind(object, 0, 0, 4 * PIECE));
    HOLDS(testing_used_bytes() == 0);

    memory = make(0, PIECE);
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuMulticastBindMem_v2(object, 2, 0, memory, 0, PIECE, 0));
    INVALID(cuMulticastBindMem_v2(object, 1, 0, memory, 0, PIECE, 0));
    OK(cuMulticastBindMem_v2(object, 0, 0, memory, 0, PIECE, 0));
    OK(cuMemRelease(memory));
    OK(cuMemRelease(object));
    HOLDS(testing_used_bytes() == PIECE);
    OK(cuMemUnmap(ptr, 4 * PIECE));
    HOLDS(testing_used_bytes() == 0);
}

/* A process waits until another one's device has joined. */
static void waiting(void)
{
    CUmemGenericAllocationHandle object, memory;
    int to[2], fds[2], fd, status;
    pid_t other;

    HOLDS(pipe(to) == 0);
    other = fork();
    if (other == 0) {
        (void)alarm(20);
        HOLDS(read(to[0], fds, sizeof(fds)) == sizeof(fds));
        OK(cuInit(0));
        fd = testing_descriptor_of(fds[0], fds[1]);
        OK(cuMemImportFromShareableHandle(&object, (void *)(intptr_t)fd, 1));
        (void)usleep(20000);
        OK(cuMulticastAddDevice(object, 1));
        _exit(0);
    }
    testing_offer_descriptors();
    OK(cuInit(0));
    OK(cuMulticastCreate(&object, &team));
    OK(cuMulticastAddDevice(object, 0));
    memory = make(0, PIECE);
    OK(cuMemExportToShareableHandle(&fds[1], object, 1, 0));
    fds[0] = getpid();
    HOLDS(write(to[1], fds, sizeof(fds)) == sizeof(fds));
    OK(cuMulticastBindMem(object, 0, memory, 0, PIECE, 0));
    HOLDS(waitpid(other, &status, 0) == other && status == 0);
}

static void without(void)
{
    CUmemGenericAllocationHandle object;
    int value;

    OK(cuInit(0));
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0));
    HOLDS(value == 0);
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuMulticastCreate(&object, &team));
}

HOLDS_IN(an_object_holds_what_is_bound_to_it, "multicast=yes", binding)
HOLDS_IN(binding_waits_for_all_devices, "multicast=yes", waiting)
HOLDS_IN(most_devices_have_none, "", without)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_object_holds_what_is_bound_to_it),
        cmocka_unit_test(binding_waits_for_all_devices),
        cmocka_unit_test(most_devices_have_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
