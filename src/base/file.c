/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

enum {
    FD_OUT_OF_THE_WAY = 512,
};

ssize_t file_read(const char *path, char *buf, size_t size)
{
    return file_read_at(AT_FDCWD, path, buf, size);
}

ssize_t file_read_at(int folder, const char *path, char *buf, size_t size)
{
    AUTOCLOSE int fd = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    return fd < 0 ? -errno : file_read_fd(fd, buf, size);
}

ssize_t file_read_fd(int fd, char *buf, size_t size)
{
    size_t len = 0;

    for (;;) {
        ssize_t n = read(fd, buf + len, size - len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        len += (size_t)n;
        if (len == size)
            return -EFBIG;
    }

    buf[len] = '\0';
    return (ssize_t)len;
}

int file_write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        bytes += n;
        len -= (size_t)n;
    }
    return 0;
}

_Static_assert(FILE_PATH_SIZE == PATH_MAX, "a path fits");

int file_path(char ret_path[FILE_PATH_SIZE], struct error *err, const char *fmt, ...)
{
    va_list args;
    int len;

    va_start(args, fmt);
    len = vsnprintf(ret_path, FILE_PATH_SIZE, fmt, args);
    va_end(args);
    if (len < 0 || len >= FILE_PATH_SIZE)
        return error_set(err, -ENAMETOOLONG, "the path \"%.60s...\" is too long", ret_path);
    return 0;
}

int file_replace(const char *path, const char *text, size_t len, mode_t mode)
{
    char beside[PATH_MAX];
    AUTOCLOSE int fd = -1;
    int r;

    r = snprintf(beside, sizeof(beside), "%s.%d.new", path, (int)getpid());
    if (r < 0 || (size_t)r >= sizeof(beside))
        return -ENAMETOOLONG;

    fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;

    r = file_write_all(fd, text, len);
    if (r == 0 && fchmod(fd, mode) < 0)
        r = -errno;
    if (r == 0 && rename(beside, path) < 0)
        r = -errno;
    if (r < 0)
        (void)unlink(beside);
    return r;
}

/* On the 64-bit machines that we build for, the kernel's struct stat is the C library's. */
int file_stat(const char *path, struct stat *ret_stat)
{
    return file_stat_at(AT_FDCWD, path, ret_stat);
}

static int stat_at(int folder, const char *path, struct stat *ret_stat, int flags)
{
    struct stat st = {0};

    if (syscall(SYS_newfstatat, folder, path, &st, flags) < 0)
        return -errno;
    if (!st.st_mode)
        return -EIO;
    *ret_stat = st;
    return 0;
}

int file_stat_at(int folder, const char *path, struct stat *ret_stat)
{
    return stat_at(folder, path, ret_stat, 0);
}

int file_stat_link_at(int folder, const char *path, struct stat *ret_stat)
{
    return stat_at(folder, path, ret_stat, AT_SYMLINK_NOFOLLOW);
}

int file_stat_fd(int fd, struct stat *ret_stat)
{
    struct stat st = {0};

    if (syscall(SYS_fstat, fd, &st) < 0)
        return -errno;
    if (!st.st_mode)
        return -EIO;
    *ret_stat = st;
    return 0;
}

int file_move_away(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, FD_OUT_OF_THE_WAY);

    if (high < 0)
        return fd;
    (void)close(fd);
    return high;
}

void file_hold_standard(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDONLY); /* not O_CLOEXEC: see the header */
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        (void)close(fd);
}
