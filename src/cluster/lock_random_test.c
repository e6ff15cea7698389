/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One node, its agent, and binds, at random: answers that fail or lie, agents that remove the lock
 * early, late or never, pods that are deleted, and schedulers that are killed and remember nothing.
 * The judge knows the pods alone: of those that are bound, only one waits for its allocations, and
 * in the end no lock is left.
 *
 * usage: lock_random_test STEPS [SEED]
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "base/util.h"
#include "cluster/lock.h"
#include "model/keys.h"

#define WALL (INT64_C(1795374000) * NS_PER_S)
#define QUIET_NS (700 * NS_PER_S)

enum {
    PODS = 8,
};

enum pod_state {
    POD_NONE = 0,
    POD_WAITS, /* its bind is in the queue */
    POD_BINDS, /* its Binding is under way */
    POD_ALLOCATES,
    POD_RUNS,
};

struct test_pod {
    enum pod_state state;
    unsigned number; /* its name */
    int64_t bound_ns;
    bool lock_removed; /* by the agent, at its first container */
};

struct world {
    uint64_t random;
    int64_t now;
    struct test_pod pods[PODS];
    unsigned last, taken, killed;
    size_t queue[PODS], queued; /* positions of pods, the first has or wants the turn */
    char value[LOCK_VALUE_SIZE];
    bool locked;
    struct node_lock lock;
    bool quiet; /* nothing new happens, nothing fails */
};

static const struct lock_set mutex = {{&vendor_mutex_lock}, 1};

static unsigned draw(struct world *world, unsigned below)
{
    world->random ^= world->random << 13;
    world->random ^= world->random >> 7;
    world->random ^= world->random << 17;
    return (unsigned)(world->random >> 33) % below;
}

static bool fails(struct world *world)
{
    return !world->quiet && draw(world, 10) == 0;
}

static struct lock_pod name_of(const struct test_pod *pod)
{
    struct lock_pod name = {.namespace = "ns"};

    (void)snprintf(name.name, sizeof(name.name), "p%u", pod->number);
    (void)snprintf(name.uid, sizeof(name.uid), "u%u", pod->number);
    return name;
}

static void die(const struct world *world, const char *what)
{
    (void)printf("at %.3f s: %s\n", (double)world->now / 1e9, what);
    exit(EXIT_FAILURE);
}

/* Of the pods that wait for their allocations all but one are older than any turn. */
static void judge(const struct world *world)
{
    unsigned waiting = 0;

    for (size_t i = 0; i < PODS; i++)
        waiting += world->pods[i].state == POD_ALLOCATES &&
                   world->now - world->pods[i].bound_ns < 299 * NS_PER_S;
    if (waiting > 1)
        die(world, "two pods wait for their allocations");
}

static struct test_pod *find(struct world *world, const char *name)
{
    for (size_t i = 0; i < PODS; i++) {
        if (world->pods[i].state != POD_NONE && strcmp(name_of(&world->pods[i]).name, name) == 0)
            return &world->pods[i];
    }
    return NULL;
}

static void leave_queue(struct world *world, size_t at)
{
    memmove(world->queue + at, world->queue + at + 1,
            (--world->queued - at) * sizeof(world->queue[0]));
}

static struct node node_of(const struct world *world, struct text_pair *pair)
{
    *pair = (struct text_pair){KEY_NODE_LOCK, world->value};
    return (struct node){
        .name = "n", .resource_version = "1", .annotations = {pair, world->locked}};
}

static void answer_node(struct world *world)
{
    struct text_pair pair;
    const struct node node = node_of(world, &pair);

    node_lock_read(&world->lock, fails(world) ? NULL : &node, world->now, WALL + world->now);
}

static enum lock_progress progress_of(struct world *world, const char *name)
{
    const struct test_pod *pod = find(world, name);

    if (!pod)
        return LOCK_GONE;
    if (pod->state == POD_RUNS)
        return LOCK_OVER;
    return pod->state == POD_ALLOCATES ? LOCK_ALLOCATING : LOCK_UNBOUND;
}

/* A patch may be carried out though the answer says otherwise, and the other way round never. */
static void answer_patch(struct world *world)
{
    const bool done = !fails(world), told = done && !fails(world);
    struct strbuf value = {.max = sizeof(world->value)};

    if (done) {
        world->locked = !world->lock.taken;
        lock_value_write(&vendor_mutex_lock, &world->lock.wrote, WALL + world->now, &value);
        COPY_TEXT(world->value, strbuf_text(&value));
        strbuf_deinit(&value);
    }
    node_lock_patched(&world->lock, told, world->now);
}

static void answer_list(struct world *world)
{
    struct test_pod *found = NULL;
    struct lock_pod name;

    for (size_t i = 0; i < PODS; i++) {
        if (world->pods[i].state == POD_ALLOCATES &&
            (!found || found->bound_ns < world->pods[i].bound_ns))
            found = &world->pods[i];
    }
    if (found)
        name = name_of(found);
    node_lock_listed(&world->lock, !fails(world), found ? &name : NULL,
                     found ? world->now - found->bound_ns : 0, &mutex, world->now);
}

