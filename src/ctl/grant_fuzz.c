/* SPDX-License-Identifier: Apache-2.0 */

/* Any text as a grant: it is refused, or what is read out of it keeps its bounds. */

#include "ctl/grant.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = ERROR_INIT;
    struct grant grant;
    char text[8192];

    if (size >= sizeof(text))
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (grant_parse(text, &grant, &err) < 0)
        return 0;

    assert(grant.device_count >= 1 && grant.device_count <= GRANT_MAX_DEVICES);
    for (size_t i = 0; i < grant.device_count; i++) {
        assert(memchr(grant.devices[i].uuid, 0, sizeof(grant.devices[i].uuid)));
        assert(grant.devices[i].cores <= DEVICE_CORES);
    }
    assert(memchr(grant.command, 0, sizeof(grant.command)));
    assert(grant.keeper >= 0 && grant.program >= 0 && grant.started >= 0);
    return 0;
}
