/* SPDX-License-Identifier: Apache-2.0 */

/*
 * NVML: what is not simulated. Clients look these functions up and take NVML_ERROR_NOT_SUPPORTED
 * for an answer, but complain loudly when they are missing.
 */

#include <unistd.h>

#include "base/util.h"
#include "driver/nvml.h"

/* The parameters do not matter: none is looked at, and the caller removes them. */
#define NOT_SUPPORTED(name)                                                                        \
    PUBLIC nvmlReturn_t name(void);                                                                \
    nvmlReturn_t name(void)                                                                        \
    {                                                                                              \
        return NVML_ERROR_NOT_SUPPORTED;                                                           \
    }                                                                                              \
    struct swallow_semicolon

NOT_SUPPORTED(nvmlDeviceGetClockInfo);
NOT_SUPPORTED(nvmlDeviceGetConfComputeMemSizeInfo);
NOT_SUPPORTED(nvmlDeviceGetDisplayActive);
NOT_SUPPORTED(nvmlDeviceGetDriverModel);
NOT_SUPPORTED(nvmlDeviceGetDriverModel_v2);
NOT_SUPPORTED(nvmlDeviceGetFanSpeed);
NOT_SUPPORTED(nvmlDeviceGetPerformanceState);
NOT_SUPPORTED(nvmlDeviceGetPersistenceMode);
NOT_SUPPORTED(nvmlDeviceGetPowerManagementLimit);
NOT_SUPPORTED(nvmlDeviceGetPowerUsage);
NOT_SUPPORTED(nvmlDeviceGetTemperature);
NOT_SUPPORTED(nvmlDeviceGetTemperatureV);

/* What changes a card is for root alone. Weak, as the rest, so that what is simulated wins. */
static __attribute__((used)) nvmlReturn_t change(void)
{
    return geteuid() == 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_NO_PERMISSION;
}

static __attribute__((used)) nvmlReturn_t tell(void)
{
    return NVML_ERROR_NOT_SUPPORTED;
}

#define FIXED(name, function)                                                                      \
    extern nvmlReturn_t stub_##name(void) __asm__(#name)                                           \
        __attribute__((weak, alias(#function), visibility("default")));
#define FIXED_CHANGE(name) FIXED(name, change)
#define FIXED_OTHERS(name) FIXED(name, tell)
#include "driver/nvml_fixed.inc"
