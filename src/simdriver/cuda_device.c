/* SPDX-License-Identifier: Apache-2.0 */

/* Devices: which there are, and what they say of themselves. */

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "simdriver/guest.h"
#include "simdriver/mig.h"

/* The last CUdevice_attribute of CUDA 13.0; those up to it that are not simulated read 0. */
#define LAST_ATTRIBUTE 145

/* Devices that a process may have, in the order of their numbers. */
struct choice {
    unsigned count;
    unsigned devices[SIM_MAX_GPUS];
};

static bool has(const struct choice *choice, unsigned device)
{
    for (unsigned i = 0; i < choice->count; i++) {
        if (choice->devices[i] == device)
            return true;
    }
    return false;
}

static bool add(struct choice *choice, int device)
{
    if (device < 0 || choice->count == SIM_MAX_GPUS || has(choice, (unsigned)device))
        return false;
    choice->devices[choice->count++] = (unsigned)device;
    return true;
}

/* The next piece of a list with commas; its length, 0 at the end. */
static size_t next_token(const char **text, const char **ret_token)
{
    const char *at = *text;
    size_t len;

    while (isspace((unsigned char)*at))
        at++;
    *ret_token = at;
    len = strcspn(at, ", \t\n");
    at += strcspn(at, ",");
    *text = at + (*at == ',');
    return len;
}

/*
 * Who is handed instances by NVIDIA's container toolkit, or by a CDI specification, has no others;
 * NVIDIA_VISIBLE_DEVICES stands for that here. Who is handed whole cards is not held to them.
 */
static bool is_handed(const struct sim_state *s, unsigned device, const char *handed)
{
    const char *token;
    size_t len;

    if (!handed || !strstr(handed, "MIG-"))
        return true;
    while (*handed) {
        len = next_token(&handed, &token);
        if (sim_mig_find(s, token, len) == (int)device)
            return true;
    }
    return false;
}

/* Instances, or where there is none cards: never both. A card in MIG mode is none by itself. */
static void list_devices(const struct sim_state *s, const char *handed, struct choice *all)
{
    for (unsigned i = SIM_MAX_GPUS; i < sim_device_end(s); i++) {
        if (sim_is_device(s, i) && is_handed(s, i, handed))
            (void)add(all, (int)i);
    }
    if (all->count)
        return;
    for (unsigned i = 0; i < s->header.gpu_count; i++) {
        if (!s->health[i].mig && is_handed(s, i, handed))
            (void)add(all, (int)i);
    }
}

