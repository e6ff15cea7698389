/* SPDX-License-Identifier: Apache-2.0 */
#include "region/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/glibc.h"
#include "base/util.h"
#include "region/slots.h"

#define ASSERT_OFFSET(type, field, offset)                                                         \
    _Static_assert(offsetof(struct type, field) == (offset), #type "." #field)

/* HAMi-core 1.2's layout, byte by byte. */
ASSERT_OFFSET(region_base, magic, 0);
ASSERT_OFFSET(region_base, major_version, 4);
ASSERT_OFFSET(region_base, minor_version, 8);
ASSERT_OFFSET(region_base, sm_init_flag, 12);
ASSERT_OFFSET(region_base, owner_pid, 16);
ASSERT_OFFSET(region_base, sem, 24);
ASSERT_OFFSET(region_base, device_count, 56);
ASSERT_OFFSET(region_base, uuids, 64);
ASSERT_OFFSET(region_base, limit, 1600);
ASSERT_OFFSET(region_base, sm_limit, 1728);
ASSERT_OFFSET(region_base, slots, 1856);
ASSERT_OFFSET(region_base, slot_count, 2008896);
ASSERT_OFFSET(region_base, utilization_switch, 2008900);
ASSERT_OFFSET(region_base, recent_kernel, 2008904);
ASSERT_OFFSET(region_base, priority, 2008908);
ASSERT_OFFSET(region_base, last_kernel_time, 2008912);
ASSERT_OFFSET(region_base, sem_postinit, 2008920);
_Static_assert(sizeof(struct region_base) == REGION_BASE_SIZE, "region_base");
_Static_assert(sizeof(sem_t) == 32, "sem_t");
ASSERT_OFFSET(region_slot, pid, 0);
ASSERT_OFFSET(region_slot, host_pid, 4);
ASSERT_OFFSET(region_slot, used, 8);
ASSERT_OFFSET(region_slot, monitor_used, 1032);
ASSERT_OFFSET(region_slot, util, 1160);
ASSERT_OFFSET(region_slot, status, 1928);
ASSERT_OFFSET(region_slot, seqlock, 1936);
ASSERT_OFFSET(region_slot, unused, 1944);
_Static_assert(sizeof(struct region_slot) == 1960, "region_slot");
ASSERT_OFFSET(region_memory, context_size, 0);
ASSERT_OFFSET(region_memory, module_size, 8);
ASSERT_OFFSET(region_memory, data_size, 16);
ASSERT_OFFSET(region_memory, offset, 24);
ASSERT_OFFSET(region_memory, total, 32);
_Static_assert(sizeof(struct region_memory) == 64, "region_memory");
ASSERT_OFFSET(region_utilisation, dec_util, 0);
ASSERT_OFFSET(region_utilisation, enc_util, 8);
ASSERT_OFFSET(region_utilisation, sm_util, 16);
_Static_assert(sizeof(struct region_utilisation) == 48, "region_utilisation");

/* Ours: other versions of this library will read it. */
ASSERT_OFFSET(region_ext, devices, 512);
_Static_assert(sizeof(struct region_ext_device) == 640, "region_ext_device");
_Static_assert(sizeof(struct region_ext_slot) == 448, "region_ext_slot");
_Static_assert(REGION_EXT_OFFSET % 4096 == 0 && REGION_EXT_OFFSET > REGION_BASE_SIZE, "page");

enum {
    INIT_WAIT_MS = 2000,
};

/* Opens or makes the file. One that we made can be used by every user of the container, as
 * HAMi-core's. */
static int open_file(const char *path, bool make)
{
    int fd = -1;

    if (make)
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd >= 0)
        (void)fchmod(fd, 0666);
    else if (!make || errno == EEXIST)
        fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return fd < 0 ? -errno : file_move_away(fd);
}

/* Whether the file would have to grow beyond what the process may write: it would be ended by
 * SIGXFSZ. */
static bool is_beyond_limit(int fd)
{
    struct rlimit limit;
    struct stat st;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < REGION_SIZE &&
           (file_stat_fd(fd, &st) < 0 || st.st_size < (off_t)REGION_SIZE);
}

/*
 * Makes every byte of the file real: a write into a hole of a full disk would kill the guest with
 * SIGBUS. Never shortens.
 */
static int reserve_file(int fd)
{
    return is_beyond_limit(fd) ? -EFBIG : -posix_fallocate(fd, 0, (off_t)REGION_SIZE);
}

