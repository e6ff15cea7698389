/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A descriptor that stands for memory is one end of a pair of sockets, in which a text waits that
 * names the piece: whoever looks at it leaves it there. The exporter has the other end, which hangs
 * up as the last copy of the descriptor is closed, whoever has it. After the exporter's death
 * nobody can see that any more.
 */

#include "simdriver/physical.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/util.h"
#include "simdriver/pool.h"

#define EXPORT_MAGIC UINT64_C(0x74726f7078656d76) /* "vmexport" */
#define DMA_BUF_MAGIC UINT64_C(0x6675622d616d64)  /* "dma-buf": no import */

struct label {
    uint64_t magic;
    uint64_t dev, ino; /* the machine's */
    uint32_t physical, gen;
};

/* Sums */

static void count_for(struct sim_state *s, const struct sim_physical *p, uint32_t owner)
{
    struct sim_usage *usage = &s->processes[owner - 1].usage[p->device];

    if (!p->unlisted)
        usage->physical_bytes += p->bytes;
    usage->peak_bytes = MAX(usage->peak_bytes, sim_used_bytes(usage));
    s->devices[p->device].used_bytes += p->bytes;
}

static void uncount(struct sim_state *s, const struct sim_physical *p)
{
    if (!p->unlisted)
        s->processes[p->owner - 1].usage[p->device].physical_bytes -= p->bytes;
    s->devices[p->device].used_bytes -= p->bytes;
}

static bool is_counted(const struct sim_physical *p)
{
    return p->device < SIM_DEVICES;
}

static void physical_free(struct sim_state *s, uint32_t physical)
{
    if (is_counted(&s->physicals[physical]))
        uncount(s, &s->physicals[physical]);
    sim_pool_give_back(&s->physical_pool, s->physicals, sizeof(s->physicals[0]), physical);
}

/* The hold that it is counted by from now on: the one that it was, else the first; 0 while a
 * descriptor is open of what that one has let go of, whoever imported it, its maker too. */
static uint32_t heir(const struct sim_state *s, uint32_t physical)
{
    if (s->physicals[physical].hold)
        return s->physicals[physical].hold;
    for (uint32_t i = 1; i <= s->export_pool.high; i++) {
        if (s->exports[i].owner && s->exports[i].physical == physical)
            return 0;
    }
    for (uint32_t i = 1; i <= s->hold_pool.high; i++) {
        if (s->holds[i].owner && s->holds[i].physical == physical)
            return i;
    }
    return 0;
}

static void unlist(struct sim_state *s, struct sim_physical *p)
{
    if (is_counted(p) && !p->unlisted)
        s->processes[p->owner - 1].usage[p->device].physical_bytes -= p->bytes;
    p->unlisted = 1;
}

static void hand_over(struct sim_state *s, uint32_t physical)
{
    struct sim_physical *p = &s->physicals[physical];
    uint32_t next = heir(s, physical);

    if (!next)
        unlist(s, p);
    if (!next || next == p->hold)
        return;
    if (is_counted(p))
        uncount(s, p);
    p->hold = next;
    p->unlisted = 0;
    if (is_counted(p))
        count_for(s, p, s->holds[next].owner);
    __atomic_store_n(&p->owner, s->holds[next].owner, __ATOMIC_RELEASE);
}

static void one_user_less(struct sim_state *s, uint32_t physical)
{
    if (--s->physicals[physical].users)
        hand_over(s, physical);
    else
        physical_free(s, physical);
}

/* Holds */

uint32_t sim_hold_new(struct sim *sim, uint32_t physical)
{
    struct sim_state *s = sim->state;
    uint32_t i = sim_pool_take(&s->hold_pool, s->holds, sizeof(s->holds[0]), SIM_HOLDS);

    if (!i)
        return 0;
    s->holds[i].physical = physical;
    s->holds[i].handles = 1;
    s->physicals[physical].users++;
    __atomic_store_n(&s->holds[i].owner, (uint32_t)sim->slot + 1, __ATOMIC_RELEASE);
    return i;
}

static void hold_free(struct sim_state *s, uint32_t hold)
{
    uint32_t physical = s->holds[hold].physical;

    if (s->physicals[physical].hold == hold)
        s->physicals[physical].hold = 0;
    sim_pool_give_back(&s->hold_pool, s->holds, sizeof(s->holds[0]), hold);
    one_user_less(s, physical);
}

void sim_hold_settle(struct sim_state *s, uint32_t hold)
{
    if (!s->holds[hold].handles && !s->holds[hold].maps)
        hold_free(s, hold);
}

void sim_hold_drop(struct sim_state *s, uint32_t hold)
{
    s->holds[hold].handles--;
    sim_hold_settle(s, hold);
}

uint32_t sim_physical_new(struct sim *sim, const struct sim_physical *template)
{
    struct sim_state *s = sim->state;
    struct sim_physical *p;
    uint32_t i, hold, gen;

    if (is_counted(template) && !sim_make_room(sim, template->device, template->bytes))
        return 0;
    i = sim_pool_take(&s->physical_pool, s->physicals, sizeof(s->physicals[0]), SIM_PHYSICALS);
    if (!i)
        return 0;
    p = &s->physicals[i];
    gen = p->gen;
    *p = *template;
    p->gen = gen;
    p->users = 0;
    if (is_counted(p))
        count_for(s, p, (uint32_t)sim->slot + 1);
    __atomic_store_n(&p->owner, (uint32_t)sim->slot + 1, __ATOMIC_RELEASE);
    hold = sim_hold_new(sim, i);
    p->hold = hold;
    if (!hold)
        physical_free(s, i);
    return hold;
}

/* Exports */

