/* SPDX-License-Identifier: Apache-2.0 */
#include "region/view.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/util.h"
#include "region/ledger.h"
#include "region/slots.h"
#include "region/view_v0.h"

/* The file as it lies on disk. All between the parts that are read is allocated and never touched.
 */
struct image {
    struct region_base base;
    char gap[REGION_EXT_OFFSET - sizeof(struct region_base)];
    struct region_ext ext;
};

_Static_assert(offsetof(struct image, ext) == REGION_EXT_OFFSET, "as in the file");

/* What is read at once: all up to the first slot, which few containers have more than; and what is
 * behind the last one, with the extension's words and the devices that are in use. */
#define FRONT_SIZE offsetof(struct region_base, slots[1])
#define REST_OFFSET offsetof(struct region_base, slot_count)
#define BASE_REST_SIZE (sizeof(struct region_base) - REST_OFFSET)

/*
 * For so long of the reader's own time it asks who of a region's slots lives: who holds a lock is
 * found among all locks of the file, and what a process maps among all that it maps, and both can
 * be made many by whoever owns the file. Of the slots beyond it their own word is taken. 1,024
 * honest ones take 4 ms.
 */
#define ASKING_NS (50 * NS_PER_MS)

struct file {
    int fd;
    ino_t ino;
    off_t size;
    int64_t asking_ns;         /* for how long we ask */
    int64_t asking_until_ns;   /* by the thread's clock; 0: it was not looked at yet */
    struct proc_identity self; /* known once has_self is set: few readers need it */
    bool has_self;
    bool has_extension;
    struct region_slot slot; /* any but the first */
    struct region_ext_slot ext_slot;
    struct image image; /* no more of it is allocated than the extension's devices */
};

#define FILE_SIZE offsetof(struct file, image.ext.slots)

/* Reads all of a range; what the file is too short for is an error. */
static int read_range(int fd, void *to, size_t size, off_t offset)
{
    ssize_t n = pread(fd, to, size, offset);

    if (n < 0)
        return -errno;
    return (size_t)n == size ? 0 : -EPROTO;
}

static unsigned device_count(const struct file *file)
{
    return (unsigned)MIN(file->image.base.device_count, (uint64_t)REGION_DEVICES);
}

static int read_parts(struct file *file)
{
    struct image *image = &file->image;
    size_t size;
    ssize_t len;
    int r;

    r = read_range(file->fd, image, FRONT_SIZE, 0);
    if (r < 0)
        return r;
    size = offsetof(struct image, ext.devices) +
           device_count(file) * sizeof(image->ext.devices[0]) - REST_OFFSET;
    len = pread(file->fd, (char *)image + REST_OFFSET, size, (off_t)REST_OFFSET);
    if (len < 0)
        return -errno;
    if (len < (ssize_t)BASE_REST_SIZE || atomic_load(&image->base.magic) != REGION_MAGIC ||
        image->base.major_version != REGION_MAJOR)
        return -EPROTO;

    file->has_extension = len == (ssize_t)size &&
                          atomic_load(&image->ext.magic) == REGION_EXT_MAGIC &&
                          image->ext.version == REGION_EXT_VERSION;
    return 0;
}

static int read_slot(struct file *file, unsigned index, const struct region_slot **ret_slot)
{
    const size_t offset = offsetof(struct region_base, slots) + index * sizeof(file->slot);

    if (index == 0) {
        *ret_slot = &file->image.base.slots[0];
        return 0;
    }
    *ret_slot = &file->slot;
    return read_range(file->fd, &file->slot, sizeof(file->slot), (off_t)offset);
}

/* All 0 where there is none. */
static const struct region_ext_slot *read_ext_slot(struct file *file, unsigned index)
{
    const size_t offset = offsetof(struct region_ext, slots) + index * sizeof(file->ext_slot);

    if (!file->has_extension || read_range(file->fd, &file->ext_slot, sizeof(file->ext_slot),
                                           REGION_EXT_OFFSET + (off_t)offset) < 0)
        memset(&file->ext_slot, 0, sizeof(file->ext_slot));
    return &file->ext_slot;
}

static void view_devices(const struct file *file, struct region_view *view)
{
    view->device_count = device_count(file);
    for (unsigned i = 0; i < view->device_count; i++) {
        struct region_view_device *device = &view->devices[i];
        const struct region_ext_device *ext = &file->image.ext.devices[i];

        memcpy(device->uuid, file->image.base.uuids[i], REGION_UUID_SIZE);
        device->uuid[REGION_UUID_SIZE] = '\0';
        device->limit_bytes = atomic_load(&file->image.base.limit[i]);
        device->cores = (unsigned)MIN(atomic_load(&file->image.base.sm_limit[i]), UINT64_C(100));
        if (!file->has_extension)
            continue;
        device->refusals = atomic_load(&ext->refusals);
        device->charged_ns = atomic_load(&ext->compute.charged_ns);
        device->launches_delayed = atomic_load(&ext->compute.launches_delayed);
        device->delayed_ns = atomic_load(&ext->compute.delayed_ns);
        for (unsigned k = 0; k < REGION_WAITS; k++)
            device->waits[k] = atomic_load(&ext->compute.waits[k]);
    }
}

