/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/quota.h"

#include <errno.h>
#include <inttypes.h>
#include <utlist.h>

enum amount {
    AMOUNT_MEMORY = 0, /* in MiB */
    AMOUNT_CORES,
    AMOUNTS,
};

#define NO_BOUND INT64_MAX

/* A ResourceQuota. Bounds are by instance and amount. */
struct cluster_quota {
    UT_hash_handle hh; /* by "NAMESPACE/NAME", behind the struct */
    struct cluster_namespace *space;
    struct cluster_quota *prev, *next; /* of the namespace */
    unsigned seen;                     /* the list that showed it last */
    const char *key;
    int64_t bounds[];
};

struct namespace_row {
    int64_t bound; /* the least of the quotas' */
    int64_t used;
};

struct cluster_namespace {
    UT_hash_handle hh;
    const char *name; /* behind the rows */
    unsigned refs;
    struct cluster_quota *quotas;
    struct namespace_row rows[];
};

static size_t row_count(const struct cluster *cluster)
{
    return cluster->options.vendors->count * AMOUNTS;
}

static struct cluster_namespace *namespace_find(const struct cluster *cluster, const char *name)
{
    struct cluster_namespace *space;

    HASH_FIND_STR(cluster->namespaces, name, space);
    return space;
}

struct cluster_namespace *namespace_ref(struct cluster *cluster, const char *name)
{
    struct cluster_namespace *space = namespace_find(cluster, name);
    const size_t rows = row_count(cluster), size = strlen(name) + 1;

    if (!space) {
        space = calloc(1, sizeof(*space) + rows * sizeof(space->rows[0]) + size);
        if (!space)
            return NULL;
        for (size_t i = 0; i < rows; i++)
            space->rows[i].bound = NO_BOUND;
        space->name = memcpy(space->rows + rows, name, size);
        HASH_ADD_KEYPTR(hh, cluster->namespaces, space->name, size - 1, space);
    }
    space->refs++;
    return space;
}

void namespace_unref(struct cluster *cluster, struct cluster_namespace *space)
{
    if (!space || --space->refs)
        return;
    HASH_DEL(cluster->namespaces, space);
    free(space);
}

static size_t row_of(const struct cluster *cluster, const struct device_vendor *vendor,
                     enum amount amount)
{
    return (size_t)(vendor_of(vendor) - cluster->options.vendors->instances) * AMOUNTS + amount;
}

void namespace_charge(const struct cluster *cluster, struct cluster_namespace *space,
                      const struct place_usage *usage, int by)
{
    for (size_t i = 0; i < usage->total_count; i++) {
        const struct place_total *total = &usage->totals[i];
        struct namespace_row *rows = &space->rows[row_of(cluster, total->vendor, AMOUNT_MEMORY)];

        rows[AMOUNT_MEMORY].used += by * (int64_t)total->memory_mib;
        rows[AMOUNT_CORES].used += by * (int64_t)total->cores;
    }
}

/* Bounds. */

static const char *resource_of(const struct vendor_instance *instance, enum amount amount)
{
    return amount == AMOUNT_MEMORY ? instance->memory_resource : instance->cores_resource;
}

static int64_t unit_of(const struct vendor_instance *instance, enum amount amount)
{
    return amount == AMOUNT_MEMORY ? MAX(instance->memory_unit_mib, 1) : 1;
}

/* "limits.NAME" or "requests.NAME" */
static bool names_resource(const char *key, const char *resource)
{
    static const char *const prefixes[] = {"limits.", "requests."};

    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
        const size_t len = strlen(prefixes[i]);

        if (strncmp(key, prefixes[i], len) == 0 && strcmp(key + len, resource) == 0)
            return true;
    }
    return false;
}

/* The least that the quota's keys say. False when one of them is no whole number: it bounds
 * nothing. */
static bool read_bound(const struct quota *quota, const struct vendor_instance *instance,
                       enum amount amount, int64_t *ret_bound, const char **ret_key)
{
    int64_t (*const mib_of)(const struct resource *) =
        amount == AMOUNT_MEMORY ? instance->vendor->bound_mib : NULL;
    const char *resource = resource_of(instance, amount);
    const int64_t unit = unit_of(instance, amount);
    bool good = true;

