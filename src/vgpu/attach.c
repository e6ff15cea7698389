/* SPDX-License-Identifier: Apache-2.0 */

/* How a process comes to its container's region, its devices and limits, and what a child keeps. */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/glibc.h"
#include "base/lock.h"
#include "region/bucket.h"
#include "region/ledger.h"
#include "vgpu/contexts.h"
#include "vgpu/graphs.h"
#include "vgpu/pools.h"
#include "vgpu/real.h"
#include "vgpu/source.h"
#include "vgpu/vgpu.h"

#define DEFAULT_REGION "/tmp/cudevshr.cache" /* HAMi-core's */
#define REFRESH_NS (50 * NS_PER_MS)          /* a changed limit is to be in force within 100 ms */
#define CARDS_REFRESHES 5                    /* for one look for new cells */
#define RESUMED_MS 20                        /* who was stopped goes on by then */

struct vgpu vgpu;

/* What attaching has found so far. Guarded by the lock. */
static struct {
    pthread_mutex_t lock;
    bool hooks_installed; /* the fork handler */
    bool region_open;
    unsigned refreshes;
    _Atomic int64_t looked_ns;
    _Atomic int64_t refreshing_since_ns; /* 0: nobody is */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void after_fork_in_child(void)
{
    (void)pthread_mutex_init(&state.lock, NULL);
    atomic_store(&state.refreshing_since_ns, 0);
    for (unsigned i = 0; i < REGION_DEVICES; i++) {
        (void)pthread_mutex_init(&vgpu.devices[i].lock, NULL);
        card_after_fork(&vgpu.devices[i].share.card);
        vgpu.devices[i].own_units = 0;
        atomic_store(&vgpu.devices[i].managed_units, 0);
    }
    if (state.region_open)
        region_after_fork(&vgpu.region);
    atomic_store(&vgpu.mode, VGPU_DETACHED);
    atomic_store(&vgpu.limited_compute, false);
    real_after_fork();
    allocations_after_fork();
    pages_after_fork();
    virtual_after_fork();
    ipc_after_fork();
    dma_bufs_after_fork();
    given_after_fork();
    managed_after_fork();
    pools_after_fork();
    graphs_after_fork();
    contexts_after_fork();
    limiters_after_fork();
}

/* Whether this process has anything to account for. */
static bool wanted(void)
{
    return source.is_file || source.limits.region_path[0] || limits_any(&source.limits);
}

/* Says in the region that a limits file rules. One that says so already is not for a process
 * without: its file was lost. The environment would rule then, which is the tenant's. */
static int check_rule(struct error *err)
{
    if (source.is_file)
        atomic_store(&vgpu.region.ext->ruled_by_file, 1);
    if (source.is_file || !atomic_load(&vgpu.region.ext->ruled_by_file))
        return 0;
    return error_set(err, -ENOENT, "%s: the limits file that ruled %s is gone", source.path,
                     vgpu.region.path);
}

static int open_region(struct error *err)
{
    const char *path = source.limits.region_path;
    int r;

    if (state.region_open)
        return 0;
    if (source.is_file && path[0])
        r = region_open_made(&vgpu.region, path, source.limits.region_inode, err);
    else
        r = region_open(&vgpu.region, path[0] ? path : DEFAULT_REGION, err);
    if (r < 0)
        return r;
    r = check_rule(err);
    if (r < 0) {
        region_close(&vgpu.region);
        return r;
    }

    vgpu.region.base->priority = source.limits.priority;
    state.region_open = true;
    return 0;
}

static void deny(const struct error *err)
{
    vgpu_say(VGPU_WORD_DENIED, "%s; the GPU's memory is refused until that is mended", err->text);
    atomic_store(&vgpu.mode, VGPU_DENIED);
}

/* "GPU-" and the 16 bytes as a UUID is written. */
static void format_uuid(const CUuuid *uuid, char *text, size_t size)
{
    const unsigned char *b = uuid->bytes;

    (void)snprintf(text, size,
                   "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                   b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                   b[14], b[15]);
}

/* The driver tells 16 bytes. Whether they name a card ("GPU-") or an instance ("MIG-") the limits
 * say. */
static int find_uuid(const char *uuid)
{
    const size_t kind = sizeof("GPU-") - 1;

    for (unsigned i = 0; i < source.limits.device_count; i++) {
        const char *named = source.limits.devices[i].uuid;

        if (strlen(named) > kind && strcmp(named + kind, uuid + kind) == 0)
            return (int)i;
    }
    return -1;
}

/*
 * The device's number in the region, which is also the number its limit has. Named by the limits:
 * their order. Otherwise NVML's order, HAMi's convention, whoever came first having written it
 * down.
 */
static int region_index(struct vgpu_device *device)
{
    int index;

    if (source.limits.device_count) {
        index = find_uuid(device->uuid);
        device->granted = index >= 0;
        if (index < 0)
            return 0;
        COPY_TEXT(device->uuid, source.limits.devices[index].uuid);
        return index;
    }
    device->granted = true;
    return region_device(&vgpu.region, device->uuid);
}

static void write_names(void)
{
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    unsigned int count = 0;
    nvmlDevice_t handle;

    for (unsigned i = 0; i < source.limits.device_count; i++)
        region_set_device(&vgpu.region, i, source.limits.devices[i].uuid);
    if (source.limits.device_count || vgpu.region.base->device_count || !real_nvml())
        return;

    if (REAL(nvmlInit_v2)() != NVML_SUCCESS)
        return;
    if (REAL(nvmlDeviceGetCount_v2)(&count) != NVML_SUCCESS)
        return;
    for (unsigned i = 0; i < MIN(count, (unsigned)REGION_DEVICES); i++) {
        if (REAL(nvmlDeviceGetHandleByIndex_v2)(i, &handle) == NVML_SUCCESS &&
            REAL(nvmlDeviceGetUUID)(handle, uuid, sizeof(uuid)) == NVML_SUCCESS)
            region_set_device(&vgpu.region, i, uuid);
    }
}

/* HAMi-core keeps the limits in the region, written by whoever made it: the lower of the two rules.
 */
static uint64_t lower_of(uint64_t a, uint64_t b)
{
    if (!a || !b)
        return a ? a : b;
    return MIN(a, b);
}

/*
 * A device's compute. Processes that live side by side may have been given different limits, each
 * by its environment: the region has the first one's, and one that was given less does not take
 * from the others. Whoever comes alone begins anew.
 */
static void apply_cores(struct vgpu_device *device, uint64_t cores, bool begins)
{
    const unsigned common = source.is_file ? source.limits.devices[device->index].common_cores : 0;
    _Atomic uint64_t *word = &vgpu.region.base->sm_limit[device->index];
    uint32_t rate = bucket_rate(common ? common : (unsigned)cores);

    if (source.is_file || begins || !atomic_load(word))
        atomic_store(word, common ? common : cores ? cores : 100);
    atomic_store(&device->share.common, common ? rate : 0);
    /* Where limits come from a file, the tenant's own region neither switches them off nor on. */
    atomic_store(&device->share.heeds_switch, !source.is_file && !source.limits.cores_forced);
    atomic_store(&device->share.heeds_block, !source.is_file);
    atomic_store(&device->share.rate, bucket_rate((unsigned)cores));
    if (begins && rate)
        bucket_set_rate(share_compute(&device->share), rate, clock_now_ns());
}

/* Puts the limits into force, and into the region for its readers; begins: when it attaches, and no
 * other process is there. */
static void apply_limits(bool begins)
{
    struct region_base *base = vgpu.region.base;
    const bool suspended = source.limits.suspended || source.is_lost;
    bool compute = false;

    for (unsigned i = 0; i < vgpu.device_count; i++) {
        struct vgpu_device *device = &vgpu.devices[i];
        const struct limits_device *limit = &source.limits.devices[device->index];
        uint64_t bytes = limit->memory_bytes, cores = limit->cores;

        if (!device->granted)
            continue;
        if (!source.is_file) {
            bytes = lower_of(bytes, atomic_load(&base->limit[device->index]));
            cores = lower_of(cores, atomic_load(&base->sm_limit[device->index]) % 100);
        }
        atomic_store(&base->limit[device->index], bytes);
        atomic_store(&device->limit_units, bytes ? bytes / LEDGER_UNIT : LEDGER_UNITS_MAX);
        apply_cores(device, cores, begins);
        /* Where there are other priorities each launch may have to be looked at. */
        compute |= cores != 0 || suspended || atomic_load(&device->share.card.has_ranks);
        atomic_store(&device->share.suspended, suspended);
    }
    atomic_store(&base->slots[vgpu.region.slot].status,
                 suspended ? REGION_STATUS_SUSPENDED : REGION_STATUS_RUNNING);
    atomic_store(&vgpu.allow_unaccounted, source.limits.allow_unaccounted);
    atomic_store(&vgpu.allow_imports, source.limits.allow_imports);
    atomic_store(&vgpu.managed, (int)source.limits.managed);
    atomic_store(&vgpu.oversubscribed, source.limits.oversubscribed);
    atomic_store(&vgpu.limits_lost, source.is_lost);
    atomic_store(&vgpu.limited_compute, compute);
}

/* Where it fails nobody knows who goes first, and others don't see that it wants the card. */
static int open_card(struct vgpu_device *device, struct error *err)
{
    const struct limits *limits = &source.limits;
    const char *cards = limits->cards[0] ? limits->cards : limits->ranks;
    static char own[CARD_PATH], folder[CARD_PATH]; /* with the lock */
    int r;

    if (!device->granted || !limits->cells[0] || device->share.card.own)
        return 0;
    r = snprintf(own, sizeof(own), "%s/%s", limits->cells, device->uuid);
    if (r < (int)sizeof(own))
        r = snprintf(folder, sizeof(folder), "%s/%s", cards, device->uuid);
    if (r < (int)sizeof(own))
        r = card_open_ranked(&device->share.card, own, cards[0] ? folder : NULL,
                             limits->cards[0] != '\0',
                             limits->ranks[0] ? limits->priority : CARD_PRIORITY);
    else
        r = -ENAMETOOLONG;
    return r < 0 ? error_set(err, r, "the card's cells, %s: %s", own, strerror(-r)) : 0;
}

static bool describe_device(unsigned ordinal, struct vgpu_device *device)
{
    CUuuid uuid;
    size_t bytes;
    int index;

    if (REAL(cuDeviceGet)(&device->handle, (int)ordinal) != CUDA_SUCCESS)
        return false;
    if ((!HAS(cuDeviceGetUuid_v2) ||
         REAL(cuDeviceGetUuid_v2)(&uuid, device->handle) != CUDA_SUCCESS) &&
        REAL(cuDeviceGetUuid)(&uuid, device->handle) != CUDA_SUCCESS)
        return false;
    if (REAL(cuDeviceTotalMem_v2)(&bytes, device->handle) != CUDA_SUCCESS)
        return false;

    format_uuid(&uuid, device->uuid, sizeof(device->uuid));
    device->physical_bytes = bytes;
    (void)pthread_mutex_init(&device->lock, NULL);
    index = region_index(device);
    if (index < 0)
        return false;
    device->index = (unsigned)index;
    device->share.region = &vgpu.region;
    device->share.device = device->index;
    return true;
}

static int find_devices(struct error *err)
{
    int count = 0, r;

    if (REAL(cuDeviceGetCount)(&count) != CUDA_SUCCESS)
        return error_set(err, -EAGAIN, "the driver does not tell its devices");
    if (count > REGION_DEVICES)
        return error_set(err, -E2BIG, "%d devices are more than the %d that can be limited", count,
                         REGION_DEVICES);

    write_names();
    for (unsigned i = 0; i < (unsigned)count; i++) {
        if (!describe_device(i, &vgpu.devices[i]))
            return error_set(err, -EIO, "device %u: the driver does not describe it", i);
        /* A context there may be current and not known yet: as if there were one, no launch passes
         * as what was paid for, or seen, in another. */
        if (!vgpu.devices[i].granted)
            atomic_fetch_add(&contexts_live, 1);
        r = open_card(&vgpu.devices[i], err);
        if (r < 0)
            return r;
    }
    vgpu.device_count = (unsigned)count;
    return 0;
}

static int attach(struct error *err)
{
    int r;

    r = source_read(err);
    if (r < 0)
        return r;
    if (!wanted()) {
        atomic_store(&vgpu.mode, VGPU_OFF);
        return 0;
    }

    r = open_region(err);
    if (r < 0)
        return r;
    r = find_devices(err);
    if (r < 0)
        return r;
    r = region_claim(&vgpu.region, err);
    if (r < 0)
        return r;

    apply_limits(region_is_alone(&vgpu.region));
    atomic_store(&vgpu.mode, VGPU_ON);
    return 0;
}

static void install_fork_handler(void)
{
    if (!state.hooks_installed)
        state.hooks_installed = pthread_atfork(NULL, NULL, after_fork_in_child) == 0;
}

enum vgpu_mode vgpu_attach(void)
{
    struct error err = ERROR_INIT;
    int count;

    if (!real_driver()) {
        vgpu_say(VGPU_WORD_DRIVER, "libcuda.so.1 can't be opened; is the driver installed?");
        return VGPU_DETACHED;
    }
    /* Before cuInit, and in a child of a process that had called it, the driver refuses everything.
     */
    if (REAL(cuDeviceGetCount)(&count) != CUDA_SUCCESS)
        return VGPU_DETACHED;

    lock_mutex(&state.lock);
    if (atomic_load(&vgpu.mode) == VGPU_DETACHED) {
        install_fork_handler();
        if (attach(&err) < 0)
            deny(&err);
    }
    unlock_mutex(&state.lock);
    return (enum vgpu_mode)atomic_load(&vgpu.mode);
}

PUBLIC CUresult cuInit(unsigned int flags)
{
    CUresult result;

    if (!real_driver()) {
        vgpu_say(VGPU_WORD_DRIVER, "libcuda.so.1 can't be opened; is the driver installed?");
        return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
    }
    result = REAL(cuInit)(flags);
    if (result != CUDA_SUCCESS)
        return result;

    real_ask_again();
    /* What was in the way may be gone by now. */
    if (atomic_load(&vgpu.mode) == VGPU_DENIED)
        atomic_store(&vgpu.mode, VGPU_DETACHED);
    return vgpu_mode() == VGPU_DENIED ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_SUCCESS;
}

bool vgpu_open_region(void)
{
    struct error err = ERROR_INIT;
    bool open;

    lock_mutex(&state.lock);
    install_fork_handler();
    if (source_read(&err) == 0 && wanted() && open_region(&err) == 0)
        write_names();
    open = state.region_open;
    unlock_mutex(&state.lock);
    if (!open && err.text[0])
        vgpu_say(VGPU_WORD_DENIED, "%s", err.text);
    return open;
}

static void look_at_cards(void)
{
    for (unsigned i = 0; i < vgpu.device_count; i++)
        card_look_around(&vgpu.devices[i].share.card);
}

static void refresh_locked(void)
{
    source_refresh();
    if (atomic_load(&vgpu.mode) != VGPU_ON)
        return;
    region_keep(&vgpu.region);
    if (region_is_lost(&vgpu.region)) {
        vgpu_say(VGPU_WORD_REGION,
                 "%s: it was removed or replaced while in use; no more of the GPU's memory is "
                 "given to this process",
                 vgpu.region.path);
        atomic_store(&vgpu.region_lost, true);
    }
    apply_limits(false);
    if (state.refreshes++ % CARDS_REFRESHES == 0)
        look_at_cards();
}

/* Whether a refresh is under way for so long, and does not end now: it may be that all of the
 * process was stopped. */
static bool is_held_up(int64_t now_ns)
{
    static const struct timespec pause = {.tv_nsec = NS_PER_MS};
    const int64_t since_ns = atomic_load(&state.refreshing_since_ns);

    if (!since_ns || now_ns - since_ns < SOURCE_LOST_NS)
        return false;
    for (unsigned i = 0; i < RESUMED_MS; i++) {
        (void)nanosleep(&pause, NULL);
        if (atomic_load(&state.refreshing_since_ns) != since_ns)
            return false;
    }
    return true;
}

/*
 * Without the lock: who has it may be held in it for ever, as by a signal's handler that does not
 * return, and what the limits are by now would never be known. As where the file can't be read,
 * until the refresh is done.
 */
static void lose_limits(int64_t now_ns)
{
    if (!source.is_file || !is_held_up(now_ns))
        return;
    for (unsigned i = 0; i < vgpu.device_count; i++)
        atomic_store(&vgpu.devices[i].share.suspended, true);
    atomic_store(&vgpu.limits_lost, true);
    atomic_store(&vgpu.limited_compute, true);
    vgpu_say(VGPU_WORD_DENIED,
             "a thread of this process is held while it reads the limits; the GPU's memory is "
             "refused and nothing is launched until it goes on");
}

int64_t vgpu_refresh(void)
{
    int64_t now_ns = clock_coarse_ns();
    int64_t looked_ns = atomic_load_explicit(&state.looked_ns, memory_order_relaxed);

    if (now_ns - looked_ns < REFRESH_NS ||
        !atomic_compare_exchange_strong(&state.looked_ns, &looked_ns, now_ns))
        return now_ns;
    if (!lock_try_mutex(&state.lock)) {
        lose_limits(now_ns);
        return now_ns;
    }
    atomic_store(&state.refreshing_since_ns, now_ns);
    refresh_locked();
    atomic_store(&state.refreshing_since_ns, 0);
    unlock_mutex(&state.lock);
    return now_ns;
}
