/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The functions behind ours: the driver's, NVML's, and the dynamic linker's. REAL(cuMemAlloc_v2) is
 * the driver's own function. It is NULL until real_driver() was called for the first time, and
 * never after that: where the driver is missing, or too old to have it, a function of ours stands
 * in, which answers CUDA_ERROR_NOT_FOUND (NVML: FUNCTION_NOT_FOUND).
 */

#include <stdbool.h>

#include "driver/cuda.h"
#include "driver/nvml.h"

/* What we call of the driver without intercepting it. */
#define CALLED_DRIVER(X)                                                                           \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetAttribute)                                                                        \
    X(cuDeviceGetUuid)                                                                             \
    X(cuDeviceGetUuid_v2)                                                                          \
    X(cuDevicePrimaryCtxGetState)                                                                  \
    X(cuCtxGetCurrent)                                                                             \
    X(cuCtxSetCurrent)                                                                             \
    X(cuCtxGetDevice)                                                                              \
    X(cuCtxPushCurrent_v2)                                                                         \
    X(cuCtxPopCurrent_v2)                                                                          \
    X(cuCtxGetLimit)                                                                               \
    X(cuCtxFromGreenCtx)                                                                           \
    X(cuMemPoolGetAttribute)                                                                       \
    X(cuMemPoolSetAccess)                                                                          \
    X(cuMemPoolSetAttribute)                                                                       \
    X(cuDeviceGetDefaultMemPool)                                                                   \
    X(cuDeviceGetMemPool)                                                                          \
    X(cuMemGetAllocationGranularity)                                                               \
    X(cuArrayGetMemoryRequirements)                                                                \
    X(cuMipmappedArrayGetMemoryRequirements)                                                       \
    X(cuMemGetAddressRange_v2)                                                                     \
    X(cuDeviceGetGraphMemAttribute)                                                                \
    X(cuGraphExecGetFlags)                                                                         \
    X(cuGraphGetNodes)                                                                             \
    X(cuGraphNodeGetType)                                                                          \
    X(cuGraphMemAllocNodeGetParams)                                                                \
    X(cuGraphChildGraphNodeGetGraph)                                                               \
    X(cuGraphKernelNodeGetParams)                                                                  \
    X(cuGraphKernelNodeGetParams_v2)                                                               \
    X(cuGraphMemcpyNodeGetParams)                                                                  \
    X(cuGraphMemsetNodeGetParams)                                                                  \
    X(cuFuncGetAttribute)                                                                          \
    X(cuFuncGetModule)                                                                             \
    X(cuKernelGetAttribute)                                                                        \
    X(cuModuleGetLoadingMode)                                                                      \
    X(cuCtxGetId)                                                                                  \
    X(cuPointerGetAttribute)                                                                       \
    X(cuStreamGetCtx_ptsz)                                                                         \
    X(cuStreamGetCtx)                                                                              \
    X(cuStreamGetCtx_v2)                                                                           \
    X(cuStreamGetGreenCtx)                                                                         \
    X(cuThreadExchangeStreamCaptureMode)                                                           \
    X(cuStreamQuery)                                                                               \
    X(cuStreamQuery_ptsz)                                                                          \
    X(cuStreamIsCapturing)                                                                         \
    X(cuStreamIsCapturing_ptsz)                                                                    \
    X(cuEventCreate)                                                                               \
    X(cuEventQuery)                                                                                \
    X(cuEventElapsedTime)

#define CALLED_NVML(X)                                                                             \
    X(nvmlDeviceGetUUID)                                                                           \
    X(nvmlDeviceIsMigDeviceHandle)                                                                 \
    X(nvmlDeviceGetMaxMigDeviceCount)                                                              \
    X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)                                                \
    X(nvmlDeviceGetGpuInstanceId)                                                                  \
    X(nvmlDeviceGetComputeInstanceId)

/* Ours first, in the order of hooks.inc. */
enum real_index {
#define HOOK_DRIVER(name) REAL_##name,
#define HOOK_NVML(name) REAL_##name,
#include "vgpu/hooks.inc"
#undef HOOK_DRIVER
#undef HOOK_NVML
#define X(name) REAL_##name,
    CALLED_DRIVER(X) CALLED_NVML(X)
#undef X
        REAL_COUNT,
};

