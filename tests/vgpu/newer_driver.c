/* SPDX-License-Identifier: Apache-2.0 */

/* A driver without devices that has exports newer than any list. */

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuInit(unsigned flags);
EXPORT int cuDeviceGetCount(int *count);
EXPORT int cuMemAllocNewer(void);
EXPORT int cuGLCtxCreate_v2(void);
EXPORT int cuMemFreeNewer(void);
EXPORT int cuGetProcAddress_v2(const char *symbol, void **pfn, int version,
                               unsigned long long flags, int *status);

int cuInit(unsigned flags)
{
    (void)flags;
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = 0;
    return 0;
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

int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, unsigned long long flags,
                        int *status)
{
    (void)version, (void)flags, (void)status;
    *pfn = symbol[5] == 'A' && symbol[10] == 'N' ? (void *)cuMemAllocNewer : (void *)0;
    return *pfn ? 0 : 500;
}
