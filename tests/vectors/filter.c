/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "cluster/quota.h"
#include "model/json.h"
#include "model/keys.h"
#include "place/place.h"
#include "vectors.h"

enum {
    NODES_MAX = 128,
    TEXT_MAX = 1 << 20,
    ANNOTATIONS_MAX = 4 * VENDOR_MAX_ANNOTATIONS,
};

/* The cluster of one case: nodes registered, pods placed on them. */
struct made {
    struct vector *vector;
    const struct vendor_set *vendors;
    const struct pod *pod; /* that is to be placed */
    struct place_node nodes[NODES_MAX];
    size_t count;
};

static struct place_node *find_node(struct made *made, const char *name)
{
    for (size_t i = 0; i < made->count; i++) {
        if (strcmp(made->nodes[i].name, name) == 0)
            return &made->nodes[i];
    }
    return NULL;
}

/* Nodes have to have every label of the selector. */
static bool is_selected(yyjson_val *selector, yyjson_val *node)
{
    yyjson_val *labels = yyjson_obj_get(yyjson_obj_get(node, "metadata"), "labels");
    yyjson_val *key, *value;
    size_t at, max;

    yyjson_obj_foreach(selector, at, max, key, value)
    {
        if (!yyjson_equals(yyjson_obj_get(labels, yyjson_get_str(key)), value))
            return false;
    }
    return true;
}

/* HAMi's agents are alive while kubelet knows of devices, NVIDIA's, or by their handshake, whose
 * times in the vectors are long over. */
static bool is_alive(const struct vendor_instance *instance, const struct node *node)
{
    const char *handshake;

    if (!instance->vendor->prepare_bind || !instance->handshake_key)
        return vendor_is_alive(instance, node);
    handshake = text_pairs_get(&node->annotations, instance->handshake_key);
    return !handshake || strncmp(handshake, "Reported", strlen("Reported")) == 0;
}

static size_t add_devices(struct arena *arena, const struct vendor_instance *instance,
                          const struct node *node, struct device *devices, size_t max)
{
    size_t count = 0;

    if (!is_alive(instance, node) ||
        instance->vendor->read_node(instance, node, arena, devices, max, &count, NULL) < 0)
        return 0;
    return count;
}

/* Only nodes with devices whose agent is alive are registered. */
static void add_node(struct made *made, yyjson_val *value)
{
    struct arena *arena = made->vector->arena;
    struct place_node *place_node = &made->nodes[made->count];
    struct device *devices;
    struct node node;
    size_t count = 0;

    if (node_read(value, &made->vector->vendors->kept, arena, &node, NULL) < 0)
        return;
    devices = ARENA_ARRAY(arena, struct device, PLACE_MAX_DEVICES);
    for (size_t i = 0; i < made->vendors->count; i++)
        count += add_devices(arena, &made->vendors->instances[i], &node, devices + count,
                             PLACE_MAX_DEVICES - count);
    if (!count)
        return;
    *place_node =
        (struct place_node){.name = node.name, .devices = devices, .device_count = (uint32_t)count};
    made->count++;
}

static void add_nodes(struct made *made)
{
    yyjson_val *line = made->vector->line, *value;
    yyjson_val *selector = yyjson_obj_get(yyjson_obj_get(line, "flags"), "node-label-selector");
    size_t at, max;

    yyjson_arr_foreach(yyjson_obj_get(line, "nodes"), at, max, value)
    {
        if (is_selected(selector, value))
            add_node(made, value);
    }
}

static void add_placed(struct made *made, yyjson_val *value, const char *but_uid)
{
    struct arena *arena = made->vector->arena;
    struct place_usage usage = {0};
    struct pod_devices devices;
    struct place_node *node;
    const char *name, *text;
    struct pod pod;

    if (pod_read(value, &made->vector->vendors->kept, arena, &pod, NULL) < 0 || pod_is_over(&pod))
        return;
    if (*pod.uid && strcmp(pod.uid, but_uid) == 0)
        return;
    name = text_pairs_get(&pod.annotations, KEY_NODE);
    node = name ? find_node(made, name) : NULL;
    for (size_t i = 0; node && i < made->vendors->count; i++) {
        const struct vendor_instance *instance = &made->vendors->instances[i];

        text = text_pairs_get(&pod.annotations, instance->allocated_key);
        if (text && vendor_read_grant(instance, text, &pod.annotations, arena, &devices, NULL) >= 0)
            (void)place_usage_add_pod(&usage, &instance->id, &devices, "", arena);
    }
    if (!node)
        return;
    (void)place_usage_charge(node->devices, node->device_count, &usage);
}

