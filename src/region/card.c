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

#include "base/cleanup.h"
#include "base/file.h"
#include "base/glibc.h"
#include "base/lock.h"
#include "base/util.h"
#include "region/card_rank.h"

enum {
    CELL_FLAGS = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
};

/*
 * Until it is mapped, root of another container, which reads it, can take a write lease of it
 * (fcntl(2)), and anew each time that it was given up for us. Who waits in open() keeps it from
 * that; the kernel ends the lease after 45 s at the latest.
 */
static int open_own(const char *path)
{
    int fd = open(path, CELL_FLAGS | O_RDWR);

    if (fd < 0 && errno == EWOULDBLOCK)
        fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    return fd < 0 ? -errno : fd;
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

/* Closes those of a list that another list does not have. */
static void close_but(struct card_other *others, unsigned count, const struct card_other *kept,
                      unsigned kept_count)
{
    for (unsigned i = 0; i < count; i++) {
        bool has = false;

        for (unsigned k = 0; k < kept_count; k++)
            has |= kept[k].cell.fd == others[i].cell.fd;
        if (!has)
            kept_close(&others[i].cell);
    }
}

void card_close(struct card *card)
{
    if (!card->own)
        return;
    close_but(card->others, card->count, NULL, 0);
    (void)munmap(card->own, CARD_CELL_SIZE);
    *card = (struct card){.own = NULL};
}

/* What was being changed when the process forked is looked for anew. */
void card_after_fork(struct card *card)
{
    (void)pthread_mutex_init(&card->lock, NULL);
    card->complete = false;
}

/* What a look around finds. The cells themselves are in the card: they are too large for the stack
 * of any thread of a program's. */
struct found {
    struct card_other *others;
    unsigned count;
    bool own, all;
};

static struct card_other known_as(const struct card *card, ino_t inode)
{
    for (unsigned i = 0; i < card->count; i++) {
        if (card->others[i].cell.ino == inode)
            return card->others[i];
    }
    return (struct card_other){.cell = {.fd = -1, .dev = card->own_device, .ino = inode}};
}

/* One that is open stays open: it may be the last time that it could be opened. */
static void take_cell(const struct card *card, int folder, ino_t inode, const char *name,
                      struct found *found)
{
    struct card_other other;
    int r = 0;

    found->own |= inode == card->own_inode;
    if (name[0] == '.' || inode == card->own_inode)
        return;
    found->all &= found->count < CARD_CELLS;
    if (found->count == CARD_CELLS)
        return;
    other = known_as(card, inode);
    if (!kept_is_open(&other.cell))
        r = kept_take(&other.cell, openat(folder, name, CELL_FLAGS | O_RDONLY));
    if (r == -ENOENT)
        return;
    card_rank_of(name, &other);
    found->others[found->count++] = other;
}

/* As the kernel writes it; opendir() would allocate. */
struct entry {
    uint64_t inode;
    int64_t offset;
    uint16_t size;
    uint8_t type;
    char name[];
};

enum {
    ENTRIES_SIZE = 1024, /* several: a name has 255 bytes at most */
};

/* To the folder's end. -ESTALE: without the own cell it is another that somebody put in its place.
 */
static int find_all(const struct card *card, struct found *found)
{
    AUTOCLOSE int folder = open(card->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _Alignas(struct entry) char entries[ENTRIES_SIZE];
    struct stat st;
    long len;

    if (folder < 0)
        return -errno;
    if (file_stat_fd(folder, &st) < 0 || st.st_dev != card->own_device)
        return -ESTALE;
    while ((len = syscall(SYS_getdents64, folder, entries, sizeof(entries))) > 0) {
        for (long at = 0; at < len;) {
            const struct entry *entry = (const struct entry *)(entries + at);

            take_cell(card, folder, entry->inode, entry->name, found);
            at += entry->size;
        }
    }
    if (len < 0)
        return -errno;
    return found->own ? 0 : -ESTALE;
}

/* With the lock held, or as the card is opened. */
static int look_around(struct card *card)
{
    struct found found = {.others = card->found, .all = true};
    int r = find_all(card, &found);

    if (r < 0) {
        close_but(found.others, found.count, card->others, card->count);
        card->complete = false;
        return r;
    }
    close_but(card->others, card->count, found.others, found.count);
    memcpy(card->others, found.others, found.count * sizeof(found.others[0]));
    card->count = found.count;
    card->complete = found.all;
    card_rank_note(card);
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
    if (!folder)
        return 0;
    memcpy(card->folder, folder, strlen(folder) + 1);
    r = look_around(card);
    if (r < 0)
        card_close(card);
    return r;
}

void card_look_around(struct card *card)
{
    if (!card->own || !card->folder[0])
        return;
    lock_mutex(&card->lock);
    (void)look_around(card);
    unlock_mutex(&card->lock);
}

/* Until when its owner wants the card, or wanted it; INT64_MAX: nobody knows. */
static int64_t wanted_until(const struct kept *kept, int64_t now_ns)
{
    struct card_text cell;
    ssize_t n = kept_read(kept, &cell, sizeof(cell));

    if (n == sizeof(cell) && !cell.magic)
        return INT64_MIN;
    if (n != sizeof(cell) || cell.magic != CARD_CELL_MAGIC)
        return INT64_MAX;
    if (!cell.wanted_until_ns || cell.wanted_until_ns >= now_ns + CARD_WANT_MOST_NS)
        return INT64_MIN;
    return cell.wanted_until_ns;
}

static int64_t look(const struct card *card, int64_t now_ns)
{
    int64_t last_ns = card->complete ? INT64_MIN : INT64_MAX;

    for (unsigned i = 0; i < card->count && last_ns <= now_ns; i++)
        last_ns = MAX(last_ns, wanted_until(&card->others[i].cell, now_ns));
    return last_ns;
}

bool card_is_wanted(struct card *card, int64_t now_ns)
{
    const int64_t age_ns = now_ns - atomic_load_explicit(&card->looked_ns, memory_order_relaxed);

    if (!card->own || !card->lends)
        return true;
    if (age_ns >= CARD_LOOK_NS && lock_try_mutex(&card->lock)) {
        atomic_store_explicit(&card->wanted_until_ns, look(card, now_ns), memory_order_relaxed);
        atomic_store_explicit(&card->looked_ns, now_ns, memory_order_relaxed);
        unlock_mutex(&card->lock);
    } else if (age_ns >= CARD_STALE_NS) {
        return true;
    }
    return atomic_load_explicit(&card->wanted_until_ns, memory_order_relaxed) > now_ns;
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
