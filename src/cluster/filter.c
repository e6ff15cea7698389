/* SPDX-License-Identifier: Apache-2.0 */

/* A decision and its reservation. */

#include <errno.h>

#include "cluster/state.h"
#include "model/keys.h"

enum {
    WORDINGS = 64,
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

static int make_room(struct candidates *candidates, size_t count)
{
    const struct place_node **nodes;

    if (candidates->size >= count)
        return 0;
    nodes = reallocarray(candidates->nodes, count, sizeof(struct place_node *));
    if (!nodes)
        return -ENOMEM;
    candidates->nodes = nodes;
    candidates->size = count;
    return 0;
}

static int compare_addresses(const void *a, const void *b)
{
    const struct place_node *const *left = a, *const *right = b;

    return (*left > *right) - (*left < *right);
}

/* The named nodes that have devices, each once, in the order in which they lie in memory. */
static int gather(struct cluster *cluster, const char *const *names, size_t count)
{
    struct candidates *candidates = &cluster->candidates;
    uint64_t sums[2];

    add_up(names, count, sums);
    if (candidates->generation == cluster->generation && candidates->name_count == count &&
        candidates->sums[0] == sums[0] && candidates->sums[1] == sums[1])
        return 0;

    candidates->name_count = SIZE_MAX;
    if (make_room(candidates, count) < 0)
        return -ENOMEM;
    candidates->count = 0;
    cluster->gathers++;
    for (size_t i = 0; i < count; i++) {
        struct cluster_node *node = node_find(cluster, names[i]);

        if (!node || node->absent || node->mark == cluster->gathers)
            continue;
        node->mark = cluster->gathers;
        candidates->nodes[candidates->count++] = node->place;
    }
    qsort(candidates->nodes, candidates->count, sizeof(candidates->nodes[0]), compare_addresses);
    candidates->generation = cluster->generation;
    candidates->name_count = count;
    candidates->sums[0] = sums[0];
    candidates->sums[1] = sums[1];
    return 0;
}

/* The annotations that record a placement, but for the times. */
static int record(const struct cluster *cluster, const struct pod *pod, const char *node,
                  const struct placement *placement, struct arena *arena,
                  struct text_pairs *ret_pairs)
{
    struct text_pair *pairs = ARENA_ARRAY(arena, struct text_pair, 2 + 2 * placement->vendor_count);
    const char *roles = pod_init_roles(pod, arena);
    size_t count = 0;

    if (!pairs || !roles)
        return -ENOMEM;
    pairs[count++] = (struct text_pair){KEY_NODE, node};
    if (roles[0])
        pairs[count++] = (struct text_pair){POD_INIT_ROLES, roles};
    for (size_t i = 0; i < placement->vendor_count; i++) {
        const struct vendor_instance *instance =
            vendor_find(cluster->options.vendors, placement->vendors[i].word);
        int r;

        r = vendor_write_annotations(instance, &placement->vendors[i].devices, arena,
                                     pairs + count);
        if (r < 0)
            return r;
        count += (size_t)r;
    }
    *ret_pairs = (struct text_pairs){pairs, count};
    return 0;
}

static int reserve(struct cluster *cluster, const struct pod *from, struct cluster_node *node,
                   const struct placement *placement, int64_t now_ns, struct arena *arena)
{
    struct text_pairs annotations;
    struct cluster_pod *pod;
    struct grant *grant;
    int r;

    r = record(cluster, from, node->place->name, placement, arena, &annotations);
    if (r < 0)
        return r;
    pod = pod_get(cluster, from->uid, from->namespace, from->name);
    grant = pod ? grant_new(&placement->usage, &annotations, "") : NULL;
    if (!grant) {
        if (pod)
            pod_free(cluster, pod);
        return -ENOMEM;
    }
    pod_take(pod, node, grant, POD_RESERVED);
    pod_time(cluster, pod, now_ns + cluster->options.reservation_ns);
    return 0;
}

/* What judging a node takes is given back; nodes that say the same share its text. */
/* Reasons put into words: most of many nodes have the same ones. */
struct wording {
    bool too_few_devices;
    unsigned candidates;
    unsigned reasons[PLACE_REASON_COUNT];
    const char *text; /* NULL: none yet */
};

struct explaining {
    const struct demand *demand;
    const struct place_options *options;
    struct arena *arena;
    struct place_totals totals;
    size_t absent;
    struct wording wordings[WORDINGS];
};

static bool is_worded(const struct wording *wording, const struct place_decision *failure)
{
    return wording->text && wording->too_few_devices == failure->too_few_devices &&
           wording->candidates == failure->candidates &&
           memcmp(wording->reasons, failure->reasons, sizeof(wording->reasons)) == 0;
}

static const char *put_into_words(struct explaining *explaining,
                                  const struct place_decision *failure)
{
    uint64_t hash = hash_bytes(failure->reasons, sizeof(failure->reasons));
    struct wording *wording = &explaining->wordings[hash % WORDINGS];
    char text[PLACE_REASON_TEXT_SIZE];

    if (is_worded(wording, failure))
        return wording->text;
    place_reasons_format(failure, text);
    wording->too_few_devices = failure->too_few_devices;
    wording->candidates = failure->candidates;
    memcpy(wording->reasons, failure->reasons, sizeof(wording->reasons));
    wording->text = arena_strdup(explaining->arena, text);
    return wording->text;
}

static const char *explain_node(struct explaining *explaining, const struct place_node *node)
{
    struct arena_mark mark = arena_mark(explaining->arena);
    struct place_decision failure;
    struct placement unused;
    int r;

    r = place_pod(node, explaining->demand, explaining->options, explaining->arena, &unused,
                  &failure);
    arena_rewind(explaining->arena, mark);
    if (r != PLACE_NO_FIT)
        return "the node can't be judged: too many devices, or out of memory";
    place_totals_add(&explaining->totals, &failure);
    return put_into_words(explaining, &failure);
}

static const char *explain_name(struct explaining *explaining, const struct cluster *cluster,
                                const char *name)
{
    const struct cluster_node *node = node_find(cluster, name);

    if (node && !node->absent)
        return explain_node(explaining, node->place);
    explaining->absent++;
    return node ? node->absent : "the node is not known";
}

/* Kinds of reasons as bits. */
static uint64_t kinds(const struct place_totals *totals, size_t absent)
{
    uint64_t bits = absent > 0 || totals->too_few > 0;

    for (unsigned i = 0; i < PLACE_REASON_COUNT; i++)
        bits |= (uint64_t)(totals->reasons[i] > 0) << (i + 1);
    return bits;
}

static const char *summarize(const struct place_totals *totals, size_t count, size_t absent,
                             struct arena *arena)
{
    char text[PLACE_REASON_TEXT_SIZE];

