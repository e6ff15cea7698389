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

/* What is read at once: everything before the slots, and everything after them. */
#define HEAD_SIZE offsetof(struct region_base, slots)
#define TAIL_OFFSET offsetof(struct region_base, slot_count)
#define TAIL_SIZE (sizeof(struct region_base) - TAIL_OFFSET)
#define EXT_HEAD_SIZE offsetof(struct region_ext, slots)

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
    int64_t asking_until_ns;   /* by the thread's clock */
    struct proc_identity self; /* known once has_self is set: few readers need it */
    bool has_self;
    bool has_extension;
    struct region_base base; /* head and tail only */
    struct region_ext ext;   /* head only: no more of it is allocated */
};

#define FILE_SIZE (offsetof(struct file, ext) + EXT_HEAD_SIZE)

/* Reads all of a range; what the file is too short for is an error. */
static int read_range(int fd, void *to, size_t size, off_t offset)
{
    ssize_t n = pread(fd, to, size, offset);

    if (n < 0)
        return -errno;
    return (size_t)n == size ? 0 : -EPROTO;
}

static int read_heads(struct file *file)
{
    int r;

    r = read_range(file->fd, &file->base, HEAD_SIZE, 0);
    if (r < 0)
        return r;
    r = read_range(file->fd, (char *)&file->base + TAIL_OFFSET, TAIL_SIZE, (off_t)TAIL_OFFSET);
    if (r < 0)
        return r;
    if (atomic_load(&file->base.magic) != REGION_MAGIC || file->base.major_version != REGION_MAJOR)
        return -EPROTO;

    file->has_extension = read_range(file->fd, &file->ext, EXT_HEAD_SIZE, REGION_EXT_OFFSET) == 0 &&
                          atomic_load(&file->ext.magic) == REGION_EXT_MAGIC &&
                          file->ext.version == REGION_EXT_VERSION;
    return 0;
}

static void view_devices(const struct file *file, struct region_view *view)
{
    view->device_count = (unsigned)MIN(file->base.device_count, (uint64_t)REGION_DEVICES);
    for (unsigned i = 0; i < view->device_count; i++) {
        struct region_view_device *device = &view->devices[i];
        const struct region_ext_device *ext = &file->ext.devices[i];

        memcpy(device->uuid, file->base.uuids[i], REGION_UUID_SIZE);
        device->uuid[REGION_UUID_SIZE] = '\0';
        device->limit_bytes = atomic_load(&file->base.limit[i]);
        device->cores = (unsigned)MIN(atomic_load(&file->base.sm_limit[i]), UINT64_C(100));
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

/* The slot of a living process: true. Without our extension the status has to be believed. */
static bool slot_lives(struct file *file, unsigned index, const struct region_slot *slot,
                       struct region_ext_slot *ext, pid_t *ret_host_pid, bool *ret_sure)
{
    off_t offset = REGION_EXT_OFFSET + (off_t)offsetof(struct region_ext, slots) +
                   (off_t)(index * sizeof(*ext));
    struct proc_identity claimer;

    memset(ext, 0, sizeof(*ext));
    *ret_sure = false;
    *ret_host_pid = atomic_load(&slot->host_pid);
    if (atomic_load(&slot->pid) == 0 || atomic_load(&slot->status) == REGION_STATUS_DEAD)
        return false;
    if (!file->has_extension || read_range(file->fd, ext, sizeof(*ext), offset) < 0)
        return true;

    claimer = (struct proc_identity){
        .pid = atomic_load(&ext->pid),
        .pid_namespace = atomic_load(&ext->pid_namespace),
        .start_ticks = atomic_load(&ext->start_ticks),
    };
    if (claimer.pid == 0)
        return true; /* HAMi-core's */
    if (clock_read_ns(CLOCK_THREAD_CPUTIME_ID) > file->asking_until_ns)
        return true;
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
    int32_t count = atomic_load(&file->base.slot_count);
    struct region_ext_slot ext;
    struct region_slot slot;
    pid_t host_pid;
    bool is_sure;
    int r;

    view->pinned_bytes = view->spilled_bytes = view->imports = 0;
    file->asking_until_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID) + ASKING_NS;
    count = MAX(0, MIN(count, REGION_SLOTS));
    for (unsigned i = 0; i < (unsigned)count; i++) {
        r = read_range(file->fd, &slot, sizeof(slot),
                       (off_t)(offsetof(struct region_base, slots) + i * sizeof(slot)));
        if (r < 0)
            return r;
        if (!slot_lives(file, i, &slot, &ext, &host_pid, &is_sure))
            continue;
        view->pinned_bytes += atomic_load(&ext.pinned);
        view->spilled_bytes += atomic_load(&ext.spilled);
        view->imports += atomic_load(&ext.imports);
        view_process(&slot, &ext, i, host_pid, is_sure, view);
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
    r = file->size < (off_t)sizeof(file->base) ? -EPROTO : read_heads(file);
    if (r < 0)
        return error_set(err, r, "%s: it is not a shared region of version %d", path, REGION_MAJOR);

    clear_view(ret_view);
    ret_view->major_version = file->base.major_version;
    ret_view->minor_version = file->base.minor_version;
    ret_view->has_extension = file->has_extension;
    ret_view->priority = file->base.priority;
    ret_view->recent_kernel = atomic_load(&file->base.recent_kernel);
    ret_view->utilization_switch = atomic_load(&file->base.utilization_switch);
    ret_view->last_kernel_time = atomic_load(&file->base.last_kernel_time);
    if (file->has_extension) {
        ret_view->unaccounted_refused = atomic_load(&file->ext.unaccounted_refused);
        ret_view->ruled_by_file = atomic_load(&file->ext.ruled_by_file) != 0;
        ret_view->unaccounted_allowed = atomic_load(&file->ext.unaccounted_allowed);
    }
    view_devices(file, ret_view);

    r = view_slots(file, ret_view);
    if (r < 0)
        return error_set(err, r, "%s: it is cut short", path);
    return 0;
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
    r = view_open(folder, path, used, file, err);
    if (r == 0)
        r = read_file(file, path, ret_view, err);
    region_kept_close(&own);
    return r;
}

int region_view_explains(const char *path, const struct region_view *view,
                         struct region_explain (*ret_rows)[REGION_DEVICES])
{
    AUTOCLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;

    if (fd < 0)
        return -errno;
    if (file_stat_fd(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return -EPROTO;
    for (unsigned i = 0; i < view->process_count; i++) {
        const size_t row = view->processes[i].slot * sizeof(*ret_rows);
        const off_t at = REGION_EXT_OFFSET + (off_t)(offsetof(struct region_ext, explains) + row);

        if (!view->has_extension || !view->processes[i].has_account ||
            read_range(fd, ret_rows[i], sizeof(*ret_rows), at) < 0)
            memset(ret_rows[i], 0, sizeof(*ret_rows));
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
