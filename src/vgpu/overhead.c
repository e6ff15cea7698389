/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/overhead.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "region/ledger.h"
#include "vgpu/allocations.h"
#include "vgpu/compute.h"
#include "vgpu/contexts.h"
#include "vgpu/pools.h"
#include "vgpu/real.h"

#define SETTLE_NS NS_PER_S
#define SOON_NS (100 * NS_PER_MS)
#define DYING_NS (2 * NS_PER_S)        /* from a death that NVML knows of to the end of its locks */
#define HOST_PID_NAMESPACE 0xEFFFFFFCu /* its inode number, the same on every Linux */

enum {
    LISTED = 1024, /* of a device's processes */
    ATTEMPTS = 4,  /* to measure while nothing moves */
};

struct overhead_moment overhead_moments[REGION_DEVICES];

/* This process' hidden memory on a device, as it is charged. */
struct account {
    uint64_t units[VGPU_MODULE + 1]; /* by kind */
    uint64_t advance;                /* of it, for calls that are under way */
    unsigned under_way;
    unsigned begun;     /* calls, ever */
    uint64_t tolerated; /* not charged: of calls that are let pass */
    uint64_t left;      /* of what is charged: of allocations that others may hold */
    uint64_t held;      /* the same: that something in this process may hold */
    bool found;         /* by NVML, when it was last asked */
    uint64_t exceeding; /* charged beyond the limit, and not yet said; looked at again then: */
    int64_t exceeding_ns;
};

/* The lock is held over questions to NVML, and to the driver how large its pools are; never over
 * another call of the driver's. */
static struct {
    pthread_mutex_t lock;
    struct account accounts[REGION_DEVICES];
    nvmlProcessInfo_v2_t infos[LISTED]; /* NVML's last answer */
    unsigned count;
    unsigned pid; /* by which NVML knows us, where it was learned; 0: not */
} hidden = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Held while a first context is made: the processes that were there before. */
static struct {
    pthread_mutex_t lock;
    unsigned pids[LISTED];
    unsigned count;
} strangers = {.lock = PTHREAD_MUTEX_INITIALIZER};

_Atomic uint64_t overhead_launched_sets[OVERHEAD_SETS][OVERHEAD_WAYS];

void overhead_after_fork(void)
{
    (void)pthread_mutex_init(&hidden.lock, NULL);
    (void)pthread_mutex_init(&strangers.lock, NULL);
    memset(hidden.accounts, 0, sizeof(hidden.accounts));
    hidden.pid = 0;
    for (unsigned i = 0; i < REGION_DEVICES; i++) {
        atomic_store(&overhead_moments[i].moving, 0);
        atomic_store(&overhead_moments[i].due_ns, 0);
        atomic_store(&overhead_moments[i].again_ns, 0);
    }
}

static struct account *account_of(const struct vgpu_device *device)
{
    return &hidden.accounts[device - vgpu.devices];
}

static uint64_t total_of(const struct account *account)
{
    return account->units[VGPU_CONTEXT] + account->units[VGPU_MODULE];
}

/* Asking NVML */

/* Where there is no NVML it is looked for again only when a context is made. */
static bool no_nvml;

static bool nvml_device(const struct vgpu_device *device, nvmlDevice_t *ret_handle)
{
    static bool initialised;

    if (no_nvml)
        return false;
    no_nvml = !real_nvml() || !REAL(nvmlDeviceGetHandleByUUID) || !REAL(nvmlInit_v2);
    if (!initialised && !no_nvml)
        initialised = REAL(nvmlInit_v2)() == NVML_SUCCESS;
    return initialised && REAL(nvmlDeviceGetHandleByUUID)(device->uuid, ret_handle) == NVML_SUCCESS;
}

static bool list_processes(const struct vgpu_device *device)
{
    unsigned int count = LISTED;
    nvmlDevice_t handle;

    hidden.count = 0;
    if (!nvml_device(device, &handle) || !REAL(nvmlDeviceGetComputeRunningProcesses_v3) ||
        REAL(nvmlDeviceGetComputeRunningProcesses_v3)(handle, &count, hidden.infos) != NVML_SUCCESS)
        return false;
    hidden.count = MIN(count, (unsigned)LISTED);
    return true;
}

