/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/hidden.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/lock.h"
#include "region/ledger.h"
#include "region/orphans.h"
#include "vgpu/compute.h"
#include "vgpu/contexts.h"
#include "vgpu/given.h"
#include "vgpu/pools.h"
#include "vgpu/real.h"
#include "vgpu/usage.h"

#define SETTLE_NS NS_PER_S
#define SOON_NS (100 * NS_PER_MS)
#define QUIET_PAUSE_NS (100 * NS_PER_US)
#define DYING_NS (2 * NS_PER_S) /* from a death that NVML knows of to the end of its locks */

enum {
    ATTEMPTS = 4, /* to measure while nothing moves */
};

struct hidden_moment hidden_moments[REGION_DEVICES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hidden_account accounts[REGION_DEVICES];

void hidden_after_fork(void)
{
    (void)pthread_mutex_init(&lock, NULL);
    memset(accounts, 0, sizeof(accounts));
    usage_after_fork();
    for (unsigned i = 0; i < REGION_DEVICES; i++) {
        atomic_store(&hidden_moments[i].moving, 0);
        atomic_store(&hidden_moments[i].due_ns, 0);
        atomic_store(&hidden_moments[i].again_ns, 0);
    }
}

void hidden_lock(void)
{
    lock_mutex(&lock);
}

void hidden_unlock(void)
{
    unlock_mutex(&lock);
}

struct hidden_account *hidden_account(const struct vgpu_device *device)
{
    return &accounts[device - vgpu.devices];
}

static uint64_t kept_units(const struct hidden_account *account)
{
    return given_units((unsigned)(account - accounts));
}

/* Of what this process has let go of, what others may have still. */
static uint64_t still_held(const struct hidden_account *account)
{
    return kept_units(account) + account->left;
}

/* All who may have what this process let go of were charged for it since, or there is nobody. */
static bool is_taken_over(const struct vgpu_device *device, const struct hidden_account *account)
{
    return orphans_all_have_seen(vgpu.region.ext, device->index, account->since, vgpu.region.slot);
}

/* What was let go of before the round under way began, once that was seen; then the next one. It
 * may be held in this process yet. */
static void let_go(struct vgpu_device *device)
{
    struct hidden_account *account = hidden_account(device);

    while (account->left) {
        if (!account->waiting) {
            account->since = orphans_begin_round(vgpu.region.ext, device->index);
            account->waiting = account->left;
        }
        if (!is_taken_over(device, account))
            return;
        account->left -= account->waiting;
        account->held += account->waiting;
        vgpu_lend(device, -(int64_t)account->waiting);
        account->waiting = 0;
    }
}

static uint64_t total_of(const struct hidden_account *account)
{
    return account->units[VGPU_CONTEXT] + account->units[VGPU_MODULE];
}

/* Measuring, with the lock held */

/* Changes with every charge and discharge of this process. */
static uint64_t account_word(const struct vgpu_device *device)
{
    return atomic_load(&vgpu.region.ext->slots[vgpu.region.slot].accounts[device->index].used);
}

/*
 * An allocation that is charged and not yet made, or given back and not yet discharged, makes the
 * difference too small, never too large, as long as nothing is charged or discharged in between.
 */
static bool measure_once(const struct vgpu_device *device, struct hidden_measure *measure)
{
    unsigned moving = atomic_load(&hidden_moment(device)->moving);
    uint64_t word = account_word(device), used = 0, held, allocated;
    int64_t before = pools_surplus(device), after;

    measure->found = usage_list(device) && usage_of_self(device, &used, &measure->listed);
    hidden_account(device)->found = measure->listed;
    if (!measure->found)
        return true;
    held = ledger_held(vgpu.region.ext, (unsigned)vgpu.region.slot, device->index);
    if (account_word(device) != word)
        return false;
    allocated = total_of(hidden_account(device)) + atomic_load(&device->managed_units);
    allocated = held - MIN(held, allocated);
    /* A pool that shrank is charged more than it has until it is looked at. */
    after = pools_surplus(device);
    allocated = (uint64_t)MAX((int64_t)allocated - MIN(before, after), INT64_C(0));
    used = ledger_units(used);
    measure->units = used - MIN(used, allocated);
    measure->quiet = !moving && before == after && !atomic_load(&hidden_moment(device)->moving);
    return true;
}

static struct hidden_measure measure_locked(struct vgpu_device *device)
{
    struct hidden_measure measure = {0};

    for (unsigned i = 0; i < ATTEMPTS; i++) {
        if (measure_once(device, &measure))
            return measure;
    }
    /* Threads allocate all the time: for once they wait. */
    lock_mutex(&device->lock);
    (void)measure_once(device, &measure);
    unlock_mutex(&device->lock);
    return measure;
}

struct hidden_measure hidden_measure(struct vgpu_device *device)
{
    struct real_relaxed relaxed = real_relax();
    struct hidden_measure measure;

    pools_lock();
    measure = measure_locked(device);
    pools_unlock();
    real_end_relaxed(&relaxed);
    return measure;
}

/* Charging, with the lock held */

uint64_t hidden_take(struct vgpu_device *device, uint64_t units)
{
    if (!virtual_has_imports_on(device))
        return 0;
    hidden_account(device)->taken += units;
    vgpu_lend(device, (int64_t)units);
    return units;
}

void hidden_untake(struct vgpu_device *device, uint64_t taken)
{
    hidden_account(device)->taken -= taken;
    vgpu_lend(device, -(int64_t)taken);
}

bool hidden_charge(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    if (units && !vgpu_try_charge(device, kind, units))
        return false;
    hidden_account(device)->units[kind] += units;
    return true;
}

void hidden_discharge(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    units = MIN(units, hidden_account(device)->units[kind]);
    if (units)
        vgpu_discharge(device, kind, units);
    hidden_account(device)->units[kind] -= units;
}

bool hidden_is_exceeded(const struct vgpu_device *device)
{
    uint64_t limit = atomic_load(&device->limit_units);

    return ledger_total(vgpu.region.ext, device->index) > limit &&
           vgpu_used_bytes(device->index) / LEDGER_UNIT > limit;
}

static void say_exceeded(const struct vgpu_device *device, uint64_t units)
{
    vgpu_say(
        VGPU_WORD_HIDDEN,
        "%s: the driver took %llu MiB for code, stacks, heaps or streams; with them the limit is "
        "exceeded, and no more memory is given until some is freed",
        device->uuid, (unsigned long long)(units * LEDGER_UNIT >> 20));
}

void hidden_charge_anyway(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    struct hidden_account *account = hidden_account(device);

    vgpu_charge_anyway(device, kind, units);
    account->units[kind] += units;
    if (!hidden_is_exceeded(device))
        return;
    if (region_is_alone(&vgpu.region) && !orphans_units(vgpu.region.ext, device->index)) {
        say_exceeded(device, units);
        return;
    }
    account->exceeding = units;
    account->exceeding_ns = clock_coarse_ns() + DYING_NS;
}

static void look_at_excess(struct vgpu_device *device, int64_t now_ns)
{
    struct hidden_account *account = hidden_account(device);

    if (!account->exceeding || now_ns < account->exceeding_ns)
        return;
    if (hidden_is_exceeded(device))
        say_exceeded(device, account->exceeding);
    account->exceeding = 0;
}

void hidden_give_back(struct vgpu_device *device, uint64_t units)
{
    struct hidden_account *account = hidden_account(device);
    uint64_t code = MIN(units, account->units[VGPU_MODULE]);

    account->held -= MIN(units, account->held);
    hidden_discharge(device, VGPU_MODULE, code);
    hidden_discharge(device, VGPU_CONTEXT, units - code);
    if (units)
        atomic_fetch_add(&hidden_moment(device)->returns, 1);
}

uint64_t hidden_surplus(const struct hidden_account *account, const struct hidden_measure *measure)
{
    /* What others may have taken over is not gone because it is not ours. Nor is what we took over,
     * where NVML does not list us any more. */
    uint64_t needed = measure->units + account->advance + still_held(account);

    if (!measure->found || !measure->quiet)
        return 0;
    if (!measure->listed && virtual_has_imports())
        needed += account->taken;
    return total_of(account) - MIN(total_of(account), needed);
}

uint64_t hidden_growth(const struct hidden_account *account, const struct hidden_measure *measure)
{
    uint64_t known = total_of(account) + account->tolerated;
    uint64_t needed = measure->units + still_held(account);

    if (!measure->found)
        return 0;
    return needed - MIN(needed, known);
}

/*
 * What was taken over and is not there any more may be another's now, who was charged nothing for
 * it: it is let go of as our own memory is. Returns what is charged too much then.
 */
static uint64_t hand_on(struct vgpu_device *device, const struct hidden_measure *measure)
{
    struct hidden_account *account = hidden_account(device);
    uint64_t units = MIN(hidden_surplus(account, measure), account->taken);

    account->taken -= units;
    account->left += units;
    let_go(device);
    return hidden_surplus(account, measure);
}

/* Whether all that this process holds of others' is charged to it now. While a descriptor of it is
 * open NVML counts it for nobody. */
static bool has_taken_over(const struct vgpu_device *device, const struct hidden_measure *measure)
{
    return measure->listed && measure->quiet && !hidden_tolerates() &&
           !hidden_growth(hidden_account(device), measure) && !given_is_open(given_imported());
}

/* Notes the round that was under way before NVML was asked. True when others may wait for that. */
static bool note_round(const struct vgpu_device *device, uint32_t round,
                       const struct hidden_measure *measure)
{
    struct region_ext *ext = vgpu.region.ext;
    const unsigned slot = (unsigned)vgpu.region.slot;

    if (orphans_has_seen(ext, slot, device->index, round) || !has_taken_over(device, measure))
        return false;
    orphans_note_seen(ext, slot, device->index, round);
    return virtual_has_imports();
}

bool hidden_tolerates(void)
{
    return atomic_load_explicit(&vgpu.allow_unaccounted, memory_order_relaxed);
}

/* Due at this time, unless it is before: what another thread made due meanwhile stays so. */
static void make_due_by(struct hidden_moment *moment, int64_t at_ns)
{
    int64_t due_ns = atomic_load_explicit(&moment->due_ns, memory_order_relaxed);

    while (due_ns > at_ns && !atomic_compare_exchange_weak(&moment->due_ns, &due_ns, at_ns))
        ;
}

/*
 * What has grown may be a call's that is under way, which undoes what exceeds the limit: but only
 * if it finds it. So it is left to that call, and meanwhile all that the limit has room for is
 * charged.
 */
static void charge_meanwhile(struct vgpu_device *device, uint64_t units)
{
    uint64_t limit = atomic_load(&device->limit_units);
    uint64_t used = vgpu_used_bytes(device->index) / LEDGER_UNIT;
    uint64_t room = limit == LEDGER_UNITS_MAX ? units : limit - MIN(limit, used);

    if (!hidden_charge(device, VGPU_MODULE, MIN(units, room)) || room < units)
        make_due_by(hidden_moment(device), clock_coarse_ns() + SOON_NS);
}

static void charge_growth(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    if (!units)
        return;
    if (kind == VGPU_MODULE && hidden_account(device)->under_way)
        charge_meanwhile(device, units);
    else
        hidden_charge_anyway(device, kind, units);
}

struct hidden_settled hidden_settle_growth(struct vgpu_device *device, enum vgpu_kind kind)
{
    struct hidden_moment *moment = hidden_moment(device);
    struct hidden_account *account = hidden_account(device);
    int64_t now_ns = clock_coarse_ns();
    const uint32_t round = orphans_round(vgpu.region.ext, device->index);
    struct hidden_settled settled;

    /* First: whatever comes while we measure makes it due again. */
    atomic_store(&moment->due_ns, now_ns + SETTLE_NS);
    atomic_store(&moment->again_ns, now_ns + SOON_NS);
    look_at_excess(device, now_ns);
    if (kept_units(account))
        account->left += given_look((unsigned)(device - vgpu.devices));
    let_go(device);
    settled.by = hidden_measure(device);
    account->tolerated = 0;
    settled.grown = hidden_growth(account, &settled.by);
    if (hidden_tolerates()) {
        account->tolerated = settled.grown;
        settled.grown = 0;
    }
    (void)hidden_take(device, settled.grown);
    charge_growth(device, kind, settled.grown);
    settled.seen = note_round(device, round, &settled.by);
    settled.surplus = hidden_tolerates() ? 0 : hand_on(device, &settled.by);
    if (settled.by.found && !settled.by.quiet)
        make_due_by(moment, now_ns + SOON_NS);
    return settled;
}

struct hidden_settled hidden_settle_locked(struct vgpu_device *device)
{
    struct hidden_settled settled = hidden_settle_growth(device, VGPU_MODULE);

    hidden_give_back(device, settled.surplus);
    return settled;
}

bool hidden_settle(struct vgpu_device *device)
{
    struct hidden_settled settled;

    hidden_lock();
    settled = hidden_settle_locked(device);
    hidden_unlock();
    return settled.surplus > 0 || settled.seen;
}

bool hidden_settle_refused(struct vgpu_device *device)
{
    const struct timespec pause = {.tv_nsec = QUIET_PAUSE_NS};
    struct hidden_settled settled;
    bool moves;

    hidden_lock();
    settled = hidden_settle_locked(device);
    hidden_unlock();
    moves = settled.by.found && !settled.by.quiet && hidden_is_left(device);
    if (moves)
        (void)nanosleep(&pause, NULL);
    return moves || settled.surplus > 0 || settled.seen;
}

bool hidden_is_full(struct vgpu_device *device)
{
    if (!hidden_is_exceeded(device))
        return false;
    (void)hidden_settle(device);
    return hidden_is_exceeded(device);
}

uint64_t hidden_settled_units(struct vgpu_device *device)
{
    uint64_t units;

    hidden_lock();
    (void)hidden_settle_locked(device);
    units = total_of(hidden_account(device));
    hidden_unlock();
    return units;
}

/* What others may have is lent until it is let go of. */
static void hide(struct vgpu_device *device, uint64_t units, bool lent, uint64_t *of)
{
    hidden_lock();
    if (lent)
        vgpu_lend(device, (int64_t)units);
    vgpu_recharge(device, VGPU_DATA, VGPU_MODULE, units);
    hidden_account(device)->units[VGPU_MODULE] += units;
    if (of)
        *of += units;
    (void)hidden_settle_locked(device);
    hidden_unlock();
}

void hidden_left(struct vgpu_device *device, uint64_t units)
{
    hide(device, units, true, &hidden_account(device)->left);
    if (hidden_waits())
        (void)watch_start();
}

void hidden_kept(struct vgpu_device *device, uint64_t units)
{
    hide(device, units, true, NULL);
    if (hidden_waits())
        (void)watch_start();
}

void hidden_held(struct vgpu_device *device, uint64_t units)
{
    hide(device, units, false, &hidden_account(device)->held);
}

bool hidden_is_left(const struct vgpu_device *device)
{
    const struct hidden_account *account = hidden_account(device);

    return account->left || kept_units(account) || account->held;
}

bool hidden_waits(void)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (accounts[i].left || kept_units(&accounts[i]))
            return true;
    }
    return false;
}

