/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/source.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/glibc.h"
#include "vgpu/vgpu.h"

struct source source;

extern char **environ;

#define NAME "limits"

#define READ_TRIES 3 /* while it is replaced */

/*
 * What is large here is static: the thread that calls may be the program's, with a small stack. All
 * is done once, or with the lock over opening and refreshing (attach.c).
 */

/* The folder of a path, in its place. */
static void cut_name(char *path)
{
    char *slash = strrchr(path, '/');

    if (!slash)
        memcpy(path, ".", sizeof("."));
    else if (slash > path)
        *slash = '\0';
    else
        slash[1] = '\0';
}

/*
 * A program may have the kernel answer its calls with errors of its choice, or as if they had done
 * what they have not (seccomp(2)); what a call that is let through writes it can't choose. So that
 * there is no file is believed of a folder only that can be listed, and is the right one; and of a
 * file what was read of the one in that folder, as long as that is.
 */

static bool is_our_folder(int fd)
{
    struct stat st;

    return file_stat_fd(fd, &st) == 0 && st.st_dev == source.folder.dev &&
           st.st_ino == source.folder.ino;
}

/* The kernel's, which the C library gives no name. */
struct entry {
    uint64_t ino;
    int64_t at;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

/* -ENOENT: no file is in the folder that is open there, or -errno of the open that failed; -EIO
 * where there is one, or that can't be told. */
static int list_for_file(int fd)
{
    static char entries[4096] __attribute__((aligned(8)));
    bool any = false;
    long len;

    if (fd < 0)
        return errno == ENOENT ? -EIO : -errno;
    if (!is_our_folder(fd))
        return -EIO;
    while ((len = syscall(SYS_getdents64, fd, entries, sizeof(entries))) > 0) {
        const struct entry *entry;

        any = true;
        for (long at = 0; at < len; at += entry->bytes) {
            entry = (const struct entry *)(entries + at);
            if (strcmp(entry->name, NAME) == 0)
                return -EIO;
        }
    }
    return len == 0 && any ? -ENOENT : -EIO;
}

/* What an answer of the kernel's to a question for the file is worth. */
static int confirm_absence(int r, int folder, const char *path)
{
    AUTOCLOSE int fd = -1;

    if (r != -ENOENT)
        return r;
    fd = openat(folder, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return list_for_file(fd);
}

/*
 * Where the file lies in its folder. A container's is mounted there by itself, and stays the same
 * file; who has a mount namespace of his own may mount another one over either kind. Kernels before
 * 5.8 don't tell, nor does one that is told not to.
 */
static enum source_place place_of(int fd, const char *path, int flags)
{
    struct statx told = {0};

    if (syscall(SYS_statx, fd, path, flags, STATX_INO, &told) != 0 ||
        !(told.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT))
        return SOURCE_PLACE_UNKNOWN;
    return told.stx_attributes & STATX_ATTR_MOUNT_ROOT ? SOURCE_PLACE_MOUNT : SOURCE_PLACE_FOLDER;
}

/* Of the file that is open. -EXDEV: another one was mounted over it. */
static int check_place(int fd, const struct stat *opened)
{
    const bool is_same =
        opened->st_dev == source.mounted.st_dev && opened->st_ino == source.mounted.st_ino;

    if (source.place == SOURCE_PLACE_UNKNOWN)
        return 0;
    if (place_of(fd, "", AT_EMPTY_PATH) != source.place)
        return -EXDEV;
    return source.place == SOURCE_PLACE_FOLDER || is_same ? 0 : -EXDEV;
}

/* Whether there is a limits file in the folder, which is the source's from now on. */
static bool note_folder(const char *name)
{
    static char folder[PATH_MAX];
    struct stat st;
    int len;

    source.path[0] = '\0';
    if (!realpath(name, folder) || file_stat(folder, &st) < 0)
        return false;
    len = snprintf(source.path, sizeof(source.path), "%s/" NAME, folder);
    if (len < 0 || len >= (int)sizeof(source.path)) {
        source.path[0] = '\0';
        return false;
    }
    source.folder = (struct kept){.fd = -1, .dev = st.st_dev, .ino = st.st_ino};
    source.was_there =
        confirm_absence(file_stat(source.path, &source.mounted), AT_FDCWD, folder) != -ENOENT;
    if (source.was_there)
        source.place = place_of(AT_FDCWD, source.path, 0);
    return source.was_there;
}

/*
 * It lies beside the library; where none does, beside the name by which this was loaded: `hamictl
 * run` has links to it. In this order: who links to a library that has limits does not lose them.
 */
static void find_limits_file(void)
{
    static char library[PATH_MAX];
    Dl_info info;

    if (dladdr((void *)find_limits_file, &info) == 0 || !info.dli_fname ||
        !realpath(info.dli_fname, library))
        return;
    cut_name(library);
    if (note_folder(library) || strlen(info.dli_fname) >= sizeof(library))
        return;
    memcpy(library, info.dli_fname, strlen(info.dli_fname) + 1);
    cut_name(library);
    (void)note_folder(library);
}

/* The only thing that is done before the first CUDA or NVML call: the program may change its
 * working directory, which a library loaded by a relative path would be looked for in. A library of
 * the program's may make such a call as it is loaded, before us. */
static void __attribute__((constructor)) note_limits_file(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int saved = errno;

    (void)pthread_once(&once, find_limits_file);
    errno = saved;
}

/*
 * The folder is kept open: where the program closed that, its path must still lead to it. After
 * chroot(), or in a mount namespace of the program's own, another file may have the path. -ESTALE:
 * it leads elsewhere, or nowhere.
 */
static int open_folder(void)
{
    char path[LIMITS_PATH_SIZE];
    int r;

    if (kept_is_open(&source.folder))
        return 0;
    COPY_TEXT(path, source.path);
    cut_name(path);
    r = kept_renew(&source.folder, open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
    return r == -ENOENT ? -ESTALE : r;
}

static int stat_file(struct stat *ret_file)
{
    int r = open_folder();

    if (r < 0)
        return r;
    r = file_stat_at(source.folder.fd, NAME, ret_file);
    return confirm_absence(r, source.folder.fd, ".");
}

/* -EAGAIN: it was replaced meanwhile, or is another one than is said. */
static ssize_t read_once(char *text, size_t size)
{
    AUTOCLOSE int fd = openat(source.folder.fd, NAME, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat opened, there;
    ssize_t len;
    int r;

    if (fd < 0)
        return -errno;
    r = file_stat_fd(fd, &opened);
    if (r == 0)
        r = file_stat_at(source.folder.fd, NAME, &there);
    if (r < 0)
        return r;
    if (opened.st_dev != there.st_dev || opened.st_ino != there.st_ino)
        return -EAGAIN;
    r = check_place(fd, &opened);
    if (r < 0)
        return r;
    len = file_read_fd(fd, text, size);
    return len >= 0 && len != opened.st_size ? -EAGAIN : len;
}

/* -ENOENT: there is none, or none was there and its folder can't be found any more. */
static ssize_t read_file(char *text, size_t size)
{
    int r = open_folder();
    ssize_t len = -EAGAIN;

    if (r < 0)
        return r == -ESTALE && !source.was_there ? -ENOENT : r;
    for (unsigned i = 0; i < READ_TRIES && len == -EAGAIN; i++)
        len = read_once(text, size);
    if (len == -EAGAIN)
        return -EIO;
    return len < 0 ? confirm_absence((int)len, source.folder.fd, ".") : len;
}

static int cannot_read(int r, struct error *err)
{
    if (r == -EIO)
        return error_set(err, r, "%s: it can't be read, or whether there is one can't be told",
                         source.path);
    if (r == -EXDEV)
        return error_set(err, r, "%s: another file was mounted there", source.path);
    return error_set(err, r, "%s: %s", source.path,
                     r == -ESTALE ? "its folder can't be found any more" : strerror(-r));
}

/* Reads the file's limits, or the environment's; a file's are lowered by the environment's. */
static int read_limits(struct limits *limits, bool *ret_from_file, struct error *err)
{
    static struct limits environment;
    static char text[LIMITS_FILE_MAX];
    ssize_t len;
    int r;

    environment = (struct limits)LIMITS_INIT;
    *limits = (struct limits)LIMITS_INIT;
    len = read_file(text, sizeof(text));
    if (len < 0 && len != -ENOENT)
        return cannot_read((int)len, err);
    *ret_from_file = len >= 0;

    r = limits_parse_environment(&environment, environ, err);
    /* The tenant's words can lower the file's limits, not keep them from being in force. */
    if (r < 0 && !*ret_from_file)
        return r;
    if (r < 0)
        vgpu_say(VGPU_WORD_LIMITS, "%s; it is passed over, since %s rules", err->text, source.path);
    if (!*ret_from_file) {
        *limits = environment;
        return 0;
    }

    r = limits_parse(limits, text, err);
    if (r < 0)
        return error_wrap(err, r, "%s", source.path);
    limits_lower(limits, &environment);
    return 0;
}

int source_read(struct error *err)
{
    int r;

    if (source.read)
        return 0;
    note_limits_file();
    if (!source.path[0])
        return error_set(err, -ENAMETOOLONG,
                         "the folder of libvgpu.so can't be known, nor the limits file in it");
    /* First: what is changed after it was read is to be seen. */
    (void)stat_file(&source.seen);
    r = read_limits(&source.limits, &source.is_file, err);
    if (r < 0)
        return r;
    if (!source.is_file && source.was_there)
        return error_set(err, -ENOENT, "%s: it was there when the program began, and is gone",
                         source.path);

    source.read = true;
    return 0;
}

static bool is_seen(const struct stat *now)
{
    return now->st_dev == source.seen.st_dev && now->st_ino == source.seen.st_ino &&
           now->st_size == source.seen.st_size &&
           now->st_mtim.tv_sec == source.seen.st_mtim.tv_sec &&
           now->st_mtim.tv_nsec == source.seen.st_mtim.tv_nsec;
}

/* Who is granted what, and where the region is, stays for the life of a process. */
static void take_over(const struct limits *limits)
{
    for (unsigned i = 0; i < LIMITS_MAX_DEVICES; i++) {
        source.limits.devices[i].memory_bytes = limits->devices[i].memory_bytes;
        source.limits.devices[i].cores = limits->devices[i].cores;
        source.limits.devices[i].common_cores = limits->devices[i].common_cores;
    }
    source.limits.allow_unaccounted = limits->allow_unaccounted;
    source.limits.allow_imports = limits->allow_imports;
    source.limits.managed = limits->managed;
    source.limits.oversubscribed = limits->oversubscribed;
    source.limits.suspended = limits->suspended;
}

static int read_again(struct error *err)
{
    static struct limits limits;
    bool from_file;
    struct stat now;
    int r = stat_file(&now);

    if (r == -ENOENT)
        return 0; /* what it said stays in force */
    if (r < 0)
        return cannot_read(r, err);
    if (is_seen(&now))
        return 0;
    r = read_limits(&limits, &from_file, err);
    if (r < 0)
        return r;
    if (!from_file)
        return 0; /* it went away just now */
    take_over(&limits);
    source.seen = now;
    return 0;
}

void source_refresh(void)
{
    struct error err = ERROR_INIT;
    int64_t now_ns;

    if (!source.read || !source.is_file)
        return;
    if (read_again(&err) == 0) {
        source.failing_since_ns = 0;
        source.is_lost = false;
        return;
    }
    now_ns = clock_coarse_ns();
    if (!source.failing_since_ns)
        source.failing_since_ns = now_ns;
    if (now_ns - source.failing_since_ns < SOURCE_LOST_NS)
        return;
    source.is_lost = true;
    vgpu_say(VGPU_WORD_DENIED,
             "%s; the GPU's memory is refused and nothing is launched until that is mended",
             err.text);
}

const struct limits *vgpu_limits(void)
{
    return &source.limits;
}
