/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Measurements on their way: a pair of events around a launch, in its stream. And the seam through
 * which the limiter sees the device.
 */

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/limiter/costs.h"
#include "vgpu/limiter/launch.h"
#include "vgpu/limiter/overlap.h"

enum event_state {
    EVENT_DONE = 1,
    EVENT_NOT_YET,
    EVENT_BROKEN, /* its context is gone */
};

/* Every call is for one context, of which gpu is the caller's own. None waits, but for wait_ns(),
 * and that not for long. */
struct limiter_gpu {
    int64_t (*now_ns)(void *gpu);
    void *(*make_event)(void *gpu); /* NULL when there is none */
    /* Into the launch's stream, or, where that is NULL, into an idle stream of ours. */
    bool (*record)(void *gpu, void *event, const struct launch *where);
    enum event_state (*query)(void *gpu, void *event);
    bool (*elapsed_ms)(void *gpu, void *from, void *to, double *ret_ms);
    /* Whether all that was launched into the stream is done, or nothing may be asked of it. */
    bool (*is_idle)(void *gpu, const struct launch *where);
    /* Whether streams that another thread may use can be asked. While one joins a capture that may
     * be any of them, and a question then spoils it. */
    bool (*asks_others)(void *gpu);
    /* Whether nothing may be asked of the stream, for a capture. */
    bool (*is_captured)(void *gpu, const struct launch *where);
    /* What recording the event into an idle stream of ours and waiting for it takes, at the least
     * of some tries; 0: it is not known. */
    int64_t (*wait_ns)(void *gpu, void *event);
};

enum {
    SAMPLE_WORDS = 3,
    SAMPLES = 64 * SAMPLE_WORDS,
    SAMPLES_POLLED = 16, /* in one look */
    SAMPLE_MARKS = 15,
    CALIBRATIONS = 8,
    CALIBRATION_TRIES = 64,
};

enum sample_kind {
    SAMPLE_DRAWN = 1, /* stands for 1/chance launches */
    SAMPLE_COUNTED,   /* stands for as many launches, and nobody pays for them */
    SAMPLE_ALWAYS,    /* of a kernel that is measured each time, or that is not known */
    SAMPLE_CALIBRATION,
};

enum sample_state {
    SAMPLE_FREE = 0,
    SAMPLE_OPEN,    /* its start is recorded */
    SAMPLE_PENDING, /* its end is recorded too */
};

/* What a look at all of them needs comes first: it is in two lines of the cache. */
struct sample {
    enum sample_state state;
    enum sample_kind kind;
    struct launch launch;
    int64_t began_ns;   /* host clock */
    int64_t started_ns; /* host clock, when it was first seen running; 0: it may be in a queue */
    int64_t since_ns;   /* host clock: it did not run before */
    int64_t paid_ns;
    int64_t provisional_ns; /* charged since, while it ran longer than expected */
    unsigned looks;         /* at its stream, until the launch returned, */
    unsigned busy_looks;    /* and at how many it was busy, or could not be looked at */
    void *start, *end;      /* NULL until first used */

    bool is_behind;              /* of a calibration: the host has no part in it */
    const struct sample *kernel; /* of a calibration: what it was recorded behind; */
    int64_t kernel_began_ns;     /* another by now, if that began at another time */
    bool is_ended;               /* its end was recorded before the launch returned */
    bool is_sum;                 /* of several launches, one after the other */
    double weight;               /* how many launches its correction is charged for */
    double expected_ns;          /* what it was expected to take; 0: nothing was known */
    double ridden_ns;            /* expected of launches that went beside it */
    bool rides;                  /* it went beside another one */
    int64_t issued_ns;           /* what the process had charged by then */
    bool was_idle;               /* its stream, so that the start ran at once */
    int64_t recorded_ns;         /* host clock, of its start */
    int64_t called_ns; /* host clock, when the driver was called: the kernel began later */
    int64_t seen_ns;   /* host clock: it was in its queue by then; 0: that is not known yet */
    int64_t looked_ns; /* host clock, of the last of those looks, */
    bool was_busy;     /* and what it found */
    int64_t queued_ns; /* host time from then until the kernel's queueing, where the start
                          ran in between, but had to wait, too; 0: not so */
    int64_t held_ns;   /* host time that recording took before the launch */
    int64_t gap_ns;    /* host time between the start's execution and the kernel's queueing */
    int64_t after_ns;  /* host time that recording took after the launch */
    int64_t over_ns;   /* host clock, when it was over: its end was recorded later; 0: not so */
    int64_t late_ns;   /* so much later the launch returned, as far as the host knows */