static void know_self(struct file *file)
{
    if (file->has_self)
        return;
    proc_identity_self(&file->self);
    file->self.pid = 0; /* a reader has no earlier life among the claimers */
    file->has_self = true;
}

/* The first one is asked about without a look at the clock, which is a system call as well. */
static bool asks_on(struct file *file, unsigned index)
{
    if (index == 0)
        return true;
    if (!file->asking_until_ns)
        file->asking_until_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID) + file->asking_ns;
    return clock_read_ns(CLOCK_THREAD_CPUTIME_ID) <= file->asking_until_ns;
}

/* The slot of a living process: true. Without our extension the status has to be believed. */
static bool slot_lives(struct file *file, unsigned index, const struct region_slot *slot,
                       const struct region_ext_slot *ext, pid_t *ret_host_pid, bool *ret_sure)
{
    const struct proc_identity claimer = {
        .pid = atomic_load(&ext->pid),
        .pid_namespace = atomic_load(&ext->pid_namespace),
        .start_ticks = atomic_load(&ext->start_ticks),
    };

    *ret_sure = false;
    *ret_host_pid = atomic_load(&slot->host_pid);
    if (claimer.pid == 0 || !asks_on(file, index))
        return true; /* HAMi-core's; or too many */
    if (slot_is_locked(file->fd, index, ret_host_pid)) {
        *ret_sure = *ret_host_pid > 0;
        return true;
    }
    know_self(file);
    return !slot_is_dead(file->fd, file->ino, index, &claimer, &file->self);
}

/* The mirror tells the kinds, but may lag behind the account by what was going on when it was
 * written. */
static void view_memory(const struct region_memory *mirror, const struct region_ext_slot *ext,
                        unsigned device, struct region_view_memory *ret_memory)
{
    uint64_t held = 0;

    *ret_memory = (struct region_view_memory){
        .total = mirror->total,
        .context = mirror->context_size,
        .module = mirror->module_size,
        .data = mirror->data_size,
    };
    if (atomic_load(&ext->pid) == 0)
        return;
    held = (atomic_load(&ext->accounts[device].used) >> 30) * LEDGER_UNIT;
    ret_memory->total = held;
    ret_memory->data = held - MIN(held, mirror->context_size + mirror->module_size);
}

static void view_process(const struct region_slot *slot, const struct region_ext_slot *ext,
                         unsigned index, pid_t host_pid, bool is_sure, struct region_view *view)
{
    struct region_view_process *process = &view->processes[view->process_count++];

    *process = (struct region_view_process){
        .slot = index,
        .pid = atomic_load(&slot->pid),
        .host_pid = host_pid,
        .is_sure = is_sure,
        .has_account = atomic_load(&ext->pid) != 0,
        .told_pid = atomic_load(&slot->host_pid),
        .start_ticks = atomic_load(&ext->start_ticks),
    };
    for (unsigned i = 0; i < view->device_count; i++) {
        struct region_view_memory *used = &process->used[i];
        struct region_view_memory *sum = &view->devices[i].used;

        view_memory(&slot->used[i], ext, i, used);
        sum->total += used->total;
        sum->context += used->context;
        sum->module += used->module;
        sum->data += used->data;
        view->devices[i].sm_util += (unsigned)MIN(slot->util[i].sm_util, UINT64_C(100));
    }
}

static int view_slots(struct file *file, struct region_view *view)
{
    const struct region_ext_slot *ext;
    const struct region_slot *slot;
    pid_t host_pid;
    bool is_sure;
    int count, r;

    view->pinned_bytes = view->spilled_bytes = view->imports = 0;
    count = MAX(0, MIN(atomic_load(&file->image.base.slot_count), REGION_SLOTS));
    for (unsigned i = 0; i < (unsigned)count; i++) {
        r = read_slot(file, i, &slot);
        if (r < 0)
            return r;
        if (atomic_load(&slot->pid) == 0 || atomic_load(&slot->status) == REGION_STATUS_DEAD)
            continue;
        ext = read_ext_slot(file, i);
        if (!slot_lives(file, i, slot, ext, &host_pid, &is_sure))
            continue;
        view->pinned_bytes += atomic_load(&ext->pinned);
        view->spilled_bytes += atomic_load(&ext->spilled);
        view->imports += atomic_load(&ext->imports);
        view_process(slot, ext, i, host_pid, is_sure, view);
    }
    return 0;
}

