/* SPDX-License-Identifier: Apache-2.0 */

/* Of hidden.c: modules, libraries and their kernels. */

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "hidden_verbs.h"

cu_handle module;

const char *image_of(const char *argument)
{
    static char image[128];

    snprintf(image, sizeof(image), "hamisim-module 1\nsize=%llu\nkernel spin\n",
             (unsigned long long)number(argument));
    return image;
}

int verb_module(const char *argument)
{
    answered(cu.load(&module, image_of(argument)));
    return 0;
}

int verb_unload(const char *argument)
{
    (void)argument;
    answered(cu.unload(module));
    return 0;
}

int launch(cu_handle function)
{
    int64_t kernel_ns = 1000;
    void *params[] = {&kernel_ns};

    return cu.launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
}

/* Loads a module of that size, and launches its kernel so many times as follow a colon. */
int verb_launch(const char *argument)
{
    const char *times = strchr(argument, ':');
    cu_handle own, function;
    int code = cu.load(&own, image_of(argument));

    if (code == CU_OK)
        code = cu.function(&function, own, "spin");
    for (uint64_t i = times ? number(times + 1) : 1; i && code == CU_OK; i--)
        code = launch(function);
    if (code == CU_OK)
        code = cu.sync();
    answered(code);
    return 0;
}

static int launch_by(const char *way, cu_handle function)
{
    static int64_t kernel_ns = 1000;
    static void *params[] = {&kernel_ns};
    const struct cu_launch_config config = {.grid = {1, 1, 1}, .block = {32, 1, 1}};
    struct cu_launch_params one = {
        .function = function, .grid = {1, 1, 1}, .block = {32, 1, 1}, .params = params};

    switch (*way) {
    case 'x':
        return cu.launch_ex(&config, function, params, NULL);
    case 'c':
        return cu.cooperative(function, 1, 1, 1, 32, 1, 1, 0, NULL, params);
    case 'l':
        return cu.launch_list(&one, 1, 0);
    default:
        return launch(function);
    }
}

static const char *image_of_depth(const char *argument)
{
    static char image[160];

    snprintf(image, sizeof(image), "hamisim-module 1\nsize=0\nkernel spin local=%llu\n",
             (unsigned long long)number(argument));
    return image;
}

static cu_handle deep;

/* A kernel of a module of no size whose threads need so much stack, launched by that way:
 * deep=STACK, deep=STACK:x (extended), :c (cooperative), :l (a list). */
int verb_deep(const char *argument)
{
    const char *way = strchr(argument, ':');
    int code = cu.load(&module, image_of_depth(argument));

    if (code == CU_OK)
        code = cu.function(&deep, module, "spin");
    if (code == CU_OK)
        code = launch_by(way ? way + 1 : "", deep);
    if (code == CU_OK)
        code = cu.sync();
    answered(code);
    return 0;
}

/* The last one, so many times, by each of those ways. */
int verb_again(const char *argument)
{
    int code = CU_OK;

    for (uint64_t i = number(argument); i && code == CU_OK; i--) {
        code = launch_by(i % 2 ? "" : "x", deep);
        if (i % 256 == 0)
            cu.sync();
    }
    answered(code ? code : cu.sync());
    return 0;
}

/* Whose module in this context no call that loads code makes. */
int verb_library(const char *argument)
{
    cu_handle library, kernel, function;
    int code = cu.load_library(&library, image_of(argument), NULL, NULL, 0, NULL, NULL, 0);

    if (code == CU_OK)
        code = cu.kernel(&kernel, library, "spin");
    if (code == CU_OK)
        code = cu.kernel_function(&function, kernel);
    if (code == CU_OK)
        code = launch(function);
    if (code == CU_OK)
        code = cu.sync();
    answered(code);
    return 0;
}

static cu_handle kernel;

/* Of a library of that size, a kernel that has one handle in all contexts. */
int verb_kernel(const char *argument)
{
    cu_handle library;
    int code = cu.load_library(&library, image_of(argument), NULL, NULL, 0, NULL, NULL, 0);

    if (code == CU_OK)
        code = cu.kernel(&kernel, library, "spin");
    answered(code);
    return 0;
}

/* The same of a library whose kernel needs so much stack. */
int verb_deep_kernel(const char *argument)
{
    cu_handle library;
    int code = cu.load_library(&library, image_of_depth(argument), NULL, NULL, 0, NULL, NULL, 0);

    if (code == CU_OK)
        code = cu.kernel(&kernel, library, "spin");
    answered(code);
    return 0;
}

/* Launches it in the current context, so many times. */
int verb_spin(const char *argument)
{
    int code = CU_OK;

    for (uint64_t i = number(argument); i && code == CU_OK; i--)
        code = launch(kernel);
    if (code == CU_OK)
        code = cu.sync();
    answered(code);
    return 0;
}

/* Launches a kernel that is loaded already, now and then, for so many milliseconds. */
int verb_work(const char *argument)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    cu_handle own, function;
    int code = cu.load(&own, image_of("512"));

    if (code == CU_OK)
        code = cu.function(&function, own, "spin");
    for (uint64_t i = number(argument) / 2; i && code == CU_OK; i--) {
        code = launch(function);
        nanosleep(&pause, NULL);
    }
    answered(code);
    return 0;
}
