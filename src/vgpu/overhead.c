/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/overhead.h"

#include <time.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/util.h"
#include "region/ledger.h"
#include "vgpu/hidden.h"
#include "vgpu/usage.h"

/* Held while a first context is made. */
static pthread_mutex_t first_lock = PTHREAD_MUTEX_INITIALIZER;

void overhead_after_fork(void)
{
    (void)pthread_mutex_init(&first_lock, NULL);
    hidden_after_fork();
}

static enum vgpu_kind kind_of(enum overhead_of of)
{
    return of == OVERHEAD_CODE ? VGPU_MODULE : VGPU_CONTEXT;
}

/* What a context takes */

static _Atomic uint64_t *measured_context(const struct vgpu_device *device)
{
    return &vgpu.region.ext->devices[device->index].context_units;
}

static uint64_t context_units(const struct vgpu_device *device)
{
    uint64_t bytes = vgpu_limits()->devices[device->index].context_bytes;
    uint64_t units = bytes ? ledger_units(bytes) : atomic_load(measured_context(device));

    return MIN(units, LEDGER_UNITS_MAX);
}

static bool is_limited(const struct vgpu_device *device)
{
    return atomic_load(&device->limit_units) != LEDGER_UNITS_MAX;
}

static void say_size_unknown(const struct vgpu_device *device)
{
    vgpu_say(VGPU_WORD_CONTEXT,
             "%s: what a context takes is neither known from NVML nor by CUDA_DEVICE_CONTEXT_SIZE: "
             "it is refused",
             device->uuid);
}

/* Calls that take hidden memory */

/* Whether what a context takes is known, and by which name NVML will list us. */
static bool is_foreseen(const struct vgpu_device *device)
{
    bool known;

    if (!context_units(device))
        return false;
    hidden_lock();
    known = usage_list(device) && usage_is_named();
    hidden_unlock();
    return known;
}

/*
 * One at a time in a container, while it is not known what a context takes or who we are. Whoever
 * waited for others asks again: they may have found out, and the rest need not wait for each other.
 */
static void begin_first(struct overhead *overhead)
{
    lock_mutex(&first_lock);
    (void)region_measure(&vgpu.region);
    overhead->first = !is_foreseen(overhead->device);
    if (overhead->first)
        return;
    region_measured(&vgpu.region);
    unlock_mutex(&first_lock);
}

static void end_first(struct overhead *overhead)
{
    if (!overhead->first)
        return;
    region_measured(&vgpu.region);
    unlock_mutex(&first_lock);
}

#define REFUSED_PAUSES 50
#define REFUSED_MOST_NS (30 * NS_PER_S)

/* When code may be loaded again after some was refused. */
static _Atomic int64_t next_load_ns;

static void wait_for_load(void)
{
    int64_t left_ns;

    while ((left_ns = atomic_load(&next_load_ns) - clock_now_ns()) > 0) {
        const struct timespec pause = clock_timespec(left_ns);

        (void)nanosleep(&pause, NULL);
    }
}

static void note_refused_load(int64_t began_ns)
{
    const int64_t now_ns = clock_now_ns();

    atomic_store(&next_load_ns,
                 now_ns + MIN(REFUSED_PAUSES * (now_ns - began_ns), REFUSED_MOST_NS));
}

static bool begin_locked(struct overhead *overhead)
{
    struct vgpu_device *device = overhead->device;
    struct hidden_account *account = hidden_account(device);

    if (overhead->of == OVERHEAD_CONTEXT)
        usage_look_again();
    if (overhead->of == OVERHEAD_CONTEXT || hidden_tolerates())
        overhead->exact = hidden_settle_locked(device).by.quiet;
    if (overhead->first)
        usage_note_strangers();
    overhead->before_bytes = UINT64_MAX;
    if (!account->found)
        (void)usage_of_device(device, &overhead->before_bytes);
    if (!hidden_charge(device, kind_of(overhead->of), overhead->charged))
        return false;
    account->advance += overhead->charged;
    account->under_way++;
    overhead->begun = ++account->begun;
    return true;
}

/* A program that is refused its first context has nothing else to tell its user by. */
static void say_no_room(const struct overhead *overhead, uint64_t units)
{
    if (overhead->of == OVERHEAD_CONTEXT)
        vgpu_say(VGPU_WORD_CONTEXT,
                 "%s: a context takes %llu MiB, and the limit has no room for it",
                 overhead->device->uuid, (unsigned long long)(units * LEDGER_UNIT >> 20));
}

bool overhead_begin(struct overhead *overhead, struct vgpu_device *device, enum overhead_of of,
                    uint64_t expected)
{
    bool granted;

    *overhead = (struct overhead){.device = device, .of = of, .charged = expected};
    if (of == OVERHEAD_CONTEXT) {
        if (!is_foreseen(device))
            begin_first(overhead);
        overhead->charged = context_units(device);
    }

    if (of == OVERHEAD_CODE) {
        wait_for_load();
        overhead->began_ns = clock_now_ns();
    }
    if (lock_hold_signals()) {
        hidden_lock();
        granted = begin_locked(overhead);
        hidden_unlock();
        if (granted)
            return true;
        lock_release_signals();
    }
    vgpu_count_refusal(device, (enum region_refusal)kind_of(of));
    say_no_room(overhead, overhead->charged);
    end_first(overhead);
    return false;
}

static enum overhead_outcome refuse(struct overhead *overhead, uint64_t units)
{
    say_no_room(overhead, units);
    hidden_discharge(overhead->device, kind_of(overhead->of), overhead->charged);
    return OVERHEAD_REFUSED;
}

