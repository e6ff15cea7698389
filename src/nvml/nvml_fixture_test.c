/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml/nvml_fixture.h"

#include <stdio.h>

#include "base/util.h"

struct nvml_fixture nvml_fixture;
static char handles[NVML_FIXTURE_DEVICES];

nvmlReturn_t nvml_fixture_answer(void)
{
    return ++nvml_fixture.calls == nvml_fixture.failing ? nvml_fixture.failure : NVML_SUCCESS;
}

unsigned nvml_fixture_index(nvmlDevice_t device)
{
    return (unsigned)((char *)(void *)device - handles);
}

static const struct nvml_fixture_device *made_up(nvmlDevice_t device)
{
    return &nvml_fixture.devices[nvml_fixture_index(device)];
}

static const char *say(nvmlReturn_t result)
{
    (void)result;
    return "made up";
}

static nvmlReturn_t device_by_index(unsigned index, nvmlDevice_t *device)
{
    *device = (nvmlDevice_t)(void *)&handles[index];
    return nvml_fixture_answer();
}

static nvmlReturn_t device_uuid(nvmlDevice_t device, char *uuid, unsigned length)
{
    (void)snprintf(uuid, length, "%s", made_up(device)->uuid);
    return nvml_fixture_answer();
}

static nvmlReturn_t device_name(nvmlDevice_t device, char *name, unsigned length)
{
    (void)snprintf(name, length, "%s", made_up(device)->name);
    return nvml_fixture_answer();
}

static nvmlReturn_t memory_info(nvmlDevice_t device, nvmlMemory_t *memory)
{
    *memory = (nvmlMemory_t){.total = made_up(device)->memory_bytes, .used = GIB / 2};
    return nvml_fixture_answer();
}

static nvmlReturn_t mig_mode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    (void)device;
    *current = NVML_MIG_ENABLED;
    *pending = NVML_MIG_DISABLED;
    return nvml_fixture_answer();
}

void nvml_fixture_init(struct nvml *nvml, const struct nvml_fixture_device *devices,
                       nvmlReturn_t failure)
{
    nvml_fixture = (struct nvml_fixture){.devices = devices, .failure = failure};
    nvml->error_string = say;
    nvml->device_by_index = device_by_index;
    nvml->device_uuid = device_uuid;
    nvml->device_name = device_name;
    nvml->memory_info = memory_info;
    nvml->mig_mode = mig_mode;
}
