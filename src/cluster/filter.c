/* SPDX-License-Identifier: Apache-2.0 */

/* A decision and its reservation. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "cluster/evict.h"
#include "cluster/quota.h"
#include "cluster/scarcity.h"
#include "model/keys.h"

enum {
    AHEAD = 3, /* nodes whose devices are fetched while one is looked into */
};

static void add_up(const char *const *names, size_t count, uint64_t sums[static 2])
{
    sums[0] = sums[1] = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t hash = hash_bytes(names[i], strlen(names[i]));

        sums[0] += hash;
        sums[1] += hash * UINT64_C(0xd6e8feb86659fd93) ^ hash >> 32;
    }
}

static int candidates_grow(struct candidates *candidates, size_t count)
{
    const struct cluster_node **absent;
    const struct place_node **nodes;

    if (candidates->size >= count)
        return 0;
    nodes = reallocarray(candidates->nodes, count, sizeof(struct place_node *));
    if (!nodes)
        return -ENOMEM;
    candidates->nodes = nodes;
    absent = reallocarray(candidates->absent, count, sizeof(struct cluster_node *));
    if (!absent)
        return -ENOMEM;
    candidates->absent = absent;
    candidates->size = count;
    return 0;
}

static int compare_addresses(const void *a, const void *b)
{
    const struct place_node *const *left = a, *const *right = b;

    return (*left > *right) - (*left < *right);
}

/* The named nodes, each once: those that have devices in the order in which they lie in memory. */
static int candidates_gather(struct cluster *cluster, const char *const *names, size_t count)
{
    struct candidates *candidates = &cluster->candidates;
    uint64_t sums[2];

    add_up(names, count, sums);
    if (candidates->generation == cluster->generation && candidates->name_count == count &&
        candidates->sums[0] == sums[0] && candidates->sums[1] == sums[1])
        return 0;

    candidates->name_count = SIZE_MAX;
    if (candidates_grow(candidates, count) < 0)
        return -ENOMEM;
    candidates->count = candidates->absent_count = 0;
    cluster->gathers++;
    for (size_t i = 0; i < count; i++) {
        struct cluster_node *node = node_find(cluster, names[i]);

        if (!node || node->mark == cluster->gathers)
            continue;
        node->mark = cluster->gathers;
        if (node->absent)
            candidates->absent[candidates->absent_count++] = node;
        else
            candidates->nodes[candidates->count++] = node->place;
    }
    if (candidates->count)
        qsort(candidates->nodes, candidates->count, sizeof(candidates->nodes[0]),
              compare_addresses);
    candidates->generation = cluster->generation;
    candidates->name_count = count;
    candidates->sums[0] = sums[0];
    candidates->sums[1] = sums[1];
    return 0;
}

/* The annotations that record a placement, but for the times. */
static int write_placement(const struct pod *pod, const struct place_node *node,
                           const struct placement *placement, struct arena *arena,
                           struct text_pairs *ret_pairs)
{
    struct text_pair *pairs =
        ARENA_ARRAY(arena, struct text_pair, 3 + VENDOR_MAX_ANNOTATIONS * placement->vendor_count);
    const char *roles = pod_init_roles(pod, arena);
    size_t count = 0;

    if (!pairs || !roles)
        return -ENOMEM;
    pairs[count++] = (struct text_pair){KEY_NODE, node->name};
    if (roles[0])
        pairs[count++] = (struct text_pair){POD_INIT_ROLES, roles};
    if (pod->has_priority) {
        const char *priority = arena_printf(arena, "%" PRId32, pod->priority);

        if (!priority)
            return -ENOMEM;
        pairs[count++] = (struct text_pair){KEY_PRIORITY, priority};
    }
    for (size_t i = 0; i < placement->vendor_count; i++) {
        const struct vendor_grant grant = {
            .pod = pod,
            .node = node->name,
            .devices = node->devices,
            .device_count = node->device_count,
            .given = &placement->vendors[i].devices,
        };
        int r = vendor_write_annotations(vendor_of(placement->vendors[i].vendor), &grant, arena,
                                         pairs + count);

        if (r < 0)
            return r;
        count += (size_t)r;
    }
    *ret_pairs = (struct text_pairs){pairs, count};
    return 0;
}

