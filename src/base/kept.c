/* SPDX-License-Identifier: Apache-2.0 */
#include "base/kept.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

int kept_take(struct kept *kept, int fd)
{
    struct stat st;
    int r;

    if (fd < 0)
        return -errno;
    r = file_stat_fd(fd, &st);
    if (r < 0) {
        (void)close(fd);
        return r;
    }
    *kept = (struct kept){.fd = file_move_away(fd), .dev = st.st_dev, .ino = st.st_ino};
    return 0;
}

int kept_renew(struct kept *kept, int fd)
{
    struct kept renewed;
    int r = kept_take(&renewed, fd);

    if (r < 0)
        return r;
    if (renewed.dev != kept->dev || renewed.ino != kept->ino) {
        kept_close(&renewed);
        return -ESTALE;
    }
    *kept = renewed;
    return 0;
}

bool kept_is_open(const struct kept *kept)
{
    struct stat st;

    return kept->fd >= 0 && file_stat_fd(kept->fd, &st) == 0 && st.st_dev == kept->dev &&
           st.st_ino == kept->ino;
}

ssize_t kept_read(const struct kept *kept, void *bytes, size_t size)
{
    ssize_t n;

    if (!kept_is_open(kept))
        return -ESTALE;
    n = pread(kept->fd, bytes, size, 0);
    return n < 0 ? -errno : n;
}

void kept_close(struct kept *kept)
{
    if (kept_is_open(kept))
        (void)close(kept->fd);
    kept->fd = -1;
}
