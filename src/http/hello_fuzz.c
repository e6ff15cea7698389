/* SPDX-License-Identifier: Apache-2.0 */

/* Any first bytes of a connection are looked at within their bounds, and are soon enough. */

#include <stdlib.h>

#include "base/fuzz.h"
#include "http/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t want;
    bool offers = hello_offers_h2(data, size, &want);

    if (want && (offers || want <= size || want > HELLO_MAX))
        abort();
    return 0;
}