static void run_step(struct world *world)
{
    struct node_lock *lock = &world->lock;
    struct test_pod *first = world->queued ? &world->pods[world->queue[0]] : NULL;
    struct lock_pod name;
    int64_t until;

    if (first && first->state == POD_WAITS && !lock->wanted && !lock->binding) {
        name = name_of(first);
        node_lock_want(lock, &name, &mutex, world->now);
    }
    switch (node_lock_step(lock, world->now, &until)) {
    case LOCK_REST:
        return;
    case LOCK_LIST_PODS:
        answer_list(world);
        return;
    case LOCK_GET_NODE:
        answer_node(world);
        return;
    case LOCK_GET_POD:
        node_lock_looked(lock, fails(world) ? LOCK_UNKNOWN : progress_of(world, lock->turn.name),
                         world->now);
        return;
    case LOCK_PATCH:
        answer_patch(world);
        return;
    case LOCK_BIND:
        if (!first || strcmp(name_of(first).name, lock->turn.name) != 0)
            die(world, "a bind of another pod than the first of the queue");
        first->state = POD_BINDS;
        return;
    }
}

static void end_bind(struct world *world)
{
    struct test_pod *first = world->queued ? &world->pods[world->queue[0]] : NULL;
    const bool bound = !fails(world);

    if (!first || first->state != POD_BINDS)
        return;
    leave_queue(world, 0);
    first->state = bound ? POD_ALLOCATES : POD_NONE;
    first->bound_ns = world->now;
    first->lock_removed = false;
    node_lock_bound(&world->lock, bound, world->now);
}

static void begin_pod(struct world *world)
{
    for (size_t i = 0; i < PODS; i++) {
        if (world->pods[i].state != POD_NONE)
            continue;
        world->pods[i] = (struct test_pod){.state = POD_WAITS, .number = ++world->last};
        world->queue[world->queued++] = i;
        return;
    }
}

/* The first that waits in the queue gives up, or one further back. */
static void give_up(struct world *world)
{
    const size_t at = world->queued ? draw(world, (unsigned)world->queued) : 0;

    if (!world->queued || world->pods[world->queue[at]].state != POD_WAITS)
        return;
    if (at == 0)
        node_lock_give_up(&world->lock, world->now);
    world->pods[world->queue[at]].state = POD_NONE;
    leave_queue(world, at);
}

/* Its agent takes what is a pod's: the lock goes now, or later, or never. */
static void allocate(struct world *world)
{
    struct lock_value value;
    struct test_pod *pod;

    for (size_t i = 0; i < PODS; i++) {
        pod = &world->pods[i];
        if (pod->state != POD_ALLOCATES)
            continue;
        lock_value_read(world->locked ? world->value : "", &value);
        if (value.holder.name[0] && strcmp(value.holder.name, name_of(pod).name) != 0 &&
            find(world, value.holder.name) &&
            find(world, value.holder.name)->state == POD_ALLOCATES)
            die(world, "the agent finds another pod under the lock");
        if (draw(world, 3) == 0 && strcmp(value.holder.name, name_of(pod).name) == 0)
            world->locked = false;
        if (draw(world, 2) == 0) {
            pod->state = POD_RUNS;
            world->taken++;
        }
        return;
    }
}

static void delete_pod(struct world *world)
{
    struct test_pod *pod = &world->pods[draw(world, PODS)];

    if (pod->state != POD_ALLOCATES && pod->state != POD_RUNS)
        return;
    if (draw(world, 2))
        node_lock_see_deleted(&world->lock, name_of(pod).uid);
    pod->state = POD_NONE;
}

/* Nothing is remembered; what was sent is carried out, or never. */
static void kill_scheduler(struct world *world)
{
    for (size_t i = 0; i < world->queued; i++) {
        struct test_pod *pod = &world->pods[world->queue[i]];
        const bool bound = pod->state == POD_BINDS && draw(world, 2);

        pod->state = bound ? POD_ALLOCATES : POD_NONE;
        pod->bound_ns = world->now;
    }
    world->queued = 0;
    world->lock = (struct node_lock){.listed = false};
    world->killed++;
}

static void watch(struct world *world)
{
    struct text_pair pair;
    const struct node node = node_of(world, &pair);

    node_lock_see_node(&world->lock, &node, &mutex, world->now, WALL + world->now);
}

static void act(struct world *world)
{
    const unsigned what = draw(world, 100);

    world->now += draw(world, 200) * NS_PER_MS;
    if (what < 10)
        begin_pod(world);
    else if (what < 30)
        end_bind(world);
    else if (what < 45)
        allocate(world);
    else if (what < 50)
        delete_pod(world);
    else if (what < 52)
        give_up(world);
    else if (what == 52 && draw(world, 4) == 0)
        kill_scheduler(world);
    else if (what < 60)
        watch(world);
    else
        run_step(world);
}

/* All that began comes to its end, and the lock with it. */
static void become_quiet(struct world *world)
{
    const int64_t until = world->now + QUIET_NS;

    world->quiet = true;
    while (world->now < until) {
        world->now += NS_PER_S / 4;
        watch(world);
        run_step(world);
        end_bind(world);
        allocate(world);
        judge(world);
    }
    if (world->locked)
        die(world, "a lock is left");
    if (world->queued)
        die(world, "a bind still waits");
    for (size_t i = 0; i < PODS; i++)
        world->pods[i].state = POD_NONE;
    world->quiet = false;
}

int main(int argc, char **argv)
{
    static struct world world;
    uint64_t steps = 100000, seed = 1;

    if ((argc > 1 && parse_u64(argv[1], &steps) < 0) || (argc > 2 && parse_u64(argv[2], &seed) < 0))
        return 2;
    world.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (uint64_t i = 0; i < steps; i++) {
        act(&world);
        judge(&world);
        if (i % 5000 == 4999)
            become_quiet(&world);
    }
    (void)printf("%u pods, %u allocated, %u schedulers killed\n", world.last, world.taken,
                 world.killed);
    return world.taken ? EXIT_SUCCESS : EXIT_FAILURE;
}