    *ret_bound = NO_BOUND;
    for (size_t i = 0; i < quota->hard.count; i++) {
        const struct resource *hard = &quota->hard.items[i];

        if (!names_resource(hard->name, resource))
            continue;
        if (hard->quantity.form == QUANTITY_FRACTION) {
            *ret_key = hard->name;
            good = false;
        }
        if (hard->quantity.form == QUANTITY_WHOLE && mib_of)
            *ret_bound = MIN(*ret_bound, mib_of(hard));
        else if (hard->quantity.form == QUANTITY_WHOLE && hard->quantity.value < NO_BOUND / unit)
            *ret_bound = MIN(*ret_bound, hard->quantity.value * unit);
    }
    return good;
}

static void add_up_bounds(const struct cluster *cluster, struct cluster_namespace *space)
{
    const struct cluster_quota *quota;

    for (size_t i = 0; i < row_count(cluster); i++) {
        space->rows[i].bound = NO_BOUND;
        DL_FOREACH(space->quotas, quota)
        {
            space->rows[i].bound = MIN(space->rows[i].bound, quota->bounds[i]);
        }
    }
}

static struct cluster_quota *quota_find(const struct cluster *cluster, const char *key)
{
    struct cluster_quota *quota;

    HASH_FIND_STR(cluster->quotas, key, quota);
    return quota;
}

static struct cluster_quota *quota_new(struct cluster *cluster, const char *namespace,
                                       const char *key)
{
    const size_t rows = row_count(cluster), size = strlen(key) + 1;
    struct cluster_quota *quota =
        calloc(1, sizeof(*quota) + rows * sizeof(quota->bounds[0]) + size);

    if (!quota)
        return NULL;
    quota->space = namespace_ref(cluster, namespace);
    if (!quota->space) {
        free(quota);
        return NULL;
    }
    quota->key = memcpy(quota->bounds + rows, key, size);
    for (size_t i = 0; i < rows; i++)
        quota->bounds[i] = NO_BOUND;
    DL_APPEND(quota->space->quotas, quota);
    HASH_ADD_KEYPTR(hh, cluster->quotas, quota->key, size - 1, quota);
    return quota;
}

static bool has_bounds(const struct cluster *cluster, const struct cluster_quota *quota)
{
    for (size_t i = 0; i < row_count(cluster); i++) {
        if (quota->bounds[i] != NO_BOUND)
            return true;
    }
    return false;
}

/* Pods that were refused may fit now. */
static void quota_free(struct cluster *cluster, struct cluster_quota *quota)
{
    struct cluster_namespace *space = quota->space;

    HASH_DEL(cluster->quotas, quota);
    DL_DELETE(space->quotas, quota);
    if (has_bounds(cluster, quota)) {
        add_up_bounds(cluster, space);
        cluster->freed++;
    }
    free(quota);
    namespace_unref(cluster, space);
}

/* False: it stays as it is. Says in ret_wrong which key can't be read. */
static bool read_bounds(const struct cluster *cluster, const struct quota *from,
                        struct cluster_quota *quota, const char **ret_wrong)
{
    const struct vendor_set *set = cluster->options.vendors;
    bool changed = false;

    for (size_t i = 0; i < row_count(cluster); i++) {
        const struct vendor_instance *instance = &set->instances[i / AMOUNTS];
        const enum amount amount = (enum amount)(i % AMOUNTS);
        const char *resource = resource_of(instance, amount);
        int64_t bound = NO_BOUND;

        if (resource && *resource)
            (void)read_bound(from, instance, amount, &bound, ret_wrong);
        changed |= bound != quota->bounds[i];
        quota->bounds[i] = bound;
    }
    return changed;
}

