/* SPDX-License-Identifier: Apache-2.0 */
#include "simdriver/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/util.h"
#include "simdriver/model.h"

static const struct sim_gpu_spec default_spec = {
    .model = "NVIDIA A100-SXM4-40GB",
    .memory_bytes = 40 * GIB,
    .context_bytes = 400 * MIB,
    .multiprocessors = 108,
    .numa_node = -1,
    .compute_major = 8,
    .slice_ns = 2 * NS_PER_MS,
    .switch_ns = 160 * NS_PER_US, /* an H100's, driver 580 */
};

static const struct sim_driver_spec default_driver = {
    .context_time_ns = 100 * NS_PER_MS,
    .granule_bytes = 2 << 20,
    .graph_node_bytes = 3328, /* this and the next: an H100's, driver 580 */
    .stream_bytes = 557 << 10,
    .event_resolution_ns = 500,
    .queues = 8,
    .clock_drift_ppm = 20,
};

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

static void default_uuid(char *uuid, size_t size, const char *path, unsigned index)
{
    uint64_t a = hash_text(UINT64_C(0xcbf29ce484222325) + index, path);
    uint64_t b = hash_text(a ^ UINT64_C(0x9e3779b97f4a7c15), path);

    (void)snprintf(uuid, size, "GPU-%08x-%04x-4%03x-8%03x-%012llx", (unsigned)(a >> 32),
                   (unsigned)(a >> 16) & 0xffff, (unsigned)a & 0xfff, (unsigned)(b >> 52),
                   (unsigned long long)b & UINT64_C(0xffffffffffff));
}

static void gpu_defaults(struct sim_gpu_spec *gpu)
{
    if (!gpu->model[0])
        COPY_TEXT(gpu->model, default_spec.model);
    if (!gpu->memory_bytes)
        gpu->memory_bytes = default_spec.memory_bytes;
    if (!gpu->context_bytes)
        gpu->context_bytes = MIN(default_spec.context_bytes, gpu->memory_bytes / 16);
    if (!gpu->multiprocessors)
        gpu->multiprocessors = default_spec.multiprocessors;
    if (!gpu->compute_major)
        gpu->compute_major = default_spec.compute_major;
    if (!gpu->slice_ns)
        gpu->slice_ns = default_spec.slice_ns;
}

bool sim_context_takes_all(const struct sim_gpu_spec *gpu)
{
    struct sim_gpu_spec full = *gpu;

    gpu_defaults(&full);
    return full.context_bytes >= full.memory_bytes;
}

static void driver_defaults(struct sim_driver_spec *driver)
{
    if (!driver->event_resolution_ns)
        driver->event_resolution_ns = default_driver.event_resolution_ns;
    if (!driver->granule_bytes)
        driver->granule_bytes = default_driver.granule_bytes;
    if (!driver->queues)
        driver->queues = default_driver.queues;
}

void sim_driver_init(struct sim_driver_spec *driver)
{
    *driver = default_driver;
}

void sim_gpu_init(struct sim_gpu_spec *gpu)
{
    *gpu = (struct sim_gpu_spec){
        .numa_node = default_spec.numa_node,
        .switch_ns = default_spec.switch_ns,
    };
}

void sim_spec_defaults(struct sim_spec *spec)
{
    driver_defaults(&spec->driver);
    for (unsigned i = 0; i < spec->gpu_count && i < SIM_MAX_GPUS; i++)
        gpu_defaults(&spec->gpus[i]);
}

static void fill_header(struct sim_header *header, const struct sim_spec *spec, const char *path)
{
    struct sim_spec full = *spec;
    struct proc_identity self;

    proc_identity_self(&self);
    sim_spec_defaults(&full);
    header->magic = SIM_MAGIC;
    header->version = SIM_VERSION;
    header->size = sizeof(struct sim_state);
    header->pid_namespace = self.pid_namespace;
    header->driver = full.driver;
    header->gpu_count = full.gpu_count;
    for (unsigned i = 0; i < full.gpu_count; i++) {
        header->gpus[i] = full.gpus[i];
        header->gpus[i].memory_bytes &= ~(uint64_t)(SIM_ALIGN - 1);
        if (!header->gpus[i].uuid[0])
            default_uuid(header->gpus[i].uuid, sizeof(header->gpus[i].uuid), path, i);
    }
}

static int init_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attr;
    int r;

    r = pthread_mutexattr_init(&attr);
    if (r)
        return -r;
    (void)pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    (void)pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    r = pthread_mutex_init(lock, &attr);
    (void)pthread_mutexattr_destroy(&attr);
    return -r;
}