static void build(struct made *made, const char *uid)
{
    yyjson_val *value;
    size_t at, max;

    add_nodes(made);
    yyjson_arr_foreach(yyjson_obj_get(made->vector->line, "placed"), at, max, value)
    {
        add_placed(made, value, uid);
    }
    for (size_t i = 0; i < made->count; i++)
        place_node_update(&made->nodes[i]);
}

static enum place_order order_of(const char *text)
{
    return strcmp(text, "binpack") == 0 ? PLACE_BINPACK : PLACE_SPREAD;
}

/* The case's quotas, and the pods that use them, in a cluster. NULL: there are none. */
static struct cluster *make_quotas(const struct vector *vector, const char *but_uid)
{
    const struct cluster_options options = {.vendors = vector->vendors};
    yyjson_val *quotas = yyjson_obj_get(vector->line, "quotas"), *value;
    struct cluster *cluster = quotas ? cluster_new(&options) : NULL;
    struct quota quota;
    struct pod pod;
    size_t at, max;

    yyjson_arr_foreach(quotas, at, max, value)
    {
        if (quota_read(value, vector->arena, &quota, NULL) == 0)
            (void)cluster_set_quota(cluster, &quota, NULL);
    }
    yyjson_arr_foreach(quotas ? yyjson_obj_get(vector->line, "placed") : NULL, at, max, value)
    {
        if (pod_read(value, &vector->vendors->kept, vector->arena, &pod, NULL) == 0 &&
            !pod_is_over(&pod) && strcmp(pod.uid, but_uid) != 0)
            (void)cluster_set_pod(cluster, &pod, NULL);
    }
    return cluster;
}

static void read_options(const struct vector *vector, const struct pod *pod,
                         struct place_options *ret_options)
{
    yyjson_val *flags = yyjson_obj_get(vector->line, "flags");
    struct place_options defaults = {
        .node_order = order_of(vector_text(flags, "node-scheduler-policy")),
    };

    place_policy_read(vector_text(flags, "gpu-scheduler-policy"), &defaults.policy);
    place_options_read(&pod->annotations, &defaults, ret_options);
}

/* What we answer, in the form of the vectors. */
struct answer {
    const struct place_node *nodes[NODES_MAX]; /* the candidates that are registered */
    size_t node_count;
    struct place_failure failures[NODES_MAX];
    bool fits[NODES_MAX];
    float scores[NODES_MAX];
    bool placed;
    size_t position;
    struct text_pair annotations[ANNOTATIONS_MAX]; /* of all vendors, but for their times */
    size_t annotation_count;
};

static void add_candidates(struct made *made, struct answer *answer)
{
    yyjson_val *name;
    size_t at, max;

    yyjson_arr_foreach(yyjson_obj_get(made->vector->line, "node_names"), at, max, name)
    {
        const struct place_node *node = find_node(made, yyjson_get_str(name));

        if (node)
            answer->nodes[answer->node_count++] = node;
    }
}

static void add_annotations(struct made *made, const struct device_vendor *vendor,
                            const struct pod_devices *given, struct answer *answer)
{
    const struct place_node *node = answer->nodes[answer->position];
    struct text_pair pairs[VENDOR_MAX_ANNOTATIONS];
    const struct vendor_grant grant = {
        .pod = made->pod,
        .node = node->name,
        .devices = node->devices,
        .device_count = node->device_count,
        .given = given,
    };
    int count = vendor_write_annotations(vendor_of(vendor), &grant, made->vector->arena, pairs);

    if (count < 0 || answer->annotation_count + (size_t)count > ANNOTATIONS_MAX) {
        vector_fail(made->vector, "too many annotations, or no memory");
        return;
    }
    for (int i = 0; i < count; i++) {
        if (!vector_is_ours_alone(pairs[i].key))
            answer->annotations[answer->annotation_count++] = pairs[i];
    }
}

