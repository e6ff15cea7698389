/* SPDX-License-Identifier: Apache-2.0 */

/* Nodes with a lock or turns, their queues of binds, and what the watches show of them. */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "base/util.h"
#include "model/keys.h"
#include "scheduler/lock_rooms.h"
#include "scheduler/scheduler.h"

enum {
    FOUND_MAX = sizeof(((struct lock_value *)NULL)->text), /* bytes of a lock that are kept */
};

/* Nodes. */

static struct locked_node *find_locked(const struct locks *locks, const char *name)
{
    struct locked_node *node;

    HASH_FIND_STR(locks->nodes, name, node);
    return node;
}

static struct locked_node *get_locked(struct locks *locks, const char *name)
{
    struct locked_node *node = find_locked(locks, name);

    if (node)
        return node;
    node = calloc(1, sizeof(*node));
    if (!node)
        return NULL;
    node->name = strdup(name);
    if (!node->name) {
        free(node);
        return NULL;
    }
    node->locks = locks;
    HASH_ADD_KEYPTR(hh, locks->nodes, node->name, strlen(node->name), node);
    return node;
}

static void forget_found(struct locked_node *node)
{
    while (node->found_count)
        free((char *)node->found[--node->found_count].value);
}

static void free_locked(struct locked_node *node)
{
    HASH_DEL(node->locks->nodes, node);
    forget_found(node);
    free(node->name);
    free(node);
}

/* Begins to do something for the node. False: no memory. */
static bool wake(struct locked_node *node)
{
    if (node->lock)
        return true;
    node->lock = calloc(1, sizeof(*node->lock));
    if (!node->lock)
        return false;
    node->lock->listed = node->listed;
    DL_APPEND2(node->locks->active, node, prev_active, next_active);
    return true;
}

static void sleep_again(struct locked_node *node)
{
    node->listed = node->lock->listed;
    DL_DELETE2(node->locks->active, node, prev_active, next_active);
    free(node->lock);
    node->lock = NULL;
    if (!node->listed && !node->found_count)
        free_locked(node);
}

/* What is to be done next, and when to look again. */

static void give_turn(struct locked_node *node)
{
    struct lock_wait *first = node->queue;

    first->has_turn = true;
    first->on_turn(first);
}

static void on_timer(uv_timer_t *timer);

static void wake_at(struct locks *locks, int64_t until_ns)
{
    const int64_t ms = MAX((until_ns - clock_now_ns()) / NS_PER_MS, INT64_C(0)) + 1;

    uv_update_time(&locks->scheduler->loop);
    if (uv_is_active((uv_handle_t *)&locks->timer) &&
        uv_timer_get_due_in(&locks->timer) <= (uint64_t)ms)
        return;
    (void)uv_timer_start(&locks->timer, on_timer, (uint64_t)ms, 0);
}

static void advance_once(struct locked_node *node)
{
    int64_t until_ns = 0;
    const enum lock_step step = node_lock_step(node->lock, clock_now_ns(), &until_ns);

    switch (step) {
    case LOCK_REST:
        if (until_ns)
            wake_at(node->locks, until_ns);
        return;
    case LOCK_LIST_PODS:
    case LOCK_GET_NODE:
    case LOCK_GET_POD:
    case LOCK_PATCH:
        lock_request(node, step);
        return;
    case LOCK_BIND:
        give_turn(node);
        return;
    }
}

/* The first of the queue wants the turn as long as it does not have it. */
void locks_advance(struct locked_node *node)
{
    struct lock_wait *first = node->queue;

    if (first && !first->has_turn && !node->lock->wanted && !node->lock->binding)
        node_lock_want(node->lock, &first->pod, &first->locks, clock_now_ns());
    if (node_lock_is_idle(node->lock))
        sleep_again(node);
    else
        advance_once(node);
}

static void advance_all(struct locks *locks)
{
    struct locked_node *node, *next;

    DL_FOREACH_SAFE2(locks->active, node, next, next_active)
    {
        locks_advance(node);
    }
}

static void on_timer(uv_timer_t *timer)
{
    advance_all(timer->data);
}

/* The queue. */

int locks_wait(struct locks *locks, struct lock_wait *wait, const char *name)
{
    struct locked_node *node = get_locked(locks, name);

    if (!node || !wake(node))
        return -ENOMEM;
    wait->node = node;
    wait->has_turn = false;
    DL_APPEND(node->queue, wait);
    wake_at(locks, clock_now_ns());
    return 0;
}

void locks_leave(struct lock_wait *wait, bool bound)
{
    struct locked_node *node = TAKE(wait->node);

    if (!node)
        return;
    if (wait->has_turn)
        node_lock_bound(node->lock, bound, clock_now_ns());
    else if (node->queue == wait)
        node_lock_give_up(node->lock, clock_now_ns());
    DL_DELETE(node->queue, wait);
    wait->has_turn = false;
    wake_at(node->locks, clock_now_ns());
}