static bool device_used(const struct vgpu_device *device, uint64_t *ret_bytes)
{
    nvmlDevice_t handle;
    nvmlMemory_t memory;

    if (!nvml_device(device, &handle) || !REAL(nvmlDeviceGetMemoryInfo) ||
        REAL(nvmlDeviceGetMemoryInfo)(handle, &memory) != NVML_SUCCESS)
        return false;
    *ret_bytes = memory.used;
    return true;
}

static const nvmlProcessInfo_v2_t *listed(unsigned pid)
{
    for (unsigned i = 0; pid && i < hidden.count; i++) {
        if (hidden.infos[i].pid == pid)
            return &hidden.infos[i];
    }
    return NULL;
}

/* Then NVML lists by the pids of our namespace, and leaves others out. */
static bool all_are_ours(void)
{
    for (unsigned i = 0; i < hidden.count; i++) {
        if (kill((pid_t)hidden.infos[i].pid, 0) < 0 && errno == ESRCH)
            return false;
    }
    return true;
}

static unsigned own_pid(void)
{
    return (unsigned)syscall(SYS_getpid);
}

/* By which pid the last list names us, for sure; 0 when that is not known. */
static unsigned name_in_list(void)
{
    if (hidden.pid)
        return hidden.pid;
    if (vgpu.region.self.pid_namespace == HOST_PID_NAMESPACE || all_are_ours())
        return own_pid();
    return (unsigned)atomic_load(&vgpu.region.base->slots[vgpu.region.slot].host_pid);
}

/* What the last list says of this process; false when it does not say so for sure. */
static bool used_by_us(uint64_t *ret_bytes, bool *ret_listed)
{
    unsigned pid = name_in_list();
    const nvmlProcessInfo_v2_t *info = listed(pid);

    *ret_listed = info != NULL;
    *ret_bytes = 0;
    if (!pid || (info && info->usedGpuMemory == NVML_VALUE_NOT_AVAILABLE_ULL))
        return false;
    if (info)
        *ret_bytes = info->usedGpuMemory;
    /* Whoever has no context is not listed; whoever has one, and is not, is listed elsewhere. */
    return info || atomic_load(&contexts_live) == 0;
}

/* The one that has come since the strangers were noted, if it is one. */
static void learn_pid(void)
{
    unsigned news = 0, pid = 0;

    for (unsigned i = 0; i < hidden.count; i++) {
        bool known = false;

        for (unsigned k = 0; k < strangers.count && !known; k++)
            known = strangers.pids[k] == hidden.infos[i].pid;
        if (known)
            continue;
        news++;
        pid = hidden.infos[i].pid;
    }
    if (news == 1)
        hidden.pid = pid;
}

static void note_strangers(void)
{
    strangers.count = hidden.count;
    for (unsigned i = 0; i < hidden.count; i++)
        strangers.pids[i] = hidden.infos[i].pid;
}

/* Measuring, with the lock held */

/* Changes with every charge and discharge of this process. */
static uint64_t account_word(const struct vgpu_device *device)
{
    return atomic_load(&vgpu.region.ext->slots[vgpu.region.slot].accounts[device->index].used);
}

struct measure {
    bool found;     /* this process, or for sure that it has nothing */
    bool listed;    /* by name */
    bool quiet;     /* no allocation was on its way in or out: nothing is hidden by one */
    uint64_t units; /* hidden, at least */
};

/*
 * An allocation that is charged and not yet made, or given back and not yet discharged, makes the
 * difference too small, never too large, as long as nothing is charged or discharged in between.
 */
static bool measure_once(const struct vgpu_device *device, struct measure *measure)
{
    unsigned moving = atomic_load(&overhead_moment(device)->moving);
    uint64_t word = account_word(device), used = 0, held, allocated;
    int64_t before = pools_surplus(device), after;

    measure->found = list_processes(device) && used_by_us(&used, &measure->listed);
    account_of(device)->found = measure->listed;
    if (!measure->found)
        return true;
    held = ledger_held(vgpu.region.ext, (unsigned)vgpu.region.slot, device->index);
    if (account_word(device) != word)
        return false;
    allocated = total_of(account_of(device)) + atomic_load(&device->managed_units);
    allocated = held - MIN(held, allocated);
    /* A pool that shrank is charged more than it has until it is looked at. */
    after = pools_surplus(device);
    allocated = (uint64_t)MAX((int64_t)allocated - MIN(before, after), INT64_C(0));
    used = ledger_units(used);
    measure->units = used - MIN(used, allocated);
    measure->quiet = !moving && before == after && !atomic_load(&overhead_moment(device)->moving);
    return true;
}

