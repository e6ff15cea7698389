/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The kill storm over the ledger itself: processes charge and discharge at random under one limit
 * while a controller has them killed with SIGKILL and starts others in their place. Some of the
 * kills come at random moments; for the others a bait is laid: the next process that comes to a
 * given point of the ledger, in the middle of a charge, a discharge or a settlement, is killed
 * there; so is the settler of a settler. Where each death fell is known, not guessed: a process
 * notes what it is doing in a page that outlives it.
 *
 *   kill_ledger [KILLS [REGION-FILE [SEED]]]
 *
 * Checked: the word and what the processes believe to hold never exceed the limit; nobody waits
 * more than 250 ms in a call; at the end, after settling, every account and the word are 0; at
 * least a tenth of the deaths fell between the points of the ledger, in calls of every kind, and
 * one of 200 at each point, for which the storm goes on up to four times as long.
 *
 * Waiting is wall-clock time less the time the thread stood in the run queue (/proc/thread-self/
 * schedstat), so that a machine with fewer cores than processes does not count against the ledger;
 * sleeping in a lock and spinning both do. Who waits for a process that stands in the queue itself
 * waits as long as that: the bound is longer by the longest time that any call stood there.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/util.h"
#include "region/ledger.h"
#include "region/orphans.h"
#include "region/region.h"

enum {
    WORKERS = 32,
    DEVICES = 2,
    LIMIT_UNITS = 4096,
    PIECE_UNITS = 80, /* more is wanted than there is: many are refused, and settle */
    HOLDINGS = 16,
    /* Settling waits 50 for another. HAMI_WAIT_MAX_MS: an emulator stops all threads now and then.
     */
    WAIT_MAX_MS = 250,
    POINT_PART = 200, /* of so many deaths one at each point, */
    MORE_KILLS = 4,   /* or of so many times as many as were asked for */
};

enum doing {
    DOING_OTHER,
    DOING_CHARGE,
    DOING_DISCHARGE,
    DOING_SETTLE, /* also claiming a slot, which settles first */
    DOING_COUNT,
};

static const char *const doing_names[DOING_COUNT] = {"between calls", "charging", "discharging",
                                                     "settling"};
static const char *const point_names[LEDGER_POINT_COUNT] = {
    "op written",   "winner helped",    "swapped",           "marked",          "settling",
    "op settled",   "orphans foreseen", "orphans begun",     "orphans counted", "orphans moved",
    "orphans seen", "orphans fetched",  "orphans uncounted", "orphans drained"};

/* What a process tells about itself. Written by it alone while it lives. */
struct record {
    _Alignas(64) _Atomic uint32_t version; /* odd while held[] changes */
    _Atomic uint32_t held[DEVICES]; /* units, after a charge returned until before a discharge */
    _Atomic uint32_t doing;
    _Atomic uint32_t point;  /* the last point passed in this call, plus 1 */
    _Atomic uint32_t fallen; /* into which trap, plus 1 */
    _Atomic uint64_t calls;
    _Atomic int64_t longest_wait_ns[DOING_COUNT];
    _Atomic int64_t longest_queued_ns; /* in a call */
    _Atomic uint32_t failed;
};

/* Where a bait may lie: one for whoever changes, one for whoever settles. */
enum trap {
    TRAP_CHANGE,
    TRAP_SETTLE,
    TRAP_COUNT,
};

/* The next process that comes there dies there. */
struct bait {
    enum doing doing;
    enum ledger_point point;
};

struct storm {
    struct record records[WORKERS];
    _Alignas(64) _Atomic uint32_t laid[TRAP_COUNT]; /* a bait's code, 0: none */
};

static struct storm *storm;
static pid_t pids[WORKERS];
static struct record *me;
static int schedstat = -1;

static uint32_t bait_code(struct bait bait)
{
    return (uint32_t)bait.doing << 8 | ((uint32_t)bait.point + 1);
}

/* One process takes a bait, or who laid it takes it back. */
static bool take(enum trap trap, uint32_t code)
{
    return atomic_load(&storm->laid[trap]) == code &&
           atomic_compare_exchange_strong(&storm->laid[trap], &code, 0);
}

