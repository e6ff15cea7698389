/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A driver without devices, and an NVML, that have exports newer than any list. What is handed to
 * it in memory it answers with 1 where that is the caller's own, which another thread could change:
 * a pointer in it says where the caller has it. By cuGetProcAddress it has another cuMemAlloc and
 * another cuMemFree than by name; of the former it says nothing before cuInit.
 */

#include <stddef.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static int asked, initialized;

EXPORT int cuInit(unsigned flags);
EXPORT int cuDeviceGetCount(int *count);
EXPORT int cuDriverAsked(void);
EXPORT int cuMemAllocNewer(void);
EXPORT int cuMemAlloc_v2(void);
EXPORT int cuMemFree_v2(void);
EXPORT int cuGLCtxCreate_v2(void);
EXPORT int cuMemFreeNewer(void);
EXPORT int cuLaunchHostFunc_v9(void);
EXPORT int cuLaunchKernelEx_v9(void);
EXPORT int nvmlDeviceSetNewer(void);
EXPORT int nvmlGpuInstanceCreateNewer_v1(void);
EXPORT int nvmlDeviceGetResetNewer(void);
EXPORT int nvmlDeviceSettleNewer(void);
EXPORT int nvmlEventSetResetNewer(void);
EXPORT int cuGetProcAddress_v2(const char *symbol, void **pfn, int version,
                               unsigned long long flags, int *status);

EXPORT int cuGraphAddNode(void **node, void *graph, void *dependencies, size_t count, void *params);
EXPORT int cuGraphAddNode_v2(void **node, void *graph, void *dependencies, void *edges,
                             size_t count, void *params);
EXPORT int cuGraphAddNode_v3(void **node, void *graph, void *dependencies, void *edges,
                             size_t count, void *params);
EXPORT int cuLaunchKernelEx(void *config, void *function, void **params, void **extra);
EXPORT int cuLaunchKernelEx_ptsz(void *config, void *function, void **params, void **extra);
EXPORT int cuLaunchCooperativeKernelMultiDevice(void *list, unsigned devices, unsigned flags);

/* The pointer is where a node's parameters begin, a configuration and a launch have their stream.
 */
static int is_callers(void *memory, size_t at)
{
    return *(void **)((char *)memory + at) == memory;
}

int cuGraphAddNode(void **node, void *graph, void *dependencies, size_t count, void *params)
{
    (void)node, (void)graph, (void)dependencies, (void)count;
    ((void **)params)[3] = params; /* as an output */
    return is_callers(params, 16);
}

int cuGraphAddNode_v2(void **node, void *graph, void *dependencies, void *edges, size_t count,
                      void *params)
{
    (void)edges;
    return cuGraphAddNode(node, graph, dependencies, count, params);
}

int cuGraphAddNode_v3(void **node, void *graph, void *dependencies, void *edges, size_t count,
                      void *params)
{
    return cuGraphAddNode_v2(node, graph, dependencies, edges, count, params);
}

int cuLaunchKernelEx(void *config, void *function, void **params, void **extra)
{
    (void)function, (void)params, (void)extra;
    return is_callers(config, 32);
}

int cuLaunchKernelEx_ptsz(void *config, void *function, void **params, void **extra)
{
    return cuLaunchKernelEx(config, function, params, extra);
}

int cuLaunchCooperativeKernelMultiDevice(void *list, unsigned devices, unsigned flags)
{
    (void)devices, (void)flags;
    return is_callers(list, 40);
}

int cuInit(unsigned flags)
{
    (void)flags;
    initialized = 1;
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = 0;
    return 0;
}

int cuMemAlloc_v2(void)
{
    return 0;
}

int cuMemFree_v2(void)
{
    return 0;
}

static int other_alloc(void)
{
    return 0;
}

static int other_free(void)
{
    return 0;
}

/* How often it was asked for addresses. */
int cuDriverAsked(void)
{
    return asked;
}

int cuMemAllocNewer(void)
{
    return 0;
}

int cuGLCtxCreate_v2(void)
{
    return 0;
}

int cuMemFreeNewer(void)
{
    return 0;
}

int cuLaunchHostFunc_v9(void)
{
    return 0;
}

int cuLaunchKernelEx_v9(void)
{
    return 0;
}

int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, unsigned long long flags,
                        int *status)
{
    (void)flags, (void)status;
    asked++;
    if (strcmp(symbol, "cuMemAlloc") == 0 && version >= 3020) {
        *pfn = (void *)other_alloc;
        return initialized ? 0 : 3;
    }
    if (strcmp(symbol, "cuMemFree") == 0 && version >= 3020) {
        *pfn = (void *)other_free;
        return 0;
    }
    *pfn = symbol[5] == 'A' && symbol[10] == 'N' ? (void *)cuMemAllocNewer : (void *)0;
    return *pfn ? 0 : 500;
}

int nvmlDeviceSetNewer(void)
{
    return 0;
}

int nvmlGpuInstanceCreateNewer_v1(void)
{
    return 0;
}

int nvmlDeviceGetResetNewer(void)
{
    return 0;
}

int nvmlDeviceSettleNewer(void)
{
    return 0;
}

int nvmlEventSetResetNewer(void)
{
    return 0;
}
