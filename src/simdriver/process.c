/* SPDX-License-Identifier: Apache-2.0 */

/* The processes of a machine: who lives, what each holds, and clearing up after the dead. */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/util.h"
#include "simdriver/model.h"
#include "simdriver/physical.h"

#define NO_PID (1 << 22) /* the kernel gives out smaller ones */

static struct flock slot_lock(unsigned slot)
{
    return (struct flock){
        .l_type = F_WRLCK,
        .l_whence = SEEK_SET,
        .l_start = (off_t)sizeof(struct sim_state) + slot,
        .l_len = 1,
    };
}

/* The guest may have closed the descriptor, and may have another file under its number by now. */
static int descriptor(struct sim *sim)
{
    struct flock lock;
    struct stat st;

    if (fstat(sim->fd, &st) == 0 && st.st_dev == sim->dev && st.st_ino == sim->ino)
        return sim->fd;

    sim->fd = sim_open_file(sim->path);
    if (sim->fd < 0 || fstat(sim->fd, &st) < 0 || st.st_ino != sim->ino)
        return -1;
    if (sim->slot >= 0) {
        lock = slot_lock((unsigned)sim->slot);
        (void)fcntl(sim->fd, F_SETLK, &lock);
    }
    return sim->fd;
}

/*
 * The pid of the process that holds the slot's lock, as seen from here: 0 when it is of a pid
 * namespace that can't be seen, -1 when nobody (else) holds it.
 */
static pid_t lock_holder(int fd, unsigned slot)
{
    struct flock lock = slot_lock(slot);

    if (fcntl(fd, F_GETLK, &lock) < 0 || lock.l_type == F_UNLCK)
        return -1;
    return lock.l_pid;
}

static bool is_alive(struct sim *sim, int fd, unsigned slot)
{
    const struct proc_identity *who = &sim->state->processes[slot].who;

    if ((int)slot == sim->slot || lock_holder(fd, slot) >= 0)
        return true;
    return proc_identity_check(who, &sim->self) == PROC_ALIVE;
}

pid_t sim_pid(struct sim *sim, unsigned slot)
{
    const struct proc_identity *who = &sim->state->processes[slot].who;
    pid_t pid = lock_holder(descriptor(sim), slot);

    if (pid >= 0)
        return pid;
    return who->pid_namespace == sim->self.pid_namespace ? who->pid : 0;
}

/*
 * The number in the namespace that /proc is of, which in a container that has the host's is the
 * host's: the first of "NSpid:". 0 when /proc knows no more than this process does itself.
 */
static pid_t outer_pid(void)
{
    AUTOCLOSE int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    char text[4096], *line, *end;
    long first, second;
    ssize_t len;

    len = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    text[MAX(len, 0)] = '\0';
    line = strstr(text, "\nNSpid:");
    if (!line)
        return 0;
    first = strtol(line + strlen("\nNSpid:"), &end, 10);
    second = strtol(end, &line, 10);
    return second > 0 && line != end && *end != '\n' ? (pid_t)first : 0;
}

static pid_t own_host_pid(const struct sim *sim)
{
    if (sim->self.pid_namespace == sim->state->header.pid_namespace)
        return sim->self.pid;
    return outer_pid();
}

pid_t sim_host_pid(struct sim *sim, unsigned slot)
{
    struct sim_process *process = &sim->state->processes[slot];

    if (!process->host_pid && sim->self.pid_namespace == sim->state->header.pid_namespace)
        process->host_pid = MAX(sim_pid(sim, slot), 0);
    return process->host_pid ? process->host_pid : NO_PID + (pid_t)slot;
}

static void clear_process(struct sim_state *s, unsigned slot)
{
    struct sim_process *process = &s->processes[slot];

    for (uint32_t i = 1; i <= s->context_pool.high; i++) {
        if (s->contexts[i].owner == slot + 1)
            sim_context_free(s, i);
    }
    sim_physical_drop(s, slot);
    for (unsigned i = 0; i < sim_device_end(s); i++)
        s->devices[i].used_bytes -= process->usage[i].used_bytes + process->usage[i].managed_bytes;
    memset(process->usage, 0, sizeof(process->usage));
    __atomic_store_n(&process->in_use, 0, __ATOMIC_RELEASE);
}

static bool is_on(const struct sim_state *s, unsigned slot, unsigned gpu)
{
    const struct sim_usage *usage = s->processes[slot].usage;

    for (unsigned i = 0; i < sim_device_end(s); i++) {
        if (sim_gpu_of(i) == gpu && (sim_used_bytes(&usage[i]) || usage[i].managed_bytes))
            return true;
    }
    for (uint32_t i = 1; i <= s->context_pool.high; i++) {
        if (s->contexts[i].owner == slot + 1 && sim_gpu_of(s->contexts[i].device) == gpu)
            return true;
    }
    return false;
}

static void bury(struct sim_state *s, unsigned slot)
{
    sim_advance_all(s, sim_now(s));
    clear_process(s, slot);
    /* A total is a sum over the living, whatever the dead one was about to do to it. */
    sim_repair(s);
}

void sim_sweep(struct sim *sim)
{
    struct sim_state *s = sim->state;
    const int fd = descriptor(sim);

    for (unsigned i = 0; i < s->slots; i++) {
        if (s->processes[i].in_use && !is_alive(sim, fd, i))
            bury(s, i);
    }
}

