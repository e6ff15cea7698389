/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Who of the containers that share a card wants it now, so that one of them may use what the others
 * leave idle, and leaves it to others of higher priority while those have work.
 *
 * Equals that have one of higher priority beside them go one after the other, in turns of some
 * milliseconds, or it would find work of each of them on the device when it comes.
 *
 * A card has a folder, in which each container has a cell: a file of its own that it alone can
 * write, and that says until when it wants the card. The folder is read-only to all of them. A
 * tenant that lies in its cell keeps others from what is idle, and takes nothing of their shares.
 * Where the own cell is not in the folder, that is another folder, and the card is never idle.
 *
 * A container's priority is in its cell's name, which the node agent gave it, and so is its share:
 * no tenant can raise itself, and one that always claims to have work is believed for its share of
 * the time and CARD_BELIEF_MORE. Lower numbers are higher priorities.
 *
 * Cells of others are read by pread() and not mapped: who owns one may cut it short. Whatever can't
 * be read counts as wanted. Times are CLOCK_MONOTONIC.
 *
 * The program that we are in may have no descriptors left, close ours, or go where the folder can't
 * be found (chroot()). What can't be looked at stays as it was: the cells that were there are still
 * there. One that can't be reached at all, neither by a descriptor nor by its name, counts as one
 * whose owner always has work. It is forgotten once the folder can be read and has it no more.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/kept.h"

/* Who used the card so lately wants it still. */
#define CARD_WANT_NS INT64_C(20000000)

/* What was read of the others holds for so long. */
#define CARD_LOOK_NS INT64_C(500000)

enum {
    CARD_CELLS = 64, /* of others; where there are more, the card is never idle */
    CARD_PATH = 1024,
    CARD_CELL_SIZE = 4096, /* of the file; the rest is zero */
};

#define CARD_CELL_MAGIC UINT64_C(0x6c6c6563696d6168) /* "hamicell" */

struct card_cell {
    _Atomic uint64_t magic; /* 0: nobody of the container came yet */
    _Atomic int64_t wanted_until_ns;
    _Atomic int64_t busy_until_ns; /* what it launched is expected to be done then, or what it
                                      waits for the card with comes by then, */
    _Atomic int64_t busy_since_ns; /* from when on it has had work, as if it were alone */
};

/* A cell's name is NAME.PRIORITY.CORES, or NAME where the priority is this one and there is no
 * share. */
#define CARD_PRIORITY 1

/* Who used the card within this time makes others careful. */
#define CARD_LATELY_NS INT64_C(10000000000)

/* What was read of those of higher priority that did, holds for so long. */
#define CARD_RANK_LOOK_NS INT64_C(5000)

/* Work is claimed, and believed, for no longer than this from now on: who has more says so again.
 * A killed process' claim ends with it. */
#define CARD_CLAIM_NS INT64_C(100000000)

/* Percent of the time, beyond its share, that a container which goes first is believed to have
 * work: claims are expectations, and cover the short pauses between launches. */
#define CARD_BELIEF_MORE 10
#define CARD_BELIEF_CREDIT_NS INT64_C(200000000) /* saved up, in wall time */

/* Another container's cell. */
struct card_other {
    struct kept cell; /* one that could not be opened has its number all the same */
    int priority;
    uint32_t believed; /* part of the time, 1/65536; 0: all of it */
    int64_t zero_ns;   /* when that account is empty, as in region/bucket.h */
    int64_t claimed_until_ns;
    int64_t since_ns;  /* of the work that was seen last */
    int64_t beside_ns; /* of our own, that was on the device when it came */
};

/* Zeroed memory is a card that is not known. */
struct card {
    struct card_cell *own; /* NULL: there is none */
    char folder[CARD_PATH];
    dev_t own_device;
    ino_t own_inode;
    bool lends;           /* what others leave idle may be used */
    int priority;         /* its own */
    pthread_mutex_t lock; /* the members below */
    struct card_other others[CARD_CELLS];
    unsigned count;
    bool complete;                       /* all cells are among them, and can be read */
    struct card_other found[CARD_CELLS]; /* while it is looked around */
    _Atomic int64_t looked_ns;
    _Atomic int64_t wanted_until_ns; /* by others, as it was then */

