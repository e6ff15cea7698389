/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the program that calls anything has in files of their own. */

#include <stdbool.h>
#include <stdint.h>

enum {
    THREADS = 8,
};

typedef int any_fn(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                   uint64_t, uint64_t, uint64_t, uint64_t);

/* Opens the driver and NVML; false, with dlerror(), where that fails. */
bool entries_open(void);

/* A function, looked up in one of the ways of anything.c's; NULL: there is none. */
any_fn *entries_look_up(char way, const char *name);

/* By which name a function is known here: the same whether it is the driver's or stands for it. */
const char *entries_name_of(const void *function);

/* The driver, as dlopen() gave it. */
void *entries_driver(void);

/*
 * Threads that take, launch and give back, all at once, so many times each: no answer can be
 * foreseen, but for what must hold always.
 */
struct race_result {
    unsigned granted, refused;
    unsigned strange; /* answers that nothing explains */
};
struct race_result race(unsigned seed, unsigned count, uint64_t limit);