void sim_sweep_gpu(struct sim *sim, unsigned gpu)
{
    struct sim_state *s = sim->state;
    const int fd = descriptor(sim);

    for (unsigned i = 0; i < s->slots; i++) {
        if (s->processes[i].in_use && is_on(s, i, gpu) && !is_alive(sim, fd, i))
            bury(s, i);
    }
}

/* Sixteen bytes that the kernel draws anew for each program, and that a fork keeps. */
static uint64_t program_number(void)
{
    const void *random = (const void *)getauxval(AT_RANDOM);
    uint64_t number = 0;

    if (random)
        memcpy(&number, random, sizeof(number));
    return number;
}

static int take_slot(struct sim *sim)
{
    struct sim_state *s = sim->state;

    for (unsigned i = 0; i < SIM_MAX_PROCESSES; i++) {
        struct sim_process *process = &s->processes[i];
        struct flock lock = slot_lock(i);

        if (i < s->slots && process->in_use)
            continue;
        if (!sim_reserve(process, sizeof(*process)))
            return -ENOSPC;
        if (fcntl(descriptor(sim), F_SETLK, &lock) < 0)
            continue;
        s->slots = MAX(s->slots, i + 1);
        memset(process->usage, 0, sizeof(process->usage));
        process->who = sim->self;
        process->host_pid = own_host_pid(sim);
        process->program = program_number();
        process->faulted = 0;
        __atomic_store_n(&process->in_use, 1, __ATOMIC_RELEASE);
        sim->slot = (int)i;
        return 0;
    }
    return -EAGAIN;
}

/*
 * A process that became another program by exec has the same pid and start time; what it held as
 * the former one went with its descriptors. Another copy of this library in the same program stays.
 */
static void clear_former_self(struct sim *sim)
{
    struct sim_state *s = sim->state;

    for (unsigned i = 0; i < s->slots; i++) {
        const struct sim_process *process = &s->processes[i];

        if (!process->in_use || process->program == program_number() ||
            memcmp(&process->who, &sim->self, sizeof(sim->self)) != 0)
            continue;
        sim_advance_all(s, sim_now(s));
        clear_process(s, i);
        sim_repair(s);
    }
}

int sim_join(struct sim *sim, struct error *err)
{
    int r;

    proc_identity_self(&sim->self);
    (void)sim_lock(sim);
    clear_former_self(sim);
    r = take_slot(sim);
    if (r == -EAGAIN) {
        sim_sweep(sim);
        r = take_slot(sim);
    }
    sim_unlock(sim);
    if (r == -ENOSPC)
        return error_set(err, r, "%s: %s", sim->path, strerror(ENOSPC));
    if (r < 0)
        return error_set(err, r, "%s: more than %d processes", sim->path, SIM_MAX_PROCESSES);
    return 0;
}

static bool has_room(const struct sim_state *s, unsigned device, uint64_t bytes)
{
    uint64_t total = sim_spec_of(s, device)->memory_bytes;
    uint64_t used = s->devices[device].used_bytes;

    return used <= total && bytes <= total - used;
}

/* Anybody's managed pages make room for other memory. */
static void evict(struct sim_state *s, unsigned device, uint64_t bytes)
{
    for (unsigned i = 0; i < s->slots && bytes; i++) {
        uint64_t *managed = &s->processes[i].usage[device].managed_bytes;
        uint64_t gone = MIN(bytes, *managed);

        *managed -= gone;
        s->devices[device].used_bytes -= gone;
        bytes -= gone;
    }
}

bool sim_make_room(struct sim *sim, unsigned device, uint64_t bytes)
{
    if (has_room(sim->state, device, bytes))
        return true;
    sim_sweep(sim);
    if (!has_room(sim->state, device, bytes))
        evict(sim->state, device, bytes);
    return has_room(sim->state, device, bytes);
}

uint64_t sim_managed_come(struct sim *sim, unsigned device, uint64_t bytes)
{
    struct sim_state *s = sim->state;

    if (!sim_make_room(sim, device, bytes))
        return 0;
    s->devices[device].used_bytes += bytes;
    s->processes[sim->slot].usage[device].managed_bytes += bytes;
    return bytes;
}

void sim_managed_go(struct sim *sim, unsigned device, uint64_t bytes)
{
    struct sim_state *s = sim->state;
    uint64_t *managed = &s->processes[sim->slot].usage[device].managed_bytes;

    bytes = MIN(bytes, *managed);
    *managed -= bytes;
    s->devices[device].used_bytes -= bytes;
}

bool sim_charge(struct sim *sim, unsigned device, uint64_t bytes)
{
    struct sim_state *s = sim->state;
    struct sim_usage *usage = &s->processes[sim->slot].usage[device];

    if (!sim_make_room(sim, device, bytes))
        return false;
    s->devices[device].used_bytes += bytes;
    usage->used_bytes += bytes;
    usage->peak_bytes = MAX(usage->peak_bytes, sim_used_bytes(usage));
    return true;
}

void sim_discharge(struct sim *sim, unsigned device, uint64_t bytes)
{
    struct sim_state *s = sim->state;

    s->processes[sim->slot].usage[device].used_bytes -= bytes;
    s->devices[device].used_bytes -= bytes;
}
