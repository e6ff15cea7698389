/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a daemon says while it works: one line to stderr, "2026-11-21T19:15:00.123Z info message".
 *
 * A line is written with one write(), so lines of several threads do not mix. Nothing is allocated;
 * what is longer than a line may be is cut. Control characters become blanks, so that nothing that
 * a tenant wrote can forge a line.
 */

#include <stdbool.h>

enum log_level {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARN,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG,
};

enum {
    LOG_LINE_MAX = 2048,
    LOG_DEBUG_VERBOSITY = 5, /* HAMi's charts run its programs with -v=4 */
};

/* Lines of a level above this one are dropped; LOG_LEVEL_INFO at first. */
void log_set_level(enum log_level level);

/* What `-v N` means: everything but debug below LOG_DEBUG_VERBOSITY, everything from there on. */
void log_set_verbosity(unsigned verbosity);

/* Whether a line of this level would be written: a caller may save itself the gathering. */
bool log_enabled(enum log_level level);

void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)
