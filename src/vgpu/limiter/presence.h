/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which part of the time our context is on the device, told by probes: events that were recorded on
 * an idle stream at random moments. One completes at the context's next slice if that is not on
 * the device. If it is, it completes at once as long as the device looks after the context; but
 * once no kernel of the context waits behind another one in its stream, and others want the device,
 * that looks to who comes next, and sees what comes to us at our next slice (H100 and H200, driver
 * 580: bench/results/h100-h200.txt). So when a late one is done, a slice of ours begins; it was
 * recorded in the one before if that had not lasted a slice yet, or if something of ours ended
 * since. Kernels that had to wait begin with a slice as well.
 *
 * A slice lasts, if a kernel runs on in the next one. Else it may have ended with its last kernel:
 * whose end is told to us with the next slice only, since that was recorded behind it. Then it
 * ended as long before the next one as others have the device between two that lasted.
 *
 * A short absence may be over by the time that the answer is read. The event's own time tells it
 * (clocks.h). Pure: no clock, no driver. All times are on the device's clock since the base, in ns.
 */

#include <stdbool.h>
#include <stdint.h>

#include "region/region.h"

/* How long a context that has work stays on the device while others wait, and again so long where
 * none did: the driver's time slice by default (2.09 ms on H100 and H200, driver 580). */
#define PRESENCE_SLICE_NS 2.09e6

enum {
    PRESENCE_PROBES = 512, /* remembered: some seconds */
    PRESENCE_FIRST = 64,   /* until then the plain mean says most */
    PRESENCE_ENDS = 256,   /* of kernels of ours: all that may be measured at a time */
    PRESENCE_STARTS = 64,
    PRESENCE_KINDS = REGION_PARTS, /* of kernels, by their length */
};

enum probe_state {
    PROBE_NONE = 0, /* or told nothing */
    PROBE_OPEN,     /* late, and not answered yet */
    PROBE_ON,
    PROBE_OFF,
};

/* Of ours as a probe was recorded, as far as it is known. */
enum probe_work {
    WORK_UNKNOWN = 0,
    WORK_RUNS,  /* a kernel, and none behind it */
    WORK_WAITS, /* one behind it, too */
};

/* A kernel. It was in its queue by queued_ns, perhaps after its start ran. */
struct presence_run {
    double began_ns, queued_ns, end_ns;
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
    struct probe {
        double at_ns;
        enum probe_state state;
        enum probe_work work;
    } probes[PRESENCE_PROBES];
    /* What processes of the container found out: by it one begins, lest what runs before its first
     * probes be charged by guess in each life. Not trusted. NULL: there is no such place. */
    _Atomic uint32_t (*told)[PRESENCE_KINDS];
    bool are_short; /* kernels of ours: once the device looks to others, what runs is over soon */
    unsigned next, open;
    unsigned voided;                         /* probes that told nothing */
    struct presence_run runs[PRESENCE_ENDS]; /* the last ones that ended */
    unsigned next_run;
    double runs_since_ns; /* of kernels that run on as the next probe is resolved, the first that
                             was seen by the device for sure; far ahead: there is none */
    double starts_ns[PRESENCE_STARTS]; /* of kernels that waited for the device */
    unsigned next_start;
    double slice_ns; /* when our last slice began that is known; far back: none is */
    double on_ns;    /* the last moment at which we were on the device for sure */
    /* Of others' slices between two of ours that lasted: mean, negative as long as it is not known;
     * and the least of late, 0. */
    double absence_ns, least_absence_ns;
    unsigned prompt_slices; /* in a row, in which a kernel ended and no probe was out */
};

void presence_init(struct presence *presence, _Atomic uint32_t (*told)[PRESENCE_KINDS]);

/* Times count from a moment that is so much later. */
void presence_move(struct presence *presence, double later_ns);

/* A probe that was recorded then came back promptly. */
void presence_on(struct presence *presence, double at_ns, enum probe_work work);

/* The same, at a moment that was not chosen by chance: only that we were on the device then. */
void presence_note_on(struct presence *presence, double at_ns);

/* One did not come back yet, or was still out at that moment. */
void presence_open(struct presence *presence, double at_ns, enum probe_work work);

/* The one that did not come back was as prompt as others by its own time: the host looked late. */
void presence_was_prompt(struct presence *presence);

/* When the one that did not come back did can't be told. */
void presence_forget(struct presence *presence);

/* The one that was recorded at sent_ns did, at done_ns. Returns how many found us off the device.
 */
unsigned presence_resolve(struct presence *presence, double sent_ns, double done_ns);

/* A kernel of ours ended. */
void presence_note_end(struct presence *presence, struct presence_run run);

/* One has not ended, as the next probe is resolved: its end_ns does not count. */
void presence_note_running(struct presence *presence, struct presence_run run);

/* A kernel that was sent by sent_ns into an idle stream began at began_ns. */
void presence_note_start(struct presence *presence, double sent_ns, double began_ns);

/* Others use the device now and then. */
bool presence_contended(const struct presence *presence);

/*
 * What was ours of a kernel that ran from start_ns to end_ns and took length_ns, in ns: by the
 * probes that fell into it, and where they are few, by those of all kernels that took about as
 * long. Those in which others had a slice are as long as that is, and those without mostly not.
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
