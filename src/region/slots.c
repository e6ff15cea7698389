/* SPDX-License-Identifier: Apache-2.0 */
#include "region/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/lock.h"
#include "base/util.h"
#include "region/orphans.h"
#include "region/region.h"
#include "region/shares.h"
#include "region/turns.h"

enum {
    PIN_SIZE = 4096,
    SETTLE_WAIT_MS = 50,
    CLAIM_WAIT_MS = 2000,
    MAPS_MAX = 4 << 20, /* bytes; a process can make its list as long as it likes */
    MAPS_TEXT = 1024,   /* of it at a time: the caller may have a small stack */
};

static struct flock range_of(short type, off_t start, off_t len)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
}

/* On systems that know no locks of open files (EINVAL) a process' own must do. */
static int set_lock(int fd, short type, off_t start, off_t len)
{
    struct flock range = range_of(type, start, len);

    if (fcntl(fd, F_OFD_SETLK, &range) == 0)
        return 0;
    if (errno == EINVAL && fcntl(fd, F_SETLK, &range) == 0)
        return 0;
    return -errno;
}

int lock_range(int fd, off_t start, off_t len, int wait_ms)
{
    int64_t deadline = clock_now_ns() + wait_ms * NS_PER_MS;
    const struct timespec pause = {.tv_nsec = NS_PER_MS};
    int r;

    for (;;) {
        r = set_lock(fd, F_WRLCK, start, len);
        if (r == 0 || (r != -EACCES && r != -EAGAIN && r != -EINTR))
            return r;
        if (clock_now_ns() >= deadline)
            return -ETIMEDOUT;
        (void)nanosleep(&pause, NULL);
    }
}

int unlock_range(int fd, off_t start, off_t len)
{
    return set_lock(fd, F_UNLCK, start, len);
}

bool slot_is_locked(int fd, unsigned slot, pid_t *ret_pid)
{
    struct flock range = range_of(F_WRLCK, REGION_LOCK_SLOTS + (off_t)slot, 1);

    if (fcntl(fd, F_GETLK, &range) < 0 || range.l_type == F_UNLCK)
        return false;
    *ret_pid = range.l_pid;
    return true;
}