static int find_gpu(const struct sim_state *s, const char *token, size_t len)
{
    int found = -1;

    for (unsigned i = 0; i < s->header.gpu_count; i++) {
        if (strncmp(s->header.gpus[i].uuid, token, len) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = (int)i;
    }
    return found >= 0 && !s->health[found].mig ? found : -1;
}

static int device_of_token(const struct sim_state *s, const struct choice *all, const char *handed,
                           const char *token, size_t len)
{
    char *end;
    long index;
    int found;

    if (len > 4 && strncmp(token, "GPU-", 4) == 0)
        return find_gpu(s, token, len);
    if (len > 4 && strncmp(token, "MIG-", 4) == 0) {
        found = sim_mig_find(s, token, len);
        return found >= 0 && is_handed(s, (unsigned)found, handed) ? found : -1;
    }
    index = strtol(token, &end, 10);
    if (end == token || end > token + len || index < 0 || index >= (long)all->count)
        return -1;
    return (int)all->devices[index];
}

unsigned guest_visible_devices(const struct sim_state *s, const char *text, const char *handed,
                               unsigned *ret_devices)
{
    struct choice all = {0}, chosen = {0};
    const char *token;
    size_t len;

    list_devices(s, handed, &all);
    if (!text)
        chosen = all;
    while (text && *text) {
        len = next_token(&text, &token);
        if (!add(&chosen, device_of_token(s, &all, handed, token, len)))
            break;
    }
    memcpy(ret_devices, chosen.devices, chosen.count * sizeof(*ret_devices));
    return chosen.count;
}

static const struct sim_gpu_spec *spec_of(CUdevice device)
{
    return sim_spec_of(guest_state(), guest.devices[device]);
}

PUBLIC CUresult cuDeviceGetCount(int *count)
{
    CUresult r = guest_pass_fault(guest_check());

    if (r != CUDA_SUCCESS)
        return r;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = (int)guest.device_count;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult r = guest_check_device(ordinal);

    if (r != CUDA_SUCCESS)
        return r;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDeviceGetName(char *name, int len, CUdevice device)
{
    CUresult r = guest_check_device(device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!name || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    copy_text(name, (size_t)len, spec_of(device)->model);
    return CUDA_SUCCESS;
}

/* The hexadecimal digits behind "GPU-" or "MIG-"; what is no digit is skipped, what is missing is
 * 0. */
static void uuid_bytes(const char *text, unsigned char *bytes)
{
    unsigned digits = 0;

    memset(bytes, 0, 16);
    if (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0)
        text += 4;
    for (; *text && digits < 32; text++) {
        unsigned char c = (unsigned char)*text;
        unsigned value;

        if (!isxdigit(c))
            continue;
        value = (unsigned)(isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
        bytes[digits / 2] |= (unsigned char)(digits % 2 ? value : value << 4);
        digits++;
    }
}

PUBLIC CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    CUresult r = guest_check_device(device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    uuid_bytes(spec_of(device)->uuid, uuid->bytes);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid(uuid, device);
}

PUBLIC CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult r = guest_check_device(device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = spec_of(device)->memory_bytes;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    size_t all;
    CUresult r = cuDeviceTotalMem_v2(&all, device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = (unsigned int)MIN(all, (size_t)UINT32_MAX);
    return CUDA_SUCCESS;
}

static int attribute_of(const struct sim_gpu_spec *spec, unsigned index,
                        CUdevice_attribute attribute)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
        return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
        return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
        return INT32_MAX;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
        return 65535;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
        return 32;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
        return 1000000;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        return (int)spec->multiprocessors;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
        return 2048;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED:
        return 1;
    case CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        return guest_state()->header.driver.host_memory != SIM_HOST_MEMORY_NODES;
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
        return guest_state()->header.driver.multicast == SIM_MULTICAST_YES;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
        return (int)index + 1;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        return (int)spec->compute_major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        return (int)spec->compute_minor;
    default:
        return 0;
    }
}

PUBLIC CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    CUresult r = guest_check_device(device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!value || attribute < 1 || attribute > LAST_ATTRIBUTE)
        return CUDA_ERROR_INVALID_VALUE;
    *value = attribute_of(spec_of(device), sim_gpu_of(guest.devices[device]), attribute);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    CUresult r = guest_check_device(device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    *major = (int)spec_of(device)->compute_major;
    *minor = (int)spec_of(device)->compute_minor;
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDeviceGetPCIBusId(char *bus_id, int len, CUdevice device)
{
    CUresult r = guest_check_device(device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!bus_id || len <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    (void)snprintf(bus_id, (size_t)len, "0000:%02X:00.0", sim_gpu_of(guest.devices[device]) + 1);
    return CUDA_SUCCESS;
}

PUBLIC CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *bus_id)
{
    unsigned domain = 0, bus = 0, slot = 0;
    CUresult r = guest_pass_fault(guest_check());

    if (r != CUDA_SUCCESS)
        return r;
    if (!device || !bus_id || sscanf(bus_id, "%8x:%2x:%2x", &domain, &bus, &slot) < 2)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < guest.device_count; i++) {
        if (domain == 0 && bus == sim_gpu_of(guest.devices[i]) + 1) {
            *device = (CUdevice)i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

PUBLIC CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    CUresult r = guest_check_device(device);

    if (r == CUDA_SUCCESS)
        r = guest_check_device(peer);
    if (r != CUDA_SUCCESS)
        return r;
    if (!can)
        return CUDA_ERROR_INVALID_VALUE;
    *can = 0;
    return CUDA_SUCCESS;
}