int cluster_set_quota(struct cluster *cluster, const struct quota *from, struct error *err)
{
    const char *key, *wrong = NULL;
    struct cluster_quota *quota;

    arena_reset(cluster->scratch);
    key = arena_printf(cluster->scratch, "%s/%s", from->namespace, from->name);
    quota = key ? quota_find(cluster, key) : NULL;
    if (key && !quota)
        quota = quota_new(cluster, from->namespace, key);
    if (!quota)
        return error_set(err, -ENOMEM, "out of memory");
    quota->seen = cluster->list[CLUSTER_QUOTAS];
    /* Kubernetes writes its status with each pod of the namespace. */
    if (read_bounds(cluster, from, quota, &wrong)) {
        add_up_bounds(cluster, quota->space);
        cluster->freed++;
    }
    if (!wrong)
        return 0;
    return error_set(err, 1, "spec.hard[%s]: not a whole number, so it bounds nothing", wrong);
}

void cluster_delete_quota(struct cluster *cluster, const char *namespace, const char *name)
{
    struct cluster_quota *quota;
    const char *key;

    arena_reset(cluster->scratch);
    key = arena_printf(cluster->scratch, "%s/%s", namespace, name);
    quota = key ? quota_find(cluster, key) : NULL;
    if (quota)
        quota_free(cluster, quota);
}

void quota_keep(struct cluster *cluster, const char *key)
{
    struct cluster_quota *quota = quota_find(cluster, key);

    if (quota)
        quota->seen = cluster->list[CLUSTER_QUOTAS];
}

void quotas_sweep(struct cluster *cluster)
{
    struct cluster_quota *quota, *next;

    HASH_ITER(hh, cluster->quotas, quota, next)
    {
        if (quota->seen != cluster->list[CLUSTER_QUOTAS])
            quota_free(cluster, quota);
    }
}

void quotas_free(struct cluster *cluster)
{
    struct cluster_quota *quota, *next;

    HASH_ITER(hh, cluster->quotas, quota, next)
    {
        quota_free(cluster, quota);
    }
}

/* Answers. */

static int64_t left_of(const struct namespace_row *row, bool whole)
{
    return row->bound == NO_BOUND || whole ? row->bound : row->bound - row->used;
}

static int list_budgets(const struct cluster *cluster, const char *name, bool whole,
                        struct arena *arena, const struct place_budget **ret_budgets,
                        size_t *ret_count)
{
    const struct vendor_set *set = cluster->options.vendors;
    const struct cluster_namespace *space = namespace_find(cluster, name);
    struct place_budget *budgets;
    size_t count = 0;

    *ret_count = 0;
    if (!space || !space->quotas)
        return 0;
    budgets = ARENA_ARRAY(arena, struct place_budget, set->count);
    if (!budgets)
        return -ENOMEM;
    for (size_t i = 0; i < set->count; i++) {
        const struct namespace_row *rows = &space->rows[i * AMOUNTS];

        if (rows[AMOUNT_MEMORY].bound == NO_BOUND && rows[AMOUNT_CORES].bound == NO_BOUND)
            continue;
        budgets[count++] = (struct place_budget){
            .vendor = &set->instances[i].id,
            .memory_mib = left_of(&rows[AMOUNT_MEMORY], whole),
            .cores = left_of(&rows[AMOUNT_CORES], whole),
        };
    }
    *ret_budgets = budgets;
    *ret_count = count;
    return 0;
}

int namespace_budgets(const struct cluster *cluster, const char *name, struct arena *arena,
                      struct place_options *options)
{
    return list_budgets(cluster, name, false, arena, &options->budgets, &options->budget_count);
}

int cluster_quota_bounds(const struct cluster *cluster, const char *namespace, struct arena *arena,
                         const struct place_budget **ret_bounds, size_t *ret_count)
{
    return list_budgets(cluster, namespace, true, arena, ret_bounds, ret_count);
}

bool namespace_has_room(const struct cluster *cluster, const struct cluster_namespace *space,
                        const struct place_usage *usage)
{
    for (size_t i = 0; i < usage->total_count; i++) {
        const struct place_total *total = &usage->totals[i];
        const struct namespace_row *rows =
            &space->rows[row_of(cluster, total->vendor, AMOUNT_MEMORY)];

        if ((int64_t)total->memory_mib > left_of(&rows[AMOUNT_MEMORY], false) ||
            (int64_t)total->cores > left_of(&rows[AMOUNT_CORES], false))
            return false;
    }
    return true;
}