    bool marks_are_old;  /* they are of a measurement before this one, and on their way yet */
    unsigned mark_count; /* recorded before the start, in other streams of ours */
    void *marks[SAMPLE_MARKS];
    struct launch mark_in[SAMPLE_MARKS]; /* their streams */
};

struct samples {
    struct sample list[SAMPLES];
    uint64_t taken[SAMPLE_WORDS];   /* bit set of the places that are not free, */
    uint64_t started[SAMPLE_WORDS]; /* and of those of them that have a started_ns */
    unsigned open;                  /* their launch has not returned: it may block */
    unsigned pending;
    unsigned always; /* of them, those measured each time */
    unsigned next;   /* where the next look begins */
    int64_t polled_ns;
    double looks, busy_looks; /* of late, of launches whose kernel was not over, */
    struct {
        double looks, busy_looks, launches, took_ns;
    } over;              /* and of those whose was */
    double overhead_ns;  /* of a pair of events, calibrated; < 0: not yet */
    unsigned behind;     /* calibrations behind a kernel, done, */
    unsigned behind_out; /* and on their way */
    unsigned behind_tries;
    bool knows_behind; /* overhead_ns is of such */
    void *base;        /* absolute times are taken against it */
    int64_t base_ns;   /* host clock; 0: none */
    void *next_base;
    int64_t next_base_ns; /* 0: none is on its way */
    int64_t renew_ns;     /* when the next one is due */
    void *probe;
};

/* The first place from one on whose bit is set, or is not; SAMPLES: there is none. */
static inline unsigned samples_find(const uint64_t bits[SAMPLE_WORDS], unsigned from, bool is_set)
{
    const uint64_t flip = is_set ? 0 : UINT64_MAX;
    uint64_t mask = UINT64_MAX << (from % 64);

    for (unsigned i = from / 64; i < SAMPLE_WORDS; i++, mask = UINT64_MAX) {
        const uint64_t found = (bits[i] ^ flip) & mask;

        if (found)
            return i * 64 + (unsigned)__builtin_ctzll(found);
    }
    return SAMPLES;
}

/* Each place whose bit is set. */
#define samples_for_each(i, bits)                                                                  \
    for (unsigned i = samples_find(bits, 0, true); i < SAMPLES; i = samples_find(bits, i + 1, true))

/* Pairs of events back to back, on their way in an idle stream, where they are as far apart as the
 * host records them. Pairs behind kernels, which samples_end() sends after the first ones that
 * still run, tell what the device takes for them, and then count alone. */
void samples_calibrate(struct samples *samples, const struct limiter_gpu *ops, void *gpu);

/* Takes in what a calibration says. */
void samples_note_overhead(struct samples *samples, const struct sample *sample, double length_ns);

/* Whether there is a place for one more. The marks of one that is over may still be on their way.
 */
bool samples_have_room(struct samples *samples, const struct limiter_gpu *ops, void *gpu);

/*
 * Makes a place for one more where there is none. Where all marks are on their way it is measured
 * without, as if nothing ran beside it. Else two measurements that follow one another in a stream
 * become one, of all that ran from the first one's start to the second one's end. False when each
 * is in a stream of its own, or the driver makes no more events.
 */
bool samples_make_room(struct samples *samples, const struct limiter_gpu *ops, void *gpu);

/* Whether samples_make_room() would find a place; changes nothing. */
bool samples_can_make_room(struct samples *samples, const struct limiter_gpu *ops, void *gpu);

/* Records the marks and the start; NULL when there is no room or no event. A stream that waits gets
 * no mark: its queue may be full, and recording blocks until it goes on. */
struct sample *samples_begin(struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                             enum sample_kind kind, const struct launch *launch,
                             const struct launch *others, unsigned other_count, int64_t now_ns);

/*
 * For how long, from the kernel's start, launches before it in other streams still ran, in ns.
 * Negative: they were over. 1e18: they still run, or their streams wait for something, which is no
 * company.
 */