/* The header goes in by write(), before anything can be mapped and be found to be no machine. */
static int fill_file(int fd, const struct sim_spec *spec, const char *path)
{
    struct sim_header header = {0};
    struct sim_state *state;
    int r;

    fill_header(&header, spec, path);
    if (fchmod(fd, 0666) < 0 || ftruncate(fd, (off_t)sizeof(struct sim_state)) < 0)
        return -errno;
    if (pwrite(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
        return errno ? -errno : -ENOSPC;
    r = sim_map(fd, &state, NULL);
    if (r < 0)
        return r;
    r = sim_reserve(state, offsetof(struct sim_state, processes)) ? init_lock(&state->lock)
                                                                  : -ENOSPC;
    sim_unmap(state);
    return r;
}

int sim_machine_create(const char *path, const struct sim_spec *spec, struct error *err)
{
    char beside[PATH_MAX];
    AUTOCLOSE int fd = -1;
    int r;

    if (spec->gpu_count > SIM_MAX_GPUS)
        return error_set(err, -EINVAL, "%s: more than %d GPUs", path, SIM_MAX_GPUS);
    r = snprintf(beside, sizeof(beside), "%s.%d.new", path, (int)getpid());
    if (r < 0 || (size_t)r >= sizeof(beside))
        return error_set(err, -ENAMETOOLONG, "%s: too long", path);

    fd = open(beside, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set(err, -errno, "%s: can't make it: %s", path, strerror(errno));
    r = fill_file(fd, spec, path);
    if (r == 0 && link(beside, path) < 0)
        r = -errno;
    (void)unlink(beside);
    if (r < 0)
        return error_set(err, r, "%s: can't make it: %s", path, strerror(-r));
    return 0;
}

bool sim_machine_is_one(const char *path)
{
    AUTOCLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    return fd >= 0 && sim_has_magic(fd);
}

static bool is_busy(struct sim *sim)
{
    bool busy = false;

    (void)sim_lock(sim);
    sim_sweep(sim);
    for (unsigned i = 0; i < sim->state->slots; i++)
        busy |= sim->state->processes[i].in_use;
    sim_unlock(sim);
    return busy;
}

/* Only a machine is ever removed: the path may be a slip. */
static int check_removable(const char *path, int force, struct error *err)
{
    struct sim *sim;
    int r = sim_open(path, &sim, err);

    if (r < 0 && !sim_machine_is_one(path))
        return r;
    if (force)
        return 0;
    if (r < 0)
        return error_set(err, -EBUSY,
                         "%s: a simulated machine of another version, or damaged: whether "
                         "processes use it can't be told; --force removes it all the same",
                         path);
    return is_busy(sim) ? error_set(err, -EBUSY, "%s: in use", path) : 0;
}

int sim_machine_remove(const char *path, int force, struct error *err)
{
    int r = check_removable(path, force, err);

    if (r < 0)
        return r;
    if (unlink(path) < 0)
        return error_set(err, -errno, "%s: %s", path, strerror(errno));
    return 0;
}

static void view_gpus(const struct sim_state *s, struct sim_view *view)
{
    view->gpu_count = s->header.gpu_count;
    for (unsigned i = 0; i < view->gpu_count; i++) {
        view->gpus[i].spec = s->header.gpus[i];
        view->gpus[i].used_bytes = s->devices[i].used_bytes;
        view->gpus[i].busy_ns = s->devices[i].busy_ns;
        view->gpus[i].condition = (enum sim_condition)s->health[i].condition;
        view->gpus[i].mig = s->health[i].mig;
        for (unsigned k = 0; k < SIM_MIG_STARTS; k++)
            view->gpus[i].used_bytes += s->devices[sim_instance_device(i, k)].used_bytes;
    }
}

static void add_usage(const struct sim_usage *usage, unsigned gpu, struct sim_process_view *view)
{
    view->used_bytes[gpu] += sim_used_bytes(usage);
    view->managed_bytes[gpu] += usage->managed_bytes;
    view->claimed_bytes[gpu] += usage->claimed_bytes;
    view->peak_bytes[gpu] += usage->peak_bytes;
    view->busy_ns[gpu] += usage->busy_ns;
    view->launches[gpu] += usage->launches;
}

/* What is in an instance is in its GPU. */
static void view_process(const struct sim_state *s, unsigned slot, struct sim_process_view *view)
{
    for (unsigned i = 0; i < sim_device_end(s); i++) {
        if (i < s->header.gpu_count || i >= SIM_MAX_GPUS)
            add_usage(&s->processes[slot].usage[i], sim_gpu_of(i), view);
    }
}

int sim_machine_view(const char *path, struct sim_view *ret_view, struct error *err)
{
    struct sim_state *s;
    struct sim *sim;
    int r;

    r = sim_open(path, &sim, err);
    if (r < 0)
        return r;

    s = sim->state;
    memset(ret_view, 0, sizeof(*ret_view));
    (void)sim_lock(sim);
    sim_sweep(sim);
    ret_view->now_ns = sim_host_now(s);
    ret_view->driver = s->header.driver;
    sim_advance_all(s, sim_now(s));
    view_gpus(s, ret_view);
    for (unsigned i = 0; i < s->slots; i++) {
        struct sim_process_view *view = &ret_view->processes[ret_view->process_count];

        if (!s->processes[i].in_use)
            continue;
        view->pid = sim_pid(sim, i);
        (void)sim_host_pid(sim, i);
        view_process(s, i, view);
        ret_view->process_count++;
    }
    sim_unlock(sim);
    return 0;
}

int sim_clock_stop(const char *path, struct error *err)
{
    struct sim *sim;
    int r;

    r = sim_open(path, &sim, err);
    if (r < 0)
        return r;

    (void)sim_lock(sim);
    __atomic_store_n(&sim->state->clock_ns, sim_host_now(sim->state), __ATOMIC_RELEASE);
    __atomic_store_n(&sim->state->stopped, 1, __ATOMIC_RELEASE);
    sim_advance_all(sim->state, sim_now(sim->state));
    sim_unlock(sim);
    return 0;
}

int sim_clock_step(const char *path, int64_t ns, struct error *err)
{
    struct sim_state *s;
    struct sim *sim;
    bool stopped;
    int r;

    r = sim_open(path, &sim, err);
    if (r < 0)
        return r;

    s = sim->state;
    (void)sim_lock(sim);
    stopped = s->stopped;
    if (stopped && ns > 0) {
        __atomic_store_n(&s->clock_ns, s->clock_ns + ns, __ATOMIC_RELEASE);
        sim_advance_all(s, sim_now(s));
        __atomic_add_fetch(&s->steps, 1, __ATOMIC_ACQ_REL);
    }
    sim_unlock(sim);
    if (!stopped || ns < 0)
        return error_set(err, -EINVAL, "%s: the clock is not stopped, or would go back", path);
    (void)syscall(SYS_futex, &s->steps, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    return 0;
}
