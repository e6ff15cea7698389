/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Kubernetes' resource quantities: "3000", "3k", "1500m", "2Gi", "1e3".
 *
 * Devices are counted in whole numbers, so a quantity is either whole, with its value, or it is
 * not, and then only which way. What counts is how it is written, as HAMi has it: "2000m" and "1.0"
 * are not whole. The API server writes whole numbers without a fraction before anybody else sees
 * them.
 */

#include <stddef.h>
#include <stdint.h>

enum quantity_form {
    QUANTITY_WHOLE = 1,
    QUANTITY_FRACTION, /* a decimal point, or a unit below one */
    QUANTITY_HUGE, /* does not fit in 64 bits, or has more digits than Kubernetes reads exactly */
};

struct quantity {
    enum quantity_form form;
    int64_t value; /* of QUANTITY_WHOLE; otherwise -1, 0 or 1, the sign */
};

/* The amount times 10 to the power of digits, rounded up; 0 for what is negative or no quantity,
 * and UINT64_MAX for what does not fit. quantity_amount_of() is the same of a number. */
uint64_t quantity_amount(const char *text, size_t len, int digits);
uint64_t quantity_amount_of(uint64_t number, int digits);

/* -EINVAL: not a quantity. len bytes, no terminator needed. */
int quantity_parse(const char *text, size_t len, struct quantity *ret_quantity);
