/* SPDX-License-Identifier: Apache-2.0 */

/* A driver, and an NVML, older than all that we know. */

__attribute__((visibility("default"))) int cuInit(unsigned flags);
__attribute__((visibility("default"))) int nvmlInit_v2(void);

int cuInit(unsigned flags)
{
    (void)flags;
    return 0;
}

int nvmlInit_v2(void)
{
    return 0;
}
