/* SPDX-License-Identifier: Apache-2.0 */

/* Any text as a lease: it is refused, or what is read out of it keeps its bounds. */

#include "ctl/lease.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = ERROR_INIT;
    struct lease lease;
    char text[8192];

    if (size >= sizeof(text))
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (lease_parse(text, &lease, &err) < 0)
        return 0;

    assert(lease.device_count >= 1 && lease.device_count <= LEASE_MAX_DEVICES);
    for (size_t i = 0; i < lease.device_count; i++) {
        assert(memchr(lease.devices[i].uuid, 0, sizeof(lease.devices[i].uuid)));
        assert(lease.devices[i].cores <= DEVICE_CORES);
    }
    assert(memchr(lease.command, 0, sizeof(lease.command)));
    assert(lease.keeper >= 0 && lease.program >= 0 && lease.started >= 0);
    return 0;
}
