/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Nodes whose agents wait for a lock: the turns as the scheduler takes them (cluster/lock.h), and
 * agents that take their time, fail, or leave the lock behind.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/util.h"
#include "cluster/lock.h"
#include "cluster/random_judge.h"
#include "cluster/random_show.h"
#include "model/keys.h"

/* A request is answered some steps after it was sent. */
static struct turns {
    struct node_lock lock;
    unsigned queue[PODS], count; /* binds that wait, or have the turn */
    enum lock_step running;      /* the request that is on its way; LOCK_REST: none */
    bool read_early;             /* when it was sent, not when it is answered: */
    struct api_node node;
} turns[NODES];

static struct api_pod *pod_of(unsigned number)
{
    return &world.api.pods[number];
}

static unsigned node_number(const char *name)
{
    return (unsigned)(name[5] - '0');
}

static struct lock_set locks_of(unsigned pod)
{
    return cluster_pod_locks(world.cluster, pod_of(pod)->uid);
}

bool locks_are_needed(unsigned pod)
{
    return locks_of(pod).count > 0;
}

void locks_enter(unsigned pod)
{
    struct turns *all = &turns[node_number(pod_of(pod)->bind_node)];

    world.covered.waited += all->count > 0;
    all->queue[all->count++] = pod;
}

void locks_leave(unsigned pod, bool bound)
{
    struct turns *all = &turns[node_number(pod_of(pod)->bind_node)];
    unsigned at = 0;

    while (at < all->count && all->queue[at] != pod)
        at++;
    if (at == all->count)
        return;
    if (pod_of(pod)->told)
        node_lock_bound(&all->lock, bound, world.now_ns);
    else if (at == 0)
        node_lock_give_up(&all->lock, world.now_ns);
    all->count--;
    memmove(all->queue + at, all->queue + at + 1, (all->count - at) * sizeof(all->queue[0]));
}

void locks_reset(void)
{
    memset(turns, 0, sizeof(turns));
}

/* The API server. */

static void fill_with_spec(const struct api_pod *from, struct shown_pod *shown)
{
    show_fill_pod(from, shown);
    shown->pod.has_spec = true;
    shown->pod.started = from->allocated;
}

/* Of the pods of the node whose allocations go on the one that was bound last. */
static void answer_list(unsigned node)
{
    const struct lock_set locks = cluster_node_locks(world.cluster, world.api.nodes[node].name);
    struct lock_pod found;
    int64_t least_ns = INT64_MAX;

    for (unsigned i = 0; i < PODS; i++) {
        const struct api_pod *from = pod_of(i);
        struct shown_pod shown;
        int64_t age_ns;

        if (!from->exists || strcmp(from->node, world.api.nodes[node].name) != 0)
            continue;
        fill_with_spec(from, &shown);
        if (!lock_pod_waits(world.vendors, &shown.pod, from->node, WALL_NS + world.now_ns,
                            &age_ns) ||
            age_ns >= least_ns)
            continue;
        least_ns = age_ns;
        COPY_TEXT(found.namespace, from->space);
        COPY_TEXT(found.name, from->name);
        COPY_TEXT(found.uid, from->uid);
    }
    node_lock_listed(&turns[node].lock, world_draw(10) > 0, least_ns < INT64_MAX ? &found : NULL,
                     least_ns < INT64_MAX ? least_ns : 0, &locks, world.now_ns);
}

static void answer_node(unsigned node)
{
    static struct shown_node shown;
    const struct api_node *from =
        turns[node].read_early ? &turns[node].node : &world.api.nodes[node];

    show_fill_node(from, &shown);
    node_lock_read(&turns[node].lock, world_draw(10) ? &shown.node : NULL, world.now_ns,
                   WALL_NS + world.now_ns);
    world.covered.locks_found += turns[node].lock.taken && turns[node].lock.found[0];
}

