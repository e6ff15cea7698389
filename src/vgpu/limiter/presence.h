/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which part of the time our context is on the device, told by probes: events that were recorded on
 * an idle stream at random moments. An event completes at its context's next slice if the context
 * is not on the device. If it is, it completes at once where nobody else wants the device; else,
 * by chance, at once or at the next slice as well (on H100, driver 580, 20 % of them do beside one
 * other busy context, 90 % beside two, 46 % beside three). So when a late one is done, a slice of
 * ours begins; it was recorded in the one before if that had not lasted a slice yet, or if
 * something of ours ended since. Pure: no clock, no driver.
 *
 * A short absence may be over by the time that the answer is read. The event's own time tells it:
 * it is later, against the host's clock, than that of the promptest probes. The two clocks drift
 * apart, by up to PRESENCE_DRIFT, so that what is promptest is forgotten as fast; where the host's
 * is being set right (ntpd slews it by up to 500 ppm, chronyd by more) they do by as much more as
 * the promptest probes of several parts of a second agree on. Since the base
 * itself ran no earlier than it was recorded, a prompt probe can't be later than they drifted: were
 * the first one taken for prompt that waits for our own kernels, all others would seem to be early.
 */

#include <stdbool.h>
#include <stdint.h>

#include "region/region.h"

/* A probe that was this late on the device had to wait for it. */
#define PRESENCE_PROMPT_NS 10e3

/* Of the device's clock against the host's: quartz is good for 20 ppm. Per ns. More has to be
 * learnt, from spans of this length. */
#define PRESENCE_DRIFT 30e-6
#define PRESENCE_SPAN_NS INT64_C(250000000)

/* How long a context that has work stays on the device while others wait, and again so long where
 * none did: the driver's time slice by default (2.09 ms on H100 and H200, driver 580). */
#define PRESENCE_SLICE_NS 2.09e6

enum {
    PRESENCE_PROBES = 512,         /* remembered: some seconds */
    PRESENCE_FIRST = 64,           /* until then the plain mean says most */
    PRESENCE_ENDS = 256,           /* of kernels of ours: all that may be measured at a time */
    PRESENCE_KINDS = REGION_PARTS, /* of kernels, by their length */
};

enum probe_state {
    PROBE_NONE = 0, /* or told nothing */
    PROBE_OPEN,     /* late, and not answered yet */
    PROBE_ON,
    PROBE_OFF,
};

struct presence {
    double on_device;  /* fraction of the probes during kernels of ours that found us on it */
    double contended;  /* fraction of all recent probes that found us off it */
    double run_chance; /* of as many "on" in a row, if on_device were right */
    unsigned known;    /* probes that on_device rests on */
    unsigned answered; /* probes, the first PRESENCE_FIRST, */
    unsigned off;      /* of which so many found us off it */
    struct presence_sums {
        double on, all;               /* moving sums of probes, and */
        double length_ns, charged_ns; /* of lengths, by the launches that a kernel stands for */
    } always[PRESENCE_KINDS],         /* kernels that are measured each time */
        doubt[PRESENCE_KINDS];        /* short kernels that took long */
    struct {
        double at_ns; /* on the device's clock, as far as the host knows; since the base */
        enum probe_state state;
    } probes[PRESENCE_PROBES];
    /* What processes of the container found out: by it one begins, lest what runs before its first
     * probes be charged by guess in each life. Not trusted. NULL: there is no such place. */
    _Atomic uint32_t (*told)[PRESENCE_KINDS];
    unsigned next, open;
    unsigned voided;               /* probes that told nothing */
    double ends_ns[PRESENCE_ENDS]; /* since the base */
    unsigned next_end;
    double
        slice_ns; /* when our last slice began that is known, since the base; far back: none is */
    double on_ns; /* the last moment at which we were on the device for sure */
    double absence_ns;      /* of others' slices between two of ours; negative: not known yet */
    unsigned prompt_slices; /* in a row, in which a kernel ended and no probe was out */
    double least_ns;        /* the least that a probe's time on the device was behind the host's */
    int64_t least_at_ns;
    bool least_known;
    struct presence_drift {
        double part;                    /* of the host's time, beyond PRESENCE_DRIFT */
        int64_t since_ns;               /* the span's; 0: none yet */
        double least_ns, least_at_ns;   /* in the span: how much a probe was behind, and when, */
        double before_ns, before_at_ns; /* and in the one before; at 0: there was none */
        double slope;                   /* from the one before that to it */
        unsigned agreed;                /* slopes, in a row */
    } drift;
};

void presence_init(struct presence *presence, _Atomic uint32_t (*told)[PRESENCE_KINDS]);

/*
 * What a completed probe's time says: device_ns since the base event against host_ns since the
 * host recorded that. Returns for how long it had to wait for the device, 0 when it did not.
 */
double presence_late_ns(struct presence *presence, double device_ns, double host_ns,
                        int64_t now_ns);

/* Where a moment of the host's clock is on the device's, both since the base, to the promptest
 * probe's delay; later than any where that is not known yet. */
double presence_device_ns(const struct presence *presence, double host_ns);

/* The other way round; earlier than any where that is not known yet. */
double presence_host_ns(const struct presence *presence, double device_ns);

/* The base event was recorded anew: times are against another moment. */
void presence_new_base(struct presence *presence);

/* A probe that was recorded host_ns after the base came back promptly. */
void presence_on(struct presence *presence, double host_ns);

/* The same, at a moment that was not chosen by chance: only that we were on the device then. */
void presence_note_on(struct presence *presence, double host_ns);

/* One did not come back yet, or was still out at that moment. */
void presence_open(struct presence *presence, double host_ns);

/* The one that did not come back was as prompt as others by its own time: the host looked late. */
void presence_was_prompt(struct presence *presence);

/* The one that was recorded host_ns after the base did, at done_ns since the base. Returns how many
 * found us off the device. */
unsigned presence_resolve(struct presence *presence, double host_ns, double done_ns);

/* A kernel of ours ended, at end_ns since the base. */
void presence_note_end(struct presence *presence, double end_ns);

/* Others use the device now and then. */
bool presence_contended(const struct presence *presence);

/*
 * What was ours of a kernel that ran from start_ns to end_ns since the base and took length_ns, in
 * ns: by the probes that fell into it, and where they are few, by those of all kernels that took
 * about as long. Those in which others had a slice are as long as that is, and those without mostly
 * not.
 */
double presence_always(struct presence *presence, double start_ns, double end_ns, double length_ns);

/*
 * What is to be charged for it, in ns. Of its time own_ns are its own, between start_ns and end_ns:
 * what ran beside it was charged for the rest, and for the probes in that. The charge makes the sum
 * over all kernels that took about length_ns right, by what is known now: the sum of what was their
 * own times the part of their probes that found us on the device. It may be negative. Where each
 * were charged by the part that was known then, it would be too little: a kernel with more of
 * others' time has more probes, and lowers the part just before it is taken of that one.
 */
double presence_charge(struct presence *presence, double start_ns, double end_ns, double own_ns,
                       double length_ns);

/* The same of a short kernel that took longer than expected, and stands for so many launches: as
 * expected, as long as there are no probes. */
double presence_doubt(struct presence *presence, double start_ns, double end_ns, double weight,
                      double expected_ns, double *ret_charge_ns);

/* Of a kernel that runs what was ours until now, in 0..1. Nothing is learnt from it. */
double presence_part_so_far(const struct presence *presence, double start_ns, double end_ns);
