/* SPDX-License-Identifier: Apache-2.0 */

/* Why a pod is placed nowhere, for a person: as JSON, node by node and device by device. */

#include <errno.h>
#include <inttypes.h>
#include <math.h>

#include "cluster/quota.h"
#include "cluster/scarcity.h"

static void write_amounts(struct strbuf *buf, const char *key, uint64_t memory_mib, unsigned cores,
                          unsigned tasks)
{
    strbuf_addf(buf, ",\"%s\":{\"memory_mib\":%" PRIu64 ",\"cores\":%u,\"slots\":%u}", key,
                memory_mib, cores, tasks);
}

static void write_verdict(struct strbuf *buf, const struct device *device,
                          const struct place_verdict *verdict)
{
    const struct device_usage *used = &verdict->used, *wanted = &verdict->wanted;
    const uint64_t total_mib = device->memory_bytes / MIB, used_mib = used->memory_bytes / MIB;

    strbuf_add(buf, "{\"uuid\":");
    strbuf_add_json(buf, device->uuid);
    strbuf_add(buf, ",\"model\":");
    strbuf_add_json(buf, device->model);
    strbuf_add(buf, ",\"reason\":");
    strbuf_add_json(
        buf, verdict->reason == PLACE_REASON_COUNT ? "" : place_reason_name(verdict->reason));
    write_amounts(buf, "has", total_mib - MIN(total_mib, used_mib),
                  device->cores - MIN(device->cores, used->cores),
                  device->max_tasks - MIN(device->max_tasks, used->tasks));
    write_amounts(buf, "asked", wanted->memory_bytes / MIB, wanted->cores, wanted->tasks);
    strbuf_add(buf, "}");
}

static void write_refusal(struct strbuf *buf, const struct place_node *node,
                          const struct place_explanation *explanation)
{
    char text[PLACE_REASON_TEXT_SIZE];
    bool any = false;

    place_reasons_format(&explanation->failure, text);
    strbuf_addf(buf, ",\"fits\":false,\"container\":%zu,\"vendor\":", explanation->container);
    strbuf_add_json(buf, explanation->request->vendor->word);
    strbuf_addf(buf, ",\"count\":%u,\"evicting_helps\":%s,\"reason\":", explanation->request->count,
                explanation->failure.for_good ? "false" : "true");
    strbuf_add_json(buf, text);
    strbuf_add(buf, ",\"devices\":[");
    for (size_t i = 0; i < explanation->count; i++) {
        if (!explanation->verdicts[i].is_candidate)
            continue;
        strbuf_add(buf, any ? "," : "");
        write_verdict(buf, &node->devices[i], &explanation->verdicts[i]);
        any = true;
    }
    strbuf_add(buf, "]");
}

/* Gives back the arena's memory that the node took. */
static int write_node(struct strbuf *buf, const struct cluster *cluster,
                      const struct cluster_node *node, const struct pod *pod,
                      const struct demand *demand, const struct place_options *options,
                      struct arena *arena)
{
    const struct arena_mark mark = arena_mark(arena);
    struct place_explanation explanation;
    double cost;
    int r = 0;

    strbuf_add(buf, "{\"name\":");
    strbuf_add_json(buf, node->place->name);
    if (node->absent) {
        strbuf_add(buf, ",\"fits\":false,\"devices\":[],\"reason\":");
        strbuf_add_json(buf, node->absent);
    } else {
        r = place_explain(node->place, demand, options, arena, &explanation);
        if (r == PLACE_FITS)
            strbuf_addf(buf, ",\"fits\":true,\"score\":%.2f", (double)node->place->score);
        else if (r == PLACE_NO_FIT)
            write_refusal(buf, node->place, &explanation);
        if (r == PLACE_FITS && options->node_order == PLACE_SCARCITY &&
            scarcity_explain(cluster, node, demand, &pod->amounts, &cost) && !isinf(cost))
            strbuf_addf(buf, ",\"cost\":%.6g", cost);
    }
    strbuf_add(buf, "}");
    arena_rewind(arena, mark);
    return r < 0 ? r : 0;
}

int cluster_why(const struct cluster *cluster, const struct pod *pod, struct arena *arena,
                struct strbuf *buf, struct error *err)
{
    struct place_options options;
    struct demand demand;
    const char *quota;
    bool failed, any = false;
    int r = vendor_read_demand(cluster->options.vendors, pod, arena, &demand);

    if (r < 0)
        return error_set(err, r, "the pod's lists of devices and types are too long to be read");
    if (r == 0)
        return error_set(err, -EINVAL, "the pod asks for no device");
    place_options_read(&pod->annotations, &cluster->options.defaults, &options);
    quota = namespace_refuses(cluster, pod->namespace, &demand, arena, &failed);
    if (failed || namespace_budgets(cluster, pod->namespace, arena, &options) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    strbuf_add(buf, "{\"quota\":");
    strbuf_add_json(buf, quota ? quota : "");
    if (options.node_order == PLACE_SCARCITY)
        scarcity_write_class(cluster, &demand, &pod->amounts, buf);
    strbuf_add(buf, ",\"nodes\":[\n");
    for (const struct cluster_node *node = cluster->nodes; node; node = node->hh.next) {
        if (!node->exists)
            continue;
        strbuf_add(buf, any ? ",\n" : "");
        any = true;
        r = write_node(buf, cluster, node, pod, &demand, &options, arena);
        if (r < 0)
            return error_set(err, r, "node %s: more devices or vendors than can be judged",
                             node->place->name);
    }
    strbuf_add(buf, "]}\n");
    return buf->failed ? error_set(err, -ENOMEM, "out of memory") : 0;
}