void ledger_point(enum ledger_point point, unsigned slot, bool discharge)
{
    enum trap trap;
    uint32_t code;

    (void)slot;
    (void)discharge;
    if (!me)
        return;
    atomic_store(&me->point, (uint32_t)point + 1);
    trap = atomic_load(&me->doing) == DOING_SETTLE ? TRAP_SETTLE : TRAP_CHANGE;
    code = bait_code((struct bait){(enum doing)atomic_load(&me->doing), point});
    if (!take(trap, code))
        return;
    atomic_store(&me->fallen, trap + 1);
    for (;;)
        (void)kill(getpid(), SIGKILL);
}

static uint32_t random_below(uint64_t *state, uint32_t bound)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*state >> 33) % bound);
}

/* How long this thread has stood ready without running. */
static int64_t queued_ns(void)
{
    char text[96];
    ssize_t len = pread(schedstat, text, sizeof(text) - 1, 0);
    int64_t ran, queued;

    if (len <= 0)
        return 0;
    text[len] = '\0';
    return sscanf(text, "%" SCNd64 " %" SCNd64, &ran, &queued) == 2 ? queued : 0;
}

struct call {
    int64_t begun_ns, queued_ns;
};

static struct call call_begin(enum doing doing)
{
    struct call call = {.queued_ns = queued_ns()};

    call.begun_ns = clock_now_ns();
    atomic_store(&me->point, 0);
    atomic_store(&me->doing, doing);
    return call;
}

static void call_end(const struct call *call)
{
    int64_t wall_ns = clock_now_ns() - call->begun_ns;
    int64_t queue_ns = queued_ns() - call->queued_ns, waited_ns;
    _Atomic int64_t *longest_ns = &me->longest_wait_ns[atomic_load(&me->doing)];

    atomic_store(&me->doing, DOING_OTHER);
    atomic_fetch_add(&me->calls, 1);
    waited_ns = wall_ns - queue_ns;
    if (queue_ns > atomic_load(&me->longest_queued_ns))
        atomic_store(&me->longest_queued_ns, queue_ns);
    if (waited_ns > atomic_load(longest_ns))
        atomic_store(longest_ns, waited_ns);
}

static void hold(unsigned device, int64_t units)
{
    atomic_fetch_add(&me->version, 1);
    atomic_store(&me->held[device], (uint32_t)((int64_t)atomic_load(&me->held[device]) + units));
    atomic_fetch_add(&me->version, 1);
}

static void settle(struct region *region)
{
    struct call call = call_begin(DOING_SETTLE);

    (void)region_settle(region);
    call_end(&call);
}

static bool charge(struct region *region, unsigned device, uint32_t units)
{
    struct call call = call_begin(DOING_CHARGE);
    enum ledger_outcome outcome =
        ledger_charge(region->ext, (unsigned)region->slot, device, units, LIMIT_UNITS);

    call_end(&call);
    if (outcome != LEDGER_CHARGED)
        return false;
    hold(device, units);
    return true;
}

static void discharge(struct region *region, unsigned device, uint32_t units)
{
    struct call call;

    hold(device, -(int64_t)units);
    call = call_begin(DOING_DISCHARGE);
    ledger_discharge(region->ext, (unsigned)region->slot, device, units);
    call_end(&call);
}

/* Others' memory, now and then, which is soon charged. */
static void have_imports(struct region *region, unsigned device, uint64_t *random)
{
    struct region_ext *ext = region->ext;
    const unsigned slot = (unsigned)region->slot;

    if (random_below(random, 16) == 0)
        atomic_store(&ext->slots[slot].imports, random_below(random, 2));
    if (random_below(random, 4) == 0)
        orphans_note_seen(ext, slot, device, orphans_round(ext, device));
}

