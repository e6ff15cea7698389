/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether this scheduler may make decisions, and send them.
 *
 * Of several schedulers one decides: the one whose kube-scheduler, on the same host, holds the
 * Lease. It is not enough that the Lease was ours at the last look: since then this process may
 * have stood still, the network may be gone, a clock may have been set. So nothing is sent unless
 * the last renewal is young, by two clocks:
 *
 * - by the time of day, which the kube-scheduler beside us wrote into the Lease from this machine's
 *   clock. After the clock was set, the renewal seems too old or in the future; neither counts as
 *   young, and the next renewal, after 2 s, heals it.
 * - by the monotonic clock, from the last look that did not show this renewal yet.
 *
 *     renewed            fresh            expired: others may take the Lease
 *     |----- sends ------|---- margin ----|
 *                        |-- settles --|
 *
 * Each request carries a server-side timeout (bind_ns). At 4/3 of that time after it was sent the
 * request has settled: it is carried out, or never will be. The margin is at least as long, so a
 * scheduler that takes an expired Lease need not wait, nor does one whose predecessor handed the
 * Lease back: a scheduler that ends and has nothing on its way says so in an annotation of the
 * Lease (KEY_HANDED_BACK, after how many transitions), and takes the holder out. Where the next
 * kube-scheduler was quicker, the word comes while its term waits, and ends that. One that takes it
 * earlier (it was released by others, or deleted), or that did not look for so long that it may
 * have missed a renewal, waits until the former leader's last Binding has settled: that leader may
 * not have noticed yet. Then the pods are listed, and the list has all that a former leader bound.
 * Only after that the new term decides.
 *
 * Without an election the term begins with the process, and waits until the last Binding of an
 * earlier process has settled.
 *
 * Pure: times come in. now_ns is a monotonic clock's, wall_ns is since 1970.
 */

#include <stdbool.h>
#include <stdint.h>

enum {
    TERM_HOLDER_SIZE = 512,
};

struct term_options {
    const char *host; /* whose kube-scheduler makes us the leader; NULL: there is no election */
    int64_t bind_ns;  /* the server carries a request out in this time, or gives up */
};

enum term_state {
    TERM_OTHERS = 1, /* the Lease has another holder, or none */
    TERM_WAITING,    /* it is ours; requests of other schedulers have not settled yet */
    TERM_LISTING,    /* pods are being listed */
    TERM_OURS,
};

struct term {
    struct term_options options;
    enum term_state state;
    int64_t settled_ns;        /* requests of this host's former scheduler have settled by then, */
    int64_t former_settled_ns; /* and those of other holders */
    int64_t silent_until_ns;   /* it was renewed so late that others may count on us being silent */

    /* The Lease, as it was seen last. */
    bool looked;     /* it was looked at before */
    bool found_idle; /* the first look found no holder: who was it, and since when not? */
    char holder[TERM_HOLDER_SIZE];
    uint64_t transitions;
    int64_t acquired_wall_ns, renewed_wall_ns, duration_ns;
    int64_t renewed_after_ns, renewed_before_ns; /* when, at the earliest and at the latest */
    int64_t asked_ns;                            /* when the last look was begun */
};

struct lease {
    const char *holder; /* "": none */
    uint64_t transitions;
    int64_t acquired_wall_ns, renewed_wall_ns, duration_ns;
    /* The scheduler that decided after so many transitions has ended, and nothing of it is on its
     * way. */
    bool handed_back;
    uint64_t handed_back_after;
};

/* The options' text is the caller's. */
void term_init(struct term *term, const struct term_options *options, int64_t now_ns);

/* How a look at the Lease changed the term. */
enum term_change {
    TERM_UNCHANGED = 1,
    TERM_ENDED,   /* it was ours */
    TERM_BEGAN,   /* it is ours now, after another holder's term or an earlier one of ours */
    TERM_SETTLED, /* it is ours, and its former holder need not be waited for any more */
};

/* A look at the Lease, begun at asked_ns, has shown this Lease; NULL: there is none. */
enum term_change term_see(struct term *term, const struct lease *lease, int64_t asked_ns,
                          int64_t now_ns, int64_t wall_ns);

/* When all requests of others have settled. */
int64_t term_settled_ns(const struct term *term);

/* Whether pods are to be listed now: true once a term, and not before that. */
bool term_should_list(struct term *term, int64_t now_ns);

/* That list, or a later one, is complete. True: decisions may begin. */
bool term_listed(struct term *term);

/* How old the last renewal is at most; INT64_MAX: not known. */
int64_t term_age_ns(const struct term *term, int64_t now_ns, int64_t wall_ns);

/* Whether decisions may be made, and sent. */
bool term_may_send(const struct term *term, int64_t now_ns, int64_t wall_ns);

/* What a scheduler that led, ends, and has nothing on its way, writes into the Lease. */
enum term_word {
    TERM_HANDS_BACK = 1, /* that this is so after as many transitions as it has, and no holder */
    TERM_SAYS,           /* that this was so after the term's: the next kube-scheduler has it */
    TERM_HAS_SAID,       /* nothing, but it may be taken again by the kube-scheduler beside us */
    TERM_LEAVES,         /* nothing any more: what came after is others' */
};

enum term_word term_last_word(struct term *term, const struct lease *lease);

/* Why they may not, for a person. */
const char *term_why_not(const struct term *term);