/* Less than a whole one, which GCC 14 takes for a mistake where it sees the type. */
static __attribute__((noinline)) struct file *new_file(void)
{
    void *file = malloc(FILE_SIZE);

    return file;
}

static void free_file(struct file **file)
{
    free(*file);
}

void region_kept_close(struct region_kept *kept)
{
    if (kept->fd >= 0)
        (void)close(kept->fd);
    kept->fd = -1;
}

/* Whether the path still leads to the file that is open: its number is its own as long. */
static bool is_kept(int folder, const char *path, const struct region_kept *kept, struct file *file)
{
    struct stat st;

    if (kept->fd < 0 || file_stat_link_at(folder, path, &st) < 0 || st.st_dev != kept->dev ||
        st.st_ino != kept->ino)
        return false;
    file->fd = kept->fd;
    file->ino = st.st_ino;
    file->size = st.st_size;
    return true;
}

static int view_open(int folder, const char *path, struct region_kept *kept, struct file *file,
                     struct error *err)
{
    struct stat st;

    if (is_kept(folder, path, kept, file))
        return 0;
    region_kept_close(kept);
    kept->fd = file->fd = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file->fd < 0)
        return error_set(err, -errno, "%s: %s", path, strerror(errno));
    if (file_stat_fd(file->fd, &st) < 0 || !S_ISREG(st.st_mode))
        return error_set(err, -EPROTO, "%s: it is not a regular file", path);

    kept->dev = st.st_dev;
    kept->ino = file->ino = st.st_ino;
    file->size = st.st_size;
    return 0;
}

/* All but the processes, which are many and are set as they are found. */
static void clear_view(struct region_view *view)
{
    size_t after = offsetof(struct region_view, processes) + sizeof(view->processes);

    memset(view, 0, offsetof(struct region_view, processes));
    memset((char *)view + after, 0, sizeof(*view) - after);
}

static int read_file(struct file *file, const char *path, struct region_view *ret_view,
                     struct error *err)
{
    int r;

    if (file->size >= (off_t)VIEW_V0_SIZE && file->size < (off_t)(VIEW_V0_SIZE + VIEW_V0_SLACK)) {
        clear_view(ret_view);
        r = view_v0_read(file->fd, ret_view);
        return r < 0 ? error_set(err, r, "%s: it is not a shared region", path) : 0;
    }
    /* An empty one is what the device plugin makes: most have one, hundreds to a look. */
    r = file->size < (off_t)sizeof(struct region_base) ? -EPROTO : read_parts(file);
    if (r < 0)
        return error_set(err, r, "%s: it is not a shared region of version %d", path, REGION_MAJOR);

    clear_view(ret_view);
    ret_view->major_version = file->image.base.major_version;
    ret_view->minor_version = file->image.base.minor_version;
    ret_view->has_extension = file->has_extension;
    ret_view->priority = file->image.base.priority;
    ret_view->recent_kernel = atomic_load(&file->image.base.recent_kernel);
    ret_view->utilization_switch = atomic_load(&file->image.base.utilization_switch);
    ret_view->last_kernel_time = atomic_load(&file->image.base.last_kernel_time);
    if (file->has_extension) {
        ret_view->unaccounted_refused = atomic_load(&file->image.ext.unaccounted_refused);
        ret_view->ruled_by_file = atomic_load(&file->image.ext.ruled_by_file) != 0;
        ret_view->unaccounted_allowed = atomic_load(&file->image.ext.unaccounted_allowed);
    }
    view_devices(file, ret_view);

    r = view_slots(file, ret_view);
    if (r < 0)
        return error_set(err, r, "%s: it is cut short", path);
    return 0;
}

/* Next to nothing, and not measured, where no slot but the first is in use. */
static int64_t asked_ns(const struct file *file)
{
    if (!file->asking_until_ns)
        return 0;
    return clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - (file->asking_until_ns - file->asking_ns);
}

int region_view_read(const char *path, struct region_view *ret_view, struct error *err)
{
    return region_view_read_at(AT_FDCWD, path, NULL, ret_view, err);
}

int region_view_read_at(int folder, const char *path, struct region_kept *kept,
                        struct region_view *ret_view, struct error *err)
{
    /* Not cleared: it is large, and what is used of it is read first. */
    CLEANUP(free_file) struct file *file = new_file();
    struct region_kept own = REGION_KEPT_INIT;
    struct region_kept *used = kept ? kept : &own;
    int r;

    if (!file)
        return error_set(err, -ENOMEM, "%s: no memory", path);
    file->has_self = false;
    file->asking_ns = used->asking_ns ? used->asking_ns : ASKING_NS;
    file->asking_until_ns = 0;
    r = view_open(folder, path, used, file, err);
    if (r == 0)
        r = read_file(file, path, ret_view, err);
    used->asked_ns = asked_ns(file);
    region_kept_close(&own);
    return r;
}

