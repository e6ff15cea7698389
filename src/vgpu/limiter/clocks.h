/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The device's clock against the host's. Both count from the base, an event of ours: the device's
 * since it reached it, the host's since it recorded it. What is sent to the device, or found not to
 * be done, is done no sooner, so that the promptest of our probes bounds from above how far the
 * device's clock is ahead; and what is seen done was done no later, so that what was seen soonest
 * bounds it from below. Where all probes have to wait for a slice (presence.h), the first bound is
 * as good as the last look at one before that; where nobody waits for what ends, the second is
 * none. One that several agree on is sure.
 *
 * The clocks drift apart, by up to CLOCKS_DRIFT, so that bounds are forgotten as fast; where the
 * host's is being set right (ntpd slews it by up to 500 ppm, chronyd by more) they do by as much
 * more as the promptest probes of several parts of a second agree on. Since the base itself ran no
 * earlier than it was recorded, a prompt probe can't be later than they drifted: were the first one
 * taken for prompt that waits for our own kernels, all others would seem to be early. Pure: no
 * clock, no driver.
 */

#include <stdbool.h>
#include <stdint.h>

/* A probe that was this late on the device had to wait for it. */
#define CLOCKS_PROMPT_NS 10e3

/* Of the device's clock against the host's: quartz is good for 20 ppm. Per ns. More has to be
 * learnt, from spans of this length. */
#define CLOCKS_DRIFT 30e-6
#define CLOCKS_SPAN_NS INT64_C(250000000)

/* Of what was seen done in a span of time: how far the device's clock is ahead at the least. */
struct clocks_span {
    unsigned count;
    double ahead_ns;
};

/* In zeroed memory nothing is known. */
struct clocks {
    struct {
        bool is_known;
        double ahead_ns; /* at the most */
        int64_t at_ns;
        unsigned agreed; /* so many probes agree on that, of late */
        int64_t agreed_at_ns;
    } most;
    struct clocks_seen {
        struct clocks_span now, before;
        int64_t since_ns; /* when the present one began */
    } seen;
    struct {
        double part;                    /* of the host's time, beyond CLOCKS_DRIFT */
        int64_t since_ns;               /* the span's; 0: none yet */
        double ahead_ns, ahead_at_ns;   /* in the span: how much a probe was, and when, */
        double before_ns, before_at_ns; /* and in the one before; at 0: there was none */
        double slope;                   /* from the one before that to it */
        unsigned agreed;                /* slopes, in a row */
    } drift;
};

/*
 * A probe that was recorded at host_ns was done at device_ns. Returns for how long it had to wait
 * for the device, 0 when it did not. now_ns: any clock of the host, as in all others.
 */
double clocks_late_ns(struct clocks *clocks, double device_ns, double host_ns, int64_t now_ns);

/* What the device did at device_ns was not done yet at host_ns. Tells nothing where probes do. */
void clocks_note_unseen(struct clocks *clocks, double device_ns, double host_ns, int64_t now_ns);

/* What the device did at device_ns was seen done at host_ns. */
void clocks_note_seen(struct clocks *clocks, double device_ns, double host_ns, int64_t now_ns);

/* Times count from another moment: so much later on each clock. */
void clocks_move(struct clocks *clocks, double device_ns, double host_ns);

/* Where a moment of the host's clock is on the device's; later than any where that is not known
 * yet. */
double clocks_device_ns(const struct clocks *clocks, double host_ns);

/* The same, as if they began together where nothing is known. */
double clocks_guess_ns(const struct clocks *clocks, double host_ns);

/* The other way round; earlier than any where that is not known yet. */
double clocks_host_ns(const struct clocks *clocks, double device_ns);