const char *locks_holder(const struct lock_wait *wait, char *to, size_t size)
{
    const struct node_lock *lock = wait->node ? wait->node->lock : NULL;

    if (!lock || !lock->taken)
        (void)snprintf(to, size, "its lock could not be written in time");
    else if (!lock->turn.name[0])
        (void)snprintf(to, size, "it is locked, by whom is not known: \"%.64s\"", lock->found);
    else
        (void)snprintf(to, size, "it is locked for pod %.64s/%.256s", lock->turn.namespace,
                       lock->turn.name);
    return to;
}

/* The watches. */

static bool keep_found(struct locked_node *node, const char *key, const char *text)
{
    char *copy = strndup(text, FOUND_MAX);

    if (!copy)
        return false;
    node->found[node->found_count++] = (struct text_pair){key, copy};
    return true;
}

/* A lock that a watch showed is looked at while this scheduler decides. */
static void look_at_found(struct locked_node *node)
{
    const struct lock_set locks = cluster_node_locks(scheduler_of(node)->cluster, node->name);
    const struct node seen = {
        .name = node->name,
        .resource_version = "",
        .annotations = {node->found, node->found_count},
    };

    if (!leader_may_decide(scheduler_of(node)) || !node->locks->allowed)
        return;
    if (!node->lock && (!node->found_count || !locks.count || !wake(node)))
        return;
    node_lock_see_node(node->lock, &seen, &locks, clock_now_ns(), wall_ns());
    wake_at(node->locks, clock_now_ns());
}

void locks_see_node(struct locks *locks, const struct node *from)
{
    struct lock_set keys = cluster_node_locks(locks->scheduler->cluster, from->name);
    struct locked_node *node = find_locked(locks, from->name);
    bool any = false;

    if (!lock_set_is_written(&keys))
        keys.count = 0;
    for (size_t i = 0; i < keys.count; i++)
        any |= text_pairs_get(&from->annotations, keys.items[i]->key) != NULL;
    if (!node && any)
        node = get_locked(locks, from->name);
    if (!node)
        return;
    forget_found(node);
    for (size_t i = 0; i < keys.count; i++) {
        const char *text = text_pairs_get(&from->annotations, keys.items[i]->key);

        if (text)
            (void)keep_found(node, keys.items[i]->key, text);
    }
    if (!node->lock && !node->listed && !node->found_count)
        free_locked(node);
    else
        look_at_found(node);
}

bool locks_busy(const struct locks *locks)
{
    return locks->active != NULL;
}

void locks_see_pod(struct locks *locks, const struct pod *pod, bool deleted)
{
    const char *name = pod->has_spec ? pod->node_name : text_pairs_get(&pod->annotations, KEY_NODE);
    struct locked_node *node = name ? find_locked(locks, name) : NULL;

    if (!node || !node->lock)
        return;
    if (deleted)
        node_lock_see_deleted(node->lock, pod->uid);
    else
        node_lock_see_pod(node->lock, &locks->scheduler->vendors, pod, name, clock_now_ns());
    wake_at(locks, clock_now_ns());
}

void locks_tick(struct locks *locks)
{
    struct locked_node *node, *next;

    HASH_ITER(hh, locks->nodes, node, next)
    {
        if (!node->lock && !cluster_knows_node(locks->scheduler->cluster, node->name))
            free_locked(node);
        else if (!node->lock && node->found_count)
            look_at_found(node);
    }
    handshakes_tick(locks);
    if (locks->known && !locks->allowed)
        locks_ask_rights(locks);
}

/* Begin and end. */

struct locks *locks_new(struct scheduler *scheduler)
{
    struct locks *locks = calloc(1, sizeof(*locks));

    if (!locks)
        return NULL;
    locks->scheduler = scheduler;
    (void)uv_timer_init(&scheduler->loop, &locks->timer);
    locks->timer.data = locks;
    return locks;
}

void locks_reset(struct locks *locks)
{
    struct locked_node *node, *next;

    if (!locks)
        return;
    HASH_ITER(hh, locks->nodes, node, next)
    {
        kube_request_cancel(TAKE(node->running));
        node->listed = false;
        if (!node->lock)
            continue;
        node->lock->listed = false;
        sleep_again(node);
    }
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void locks_free(struct locks *locks)
{
    struct locked_node *node, *next;

    locks_reset(locks);
    if (!locks)
        return;
    HASH_ITER(hh, locks->nodes, node, next)
    {
        free_locked(node);
    }
    uv_close((uv_handle_t *)&locks->timer, on_closed);
}