/* NVML names us: what it says counts. */
static enum overhead_outcome end_by_process(struct overhead *overhead,
                                            const struct hidden_measure *now, uint64_t *ret_units)
{
    struct vgpu_device *device = overhead->device;
    struct hidden_account *account = hidden_account(device);
    enum vgpu_kind kind = kind_of(overhead->of);
    uint64_t grown = hidden_growth(account, now), taken, less;
    bool alone = overhead->exact && !account->under_way && account->begun == overhead->begun;

    taken = hidden_take(device, grown);
    if (!hidden_charge(device, kind, grown)) {
        hidden_untake(device, taken);
        return refuse(overhead, overhead->charged + grown);
    }
    /* What was taken over and has gone is given back when it is settled: see hand_on(). */
    less = hidden_surplus(account, now);
    less = MIN(less - MIN(less, account->taken), overhead->charged);
    hidden_discharge(device, kind, less);
    *ret_units = overhead->charged + grown - less;
    if (!now->quiet)
        atomic_store(&hidden_moment(device)->due_ns, 0);
    if (overhead->of == OVERHEAD_CONTEXT && alone && now->quiet && *ret_units &&
        !virtual_has_imports())
        atomic_store(measured_context(device), *ret_units);
    return OVERHEAD_CHARGED;
}

/* It does not: what was charged in advance is all that is known, or else the device's total, in
 * which others' memory comes and goes. */
static enum overhead_outcome end_by_device(struct overhead *overhead, uint64_t *ret_units)
{
    struct vgpu_device *device = overhead->device;
    uint64_t before = overhead->before_bytes, after, grown = 0;

    *ret_units = overhead->charged;
    if (overhead->charged || overhead->of == OVERHEAD_HEAP)
        return OVERHEAD_CHARGED;
    if (before != UINT64_MAX && usage_of_device(device, &after))
        grown = ledger_units(after - MIN(after, before));
    if (overhead->of == OVERHEAD_CONTEXT && !grown && is_limited(device)) {
        say_size_unknown(device);
        return OVERHEAD_REFUSED;
    }
    *ret_units = grown;
    return hidden_charge(device, kind_of(overhead->of), grown) ? OVERHEAD_CHARGED
                                                               : OVERHEAD_REFUSED;
}

static enum overhead_outcome end_locked(struct overhead *overhead, bool made, uint64_t *ret_units)
{
    struct hidden_account *account = hidden_account(overhead->device);
    struct hidden_measure now;

    account->advance -= overhead->charged;
    account->under_way--;
    /* A launch that failed may have made the stack grow. */
    if (!made && !(overhead->of == OVERHEAD_HEAP && account->found)) {
        hidden_discharge(overhead->device, kind_of(overhead->of), overhead->charged);
        return OVERHEAD_NOTHING;
    }

    now = hidden_measure(overhead->device);
    if (overhead->first && !now.listed) {
        usage_learn_name();
        now = hidden_measure(overhead->device);
    }
    return now.listed ? end_by_process(overhead, &now, ret_units)
                      : end_by_device(overhead, ret_units);
}

enum overhead_outcome overhead_end(struct overhead *overhead, bool made, uint64_t *ret_units)
{
    enum overhead_outcome outcome;

    *ret_units = 0;
    lock_hold_faults();
    hidden_lock();
    outcome = end_locked(overhead, made, ret_units);
    overhead->refused = outcome == OVERHEAD_REFUSED;
    hidden_account(overhead->device)->under_way += overhead->refused;
    hidden_unlock();
    if (!overhead->refused)
        lock_release_signals();
    end_first(overhead);
    if (overhead->refused)
        vgpu_count_refusal(overhead->device, (enum region_refusal)kind_of(overhead->of));
    if (outcome != OVERHEAD_CHARGED)
        *ret_units = 0;
    return outcome;
}

static bool adopt_locked(struct vgpu_device *device, uint64_t *ret_units)
{
    struct hidden_settled settled = hidden_settle_growth(device, VGPU_CONTEXT);

    *ret_units = settled.grown;
    hidden_give_back(device, settled.surplus);
    if (settled.by.listed)
        return true;
    *ret_units = context_units(device);
    if (*ret_units)
        hidden_charge_anyway(device, VGPU_CONTEXT, *ret_units);
    else if (is_limited(device))
        say_size_unknown(device);
    return *ret_units || !is_limited(device);
}

bool overhead_adopt(struct vgpu_device *device, uint64_t *ret_units)
{
    bool known;

    hidden_lock();
    known = adopt_locked(device, ret_units);
    hidden_unlock();
    return known;
}

static void gone_locked(struct vgpu_device *device, uint64_t context_units, uint64_t code_units)
{
    struct hidden_settled settled;
    uint64_t of_context;

    settled = hidden_settle_growth(device, VGPU_MODULE);
    if (settled.by.found && !hidden_tolerates()) {
        of_context = MIN(context_units, settled.surplus);
        hidden_discharge(device, VGPU_CONTEXT, of_context);
        hidden_give_back(device, settled.surplus - of_context);
    } else {
        hidden_discharge(device, VGPU_CONTEXT, context_units);
        hidden_discharge(device, VGPU_MODULE, code_units);
    }
}

void overhead_gone(struct vgpu_device *device, uint64_t context_units, uint64_t code_units)
{
    hidden_lock();
    gone_locked(device, context_units, code_units);
    hidden_unlock();
}

void overhead_undone(const struct overhead *overhead, uint64_t units)
{
    hidden_lock();
    hidden_account(overhead->device)->under_way -= overhead->refused;
    gone_locked(overhead->device, units, 0);
    hidden_unlock();
    if (!overhead->refused)
        return;
    if (overhead->of == OVERHEAD_CODE)
        note_refused_load(overhead->began_ns);
    lock_release_signals();
}
