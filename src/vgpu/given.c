/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/given.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/kept.h"
#include "base/lock.h"
#include "base/util.h"
#include "region/region.h"
#include "vgpu/vgpu.h"

enum {
    RECORDS = 512, /* there is room for so many at first */
    SENTINEL = REGION_DEVICES + 1,
    NUMBERS_TRIED = 1024, /* of a file that has several ids */
    TRIES = 3,
};

/* An id with open descriptors, or with memory that they keep. */
struct record {
    uint32_t id, device;
    uint32_t begun;
    bool open;
    uint64_t units;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct record *records; /* by id; anonymous memory of our own */
static unsigned count, room;
static struct kept set = {.fd = -1}, sentinel = {.fd = -1};
static uint32_t tag; /* of our entries: by it a set is known for ours */
static _Atomic uint32_t last_id = GIVEN_FIRST_IDS;
static bool lost; /* what is open can't be told any more, and counts as open */
static _Atomic uint64_t kept_units[REGION_DEVICES];

void given_after_fork(void)
{
    (void)pthread_mutex_init(&lock, NULL);
    kept_close(&set);
    kept_close(&sentinel);
    count = 0;
    lost = false;
    memset((void *)kept_units, 0, sizeof(kept_units));
}

uint32_t given_new(void)
{
    return atomic_fetch_add(&last_id, 1) + 1;
}

/* What a program, or its user, may lack for a moment. */
static bool is_shortage(int r)
{
    return r == -EMFILE || r == -ENFILE || r == -ENOMEM || r == -ENOSPC;
}

/* A handler of a signal may leave its own errno in place of the call's: what is said once is not
 * believed where nothing could be told any more. */
static bool is_doubtful(int r)
{
    return r < 0 && !is_shortage(r);
}

/* The set */

static int add(int fd, uint32_t id)
{
    struct epoll_event event = {.data.u64 = (uint64_t)tag << 32 | id};

    return epoll_ctl(set.fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* A set has a file once for each number: one that it has is added under another number, too. The
 * entry stays when that is closed, as long as the file is open. */
static int add_again(int fd, uint32_t id)
{
    static int last; /* the number that was tried last: the next ones are likely to be free */
    int r = -EEXIST;

    for (unsigned i = 0; r == -EEXIST && i < NUMBERS_TRIED; i++) {
        AUTOCLOSE int copy = fcntl(fd, F_DUPFD_CLOEXEC, MAX(last + 1, 3));

        if (copy < 0 && !last)
            return -errno;
        last = MAX(copy, 0);
        r = copy < 0 ? r : add(copy, id);
    }
    return r;
}

static uint32_t new_tag(void)
{
    const void *random = (const void *)getauxval(AT_RANDOM); /* sixteen bytes of it, getauxval(3) */
    uint32_t word = 0;

    if (random)
        memcpy(&word, random, sizeof(word));
    return word;
}

static int make_set(void)
{
    int r;

    if (set.fd >= 0)
        return 0;
    tag = new_tag();
    r = kept_take(&set, epoll_create1(EPOLL_CLOEXEC));
    if (r < 0)
        return r;
    r = kept_take(&sentinel, eventfd(0, EFD_CLOEXEC));
    if (r == 0)
        r = add(sentinel.fd, SENTINEL);
    if (r == 0)
        return 0;
    kept_close(&sentinel);
    kept_close(&set);
    return r;
}

uint32_t given_line(const char *line, uint32_t of_tag)
{
    static const char key[] = " data:";
    const char *data = strncmp(line, "tfd:", 4) == 0 ? strstr(line, key) : NULL;
    uint64_t word = data ? strtoull(data + sizeof(key) - 1, NULL, 16) : 0;

    return word >> 32 == of_tag ? (uint32_t)word : 0;
}

/* Where it is, or belongs. */
static unsigned place_of(uint32_t id)
{
    unsigned from = 0, to = count;

    while (from < to) {
        unsigned middle = from + (to - from) / 2;

        if (records[middle].id < id)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static struct record *find(uint32_t id)
{
    unsigned place = place_of(id);

    return place < count && records[place].id == id ? &records[place] : NULL;
}

static void note_open(uint32_t id, bool *sentinel_seen)
{
    struct record *record = id ? find(id) : NULL;

    *sentinel_seen |= id == SENTINEL;
    if (record)
        record->open = true;
}

/* Whole lines of what was read; returns where the rest begins. */
static char *note_lines(char *text, bool *sentinel_seen)
{
    for (char *end; (end = strchr(text, '\n')); text = end + 1) {
        *end = 0;
        note_open(given_line(text, tag), sentinel_seen);
    }
    return text;
}

static int read_lines(int fd)
{
    bool sentinel_seen = false;
    char text[1024];
    size_t rest = 0;
    ssize_t n;

    while ((n = read(fd, text + rest, sizeof(text) - 1 - rest)) > 0) {
        char *from;

        text[rest + (size_t)n] = 0;
        from = note_lines(text, &sentinel_seen);
        rest = strlen(from);
        memmove(text, from, rest + 1);
    }
    if (n < 0)
        return -errno;
    return sentinel_seen ? 0 : -ESTALE;
}

/* -ESTALE: the set is not ours any more. */
static int read_set(void)
{
    AUTOCLOSE int fd = -1;
    char path[64];

    if (!kept_is_open(&set))
        return -ESTALE;
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", set.fd);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : read_lines(fd);
}

/* Records */

static bool grow(void)
{
    const unsigned more = room ? 2 * room : RECORDS;
    struct record *grown = mmap(NULL, more * sizeof(*grown), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (grown == MAP_FAILED)
        return false;
    if (count)
        memcpy(grown, records, count * sizeof(*grown));
    if (room)
        (void)munmap(records, room * sizeof(*records));
    records = grown;
    room = more;
    return true;
}

/* What is open now. What can't be looked at counts as open until the next look. */
static bool look_all(void)
{
    int r;

    if (!count || lost)
        return false;
    for (unsigned i = 0; i < count; i++)
        records[i].open = false;
    r = set.fd >= 0 ? read_set() : 0;
    for (unsigned i = 1; i < TRIES && is_doubtful(r); i++)
        r = read_set();
    lost = is_doubtful(r);
    return r == 0;
}

/* Descriptors that were closed since the last look keep nothing: their records go. */
static void forget_closed(void)
{
    unsigned kept = 0;

    if (!look_all())
        return;
    for (unsigned i = 0; i < count; i++) {
        if (records[i].open || records[i].begun || records[i].units)
            records[kept++] = records[i];
    }
    count = kept;
}

/* Half of the room is free after a look, or there will be twice as much. */
static bool reserve(void)
{
    if (count < room)
        return true;
    forget_closed();
    return count < (room + 1) / 2 || grow();
}

/* NULL: there is no memory for it. */
static struct record *record_of(uint32_t id, unsigned device)
{
    struct record *record = find(id);
    unsigned place;

    if (record)
        return record;
    if (!reserve())
        return NULL;
    place = place_of(id);
    record = &records[place];
    memmove(record + 1, record, (count++ - place) * sizeof(*record));
    *record = (struct record){.id = id, .device = device};
    return record;
}

/* Who is to take a file out of a set must name it by the number that it was added by: so that is
 * none by which the program has it, where there is room for one more. Of what is imported any entry
 * will do: there is one if it was imported before, or if we made it. */
static int add_hidden(int fd, uint32_t id)
{
    AUTOCLOSE int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    int r = add(copy < 0 ? fd : copy, id);

    if (r != -EEXIST)
        return r;
    return id == given_imported() ? 0 : add_again(fd, id);
}

static int add_surely(int fd, uint32_t id)
{
    int r = add_hidden(fd, id);

    for (unsigned i = 1; i < TRIES && is_doubtful(r); i++)
        r = add_hidden(fd, id);
    return r;
}

static bool watch_locked(int fd, uint32_t id, unsigned device)
{
    int r;

    if (lost)
        return true;
    r = make_set();
    if (r == 0 && !find(id) && !reserve())
        r = -ENOMEM;
    if (r == 0)
        r = add_surely(fd, id);
    if (is_shortage(r))
        return false;
    lost = r < 0 || !record_of(id, device);
    return true;
}

bool given_watch(int fd, uint32_t id, unsigned device)
{
    bool watched;

    lock_mutex(&lock);
    watched = watch_locked(fd, id, device);
    unlock_mutex(&lock);
    return watched;
}

static void count_begun(uint32_t id, unsigned device, int more)
{
    struct record *record;

    lock_mutex(&lock);
    record = record_of(id, device);
    if (record)
        record->begun += (uint32_t)more;
    else
        lost = true;
    unlock_mutex(&lock);
}

void given_begin(uint32_t id, unsigned device)
{
    count_begun(id, device, 1);
}

void given_end(uint32_t id, unsigned device)
{
    count_begun(id, device, -1);
}

bool given_keep(uint32_t id, unsigned device, uint64_t units)
{
    struct record *record;
    bool keeps;

    lock_mutex(&lock);
    record = find(id);
    keeps = record || lost;
    if (record)
        record->units += units;
    if (keeps)
        atomic_fetch_add(&kept_units[device], units);
    unlock_mutex(&lock);
    return keeps;
}

uint64_t given_units(unsigned device)
{
    return atomic_load(&kept_units[device]);
}

/* Records of the device that nothing keeps go. */
static uint64_t drop_closed(unsigned device)
{
    uint64_t units = 0;
    unsigned kept = 0;

    for (unsigned i = 0; i < count; i++) {
        if (records[i].device != device || records[i].open || records[i].begun)
            records[kept++] = records[i];
        else
            units += records[i].units;
    }
    count = kept;
    return units;
}

static uint64_t look_locked(unsigned device)
{
    uint64_t units;

    if (!look_all())
        return 0;
    units = drop_closed(device);
    atomic_fetch_sub(&kept_units[device], units);
    return units;
}

uint64_t given_look(unsigned device)
{
    uint64_t units;

    lock_mutex(&lock);
    units = look_locked(device);
    unlock_mutex(&lock);
    return units;
}

bool given_is_open(uint32_t id)
{
    const struct record *record;
    bool open;

    lock_mutex(&lock);
    record = find(id);
    open = lost || (record && (!look_all() || record->open));
    unlock_mutex(&lock);
    return open;
}