static struct label label_of(const struct sim *sim, uint32_t physical, bool dma_buf)
{
    return (struct label){
        .magic = dma_buf ? DMA_BUF_MAGIC : EXPORT_MAGIC,
        .dev = sim->dev,
        .ino = sim->ino,
        .physical = physical,
        .gen = sim->state->physicals[physical].gen,
    };
}

/* A socket in which the label waits to be read, and its other end: like NVIDIA's descriptors it can
 * be polled, and is known for closed once it is in nobody's hands. */
static int open_files(const struct label *label, int *ret_given, int *ret_own, uint64_t *ret_ino)
{
    AUTOCLOSE int given = -1, own = -1;
    struct stat st;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -EMFILE;
    given = pair[0];
    own = pair[1];
    if (send(own, label, sizeof(*label), MSG_NOSIGNAL) != sizeof(*label) || fstat(own, &st) < 0)
        return -EMFILE;
    *ret_ino = st.st_ino;
    *ret_given = take_fd(&given);
    *ret_own = take_fd(&own);
    return 0;
}

int sim_export_new(struct sim *sim, uint32_t physical, bool dma_buf)
{
    struct sim_state *s = sim->state;
    struct label label = label_of(sim, physical, dma_buf);
    struct sim_export *e;
    uint32_t i;
    int given, r;

    i = sim_pool_take(&s->export_pool, s->exports, sizeof(s->exports[0]), SIM_EXPORTS);
    if (!i)
        return -EMFILE;
    e = &s->exports[i];
    r = open_files(&label, &given, &e->fd, &e->ino);
    if (r < 0) {
        sim_pool_give_back(&s->export_pool, s->exports, sizeof(s->exports[0]), i);
        return r;
    }
    e->physical = physical;
    e->dma_buf = dma_buf;
    s->physicals[physical].users++;
    __atomic_store_n(&e->owner, (uint32_t)sim->slot + 1, __ATOMIC_RELEASE);
    return given;
}

uint32_t sim_export_find(const struct sim *sim, int fd)
{
    const struct sim_state *s = sim->state;
    const struct sim_physical *p;
    struct label label;

    if (fd < 0 || recv(fd, &label, sizeof(label), MSG_PEEK | MSG_DONTWAIT) != sizeof(label) ||
        label.magic != EXPORT_MAGIC || label.dev != sim->dev || label.ino != sim->ino)
        return 0;
    if (!label.physical || label.physical > s->physical_pool.high)
        return 0;
    p = &s->physicals[label.physical];
    return p->owner && p->gen == label.gen ? label.physical : 0;
}

static void export_free(struct sim_state *s, uint32_t i)
{
    uint32_t physical = s->exports[i].physical;

    sim_pool_give_back(&s->export_pool, s->exports, sizeof(s->exports[0]), i);
    one_user_less(s, physical);
}

/* The program may have closed our descriptor as well; then it is taken for closed. */
static bool is_open_elsewhere(const struct sim_export *e)
{
    struct pollfd end = {.fd = e->fd};
    struct stat st;

    if (fstat(e->fd, &st) < 0 || st.st_ino != e->ino)
        return false;
    if (poll(&end, 1, 0) == 0)
        return true;
    (void)close(e->fd);
    return false;
}

void sim_export_look(struct sim *sim)
{
    struct sim_state *s = sim->state;

    for (uint32_t i = 1; i <= s->export_pool.high; i++) {
        const struct sim_export *e = &s->exports[i];

        if (e->owner &&
            memcmp(&s->processes[e->owner - 1].who, &sim->self, sizeof(sim->self)) == 0 &&
            !is_open_elsewhere(e))
            export_free(s, i);
    }
}

/* Ends */

void sim_physical_drop(struct sim_state *s, unsigned slot)
{
    for (uint32_t i = 1; i <= s->hold_pool.high; i++) {
        if (s->holds[i].owner == slot + 1)
            hold_free(s, i);
    }
    for (uint32_t i = 1; i <= s->export_pool.high; i++) {
        if (s->exports[i].owner == slot + 1)
            export_free(s, i);
    }
}

static void count_users(struct sim_state *s)
{
    for (uint32_t i = 1; i <= s->physical_pool.high; i++) {
        struct sim_physical *p = &s->physicals[i];
        const struct sim_hold *hold = &s->holds[p->hold];

        p->users = 0;
        if (!hold->owner || hold->physical != i || hold->owner != p->owner)
            p->hold = 0;
    }
    for (uint32_t i = 1; i <= s->hold_pool.high; i++)
        s->physicals[s->holds[i].physical].users += s->holds[i].owner != 0;
    for (uint32_t i = 1; i <= s->export_pool.high; i++)
        s->physicals[s->exports[i].physical].users += s->exports[i].owner != 0;
}

/* What the dead were about to make or to end is gone. The sums of processes begin at nothing. */
void sim_physical_repair(struct sim_state *s)
{
    for (uint32_t i = 1; i <= s->hold_pool.high; i++) {
        struct sim_hold *hold = &s->holds[i];

        if (hold->owner && !hold->handles && !hold->maps) {
            hold->gen++;
            hold->owner = 0;
        }
    }
    count_users(s);
    for (uint32_t i = 1; i <= s->physical_pool.high; i++) {
        struct sim_physical *p = &s->physicals[i];

        if (p->owner && !p->users) {
            p->gen++;
            p->owner = 0;
        }
        if (p->owner && is_counted(p))
            count_for(s, p, p->owner);
        if (p->owner && !p->hold)
            hand_over(s, i);
    }
    sim_pool_rebuild(&s->physical_pool, s->physicals, sizeof(s->physicals[0]));
    sim_pool_rebuild(&s->hold_pool, s->holds, sizeof(s->holds[0]));
    sim_pool_rebuild(&s->export_pool, s->exports, sizeof(s->exports[0]));
}