    _Atomic bool has_ranks; /* any other has another priority */
    _Atomic int64_t rank_looked_ns;
    _Atomic int64_t yields_until_ns;       /* as it was then */
    _Atomic bool has_betters, has_lessers; /* of those, that used the card lately */
};

/*
 * Opens the own cell, and the folder's others unless folder is NULL: then others are never idle.
 * Blocks on the disk. 0 or a negative errno; the card then stays unknown. Of a file that is shorter
 * than a cell -EPROTO, of a folder without the own cell -ESTALE.
 */
int card_open(struct card *card, const char *own, const char *folder);

/* The same for a container of this priority. lends: what others leave idle may be used. */
int card_open_ranked(struct card *card, const char *own, const char *folder, bool lends,
                     int priority);

/* Gives everything back. */
void card_close(struct card *card);

/* In a forked child. */
void card_after_fork(struct card *card);

/* Looks for cells that came or went; now and then. Blocks on the disk. */
void card_look_around(struct card *card);

/* The container wants the card. One store, if any. */
static inline void card_want(struct card *card, int64_t now_ns)
{
    if (card->own && atomic_load_explicit(&card->own->wanted_until_ns, memory_order_relaxed) <
                         now_ns + CARD_WANT_NS / 2)
        atomic_store_explicit(&card->own->wanted_until_ns, now_ns + CARD_WANT_NS,
                              memory_order_relaxed);
}

/*
 * An answer of a look that is older is none: where another thread is held while it looks, as by a
 * signal's handler that does not return, the card counts as wanted, and as one that is to be left to
 * those that go first.
 */
#define CARD_STALE_NS INT64_C(50000000)

/* Whether another container wants it, or may. At most one system call a cell each CARD_LOOK_NS. */
bool card_is_wanted(struct card *card, int64_t now_ns);

/* For how long no other container has wanted it, by the last look; INT64_MAX: for longer than
 * CARD_LATELY_NS, or ever. */
static inline int64_t card_idle_ns(const struct card *card, int64_t now_ns)
{
    int64_t until_ns = atomic_load_explicit(&card->wanted_until_ns, memory_order_relaxed);

    if (until_ns <= now_ns - CARD_LATELY_NS)
        return INT64_MAX;
    return until_ns < now_ns ? now_ns - until_ns : 0;
}

/* The container has, or waits for, work from since_ns until then. Two stores, if any. */
static inline void card_claim(struct card *card, int64_t now_ns, int64_t since_ns, int64_t until_ns)
{
    if (!card->own)
        return;
    if (until_ns > now_ns + CARD_CLAIM_NS)
        until_ns = now_ns + CARD_CLAIM_NS;
    if (atomic_load_explicit(&card->own->busy_until_ns, memory_order_relaxed) >= until_ns)
        return;
    atomic_store_explicit(&card->own->busy_since_ns, since_ns, memory_order_relaxed);
    atomic_store_explicit(&card->own->busy_until_ns, until_ns, memory_order_relaxed);
}

/*
 * Whether the card is left to containers that go first, and until when as far as is known. At
 * most one system call a cell each CARD_RANK_LOOK_NS, or CARD_LOOK_NS while none used it lately.
 * own_until_ns: when what the caller launched is expected to be done. Others that came before that
 * are held up by it, and are done so much later than they claim.
 */
bool card_yields(struct card *card, int64_t now_ns, int64_t own_until_ns, int64_t *ret_until_ns);

/* The file name of a container's cell; false if it does not fit. cores: its share in percent, 0:
 * all. */
bool card_cell_name(char *text, size_t size, const char *name, int priority, unsigned cores);

/* Whether a file in a card's folder is the cell of this name. */
bool card_cell_is_of(const char *file, const char *name);

/* For a node program: makes an empty cell that any user may write, in place of an old one. 0 or a
 * negative errno. */
int card_make_cell(const char *path);