static void answer_pod(unsigned node)
{
    struct node_lock *lock = &turns[node].lock;
    struct shown_pod shown;
    const struct pod *found = NULL;

    for (unsigned i = 0; i < PODS; i++) {
        const struct api_pod *from = pod_of(i);

        if (!from->exists || strcmp(from->name, lock->turn.name) != 0 ||
            strcmp(from->space, lock->turn.namespace) != 0)
            continue;
        fill_with_spec(from, &shown);
        found = &shown.pod;
    }
    node_lock_looked(lock,
                     world_draw(10) ? lock_pod_progress(world.vendors, found, &lock->turn,
                                                        world.api.nodes[node].name)
                                    : LOCK_UNKNOWN,
                     world.now_ns);
}

/* The text between two others, or NULL. */
static const char *cut_out(const char *text, const char *before, char to[static LOCK_TEXT])
{
    const char *from = strstr(text, before);
    size_t len;

    if (!from)
        return NULL;
    from += strlen(before);
    len = strcspn(from, "\"");
    assert_true(len < LOCK_TEXT);
    memcpy(to, from, len);
    to[len] = '\0';
    return to;
}

/* As the API server does it: not if the node is another than the one that was read. */
static bool carry_out_patch(unsigned node, const char *patch)
{
    struct api_node *api = &world.api.nodes[node];
    const struct node_lock *lock = &turns[node].lock;
    char version[LOCK_TEXT], value[LOCK_TEXT];

    assert_non_null(cut_out(patch, "\"resourceVersion\":\"", version));
    if (!api->exists || (unsigned)strtoul(version, NULL, 10) != api->version)
        return false;
    if (strstr(patch, "\"hami.io/mutex.lock\":null")) {
        judge_lock_removed(node);
        world.covered.locks_broken += lock->breaks;
        api->locked = false;
    } else {
        assert_non_null(cut_out(patch, "\"hami.io/mutex.lock\":\"", value));
        judge_lock_written(node, lock->wrote.namespace, lock->wrote.name);
        assert_non_null(strstr(value, lock->wrote.name));
        api->locked = true;
        COPY_TEXT(api->lock, value);
        api->lock_ns = api->lock_since_ns = world.now_ns;
    }
    world_node_changed(node);
    return true;
}

/* It is carried out, or not; that it was is said, or not. */
static void answer_patch(unsigned node)
{
    struct strbuf patch = STRBUF_INIT(4096);
    bool done = false;

    node_lock_write_patch(&turns[node].lock, WALL_NS + world.now_ns, &patch);
    if (world_draw(10))
        done = carry_out_patch(node, strbuf_text(&patch));
    node_lock_patched(&turns[node].lock, done && world_draw(10), world.now_ns);
    strbuf_deinit(&patch);
}

static void begin_request(unsigned node, enum lock_step step)
{
    struct turns *all = &turns[node];

    all->running = step;
    all->read_early = world_draw(2);
    all->node = world.api.nodes[node];
}

static void answer_request(unsigned node)
{
    const enum lock_step step = turns[node].running;

    turns[node].running = LOCK_REST;
    if (step == LOCK_LIST_PODS)
        answer_list(node);
    else if (step == LOCK_GET_NODE)
        answer_node(node);
    else if (step == LOCK_GET_POD)
        answer_pod(node);
    else
        answer_patch(node);
}

static void want_turn(struct turns *all)
{
    const struct api_pod *first = pod_of(all->queue[0]);
    const struct lock_set locks = locks_of(all->queue[0]);
    struct lock_pod pod;

    if (!locks.count) /* its node is gone, or needs none any more: it waits till it gives up */
        return;
    COPY_TEXT(pod.namespace, first->space);
    COPY_TEXT(pod.name, first->name);
    COPY_TEXT(pod.uid, first->uid);
    node_lock_want(&all->lock, &pod, &locks, world.now_ns);
}

void locks_step(unsigned node)
{
    struct turns *all = &turns[node];
    enum lock_step step;
    int64_t until_ns;

    if (all->running != LOCK_REST) {
        answer_request(node);
        return;
    }
    if (all->count && !pod_of(all->queue[0])->told && !all->lock.wanted && !all->lock.binding)
        want_turn(all);
    if (node_lock_is_idle(&all->lock)) {
        all->lock = (struct node_lock){.listed = all->lock.listed};
        return;
    }
    step = node_lock_step(&all->lock, world.now_ns, &until_ns);
    if (step == LOCK_BIND) {
        judge_turn(node, all->queue[0]);
        pod_of(all->queue[0])->told = true;
        world.covered.turns++;
    } else if (step != LOCK_REST) {
        begin_request(node, step);
    }
}

