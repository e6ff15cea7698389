/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A reason that a person will read.
 *
 * Functions fail with a negative errno. Where somebody will want to know why, they also take a
 * trailing struct error and put the reason there, "doing what: why". It is a buffer of the
 * caller's, so setting it can't fail. Every function here accepts NULL for it.
 */

struct error {
    char text[512];
};

#define ERROR_INIT                                                                                 \
    {                                                                                              \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Replaces the text. Returns code, so that failing is one line. */
int error_set(struct error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts context in front: "context: what was there". Returns code. */
int error_wrap(struct error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
