/* SPDX-License-Identifier: Apache-2.0 */

/*
 * When a context is on the device, by a kernel of its own that looks at the GPU's timer all the
 * time; and when what is launched into streams that are idle begins.
 */

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "card.h"

enum {
    GAPS = 1 << 15,
    AHEAD = 4, /* kernels in a stream that are not known to be done, at most */
};

static const double longest_wait_ns = 3e7;

static volatile uint64_t *stamps; /* that kernels write: two, then the gaps */

struct kept { /* kernels that follow each other in a stream */
    handle stream, done[AHEAD];
    unsigned count, launched;
};

static struct kept keep(unsigned count)
{
    struct kept kept = {.stream = new_stream(), .count = count};

    for (unsigned i = 0; i < count; i++)
        kept.done[i] = new_event();
    return kept;
}

/* Whether one more may be launched. */
static bool wants_more(const struct kept *kept)
{
    return kept->count && (kept->launched < kept->count ||
                           cuEventQuery(kept->done[kept->launched % kept->count]) == OK);
}

static void note_launched(struct kept *kept)
{
    must(cuEventRecord(kept->done[kept->launched++ % kept->count], kept->stream), "cuEventRecord");
}

static struct kept witnesses, filled;
static uint32_t fill;

static void keep_busy(void)
{
    uint64_t ns = 40 * 1000 * 1000, gaps = (uint64_t)(uintptr_t)(stamps + 2);
    uint32_t most = GAPS;
    void *parameters[] = {&ns, &gaps, &most};

    while (wants_more(&witnesses)) {
        launch(witness_function, 1, 1, witnesses.stream, parameters);
        note_launched(&witnesses);
    }
    while (fill && wants_more(&filled)) {
        launch_work(fill, filled.stream);
        note_launched(&filled);
    }
}

static void launch_stamp(unsigned number, handle into)
{
    uint64_t out = (uint64_t)(uintptr_t)(stamps + number);
    void *parameters[] = {&out};

    stamps[number] = 0;
    launch(stamp_function, 1, 1, into, parameters);
}

/* Until a kernel has written: returns when that was seen. */
static double wait_for_stamp(unsigned number)
{
    double until = now_ns() + longest_wait_ns;

    while (!stamps[number] && now_ns() < until)
        keep_busy();
    return now_ns();
}

static double wait_for_event(handle event)
{
    double until = now_ns() + longest_wait_ns;

    while (cuEventQuery(event) != OK && now_ns() < until)
        keep_busy();
    return now_ns();
}

/* Of each line: the host's time before and after the call and as it was seen, then the GPU's. */
static void say(const char *kind, double before, double called, double seen, unsigned stamped)
{
    printf("%s %.0f %.0f %.0f %llu %llu\n", kind, before, called, seen,
           stamped > 0 ? (unsigned long long)stamps[0] : 0,
           stamped > 1 ? (unsigned long long)stamps[1] : 0);
}

static void look_by_event(const char *kind, handle into, handle event)
{
    double before = now_ns(), called;

    must(cuEventRecord(event, into), "cuEventRecord");
    called = now_ns();
    say(kind, before, called, wait_for_event(event), 0);
}

static void look_by_kernel(const char *kind, handle into)
{
    double before = now_ns(), called;

    launch_stamp(0, into);
    called = now_ns();
    say(kind, before, called, wait_for_stamp(0), 1);
}

/* Two at once, and an event behind them. */
static void look_by_pair(handle into, handle event)
{
    double before = now_ns(), called;

    launch_stamp(0, into);
    launch_stamp(1, into);
    must(cuEventRecord(event, into), "cuEventRecord");
    called = now_ns();
    say("pair", before, called, wait_for_event(event), 2);
}

static void look(unsigned kind, handle first, handle other, handle event)
{
    switch (kind) {
    case 0:
        look_by_event("first", first, event);
        break;
    case 1:
        look_by_event("event", other, event);
        break;
    case 2: /* the second one as soon as the other is done */
        look_by_kernel("kernel", other);
        look_by_kernel("again", other);
        break;
    default:
        look_by_pair(other, event);
        break;
    }
}

/* Nobody else is there: how far the clocks are apart. */
static void look_alone(handle into)
{
    for (double until = now_ns() + 3e8; now_ns() < until;)
        look_by_kernel("alone", into);
}

/* Says so, and waits for a line. */
static void wait_after(const char *what)
{
    puts(what);
    (void)fflush(stdout);
    while (getchar() > '\n')
        continue;
}

int run_slices(uint32_t iterations, double seconds, unsigned ahead)
{
    handle first, other, event;
    double until, next;
    unsigned count;
    void *memory;

    open_driver();
    load_kernels();
    (void)setvbuf(stdout, NULL, _IOFBF, 1 << 20);
    must(cuMemHostAlloc(&memory, (2 + 1 + 2 * GAPS) * sizeof(uint64_t), 0), "cuMemHostAlloc");
    stamps = memory;
    stamps[2] = 0;
    must(cuStreamCreateWithPriority(&first, NON_BLOCKING, HIGHEST_PRIORITY),
         "cuStreamCreateWithPriority");
    other = new_stream();
    /* Of one without a time in an idle stream the driver says at once that it is done. */
    must(cuEventCreate(&event, 0), "cuEventCreate");
    look_alone(other);
    wait_after("ready");
    witnesses = keep(ahead < AHEAD ? ahead : AHEAD);
    filled = keep(witnesses.count);
    fill = iterations;
    until = now_ns() + 1e9 * seconds;
    for (unsigned i = 0; now_ns() < until; i++) {
        next = now_ns() + 2e5 + 1e6 * ((double)rand() / RAND_MAX);
        while (now_ns() < next)
            keep_busy();
        look(i % 4, first, other, event);
    }
    must(cuCtxSynchronize(), "cuCtxSynchronize");
    wait_after("over");
    witnesses.count = 0;
    fill = 0;
    look_alone(other);
    count = (unsigned)stamps[2];
    for (unsigned i = 0; i < count; i++)
        printf("gap %llu %llu\n", (unsigned long long)stamps[3 + 2 * i],
               (unsigned long long)stamps[4 + 2 * i]);
    return 0;
}
