/* SPDX-License-Identifier: Apache-2.0 */
#include "base/parse.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>

/* Reads digits at *text and moves it past them. */
static int scan_digits(const char **text, uint64_t *ret_value)
{
    const char *p = *text;
    uint64_t value = 0;

    if (*p < '0' || *p > '9')
        return -EINVAL;

    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return -ERANGE;
    }

    *text = p;
    *ret_value = value;
    return 0;
}

/* The fraction ".ddd" in parts of 10^9; further digits are dropped. */
static int scan_fraction(const char **text, uint64_t *ret_billionths)
{
    uint64_t value = 0, weight = 100000000;
    const char *p = *text;

    if (*p != '.') {
        *ret_billionths = 0;
        return 0;
    }

    p++;
    if (*p < '0' || *p > '9')
        return -EINVAL;

    for (; *p >= '0' && *p <= '9'; p++) {
        value += (uint64_t)(*p - '0') * weight;
        weight /= 10;
    }

    *text = p;
    *ret_billionths = value;
    return 0;
}

/* The power of two that a unit letter stands for. */
static unsigned scan_unit(const char **text)
{
    static const char letters[] = "KMGTPE";
    char c = **text;

    if (c >= 'a' && c <= 'z')
        c = (char)(c - 'a' + 'A');

    for (unsigned i = 0; letters[i]; i++) {
        if (c != letters[i])
            continue;
        (*text)++;
        if (**text == 'i')
            (*text)++;
        return 10 * (i + 1);
    }
    return 0;
}

int parse_u64(const char *text, uint64_t *ret_value)
{
    uint64_t value;
    int r;

    r = scan_digits(&text, &value);
    if (r < 0)
        return r;
    if (*text)
        return -EINVAL;

    *ret_value = value;
    return 0;
}

int parse_bytes(const char *text, uint64_t *ret_bytes)
{
    uint64_t whole, billionths, bytes;
    unsigned shift;
    int r;

    r = scan_digits(&text, &whole);
    if (r < 0)
        return r;
    r = scan_fraction(&text, &billionths);
    if (r < 0)
        return r;
    shift = scan_unit(&text);
    if (*text == 'B' || *text == 'b')
        text++;
    if (*text)
        return -EINVAL;

    if (__builtin_mul_overflow(whole, UINT64_C(1) << shift, &bytes))
        return -ERANGE;
    billionths = (uint64_t)(((unsigned __int128)billionths << shift) / 1000000000);
    if (__builtin_add_overflow(bytes, billionths, &bytes))
        return -ERANGE;

    *ret_bytes = bytes;
    return 0;
}

/* The ms of a unit, the longest that fits: "ms" is not "m". 0: none. */
static uint64_t scan_time_unit(const char **text)
{
    static const struct {
        const char *name;
        uint64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};

    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t len = strlen(units[i].name);

        if (strncmp(*text, units[i].name, len) != 0)
            continue;
        *text += len;
        return units[i].ms;
    }
    return 0;
}

int parse_duration(const char *text, uint64_t *ret_ms)
{
    uint64_t sum = 0;

    if (strcmp(text, "0") == 0) {
        *ret_ms = 0;
        return 0;
    }
    do {
        uint64_t whole, billionths, unit, part;
        int r = scan_digits(&text, &whole);

        if (r == 0)
            r = scan_fraction(&text, &billionths);
        if (r < 0)
            return r;
        unit = scan_time_unit(&text);
        if (!unit)
            return -EINVAL;
        if (__builtin_mul_overflow(whole, unit, &part) || __builtin_add_overflow(sum, part, &sum) ||
            __builtin_add_overflow(sum, billionths * unit / 1000000000, &sum))
            return -ERANGE;
    } while (*text);

    *ret_ms = sum;
    return 0;
}

int parse_percent(const char *text, unsigned max, unsigned *ret_percent)
{
    uint64_t value;
    int r;

    r = scan_digits(&text, &value);
    if (r < 0)
        return r;
    if (*text == '%')
        text++;
    if (*text)
        return -EINVAL;
    if (value > max)
        return -ERANGE;

    *ret_percent = (unsigned)value;
    return 0;
}

int parse_bool(const char *text, bool *ret_value)
{
    static const char *const yes[] = {"1", "t", "T", "true", "TRUE", "True"};
    static const char *const no[] = {"0", "f", "F", "false", "FALSE", "False"};

    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *ret_value = strcmp(text, yes[i]) == 0;
            return 0;
        }
    }
    return -EINVAL;
}

int parse_verbosity(const char *text, unsigned *ret_level)
{
    uint64_t value;
    int r = parse_u64(text + (*text == '='), &value);

    if (r == 0 && value > UINT_MAX)
        r = -ERANGE;
    if (r == 0)
        *ret_level = (unsigned)value;
    return r;
}