int filter_take(struct cluster *cluster, const struct pod *from, struct cluster_node *node,
                const struct placement *placement, enum pod_state state, struct arena *arena)
{
    struct strbuf text = STRBUF_IN(arena, GRANT_TEXT_MAX);
    struct text_pairs annotations;
    struct cluster_pod *pod;
    struct grant *grant;
    int r;

    r = write_placement(from, node->place, placement, arena, &annotations);
    if (r < 0)
        return r;
    for (size_t i = 0; i < placement->vendor_count; i++)
        grant_add_recalled(&text, vendor_of(placement->vendors[i].vendor), &from->annotations);
    if (text.failed)
        return -ENOMEM;
    pod = pod_get(cluster, from->uid, from->namespace, from->name);
    if (pod)
        pod->amounts = from->amounts;
    grant = pod ? grant_new(&placement->usage, &annotations, strbuf_text(&text)) : NULL;
    if (!grant) {
        if (pod)
            pod_free(cluster, pod);
        return -ENOMEM;
    }
    if (from->has_priority)
        pod_set_priority(cluster, pod, from->priority);
    pod_take(cluster, pod, node, grant, state);
    return 0;
}

static int filter_reserve(struct cluster *cluster, const struct pod *from,
                          struct cluster_node *node, const struct placement *placement,
                          int64_t now_ns, struct arena *arena)
{
    int r = filter_take(cluster, from, node, placement, POD_RESERVED, arena);

    if (r == 0)
        pod_time(cluster, pod_find(cluster, from->uid), now_ns + cluster->options.reservation_ns);
    return r;
}

/* One question: which of the named nodes has room for this demand. */
struct asking {
    struct cluster *cluster;
    const struct demand *demand;
    const struct place_options *options;
    const char *const *names;
    size_t count;
    struct arena *arena;
    struct refusal_key key;
    struct refusal *refusal; /* of the same question before; NULL: none is kept */
    bool large;              /* it is not put to all of them at once, see narrow.c */
    uint32_t *changed; /* positions of candidates: all, or those that changed since then; NULL:
                          they are not found out yet */
    size_t changed_count;
};

static size_t list_all(uint32_t *ret_positions, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ret_positions[i] = (uint32_t)i;
    return count;
}

static int find_changed(struct asking *asking)
{
    const struct candidates *candidates = &asking->cluster->candidates;

    asking->changed = arena_alloc_raw(asking->arena, candidates->count * sizeof(uint32_t));
    if (!asking->changed)
        return -ENOMEM;
    asking->changed_count =
        asking->refusal ? refusal_find_stale(asking->refusal, candidates->nodes, asking->changed)
                        : list_all(asking->changed, candidates->count);
    if (!asking->large)
        return 0;
    return narrow(asking->demand, candidates, asking->refusal, asking->arena, asking->changed,
                  &asking->changed_count);
}

static int choose_among_changed(const struct asking *asking, size_t *ret_position,
                                struct placement *ret_placement)
{
    const struct candidates *candidates = &asking->cluster->candidates;
    const struct place_node **nodes;
    size_t chosen;
    int r;

    nodes = ARENA_ARRAY(asking->arena, const struct place_node *, asking->changed_count);
    if (!nodes)
        return -ENOMEM;
    for (size_t i = 0; i < asking->changed_count; i++)
        nodes[i] = candidates->nodes[asking->changed[i]];
    r = place_choose(nodes, asking->changed_count, asking->demand, asking->options, asking->arena,
                     &chosen, ret_placement);
    if (r == PLACE_FITS)
        *ret_position = asking->changed[chosen];
    return r;
}

/* Gives back the memory that judging a node takes of the arena. */
static int judge_node(const struct asking *asking, size_t position)
{
    const struct place_node *node = asking->cluster->candidates.nodes[position];
    struct arena_mark mark = arena_mark(asking->arena);
    struct place_failure failure;
    struct placement unused;
    int r;

    r = place_pod(node, asking->demand, asking->options, asking->arena, &unused, &failure);
    arena_rewind(asking->arena, mark);
    if (r < 0)
        return r;
    if (r == PLACE_FITS)
        return -EINVAL; /* it was refused a moment ago */
    return refusal_set(asking->refusal, position, node, &failure);
}

