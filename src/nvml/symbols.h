/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Functions of a library opened at run time, as a table that says where each pointer goes. */

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct symbol {
    const char *name;
    size_t offset; /* of the function pointer in the target struct */
    bool required; /* else the pointer stays NULL where the library lacks it */
};

/*
 * Fills the pointers of *target from a dlopen() handle. -ENOENT, with err naming the function, when
 * a required one is missing.
 */
int symbols_load(void *library, const struct symbol *table, size_t count, void *target,
                 struct error *err);
