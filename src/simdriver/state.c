/* SPDX-License-Identifier: Apache-2.0 */
#include "simdriver/state.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/util.h"
#include "simdriver/physical.h"
#include "simdriver/shared_semaphore.h"

/* How often somebody looks who died. */
#define CHECK_NS (100 * NS_PER_MS)

/* Sleeps are cut to this, because work can also vanish, and stretched to that. */
#define SLEEP_MAX_NS (100 * NS_PER_MS)
#define SLEEP_MIN_NS (20 * NS_PER_US)

static pthread_mutex_t opened_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim *opened;

static bool spec_is_sane(const struct sim_gpu_spec *spec)
{
    return memchr(spec->uuid, '\0', sizeof(spec->uuid)) &&
           memchr(spec->model, '\0', sizeof(spec->model)) && spec->multiprocessors > 0 &&
           spec->multiprocessors <= 65536 && spec->slice_ns > 0 && spec->slice_ns <= NS_PER_S &&
           spec->switch_ns >= 0 && spec->switch_ns <= NS_PER_S && spec->numa_node >= -1;
}

#define OTHER_VERSION                                                                              \
    "a simulated machine of another version; hamictl sim remove --force removes it, and sim "      \
    "create makes it anew"

bool sim_has_magic(int fd)
{
    uint64_t magic;

    return pread(fd, &magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) && magic == SIM_MAGIC;
}

