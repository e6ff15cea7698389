/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/util.h"

/* The pause before a retry: first_ms, doubled for each retry before it, at most max_ms. */
static inline unsigned backoff_ms(unsigned retries, unsigned first_ms, unsigned max_ms)
{
    unsigned ms = first_ms;

    for (; retries && ms < max_ms; retries--)
        ms *= 2;
    return MIN(ms, max_ms);
}
