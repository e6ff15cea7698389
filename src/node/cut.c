/* SPDX-License-Identifier: Apache-2.0 */
#include "node/cut.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/util.h"

enum {
    WAITING_MAX = 16, /* leases that are waited for at once; each ends by itself */
};

#define OPEN_FLAGS (O_WRONLY | O_CLOEXEC | O_NOFOLLOW)

/* A file that a thread waits for. */
struct waiting {
    _Atomic bool taken;
    ino_t ino;
    struct cut_bounds bounds;
    char path[PATH_MAX];
};

static struct waiting waitings[WAITING_MAX]; /* taken by one thread, and given back by others */

static uint64_t excess_of(const struct stat *st, const struct cut_bounds *bounds)
{
    const off_t taken = (off_t)st->st_blocks * 512;

    if (!S_ISREG(st->st_mode) || (st->st_size <= bounds->size && taken <= bounds->taken))
        return 0;
    return (uint64_t)MAX(st->st_size, taken);
}

static uint64_t cut_open(int fd, const struct cut_bounds *bounds)
{
    struct stat st;
    uint64_t bytes = fstat(fd, &st) < 0 ? 0 : excess_of(&st, bounds);

    return bytes && ftruncate(fd, MIN(st.st_size, bounds->size)) == 0 ? bytes : 0;
}

static void *wait_for(void *data)
{
    struct waiting *waiting = data;
    AUTOCLOSE int fd = open(waiting->path, OPEN_FLAGS);
    uint64_t bytes = fd < 0 ? 0 : cut_open(fd, &waiting->bounds);

    if (bytes)
        log_debug("%s was cut from %llu bytes, after a lease of it", waiting->path,
                  (unsigned long long)bytes);
    atomic_store(&waiting->taken, false);
    return NULL;
}

/* NULL: it is waited for already, or too many are. */
static struct waiting *find_place(ino_t ino)
{
    struct waiting *place = NULL;

    for (size_t i = 0; i < WAITING_MAX; i++) {
        if (!atomic_load(&waitings[i].taken))
            place = &waitings[i];
        else if (waitings[i].ino == ino)
            return NULL;
    }
    return place;
}

static void cut_later(const char *path, ino_t ino, const struct cut_bounds *bounds)
{
    struct waiting *waiting = find_place(ino);
    pthread_t thread;

    if (!waiting || strlen(path) >= sizeof(waiting->path))
        return;
    waiting->ino = ino;
    waiting->bounds = *bounds;
    COPY_TEXT(waiting->path, path);
    atomic_store(&waiting->taken, true);
    if (pthread_create(&thread, NULL, wait_for, waiting) == 0)
        (void)pthread_detach(thread);
    else
        atomic_store(&waiting->taken, false);
}

uint64_t cut_file(const char *path, const struct cut_bounds *bounds)
{
    AUTOCLOSE int fd = -1;
    struct stat st;

    if (lstat(path, &st) < 0 || !excess_of(&st, bounds))
        return 0;
    fd = open(path, OPEN_FLAGS | O_NONBLOCK);
    if (fd < 0 && errno == EWOULDBLOCK)
        cut_later(path, st.st_ino, bounds);
    return fd < 0 ? 0 : cut_open(fd, bounds);
}
