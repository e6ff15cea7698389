/* SPDX-License-Identifier: Apache-2.0 */

/* Of hidden.c: contexts, and their limits. */

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hidden_verbs.h"

#define MAX_CONTEXTS 8192

static cu_handle contexts[MAX_CONTEXTS];
static unsigned context_count;

int verb_create(const char *argument)
{
    uint64_t count = argument[0] ? number(argument) : 1;
    int code = CU_OK;

    for (uint64_t i = 0; i < count && code == CU_OK && context_count < MAX_CONTEXTS; i++) {
        code = cu.create(&contexts[context_count], 0, 0);
        context_count += code == CU_OK;
    }
    answered(code);
    return 0;
}

/* A context for each on this thread's stack is one too many for a driver: off it again. */
int verb_many(const char *argument)
{
    cu_handle popped;
    int code = CU_OK;

    for (uint64_t i = number(argument); i && code == CU_OK; i--) {
        code = cu.create(&contexts[context_count], 0, 0);
        if (code == CU_OK) {
            context_count++;
            cu.pop(&popped);
        }
    }
    answered(code);
    return 0;
}

int verb_destroy(const char *argument)
{
    uint64_t count = argument[0] ? number(argument) : 1;
    int code = CU_OK;

    for (; count && code == CU_OK && context_count; count--)
        code = cu.destroy(contexts[--context_count]);
    answered(code);
    return 0;
}

int verb_attach(const char *argument)
{
    cu_handle same;

    (void)argument;
    answered(cu.attach(&same, 0));
    return 0;
}

int verb_detach(const char *argument)
{
    cu_handle current;

    (void)argument;
    cu.current(&current);
    answered(cu.detach(current));
    return 0;
}

int verb_retain(const char *argument)
{
    cu_handle context;
    int code = cu.retain(&context, 0);

    (void)argument;
    answered(code ? code : cu.set_current(context));
    return 0;
}

/* As the CUDA runtime does it: through a table that is no export. */
int verb_unseen(const char *argument)
{
    static const unsigned char uuid[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                           0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
    const void *table;
    cu_primary_fn *make;
    cu_handle context;
    int code = cu.export(&table, uuid);

    (void)argument;
    if (code == CU_OK) {
        memcpy(&make, (const char *)table + 2 * sizeof(void *), sizeof(make));
        code = make(&context, 0);
    }
    answered(code ? code : cu.set_current(context));
    return 0;
}

int verb_release(const char *argument)
{
    (void)argument;
    answered(cu.release(0));
    return 0;
}

int verb_reset(const char *argument)
{
    (void)argument;
    answered(cu.reset(0));
    return 0;
}

/* limit=NUMBER:VALUE */
int verb_limit(const char *argument)
{
    answered(cu.set_limit(atoi(argument), number(strchr(argument, ':') + 1)));
    return 0;
}

/* was=NUMBER:VALUE: whether a limit reads so. */
int verb_was(const char *argument)
{
    size_t value = 0;
    int code = cu.get_limit(&value, atoi(argument));

    answered(code ? code : value == number(strchr(argument, ':') + 1) ? 0 : -1);
    return 0;
}

/* The context that was current before the last one. */
int verb_pop(const char *argument)
{
    cu_handle popped;

    (void)argument;
    answered(cu.pop(&popped));
    return 0;
}

/* Comes back from a checkpoint: to the same devices, or to each other's. */
int verb_restore(const char *argument)
{
    struct {
        unsigned char from[16], to[16];
    } pairs[2] = {{{1}, {1}}, {{2}, {2}}};
    struct {
        void *pairs;
        unsigned count, rest[13];
    } args = {pairs, 2, {0}};
    typedef int restore_fn(int pid, void *args);
    restore_fn *restore;

    if (strcmp(argument, "swap") == 0) {
        pairs[0].to[0] = 2;
        pairs[1].to[0] = 1;
    }
    restore = (restore_fn *)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCheckpointProcessRestore");
    if (!restore)
        return 70;
    answered(restore(getpid(), &args));
    return 0;
}
