/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/lease.h"

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

int lease_compare_ids(const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;

    return (*left > *right) - (*left < *right);
}

void lease_set_command(struct lease *lease, char *const *words)
{
    size_t len = 0;

    for (; *words && len + 1 < sizeof(lease->command); words++) {
        if (len)
            lease->command[len++] = ' ';
        copy_text(lease->command + len, sizeof(lease->command) - len, *words);
        len = strlen(lease->command);
    }
    for (char *p = lease->command; *p; p++) {
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            *p = '?';
    }
}

int lease_write(int fd, const struct lease *lease)
{
    struct strbuf text = STRBUF_INIT(FILE_MAX - 64);
    ssize_t written;

    strbuf_addf(&text, "keeper=%d\nstarted=%" PRId64 "\n", (int)lease->keeper, lease->started);
    for (size_t i = 0; i < lease->device_count; i++) {
        const struct lease_device *device = &lease->devices[i];

        strbuf_addf(&text, "device=%s %" PRIu64 " %u\n", device->uuid, device->memory_bytes,
                    device->cores);
    }
    strbuf_addf(&text, "command=%s\n", lease->command);

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
static int read_device(char *value, struct lease *lease)
{
    struct lease_device *device = &lease->devices[lease->device_count];
    char *rest, *uuid, *memory, *cores;
    uint64_t percent;

    uuid = strtok_r(value, " ", &rest);
    memory = strtok_r(NULL, " ", &rest);
    cores = strtok_r(NULL, " ", &rest);
    if (!cores || strlen(uuid) >= sizeof(device->uuid))
        return -EBADMSG;
    if (lease->device_count == ARRAY_SIZE(lease->devices))
        return -EBADMSG;
    if (read_number(memory, UINT64_MAX, &device->memory_bytes) < 0)
        return -EBADMSG;
    if (read_number(cores, DEVICE_CORES, &percent) < 0)
        return -EBADMSG;

    COPY_TEXT(device->uuid, uuid);
    device->cores = (unsigned)percent;
    lease->device_count++;
    return 0;
}

static int read_line(const char *key, char *value, struct lease *lease)
{
    uint64_t number = 0;
    int r = 0;

    if (strcmp(key, "device") == 0)
        return read_device(value, lease);

    if (strcmp(key, "keeper") == 0) {
        r = read_number(value, INT32_MAX, &number);
        lease->keeper = (pid_t)number;
    } else if (strcmp(key, "program") == 0) {
        r = read_number(value, INT32_MAX, &number);
        lease->program = (pid_t)number;
    } else if (strcmp(key, "started") == 0) {
        r = read_number(value, INT64_MAX, &number);
        lease->started = (int64_t)number;
    } else if (strcmp(key, "command") == 0) {
        COPY_TEXT(lease->command, value);
    }
    return r;
}

int lease_parse(char *text, struct lease *ret_lease, struct error *err)
{
    struct lease lease = {0};
    char *line = text, *end;

    for (unsigned number = 1; (end = strchr(line, '\n')); number++, line = end + 1) {
        char *equals = strchr(line, '=');

        *end = '\0';
        if (!equals || equals > end)
            return error_set(err, -EBADMSG, "line %u is not KEY=VALUE", number);
        *equals = '\0';
        if (read_line(line, equals + 1, &lease) < 0)
            return error_set(err, -EBADMSG, "line %u: %s is wrong", number, line);
    }
    if (!lease.device_count)
        return error_set(err, -EBADMSG, "it names no device");

    *ret_lease = lease;
    return 0;
}

int lease_read(int fd, struct lease *ret_lease, struct error *err)
{
    char text[FILE_MAX];
    ssize_t len;

    len = pread(fd, text, sizeof(text) - 1, 0);
    if (len < 0)
        return error_set(err, -errno, "%s", strerror(errno));
    text[len] = '\0';
    return lease_parse(text, ret_lease, err);
}

int lease_format_amounts(const struct lease *lease, char *text, size_t size)
{
    size_t len = 0;

    for (size_t i = 0; i < lease->device_count && len < size; i++) {
        const struct lease_device *device = &lease->devices[i];

        len += (size_t)snprintf(text + len, size - len, "device=%s %" PRIu64 " %u\n", device->uuid,
                                device->memory_bytes, device->cores);
    }
    return len < size ? (int)len : -ENOBUFS;
}

int lease_parse_amounts(char *text, struct lease *lease)
{
    struct lease amounts;
    int r = lease_parse(text, &amounts, NULL);

    for (size_t i = 0; r == 0 && i < lease->device_count; i++) {
        struct lease_device *device = &lease->devices[i];

        r = -EBADMSG;
        for (size_t k = 0; k < amounts.device_count && r < 0; k++) {
            if (strcmp(amounts.devices[k].uuid, device->uuid) != 0)
                continue;
            *device = amounts.devices[k];
            r = 0;
        }
    }
    return r;
}
