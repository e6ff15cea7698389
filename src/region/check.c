/* SPDX-License-Identifier: Apache-2.0 */
#include "region/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/util.h"
#include "region/bucket.h"
#include "region/ledger.h"
#include "region/orphans.h"
#include "region/region.h"

#define READINGS 5
#define PAUSE_NS (40 * NS_PER_MS)

enum {
    FINDINGS = 64,
};

enum what {
    WHAT_UUID,
    WHAT_SUM,
    WHAT_LIMIT,
    WHAT_MIRROR,
    WHAT_COUNT,
    WHAT_BUCKET,
};

struct finding {
    unsigned key; /* what, and where */
    char text[200];
};

struct findings {
    struct finding list[FINDINGS];
    unsigned count;
};

/* Copies of both parts, not mapped: the owner may cut the file. */
struct copy {
    struct region_base base;
    struct region_ext ext;
    struct findings now, lasting;
};

static void __attribute__((format(printf, 4, 5)))
find(struct copy *copy, enum what what, unsigned where, const char *fmt, ...)
{
    struct finding *finding = &copy->now.list[copy->now.count];
    va_list args;

    if (copy->now.count == FINDINGS)
        return;
    copy->now.count++;
    finding->key = (unsigned)what << 16 | where;
    va_start(args, fmt);
    (void)vsnprintf(finding->text, sizeof(finding->text), fmt, args);
    va_end(args);
}

static unsigned long long mib(uint64_t units)
{
    return (unsigned long long)(units * LEDGER_UNIT >> 20);
}

static unsigned device_count(const struct copy *copy)
{
    return (unsigned)MIN(copy->base.device_count, (uint64_t)REGION_DEVICES);
}

static void check_sum(struct copy *copy, unsigned device)
{
    uint64_t limit = atomic_load(&copy->base.limit[device]) / LEDGER_UNIT;
    uint64_t total = ledger_total(&copy->ext, device), sum = 0;

    for (unsigned i = 0; i < REGION_SLOTS; i++)
        sum += ledger_held(&copy->ext, i, device);
    sum += orphans_units(&copy->ext, device);
    if (sum != total)
        find(copy, WHAT_SUM, device,
             "device %u: %llu MiB are charged, and the processes' accounts have %llu MiB", device,
             mib(total), mib(sum));
    if (limit && total > limit)
        find(copy, WHAT_LIMIT, device, "device %u: %llu MiB are charged, and the limit is %llu MiB",
             device, mib(total), mib(limit));
}

/* Of unfinished work more may be owed. */
static bool is_finished(const struct copy *copy, unsigned device)
{
    bool is = true;

    for (unsigned i = 0; i < REGION_SLOTS; i++)
        is &= atomic_load(&copy->ext.turns[i][device].unsettled_ns) <= 0;
    return is;
}

static void check_bucket(struct copy *copy, unsigned device)
{
    int64_t zero_ns = atomic_load(&copy->ext.devices[device].compute.zero_ns);
    int64_t ahead_ns = zero_ns - clock_now_ns();

    if (ahead_ns > BUCKET_DEBT_MAX_NS && is_finished(copy, device))
        find(copy, WHAT_BUCKET, device, "device %u: its bucket of compute is in debt for %lld s",
             device, (long long)(ahead_ns / NS_PER_S));
}

static void check_names(struct copy *copy, unsigned device)
{
    const char *uuid = copy->base.uuids[device];

    if (!memchr(uuid, '\0', REGION_UUID_SIZE))
        find(copy, WHAT_UUID, device, "device %u: its UUID has no end", device);
    for (unsigned i = 0; i < device && uuid[0]; i++) {
        if (strncmp(copy->base.uuids[i], uuid, REGION_UUID_SIZE) == 0)
            find(copy, WHAT_UUID, device, "devices %u and %u have the same UUID", i, device);
    }
}

static void check_slot(struct copy *copy, unsigned slot)
{
    const struct region_slot *mirror = &copy->base.slots[slot];

    if (!atomic_load(&copy->ext.slots[slot].pid))
        return;
    if (slot >= (unsigned)MAX(atomic_load(&copy->base.slot_count), 0))
        find(copy, WHAT_COUNT, slot, "slot %u is in use, and HAMi's readers stop before it", slot);
    for (unsigned i = 0; i < device_count(copy); i++) {
        uint64_t held = ledger_held(&copy->ext, slot, i) * LEDGER_UNIT;

        if (mirror->used[i].total != held)
            find(copy, WHAT_MIRROR, slot * REGION_DEVICES + i,
                 "slot %u, device %u: HAMi's readers are told %llu bytes, its account has %llu",
                 slot, i, (unsigned long long)mirror->used[i].total, (unsigned long long)held);
    }
}

static void check_copy(struct copy *copy)
{
    copy->now.count = 0;
    for (unsigned i = 0; i < device_count(copy); i++) {
        check_names(copy, i);
        check_sum(copy, i);
        check_bucket(copy, i);
    }
    for (unsigned i = 0; i < REGION_SLOTS; i++)
        check_slot(copy, i);
}

static bool has(const struct findings *findings, unsigned key)
{
    for (unsigned i = 0; i < findings->count; i++) {
        if (findings->list[i].key == key)
            return true;
    }
    return false;
}

/* What was not found before, or is not found any more, was a moment's. */
static void keep_lasting(struct copy *copy, bool first)
{
    unsigned count = 0;

    for (unsigned i = 0; i < copy->now.count; i++) {
        if (first || has(&copy->lasting, copy->now.list[i].key))
            copy->now.list[count++] = copy->now.list[i];
    }
    copy->now.count = count;
    copy->lasting = copy->now;
}

static int read_part(int fd, void *to, size_t size, off_t at)
{
    ssize_t n = pread(fd, to, size, at);

    return n < 0 ? -errno : (size_t)n == size ? 0 : -EPROTO;
}

/* Files of older libraries end within the extension, with what they know of. */
static int read_copy(int fd, struct copy *copy)
{
    int r = read_part(fd, &copy->base, sizeof(copy->base), 0);

    if (r == 0)
        r = read_part(fd, &copy->ext, REGION_EXT_LEAST, REGION_EXT_OFFSET);
    if (r == 0 && (atomic_load(&copy->base.magic) != REGION_MAGIC ||
                   atomic_load(&copy->ext.magic) != REGION_EXT_MAGIC ||
                   copy->ext.version != REGION_EXT_VERSION))
        r = -EPROTO;
    return r;
}

int region_check(const char *path, region_finding fn, void *data, struct error *err)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    AUTOFREE struct copy *copy = calloc(1, sizeof(*copy));
    AUTOCLOSE int fd = -1;
    struct stat st;
    int r = 0;

    if (!copy)
        return error_set(err, -ENOMEM, "%s: no memory", path);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return error_set(err, -errno, "%s: %s", path, strerror(errno));
    if (file_stat_fd(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return error_set(err, -EPROTO, "%s: it is not a regular file", path);
    for (unsigned i = 0; i < READINGS && (i == 0 || copy->lasting.count); i++) {
        if (i)
            (void)nanosleep(&pause, NULL);
        r = read_copy(fd, copy);
        if (r < 0)
            return error_set(err, r, "%s: it is not a region of this library", path);
        check_copy(copy);
        keep_lasting(copy, i == 0);
    }
    for (unsigned i = 0; i < copy->lasting.count; i++)
        fn(data, copy->lasting.list[i].text);
    return (int)copy->lasting.count;
}
