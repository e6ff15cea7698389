/* SPDX-License-Identifier: Apache-2.0 */
#include "simdriver/shared_semaphore.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/util.h"
#include "simdriver/model_parts.h"

static struct sim_semaphore *semaphores;

static bool is_semaphore(int fd, const struct stat *st)
{
    const int seals = fcntl(fd, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) && st->st_size >= (off_t)sizeof(uint64_t);
}

static uint64_t own_program(const struct sim *sim)
{
    return sim->state->processes[sim->slot].program;
}

static bool is_copy(const struct sim_value *value, uint64_t dev, uint64_t ino)
{
    return value->program && value->ino == ino && value->dev == dev;
}

/* This process' copy, which may be new; -1: there are too many. */
static int copy_at(struct sim_state *s, uint64_t program, const struct stat *st)
{
    int found = -1;

    for (int i = 0; i < SIM_VALUES; i++) {
        if (s->values[i].program == program && is_copy(&s->values[i], st->st_dev, st->st_ino))
            return i;
        if (found < 0 && !s->values[i].program)
            found = i;
    }
    if (found < 0)
        return -1;
    s->values[found] = (struct sim_value){.dev = st->st_dev, .ino = st->st_ino};
    for (int i = 0; i < SIM_VALUES; i++) {
        if (is_copy(&s->values[i], st->st_dev, st->st_ino))
            s->values[found].value = MAX(s->values[found].value, s->values[i].value);
    }
    __atomic_store_n(&s->values[found].program, program, __ATOMIC_RELEASE);
    return found;
}

int sim_semaphore_open(struct sim *sim, int fd, struct sim_semaphore *semaphore)
{
    struct stat st;
    void *counter;
    int value;

    if (fstat(fd, &st) < 0 || !is_semaphore(fd, &st))
        return -EINVAL;
    counter = mmap(NULL, sizeof(*semaphore->counter), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (counter == MAP_FAILED)
        return errno == ENOMEM ? -ENOMEM : -EINVAL;
    value = copy_at(sim->state, own_program(sim), &st);
    if (value < 0) {
        (void)munmap(counter, sizeof(*semaphore->counter));
        return -ENOMEM;
    }
    *semaphore =
        (struct sim_semaphore){.counter = counter, .value = (uint32_t)value, .next = semaphores};
    semaphores = semaphore;
    sim_semaphore_look(sim);
    return 0;
}

/* Whether an op that is still to be done is about the copy. */
static bool is_in_use(const struct sim_state *s, uint32_t value)
{
    for (uint32_t i = 1; i <= s->stream_pool.high; i++) {
        const struct sim_stream *st = &s->streams[i];

        for (uint64_t seq = st->head; st->owner && seq < st->tail; seq++) {
            const struct sim_op *op = &s->rings[i][seq % SIM_RING];

            if ((op->kind == SIM_OP_WAIT_VALUE || op->kind == SIM_OP_WRITE_VALUE) &&
                op->target == value)
                return true;
        }
    }
    return false;
}

static bool is_imported(uint32_t value)
{
    for (const struct sim_semaphore *one = semaphores; one; one = one->next) {
        if (one->value == value)
            return true;
    }
    return false;
}

/* A copy that something is still to be done with stays until the process ends. */
void sim_semaphore_close(struct sim *sim, struct sim_semaphore *semaphore)
{
    struct sim_semaphore **at = &semaphores;

    sim_semaphore_tell(sim);
    while (*at != semaphore)
        at = &(*at)->next;
    *at = semaphore->next;
    (void)munmap(semaphore->counter, sizeof(*semaphore->counter));
    if (!is_imported(semaphore->value) && !is_in_use(sim->state, semaphore->value))
        __atomic_store_n(&sim->state->values[semaphore->value].program, 0, __ATOMIC_RELEASE);
}

/* Not after a fork: the copy is the other one's, and may be anybody's by now. */
static bool is_own(const struct sim *sim, const struct sim_semaphore *semaphore)
{
    const struct sim_value *value = &sim->state->values[semaphore->value];

    return value->ino && value->program == own_program(sim);
}

void sim_semaphore_look(struct sim *sim)
{
    struct sim_state *s = sim->state;

    for (const struct sim_semaphore *one = semaphores; one; one = one->next) {
        uint64_t told = __atomic_load_n(one->counter, __ATOMIC_ACQUIRE);

        if (!is_own(sim, one) || told <= s->values[one->value].value)
            continue;
        sim_advance_all(s, sim_now(s));
        sim_semaphore_raise(s, one->value, told);
        sim_wake_watchers(s, one->value);
    }
}

void sim_semaphore_tell(const struct sim *sim)
{
    for (const struct sim_semaphore *one = semaphores; one; one = one->next) {
        const uint64_t value = sim->state->values[one->value].value;
        uint64_t told = __atomic_load_n(one->counter, __ATOMIC_RELAXED);

        while (is_own(sim, one) && told < value &&
               !__atomic_compare_exchange_n(one->counter, &told, value, false, __ATOMIC_RELEASE,
                                            __ATOMIC_RELAXED))
            ;
    }
}