static bool decide(struct made *made, const struct demand *demand,
                   const struct place_options *options, struct answer *answer)
{
    struct vector *vector = made->vector;
    struct placement placement, one;
    int r;

    for (size_t i = 0; i < answer->node_count; i++) {
        r = place_pod(answer->nodes[i], demand, options, vector->arena, &one, &answer->failures[i]);
        if (r < 0)
            vector_fail(vector, "error %d", r);
        answer->fits[i] = r == PLACE_FITS;
        answer->scores[i] = answer->nodes[i]->score + (r == PLACE_FITS ? one.score : 0);
    }
    r = place_choose(answer->nodes, answer->node_count, demand, options, vector->arena,
                     &answer->position, &placement);
    if (r < 0) {
        vector_fail(vector, "error %d", r);
        return false;
    }
    answer->placed = r == PLACE_FITS;
    if (!answer->placed)
        return true;
    for (size_t i = 0; i < placement.vendor_count; i++)
        add_annotations(made, placement.vendors[i].vendor, &placement.vendors[i].devices, answer);
    return true;
}

static void add_scores(struct strbuf *buf, const struct answer *answer)
{
    for (size_t i = 0; i < answer->node_count; i++) {
        if (answer->fits[i])
            strbuf_addf(buf, " %s=%.2f", answer->nodes[i]->name, (double)answer->scores[i]);
    }
}

static bool scores_match(const struct answer *answer, yyjson_val *theirs)
{
    const char *score;
    size_t fits = 0;
    char text[32];

    for (size_t i = 0; i < answer->node_count; i++) {
        if (!answer->fits[i])
            continue;
        fits++;
        (void)snprintf(text, sizeof(text), "%.2f", (double)answer->scores[i]);
        score = vector_text(theirs, answer->nodes[i]->name);
        /* A sum of nothing is not a number in HAMi 2.8. */
        if (strcmp(score, strcmp(score, "NaN") == 0 && !answer->scores[i] ? "NaN" : text) != 0)
            return false;
    }
    return fits == yyjson_obj_size(theirs);
}

/* HAMi's `annotations`; or `devices`, which is the text of the first two, and `more`, the third. */
static bool annotations_match(const struct answer *answer, yyjson_val *theirs)
{
    const char *const in_order[] = {vector_text(theirs, "devices"), vector_text(theirs, "devices"),
                                    vector_text(theirs, "more")};
    yyjson_val *named = yyjson_obj_get(theirs, "annotations");

    if (named ? answer->annotation_count != yyjson_obj_size(named)
              : answer->annotation_count != (*in_order[2] ? 3 : 2))
        return false;
    for (size_t i = 0; i < answer->annotation_count; i++) {
        const struct text_pair *ours = &answer->annotations[i];
        const char *text = named ? vector_text(named, ours->key) : in_order[i];

        if (strcmp(ours->value, text) != 0)
            return false;
    }
    return true;
}

static bool matches_placed(const struct answer *answer, yyjson_val *theirs)
{
    return strcmp(answer->nodes[answer->position]->name, vector_text(theirs, "node")) == 0 &&
           annotations_match(answer, theirs) &&
           scores_match(answer, yyjson_obj_get(theirs, "scores"));
}

static bool has_item(yyjson_val *list, const char *text)
{
    yyjson_val *value;
    size_t at, max;

    yyjson_arr_foreach(list, at, max, value)
    {
        if (yyjson_equals_str(value, text))
            return true;
    }
    return false;
}

/* Nodes with this reason. MetaX's shares have a word of their own for a sick card. */
static yyjson_val *find_reason(yyjson_val *theirs, enum place_reason reason)
{
    yyjson_val *nodes = yyjson_obj_get(theirs, place_reason_name(reason));

    if (!nodes && reason == PLACE_CARD_NOT_HEALTHY)
        nodes = yyjson_obj_get(theirs, "CardUnhealthy");
    return nodes;
}