static int check_header(const struct sim_header *header, struct error *err)
{
    if (header->magic != SIM_MAGIC)
        return error_set(err, -EINVAL, "not a simulated machine");
    if (header->version != SIM_VERSION || header->size != sizeof(struct sim_state))
        return error_set(err, -EINVAL, OTHER_VERSION);
    if (header->gpu_count > SIM_MAX_GPUS)
        return error_set(err, -EINVAL, "damaged: %u GPUs", header->gpu_count);
    if (!sim_driver_is_sane(&header->driver))
        return error_set(err, -EINVAL, "damaged: the driver's options make no sense");
    for (unsigned i = 0; i < header->gpu_count; i++) {
        if (!spec_is_sane(&header->gpus[i]))
            return error_set(err, -EINVAL, "damaged: GPU %u makes no sense", i);
    }
    return 0;
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

int sim_map(int fd, struct sim_state **ret_state, struct error *err)
{
    struct sim_state *state;
    struct stat st;
    int r;

    if (fstat(fd, &st) < 0)
        return error_set(err, -errno, "%s", strerror(errno));
    if (!S_ISREG(st.st_mode) || !sim_has_magic(fd))
        return error_set(err, -EINVAL, "not a simulated machine");
    if (st.st_size != (off_t)sizeof(struct sim_state))
        return error_set(err, -EINVAL, OTHER_VERSION);

    state = mmap(NULL, sizeof(*state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (state == MAP_FAILED)
        return error_set(err, -errno, "can't map it: %s", strerror(errno));

    r = check_header(&state->header, err);
    if (r < 0) {
        sim_unmap(state);
        return r;
    }
    *ret_state = state;
    return 0;
}

void sim_unmap(struct sim_state *state)
{
    (void)munmap(state, sizeof(*state));
}

bool sim_reserve(void *part, size_t size)
{
    static const char full[] =
        "simulated driver: the disk of the simulated machine's file is full; "
        "make room there, or make the machine elsewhere\n";
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (uintptr_t)part / page * page;
    const int saved = errno;
    static bool told;
    bool fits = madvise((void *)first, (uintptr_t)part + size - first, MADV_POPULATE_WRITE) == 0 ||
                errno != EFAULT;

    errno = saved;
    if (!fits && !__atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
        (void)!write(STDERR_FILENO, full, sizeof(full) - 1);
    return fits;
}

/* To close one later would end the locks that the process has on the file, so none is moved. */
int sim_open_file(const char *path)
{
    int held[STDERR_FILENO + 1], count = 0, other, fd;

    while ((other = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0 && other <= STDERR_FILENO)
        held[count++] = other;
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    while (count)
        (void)close(held[--count]);
    if (other >= 0)
        (void)close(other);
    return fd;
}

static struct sim *find_opened(const struct stat *st)
{
    for (struct sim *sim = opened; sim; sim = sim->next) {
        if (sim->dev == st->st_dev && sim->ino == st->st_ino)
            return sim;
    }
    return NULL;
}

static int open_new(const char *path, struct sim **ret_sim, struct error *err)
{
    AUTOFREE struct sim *sim = calloc(1, sizeof(*sim));
    AUTOCLOSE int fd = -1;
    struct stat st;
    int r;

    if (!sim)
        return error_set(err, -ENOMEM, "%s: no memory", path);
    fd = sim_open_file(path);
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set(err, -errno, "%s: %s", path, strerror(errno));
    r = sim_map(fd, &sim->state, err);
    if (r < 0)
        return error_wrap(err, r, "%s", path);

    COPY_TEXT(sim->path, path);
    proc_identity_self(&sim->self);
    sim->slot = -1;
    sim->dev = st.st_dev;
    sim->ino = st.st_ino;
    sim->fd = take_fd(&fd);
    sim->next = opened;
    opened = sim;
    *ret_sim = TAKE(sim);
    return 0;
}

int sim_open(const char *path, struct sim **ret_sim, struct error *err)
{
    struct stat st;
    int r = 0;

    if (stat(path, &st) < 0)
        return error_set(err, -errno, "%s: %s", path, strerror(errno));

    (void)pthread_mutex_lock(&opened_lock);
    *ret_sim = find_opened(&st);
    if (!*ret_sim)
        r = open_new(path, ret_sim, err);
    (void)pthread_mutex_unlock(&opened_lock);
    return r;
}

int64_t sim_lock(struct sim *sim)
{
    struct sim_state *s = sim->state;
    int64_t coarse_ns;

    if (pthread_mutex_lock(&s->lock) == EOWNERDEAD) {
        sim_repair(s);
        (void)pthread_mutex_consistent(&s->lock);
        s->checked_ns = 0;
    }

    coarse_ns = clock_coarse_ns();
    if (coarse_ns - s->checked_ns > CHECK_NS) {
        s->checked_ns = coarse_ns;
        sim_sweep(sim);
    }
    if (s->export_pool.high)
        sim_export_look(sim);
    sim_semaphore_look(sim);
    return sim_now(s);
}

void sim_unlock(struct sim *sim)
{
    sim_semaphore_tell(sim);
    (void)pthread_mutex_unlock(&sim->state->lock);
}

/* What the GPUs' clock gains in so much time. */
static int64_t drift(const struct sim_state *s, int64_t ns)
{
    int64_t ppm = s->header.driver.clock_drift_ppm;

    return ns / 1000000 * ppm + ns % 1000000 * ppm / 1000000;
}

int64_t sim_now(const struct sim_state *s)
{
    int64_t now_ns = sim_host_now(s);

    return now_ns + drift(s, now_ns);
}

/* The host's time no earlier than which the GPUs' clock shows that one. */
static int64_t host_time(const struct sim_state *s, int64_t time_ns)
{
    int64_t host_ns = time_ns - drift(s, time_ns);

    if (!s->header.driver.clock_drift_ppm)
        return time_ns;
    /* A drift of the drift: less than 1/1000 of it, which one more turn takes off. */
    return host_ns + (time_ns - host_ns - drift(s, host_ns)) + 1;
}

int64_t sim_host_now(const struct sim_state *s)
{
    if (__atomic_load_n(&s->stopped, __ATOMIC_ACQUIRE))
        return __atomic_load_n(&s->clock_ns, __ATOMIC_ACQUIRE);
    return clock_now_ns();
}

static void sleep_stopped(const struct sim_state *s, int64_t time_ns)
{
    uint32_t steps = __atomic_load_n(&s->steps, __ATOMIC_ACQUIRE);
    struct timespec timeout = clock_timespec(SLEEP_MAX_NS);

    if (sim_host_now(s) < time_ns)
        (void)syscall(SYS_futex, &s->steps, FUTEX_WAIT, steps, &timeout, NULL, 0);
}

void sim_sleep_until(const struct sim *sim, int64_t time_ns)
{
    const struct sim_state *s = sim->state;
    int64_t now_ns = sim_host_now(s);
    struct timespec until;
    int slack_ns;

    time_ns = host_time(s, time_ns);
    time_ns = MAX(time_ns, now_ns + SLEEP_MIN_NS);
    time_ns = MIN(time_ns, now_ns + SLEEP_MAX_NS);
    if (__atomic_load_n(&s->stopped, __ATOMIC_ACQUIRE)) {
        sleep_stopped(s, time_ns);
        return;
    }

    /* The thread's timers are otherwise 50 us late. */
    slack_ns = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    (void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    until = clock_timespec(time_ns);
    (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    if (slack_ns > 0)
        (void)prctl(PR_SET_TIMERSLACK, slack_ns, 0, 0, 0);
}
