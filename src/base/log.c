/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const char *const names[] = {
    [LOG_LEVEL_ERROR] = "error",
    [LOG_LEVEL_WARN] = "warn",
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_DEBUG] = "debug",
};

static _Atomic int highest = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&highest, (int)level, memory_order_relaxed);
}

void log_set_verbosity(unsigned verbosity)
{
    log_set_level(verbosity < LOG_DEBUG_VERBOSITY ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG);
}

bool log_enabled(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&highest, memory_order_relaxed);
}

/* The line's head; its length. */
static size_t put_head(char line[LOG_LINE_MAX], enum log_level level)
{
    struct timespec now;
    struct tm utc;
    size_t len;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &utc);
    len = strftime(line, LOG_LINE_MAX, "%Y-%m-%dT%H:%M:%S", &utc);
    len += (size_t)snprintf(line + len, LOG_LINE_MAX - len, ".%03ldZ %s ", now.tv_nsec / 1000000,
                            names[level]);
    return len;
}

static void clean(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            text[i] = ' ';
    }
}

void log_line(enum log_level level, const char *fmt, ...)
{
    char line[LOG_LINE_MAX];
    int saved = errno;
    size_t head, len;
    va_list args;
    int n;

    if (!log_enabled(level))
        return;

    head = put_head(line, level);
    va_start(args, fmt);
    n = vsnprintf(line + head, sizeof(line) - head, fmt, args);
    va_end(args);
    len = head + (n > 0 ? (size_t)n : 0);
    if (len > sizeof(line) - 1)
        len = sizeof(line) - 1;
    clean(line + head, len - head);
    line[len++] = '\n';
    /* There is no way to report a failure of this. */
    while (write(STDERR_FILENO, line, len) < 0 && errno == EINTR)
        continue;
    errno = saved;
}
