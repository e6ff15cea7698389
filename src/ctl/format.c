/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "ctl/ctl.h"

static const struct {
    const char *name;
    int64_t ns;
} time_units[] = {
    {"ms", NS_PER_MS},      {"s", NS_PER_S}, {"m", 60 * NS_PER_S},
    {"h", 3600 * NS_PER_S}, {"", NS_PER_S},
};

int ctl_parse_duration(const char *text, int64_t *ret_ns)
{
    const double year_s = 366.0 * 24 * 3600;
    double number, seconds;
    char *unit;

    if (*text < '0' || *text > '9' || strpbrk(text, "xXeEpP"))
        return -EINVAL;
    number = strtod(text, &unit);

    for (size_t i = 0; i < ARRAY_SIZE(time_units); i++) {
        if (strcmp(unit, time_units[i].name) != 0)
            continue;
        seconds = number * ((double)time_units[i].ns / (double)NS_PER_S);
        if (seconds > year_s)
            return -ERANGE;
        *ret_ns = (int64_t)(seconds * (double)NS_PER_S);
        return 0;
    }
    return -EINVAL;
}

const char *ctl_format_size(uint64_t bytes, char text[CTL_SIZE_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double amount = (double)bytes;
    size_t unit = 0;

    for (; amount >= 1024 && unit + 1 < ARRAY_SIZE(units); unit++)
        amount /= 1024;
    if (amount == (double)(uint64_t)amount)
        (void)snprintf(text, CTL_SIZE_TEXT, "%.0f %s", amount, units[unit]);
    else
        (void)snprintf(text, CTL_SIZE_TEXT, "%.1f %s", amount, units[unit]);
    return text;
}

const char *ctl_format_cores(unsigned percent, char text[CTL_SIZE_TEXT])
{
    if (percent)
        (void)snprintf(text, CTL_SIZE_TEXT, "cores %u%%", percent);
    else
        (void)snprintf(text, CTL_SIZE_TEXT, "no limit on cores");
    return text;
}