/* Each reason names the same nodes. */
static bool reasons_match(const struct answer *answer, yyjson_val *theirs)
{
    size_t classes = 0;

    for (int reason = 0; reason < PLACE_REASON_COUNT; reason++) {
        yyjson_val *nodes = find_reason(theirs, (enum place_reason)reason);
        size_t count = 0;

        for (size_t i = 0; i < answer->node_count; i++) {
            if (!answer->failures[i].reasons[reason])
                continue;
            if (!has_item(nodes, answer->nodes[i]->name))
                return false;
            count++;
        }
        if (count != yyjson_arr_size(nodes))
            return false;
        classes += count > 0;
    }
    return classes == yyjson_obj_size(theirs);
}

static bool failed_match(struct made *made, yyjson_val *theirs)
{
    yyjson_val *names = yyjson_obj_get(made->vector->line, "node_names"), *name;
    size_t at, max;

    yyjson_arr_foreach(names, at, max, name)
    {
        const char *reason =
            find_node(made, yyjson_get_str(name)) ? "NodeUnfitPod" : "node unregistered";

        if (!yyjson_equals_str(yyjson_obj_get(theirs, yyjson_get_str(name)), reason))
            return false;
    }
    return yyjson_obj_size(theirs) == yyjson_arr_size(names);
}

static bool matches(struct made *made, const struct answer *answer, yyjson_val *theirs)
{
    if (answer->placed)
        return yyjson_obj_get(theirs, "node") && matches_placed(answer, theirs);
    return yyjson_obj_get(theirs, "failed") &&
           failed_match(made, yyjson_obj_get(theirs, "failed")) &&
           reasons_match(answer, yyjson_obj_get(theirs, "reasons"));
}

static void tell(struct made *made, const struct answer *answer)
{
    struct strbuf buf = STRBUF_IN(made->vector->arena, TEXT_MAX);
    yyjson_val *accept = yyjson_obj_get(made->vector->line, "accept");
    yyjson_alc alc = json_alc(made->vector->arena);
    char reasons[PLACE_REASON_TEXT_SIZE];

    if (answer->placed)
        strbuf_addf(&buf, "%s", answer->nodes[answer->position]->name);
    for (size_t i = 0; i < answer->annotation_count; i++)
        strbuf_addf(&buf, " %s=%s", answer->annotations[i].key, answer->annotations[i].value);
    add_scores(&buf, answer);
    for (size_t i = 0; !answer->placed && i < answer->node_count; i++) {
        place_reasons_format(&answer->failures[i], reasons);
        strbuf_addf(&buf, " %s: %s;", answer->nodes[i]->name, reasons);
    }
    vector_fail(made->vector, "%s\n    of %s", strbuf_text(&buf),
                yyjson_val_write_opts(accept, 0, &alc, NULL, NULL));
}

static void compare(struct made *made, const struct answer *answer)
{
    yyjson_val *theirs;
    size_t at, max;

    yyjson_arr_foreach(yyjson_obj_get(made->vector->line, "accept"), at, max, theirs)
    {
        if (matches(made, answer, theirs))
            return;
    }
    tell(made, answer);
}

static void check_filter(struct vector *vector)
{
    struct made *made = ARENA_NEW(vector->arena, struct made);
    struct answer *answer = ARENA_NEW(vector->arena, struct answer);
    yyjson_val *first = yyjson_arr_get(yyjson_obj_get(vector->line, "accept"), 0);
    CLEANUP(cluster_freep) struct cluster *quotas = NULL;
    struct place_options options;
    struct error err = ERROR_INIT;
    struct demand demand;
    struct pod pod;
    int r;

    if (yyjson_arr_size(yyjson_obj_get(vector->line, "nodes")) > NODES_MAX ||
        yyjson_arr_size(yyjson_obj_get(vector->line, "node_names")) > NODES_MAX) {
        vector_fail(vector, "too many nodes for the test");
        return;
    }
    made->vector = vector;
    made->vendors = vector->vendors;
    if (pod_read(yyjson_obj_get(vector->line, "pod"), &vector->vendors->kept, vector->arena, &pod,
                 &err) < 0) {
        vector_fail(vector, "%s", err.text);
        return;
    }
    r = vendor_read_demand(vector->vendors, &pod, vector->arena, &demand);
    if (r <= 0 || yyjson_obj_get(first, "pass")) {
        if (r != 0 || !yyjson_obj_get(first, "pass"))
            vector_fail(vector, "a request for nothing, or none seen");
        return;
    }
    made->pod = &pod;
    build(made, pod.uid);
    add_candidates(made, answer);
    read_options(vector, &pod, &options);
    quotas = make_quotas(vector, pod.uid);
    if (quotas && namespace_budgets(quotas, pod.namespace, vector->arena, &options) < 0)
        vector_fail(vector, "no memory");
    if (decide(made, &demand, &options, answer))
        compare(made, answer);
}