static struct measure measure_locked(struct vgpu_device *device)
{
    struct measure measure = {0};

    for (unsigned i = 0; i < ATTEMPTS; i++) {
        if (measure_once(device, &measure))
            return measure;
    }
    /* Threads allocate all the time: for once they wait. */
    (void)pthread_mutex_lock(&device->lock);
    (void)measure_once(device, &measure);
    (void)pthread_mutex_unlock(&device->lock);
    return measure;
}

static struct measure measure(struct vgpu_device *device)
{
    struct measure measure;

    pools_lock();
    measure = measure_locked(device);
    pools_unlock();
    return measure;
}

/* Charging, with the lock held */

static enum vgpu_kind kind_of(enum overhead_of of)
{
    return of == OVERHEAD_CODE ? VGPU_MODULE : VGPU_CONTEXT;
}

static bool charge(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    if (units && !vgpu_charge(device, kind, units))
        return false;
    account_of(device)->units[kind] += units;
    return true;
}

static void discharge(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    units = MIN(units, account_of(device)->units[kind]);
    if (units)
        vgpu_discharge(device, kind, units);
    account_of(device)->units[kind] -= units;
}

static bool is_exceeded(const struct vgpu_device *device)
{
    uint64_t limit = atomic_load(&device->limit_units);

    return ledger_total(vgpu.region.ext, device->index) > limit &&
           vgpu_used_bytes(device->index) / LEDGER_UNIT > limit;
}

static void say_exceeded(const struct vgpu_device *device, uint64_t units)
{
    vgpu_say(VGPU_WORD_HIDDEN,
             "%s: the driver took %llu MiB for code, stacks or heaps; with them the limit is "
             "exceeded, and no more memory is given until some is freed",
             device->uuid, (unsigned long long)(units * LEDGER_UNIT >> 20));
}

/*
 * It is there, whatever the limit. What was another process', which died, may still be charged to
 * that one, and NVML may know of its death before its locks are gone: then it is looked at once
 * more before a word is said.
 */
static void charge_anyway(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    struct account *account = account_of(device);

    vgpu_charge_anyway(device, kind, units);
    account->units[kind] += units;
    if (!is_exceeded(device))
        return;
    if (region_is_alone(&vgpu.region)) {
        say_exceeded(device, units);
        return;
    }
    account->exceeding = units;
    account->exceeding_ns = clock_coarse_ns() + DYING_NS;
}

static void look_at_excess(struct vgpu_device *device, int64_t now_ns)
{
    struct account *account = account_of(device);

    if (!account->exceeding || now_ns < account->exceeding_ns)
        return;
    if (is_exceeded(device))
        say_exceeded(device, account->exceeding);
    account->exceeding = 0;
}

/* Any kind: of what is charged for code first. */
static void give_back(struct vgpu_device *device, uint64_t units)
{
    uint64_t code = MIN(units, account_of(device)->units[VGPU_MODULE]);

    /* While others may have it, what is given back is beyond it: see surplus(). */
    if (account_of(device)->left && !virtual_others_import())
        account_of(device)->left -= MIN(units, account_of(device)->left);
    account_of(device)->held -= MIN(units, account_of(device)->held);
    discharge(device, VGPU_MODULE, code);
    discharge(device, VGPU_CONTEXT, units - code);
}

/* What is charged and not there, leaving what calls under way have in advance; 0 while it can't be
 * told. */
static uint64_t surplus(const struct account *account, const struct measure *measure)
{
    uint64_t needed = measure->units + account->advance;

    if (!measure->found || !measure->quiet)
        return 0;
    /* What others may have taken over is not gone because it is not ours. */
    if (account->left && virtual_others_import())
        needed += account->left;
    return total_of(account) - MIN(total_of(account), needed);
}

static uint64_t growth(const struct account *account, const struct measure *measure)
{
    uint64_t known = total_of(account) + account->tolerated;

    if (!measure->found)
        return 0;
    return measure->units - MIN(measure->units, known);
}

static bool tolerates(void)
{
    return atomic_load_explicit(&vgpu.allow_unaccounted, memory_order_relaxed);
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

    if (!charge(device, VGPU_MODULE, MIN(units, room)) || room < units)
        atomic_store(&overhead_moment(device)->due_ns, clock_coarse_ns() + SOON_NS);
}

