/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/lock.h"

#include <string.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/util.h"

enum {
    PAUSE_FIRST_MS = 50, /* before a step that failed is tried again; doubled each time */
    PAUSE_MAX_MS = 2000,
};

static bool is_same_pod(const struct lock_pod *a, const struct lock_pod *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->namespace, b->namespace) == 0 &&
           (!a->uid[0] || !b->uid[0] || strcmp(a->uid, b->uid) == 0);
}

static const char *lock_of(const struct node *node, const struct vendor_lock *lock)
{
    return lock->key ? text_pairs_get(&node->annotations, lock->key) : NULL;
}

/* Agents remove the annotation, some leave it empty; HAMi takes an empty one for an unreadable
 * lock. */
static bool is_there(const char *text)
{
    return text != NULL;
}

static int64_t longest(const struct lock_set *locks)
{
    int64_t ns = 0;

    for (size_t i = 0; i < locks->count; i++)
        ns = MAX(ns, locks->items[i]->until_ns);
    return ns;
}

static void begin_turn(struct node_lock *lock, const struct lock_pod *pod,
                       const struct lock_set *locks, int64_t now_ns)
{
    lock->taken = true;
    lock->turn = *pod;
    lock->turn_locks = *locks;
    lock->binding = lock->told = lock->over = lock->gone = lock->breaks = false;
    lock->begun_ns = lock->look_ns = now_ns;
    lock->until_ns = now_ns + longest(locks);
    lock->looks = 0;
    lock->is_read = false;
}

/* The wanting pod has the turn from now on, if it still wants it. */
static void begin_wanted(struct node_lock *lock, int64_t now_ns)
{
    begin_turn(lock, &lock->wrote, &lock->wrote_locks, now_ns);
    lock->failures = 0;
    lock->there = lock_set_is_written(&lock->wrote_locks);
    lock->binding = lock->wanted && is_same_pod(&lock->want, &lock->wrote);
    lock->gone = !lock->binding; /* its bind gave up meanwhile */
    lock->wanted &= !lock->binding;
}

static void end_turn(struct node_lock *lock)
{
    lock->taken = lock->is_read = false;
    lock->failures = 0;
    lock->pause_ns = 0;
}

static bool is_found(const struct lock_value *value, const struct node_lock *lock)
{
    return lock->has_found && strcmp(value->text, lock->found) == 0;
}

/* A lock that was removed, and is there once more, is another one. */
static void forget_found(struct node_lock *lock, const struct node *node,
                         const struct lock_set *locks)
{
    bool still = false;

    for (size_t i = 0; i < locks->count; i++) {
        const char *text = lock_of(node, locks->items[i]);
        struct lock_value value;

        if (!is_there(text))
            continue;
        lock_value_read(text, &value);
        still |= is_found(&value, lock);
    }
    lock->has_found &= still;
}

/* The pod that the lock names has the turn, or nobody knows who. */
static void adopt(struct node_lock *lock, const struct vendor_lock *kind,
                  const struct lock_value *value, int64_t now_ns, int64_t wall_ns)
{
    const struct lock_set locks = {{kind}, 1};
    int64_t left_ns = kind->until_ns;

    if (!is_found(value, lock)) {
        COPY_TEXT(lock->found, value->text);
        lock->has_found = true;
        lock->found_ns = now_ns;
    }
    begin_turn(lock, &value->holder, &locks, now_ns);
    lock->begun_ns = lock->found_ns;
    lock->there = true;
    if (value->readable)
        left_ns = MIN(left_ns, MAX(value->written_ns + kind->until_ns - wall_ns, INT64_C(0)));
    lock->until_ns = MIN(now_ns + left_ns, lock->found_ns + kind->until_ns);
}

static bool is_nameless(const struct node_lock *lock)
{
    return !lock->turn.name[0];
}

static void fail(struct node_lock *lock, int64_t now_ns)
{
    lock->is_read = false;
    lock->pause_ns = now_ns + backoff_ms(lock->failures, PAUSE_FIRST_MS, PAUSE_MAX_MS) * NS_PER_MS;
    lock->failures++;
}

static enum lock_step rest(int64_t until_ns, int64_t *ret_until_ns)
{
    *ret_until_ns = until_ns;
    return LOCK_REST;
}

static enum lock_step run(struct node_lock *lock, enum lock_step step)
{
    lock->running = true;
    return step;
}

static enum lock_step step_release(struct node_lock *lock, int64_t now_ns, int64_t *ret_until_ns)
{
    int64_t due_ns = lock->over_ns + LOCK_GRACE_NS;

    if (!lock->gone && !lock->breaks && now_ns < due_ns)
        return rest(due_ns, ret_until_ns);
    if (now_ns < lock->pause_ns)
        return rest(lock->pause_ns, ret_until_ns);
    return run(lock, lock->is_read ? LOCK_PATCH : LOCK_GET_NODE);
}

