/* SPDX-License-Identifier: Apache-2.0 */

/* The only words that a program of the tenant's sees from us. */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/glibc.h"
#include "vgpu/vgpu.h"

static _Atomic unsigned said; /* bit set of enum vgpu_word */

/* LIBCUDA_LOG_LEVEL, HAMi-core's: below 2 errors only, from 4 on each time. */
enum {
    LEVEL_ERRORS = 1,
    LEVEL_USUAL = 2,
    LEVEL_ALL = 4,
};

/* What is refused for good. The rest are notes. */
#define ERRORS                                                                                     \
    (1u << VGPU_WORD_DENIED | 1u << VGPU_WORD_LIMITS | 1u << VGPU_WORD_REGION |                    \
     1u << VGPU_WORD_DRIVER | 1u << VGPU_WORD_THREAD)

static int level(void)
{
    const char *text = getenv("LIBCUDA_LOG_LEVEL");

    return text && text[0] >= '0' && text[0] <= '9' ? text[0] - '0' : LEVEL_USUAL;
}

/* Standard error as it was when the library was loaded, or first had something to say. */
static struct stat before;
static _Atomic bool noted;

static void __attribute__((constructor)) note_standard_error(void)
{
    int saved = errno;

    if (!atomic_exchange(&noted, true) && file_stat_fd(STDERR_FILENO, &before) < 0)
        before.st_ino = 0;
    errno = saved;
}

/* Whether descriptor 2 is still that, or a log: a program that closed it may have a file of its own
 * there, or a connection, in which a word of ours would be amid its data. */
static bool is_for_words(bool *ret_pipe)
{
    struct stat now;

    note_standard_error();
    if (file_stat_fd(STDERR_FILENO, &now) < 0)
        return false;
    *ret_pipe = S_ISFIFO(now.st_mode);
    if (before.st_ino && now.st_dev == before.st_dev && now.st_ino == before.st_ino)
        return true;
    return S_ISCHR(now.st_mode) ||
           (S_ISREG(now.st_mode) && (fcntl(STDERR_FILENO, F_GETFL) & O_APPEND));
}

/* A pipe may have become full since it was asked, and then this would wait, perhaps for ever and
 * with a lock held. */
static ssize_t write_at_once(const char *line, size_t len, bool is_pipe)
{
    const struct iovec part = {(void *)(uintptr_t)line, len};
    ssize_t written = -1;

    if (is_pipe)
        written = syscall(SYS_pwritev2, STDERR_FILENO, &part, 1, -1L, -1L, RWF_NOWAIT);
    if (is_pipe && (written >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS)))
        return written;
    return write(STDERR_FILENO, line, len);
}

/* Nobody may read a pipe, and a file may be as large as the program may make one: it neither waits
 * for that, nor is it ended by a signal. */
static void write_line(const char *line, size_t len)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    const struct timespec now = {0};
    sigset_t ending, pending, mask;
    bool is_pipe;

    if (!is_for_words(&is_pipe) || poll(&out, 1, 0) != 1 || !(out.revents & POLLOUT))
        return;
    (void)sigemptyset(&ending);
    (void)sigaddset(&ending, SIGPIPE);
    (void)sigaddset(&ending, SIGXFSZ);
    (void)sigpending(&pending);
    (void)pthread_sigmask(SIG_BLOCK, &ending, &mask);
    if (write_at_once(line, len, is_pipe) < 0) {
        const int sent = errno == EPIPE ? SIGPIPE : errno == EFBIG ? SIGXFSZ : 0;

        (void)sigemptyset(&ending);
        if (sent && !sigismember(&pending, sent) && sigaddset(&ending, sent) == 0)
            (void)sigtimedwait(&ending, NULL, &now);
    }
    (void)pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

void vgpu_say(enum vgpu_word word, const char *fmt, ...)
{
    char line[640] = "hami: ";
    int saved = errno;
    va_list args;
    int len;

    if ((!(ERRORS & 1u << word) && level() <= LEVEL_ERRORS) ||
        ((atomic_fetch_or(&said, 1u << word) & (1u << word)) && level() < LEVEL_ALL))
        return;

    va_start(args, fmt);
    len = vsnprintf(line + 6, sizeof(line) - 8, fmt, args);
    va_end(args);
    len = MIN(MAX(len, 0), (int)sizeof(line) - 9) + 6;
    line[len] = '\n';
    write_line(line, (size_t)len + 1);
    errno = saved;
}