static void init_base(struct region_base *base)
{
    base->major_version = REGION_MAJOR;
    base->minor_version = REGION_MINOR;
    (void)sem_init(&base->sem, 1, 1);
    (void)sem_init(&base->sem_postinit, 1, 1);
    atomic_store(&base->utilization_switch, 1);
    atomic_store(&base->recent_kernel, 2);
    base->priority = 1;
    atomic_store(&base->last_kernel_time, (uint64_t)time(NULL));
    atomic_store(&base->magic, REGION_MAGIC);
}

/* The text of boot_id is another after each start of the machine. 0 where there is none. */
static uint64_t hash_boot(void)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    char text[64];

    if (file_read("/proc/sys/kernel/random/boot_id", text, sizeof(text)) <= 0)
        return 0;
    for (const char *p = text; *p; p++)
        hash = (hash ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
    return hash;
}

/* What is owed for work under way may be more than a minute's waiting, but not an hour's. */
#define OTHER_BOOT_NS (3600 * NS_PER_S)

/* Whether a time lies so far in the future that another boot's clock said it. */
static bool is_of_other_boot(const struct region_ext *ext)
{
    const int64_t latest_ns = clock_now_ns() + OTHER_BOOT_NS;
    int64_t last_ns = 0;

    for (unsigned i = 0; i < REGION_DEVICES; i++) {
        const struct region_ext_device *device = &ext->devices[i];

        last_ns = MAX(last_ns, atomic_load(&device->compute.zero_ns));
        last_ns = MAX(last_ns, atomic_load(&device->compute.doubted_until_ns));
        last_ns = MAX(last_ns, atomic_load(&device->compute.credit_until_ns));
        last_ns = MAX(last_ns, atomic_load(&device->gang.until_ns));
    }
    return last_ns > latest_ns;
}

/*
 * The monotonic clock begins anew with each start of the machine: times of an earlier one would
 * lie in the future. The boot's name alone is no proof: a tenant with a mount namespace of its own
 * gives that what text it likes, and would be rid of its debts. What an earlier boot left that is
 * not so far ahead is paid within the minute that can be owed at most.
 */
static void forget_other_boot(struct region_ext *ext)
{
    uint64_t boot = hash_boot();
    bool others;

    if (!boot || ext->boot == boot)
        return;
    others = ext->boot && is_of_other_boot(ext);
    for (unsigned i = 0; others && i < REGION_DEVICES; i++) {
        struct region_compute *compute = &ext->devices[i].compute;

        atomic_store(&compute->zero_ns, 0);
        atomic_store(&compute->doubted_until_ns, 0);
        atomic_store(&compute->credit_until_ns, 0);
        atomic_store(&compute->rate, 0);
        atomic_store(&compute->gate, 0);
        atomic_store(&compute->longest_ns, 0);
        memset(&ext->devices[i].gang, 0, sizeof(ext->devices[i].gang));
    }
    if (others)
        memset(ext->turns, 0, sizeof(ext->turns));
    ext->boot = boot;
}

/* A file of zeros is new; what HAMi-core made lacks our part only; anything else is not a region.
 */
static int init_contents(struct region_base *base, struct region_ext *ext, struct error *err)
{
    int32_t magic = atomic_load(&base->magic);

    if (magic == 0)
        init_base(base);
    else if (magic != REGION_MAGIC)
        return error_set(err, -EPROTO, "it is not a shared region (magic %d); remove it", magic);
    if (base->major_version != REGION_MAJOR)
        return error_set(err, -EPROTO, "version %u.%u is not %u.x; remove it when nothing uses it",
                         base->major_version, base->minor_version, REGION_MAJOR);

    if (atomic_load(&ext->magic) == 0) {
        ext->version = REGION_EXT_VERSION;
        ext->size = sizeof(*ext);
        atomic_store(&ext->magic, REGION_EXT_MAGIC);
    }
    if (atomic_load(&ext->magic) != REGION_EXT_MAGIC || ext->version != REGION_EXT_VERSION ||
        ext->size < REGION_EXT_LEAST)
        return error_set(err, -EPROTO,
                         "its extension is of another version; remove it when nothing "
                         "uses it");
    forget_other_boot(ext);
    return 0;
}

/*
 * Maps the file by an open file of its own: children inherit this mapping, and with it the locks of
 * the descriptor that it was made with.
 */