static void charge_growth(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    if (!units)
        return;
    if (kind == VGPU_MODULE && account_of(device)->under_way)
        charge_meanwhile(device, units);
    else
        charge_anyway(device, kind, units);
}

struct settled {
    struct measure by;
    uint64_t grown;   /* charged as of the kind; of code, as far as charge_growth() says */
    uint64_t surplus; /* still charged: to be given back */
};

static struct settled settle_growth(struct vgpu_device *device, enum vgpu_kind kind)
{
    struct overhead_moment *moment = overhead_moment(device);
    struct account *account = account_of(device);
    int64_t now_ns = clock_coarse_ns();
    struct settled settled;

    /* First: whatever comes while we measure makes it due again. */
    atomic_store(&moment->due_ns, now_ns + SETTLE_NS);
    atomic_store(&moment->again_ns, now_ns + SOON_NS);
    look_at_excess(device, now_ns);
    settled.by = measure(device);
    account->tolerated = 0;
    settled.grown = growth(account, &settled.by);
    if (tolerates()) {
        account->tolerated = settled.grown;
        settled.grown = 0;
    }
    charge_growth(device, kind, settled.grown);
    settled.surplus = tolerates() ? 0 : surplus(account, &settled.by);
    if (settled.by.found && !settled.by.quiet)
        atomic_store(&moment->due_ns, now_ns + SOON_NS);
    return settled;
}

static struct settled settle(struct vgpu_device *device)
{
    struct settled settled = settle_growth(device, VGPU_MODULE);

    give_back(device, settled.surplus);
    return settled;
}

bool overhead_settle(struct vgpu_device *device)
{
    struct settled settled;

    (void)pthread_mutex_lock(&hidden.lock);
    settled = settle(device);
    (void)pthread_mutex_unlock(&hidden.lock);
    return settled.surplus > 0;
}

static void hide(struct vgpu_device *device, uint64_t left, uint64_t held)
{
    uint64_t units = left + held;

    (void)pthread_mutex_lock(&hidden.lock);
    vgpu_recharge(device, VGPU_DATA, VGPU_MODULE, units);
    account_of(device)->units[VGPU_MODULE] += units;
    account_of(device)->left += left;
    account_of(device)->held += held;
    (void)settle(device);
    (void)pthread_mutex_unlock(&hidden.lock);
}

void overhead_left(struct vgpu_device *device, uint64_t units)
{
    hide(device, units, 0);
}

void overhead_held(struct vgpu_device *device, uint64_t units)
{
    hide(device, 0, units);
}

bool overhead_is_left(const struct vgpu_device *device)
{
    return account_of(device)->left > 0 || account_of(device)->held > 0;
}

void overhead_look(struct vgpu_device *device)
{
    (void)pools_settle(device);
    if (overhead_is_left(device))
        (void)overhead_settle(device);
    else if (clock_coarse_ns() >= atomic_load(&overhead_moment(device)->due_ns))
        overhead_settle_due(device);
}

void overhead_settle_due(struct vgpu_device *device)
{
    (void)pthread_mutex_lock(&hidden.lock);
    if (clock_coarse_ns() >= atomic_load(&overhead_moment(device)->due_ns))
        (void)settle(device);
    (void)pthread_mutex_unlock(&hidden.lock);
}

void overhead_tick(void)
{
    if (vgpu_mode() != VGPU_ON || atomic_load(&contexts_live) == 0)
        return;
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (vgpu.devices[i].granted &&
            clock_coarse_ns() >= atomic_load(&overhead_moments[i].due_ns)) {
            (void)pools_settle(&vgpu.devices[i]);
            overhead_settle_due(&vgpu.devices[i]);
        }
    }
}

void overhead_make_due(void)
{
    for (unsigned i = 0; i < vgpu.device_count; i++)
        atomic_store_explicit(&overhead_moments[i].due_ns, 0, memory_order_relaxed);
}

/* Functions: code is loaded as late as at its first launch. */

void overhead_new_function(void)
{
    overhead_make_due();
}

/* A full set gives up one of its functions, which is new then once more. */
void overhead_launched(const void *function, CUcontext context, bool success)
{
    const uint64_t key = overhead_launched_key(function, context);
    _Atomic uint64_t *set = overhead_launched_set(key);
    static _Atomic unsigned next;
    unsigned way = 0;

    if (overhead_was_launched(function, context))
        return;
    /* A launch that fails may load code, too; but what it named may be no function any more, or
     * yet. */
    if (!success) {
        overhead_make_due();
        return;
    }
    while (way < OVERHEAD_WAYS && atomic_load_explicit(&set[way], memory_order_relaxed))
        way++;
    if (way == OVERHEAD_WAYS)
        way = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % OVERHEAD_WAYS;
    atomic_store_explicit(&set[way], key, memory_order_relaxed);
    overhead_make_due();
}