/* Takes and gives at random until killed. Half of what it has it lends. */
static void worker(const char *path, uint64_t random)
{
    static struct region region;
    struct {
        unsigned device;
        uint32_t units, lent;
    } holdings[HOLDINGS];
    unsigned held = 0;
    struct call call;
    struct error err;
    int r;

    schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    call = call_begin(DOING_SETTLE);
    r = region_open(&region, path, &err);
    if (r >= 0)
        r = region_claim(&region, &err);
    call_end(&call);
    if (r < 0) {
        fprintf(stderr, "kill: %s\n", err.text);
        atomic_store(&me->failed, 1);
        _exit(1);
    }
    for (;;) {
        unsigned device = random_below(&random, DEVICES);
        uint32_t units = 1 + random_below(&random, PIECE_UNITS);

        if (held < HOLDINGS && random_below(&random, 2)) {
            if (!charge(&region, device, units)) {
                settle(&region);
            } else {
                holdings[held].device = device;
                holdings[held].lent = units * random_below(&random, 2);
                orphans_lend(region.ext, (unsigned)region.slot, device, holdings[held].lent);
                holdings[held++].units = units;
            }
        } else if (held) {
            held--;
            discharge(&region, holdings[held].device, holdings[held].units);
            orphans_lend(region.ext, (unsigned)region.slot, holdings[held].device,
                         -(int64_t)holdings[held].lent);
        }
        have_imports(&region, device, &random);
    }
}

static pid_t start(unsigned index, const char *path, uint64_t random)
{
    pid_t pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        me = &storm->records[index];
        worker(path, random);
    }
    return pid;
}

/* One picture of what the processes hold: read twice, until nobody wrote in between. */
static bool snapshot(uint64_t sums[DEVICES])
{
    uint32_t versions[WORKERS];

    for (unsigned attempt = 0; attempt < 100; attempt++) {
        bool same = true;

        memset(sums, 0, sizeof(uint64_t) * DEVICES);
        for (unsigned i = 0; i < WORKERS; i++)
            versions[i] = atomic_load(&storm->records[i].version);
        for (unsigned i = 0; i < WORKERS; i++)
            for (unsigned d = 0; d < DEVICES; d++)
                sums[d] += atomic_load(&storm->records[i].held[d]);
        for (unsigned i = 0; i < WORKERS; i++)
            same &= !(versions[i] & 1) && versions[i] == atomic_load(&storm->records[i].version);
        if (same)
            return true;
    }
    return false;
}

struct tally {
    uint64_t kills;
    uint64_t deaths[DOING_COUNT];
    uint64_t at_point[LEDGER_POINT_COUNT];
    uint64_t random_inside, random_kills;
    uint64_t pictures, breaches, word_breaches, fullest;
    uint64_t calls;
    int64_t longest_wait_ns[DOING_COUNT], longest_queued_ns;
    unsigned failed;
};

static void look(struct tally *tally, const struct region_ext *ext)
{
    uint64_t sums[DEVICES];

    for (unsigned d = 0; d < DEVICES; d++)
        tally->word_breaches += ledger_total(ext, d) > LIMIT_UNITS;
    if (!snapshot(sums))
        return;
    tally->pictures++;
    for (unsigned d = 0; d < DEVICES; d++) {
        tally->breaches += sums[d] > LIMIT_UNITS;
        tally->fullest = MAX(tally->fullest, sums[d]);
    }
}

static void lay(enum trap trap, struct bait bait)
{
    atomic_store(&storm->laid[trap], bait_code(bait));
}

/* Waits a little for a process to take what was laid, then takes it back: its index, or -1. */
static int caught(enum trap trap)
{
    int64_t until = clock_now_ns() + 20 * NS_PER_MS;
    uint32_t code;

    while ((code = atomic_load(&storm->laid[trap])) && clock_now_ns() < until)
        usleep(50);
    if (code && take(trap, code))
        return -1;
    for (unsigned i = 0;; i = (i + 1) % WORKERS)
        if (atomic_load(&storm->records[i].fallen) == trap + 1)
            return (int)i;
}

static void gather(struct tally *tally, struct record *record)
{
    tally->calls += atomic_load(&record->calls);
    tally->failed += atomic_load(&record->failed);
    tally->longest_queued_ns =
        MAX(tally->longest_queued_ns, atomic_load(&record->longest_queued_ns));
    for (unsigned i = 0; i < DOING_COUNT; i++)
        tally->longest_wait_ns[i] =
            MAX(tally->longest_wait_ns[i], atomic_load(&record->longest_wait_ns[i]));
}

