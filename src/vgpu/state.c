/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/glibc.h"
#include "region/bucket.h"
#include "region/ledger.h"
#include "vgpu/real.h"
#include "vgpu/vgpu.h"

#define DEFAULT_REGION "/tmp/cudevshr.cache" /* HAMi-core's */
#define REFRESH_NS (250 * NS_PER_MS)

struct vgpu vgpu;

/* What attaching has found so far. Guarded by the lock. */
static struct {
    pthread_mutex_t lock;
    bool hooks_installed; /* the fork handler */
    bool region_open;
    bool limits_read;
    bool from_file;
    char file_path[LIMITS_PATH_SIZE]; /* absolute */
    bool file_was_there;              /* when the library was loaded */
    struct stat file_seen;
    struct limits limits;
    _Atomic int64_t looked_ns;
    _Atomic unsigned said; /* bit set of enum vgpu_word */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

extern char **environ;

void vgpu_say(enum vgpu_word word, const char *fmt, ...)
{
    char line[640] = "hami: ";
    va_list args;
    int len;

    if (atomic_fetch_or(&state.said, 1u << word) & (1u << word))
        return;

    va_start(args, fmt);
    len = vsnprintf(line + 6, sizeof(line) - 8, fmt, args);
    va_end(args);
    len = MIN(MAX(len, 0), (int)sizeof(line) - 9) + 6;
    line[len] = '\n';
    (void)!write(STDERR_FILENO, line, (size_t)len + 1);
}

static void after_fork_in_child(void)
{
    (void)pthread_mutex_init(&state.lock, NULL);
    for (unsigned i = 0; i < REGION_DEVICES; i++) {
        (void)pthread_mutex_init(&vgpu.devices[i].lock, NULL);
        vgpu.devices[i].own_units = 0;
    }
    if (state.region_open)
        region_after_fork(&vgpu.region);
    atomic_store(&vgpu.mode, VGPU_DETACHED);
    atomic_store(&vgpu.limited_compute, false);
    real_after_fork();
    allocations_after_fork();
    contexts_after_fork();
    limiters_after_fork();
}

/* The file "limits" lies in the folder through which this library was loaded. */
static void find_limits_file(void)
{
    char *path = state.file_path;
    size_t len, folder = 0;
    Dl_info info;

    if (dladdr((void *)find_limits_file, &info) == 0 || !info.dli_fname)
        return;
    /* Of two slashes in a row one is ignored. */
    if (info.dli_fname[0] != '/' && getcwd(path, sizeof(state.file_path) - 1)) {
        folder = strlen(path);
        path[folder++] = '/';
    }
    len = strlen(info.dli_fname);
    while (len > 0 && info.dli_fname[len - 1] != '/')
        len--;
    if (folder + len + sizeof("limits") > sizeof(state.file_path)) {
        path[0] = '\0';
        return;
    }
    memcpy(path + folder, info.dli_fname, len);
    memcpy(path + folder + len, "limits", sizeof("limits"));
}

/* The only thing that is done before the first CUDA or NVML call: the program may change its
 * working directory, which a library loaded by a relative path would be looked for in. */
static void __attribute__((constructor)) note_limits_file(void)
{
    int saved = errno;
    struct stat st;

    find_limits_file();
    state.file_was_there = state.file_path[0] && file_stat(state.file_path, &st) == 0;
    errno = saved;
}

/* Reads the file's limits, or the environment's; a file's are lowered by the environment's. */
static int read_limits(struct limits *limits, bool *ret_from_file, struct error *err)
{
    struct limits environment = LIMITS_INIT;
    static char text[LIMITS_FILE_MAX];
    ssize_t len;
    int r;

    *limits = (struct limits)LIMITS_INIT;
    len = file_read(state.file_path, text, sizeof(text));
    if (len < 0 && len != -ENOENT)
        return error_set(err, (int)len, "%s: %s", state.file_path, strerror((int)-len));
    *ret_from_file = len >= 0;

    r = limits_parse_environment(&environment, environ, err);
    if (r < 0)
        return r;
    if (!*ret_from_file) {
        *limits = environment;
        return 0;
    }

    r = limits_parse(limits, text, err);
    if (r < 0)
        return error_wrap(err, r, "%s", state.file_path);
    limits_lower(limits, &environment);
    return 0;
}

static int first_read(struct error *err)
{
    int r;

    if (state.limits_read)
        return 0;
    r = read_limits(&state.limits, &state.from_file, err);
    if (r < 0)
        return r;
    if (!state.from_file && state.file_was_there)
        return error_set(err, -ENOENT, "%s: it was there when the program began, and is gone",
                         state.file_path);

    if (state.from_file)
        (void)file_stat(state.file_path, &state.file_seen);
    state.limits_read = true;
    return 0;
}

/* Whether this process has anything to account for. */
static bool wanted(void)
{
    return state.from_file || state.limits.region_path[0] || limits_any(&state.limits);
}

/* Says in the region that a limits file rules. One that says so already is not for a process
 * without: its file was lost. The environment would rule then, which is the tenant's. */
static int check_rule(struct error *err)
{
    if (state.from_file)
        atomic_store(&vgpu.region.ext->ruled_by_file, 1);
    if (state.from_file || !atomic_load(&vgpu.region.ext->ruled_by_file))
        return 0;
    return error_set(err, -ENOENT, "%s: the limits file that ruled %s is gone", state.file_path,
                     vgpu.region.path);
}

static int open_region(struct error *err)
{
    const char *path = state.limits.region_path;
    int r;

    if (state.region_open)
        return 0;
    if (state.from_file && path[0])
        r = region_open_made(&vgpu.region, path, state.limits.region_inode, err);
    else
        r = region_open(&vgpu.region, path[0] ? path : DEFAULT_REGION, err);
    if (r < 0)
        return r;
    r = check_rule(err);
    if (r < 0) {
        region_close(&vgpu.region);
        return r;
    }

    vgpu.region.base->priority = state.limits.priority;
    state.region_open = true;
    return 0;
}

const struct limits *vgpu_limits(void)
{
    return &state.limits;
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

    for (unsigned i = 0; i < state.limits.device_count; i++) {
        const char *named = state.limits.devices[i].uuid;

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

    if (state.limits.device_count) {
        index = find_uuid(device->uuid);
        device->granted = index >= 0;
        if (index < 0)
            return 0;
        COPY_TEXT(device->uuid, state.limits.devices[index].uuid);
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

    for (unsigned i = 0; i < state.limits.device_count; i++)
        region_set_device(&vgpu.region, i, state.limits.devices[i].uuid);
    if (state.limits.device_count || vgpu.region.base->device_count || !real_nvml())
        return;

    if (!REAL(nvmlInit_v2) || REAL(nvmlInit_v2)() != NVML_SUCCESS)
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

/* Puts the limits into force, and into the region for its readers. */
static void apply_limits(void)
{
    struct region_base *base = vgpu.region.base;
    bool compute = false;

    for (unsigned i = 0; i < vgpu.device_count; i++) {
        struct vgpu_device *device = &vgpu.devices[i];
        const struct limits_device *limit = &state.limits.devices[device->index];
        uint64_t bytes = limit->memory_bytes, cores = limit->cores;

        if (!device->granted)
            continue;
        if (!state.from_file) {
            bytes = lower_of(bytes, atomic_load(&base->limit[device->index]));
            cores = lower_of(cores, atomic_load(&base->sm_limit[device->index]) % 100);
        }
        atomic_store(&base->limit[device->index], bytes);
        atomic_store(&base->sm_limit[device->index], cores ? cores : 100);
        atomic_store(&device->limit_units, bytes ? bytes / LEDGER_UNIT : LEDGER_UNITS_MAX);
        atomic_store(&device->rate, bucket_rate((unsigned)cores));
        compute |= cores != 0;
    }
    atomic_store(&vgpu.allow_unaccounted, state.limits.allow_unaccounted);
    atomic_store(&vgpu.limits_are_file, state.from_file);
    atomic_store(&vgpu.limited_compute, compute);
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
    return true;
}

static int find_devices(struct error *err)
{
    int count = 0;

    if (REAL(cuDeviceGetCount)(&count) != CUDA_SUCCESS)
        return error_set(err, -EAGAIN, "the driver does not tell its devices");
    if (count > REGION_DEVICES)
        return error_set(err, -E2BIG, "%d devices are more than the %d that can be limited", count,
                         REGION_DEVICES);

    write_names();
    for (unsigned i = 0; i < (unsigned)count; i++) {
        if (!describe_device(i, &vgpu.devices[i]))
            return error_set(err, -EIO, "device %u: the driver does not describe it", i);
    }
    vgpu.device_count = (unsigned)count;
    return 0;
}

static int attach(struct error *err)
{
    int r;

    r = first_read(err);
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

    apply_limits();
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

    (void)pthread_mutex_lock(&state.lock);
    if (atomic_load(&vgpu.mode) == VGPU_DETACHED) {
        install_fork_handler();
        if (attach(&err) < 0)
            deny(&err);
    }
    (void)pthread_mutex_unlock(&state.lock);
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

    /* What was in the way may be gone by now. */
    if (atomic_load(&vgpu.mode) == VGPU_DENIED)
        atomic_store(&vgpu.mode, VGPU_DETACHED);
    return vgpu_mode() == VGPU_DENIED ? CUDA_ERROR_SYSTEM_NOT_READY : CUDA_SUCCESS;
}

bool vgpu_open_region(void)
{
    struct error err = ERROR_INIT;
    bool open;

    (void)pthread_mutex_lock(&state.lock);
    install_fork_handler();
    if (first_read(&err) == 0 && wanted() && open_region(&err) == 0)
        write_names();
    open = state.region_open;
    (void)pthread_mutex_unlock(&state.lock);
    if (!open && err.text[0])
        vgpu_say(VGPU_WORD_DENIED, "%s", err.text);
    return open;
}

static bool file_changed(void)
{
    struct stat now;

    if (file_stat(state.file_path, &now) < 0)
        return false;
    if (now.st_ino == state.file_seen.st_ino && now.st_size == state.file_seen.st_size &&
        now.st_mtim.tv_sec == state.file_seen.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == state.file_seen.st_mtim.tv_nsec)
        return false;

    state.file_seen = now;
    return true;
}

static void reread_limits(void)
{
    struct error err = ERROR_INIT;
    struct limits limits;
    bool from_file;

    if (read_limits(&limits, &from_file, &err) < 0) {
        vgpu_say(VGPU_WORD_LIMITS, "%s; the limits stay as they were", err.text);
        return;
    }
    if (!from_file)
        return; /* it went away just now; what it said stays in force */
    /* Who is granted what, and where the region is, stays for the life of a process. */
    for (unsigned i = 0; i < LIMITS_MAX_DEVICES; i++) {
        state.limits.devices[i].memory_bytes = limits.devices[i].memory_bytes;
        state.limits.devices[i].cores = limits.devices[i].cores;
    }
    state.limits.allow_unaccounted = limits.allow_unaccounted;
}

void vgpu_refresh(void)
{
    int64_t now = clock_coarse_ns();
    int64_t looked = atomic_load_explicit(&state.looked_ns, memory_order_relaxed);

    if (now - looked < REFRESH_NS ||
        !atomic_compare_exchange_strong(&state.looked_ns, &looked, now))
        return;
    if (pthread_mutex_trylock(&state.lock) != 0)
        return;
    if (state.limits_read && state.from_file && file_changed())
        reread_limits();
    if (atomic_load(&vgpu.mode) == VGPU_ON) {
        region_keep(&vgpu.region);
        if (region_is_lost(&vgpu.region)) {
            vgpu_say(VGPU_WORD_REGION,
                     "%s: it was removed or replaced while in use; no more of the GPU's memory is "
                     "given to this process",
                     vgpu.region.path);
            atomic_store(&vgpu.region_lost, true);
        }
        apply_limits();
    }
    (void)pthread_mutex_unlock(&state.lock);
}

struct vgpu_device *vgpu_device(CUdevice handle)
{
    for (unsigned i = 0; i < vgpu.device_count; i++) {
        if (vgpu.devices[i].handle == handle)
            return &vgpu.devices[i];
    }
    return NULL;
}

struct vgpu_device *vgpu_current_device(void)
{
    CUdevice handle;

    if (REAL(cuCtxGetDevice)(&handle) != CUDA_SUCCESS)
        return NULL;
    return vgpu_device(handle);
}

/* HAMi's readers know the kinds apart. */
static void mirror(const struct vgpu_device *device, enum vgpu_kind kind, int64_t units)
{
    struct region_slot *slot = &vgpu.region.base->slots[vgpu.region.slot];
    struct region_memory *used = &slot->used[device->index];
    uint64_t bytes = (uint64_t)(units * LEDGER_UNIT);

    if (kind == VGPU_DATA)
        used->data_size += bytes;
    else if (kind == VGPU_CONTEXT)
        used->context_size += bytes;
    else
        used->module_size += bytes;
    used->total =
        ledger_held(vgpu.region.ext, (unsigned)vgpu.region.slot, device->index) * LEDGER_UNIT;
}

static bool charge_once(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    uint64_t limit = atomic_load_explicit(&device->limit_units, memory_order_relaxed);
    enum ledger_outcome outcome = LEDGER_REFUSED;

    if (limit != LEDGER_UNITS_MAX && atomic_load(&vgpu.region_lost))
        return false;
    (void)pthread_mutex_lock(&device->lock);
    /* The tenant can write the region, its own memory it must not: one process alone can't exceed
     * the limit, whatever the region's words say. */
    if (units <= limit && device->own_units <= limit - units)
        outcome =
            ledger_charge(vgpu.region.ext, (unsigned)vgpu.region.slot, device->index, units, limit);
    if (outcome == LEDGER_CHARGED) {
        device->own_units += units;
        mirror(device, kind, (int64_t)units);
    }
    (void)pthread_mutex_unlock(&device->lock);
    return outcome == LEDGER_CHARGED;
}

bool vgpu_charge(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    vgpu_refresh();
    if (charge_once(device, kind, units))
        return true;
    if (region_settle(&vgpu.region) > 0 && charge_once(device, kind, units))
        return true;

    atomic_fetch_add_explicit(&vgpu.region.ext->devices[device->index].refusals, 1,
                              memory_order_relaxed);
    return false;
}

void vgpu_charge_anyway(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    (void)pthread_mutex_lock(&device->lock);
    if (ledger_charge(vgpu.region.ext, (unsigned)vgpu.region.slot, device->index, units,
                      LEDGER_UNITS_MAX) == LEDGER_CHARGED) {
        device->own_units += units;
        mirror(device, kind, (int64_t)units);
    }
    (void)pthread_mutex_unlock(&device->lock);
}

void vgpu_discharge(struct vgpu_device *device, enum vgpu_kind kind, uint64_t units)
{
    (void)pthread_mutex_lock(&device->lock);
    ledger_discharge(vgpu.region.ext, (unsigned)vgpu.region.slot, device->index, units);
    device->own_units -= MIN(units, device->own_units);
    mirror(device, kind, -(int64_t)units);
    (void)pthread_mutex_unlock(&device->lock);
}

uint64_t vgpu_used_bytes(unsigned region_index)
{
    (void)region_settle(&vgpu.region);
    return ledger_total(vgpu.region.ext, region_index) * LEDGER_UNIT;
}