/* The driver may give their handles to others. */
void overhead_forget_functions(void)
{
    for (unsigned i = 0; i < OVERHEAD_SETS; i++) {
        for (unsigned j = 0; j < OVERHEAD_WAYS; j++)
            atomic_store_explicit(&overhead_launched_sets[i][j], 0, memory_order_relaxed);
    }
    atomic_fetch_add(&contexts_epoch_now, 1); /* what threads remember of them, too */
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
             "%s: what a context takes can't be measured here (no NVML, or it does not name this "
             "process) and the limits don't say it (CUDA_DEVICE_CONTEXT_SIZE): it is refused",
             device->uuid);
}

/* Calls that take hidden memory */

/* One at a time in a container, while it is not known what a context takes or who we are. */
static void begin_first(struct overhead *overhead)
{
    overhead->first = true;
    (void)pthread_mutex_lock(&strangers.lock);
    (void)region_measure(&vgpu.region);
}

static void end_first(struct overhead *overhead)
{
    if (!overhead->first)
        return;
    region_measured(&vgpu.region);
    (void)pthread_mutex_unlock(&strangers.lock);
}

/* Whether what a context takes is known, and by which name NVML will list us. */
static bool is_foreseen(const struct vgpu_device *device)
{
    bool known;

    if (!context_units(device))
        return false;
    (void)pthread_mutex_lock(&hidden.lock);
    known = list_processes(device) && name_in_list() &&
            (hidden.count || vgpu.region.self.pid_namespace == HOST_PID_NAMESPACE);
    (void)pthread_mutex_unlock(&hidden.lock);
    return known;
}

static bool begin_locked(struct overhead *overhead)
{
    struct vgpu_device *device = overhead->device;
    struct account *account = account_of(device);

    if (overhead->of == OVERHEAD_CONTEXT)
        no_nvml = false;
    if (overhead->of == OVERHEAD_CONTEXT || tolerates())
        overhead->exact = settle(device).by.quiet;
    if (overhead->first)
        note_strangers();
    overhead->before_bytes = UINT64_MAX;
    if (!account->found)
        (void)device_used(device, &overhead->before_bytes);
    if (!charge(device, kind_of(overhead->of), overhead->charged))
        return false;
    account->advance += overhead->charged;
    account->under_way++;
    overhead->begun = ++account->begun;
    return true;
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

    (void)pthread_mutex_lock(&hidden.lock);
    granted = begin_locked(overhead);
    (void)pthread_mutex_unlock(&hidden.lock);
    if (!granted)
        end_first(overhead);
    return granted;
}

static enum overhead_outcome refuse(struct overhead *overhead)
{
    discharge(overhead->device, kind_of(overhead->of), overhead->charged);
    return OVERHEAD_REFUSED;
}

/* NVML names us: what it says counts. */
static enum overhead_outcome end_by_process(struct overhead *overhead, const struct measure *now,
                                            uint64_t *ret_units)
{
    struct vgpu_device *device = overhead->device;
    struct account *account = account_of(device);
    enum vgpu_kind kind = kind_of(overhead->of);
    uint64_t grown = growth(account, now), less;
    bool alone = overhead->exact && !account->under_way && account->begun == overhead->begun;

    if (!charge(device, kind, grown))
        return refuse(overhead);
    less = MIN(surplus(account, now), overhead->charged);
    discharge(device, kind, less);
    *ret_units = overhead->charged + grown - less;
    if (!now->quiet)
        atomic_store(&overhead_moment(device)->due_ns, 0);
    if (overhead->of == OVERHEAD_CONTEXT && alone && now->quiet && *ret_units)
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
    if (before != UINT64_MAX && device_used(device, &after))
        grown = ledger_units(after - MIN(after, before));
    if (overhead->of == OVERHEAD_CONTEXT && !grown && is_limited(device)) {
        say_size_unknown(device);
        return OVERHEAD_REFUSED;
    }
    *ret_units = grown;
    return charge(device, kind_of(overhead->of), grown) ? OVERHEAD_CHARGED : OVERHEAD_REFUSED;
}

