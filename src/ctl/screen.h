/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A picture shown once, or again and again: in place on a terminal, one after the other elsewhere.
 * The terminal is left as it was found, also when a signal ends it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"

struct picture {
    /* Appends the picture as it is now. Negative, with the error, where there is none. */
    int (*print)(void *data, struct strbuf *text, struct error *err);
    void *data;
    size_t text_max; /* bytes */
};

struct watch {
    int64_t interval_ns;
    uint64_t count; /* pictures; 0: until told to stop */
    bool dense;     /* never in place, and no empty line between pictures */
};

/* Writes it to standard output. Negative, with the error: it cannot be printed or written. */
int screen_show_once(const struct picture *picture, struct error *err);

/*
 * Until the user (q), SIGINT, SIGTERM, SIGHUP or SIGQUIT wants an end, which is none with an
 * error; the signals are its own for that time.
 */
int screen_watch(const struct picture *picture, const struct watch *watch, struct error *err);