    place_totals_format(totals, text);
    if (!absent)
        return arena_printf(arena, "no available node, %zu nodes do not meet: %s", count, text);
    return arena_printf(
        arena, "no available node, %zu nodes do not meet: %s%s%zu/%zu nodes have no devices", count,
        text, text[0] ? ", " : "", absent, count);
}

/* Where each name was a candidate, and none was named twice, nothing need be looked up. */
static int explain_all(struct explaining *explaining, const struct cluster *cluster,
                       const char *const *names, size_t count, struct cluster_failed_node *failed)
{
    const struct candidates *candidates = &cluster->candidates;
    bool same = candidates->count == count;

    for (size_t i = 0; i < count; i++) {
        const char *name = same ? candidates->nodes[i]->name : names[i];
        const char *reason = same ? explain_node(explaining, candidates->nodes[i])
                                  : explain_name(explaining, cluster, name);

        if (!reason)
            return -ENOMEM;
        failed[i] = (struct cluster_failed_node){name, reason};
    }
    return 0;
}

static int explain(struct cluster *cluster, const struct demand *demand,
                   const struct place_options *options, const char *const *names, size_t count,
                   struct arena *arena, struct cluster_answer *ret_answer)
{
    struct explaining explaining = {.demand = demand, .options = options, .arena = arena};
    struct cluster_answer answer = {.failed_count = count};
    int r;

    answer.failed = ARENA_ARRAY(arena, struct cluster_failed_node, count);
    if (!answer.failed)
        return -ENOMEM;
    r = explain_all(&explaining, cluster, names, count, answer.failed);
    if (r < 0)
        return r;
    answer.summary = summarize(&explaining.totals, count, explaining.absent, arena);
    answer.reasons = kinds(&explaining.totals, explaining.absent);
    if (!answer.summary)
        return -ENOMEM;
    *ret_answer = answer;
    return CLUSTER_REFUSED;
}

/* A pod that is asked for again was not bound: what was promised to it is free. */
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

static int decide(struct cluster *cluster, const struct pod *pod, const struct demand *demand,
                  const char *const *names, size_t count, int64_t now_ns, struct arena *arena,
                  struct cluster_answer *ret_answer)
{
    const struct candidates *candidates = &cluster->candidates;
    struct place_options options;
    struct placement placement;
    struct cluster_node *node;
    size_t position;
    int r;

    place_options_read(&pod->annotations, &cluster->options.defaults, &options);
    nodes_rank(cluster);
    r = gather(cluster, names, count);
    if (r < 0)
        return r;
    r = place_choose(candidates->nodes, candidates->count, demand, &options, arena, &position,
                     &placement);
    if (r == PLACE_NO_FIT)
        return explain(cluster, demand, &options, names, count, arena, ret_answer);
    if (r < 0)
        return r;

    node = node_find(cluster, candidates->nodes[position]->name);
    r = reserve(cluster, pod, node, &placement, now_ns, arena);
    if (r < 0)
        return r;
    *ret_answer = (struct cluster_answer){.node = node->place->name};
    return CLUSTER_PLACED;
}

int cluster_filter(struct cluster *cluster, const struct pod *pod, const char *const *names,
                   size_t count, int64_t now_ns, struct arena *arena,
                   struct cluster_answer *ret_answer, struct error *err)
{
    CLEANUP(grant_freep) struct grant *promised = NULL;
    struct demand demand;
    uint64_t freed;
    int r;

    if (!pod->uid[0])
        return error_set(err, -EINVAL, "the pod has no uid");
    r = vendor_read_demand(cluster->options.vendors, pod, arena, &demand);
    if (r < 0)
        return error_set(err, r, "the pod's lists of devices and types are too long to be read");
    if (r == 0)
        return CLUSTER_NOT_OURS;
    if (!cluster_is_ready(cluster))
        return error_set(err, -EAGAIN, "nodes and pods are not all read yet");
    if (cluster->held)
        return error_set(err, -EAGAIN, "%s", cluster->held);

    cluster_expire(cluster, now_ns);
    freed = cluster->freed;
    r = forget_reservation(cluster, pod, &promised, err);
    if (r < 0)
        return r;
    r = decide(cluster, pod, &demand, names, count, now_ns, arena, ret_answer);
    if (r == -ENOMEM)
        return error_set(err, r, "out of memory over %zu nodes", count);
    if (r < 0)
        return error_set(err, r, "the pod asks for devices of too many vendors");
    if (r == CLUSTER_REFUSED) {
        ret_answer->again = refused_note(cluster, pod, now_ns);
        return r;
    }
    refused_forget(cluster, pod->uid);
    if (is_promised_again(cluster, pod->uid, promised))
        cluster->freed = freed;
    return r;
}