struct company {
    double running_ns; /* where what is being measured had begun when this one ended, */
    double waiting_ns; /* where it had not, */
    double unseen_ns;  /* and where nothing is, or had not begun yet */
    struct cover ran;  /* from when it had begun, in ms since the kernel's start */
};
struct company samples_company(const struct samples *samples, const struct limiter_gpu *ops,
                               void *gpu, const struct sample *sample);

/* Whether what ran beside it was marked. */
static inline bool sample_has_company(const struct sample *sample)
{
    return sample->mark_count && !sample->marks_are_old;
}

/* For how long our recording held the kernel up. Without it so much more of it had run beside what
 * ran before it. */
double samples_delay_ns(const struct sample *sample);

/* Its launch has returned, and the end been recorded; false where that failed, and the sample is
 * free again. */
bool samples_end(struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                 struct sample *sample, bool is_recorded);

/* Whether the stream may be busy: while it is captured it can't be looked at, nor can any while a
 * capture would be joined. One without a handle is another thread's. */
bool samples_may_run(const struct limiter_gpu *ops, void *gpu, const struct launch *where);

/* A look, at a moment that the program does not choose, at the streams of launches that have not
 * returned. */
void samples_look(struct samples *samples, const struct limiter_gpu *ops, void *gpu);

/* The launch had returned by then: a look after that says nothing of it. */
void samples_note_returned(struct sample *sample, int64_t returned_ns);

/*
 * Of the host's time from the start's recording until the launch returned, what passed before the
 * kernel was queued. Of one nobody knows when that was: the host, or the program, may have held the
 * thread up before or after. How often the stream was busy meanwhile, or could not be looked at, as
 * the looks say of all such launches of late, is the part of that which is the kernel's. (While 15
 * us of each launch passed for the host's, whoever kept his launches for as long as a kernel of 15
 * us takes had all of the card.)
 */
int64_t samples_gap_ns(struct samples *samples, const struct sample *sample, int64_t took_ns);

/* The kernel was over when its launch returned, so long after its start: takes in what the looks
 * saw of it. */
void samples_note_over(struct samples *samples, const struct sample *sample, double took_ns);

/* What such launches take beside their kernels, on average, as looks saw it of late; too much while
 * there were few. */
double samples_beside_ns(const struct samples *samples);

/* Whether a launch into the stream has begun and not returned. */
bool samples_are_open_in(const struct samples *samples, const void *stream);

/* Before a stream ends: records the ends of such launches, which can't be recorded later. */
void samples_end_stream(struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                        const void *stream);

void samples_free(struct samples *samples, struct sample *sample);

/*
 * The next sample that is done, in a bounded look at those on their way: its length as the
 * device's clock has it, less what events take. NULL when there is none in this look. The caller
 * frees it. Notes which of the others have started.
 */
struct sample *samples_next(struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                            unsigned *looked, int64_t now_ns, double *ret_length_ns);

/* When a sample ran, against the base. */
bool samples_interval(const struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                      const struct sample *sample, struct interval *ret_interval);

/* Records the base anew where it is due and nothing needs the old one; where the driver fails it is
 * due again as late as ever. True when the new one is in force: so much later on the device's
 * clock, and on the host's. */
bool samples_renew_base(struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                        int64_t now_ns, double *ret_later_ms, int64_t *ret_host_later_ns);

/* A measurement is done: what was launched after it into its stream did not run before it ended. */
void samples_note_end(struct samples *samples, const struct sample *done, int64_t ended_ns);

/* When the oldest of the measurements began that are on their way in the stream; 0: there is none.
 */
int64_t samples_oldest_ns(const struct samples *samples, const struct launch *where);

/* The same of the newest. */
int64_t samples_newest_ns(const struct samples *samples, const struct launch *where);

/* Whether a kernel waits behind one before it in its stream. */
bool samples_wait(const struct samples *samples, const struct limiter_gpu *ops, void *gpu,
                  int64_t since_ns);

/* It is seen running, and has since then. */
void samples_note_started(struct samples *samples, struct sample *sample, int64_t since_ns);

/* Of the kernels measured each time the one that has run longest, NULL when none runs. */
struct sample *samples_leader(struct samples *samples);
