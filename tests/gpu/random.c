/* SPDX-License-Identifier: Apache-2.0 */

/* Random programs, as those of src/vgpu/limiter/trace_program.c, whose kernels fill the device. */

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "card.h"

enum {
    THREADS = 16,
    STREAMS = 4, /* of a thread */
    SHAPES = 4,
    AHEAD = 64, /* kernels in each stream that are not known to be done, at most */
};

enum lengths { FIXED, SPREAD, BIMODAL, TRICKS, LENGTHS };

struct program {
    unsigned threads, streams, shapes, batch, ahead;
    double length_us[SHAPES], shortest_us, think_us;
    enum lengths lengths;
    bool blocking;
};

struct thread {
    pthread_t id;
    uint64_t random;
    unsigned burst;
    handle streams[STREAMS], done[STREAMS][AHEAD];
    uint64_t launched[STREAMS], known[STREAMS], iterations[STREAMS][AHEAD];
};

static struct program program;
static double scale; /* iterations in a microsecond */
static struct thread threads[THREADS];
static _Atomic uint64_t finished; /* iterations */
static atomic_bool stops;

static double draw(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return (double)(*random >> 11) / 9007199254740992.0;
}

static unsigned draw_below(uint64_t *random, unsigned bound)
{
    return (unsigned)(draw(random) * bound);
}

static double log_uniform(uint64_t *random, double least, double most)
{
    return least * pow(most / least, draw(random));
}

static double clamp(double value, double least, double most)
{
    return fmin(fmax(value, least), most);
}

static void draw_program(uint64_t *random)
{
    static const unsigned batches[] = {0, 0, 1, 4, 16, 64};
    const double most_us = 2e4, queued_us = 2e4;
    double length, longest = 0;

    program.lengths = draw_below(random, LENGTHS);
    program.shapes = 1 + draw_below(random, SHAPES);
    program.threads = draw(random) < 0.7 ? 1 : 1 + draw_below(random, 4);
    program.streams = draw(random) < 0.6 ? 1 : 1 + draw_below(random, STREAMS);
    program.batch = batches[draw_below(random, 6)];
    program.blocking = draw(random) < 0.08;
    program.shortest_us = program.threads * program.streams > 1 ? 20 : 5;
    length = log_uniform(random, program.shortest_us, most_us);
    for (unsigned i = 0; i < SHAPES; i++) {
        double us = length * pow(4, 2 * draw(random) - 1);

        program.length_us[i] = clamp(us, program.shortest_us, most_us);
        longest = fmax(longest, program.length_us[i]);
    }
    program.ahead = (unsigned)clamp(queued_us / longest, 2, AHEAD);
    if (program.batch && draw(random) < 0.3)
        program.think_us = log_uniform(random, 10, 2e4);
}

static double normal(uint64_t *random)
{
    return sqrt(-2 * log(1 - draw(random))) * cos(2 * M_PI * draw(random));
}

static double next_us(struct thread *thread)
{
    double length = program.length_us[draw_below(&thread->random, program.shapes)];

    switch (program.lengths) {
    case SPREAD:
        return length * exp(0.4 * normal(&thread->random) - 0.08);
    case BIMODAL:
        return draw(&thread->random) < 0.2 ? 9 * length / 2.6 : length / 2.6;
    case TRICKS:
        if (thread->burst) {
            thread->burst--;
            return program.shortest_us;
        }
        thread->burst = draw_below(&thread->random, 100);
        return length;
    default:
        return length;
    }
}

/* Waits until at most so many kernels of a stream are not known to be done. */
static void wait_for(struct thread *thread, unsigned stream_number, unsigned most)
{
    while (thread->launched[stream_number] - thread->known[stream_number] > most) {
        unsigned at = thread->known[stream_number]++ % AHEAD;

        must(cuEventSynchronize(thread->done[stream_number][at]), "cuEventSynchronize");
        atomic_fetch_add(&finished, thread->iterations[stream_number][at]);
    }
}

static void *run_thread(void *data)
{
    struct thread *thread = data;

    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (uint64_t i = 0; !atomic_load(&stops); i++) {
        unsigned number = (unsigned)(i % program.streams);
        unsigned at = (unsigned)(thread->launched[number] % AHEAD);
        uint32_t iterations = (uint32_t)fmax(1, scale * next_us(thread));

        wait_for(thread, number, program.ahead - 1);
        launch_full(iterations, thread->streams[number]);
        must(cuEventRecord(thread->done[number][at], thread->streams[number]), "cuEventRecord");
        thread->iterations[number][at] = iterations;
        thread->launched[number]++;
        if (!program.batch || (i + 1) % program.batch)
            continue;
        for (unsigned k = 0; k < program.streams; k++)
            wait_for(thread, k, 0);
        if (program.think_us > 0) {
            double ns = 1e3 * program.think_us;
            struct timespec time = {(time_t)(ns / 1e9), (long)fmod(ns, 1e9)};

            (void)nanosleep(&time, NULL);
        }
    }
    for (unsigned k = 0; k < program.streams; k++)
        wait_for(thread, k, 0);
    return NULL;
}

static void sleep_s(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)(fmod(seconds, 1) * 1e9)};

    (void)nanosleep(&time, NULL);
}

/* Iterations in a microsecond, after a third of the time of warming up. */
static double measure(uint64_t seed, double seconds)
{
    uint64_t before, after;
    double begun, ended;

    for (unsigned i = 0; i < program.threads; i++) {
        struct thread *thread = &threads[i];

        thread->random = (seed + i + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
        for (unsigned k = 0; k < program.streams; k++) {
            thread->streams[k] = new_stream();
            for (unsigned n = 0; n < AHEAD; n++)
                thread->done[k][n] = new_event();
        }
    }
    for (unsigned i = 0; i < program.threads; i++)
        must(pthread_create(&threads[i].id, NULL, run_thread, &threads[i]), "pthread_create");
    sleep_s(seconds / 3);
    begun = now_ns();
    before = atomic_load(&finished);
    sleep_s(seconds);
    ended = now_ns();
    after = atomic_load(&finished);
    atomic_store(&stops, true);
    for (unsigned i = 0; i < program.threads; i++)
        must(pthread_join(threads[i].id, NULL), "pthread_join");
    return (double)(after - before) / (ended - begun) * 1e3;
}

int run_random(unsigned seed, double of_scale, double seconds, int saturates)
{
    static const char *const names[] = {"fixed", "spread", "bimodal", "tricks"};
    uint64_t random = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;

    for (int i = 0; i < 10; i++)
        (void)draw(&random);
    draw_program(&random);
    scale = of_scale;
    if (saturates) {
        program.batch = 0;
        program.blocking = false;
    }
    if (program.blocking)
        (void)setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    open_driver();
    load_kernels();
    printf("%u threads of %u streams, %s:", program.threads, program.streams,
           names[program.lengths]);
    for (unsigned i = 0; i < program.shapes; i++)
        printf(" %.0f", program.length_us[i]);
    printf(" us; batch %u, pause %.0f us%s\n", program.batch, program.batch ? program.think_us : 0,
           program.blocking ? ", blocking" : "");
    printf("%.4f\n", measure(seed, seconds));
    return 0;
}

int run_threads(uint32_t iterations, double seconds, unsigned count)
{
    program = (struct program){
        .threads = count < THREADS ? count : THREADS,
        .streams = 1,
        .shapes = 1,
        .batch = 1,
        .ahead = 1,
        .length_us = {iterations},
    };
    scale = 1;
    (void)setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    open_driver();
    load_kernels();
    printf("%.3f\n", measure(1, seconds) * 1e6 / iterations);
    return 0;
}