extern void *real_functions[REAL_COUNT];

#define REAL(name) ((__typeof__(&(name)))real_functions[REAL_##name])

/* Whether the driver has it: for callers that know another way. */
#define HAS(name) real_has(REAL_##name)
bool real_has(enum real_index index);

/* Opens the driver, or NVML, and fills the table. Idempotent; false when there is none. */
bool real_driver(void);
bool real_nvml(void);

/* The driver's own function of a name, NULL when there is none. */
void *real_driver_symbol(const char *name);

/*
 * Exports of the driver's that are not in entries.txt and, by their names, take memory or launch,
 * and are no later version of a function that does neither:
 * found when it is opened, and refused, counted and said as the policy has it (vgpu_refuses()).
 */
enum {
    UNKNOWN_MAX = 8, /* beyond that they are refused whatever the policy says */
};
struct unknown {
    const char *name;
    void *real;
};
extern struct unknown real_unknown[UNKNOWN_MAX];

/* What the thread calls between these two no capture minds, nor is it made invalid by. */
struct real_relaxed {
    CUstreamCaptureMode before;
    bool on;
};
struct real_relaxed real_relax(void);
void real_end_relaxed(struct real_relaxed *relaxed);

/* A call of the driver's that undoes what exceeds the limit, or can't be remembered: another
 * thread could begin a capture meanwhile, which would forbid it. */
#define UNDO(name, ...)                                                                            \
    do {                                                                                           \
        struct real_relaxed undoing = real_relax();                                                \
                                                                                                   \
        (void)REAL(name)(__VA_ARGS__);                                                             \
        real_end_relaxed(&undoing);                                                                \
    } while (0)

/* Whether a name of the driver's is such an export's, as far as it tells. */
bool name_is_unknown(const char *name);

/* Our function for a name of the driver's or NVML's, NULL when we have none. */
void *hook_by_name(const char *name);

/* Our function for the driver's own, looked up by its address; NULL when we have none. */
void *hook_by_pointer(const void *real);

/*
 * The same for what cuGetProcAddress gave, which may be at other addresses than the exports. The
 * first that is at none of them has the driver asked for all that we have: not before, since a
 * profiler that is loaded with the program takes a call before its own for CUDA begun too early.
 */
void *hook_by_answer(const void *real);

/* After cuInit, before which a driver may have refused to answer. */
void real_ask_again(void);

/* libc's dlsym and dlvsym, and the others that we need before anything else is known. */
typedef void *(*dlsym_fn)(void *handle, const char *name);
typedef void *(*dlvsym_fn)(void *handle, const char *name, const char *version);
typedef void *(*dlmopen_fn)(long namespace_id, const char *path, int flags);
typedef void *(*dlopen_fn)(const char *path, int flags);
typedef int (*dlclose_fn)(void *handle);
extern dlsym_fn libc_dlsym;
extern dlvsym_fn libc_dlvsym;
extern dlmopen_fn libc_dlmopen;
extern dlopen_fn libc_dlopen;
extern dlclose_fn libc_dlclose;
void libc_find(void);

/* A function of an object that is loaded already, by its file's name ("libc.so.6"), or NULL. */
void *elf_find(const char *object, const char *name);

struct link_map;

/* Calls fn with each function that an object defines for others. */
void elf_each_function(const struct link_map *map, void (*fn)(const char *name, void *function));

/*
 * Has a library's functions found elsewhere from now on, by whoever looks them up, the linker too:
 * each where find(its name) says, unless that is NULL. The library's file is mapped at `header`.
 */
void elf_redirect(const struct link_map *map, const void *header, void *(*find)(const char *name));

/*
 * Has an object call another function where it was bound already: find(name, slot) is told in which
 * word of the object's own the linker put the address of `name`, and gives another one or NULL.
 */
void elf_rebind(const struct link_map *map, void *(*find)(const char *name, void **slot));

/* Whether an object takes a function of this name from others. */
bool elf_wants(const struct link_map *map, const char *name);

void real_after_fork(void);
