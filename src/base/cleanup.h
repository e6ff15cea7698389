/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Ownership in the declaration: a variable that releases itself when it leaves its scope. */

#include <stdlib.h>
#include <unistd.h>

#define CLEANUP(fn) __attribute__((cleanup(fn)))

/* Makes fnp(), which CLEANUP() takes, out of fn(), which takes the pointer itself and accepts NULL.
 */
#define DEFINE_CLEANUP(type, fn)                                                                   \
    static inline void fn##p(type *owned)                                                          \
    {                                                                                              \
        fn(*owned);                                                                                \
    }                                                                                              \
    struct swallow_semicolon

static inline void free_p(void *owned)
{
    free(*(void **)owned);
}

static inline void close_p(const int *owned)
{
    if (*owned >= 0)
        (void)close(*owned);
}

#define AUTOFREE CLEANUP(free_p)
#define AUTOCLOSE CLEANUP(close_p)

/* Moves a pointer, or a file descriptor, out of its variable. */
#define TAKE(ptr)                                                                                  \
    ({                                                                                             \
        __typeof__(ptr) taken_ = (ptr);                                                            \
        (ptr) = NULL;                                                                              \
        taken_;                                                                                    \
    })

static inline int take_fd(int *fd)
{
    int taken = *fd;

    *fd = -1;
    return taken;
}
