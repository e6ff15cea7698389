/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/grant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"
#include "base/strbuf.h"
#include "base/util.h"

enum {
    FILE_MAX = 8192,
};

int grant_compare_ids(const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;

    return (*left > *right) - (*left < *right);
}

void grant_set_command(struct grant *grant, char *const *words)
{
    size_t len = 0;

    for (; *words && len + 1 < sizeof(grant->command); words++) {
        if (len)
            grant->command[len++] = ' ';
        copy_text(grant->command + len, sizeof(grant->command) - len, *words);
        len = strlen(grant->command);
    }
    for (char *p = grant->command; *p; p++) {
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
    }
}

int grant_write(int fd, const struct grant *grant)
{
    struct strbuf text = STRBUF_INIT(FILE_MAX - 64);
    ssize_t written;

    strbuf_addf(&text, "keeper=%d\nstarted=%" PRId64 "\n", (int)grant->keeper, grant->started);
    for (size_t i = 0; i < grant->device_count; i++) {
        const struct grant_device *device = &grant->devices[i];

        strbuf_addf(&text, "device=%s %" PRIu64 " %u\n", device->uuid, device->memory_bytes,
                    device->cores);
    }
    strbuf_addf(&text, "command=%s\n", grant->command);

    written = text.failed ? -1 : write(fd, text.text, text.len);
    if (written != (ssize_t)text.len) {
        int r = text.failed ? -ENOBUFS : written < 0 ? -errno : -ENOSPC;

        strbuf_deinit(&text);
        return r;
    }
    strbuf_deinit(&text);
    return 0;
}

static int read_number(const char *text, uint64_t max, uint64_t *ret_value)
{
    uint64_t value;

    if (parse_u64(text, &value) < 0 || value > max)
        return -EBADMSG;
    *ret_value = value;
    return 0;
}

/* "UUID BYTES CORES" */
static int read_device(char *value, struct grant *grant)
{
    struct grant_device *device = &grant->devices[grant->device_count];
    char *rest, *uuid, *memory, *cores;
    uint64_t percent;

    uuid = strtok_r(value, " ", &rest);
    memory = strtok_r(NULL, " ", &rest);
    cores = strtok_r(NULL, " ", &rest);
    if (!cores || strlen(uuid) >= sizeof(device->uuid))
        return -EBADMSG;
    if (grant->device_count == ARRAY_SIZE(grant->devices))
        return -EBADMSG;
    if (read_number(memory, UINT64_MAX, &device->memory_bytes) < 0)
        return -EBADMSG;
    if (read_number(cores, DEVICE_CORES, &percent) < 0)
        return -EBADMSG;

    COPY_TEXT(device->uuid, uuid);
    device->cores = (unsigned)percent;
    grant->device_count++;
    return 0;
}

static int read_line(const char *key, char *value, struct grant *grant)
{
    uint64_t number = 0;
    int r = 0;

    if (strcmp(key, "device") == 0)
        return read_device(value, grant);

    if (strcmp(key, "keeper") == 0) {
        r = read_number(value, INT32_MAX, &number);
        grant->keeper = (pid_t)number;
    } else if (strcmp(key, "program") == 0) {
        r = read_number(value, INT32_MAX, &number);
        grant->program = (pid_t)number;
    } else if (strcmp(key, "started") == 0) {
        r = read_number(value, INT64_MAX, &number);
        grant->started = (int64_t)number;
    } else if (strcmp(key, "command") == 0) {
        COPY_TEXT(grant->command, value);
    }
    return r;
}

int grant_parse(char *text, struct grant *ret_grant, struct error *err)
{
    struct grant grant = {0};
    char *line = text, *end;

    for (unsigned number = 1; (end = strchr(line, '\n')); number++, line = end + 1) {
        char *equals = strchr(line, '=');

        *end = '\0';
        if (!equals || equals > end)
            return error_set(err, -EBADMSG, "line %u is not KEY=VALUE", number);
        *equals = '\0';
        if (read_line(line, equals + 1, &grant) < 0)
            return error_set(err, -EBADMSG, "line %u: %s is wrong", number, line);
    }
    if (!grant.device_count)
        return error_set(err, -EBADMSG, "it names no device");

    *ret_grant = grant;
    return 0;
}

int grant_read(int fd, struct grant *ret_grant, struct error *err)
{
    char text[FILE_MAX];
    ssize_t len;

    len = pread(fd, text, sizeof(text) - 1, 0);
    if (len < 0)
        return error_set(err, -errno, "%s", strerror(errno));
    text[len] = '\0';
    return grant_parse(text, ret_grant, err);
}
