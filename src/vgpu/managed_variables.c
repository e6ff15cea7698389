/* SPDX-License-Identifier: Apache-2.0 */

/* Variables in managed memory, and where a range of such memory may be. */

#include <string.h>
#include <sys/mman.h>

#include "base/glibc.h"
#include "region/ledger.h"
#include "vgpu/grant.h"
#include "vgpu/managed.h"
#include "vgpu/managed_table.h"
#include "vgpu/pools.h"
#include "vgpu/real.h"

#define VARIABLES_FIRST 64

/*
 * Variables of modules and libraries in managed memory. The driver has a name for each and tells
 * nobody which there are: one is known from when it is asked for by its name, as the CUDA runtime
 * does for each of a program's.
 */
struct variable {
    const void *owner; /* the module, the library; NULL: nobody's any more */
    CUdeviceptr ptr;
    size_t bytes;
    unsigned context;        /* with which it goes, if not with its owner */
    struct allocation entry; /* while its owner is being unloaded */
};

/* Under the lock over making and freeing. */
static struct {
    struct variable *list;
    size_t count, room;
} variables;

void managed_variables_after_fork(void)
{
    variables.count = 0;
}

static struct variable *new_variable(void)
{
    size_t room = variables.room ? 2 * variables.room : VARIABLES_FIRST;
    void *list;

    for (size_t i = 0; i < variables.count; i++) {
        if (!variables.list[i].owner)
            return &variables.list[i];
    }
    if (variables.count == variables.room) {
        list = mmap(NULL, room * sizeof(*variables.list), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (list == MAP_FAILED)
            return NULL;
        if (variables.list) {
            memcpy(list, variables.list, variables.count * sizeof(*variables.list));
            (void)munmap(variables.list, variables.room * sizeof(*variables.list));
        }
        variables.list = list;
        variables.room = room;
    }
    return &variables.list[variables.count++];
}

/* With the lock. Charged, or kept on the host; false: neither may be. */
static bool place_variable(CUdeviceptr ptr, size_t bytes, const void *owner, struct grant *grant)
{
    const bool full = atomic_load(&vgpu.managed) == LIMITS_MANAGED_FULL;
    struct variable *variable = new_variable();
    bool charged;

    if (!variable)
        return false;
    *variable = (struct variable){.ptr = ptr, .bytes = bytes, .context = grant->context};
    charged = full ? grant_take(grant) : grant_try(grant);
    if (charged && !managed_remember(ptr, grant, grant->units, false)) {
        grant_cancel(grant);
        return false;
    }
    if (!charged && (full || !managed_keep_on_host(ptr, bytes, grant->device) ||
                     !managed_remember(ptr, grant, 0, false)))
        return false;
    variable->owner = owner;
    if (!charged)
        return true;
    atomic_fetch_add(&grant->device->managed_units, grant->units);
    grant_end(grant);
    return true;
}

bool managed_met(CUdeviceptr ptr, size_t bytes, const void *owner)
{
    struct grant grant = {.units = ledger_units(bytes)};
    struct allocation entry;
    bool placed;

    if (atomic_load(&vgpu.managed) == LIMITS_MANAGED_FREE)
        return true;
    if (!grant_place(&grant))
        return true;
    if (!grant.device->granted)
        return false;
    managed_begin_placing();
    placed = allocations_look(ALLOCATION_MANAGED, ptr, &entry) ||
             place_variable(ptr, bytes, owner, &grant);
    managed_end_placing();
    return placed;
}

bool managed_begin_unload(const void *owner)
{
    bool any_there = false;

    if (!managed_is_any())
        return false;
    managed_begin_placing();
    for (size_t i = 0; i < variables.count; i++) {
        struct variable *variable = &variables.list[i];

        any_there |= variable->owner != NULL;
        if (variable->owner == owner &&
            !allocations_take(ALLOCATION_MANAGED, variable->ptr, &variable->entry))
            variable->owner = NULL;
    }
    if (!any_there)
        managed_end_placing();
    return any_there;
}

/* By the driver's word; not where it can't be asked, as without a context. */
static bool is_gone(CUdeviceptr ptr)
{
    unsigned int managed = 0;
    CUresult result = REAL(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr);

    return result == CUDA_SUCCESS ? !managed : result == CUDA_ERROR_INVALID_VALUE;
}

/* A library's variable may have been asked for in a module that stands for the library in a
 * context, and goes with it. */
static void forget_gone(struct variable *variable)
{
    if (!is_gone(variable->ptr))
        return;
    if (allocations_take(ALLOCATION_MANAGED, variable->ptr, &variable->entry))
        managed_give_back(&variable->entry);
    variable->owner = NULL;
}

void managed_end_unload(const void *owner, bool gone)
{
    for (size_t i = 0; i < variables.count; i++) {
        struct variable *variable = &variables.list[i];

        if (!variable->owner)
            continue;
        if (variable->owner != owner) {
            forget_gone(variable);
        } else if (gone) {
            managed_give_back(&variable->entry);
            variable->owner = NULL;
        } else {
            (void)allocations_add(ALLOCATION_MANAGED, variable->ptr, &variable->entry);
        }
    }
    managed_end_placing();
}

/* Other memory may soon be where a variable was: it is not to be taken for that. */
void managed_end_context_end(bool held, unsigned context, unsigned now)
{
    if (!held)
        return;
    for (size_t i = 0; i < variables.count; i++) {
        struct variable *variable = &variables.list[i];

        if (!variable->owner || variable->context != context)
            continue;
        variable->context = now;
        if (!now)
            variable->owner = NULL;
    }
    managed_end_placing();
}

/* A variable that a range touches. It need not begin where the driver says that the memory does. */
static const struct variable *touched(CUdeviceptr ptr, size_t bytes)
{
    for (size_t i = 0; i < variables.count; i++) {
        const struct variable *variable = &variables.list[i];

        if (variable->owner && (ptr >= variable->ptr ? ptr - variable->ptr < variable->bytes
                                                     : variable->ptr - ptr < bytes))
            return variable;
    }
    return NULL;
}

/* What an address lies in. False: it is nothing that the driver knows. */
static bool find_range(CUdeviceptr ptr, size_t bytes, CUdeviceptr *ret_base, size_t *ret_size)
{
    const struct variable *variable = touched(ptr, bytes);

    if (!variable)
        return REAL(cuMemGetAddressRange_v2)(ret_base, ret_size, ptr) == CUDA_SUCCESS;
    *ret_base = variable->ptr;
    *ret_size = variable->bytes;
    return true;
}

/* Managed memory that is in no table and no pool is a graph's, which is charged nowhere. */
static CUdevice home_of_others(CUdeviceptr ptr)
{
    unsigned int managed = 0;

    (void)REAL(cuPointerGetAttribute)(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, ptr);
    return managed ? CU_DEVICE_CPU : CU_DEVICE_INVALID;
}

CUdevice managed_home(CUdeviceptr ptr, size_t bytes)
{
    struct allocation entry;
    CUdevice home = CU_DEVICE_CPU;
    CUdeviceptr base;
    size_t size;

    if (!managed_is_any() || vgpu_mode() != VGPU_ON)
        return CU_DEVICE_INVALID;
    if (!find_range(ptr, bytes, &base, &size))
        return home_of_others(ptr);
    if (!allocations_look(ALLOCATION_MANAGED, base, &entry)) {
        if (!pools_home(ptr, &home))
            return home_of_others(ptr);
    } else if (entry.units && !entry.shared) {
        home = vgpu.devices[entry.device].handle;
    }
    return ptr < base || bytes > size - (ptr - base) ? CU_DEVICE_CPU : home;
}