static enum lock_step step_turn(struct node_lock *lock, int64_t now_ns, int64_t *ret_until_ns)
{
    if (lock->binding) {
        if (lock->told)
            return rest(0, ret_until_ns);
        lock->told = true;
        return LOCK_BIND;
    }
    if (now_ns >= lock->until_ns)
        lock->breaks = true;
    if (lock->over || lock->gone || lock->breaks)
        return step_release(lock, now_ns, ret_until_ns);
    if (now_ns < lock->look_ns)
        return rest(MIN(lock->look_ns, lock->until_ns), ret_until_ns);
    return run(lock, is_nameless(lock) ? LOCK_GET_NODE : LOCK_GET_POD);
}

static bool has_ended(const struct node_lock *lock)
{
    return lock->taken && !lock->binding && !lock->there &&
           (lock->over || lock->gone || lock->breaks || is_nameless(lock));
}

enum lock_step node_lock_step(struct node_lock *lock, int64_t now_ns, int64_t *ret_until_ns)
{
    if (lock->running)
        return rest(0, ret_until_ns);
    if (has_ended(lock))
        end_turn(lock);
    if (lock->taken)
        return step_turn(lock, now_ns, ret_until_ns);
    if (!lock->wanted)
        return rest(0, ret_until_ns);
    if (now_ns < lock->pause_ns)
        return rest(lock->pause_ns, ret_until_ns);
    if (!lock->listed)
        return run(lock, LOCK_LIST_PODS);
    lock->wrote = lock->want;
    lock->wrote_locks = lock->want_locks;
    if (!lock_set_is_written(&lock->want_locks)) {
        begin_wanted(lock, now_ns);
        return step_turn(lock, now_ns, ret_until_ns);
    }
    return run(lock, lock->is_read ? LOCK_PATCH : LOCK_GET_NODE);
}

void node_lock_want(struct node_lock *lock, const struct lock_pod *pod,
                    const struct lock_set *locks, int64_t now_ns)
{
    lock->wanted = true;
    lock->want = *pod;
    lock->want_locks = *locks;
    /* It is not bound, so no agent is at it: a lock of its name is left from an earlier try. */
    if (lock->taken && !lock->binding && !lock->running && is_same_pod(&lock->turn, pod))
        end_turn(lock);
    /* A lock that was found for another pod, or for none, was not judged for this one. */
    if (!lock->taken)
        lock->is_read = false;
    lock->pause_ns = MIN(lock->pause_ns, now_ns);
}

void node_lock_give_up(struct node_lock *lock, int64_t now_ns)
{
    lock->wanted = false;
    if (lock->taken && lock->binding && !lock->told) {
        lock->binding = false;
        lock->gone = true;
        lock->over_ns = now_ns;
    }
}

void node_lock_listed(struct node_lock *lock, bool done, const struct lock_pod *found,
                      int64_t age_ns, const struct lock_set *locks, int64_t now_ns)
{
    struct lock_set all = *locks;

    lock->running = false;
    if (!done) {
        fail(lock, now_ns);
        return;
    }
    lock->failures = 0;
    for (size_t i = 0; i < lock->want_locks.count; i++)
        (void)lock_set_add(&all, lock->want_locks.items[i]);
    if (age_ns >= longest(&all))
        found = NULL;
    lock->listed = !found;
    if (!found)
        return;
    begin_turn(lock, found, &all, now_ns);
    lock->until_ns -= age_ns;
    lock->there = false; /* if it is, it is found when the node is read for the next pod */
}

/* Whether the lock still stands for the turn's pod. */
static bool stands(const struct node_lock *lock, const struct vendor_lock *kind, const char *text)
{
    struct lock_value value;

    if (!is_there(text))
        return false;
    lock_value_read(text, &value);
    if (is_nameless(lock))
        return is_found(&value, lock);
    return kind->names_pod ? lock_value_names(&value, &lock->turn)
                           : strcmp(value.text, lock->wrote_time) == 0;
}

static void read_turn(struct node_lock *lock, const struct node *node)
{
    lock->there = false;
    for (size_t i = 0; i < lock->turn_locks.count; i++)
        lock->there |=
            stands(lock, lock->turn_locks.items[i], lock_of(node, lock->turn_locks.items[i]));
}

/* Whether the lock is in the way of the wanting pod. */
static bool is_in_the_way(const struct node_lock *lock, const struct vendor_lock *kind,
                          const struct lock_value *value, int64_t now_ns, int64_t wall_ns)
{
    if (lock_value_names(value, &lock->want))
        return false;
    if (value->readable && wall_ns - value->written_ns > kind->until_ns)
        return false;
    return !is_found(value, lock) || now_ns - lock->found_ns < kind->until_ns;
}

/* The first lock in the way has the turn. */
static void read_for_want(struct node_lock *lock, const struct node *node, int64_t now_ns,
                          int64_t wall_ns)
{
    for (size_t i = 0; i < lock->want_locks.count; i++) {
        const struct vendor_lock *kind = lock->want_locks.items[i];
        const char *text = lock_of(node, kind);
        struct lock_value value;

        if (!is_there(text))
            continue;
        lock_value_read(text, &value);
        if (is_in_the_way(lock, kind, &value, now_ns, wall_ns)) {
            adopt(lock, kind, &value, now_ns, wall_ns);
            return;
        }
    }
}