static void bury(struct tally *tally, struct record *record, bool baited)
{
    uint32_t doing = MIN(atomic_load(&record->doing), (uint32_t)DOING_COUNT - 1);
    uint32_t point = atomic_load(&record->point);

    tally->deaths[doing]++;
    tally->random_kills += !baited;
    tally->random_inside += !baited && doing != DOING_OTHER;
    if (doing != DOING_OTHER && point >= 1 && point <= LEDGER_POINT_COUNT)
        tally->at_point[point - 1]++;
    gather(tally, record);
    memset(record, 0, sizeof(*record));
}

static void kill_and_replace(struct tally *tally, unsigned victim, bool baited, const char *path,
                             uint64_t *random)
{
    (void)kill(pids[victim], SIGKILL);
    (void)waitpid(pids[victim], NULL, 0);
    bury(tally, &storm->records[victim], baited);
    tally->kills++;
    pids[victim] = start(victim, path, *random ^ victim);
}

/* At a random moment. */
static void strike(struct tally *tally, const char *path, uint64_t *random)
{
    usleep(random_below(random, 1500));
    kill_and_replace(tally, random_below(random, WORKERS), false, path, random);
}

/* In the middle of a charge or a discharge, each kind in turn. */
static void strike_change(struct tally *tally, const char *path, uint64_t *random)
{
    static const struct bait baits[] = {
        {DOING_CHARGE, LEDGER_POINT_OP_WRITTEN}, {DOING_DISCHARGE, LEDGER_POINT_OP_WRITTEN},
        {DOING_CHARGE, LEDGER_POINT_HELPED},     {DOING_DISCHARGE, LEDGER_POINT_HELPED},
        {DOING_CHARGE, LEDGER_POINT_SWAPPED},    {DOING_DISCHARGE, LEDGER_POINT_SWAPPED},
        {DOING_CHARGE, LEDGER_POINT_MARKED},     {DOING_DISCHARGE, LEDGER_POINT_MARKED},
    };
    static unsigned next;
    int victim;

    lay(TRAP_CHANGE, baits[next++ % ARRAY_SIZE(baits)]);
    victim = caught(TRAP_CHANGE);
    if (victim >= 0)
        kill_and_replace(tally, (unsigned)victim, true, path, random);
}

/*
 * Whoever comes to settle one that died in the middle of a change, in the middle of that; and its
 * settler, one time in four.
 */
static void strike_settler(struct tally *tally, const char *path, uint64_t *random)
{
    static unsigned next;
    struct bait bait = {DOING_SETTLE, (enum ledger_point)(next++ % LEDGER_POINT_COUNT)};
    bool again = true;

    lay(TRAP_SETTLE, bait);
    strike_change(tally, path, random);
    while (again) {
        int settler = caught(TRAP_SETTLE);

        again = settler >= 0 && random_below(random, 4) == 0;
        if (again)
            lay(TRAP_SETTLE, bait);
        if (settler >= 0)
            kill_and_replace(tally, (unsigned)settler, true, path, random);
    }
}

static int check(bool holds, const char *what, uint64_t number, uint64_t bound)
{
    printf("%s: %s: %" PRIu64 " (bound %" PRIu64 ")\n", holds ? "ok" : "FAIL", what, number, bound);
    return !holds;
}

static int64_t wait_max_ms(void)
{
    const char *text = getenv("HAMI_WAIT_MAX_MS");

    return text ? atoll(text) : WAIT_MAX_MS;
}

/* Deaths at each point. */
static uint64_t at_point_least(uint64_t asked)
{
    return (asked + POINT_PART - 1) / POINT_PART;
}

/* By chance a point that is seldom come to may have had none yet. */
static bool wants_more(const struct tally *tally, uint64_t asked)
{
    for (unsigned i = 0; i < LEDGER_POINT_COUNT; i++) {
        if (tally->at_point[i] < at_point_least(asked))
            return tally->kills < MORE_KILLS * asked;
    }
    return false;
}