static bool asks_for(const struct demand *demand, const struct device_vendor *vendor)
{
    for (size_t i = 0; i < demand->count; i++) {
        for (size_t k = 0; k < demand->containers[i].request_count; k++) {
            if (demand->containers[i].requests[k].vendor == vendor)
                return true;
        }
    }
    return false;
}

static const char *refuses_amount(const struct cluster_namespace *space,
                                  const struct vendor_instance *instance, enum amount amount,
                                  const struct namespace_row *row, uint64_t asked,
                                  struct arena *arena, bool *ret_failed)
{
    const int64_t unit = unit_of(instance, amount);
    const char *text;

    if (row->bound == NO_BOUND || (int64_t)asked <= row->bound - row->used)
        return NULL;
    text =
        arena_printf(arena, "%s in namespace %s: %" PRId64 " asked + %" PRId64 " used > %" PRId64,
                     resource_of(instance, amount), space->name, (int64_t)asked / unit,
                     row->used / unit, row->bound / unit);
    *ret_failed |= !text;
    return text;
}

const char *namespace_refuses(const struct cluster *cluster, const char *name,
                              const struct demand *demand, struct arena *arena, bool *ret_failed)
{
    const struct vendor_set *set = cluster->options.vendors;
    const struct cluster_namespace *space = namespace_find(cluster, name);
    const char *text = NULL;

    *ret_failed = false;
    for (size_t i = 0; space && space->quotas && i < set->count && !text && !*ret_failed; i++) {
        const struct vendor_instance *instance = &set->instances[i];
        const struct namespace_row *rows = &space->rows[i * AMOUNTS];
        const struct place_total asked = place_demand_total(demand, &instance->id);

        if (!asks_for(demand, &instance->id))
            continue;
        text = refuses_amount(space, instance, AMOUNT_MEMORY, &rows[AMOUNT_MEMORY],
                              asked.memory_mib, arena, ret_failed);
        if (!text)
            text = refuses_amount(space, instance, AMOUNT_CORES, &rows[AMOUNT_CORES], asked.cores,
                                  arena, ret_failed);
    }
    return text;
}

/* For the view and metrics. */

static int compare_rows(const void *a, const void *b)
{
    const struct cluster_quota_view *left = a, *right = b;
    const int order = strcmp(left->namespace, right->namespace);

    return order ? order : strcmp(left->resource, right->resource);
}

int cluster_list_quotas(const struct cluster *cluster, struct arena *arena,
                        struct cluster_quota_view **ret_rows, size_t *ret_count)
{
    const struct vendor_set *set = cluster->options.vendors;
    const size_t rows = row_count(cluster);
    struct cluster_quota_view *views =
        ARENA_ARRAY(arena, struct cluster_quota_view, HASH_COUNT(cluster->namespaces) * rows);
    size_t count = 0;

    if (!views)
        return -ENOMEM;
    for (const struct cluster_namespace *space = cluster->namespaces; space;
         space = space->hh.next) {
        for (size_t i = 0; i < rows; i++) {
            const struct vendor_instance *instance = &set->instances[i / AMOUNTS];
            const enum amount amount = (enum amount)(i % AMOUNTS);

            if (space->rows[i].bound == NO_BOUND)
                continue;
            views[count++] = (struct cluster_quota_view){
                .namespace = arena_strdup(arena, space->name),
                .resource = resource_of(instance, amount),
                .bound = space->rows[i].bound / unit_of(instance, amount),
                .used = space->rows[i].used,
                .unit_mib = unit_of(instance, amount),
                .in_mib = amount == AMOUNT_MEMORY && instance->vendor->bound_mib,
            };
            if (!views[count - 1].namespace)
                return -ENOMEM;
        }
    }
    qsort(views, count, sizeof(views[0]), compare_rows);
    *ret_rows = views;
    *ret_count = count;
    return 0;
}