static void plan_look(struct node_lock *lock, int64_t now_ns)
{
    const int64_t pause_ns =
        backoff_ms(lock->looks, LOCK_LOOK_FIRST_NS / NS_PER_MS, LOCK_LOOK_MAX_NS / NS_PER_MS) *
        NS_PER_MS;

    lock->looks++;
    lock->look_ns = now_ns + pause_ns;
}

void node_lock_read(struct node_lock *lock, const struct node *node, int64_t now_ns,
                    int64_t wall_ns)
{
    lock->running = false;
    if (!node) {
        fail(lock, now_ns);
        plan_look(lock, now_ns);
        return;
    }
    lock->is_read = true;
    COPY_TEXT(lock->version, node->resource_version);
    if (lock->taken) {
        forget_found(lock, node, &lock->turn_locks);
        read_turn(lock, node);
        plan_look(lock, now_ns);
    } else if (lock->wanted) {
        forget_found(lock, node, &lock->want_locks);
        read_for_want(lock, node, now_ns, wall_ns);
    }
}

void node_lock_looked(struct node_lock *lock, enum lock_progress progress, int64_t now_ns)
{
    lock->running = false;
    if (!lock->taken || lock->binding || lock->over || lock->gone)
        return;
    lock->over = progress == LOCK_OVER;
    lock->gone = progress == LOCK_GONE ||
                 (progress == LOCK_UNBOUND && now_ns - lock->begun_ns >= LOCK_UNBOUND_NS);
    lock->over_ns = now_ns;
    plan_look(lock, now_ns);
}

void node_lock_patched(struct node_lock *lock, bool done, int64_t now_ns)
{
    lock->running = false;
    if (!done) {
        fail(lock, now_ns);
        return;
    }
    if (lock->taken) {
        lock->there = false;
        return;
    }
    begin_wanted(lock, now_ns);
}

void node_lock_bound(struct node_lock *lock, bool bound, int64_t now_ns)
{
    lock->binding = false;
    lock->gone = !bound;
    lock->begun_ns = now_ns; /* a Binding without an answer may be carried out yet */
    lock->until_ns = now_ns + longest(&lock->turn_locks);
    lock->look_ns = now_ns + LOCK_LOOK_FIRST_NS;
    lock->looks = 1;
}

void node_lock_write_patch(struct node_lock *lock, int64_t wall_ns, struct strbuf *buf)
{
    const struct lock_set *locks = lock->taken ? &lock->turn_locks : &lock->wrote_locks;

    if (!lock->taken)
        (void)clock_format_utc(wall_ns / NS_PER_S, lock->wrote_time);
    strbuf_add(buf, "{\"metadata\":{\"resourceVersion\":");
    strbuf_add_json(buf, lock->version);
    strbuf_add(buf, ",\"annotations\":{");
    for (size_t i = 0; i < locks->count; i++) {
        strbuf_add(buf, i ? "," : "");
        strbuf_add_json(buf, locks->items[i]->key);
        strbuf_add(buf, lock->taken ? ":null" : ":\"");
        if (lock->taken)
            continue;
        lock_value_write(locks->items[i], &lock->wrote, wall_ns, buf);
        strbuf_add(buf, "\"");
    }
    strbuf_add(buf, "}}}");
}

void node_lock_see_pod(struct node_lock *lock, const struct vendor_set *vendors,
                       const struct pod *pod, const char *node, int64_t now_ns)
{
    enum lock_progress progress;

    if (!lock->taken || lock->binding || strcmp(pod->name, lock->turn.name) != 0 ||
        strcmp(pod->namespace, lock->turn.namespace) != 0)
        return;
    progress = lock_pod_progress(vendors, pod, &lock->turn, node);
    if (progress != LOCK_OVER && progress != LOCK_GONE)
        return;
    if (!lock->over && !lock->gone)
        lock->over_ns = now_ns;
    lock->over |= progress == LOCK_OVER;
    lock->gone |= progress == LOCK_GONE;
}

void node_lock_see_deleted(struct node_lock *lock, const char *uid)
{
    if (lock->taken && !lock->binding && strcmp(lock->turn.uid, uid) == 0)
        lock->gone = true;
}

void node_lock_see_node(struct node_lock *lock, const struct node *node,
                        const struct lock_set *locks, int64_t now_ns, int64_t wall_ns)
{
    forget_found(lock, node, locks);
    if (lock->taken) {
        read_turn(lock, node);
        return;
    }
    for (size_t i = 0; i < locks->count && node_lock_is_idle(lock); i++) {
        const char *text = lock_of(node, locks->items[i]);
        struct lock_value value;

        if (!is_there(text))
            continue;
        lock_value_read(text, &value);
        adopt(lock, locks->items[i], &value, now_ns, wall_ns);
    }
}

bool node_lock_is_idle(const struct node_lock *lock)
{
    return !lock->running && !lock->taken && !lock->wanted;
}
