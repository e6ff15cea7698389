/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any text as a limits file, and as an environment: it is refused with a reason, or what is read
 * out of it keeps its bounds, is the same when written and read again, and is not raised by the
 * other.
 */

#include "region/limits.h"

#include <stdlib.h>
#include <string.h>

#include "base/fuzz.h"
#include "base/util.h"

static void check(const struct limits *limits)
{
    if (limits->device_count > LIMITS_MAX_DEVICES)
        abort();
    if (!memchr(limits->region_path, 0, sizeof(limits->region_path)))
        abort();
    for (unsigned i = 0; i < LIMITS_MAX_DEVICES; i++) {
        if (!memchr(limits->devices[i].uuid, 0, sizeof(limits->devices[i].uuid)))
            abort();
        if (limits->devices[i].cores > 100)
            abort();
    }
}

static void check_again(const struct limits *limits)
{
    static char text[4 * LIMITS_FILE_MAX];
    struct limits again = LIMITS_INIT;

    if (limits_format(limits, text, sizeof(text)) < 0)
        return;
    if (limits_parse(&again, text, NULL) < 0)
        abort();
    if (again.device_count != limits->device_count ||
        strcmp(again.region_path, limits->region_path) != 0)
        abort();
    for (unsigned i = 0; i < limits->device_count; i++) {
        if (again.devices[i].memory_bytes != limits->devices[i].memory_bytes ||
            again.devices[i].cores != limits->devices[i].cores)
            abort();
    }
}

/* The same lines, as an environment has them. */
static int parse_environment(struct limits *limits, char *text, struct error *err)
{
    char *words[256], *rest;
    size_t count = 0;

    for (char *line = strtok_r(text, "\n", &rest); line && count < ARRAY_SIZE(words) - 1;
         line = strtok_r(NULL, "\n", &rest))
        words[count++] = line;
    words[count] = NULL;
    return limits_parse_environment(limits, words, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct limits file = LIMITS_INIT, environment = LIMITS_INIT, both;
    struct error err = ERROR_INIT;
    char *text;
    int r;

    if (size > LIMITS_FILE_MAX || !(text = malloc(size + 1)))
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';

    r = limits_parse(&file, text, &err);
    if (r < 0 && !err.text[0])
        abort();
    if (r >= 0) {
        check(&file);
        check_again(&file);
    }
    if (parse_environment(&environment, text, &err) >= 0)
        check(&environment);

    both = file;
    limits_lower(&both, &environment);
    for (unsigned i = 0; i < LIMITS_MAX_DEVICES; i++) {
        if (file.devices[i].memory_bytes &&
            (!both.devices[i].memory_bytes ||
             both.devices[i].memory_bytes > file.devices[i].memory_bytes))
            abort();
    }
    free(text);
    return 0;
}