static int map_apart(const struct region *region, const struct stat *st, char **ret_bytes)
{
    AUTOCLOSE int fd = open(region->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat again;
    char *bytes;

    if (fd < 0)
        return -errno;
    if (file_stat_fd(fd, &again) < 0 || again.st_ino != st->st_ino || again.st_dev != st->st_dev)
        return -ESTALE;
    bytes = mmap(NULL, REGION_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        return -errno;
    *ret_bytes = bytes;
    return 0;
}

static int map_file(struct region *region, bool make, uint64_t inode, struct error *err)
{
    AUTOCLOSE int fd = -1;
    struct stat st;
    char *bytes = NULL;
    int r;

    fd = open_file(region->path, make);
    if (fd < 0)
        return error_set(err, fd, "%s: %s", region->path, strerror(-fd));
    if (file_stat_fd(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return error_set(err, -EPROTO, "%s: it is not a regular file", region->path);

    if (inode && st.st_ino != inode)
        return error_set(err, -ESTALE, "%s: it is not the file that was made for this container",
                         region->path);

    /* HAMi-core holds the same range while it initialises. */
    r = lock_range(fd, 0, REGION_BASE_SIZE, INIT_WAIT_MS);
    if (r < 0)
        return error_set(err, r, "%s: locking it: %s", region->path, strerror(-r));
    r = reserve_file(fd);
    if (r < 0)
        return error_set(err, r, "%s: making room for it: %s", region->path, strerror(-r));

    r = map_apart(region, &st, &bytes);
    if (r < 0)
        return error_set(err, r, "%s: mapping it: %s", region->path, strerror(-r));
    r = init_contents((void *)bytes, (void *)(bytes + REGION_EXT_OFFSET), err);
    (void)unlock_range(fd, 0, REGION_BASE_SIZE);
    if (r < 0) {
        (void)munmap(bytes, REGION_SIZE);
        return error_wrap(err, r, "%s", region->path);
    }

    region->base = (void *)bytes;
    region->ext = (void *)(bytes + REGION_EXT_OFFSET);
    region->dev = st.st_dev;
    region->ino = st.st_ino;
    region->pin = pin_file(fd);
    region->fd = take_fd(&fd);
    return 0;
}

static int open_region(struct region *region, const char *path, bool make, uint64_t inode,
                       struct error *err)
{
    size_t len = strlen(path);
    int r;

    *region = (struct region){.fd = -1, .slot = -1};
    if (len >= sizeof(region->path))
        return error_set(err, -ENAMETOOLONG, "%.60s...: the path is too long", path);
    COPY_TEXT(region->path, path);

    r = map_file(region, make, inode, err);
    if (r < 0)
        return r;

    (void)pthread_mutex_init(&region->lock, NULL);
    proc_identity_self(&region->self);
    return 0;
}

int region_open(struct region *region, const char *path, struct error *err)
{
    return open_region(region, path, true, 0, err);
}

int region_open_made(struct region *region, const char *path, uint64_t inode, struct error *err)
{
    return open_region(region, path, false, inode, err);
}

bool region_is_lost(const struct region *region)
{
    struct stat st;

    if (region->fd >= 0 && file_stat_fd(region->fd, &st) == 0 && st.st_dev == region->dev &&
        st.st_ino == region->ino && st.st_nlink == 0)
        return true;
    /* A path that can't be looked up from here, as after chroot(), says nothing. */
    return file_stat(region->path, &st) == 0 &&
           (st.st_dev != region->dev || st.st_ino != region->ino);
}

void region_close(struct region *region)
{
    if (region->base)
        (void)munmap(region->base, REGION_SIZE);
    unpin_file(region->pin);
    if (region->fd >= 0)
        (void)close(region->fd);
    region->base = NULL;
    region->ext = NULL;
    region->pin = NULL;
    region->fd = -1;
    region->slot = -1;
}

void region_set_device(struct region *region, unsigned index, const char *uuid)
{
    struct region_base *base = region->base;

    if (index >= REGION_DEVICES)
        return;
    if (strncmp(base->uuids[index], uuid, REGION_UUID_SIZE) != 0)
        COPY_TEXT(base->uuids[index], uuid);
    if (base->device_count < index + 1 || base->device_count > REGION_DEVICES)
        base->device_count = index + 1;
}

int region_device(struct region *region, const char *uuid)
{
    unsigned count = (unsigned)MIN(region->base->device_count, (uint64_t)REGION_DEVICES);

    for (unsigned i = 0; i < count; i++) {
        if (strncmp(region->base->uuids[i], uuid, REGION_UUID_SIZE) == 0)
            return (int)i;
    }
    if (count == REGION_DEVICES)
        return -ENOSPC;

    region_set_device(region, count, uuid);
    return (int)count;
}
