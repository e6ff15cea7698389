/* SPDX-License-Identifier: Apache-2.0 */

/*
 * NVML's functions that have one answer here, whatever they are called with: one function under
 * all their names. What changes a card changes it for its other containers, too; and of what tells
 * of all their work there is no part that could be given to one.
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

static __attribute__((used)) nvmlReturn_t not_supported(void)
{
    return NVML_ERROR_NOT_SUPPORTED;
}

/* Under C names of their own: some have prototypes. */
#define FIXED(name, function)                                                                      \
    extern nvmlReturn_t fixed_##name(void) __asm__(#name)                                          \
        __attribute__((alias(#function), visibility("default")));
#define FIXED_CHANGE(name) FIXED(name, no_permission)
#define FIXED_OTHERS(name) FIXED(name, not_supported)
#include "driver/nvml_fixed.inc"
#undef FIXED_CHANGE
#undef FIXED_OTHERS

/* In one text: an array would have an address for each name. */
static const char others[] =
#define FIXED_CHANGE(name)
#define FIXED_OTHERS(name) #name "\0"
#include "driver/nvml_fixed.inc"
#undef FIXED_CHANGE
#undef FIXED_OTHERS
    ;

static bool is_among(const char *name, const char *names)
{
    for (; *names; names += strlen(names) + 1) {
        if (strcmp(name, names) == 0)
            return true;
    }
    return false;
}

/*
 * By the words of its name, so that what a newer NVML can change is known too: of version 13.615
 * these are all that do, whatever it is that they change. A thread's own affinity, and the sets of
 * events that a program waits for, are nobody else's.
 */
static bool changes_card(const char *name)
{
    static const char words[] =
        "Set\0Reset\0Clear\0Create\0Destroy\0Modify\0Remove\0Update\0Write\0"
        "Force\0Activate\0Freeze\0Discover\0";

    if (strncmp(name, "nvml", 4) != 0 || strstr(name, "Get") || strstr(name, "EventSet") ||
        strstr(name, "CpuAffinity"))
        return false;
    for (const char *word = words; *word; word += strlen(word) + 1) {
        const char *found = strstr(name, word);

        if (found && !(found[strlen(word)] >= 'a' && found[strlen(word)] <= 'z'))
            return true;
    }
    return false;
}

void *nvml_fixed_find(const char *name)
{
    if (changes_card(name))
        return (void *)no_permission;
    return is_among(name, others) ? (void *)not_supported : NULL;
}