unsigned region_view_longest(const struct region_view_device *device)
{
    unsigned longest = 0;

    for (unsigned i = 0; i < REGION_WAITS; i++)
        longest = device->waits[i] ? i + 1 : longest;
    return longest;
}

uint64_t region_launches(const struct region_explain *explain)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < REGION_LAUNCH_KINDS; i++)
        sum += atomic_load(&explain->launches[i]);
    return sum;
}

uint64_t region_own_ns(const struct region_explain *explain)
{
    uint64_t launches = region_launches(explain);

    return launches ? atomic_load(&explain->own_ns) / launches : 0;
}

/* One process' row of a table in the extension. */
static void read_row(int fd, size_t table, unsigned slot, void *ret_row, size_t size)
{
    if (read_range(fd, ret_row, size, REGION_EXT_OFFSET + (off_t)(table + slot * size)) < 0)
        memset(ret_row, 0, size);
}

int region_view_explained(const char *path, const struct region_view *view,
                          struct region_explained *ret_rows)
{
    AUTOCLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;

    if (fd < 0)
        return -errno;
    if (file_stat_fd(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return -EPROTO;
    memset(ret_rows, 0, view->process_count * sizeof(*ret_rows));
    for (unsigned i = 0; i < view->process_count; i++) {
        const struct region_view_process *process = &view->processes[i];
        struct region_explained *row = &ret_rows[i];

        if (!view->has_extension || !process->has_account)
            continue;
        read_row(fd, offsetof(struct region_ext, explains), process->slot, row->launches,
                 sizeof(row->launches));
        read_row(fd, offsetof(struct region_ext, refusals), process->slot, row->refusals,
                 sizeof(row->refusals));
    }
    return 0;
}

static bool is_holder(int fd, unsigned slot, pid_t host_pid)
{
    pid_t holder = 0;

    return slot_is_locked(fd, slot, &holder) && holder == host_pid;
}

int region_tell_host_pid(const char *path, unsigned slot, pid_t host_pid)
{
    off_t offset = (off_t)(offsetof(struct region_base, slots) + slot * sizeof(struct region_slot) +
                           offsetof(struct region_slot, host_pid));
    AUTOCLOSE int fd = -1;
    int32_t word = host_pid;
    struct stat st;

    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    if (slot >= REGION_SLOTS || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        st.st_size < (off_t)REGION_BASE_SIZE)
        return -EPROTO;
    if (!is_holder(fd, slot, host_pid))
        return -ESRCH;
    if (pwrite(fd, &word, sizeof(word), offset) != (ssize_t)sizeof(word))
        return -EIO;
    if (is_holder(fd, slot, host_pid))
        return 0;
    word = 0; /* another process has it by now */
    (void)pwrite(fd, &word, sizeof(word), offset);
    return -ESRCH;
}

/* Where the words stand: HAMi's two layouts are told apart by the file's size. */
static int words_offset(int fd, off_t *ret_recent, off_t *ret_switch)
{
    struct stat st;
    int32_t magic;

    if (file_stat_fd(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        pread(fd, &magic, sizeof(magic), 0) != (ssize_t)sizeof(magic) || magic != REGION_MAGIC)
        return -EPROTO;
    if (st.st_size >= (off_t)REGION_BASE_SIZE) {
        *ret_recent = (off_t)offsetof(struct region_base, recent_kernel);
        *ret_switch = (off_t)offsetof(struct region_base, utilization_switch);
        return 0;
    }
    if (st.st_size < (off_t)VIEW_V0_SIZE || st.st_size >= (off_t)(VIEW_V0_SIZE + VIEW_V0_SLACK))
        return -EPROTO;
    *ret_recent = VIEW_V0_RECENT_KERNEL;
    *ret_switch = VIEW_V0_UTILIZATION_SWITCH;
    return 0;
}

static int write_word(int fd, int word, off_t offset)
{
    const int32_t value = word;

    return pwrite(fd, &value, sizeof(value), offset) == (ssize_t)sizeof(value) ? 0 : -EIO;
}

int region_tell_words(const char *path, const struct region_words *seen,
                      const struct region_words *words)
{
    off_t recent, utilization;
    AUTOCLOSE int fd = -1;
    int r = 0;

    if (seen->recent_kernel == words->recent_kernel &&
        seen->utilization_switch == words->utilization_switch)
        return 0;
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    r = words_offset(fd, &recent, &utilization);
    if (r == 0 && seen->recent_kernel != words->recent_kernel)
        r = write_word(fd, words->recent_kernel, recent);
    if (r == 0 && seen->utilization_switch != words->utilization_switch)
        r = write_word(fd, words->utilization_switch, utilization);
    return r;
}
