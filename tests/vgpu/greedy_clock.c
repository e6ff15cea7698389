/* SPDX-License-Identifier: Apache-2.0 */

/* Of greedy.c: a clock of the program's own for the library. */

#include <execinfo.h>
#include <link.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "greedy_ways.h"

#ifdef __x86_64__

#include <x86intrin.h>

enum {
    CALLERS = 24,
    TIMES_AS_FAST = 3,
    INTERRUPT_NS = 500000, /* so that no sleep of the library's lasts for longer */
};

static struct code {
    uintptr_t begin, end;
} library, driver;
static uint64_t base;

static int find_code(struct dl_phdr_info *info, size_t size, void *unused)
{
    struct code code = {info->dlpi_addr, info->dlpi_addr};

    (void)size;
    (void)unused;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const uintptr_t end =
            info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;

        if (info->dlpi_phdr[i].p_type == PT_LOAD && end > code.end)
            code.end = end;
    }
    if (strstr(info->dlpi_name, "libvgpu"))
        library = code;
    if (strstr(info->dlpi_name, "libcuda"))
        driver = code;
    return 0;
}

static bool lies_in(const struct code *code, void *at)
{
    return (uintptr_t)at >= code->begin && (uintptr_t)at < code->end;
}

/* Whether it is the library that asks, and not the simulated driver. */
static bool library_asks(void)
{
    void *callers[CALLERS];
    int count = backtrace(callers, CALLERS);

    for (int i = 2; i < count && !lies_in(&driver, callers[i]); i++) {
        if (lies_in(&library, callers[i]))
            return true;
    }
    return false;
}

/* rdtsc or rdtscp */
static void answer_counter(int number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *at = (const uint8_t *)registers[REG_RIP];
    const bool is_short = at[0] == 0x0f && at[1] == 0x31;
    unsigned processor;
    uint64_t now;

    (void)info;
    if (!is_short && !(at[0] == 0x0f && at[1] == 0x01 && at[2] == 0xf9)) {
        (void)signal(number, SIG_DFL);
        return;
    }
    (void)prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0);
    now = __rdtscp(&processor);
    (void)prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
    if (library_asks())
        now = base + (now - base) * TIMES_AS_FAST;
    registers[REG_RAX] = (uint32_t)now;
    registers[REG_RDX] = (greg_t)(now >> 32);
    if (!is_short)
        registers[REG_RCX] = processor;
    registers[REG_RIP] += is_short ? 2 : 3;
}

static void interrupt(int number)
{
    (void)number;
}

void way_counter(void)
{
    const struct itimerspec interval = {{0, INTERRUPT_NS}, {0, INTERRUPT_NS}};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    struct sigaction answer = {.sa_sigaction = answer_counter, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct sigaction wake = {.sa_handler = interrupt};
    cu_handle function = function_of("spin");
    void *callers[CALLERS];
    timer_t timer;

    launch(function, 108, LONG_NS, 0, stream);
    must(cu.stream_sync(stream), "cuStreamSynchronize");
    (void)dl_iterate_phdr(find_code, NULL);
    (void)backtrace(callers, CALLERS); /* which loads what it needs */
    (void)sigaction(SIGSEGV, &answer, NULL);
    (void)sigaction(SIGALRM, &wake, NULL);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
        timer_settime(timer, 0, &interval, NULL) != 0)
        exit(3);
    base = __rdtsc();
    if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) != 0)
        exit(3);
    while (!stopped) {
        for (unsigned i = 0; i < DEPTH; i++)
            launch(function, 108, LONG_NS, 0, stream);
        must(cu.stream_sync(stream), "cuStreamSynchronize");
    }
}

#else

void way_counter(void)
{
    while (!stopped)
        launch(function_of("spin"), 108, LONG_NS, 0, stream);
}

#endif
