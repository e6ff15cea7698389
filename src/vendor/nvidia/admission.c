/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/nvidia/admission.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "vendor/nvidia/nvidia.h"

#define WHOLE_CARD_CORES "100"
#define PRIORITY_VARIABLE "CUDA_TASK_PRIORITY"

/* One container while it is looked at. */
struct mutation {
    const struct nvidia_config *config;
    const struct pod *pod;
    const struct container *container;
    size_t position;
    struct edits *edits;
};

static int add_edit(const struct mutation *mutation, enum edit_kind kind, const char *name,
                    const char *value)
{
    struct edits *edits = mutation->edits;

    if (edits->count == EDITS_MAX)
        return -ENOMEM;
    edits->items[edits->count++] = (struct edit){
        .kind = kind,
        .container = mutation->position,
        .name = name,
        .value = value,
    };
    return 0;
}

static int add_number_edit(const struct mutation *mutation, enum edit_kind kind, const char *name,
                           int64_t value)
{
    char *text = arena_printf(mutation->edits->arena, "%" PRId64, value);

    return text ? add_edit(mutation, kind, name, text) : -ENOMEM;
}

/* Checks. */

static int refuse_amount(const struct mutation *mutation, const char *list,
                         const struct resource *resource, const char *why, struct error *err)
{
    size_t init_count = mutation->pod->init_count, position = mutation->position;
    bool init = position < init_count;

    return error_set(err, -EINVAL, "spec.%s[%zu].resources.%s[%s]: \"%.64s\" is %s",
                     init ? "initContainers" : "containers",
                     init ? position : position - init_count, list, resource->name, resource->text,
                     why);
}

static int check_resource(const struct mutation *mutation, const char *list,
                          const struct resource *resource, int64_t max, struct error *err)
{
    if (resource->quantity.value < 0)
        return refuse_amount(mutation, list, resource, "negative", err);
    if (resource->quantity.form == QUANTITY_FRACTION)
        return refuse_amount(mutation, list, resource, "not a whole number", err);
    if (resource->quantity.form != QUANTITY_WHOLE || resource->quantity.value > max)
        return refuse_amount(mutation, list, resource, "more than can be counted", err);
    return 0;
}

static bool is_above_zero(const struct resource *resource)
{
    return resource && resource->quantity.value > 0;
}

/* Beside an amount in MiB, which counts, a percentage of 0 is harmless. Alone it would be a share
 * without memory, in which nothing can start. */
static int check_percentage(const struct mutation *mutation, const char *list,
                            const struct resource_list *resources, struct error *err)
{
    const struct nvidia_config *config = mutation->config;
    const struct resource *percent = resource_find(resources, config->memory_percent_name);

    if (!percent)
        return 0;
    if (percent->quantity.value > 100)
        return refuse_amount(mutation, list, percent, "more than 100", err);
    if (percent->quantity.value == 0 &&
        !is_above_zero(container_resource(mutation->container, config->memory_name)))
        return refuse_amount(
            mutation, list, percent,
            "no share of a card's memory; without this field it is the whole card's", err);
    return 0;
}

static int check_list(const struct mutation *mutation, const char *list,
                      const struct resource_list *resources, struct error *err)
{
    const struct nvidia_config *config = mutation->config;
    const struct {
        const char *name;
        int64_t max;
    } rows[] = {
        {config->count_name, INT32_MAX}, /* beyond, it would be read as none at all */
        {config->memory_name, INT64_MAX}, {config->memory_percent_name, INT64_MAX},
        {config->cores_name, INT64_MAX},  {config->priority_name, INT64_MAX},
    };
    int r;

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct resource *resource = resource_find(resources, rows[i].name);

        r = resource ? check_resource(mutation, list, resource, rows[i].max, err) : 0;
        if (r < 0)
            return r;
    }
    return check_percentage(mutation, list, resources, err);
}

static int check_amounts(const struct mutation *mutation, struct error *err)
{
    int r = check_list(mutation, "limits", &mutation->container->limits, err);

    return r < 0 ? r : check_list(mutation, "requests", &mutation->container->requests, err);
}

/* Changes, in the order in which they show. */

static const struct resource *limit_of(const struct mutation *mutation, const char *name)
{
    return resource_find(&mutation->container->limits, name);
}

static const struct resource *asked_for(const struct mutation *mutation, const char *name)
{
    return container_resource(mutation->container, name);
}

static bool names_ours(const struct mutation *mutation)
{
    const struct nvidia_config *config = mutation->config;

    return asked_for(mutation, config->count_name) || asked_for(mutation, config->memory_name) ||
           asked_for(mutation, config->memory_percent_name) ||
           asked_for(mutation, config->cores_name) || asked_for(mutation, config->priority_name);
}

