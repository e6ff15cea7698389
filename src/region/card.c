/* SPDX-License-Identifier: Apache-2.0 */
#include "region/card.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/file.h"
#include "base/glibc.h"
#include "base/lock.h"
#include "base/util.h"
#include "region/card_rank.h"

static int open_out_of_the_way(int folder, const char *name, int flags)
{
    int fd = openat(folder, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    return fd < 0 ? -errno : file_move_away(fd);
}

/*
 * Until it is mapped, root of another container, which reads it, can take a write lease of it
 * (fcntl(2)), and anew each time that it was given up for us. Who waits in open() keeps it from
 * that; the kernel ends the lease after 45 s at the latest.
 */
static int open_own(const char *path)
{
    int fd = open_out_of_the_way(AT_FDCWD, path, O_RDWR);

    if (fd != -EWOULDBLOCK)
        return fd;
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : file_move_away(fd);
}

static int map_own(struct card *card, const char *path)
{
    int fd = open_own(path), r = 0;
    struct stat st;
    void *bytes;

    if (fd < 0)
        return fd;
    if (file_stat_fd(fd, &st) < 0)
        r = -errno;
    else if (!S_ISREG(st.st_mode) || st.st_size < CARD_CELL_SIZE)
        r = -EPROTO;
    bytes = r == 0 ? mmap(NULL, CARD_CELL_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : NULL;
    if (bytes == MAP_FAILED)
        r = -errno;
    (void)close(fd);
    if (r < 0)
        return r;
    card->own = bytes;
    card->own_device = st.st_dev;
    card->own_inode = st.st_ino;
    atomic_store(&card->own->wanted_until_ns, 0);
    atomic_store(&card->own->magic, CARD_CELL_MAGIC);
    return 0;
}

int card_open(struct card *card, const char *own, const char *folder)
{
    return card_open_ranked(card, own, folder, folder != NULL, CARD_PRIORITY);
}

int card_open_ranked(struct card *card, const char *own, const char *folder, bool lends,
                     int priority)
{
    int r;

    if (folder && strlen(folder) >= sizeof(card->folder))
        return -ENAMETOOLONG;
    r = map_own(card, own);
    if (r < 0)
        return r;
    (void)pthread_mutex_init(&card->lock, NULL);
    card->lends = lends;
    card->priority = priority;
    if (folder) {
        memcpy(card->folder, folder, strlen(folder) + 1);
        card_look_around(card);
    }
    return 0;
}

static void close_cells(struct card *card)
{
    for (unsigned i = 0; i < card->count; i++)
        (void)close(card->others[i].fd);
    card->count = 0;
}

void card_close(struct card *card)
{
    if (!card->own)
        return;
    close_cells(card);
    (void)munmap(card->own, CARD_CELL_SIZE);
    *card = (struct card){.own = NULL};
}

/* What was being changed when the process forked is looked for anew. */
void card_after_fork(struct card *card)
{
    (void)pthread_mutex_init(&card->lock, NULL);
    card->complete = false;
}

/* False: it can't be looked into. */
static bool take_cell(struct card *card, int folder, uint64_t inode, const char *name,
                      bool *found_own)
{
    int fd;

    *found_own |= inode == card->own_inode;
    if (name[0] == '.' || inode == card->own_inode)
        return true;
    if (card->count == CARD_CELLS)
        return false;
    fd = open_out_of_the_way(folder, name, O_RDONLY);
    if (fd < 0)
        return fd == -ENOENT;
    card->others[card->count] = (struct card_other){.fd = fd, .inode = inode};
    card_rank_of(name, &card->others[card->count++]);
    return true;
}

/* As the kernel writes it; opendir() would allocate. */
struct entry {
    uint64_t inode;
    int64_t offset;
    uint16_t size;
    uint8_t type;
    char name[];
};

/* A folder without the own cell is another that somebody put in its place. */
static bool take_all(struct card *card)
{
    int folder = open(card->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _Alignas(struct entry) char entries[4096];
    bool ours, all, found_own = false;
    struct stat st;
    long len = 0;

    ours = all = folder >= 0 && file_stat_fd(folder, &st) == 0 && st.st_dev == card->own_device;

    while (ours && (len = syscall(SYS_getdents64, folder, entries, sizeof(entries))) > 0) {
        for (long at = 0; at < len;) {
            const struct entry *entry = (const struct entry *)(entries + at);

            /* One that its owner closed to us does not hide those after it. */
            all &= take_cell(card, folder, entry->inode, entry->name, &found_own);
            at += entry->size;
        }
    }
    if (folder >= 0)
        (void)close(folder);
    return all && len == 0 && found_own;
}

void card_look_around(struct card *card)
{
    struct card_other before[CARD_CELLS];
    unsigned count;

    if (!card->own || !card->folder[0])
        return;
    lock_mutex(&card->lock);
    count = card->count;
    memcpy(before, card->others, count * sizeof(before[0]));
    close_cells(card);
    card->complete = take_all(card);
    card_rank_keep(card, before, count);
    unlock_mutex(&card->lock);
}

static bool cell_is_wanted(int fd, int64_t now_ns)
{
    struct card_text cell;
    ssize_t n = pread(fd, &cell, sizeof(cell), 0);

    if (n == 0 || (n == sizeof(cell) && !cell.magic))
        return false;
    if (n != sizeof(cell) || cell.magic != CARD_CELL_MAGIC)
        return true;
    return cell.wanted_until_ns > now_ns && cell.wanted_until_ns < now_ns + CARD_WANT_MOST_NS;
}

static bool look(const struct card *card, int64_t now_ns)
{
    if (!card->complete)
        return true;
    for (unsigned i = 0; i < card->count; i++) {
        if (cell_is_wanted(card->others[i].fd, now_ns))
            return true;
    }
    return false;
}

bool card_is_wanted(struct card *card, int64_t now_ns)
{
    if (!card->own || !card->lends)
        return true;
    if (now_ns - atomic_load_explicit(&card->looked_ns, memory_order_relaxed) < CARD_LOOK_NS ||
        !lock_try_mutex(&card->lock))
        return atomic_load_explicit(&card->wanted, memory_order_relaxed);
    atomic_store_explicit(&card->wanted, look(card, now_ns), memory_order_relaxed);
    atomic_store_explicit(&card->looked_ns, now_ns, memory_order_relaxed);
    unlock_mutex(&card->lock);
    return atomic_load_explicit(&card->wanted, memory_order_relaxed);
}

int card_make_cell(const char *path)
{
    int fd, r;

    /* Who still uses the old one keeps it: to cut that would end its processes. */
    if (unlink(path) < 0 && errno != ENOENT)
        return -errno;
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    /* Its whole size at once: a store to a page that the disk has no room for is SIGBUS. */
    r = fchmod(fd, 0666) < 0 ? -errno : -posix_fallocate(fd, 0, CARD_CELL_SIZE);
    (void)close(fd);
    if (r < 0)
        (void)unlink(path);
    return r;
}