static bool slot_is_held(int fd, unsigned slot)
{
    struct flock range = range_of(F_WRLCK, REGION_LOCK_HELD + (off_t)slot, 1);

    return fcntl(fd, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

/* The lock that tells our pid: lost as soon as the program closes any descriptor of the file. */
static int lock_slot(int fd, unsigned slot)
{
    struct flock range = range_of(F_WRLCK, REGION_LOCK_SLOTS + (off_t)slot, 1);

    return fcntl(fd, F_SETLK, &range) < 0 ? -errno : 0;
}

enum maps_answer {
    MAPS_YES = 1,
    MAPS_NO,
    MAPS_UNKNOWN,
};

/* The inode number is the fifth field of a line of /proc/PID/maps. */
static bool maps_line_names(const char *line, uint64_t ino)
{
    uint64_t number = 0;

    for (int field = 0; field < 4; field++) {
        line = strchr(line, ' ');
        if (!line)
            return false;
        line += strspn(line, " ");
    }
    for (; *line >= '0' && *line <= '9'; line++)
        number = number * 10 + (uint64_t)(*line - '0');
    return number == ino;
}

/*
 * Whether a process has a file mapped: it has not, once it became another program. An empty list
 * says nothing: /proc shows one where the main thread has ended, though others go on, and old
 * kernels do where the process is another user's.
 */
static enum maps_answer process_maps(pid_t pid, ino_t ino)
{
    char path[32], text[MAPS_TEXT];
    AUTOCLOSE int fd = -1;
    size_t len = 0, sum = 0;
    bool is_rest = false; /* of a line that was looked at */

    (void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return MAPS_UNKNOWN;

    for (;;) {
        ssize_t n = read(fd, text + len, sizeof(text) - 1 - len);
        char *line = text, *end;

        if (n < 0)
            return MAPS_UNKNOWN;
        if (n == 0)
            return sum ? MAPS_NO : MAPS_UNKNOWN;
        sum += (size_t)n;
        if (sum > MAPS_MAX)
            return MAPS_UNKNOWN;
        len += (size_t)n;
        text[len] = '\0';
        for (; (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            if (!is_rest && maps_line_names(line, ino))
                return MAPS_YES;
            is_rest = false;
        }

        len = strlen(line);
        /* A long path: the numbers come before it, and what follows of the line says nothing. */
        if (len == sizeof(text) - 1) {
            if (!is_rest && maps_line_names(line, ino))
                return MAPS_YES;
            is_rest = true;
            len = 0;
        }
        memmove(text, line, len);
    }
}

/* From another namespace nothing but the locks can be seen. Who has no /proc knows no namespace,
 * and may be in the same one. */
static bool unseen_is_dead(const struct proc_identity *claimer, const struct proc_identity *self)
{
    if (claimer->pid_namespace && self->pid_namespace)
        return claimer->pid_namespace != self->pid_namespace;
    return kill(claimer->pid, 0) < 0 && errno == ESRCH;
}

bool slot_is_dead(int fd, ino_t ino, unsigned slot, const struct proc_identity *claimer,
                  const struct proc_identity *self)
{
    pid_t holder;

    if (slot_is_locked(fd, slot, &holder))
        return false;
    /* A child that was made without fork handlers keeps a copy of its dead parent's descriptor. */
    if (slot_is_held(fd, slot))
        return proc_identity_check(claimer, self) == PROC_DEAD;

    switch (proc_identity_check(claimer, self)) {
    case PROC_DEAD:
        return true;
    case PROC_UNKNOWN:
        return unseen_is_dead(claimer, self);
    case PROC_ALIVE:
        break;
    }

    /* It lost both locks, or it is another program now (we ourselves perhaps, after exec). */
    return claimer->pid == self->pid || process_maps(claimer->pid, ino) == MAPS_NO;
}

static struct proc_identity slot_identity(const struct region_ext_slot *slot)
{
    return (struct proc_identity){
        .pid = atomic_load(&slot->pid),
        .pid_namespace = atomic_load(&slot->pid_namespace),
        .start_ticks = atomic_load(&slot->start_ticks),
    };
}

void *pin_file(int fd)
{
    void *pin = mmap(NULL, PIN_SIZE, PROT_NONE, MAP_SHARED, fd, 0);

    if (pin == MAP_FAILED)
        return NULL;
    /* A child of ours must not keep our locks. Where that can't be said there is no pin. */
    if (madvise(pin, PIN_SIZE, MADV_DONTFORK) < 0) {
        (void)munmap(pin, PIN_SIZE);
        return NULL;
    }
    return pin;
}

void unpin_file(void *pin)
{
    if (pin)
        (void)munmap(pin, PIN_SIZE);
}

/* Our descriptor, still what it was: a guest may have closed it and got the number for a file of
 * its own. */
static bool descriptor_is_ours(const struct region *region)
{
    struct stat st;

    return region->fd >= 0 && file_stat_fd(region->fd, &st) == 0 && st.st_dev == region->dev &&
           st.st_ino == region->ino;
}

/* What a program may have made us lose. The slot's second lock stays where it is as long as its
 * open file lives, whatever descriptor we have now. */
static void take_locks(struct region *region)
{
    if (region->fd < 0)
        return;
    if (!region->pin)
        region->pin = pin_file(region->fd);
    if (region->slot < 0)
        return;
    (void)lock_slot(region->fd, (unsigned)region->slot);
    (void)lock_range(region->fd, REGION_LOCK_HELD + region->slot, 1, 0);
}

void region_refresh(struct region *region)
{
    int fd;

    if (descriptor_is_ours(region))
        return;

    region->fd = -1;
    fd = open(region->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    region->fd = file_move_away(fd);
    if (!descriptor_is_ours(region)) {
        /* Another file took the name. Ours lives on in the mapping, without a lock. */
        (void)close(region->fd);
        region->fd = -1;
        return;
    }
    take_locks(region);
}

void region_keep(struct region *region)
{
    lock_mutex(&region->lock);
    region_refresh(region);
    take_locks(region);
    unlock_mutex(&region->lock);
}

/* HAMi's readers see a slot through its status, and old HAMi-core sums dead ones too: nothing may
 * stay. */
static void clear_mirror(struct region_slot *slot)
{
    memset(slot->used, 0, sizeof(slot->used));
    for (unsigned i = 0; i < REGION_DEVICES; i++)
        atomic_store(&slot->monitor_used[i], 0);
    memset(slot->util, 0, sizeof(slot->util));
    atomic_store(&slot->host_pid, 0);
    atomic_store(&slot->status, REGION_STATUS_DEAD);
    atomic_store(&slot->pid, 0);
}

static void settle_slot(struct region *region, unsigned slot)
{
    int64_t now_ns = clock_now_ns();

    for (unsigned device = 0; device < REGION_DEVICES; device++) {
        orphans_settle(region->ext, slot, device);
        turns_settle(region->ext, slot, device, now_ns);
    }
    shares_settle(region->ext, slot);
    clear_mirror(&region->base->slots[slot]);
    atomic_store(&region->ext->slots[slot].pid, 0);
}

/* A slot of nobody, by whose accounts orphans are given back; REGION_SLOTS: there is none. */
static unsigned find_free(const struct region *region)
{
    unsigned i = 0;

    while (i < REGION_SLOTS && atomic_load(&region->ext->slots[i].pid))
        i++;
    return i;
}

/* On how many devices there was something to be given back. */
static int release_orphans(struct region *region)
{
    const unsigned slot = find_free(region);
    int released = 0;

    for (unsigned device = 0; slot < REGION_SLOTS && device < REGION_DEVICES; device++)
        released += orphans_release(region->ext, device, slot);
    return released;
}

/* With the slot table's lock held. */
static int settle_all(struct region *region)
{
    int settled = 0;

    for (unsigned device = 0; device < REGION_DEVICES; device++)
        orphans_recover(region->ext, device);
    for (unsigned i = 0; i < REGION_SLOTS; i++) {
        struct proc_identity claimer = slot_identity(&region->ext->slots[i]);

        if (claimer.pid == 0 || (int)i == region->slot)
            continue;
        if (!slot_is_dead(region->fd, region->ino, i, &claimer, &region->self))
            continue;
        settle_slot(region, i);
        settled++;
    }
    return settled + release_orphans(region);
}

bool region_is_alone(const struct region *region)
{
    for (int i = 0; i < REGION_SLOTS; i++) {
        if (i != region->slot && atomic_load(&region->ext->slots[i].pid))
            return false;
    }
    return true;
}

int region_settle(struct region *region)
{
    int r;

    lock_mutex(&region->lock);
    region_refresh(region);
    r = lock_range(region->fd, REGION_LOCK_TABLE, 1, SETTLE_WAIT_MS);
    if (r == 0) {
        r = settle_all(region);
        (void)unlock_range(region->fd, REGION_LOCK_TABLE, 1);
    }
    unlock_mutex(&region->lock);
    return r;
}

int region_measure(struct region *region)
{
    return lock_range(region->fd, REGION_LOCK_MEASURE, 1, CLAIM_WAIT_MS);
}

void region_measured(struct region *region)
{
    (void)unlock_range(region->fd, REGION_LOCK_MEASURE, 1);
}

int region_try(struct region *region)
{
    return lock_range(region->fd, REGION_LOCK_TRY, 1, CLAIM_WAIT_MS);
}

void region_tried(struct region *region)
{
    (void)unlock_range(region->fd, REGION_LOCK_TRY, 1);
}

static bool slot_is_free(const struct region *region, unsigned index)
{
    return atomic_load(&region->ext->slots[index].pid) == 0 &&
           atomic_load(&region->base->slots[index].pid) == 0;
}

/* Both locks, or none. -EBUSY: somebody has one of them. */
static int lock_free_slot(int fd, unsigned index)
{
    int r = lock_range(fd, REGION_LOCK_HELD + (off_t)index, 1, 0);

    if (r < 0)
        return r == -ETIMEDOUT ? -EBUSY : r;
    r = lock_slot(fd, index);
    if (r == 0)
        return 0;
    (void)unlock_range(fd, REGION_LOCK_HELD + (off_t)index, 1);
    return r == -EAGAIN || r == -EACCES ? -EBUSY : r;
}

/* The lock first, then who we are: seen without its lock, a claim is a dead process' claim. */
static int occupy_slot(struct region *region, unsigned index)
{
    struct region_ext_slot *mine = &region->ext->slots[index];
    struct region_slot *mirror = &region->base->slots[index];
    int r = lock_free_slot(region->fd, index);

    if (r < 0)
        return r;

    atomic_store(&mine->pid_namespace, region->self.pid_namespace);
    atomic_store(&mine->start_ticks, region->self.start_ticks);
    atomic_store(&mine->imports, 0);
    atomic_store(&mine->pinned, 0);
    atomic_store(&mine->spilled, 0);
    memset(region->ext->explains[index], 0, sizeof(region->ext->explains[index]));
    memset(region->ext->refusals[index], 0, sizeof(region->ext->refusals[index]));
    shares_settle(region->ext, index);
    atomic_store(&mine->pid, region->self.pid);
    clear_mirror(mirror);
    atomic_store(&mirror->pid, region->self.pid);
    atomic_store(&mirror->status, REGION_STATUS_RUNNING);
    if (atomic_load(&region->base->slot_count) < (int32_t)index + 1)
        atomic_store(&region->base->slot_count, (int32_t)index + 1);
    region->slot = (int)index;
    return 0;
}

/*
 * The first free slot that nobody has locked. A dead process' slot is free as soon as it is
 * settled, but a child that was made past the handlers of fork keeps a copy of its open file, and
 * so the lock of the slot: nobody can have that slot before the child ends.
 */
static int claim_locked(struct region *region)
{
    (void)settle_all(region);
    for (unsigned i = 0; i < REGION_SLOTS; i++) {
        int r;

        if (!slot_is_free(region, i))
            continue;
        r = occupy_slot(region, i);
        if (r != -EBUSY)
            return r;
    }
    return -EUSERS;
}

/*
 * A child that was made past the handlers of fork (_Fork, clone) has its parent's open file, and
 * with it the parent's locks: closed, it would be without a lock and for dead.
 */
static void leave_parent(struct region *region)
{
    const struct proc_identity *before = &region->self;
    struct proc_identity self;

    proc_identity_self(&self);
    /* What /proc does not tell any more is as it was. */
    if (self.pid == before->pid && (!self.start_ticks || self.start_ticks == before->start_ticks) &&
        (!self.pid_namespace || self.pid_namespace == before->pid_namespace))
        return;
    if (before->pid)
        region_after_fork(region);
    region->self = self;
}

int region_claim(struct region *region, struct error *err)
{
    int r;

    leave_parent(region);
    lock_mutex(&region->lock);
    region_refresh(region);
    r = region->fd < 0 ? -ESTALE : lock_range(region->fd, REGION_LOCK_TABLE, 1, CLAIM_WAIT_MS);
    if (r == 0) {
        r = claim_locked(region);
        (void)unlock_range(region->fd, REGION_LOCK_TABLE, 1);
    }
    unlock_mutex(&region->lock);

    if (r == -ESTALE)
        return error_set(err, r, "%s: it was removed or replaced while in use", region->path);
    if (r == -EUSERS)
        return error_set(err, r,
                         "%s: all its %d slots are taken, by processes or by children of dead ones",
                         region->path, REGION_SLOTS);
    if (r < 0)
        return error_set(err, r, "%s: taking a slot: %s", region->path, strerror(-r));
    return 0;
}

void region_after_fork(struct region *region)
{
    /* The parent's threads are gone, one of them perhaps inside the lock. */
    (void)pthread_mutex_init(&region->lock, NULL);
    /* Our copy of the parent's descriptor would keep its locks after its death. */
    if (descriptor_is_ours(region))
        (void)close(region->fd);
    region->fd = -1;
    region->pin = NULL;
    region->slot = -1;
    region->self = (struct proc_identity){0};
}