/* A container's priority is what it asks for as a resource, which a quota can count. A variable of
 * the pod's own would be taken for it on the node. */
static int drop_priorities(const struct mutation *mutation)
{
    const struct container *container = mutation->container;
    int r;

    for (size_t i = container->env_count; i > 0; i--) {
        const struct env_name *variable = &container->env[i - 1];

        if (strcmp(variable->name, PRIORITY_VARIABLE) != 0)
            continue;
        r = add_edit(mutation, EDIT_DROP_ENV, "", "");
        if (r < 0)
            return r;
        mutation->edits->items[mutation->edits->count - 1].position = variable->position;
    }
    return 0;
}

static int pass_priority(const struct mutation *mutation)
{
    const struct resource *priority = limit_of(mutation, mutation->config->priority_name);
    int r = names_ours(mutation) ? drop_priorities(mutation) : 0;

    if (r < 0 || !priority)
        return r;
    return add_number_edit(mutation, EDIT_ENV, PRIORITY_VARIABLE, priority->quantity.value);
}

static int pass_core_policy(const struct mutation *mutation)
{
    const char *policy = mutation->config->core_policy;

    if (!*policy || strcmp(policy, "default") == 0)
        return 0;
    return add_edit(mutation, EDIT_ENV, "GPU_CORE_UTILIZATION_POLICY", policy);
}

/* A container that names memory or cores, but no count, means the default count. */
static int add_count(const struct mutation *mutation, bool *has)
{
    const struct nvidia_config *config = mutation->config;

    *has = limit_of(mutation, config->count_name) != NULL;
    if (*has || config->default_count <= 0)
        return 0;
    if (!limit_of(mutation, config->cores_name) && !limit_of(mutation, config->memory_name) &&
        !limit_of(mutation, config->memory_percent_name))
        return 0;
    *has = true;
    return add_number_edit(mutation, EDIT_LIMIT, config->count_name, config->default_count);
}

/* Whoever asks for all memory of a card, or for none in particular, gets all of its cores. */
static bool wants_whole_card(const struct mutation *mutation)
{
    const struct nvidia_config *config = mutation->config;
    const struct resource *percent = asked_for(mutation, config->memory_percent_name);

    if (percent)
        return percent->quantity.value == 100;
    return !asked_for(mutation, config->memory_name);
}

static int add_cores(const struct mutation *mutation, bool *has)
{
    const struct nvidia_config *config = mutation->config;

    if (!*has && !asked_for(mutation, config->count_name))
        return 0;
    if (!*config->cores_name || asked_for(mutation, config->cores_name) ||
        !wants_whole_card(mutation))
        return 0;
    *has = true;
    return add_edit(mutation, EDIT_LIMIT, config->cores_name, WHOLE_CARD_CORES);
}

static bool has_runtime_class(const struct mutation *mutation)
{
    for (size_t i = 0; i < mutation->edits->count; i++) {
        if (mutation->edits->items[i].kind == EDIT_RUNTIME_CLASS)
            return true;
    }
    return *mutation->pod->runtime_class;
}

static int add_runtime_class(const struct mutation *mutation)
{
    if (!*mutation->config->runtime_class || has_runtime_class(mutation))
        return 0;
    return add_edit(mutation, EDIT_RUNTIME_CLASS, "", mutation->config->runtime_class);
}

static int hide_devices(const struct mutation *mutation)
{
    if (!mutation->config->overwrite_env)
        return 0;
    return add_edit(mutation, EDIT_ENV, "NVIDIA_VISIBLE_DEVICES", "none");
}

int nvidia_mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct edits *edits, struct error *err)
{
    const struct mutation mutation = {
        .config = instance->config,
        .pod = pod,
        .container = &pod->containers[container],
        .position = container,
        .edits = edits,
    };
    bool has;
    int r;

    r = check_amounts(&mutation, err);
    if (r < 0)
        return r;
    r = pass_priority(&mutation);
    if (r < 0)
        return r;
    r = pass_core_policy(&mutation);
    if (r < 0)
        return r;
    r = add_count(&mutation, &has);
    if (r < 0)
        return r;
    r = add_cores(&mutation, &has);
    if (r < 0)
        return r;
    if (has) {
        r = nvidia_check_annotations(pod, err);
        if (r < 0)
            return r;
    }
    r = has ? add_runtime_class(&mutation) : hide_devices(&mutation);
    return r < 0 ? r : has;
}