static int judge(struct region *region, const struct tally *tally, uint64_t asked)
{
    uint64_t kills = tally->kills;
    uint64_t left = 0, held = 0, inside = 0;
    int64_t wait_max_ns = wait_max_ms() * NS_PER_MS + tally->longest_queued_ns;
    int failures = 0, settled = region_settle(region);

    for (unsigned d = 0; d < DEVICES; d++) {
        left += ledger_total(region->ext, d);
        for (unsigned s = 0; s < REGION_SLOTS; s++)
            held += ledger_held(region->ext, s, d);
    }
    printf("%" PRIu64 " kills over %" PRIu64 " calls, %" PRIu64 " pictures taken, fullest %" PRIu64
           " of %d units, %d slots settled at the end\n",
           kills, tally->calls, tally->pictures, tally->fullest, LIMIT_UNITS, settled);
    for (unsigned i = 0; i < DOING_COUNT; i++)
        printf("  died %-14s %" PRIu64 "\n", doing_names[i], tally->deaths[i]);
    for (unsigned i = 0; i < LEDGER_POINT_COUNT; i++)
        inside += tally->at_point[i];
    for (unsigned i = 0; i < LEDGER_POINT_COUNT; i++)
        printf("  last point: %-14s %" PRIu64 "\n", point_names[i], tally->at_point[i]);
    printf("  of %" PRIu64 " at random moments, inside a call: %" PRIu64 "\n", tally->random_kills,
           tally->random_inside);

    failures += check(left == 0, "units left on the words", left, 0);
    failures += check(held == 0, "units left on the accounts", held, 0);
    failures += check(tally->breaches == 0, "pictures over the limit", tally->breaches, 0);
    failures += check(tally->word_breaches == 0, "words over the limit", tally->word_breaches, 0);
    failures += check(tally->pictures * 5 > kills, "pictures", tally->pictures, kills / 5);
    failures += check(tally->fullest > LIMIT_UNITS / 2, "fullest", tally->fullest, LIMIT_UNITS / 2);
    failures += check(tally->failed == 0, "processes that got no slot", tally->failed, 0);
    failures +=
        check(inside * 10 >= kills, "deaths past a point of the ledger", inside, kills / 10);
    for (unsigned i = DOING_CHARGE; i < DOING_COUNT; i++)
        failures +=
            check(tally->deaths[i] * 50 >= kills, doing_names[i], tally->deaths[i], kills / 50);
    for (unsigned i = 0; i < LEDGER_POINT_COUNT; i++)
        failures += check(tally->at_point[i] >= at_point_least(asked), point_names[i],
                          tally->at_point[i], at_point_least(asked));
    for (unsigned i = DOING_CHARGE; i < DOING_COUNT; i++) {
        printf("  %s: ", doing_names[i]);
        failures += check(tally->longest_wait_ns[i] <= wait_max_ns, "longest wait, us",
                          (uint64_t)(tally->longest_wait_ns[i] / NS_PER_US),
                          (uint64_t)(wait_max_ns / NS_PER_US));
    }
    return failures;
}

typedef void strike_fn(struct tally *tally, const char *path, uint64_t *random);

static strike_fn *const strikes[] = {strike, strike, strike_change, strike_settler};

int main(int argc, char **argv)
{
    uint64_t kills = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000;
    uint64_t random = argc > 3 ? strtoull(argv[3], NULL, 0) : (uint64_t)clock_now_ns();
    static struct region region;
    struct tally tally = {0};
    char path[256];
    struct error err;

    printf("seed %" PRIu64 "\n", random);
    snprintf(path, sizeof(path), "%s", argc > 2 ? argv[2] : "/dev/shm/kill-XXXXXX");
    if (argc <= 2)
        close(mkstemp(path));
    unlink(path);
    storm = mmap(NULL, sizeof(*storm), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(stdout);
    for (unsigned i = 0; i < WORKERS; i++)
        pids[i] = start(i, path, random + i);
    if (region_open(&region, path, &err) < 0) {
        printf("FAIL: %s\n", err.text);
        return 1;
    }
    for (unsigned turn = 0; tally.kills < kills || wants_more(&tally, kills); turn++) {
        strikes[turn % ARRAY_SIZE(strikes)](&tally, path, &random);
        look(&tally, region.ext);
    }
    for (unsigned i = 0; i < WORKERS; i++)
        (void)kill(pids[i], SIGKILL);
    for (unsigned i = 0; i < WORKERS; i++) {
        (void)waitpid(pids[i], NULL, 0);
        gather(&tally, &storm->records[i]);
    }
    unlink(path);
    return judge(&region, &tally, kills) ? 1 : 0;
}
