/* SPDX-License-Identifier: Apache-2.0 */

/* Any text is a quantity of one of the three forms, or none. */

#include "model/quantity.h"

#include <stdlib.h>

#include "base/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct quantity quantity = {0};

    if (quantity_parse((const char *)data, size, &quantity) < 0)
        return quantity.form ? (abort(), 0) : 0;
    if (quantity.form < QUANTITY_WHOLE || quantity.form > QUANTITY_HUGE)
        abort();
    if (quantity.form != QUANTITY_WHOLE && (quantity.value < -1 || quantity.value > 1))
        abort();
    return 0;
}