static const char *left_out(const struct vector *vector)
{
    static const struct {
        const char *first, *last, *why;
    } ranges[] = {
        {"filter-nvidia-0091", "filter-nvidia-0091", "a percentage of 0"},
        {"filter-nvidia-0112", "filter-nvidia-0113", "init containers take part"},
        {"filter-nvidia-0413", "filter-nvidia-0413", "a NUMA node with enough is passed over"},
        {"filter-nvidia-0418", "filter-nvidia-0418", "a card in MIG mode is given out whole"},
        {"filter-nvidia-0426", "filter-nvidia-0426", "another card's instances are counted"},
        {"filter-nvidia-0431", "filter-nvidia-0431", "another card's instances are counted"},
        {"filter-vendors-0077", "filter-vendors-0077", "a sick device is given out"},
        {"filter-vendors-0081", "filter-vendors-0081", "a sick device is given out"},
        {"filter-vendors-0088", "filter-vendors-0088", "a sick device is given out"},
        {"filter-vendors-0091", "filter-vendors-0091", "a sick device is given out"},
        {"filter-vendors-0098", "filter-vendors-0098", "a sick device is given out"},
        {"filter-vendors-0102", "filter-vendors-0102", "a sick device is given out"},
        {"filter-vendors-0107", "filter-vendors-0109", "a sick device is given out"},
        {"filter-vendors-0117", "filter-vendors-0117", "the agent is not told the card"},
        {"filter-vendors-0124", "filter-vendors-0124", "the agent is not told the card"},
        {"filter-vendors-0127", "filter-vendors-0127", "the agent is not told the card"},
        {"filter-vendors-0145", "filter-vendors-0145",
         "equal devices, as sorted for a container before"},
        {"filter-vendors-0150", "filter-vendors-0150", "the agent is not told the card"},
        {"filter-vendors-0195", "filter-vendors-0195", "a sick device is given out"},
        {"filter-vendors-0202", "filter-vendors-0202", "a sick device is given out"},
        {"filter-vendors-0204", "filter-vendors-0204", "a sick device is given out"},
        {"filter-vendors-0218", "filter-vendors-0218", "a sick device is given out"},
        {"filter-vendors-0271", "filter-vendors-0271", "the list of cards is passed over"},
        {"filter-vendors-0276", "filter-vendors-0276", "the list of cards is passed over"},
        {"filter-vendors-0289", "filter-vendors-0289", "another one of equal cards"},
        {"filter-vendors-0290", "filter-vendors-0290", "the list of cards is passed over"},
        {"filter-vendors-0303", "filter-vendors-0303", "an order of nodes that doesn't exist"},
        {"filter-vendors-0320", "filter-vendors-0320", "an order of nodes that doesn't exist"},
        {"filter-vendors-0324", "filter-vendors-0324", "an order of nodes that doesn't exist"},
        {"filter-vendors-0341", "filter-vendors-0341", "pods of two policies share a card"},
        {"filter-vendors-0349", "filter-vendors-0349", "a pod's containers are of two classes"},
        {"filter-vendors-0357", "filter-vendors-0357", "pods of two policies share a card"},
        {"filter-vendors-0433", "filter-vendors-0433", "the list of devices is passed over"},
        {"filter-vendors-0446", "filter-vendors-0446", "the list of devices is passed over"},
        {"filter-vendors-0451", "filter-vendors-0451", "the list of devices is passed over"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
        if (strcmp(vector->id, ranges[i].first) >= 0 && strcmp(vector->id, ranges[i].last) <= 0)
            return ranges[i].why;
    }
    return NULL;
}

const struct family filter_family = {
    .name = "filter",
    .check = check_filter,
    .left_out = left_out,
};
