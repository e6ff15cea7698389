/* SPDX-License-Identifier: Apache-2.0 */

/* A driver, and an NVML, older than all that we know. */

__attribute__((visibility("default"))) int cuInit(unsigned flags);
__attribute__((visibility("default"))) int cuMemAllocFloats(double a, double b, double c, double d,
                                                            double e, double f, double g, double h);
__attribute__((visibility("default"))) int nvmlInit_v2(void);

int cuInit(unsigned flags)
{
    (void)flags;
    return 0;
}

/* No driver's, but of a name that is refused: 1 if the arguments are 1 to 8. */
int cuMemAllocFloats(double a, double b, double c, double d, double e, double f, double g, double h)
{
    return a == 1 && b == 2 && c == 3 && d == 4 && e == 5 && f == 6 && g == 7 && h == 8;
}

int nvmlInit_v2(void)
{
    return 0;
}