void hidden_look(struct vgpu_device *device)
{
    (void)pools_settle(device);
    if (hidden_is_left(device))
        (void)hidden_settle(device);
    else if (clock_coarse_ns() >= atomic_load(&hidden_moment(device)->due_ns))
        hidden_settle_due(device);
}

void hidden_settle_due(struct vgpu_device *device)
{
    hidden_lock();
    if (clock_coarse_ns() >= atomic_load(&hidden_moment(device)->due_ns))
        (void)hidden_settle_locked(device);
    hidden_unlock();
}

/* Others wait until we were charged for what we hold of theirs, or we for others. */
static bool is_waited_for(const struct vgpu_device *device)
{
    const struct region_ext *ext = vgpu.region.ext;
    const struct hidden_account *account = hidden_account(device);

    if (account->waiting && is_taken_over(device, account))
        return true;
    return virtual_has_imports() && account->found &&
           !orphans_has_seen(ext, (unsigned)vgpu.region.slot, device->index,
                             orphans_round(ext, device->index));
}

void hidden_tick(void)
{
    if (vgpu_mode() != VGPU_ON || (atomic_load(&contexts_live) == 0 && !hidden_waits()))
        return;
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (!vgpu.devices[i].granted)
            continue;
        if (is_waited_for(&vgpu.devices[i]))
            make_due_by(&hidden_moments[i], atomic_load(&hidden_moments[i].again_ns));
        if (clock_coarse_ns() >= atomic_load(&hidden_moments[i].due_ns)) {
            (void)pools_settle(&vgpu.devices[i]);
            hidden_settle_due(&vgpu.devices[i]);
        }
    }
}

void hidden_make_due_soon(void)
{
    int64_t soon_ns = clock_coarse_ns() + SOON_NS;

    for (unsigned i = 0; i < vgpu.device_count; i++)
        make_due_by(&hidden_moments[i], soon_ns);
}

void hidden_look_soon(void)
{
    if (vgpu_mode() != VGPU_ON)
        return;
    hidden_make_due_soon();
    (void)watch_start();
}

void hidden_make_due(void)
{
    for (unsigned i = 0; i < vgpu.device_count; i++)
        atomic_store_explicit(&hidden_moments[i].due_ns, 0, memory_order_relaxed);
}
