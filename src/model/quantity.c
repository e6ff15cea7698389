/* SPDX-License-Identifier: Apache-2.0 */
#include "model/quantity.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/util.h"

enum {
    EXACT_DIGITS = 18, /* more of them are beyond what Kubernetes keeps as an integer */
    EXPONENT_MAX = 1000,
};

/* The digits before the unit, without leading zeros. */
struct number {
    bool negative;
    const char *digits, *fraction;
    size_t digit_count, fraction_count;
};

/* The unit after the number: a power of ten or of two. */
struct unit {
    bool binary;
    int exponent;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t count_digits(const char *text, size_t len)
{
    size_t count = 0;

    while (count < len && is_digit(text[count]))
        count++;
    return count;
}

/* Returns how many bytes the number takes; 0: there is none. */
static size_t read_digits(const char *text, size_t len, struct number *number)
{
    size_t at = 0, whole;

    if (at < len && (text[at] == '+' || text[at] == '-'))
        number->negative = text[at++] == '-';

    whole = count_digits(text + at, len - at);
    number->digits = text + at;
    number->digit_count = whole;
    at += whole;
    if (at < len && text[at] == '.') {
        at++;
        number->fraction = text + at;
        number->fraction_count = count_digits(text + at, len - at);
        at += number->fraction_count;
    }
    if (!whole && !number->fraction_count)
        return 0;

    while (number->digit_count && number->digits[0] == '0') {
        number->digits++;
        number->digit_count--;
    }
    return at;
}

static bool read_exponent(const char *text, size_t len, int *ret_exponent)
{
    bool negative = false;
    size_t at = 1;
    int value = 0;

    if (len < 2 || (text[0] != 'e' && text[0] != 'E'))
        return false;
    if (text[at] == '+' || text[at] == '-')
        negative = text[at++] == '-';
    if (at == len || count_digits(text + at, len - at) != len - at)
        return false;
    for (; at < len; at++)
        value = MIN(value * 10 + (text[at] - '0'), EXPONENT_MAX);
    *ret_exponent = negative ? -value : value;
    return true;
}

static bool read_unit(const char *text, size_t len, struct unit *ret_unit)
{
    static const struct {
        char text[3];
        struct unit unit;
    } units[] = {
        {"", {false, 0}},   {"n", {false, -9}}, {"u", {false, -6}}, {"m", {false, -3}},
        {"k", {false, 3}},  {"M", {false, 6}},  {"G", {false, 9}},  {"T", {false, 12}},
        {"P", {false, 15}}, {"E", {false, 18}}, {"Ki", {true, 10}}, {"Mi", {true, 20}},
        {"Gi", {true, 30}}, {"Ti", {true, 40}}, {"Pi", {true, 50}}, {"Ei", {true, 60}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (strlen(units[i].text) == len && memcmp(units[i].text, text, len) == 0) {
            *ret_unit = units[i].unit;
            return true;
        }
    }
    ret_unit->binary = false;
    return read_exponent(text, len, &ret_unit->exponent);
}

static bool is_zero(const struct number *number)
{
    if (number->digit_count)
        return false;
    for (size_t i = 0; i < number->fraction_count; i++) {
        if (number->fraction[i] != '0')
            return false;
    }
    return true;
}

static bool multiply(int64_t *value, struct unit unit)
{
    if (unit.binary)
        return !__builtin_mul_overflow(*value, INT64_C(1) << unit.exponent, value);
    for (int i = 0; i < unit.exponent && *value; i++) {
        if (__builtin_mul_overflow(*value, 10, value))
            return false;
    }
    return true;
}

/* The value of digits and fraction as one row of digits, which a decimal unit makes whole. */
static int64_t value_of(const struct number *number)
{
    int64_t value = 0;

    for (size_t i = 0; i < number->digit_count; i++)
        value = value * 10 + (number->digits[i] - '0');
    for (size_t i = 0; i < number->fraction_count; i++)
        value = value * 10 + (number->fraction[i] - '0');
    return value;
}

int quantity_parse(const char *text, size_t len, struct quantity *ret_quantity)
{
    struct number number = {0};
    struct unit unit;
    int64_t value;
    size_t taken;
    int sign;

    taken = read_digits(text, len, &number);
    if (!taken || !read_unit(text + taken, len - taken, &unit))
        return -EINVAL;

    sign = is_zero(&number) ? 0 : number.negative ? -1 : 1;
    *ret_quantity = (struct quantity){.form = QUANTITY_FRACTION, .value = sign};
    if (unit.binary && number.fraction_count)
        return 0;
    if (!unit.binary && unit.exponent < (int)MIN(number.fraction_count, (size_t)EXPONENT_MAX))
        return 0;

    ret_quantity->form = QUANTITY_HUGE;
    if (number.digit_count + number.fraction_count > EXACT_DIGITS)
        return 0;
    value = value_of(&number);
    unit.exponent -= (int)number.fraction_count;
    if (!multiply(&value, unit))
        return 0;
    *ret_quantity = (struct quantity){.form = QUANTITY_WHOLE, .value = sign < 0 ? -value : value};
    return 0;
}

uint64_t quantity_amount_of(uint64_t number, int digits)
{
    for (; digits > 0; digits--) {
        if (__builtin_mul_overflow(number, 10, &number))
            return UINT64_MAX;
    }
    for (; digits < 0 && number; digits++)
        number = number / 10 + (number % 10 > 0);
    return number;
}

uint64_t quantity_amount(const char *text, size_t len, int digits)
{
    struct number number = {0};
    struct unit unit;
    const size_t taken = read_digits(text, len, &number);
    uint64_t value;

    if (!taken || !read_unit(text + taken, len - taken, &unit) || number.negative ||
        is_zero(&number))
        return 0;
    if (number.digit_count + number.fraction_count > EXACT_DIGITS)
        return UINT64_MAX;
    value = (uint64_t)value_of(&number);
    if (unit.binary && __builtin_mul_overflow(value, UINT64_C(1) << unit.exponent, &value))
        return UINT64_MAX;
    return quantity_amount_of(value, digits - (int)number.fraction_count +
                                         (unit.binary ? 0 : unit.exponent));
}
