/* SPDX-License-Identifier: Apache-2.0 */

/* The classes of pods as a person sees them: how often they arrive, and how many more would fit. */

#include <stdio.h>

#include "cluster/scarcity_state.h"

/* Shares that occur, "50" or "25/50", as far as there is room. */
static void add_shares(const struct scarcity_demand *class, size_t count, char *text, size_t size)
{
    bool any = false;

    for (size_t i = 0; i < count; i++) {
        bool known = !class->shares[i];
        const size_t len = strlen(text);

        for (size_t k = 0; k < i; k++)
            known |= class->shares[k] == class->shares[i];
        if (!known)
            (void)snprintf(text + len, size - len, "%s%u", any ? "/" : "", class->shares[i] / 10u);
        any |= !known;
    }
}

/* The models that it may have, where it may not have all. */
static void add_models(const struct scarcity_types *types, const struct scarcity_demand *class,
                       char *text, size_t size)
{
    const char *before = NULL;
    bool all = true;

    for (size_t i = 0; i < types->count; i++)
        all &= class->shares[i] > 0;
    for (size_t i = 0; !all && i < types->count; i++) {
        const char *model = types->samples[i].model;
        const size_t len = strlen(text);

        if (!class->shares[i] || (before && strcmp(before, model) == 0))
            continue;
        (void)snprintf(text + len, size - len, "%s%s", before ? "|" : " of ", model);
        before = model;
    }
}

static void write_class(const struct scarcity_types *types, const struct scarcity_demand *class,
                        char text[static CLUSTER_CLASS_SIZE])
{
    char shares[CLUSTER_CLASS_SIZE] = "";

    add_shares(class, types->count, shares, sizeof(shares));
    (void)snprintf(text, CLUSTER_CLASS_SIZE, "%ux%s%s cpu=%u memory=%uGi", class->count,
                   shares[0] ? shares : " no such card", shares[0] ? "%" : "",
                   class->cpu_milli / 1000, class->memory_mib / 1024);
    add_models(types, class, text, CLUSTER_CLASS_SIZE);
}

static double size_of(const struct scarcity_demand *class)
{
    unsigned sum = 0, types = 0;

    for (size_t i = 0; i < SCARCITY_TYPES; i++) {
        sum += class->shares[i];
        types += class->shares[i] > 0;
    }
    return types ? (double)class->count * sum / types : 0;
}

static struct cluster_class class_at(const struct scarcity *scarcity, size_t at, double arrivals)
{
    const struct scarcity_demand *class = &scarcity->known_classes[at];
    struct cluster_class read = {
        .share = arrivals > 0 ? scarcity->known_arrivals[at] / arrivals : 0,
        .price = scarcity->known_prices[at],
    };
    const double size = size_of(class);

    read.fillable = size > 0 ? (uint64_t)(scarcity->known_fills[at] / size + 0.5) : 0;
    write_class(&scarcity->types, class, read.text);
    return read;
}

static double sum_of(const double *values, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return sum;
}

/* Keeps the list in the order of the shares; a class of the same text is added to the one that is
 * there. */
static size_t keep_class(struct cluster_class *classes, size_t count, size_t max,
                         const struct cluster_class *class)
{
    size_t at = 0;

    while (at < count && strcmp(classes[at].text, class->text) != 0)
        at++;
    if (at < count) {
        classes[at].share += class->share;
        return count;
    }
    at = count < max ? count : max - 1;
    if (count == max && class->share <= classes[at].share)
        return count;
    for (; at > 0 && classes[at - 1].share < class->share; at--)
        classes[at] = classes[at - 1];
    classes[at] = *class;
    return count < max ? count + 1 : count;
}

size_t cluster_classes(const struct cluster *cluster, struct cluster_class *ret_classes, size_t max)
{
    const struct scarcity *scarcity = cluster->scarcity;
    size_t count = 0;
    double arrivals;

    if (!scarcity || !max)
        return 0;
    arrivals = sum_of(scarcity->known_arrivals, scarcity->known_count);
    for (size_t i = 0; i < scarcity->known_count; i++) {
        const struct cluster_class class = class_at(scarcity, i, arrivals);

        count = keep_class(ret_classes, count, max, &class);
    }
    return count;
}

double cluster_unallocatable(const struct cluster *cluster)
{
    const struct scarcity *scarcity = cluster->scarcity;
    double arrivals, capacity, fills = 0;

    if (!scarcity || !scarcity->known_count || !scarcity->device_count)
        return -1;
    arrivals = sum_of(scarcity->known_arrivals, scarcity->known_count);
    capacity = (double)scarcity->device_count * SCARCITY_WHOLE;
    for (size_t i = 0; i < scarcity->known_count; i++)
        fills += scarcity->known_arrivals[i] / arrivals * scarcity->known_fills[i];
    return (scarcity->known_left - fills) / capacity;
}

void cluster_count_classes(struct cluster *cluster)
{
    if (cluster->scarcity)
        cluster->scarcity->counted = false;
}

void cluster_renew_prices(struct cluster *cluster)
{
    struct scarcity *scarcity = cluster->scarcity;

    if (!scarcity)
        return;
    scarcity_renew(scarcity);
    while (scarcity_step(cluster))
        ;
}

bool cluster_has_amounts(const struct cluster *cluster, const char *name,
                         const struct amounts *amounts)
{
    const struct cluster_node *node = node_find(cluster, name);

    if (!node)
        return false;
    return (!node->has.cpu_milli ||
            node->used.cpu_milli + amounts->cpu_milli <= node->has.cpu_milli) &&
           (!node->has.memory_mib ||
            node->used.memory_mib + amounts->memory_mib <= node->has.memory_mib);
}

bool scarcity_explain(const struct cluster *cluster, const struct cluster_node *node,
                      const struct demand *demand, const struct amounts *amounts, double *ret_cost)
{
    const struct scarcity *scarcity = cluster->scarcity;
    struct scarcity_demand read;
    struct scarcity_sight sight;

    if (!scarcity || node->place->seat >= scarcity->seat_count)
        return false;
    scarcity_demand_read(&scarcity->types, demand, amounts->cpu_milli, amounts->memory_mib, &read);
    scarcity_see(scarcity->now, &scarcity->rooms[node->place->seat], &sight);
    *ret_cost = (double)scarcity_cost(&sight, &read, NULL);
    return true;
}

void scarcity_write_class(const struct cluster *cluster, const struct demand *demand,
                          const struct amounts *amounts, struct strbuf *buf)
{
    const struct scarcity *scarcity = cluster->scarcity;
    struct scarcity_demand read;
    struct cluster_class class = {.price = 0};
    bool known = false;

    if (!scarcity)
        return;
    scarcity_demand_read(&scarcity->types, demand, amounts->cpu_milli, amounts->memory_mib, &read);
    read = scarcity_class_of(&read);
    write_class(&scarcity->types, &read, class.text);
    for (size_t i = 0; i < scarcity->known_count; i++) {
        if (memcmp(&scarcity->known_classes[i], &read, sizeof(read)) != 0)
            continue;
        known = true;
        class = class_at(scarcity, i, sum_of(scarcity->known_arrivals, scarcity->known_count));
    }
    strbuf_add(buf, ",\"class\":{\"name\":");
    strbuf_add_json(buf, class.text);
    strbuf_addf(buf, ",\"known\":%s,\"price\":%.6g,\"share\":%.6f,\"fillable\":%llu}",
                known ? "true" : "false", class.price, class.share,
                (unsigned long long)class.fillable);
}