static int judge_changed(const struct asking *asking)
{
    const struct place_node *const *nodes = asking->cluster->candidates.nodes;

    for (size_t i = 0; i < asking->changed_count; i++) {
        int r;

        if (i + AHEAD < asking->changed_count)
            place_node_prefetch(nodes[asking->changed[i + AHEAD]]);
        r = judge_node(asking, asking->changed[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Kinds of reasons as bits. */
static uint64_t reason_bits(const struct place_totals *totals, size_t absent)
{
    uint64_t bits = absent > 0 || totals->too_few > 0;

    for (unsigned i = 0; i < PLACE_REASON_COUNT; i++)
        bits |= (uint64_t)(totals->reasons[i] > 0) << (i + 1);
    return bits;
}

static const char *summarize(const struct place_totals *totals, size_t count, size_t absent,
                             size_t left, struct arena *arena)
{
    char text[PLACE_REASON_TEXT_SIZE], none[64] = "", later[96] = "";

    place_totals_format(totals, text);
    if (absent)
        (void)snprintf(none, sizeof(none), "%s%zu/%zu nodes have no devices", text[0] ? ", " : "",
                       absent, count);
    if (left)
        (void)snprintf(later, sizeof(later), "%s%zu/%zu nodes " REFUSAL_LATER,
                       text[0] || none[0] ? ", " : "", left, count);
    return arena_printf(arena, "no available node, %zu nodes do not meet: %s%s%s", count, text,
                        none, later);
}

/* An entry for each node: the candidates, nodes without devices, and nodes that are not known. Says
 * how many were not looked into. */
static size_t list_failed(const struct asking *asking, struct cluster_failed_node *failed,
                          size_t *ret_left)
{
    const struct candidates *candidates = &asking->cluster->candidates;
    size_t count = candidates->count;

    *ret_left = refusal_list(asking->refusal, candidates->nodes, failed);
    for (size_t i = 0; i < candidates->absent_count; i++)
        failed[count++] = (struct cluster_failed_node){candidates->absent[i]->place->name,
                                                       candidates->absent[i]->absent, true};
    for (size_t i = 0; i < asking->count && count < asking->count; i++) {
        const struct cluster_node *node = node_find(asking->cluster, asking->names[i]);

        if (!node || node->mark != asking->cluster->gathers)
            failed[count++] =
                (struct cluster_failed_node){asking->names[i], "the node is not known", true};
    }
    return count;
}

static int filter_explain(const struct asking *asking, struct cluster_answer *ret_answer)
{
    size_t absent = asking->count - MIN(asking->count, asking->cluster->candidates.count);
    struct place_totals totals = {0};
    struct cluster_answer answer = {0};
    size_t left;

    answer.failed =
        arena_alloc_raw(asking->arena, asking->count * sizeof(struct cluster_failed_node));
    if (!answer.failed)
        return -ENOMEM;
    answer.failed_count = list_failed(asking, answer.failed, &left);
    refusal_add_up(asking->refusal, &totals);
    answer.summary = summarize(&totals, asking->count, absent, left, asking->arena);
    answer.reasons = reason_bits(&totals, absent);
    answer.partly = left > 0;
    if (!answer.summary)
        return -ENOMEM;
    *ret_answer = answer;
    return CLUSTER_REFUSED;
}

static int filter_refuse(struct asking *asking, struct cluster_answer *ret_answer)
{
    struct refusals *refusals = asking->cluster->refusals;
    int r = 0;

    if (!asking->refusal) {
        asking->refusal = refusals_add(refusals, &asking->key, asking->cluster->candidates.count);
        r = asking->refusal ? 0 : -ENOMEM;
    }
    if (r == 0 && !asking->changed) {
        r = find_changed(asking);
    }
    if (r == 0)
        r = judge_changed(asking);
    if (r == 0)
        return filter_explain(asking, ret_answer);
    if (asking->refusal)
        refusals_drop(refusals, asking->refusal);
    return r;
}

/* kube-scheduler asks again about a pod that was not bound: gives its reservation back. */
static int forget_reservation(struct cluster *cluster, const struct pod *from,
                              struct grant **ret_promised, struct error *err)
{
    struct cluster_pod *pod = pod_find(cluster, from->uid);

    if (!pod)
        return 0;
    if (pod->state == POD_BINDING || pod->state == POD_BOUND)
        return error_set(err, -EBUSY, "a bind of pod %s/%s to node %s is under way",
                         from->namespace, from->name, pod->node->place->name);
    if (pod->state == POD_PLACED)
        return error_set(err, -EBUSY, "pod %s/%s is bound to node %s already", from->namespace,
                         from->name, pod->node->place->name);
    *ret_promised = pod_take_back(cluster, pod);
    return 0;
}

static bool is_promised_again(const struct cluster *cluster, const char *uid,
                              const struct grant *promised)
{
    const struct cluster_pod *pod = pod_find(cluster, uid);

    return pod && promised && grant_is_same(promised, pod->grant) &&
           strcmp(text_pairs_get(&promised->annotations, KEY_NODE), pod->node->place->name) == 0;
}

/* Tries a demand that was refused before only on nodes that changed; a large one on some of them.
 */
static int choose_node(struct asking *asking, size_t *ret_position, struct placement *ret_placement)
{
    const struct candidates *candidates = &asking->cluster->candidates;
    int r;

    if (asking->refusal || asking->large) {
        r = find_changed(asking);
        return r < 0 ? r : choose_among_changed(asking, ret_position, ret_placement);
    }
    return place_choose(candidates->nodes, candidates->count, asking->demand, asking->options,
                        asking->arena, ret_position, ret_placement);
}

/* What a namespace may have is no node's fault: all of them are refused for the one reason. */
static int refuse_by_quota(const char *why, const char *const *names, size_t count,
                           struct arena *arena, struct cluster_answer *ret_answer)
{
    struct cluster_answer answer = {.failed_count = count};
    const char *reason = arena_printf(arena, "%s: %s", place_reason_name(PLACE_QUOTA), why);

    answer.failed = arena_alloc_raw(arena, count * sizeof(struct cluster_failed_node));
    answer.summary =
        arena_printf(arena, "no available node, %zu nodes do not meet: %s", count, reason);
    answer.reasons = UINT64_C(1) << (PLACE_QUOTA + 1);
    if (!reason || !answer.failed || !answer.summary)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        answer.failed[i] = (struct cluster_failed_node){names[i], reason, true};
    *ret_answer = answer;
    return CLUSTER_REFUSED;
}

static int filter_decide(struct cluster *cluster, const struct pod *pod,
                         const struct demand *demand, const char *const *names, size_t count,
                         int64_t now_ns, struct arena *arena, struct cluster_answer *ret_answer)
{
    const struct candidates *candidates = &cluster->candidates;
    struct place_options options;
    struct asking asking = {
        .cluster = cluster,
        .demand = demand,
        .options = &options,
        .names = names,
        .count = count,
        .arena = arena,
    };
    struct place_scarcity view;
    struct placement placement;
    struct cluster_node *node;
    size_t position;
    int r;

    place_options_read(&pod->annotations, &cluster->options.defaults, &options);
    nodes_rank(cluster);
    r = namespace_budgets(cluster, pod->namespace, arena, &options);
    if (r == 0 && options.node_order == PLACE_SCARCITY && cluster->scarcity) {
        r = scarcity_view(cluster, demand, &pod->amounts, &view);
        options.scarcity = &view;
    }
    if (r == 0)
        r = candidates_gather(cluster, names, count);
    if (r == 0)
        r = refusal_write_demand(demand, &options, arena, &asking.key);
    if (r < 0)
        return r;
    asking.key.candidates[0] = candidates->generation;
    asking.key.candidates[1] = candidates->name_count;
    asking.key.candidates[2] = candidates->sums[0];
    asking.key.candidates[3] = candidates->sums[1];
    asking.refusal = refusals_find(cluster->refusals, &asking.key);
    asking.large = narrow_is_large(demand, candidates);
    r = choose_node(&asking, &position, &placement);
    if (r == PLACE_NO_FIT)
        return filter_refuse(&asking, ret_answer);
    if (r < 0)
        return r;

    node = node_find(cluster, candidates->nodes[position]->name);
    r = filter_reserve(cluster, pod, node, &placement, now_ns, arena);
    if (r < 0)
        return r;
    *ret_answer = (struct cluster_answer){.node = node->place->name};
    return CLUSTER_PLACED;
}

/* kube-scheduler sends us the bind of such a pod, too: the extender binds every pod that names one
 * of its resources. */
static int filter_pass(struct cluster *cluster, const struct pod *from, int64_t now_ns,
                       struct error *err)
{
    struct cluster_pod *pod = pod_find(cluster, from->uid);

    if (pod && pod->state != POD_PLAIN)
        return CLUSTER_NOT_OURS;
    if (!pod)
        pod = pod_get(cluster, from->uid, from->namespace, from->name);
    if (!pod)
        return error_set(err, -ENOMEM, "out of memory");
    pod_untime(cluster, pod);
    pod->state = POD_PLAIN;
    pod_time(cluster, pod, now_ns + cluster->options.reservation_ns);
    return CLUSTER_NOT_OURS;
}

/* With the policy scarcity, of the named nodes those on which a pod without devices costs least.
 * -ENOMEM. */
static int keep_cheapest(struct cluster *cluster, const struct pod *pod, const char *const *names,
                         size_t count, struct arena *arena, struct cluster_answer *ret_answer)
{
    struct cluster_answer answer = {.kept = ARENA_ARRAY(arena, const char *, count)};
    struct place_scarcity view;
    struct place_options options;
    float least = 0;

    place_options_read(&pod->annotations, &cluster->options.defaults, &options);
    if (!cluster->scarcity || options.node_order != PLACE_SCARCITY)
        return 0;
    if (!answer.kept || scarcity_view(cluster, NULL, &pod->amounts, &view) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct cluster_node *node = node_find(cluster, names[i]);
        const float cost = node && node->place->device_count ? view.costs[node->place->seat] : 0;

        if (answer.kept_count && cost > least)
            continue;
        if (cost < least)
            answer.kept_count = 0; /* what was kept costs more */
        least = cost;
        answer.kept[answer.kept_count++] = names[i];
    }
    *ret_answer = answer;
    return 0;
}

/* Whether devices are kept for the pod that others give back. */
static bool is_held(const struct cluster *cluster, const char *uid)
{
    const struct cluster_pod *pod = pod_find(cluster, uid);

    return pod && pod->state == POD_HELD;
}

/* As before the question. */
static void hold_again(struct cluster *cluster, const struct pod *from, struct grant *grant)
{
    const char *name = text_pairs_get(&grant->annotations, KEY_NODE);
    struct cluster_node *node = name ? node_find(cluster, name) : NULL;
    struct cluster_pod *pod =
        node ? pod_get(cluster, from->uid, from->namespace, from->name) : NULL;

    if (!pod) {
        grant_free(grant);
        return;
    }
    pod->amounts = from->amounts;
    if (from->has_priority)
        pod_set_priority(cluster, pod, from->priority);
    pod_take(cluster, pod, node, grant, POD_HELD);
}

int cluster_filter(struct cluster *cluster, const struct pod *pod, const char *const *names,
                   size_t count, int64_t now_ns, struct arena *arena,
                   struct cluster_answer *ret_answer, struct error *err)
{
    CLEANUP(grant_freep) struct grant *promised = NULL;
    struct demand demand;
    const char *why;
    uint64_t freed;
    bool failed, held;
    int r;

    if (!pod->uid[0])
        return error_set(err, -EINVAL, "the pod has no uid");
    r = vendor_read_demand(cluster->options.vendors, pod, arena, &demand);
    if (r < 0)
        return error_set(err, r, "the pod's lists of devices and types are too long to be read");
    cluster_expire(cluster, now_ns);
    if (r == 0) {
        *ret_answer = (struct cluster_answer){0};
        if (keep_cheapest(cluster, pod, names, count, arena, ret_answer) < 0)
            return error_set(err, -ENOMEM, "out of memory over %zu nodes", count);
        return filter_pass(cluster, pod, now_ns, err);
    }
    if (!cluster_is_ready(cluster))
        return error_set(err, -EAGAIN, "nodes, pods and resource quotas are not all read yet");
    if (cluster->held)
        return error_set(err, -EAGAIN, "%s", cluster->held);

    scarcity_learn(cluster, pod->uid, &demand, &pod->amounts);
    freed = cluster->freed;
    held = is_held(cluster, pod->uid);
    r = forget_reservation(cluster, pod, &promised, err);
    if (r < 0)
        return r;
    why = namespace_refuses(cluster, pod->namespace, &demand, arena, &failed);
    if (failed)
        return error_set(err, -ENOMEM, "out of memory");
    if (why)
        r = refuse_by_quota(why, names, count, arena, ret_answer);
    else
        r = filter_decide(cluster, pod, &demand, names, count, now_ns, arena, ret_answer);
    if (r == -ENOMEM)
        return error_set(err, r, "out of memory over %zu nodes", count);
    if (r < 0)
        return error_set(err, r, "the pod asks for devices of too many vendors");
    if (r == CLUSTER_REFUSED) {
        if (held) {
            hold_again(cluster, pod, TAKE(promised));
            cluster->freed = freed;
        }
        if (why)
            (void)evict_end(cluster, pod->uid, NULL);
        else if (!ret_answer->partly) /* no pod goes while there may be room elsewhere */
            evict_note(cluster, pod, &demand, now_ns, arena);
        ret_answer->again = requeue_note(cluster, pod, now_ns);
        return r;
    }
    requeue_forget(cluster, pod->uid);
    ret_answer->room_made = evict_end(cluster, pod->uid, ret_answer->node);
    if (is_promised_again(cluster, pod->uid, promised))
        cluster->freed = freed;
    return r;
}
