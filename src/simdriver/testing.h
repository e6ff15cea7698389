/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * For tests that need a machine of their own, with options of its own: a driver knows one machine
 * for as long as its process lives, so each of them runs in a child.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "driver/cuda.h"
#include "simdriver/machine.h"

/* In the child: names what does not hold, and ends it. */
#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            testing_fail(__FILE__, __LINE__, #condition);                                          \
    } while (0)
#define GIVES(error, call) testing_code(__FILE__, __LINE__, #call, (error), (call))
#define OK(call) GIVES(CUDA_SUCCESS, call)

/* A context of its own, and in it what the tests use. */
struct testing {
    CUcontext context;
    CUmodule module;
    CUfunction kernel;
    CUstream streams[12]; /* that are not blocking */
    CUevent events[8];
};

/*
 * Makes a machine of two GPUs, each with 100 multiprocessors, 16 GiB and contexts of 100 MiB, whose
 * driver gives memory by 512 bytes, so that what is asked for is what is taken, and has the options
 * ("captures=kind event-resolution=1ns") and whose clock is stopped, and runs the body in a child.
 * Returns the child's exit status, 0 when all held.
 */
int testing_run(const char *options, void (*body)(void));

/* A descriptor of another process, which lets others have them by testing_offer_descriptors(); as
 * who was sent it has it. Negative when there is none. */
static inline int testing_descriptor_of(pid_t pid, int fd)
{
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    int copy = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, fd, 0);

    if (process >= 0)
        (void)close(process);
    return copy;
}

static inline void testing_offer_descriptors(void)
{
    (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

/* A cmocka test of that name which does so. */
#define HOLDS_IN(name, options, body)                                                              \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        assert_int_equal(testing_run(options, body), 0);                                           \
    }

/* The same on a machine whose clock runs. */
int testing_run_unstopped(const char *options, void (*body)(void));

/* The path of the machine, in the child and its children. */
const char *testing_machine(void);

/* Initialises the driver and fills in the struct. */
void testing_begin(struct testing *testing);

/* The same for a second context, of a driver that is initialised. */
void testing_begin_context(struct testing *testing, CUdevice device);

/* With parameters: how long, and a second one. */
CUresult testing_launch(CUfunction kernel, CUstream stream, unsigned blocks, int64_t work_ns,
                        uint64_t second);

void testing_step(int64_t ns);

/* What the machine counts on its first GPU. */
uint64_t testing_used_bytes(void);
uint64_t testing_used_on_bytes(unsigned gpu);
int64_t testing_busy_ns(void);
int64_t testing_busy_on_ns(unsigned gpu);

/* Between two events, rounded to nanoseconds. */
int64_t testing_between(CUevent from, CUevent to);

/* What the code names for the errors are numbers here, so that messages can say both. */
void testing_code(const char *file, int line, const char *call, CUresult wanted, CUresult got);
_Noreturn void testing_fail(const char *file, int line, const char *what);