static enum overhead_outcome end_locked(struct overhead *overhead, bool made, uint64_t *ret_units)
{
    struct account *account = account_of(overhead->device);
    struct measure now;

    account->advance -= overhead->charged;
    account->under_way--;
    if (!made) {
        discharge(overhead->device, kind_of(overhead->of), overhead->charged);
        return OVERHEAD_NOTHING;
    }

    now = measure(overhead->device);
    if (overhead->first && !now.listed) {
        learn_pid();
        now = measure(overhead->device);
    }
    return now.listed ? end_by_process(overhead, &now, ret_units)
                      : end_by_device(overhead, ret_units);
}

enum overhead_outcome overhead_end(struct overhead *overhead, bool made, uint64_t *ret_units)
{
    enum overhead_outcome outcome;

    *ret_units = 0;
    (void)pthread_mutex_lock(&hidden.lock);
    outcome = end_locked(overhead, made, ret_units);
    overhead->refused = outcome == OVERHEAD_REFUSED;
    account_of(overhead->device)->under_way += overhead->refused;
    (void)pthread_mutex_unlock(&hidden.lock);
    end_first(overhead);
    if (outcome != OVERHEAD_CHARGED)
        *ret_units = 0;
    return outcome;
}

static bool adopt_locked(struct vgpu_device *device, uint64_t *ret_units)
{
    struct settled settled = settle_growth(device, VGPU_CONTEXT);

    *ret_units = settled.grown;
    give_back(device, settled.surplus);
    if (settled.by.listed)
        return true;
    *ret_units = context_units(device);
    if (*ret_units)
        charge_anyway(device, VGPU_CONTEXT, *ret_units);
    else if (is_limited(device))
        say_size_unknown(device);
    return *ret_units || !is_limited(device);
}

bool overhead_adopt(struct vgpu_device *device, uint64_t *ret_units)
{
    bool known;

    (void)pthread_mutex_lock(&hidden.lock);
    known = adopt_locked(device, ret_units);
    (void)pthread_mutex_unlock(&hidden.lock);
    return known;
}

static void gone_locked(struct vgpu_device *device, uint64_t context_units, uint64_t code_units)
{
    struct settled settled;
    uint64_t of_context;

    settled = settle_growth(device, VGPU_MODULE);
    if (settled.by.found && !tolerates()) {
        of_context = MIN(context_units, settled.surplus);
        discharge(device, VGPU_CONTEXT, of_context);
        give_back(device, settled.surplus - of_context);
    } else {
        discharge(device, VGPU_CONTEXT, context_units);
        discharge(device, VGPU_MODULE, code_units);
    }
}

void overhead_gone(struct vgpu_device *device, uint64_t context_units, uint64_t code_units)
{
    (void)pthread_mutex_lock(&hidden.lock);
    gone_locked(device, context_units, code_units);
    (void)pthread_mutex_unlock(&hidden.lock);
}

void overhead_undone(const struct overhead *overhead, uint64_t units)
{
    (void)pthread_mutex_lock(&hidden.lock);
    account_of(overhead->device)->under_way -= overhead->refused;
    gone_locked(overhead->device, units, 0);
    (void)pthread_mutex_unlock(&hidden.lock);
}

void overhead_remember(const void *handle, struct vgpu_device *device, uint64_t units)
{
    struct allocation entry = {
        .units = units,
        .device = (unsigned)(device - vgpu.devices),
        .context = context_current(),
    };

    (void)allocations_add(ALLOCATION_MODULE, (uint64_t)(uintptr_t)handle, &entry);
}

struct overhead_code overhead_take(const void *handle)
{
    struct allocation entry;

    if (!allocations_take(ALLOCATION_MODULE, (uint64_t)(uintptr_t)handle, &entry))
        return (struct overhead_code){0};
    return (struct overhead_code){
        .device = &vgpu.devices[entry.device],
        .units = entry.units,
        .context = entry.context,
    };
}

void overhead_end_code(const void *handle, const struct overhead_code *code, bool gone)
{
    struct allocation entry;

    if (!code->device)
        return;
    if (gone) {
        overhead_gone(code->device, 0, code->units);
        return;
    }
    entry = (struct allocation){
        .units = code->units,
        .device = (unsigned)(code->device - vgpu.devices),
        .context = code->context,
    };
    (void)allocations_add(ALLOCATION_MODULE, (uint64_t)(uintptr_t)handle, &entry);
}
