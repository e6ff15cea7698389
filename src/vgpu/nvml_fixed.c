/* SPDX-License-Identifier: Apache-2.0 */

/*
 * NVML's functions that have one answer here, whatever they are called with: one function under
 * all their names. What changes a card changes it for its other containers, too.
 */

#include "vgpu/nvml_fixed.h"

#include <stdbool.h>
#include <string.h>

#include "base/util.h"
#include "driver/nvml.h"

static __attribute__((used)) nvmlReturn_t no_permission(void)
{
    return NVML_ERROR_NO_PERMISSION;
}

/* Under C names of their own: some have prototypes. */
#define FIXED_CHANGE(name)                                                                         \
    extern nvmlReturn_t fixed_##name(void) __asm__(#name)                                          \
        __attribute__((alias("no_permission"), visibility("default")));
#include "driver/nvml_fixed.inc"
#undef FIXED_CHANGE

/* In one text: an array would have an address for each. */
static const char changes[] =
#define FIXED_CHANGE(name) #name "\0"
#include "driver/nvml_fixed.inc"
#undef FIXED_CHANGE
    ;

static bool is_among(const char *name, const char *names)
{
    for (; *names; names += strlen(names) + 1) {
        if (strcmp(name, names) == 0)
            return true;
    }
    return false;
}

void *nvml_fixed_find(const char *name)
{
    return is_among(name, changes) ? (void *)no_permission : NULL;
}