/* The watches. */

void locks_see_node(unsigned node)
{
    const struct api_node *from = &world.shown[node];
    const struct lock_set keys = cluster_node_locks(world.cluster, from->name);
    static struct shown_node shown;
    struct turns *all = &turns[node];

    if (node_lock_is_idle(&all->lock) && (!keys.count || !from->locked))
        return;
    show_fill_node(from, &shown);
    if (!keys.count)
        shown.node.annotations.count = 0;
    node_lock_see_node(&all->lock, &shown.node, &keys, world.now_ns, WALL_NS + world.now_ns);
    world.covered.locks_found += all->lock.taken && all->lock.found[0];
}

void locks_see_pod(const struct api_pod *pod, bool deleted)
{
    struct shown_pod shown;
    struct turns *all;

    if (!pod->node[0])
        return;
    all = &turns[node_number(pod->node)];
    if (deleted) {
        node_lock_see_deleted(&all->lock, pod->uid);
        return;
    }
    show_fill_pod(pod, &shown);
    node_lock_see_pod(&all->lock, world.vendors, &shown.pod, pod->node, world.now_ns);
}

/* Others. */

/* Of two that read the same, one soon after the other, nobody can tell the second from the first.
 */
static void write_unreadable(struct api_node *node)
{
    static int64_t empty_ns[NODES];
    static unsigned count;
    int64_t *last_ns = &empty_ns[node_number(node->name)];
    const bool empty = world_draw(2) && world.now_ns - *last_ns > 600 * SECOND_NS;

    node->lock[0] = '\0';
    node->lock_ns = node->lock_since_ns;
    if (empty)
        *last_ns = world.now_ns;
    else
        (void)snprintf(node->lock, sizeof(node->lock), "x,%u", count++);
}

static void write_foreign(struct api_node *node)
{
    const struct api_pod *some = pod_of(world_draw(PODS));
    const int64_t age_ns = world_draw(3) ? 0 : 310 * SECOND_NS;
    char time[CLOCK_UTC_SIZE], text[LOCK_TEXT];

    node->locked = true;
    node->lock_since_ns = world.now_ns;
    node->lock_ns = world.now_ns - age_ns;
    (void)clock_format_utc((WALL_NS + node->lock_ns) / SECOND_NS, time);
    switch (world_draw(5)) {
    case 0:
        (void)snprintf(node->lock, sizeof(node->lock), "%s,elsewhere,nobody", time);
        break;
    case 1:
        (void)snprintf(text, sizeof(text), "%s,%s,%s", time, some->space, some->name);
        COPY_TEXT(node->lock, text);
        break;
    case 2:
        (void)snprintf(node->lock, sizeof(node->lock), "%s", time);
        break;
    default:
        write_unreadable(node);
        break;
    }
}

void locks_disturb(unsigned node)
{
    struct api_node *api = &world.api.nodes[node];

    if (!api->exists || (!api->foreign && !world_has_agent(node)))
        return;
    if (!api->locked)
        write_foreign(api);
    else if (world_draw(3) == 0)
        api->locked = false;
    else
        return;
    world_node_changed(node);
}

/* Some agents leave the lock behind, and some allocations fail. */
void locks_allocate(unsigned node)
{
    struct api_node *api = &world.api.nodes[node];
    const unsigned first = world_draw(PODS);

    for (unsigned i = 0; i < PODS; i++) {
        struct api_pod *pod = pod_of((first + i) % PODS);

        if (!pod->exists || strcmp(pod->node, api->name) != 0 || pod->allocated || pod->failed ||
            pod->garbage)
            continue;
        pod->failed = world_draw(8) == 0;
        pod->allocated = !pod->failed;
        world.covered.failed += pod->failed;
        world_pod_changed((first + i) % PODS);
        if (!api->locked || !pod->turn)
            return;
        if (world_draw(6) == 0) {
            world.covered.locks_left++;
            return;
        }
        api->locked = false;
        world_node_changed(node);
        return;
    }
}
