/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/nvidia/admission.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "vendor/asking.h"
#include "vendor/nvidia/nvidia.h"

#define WHOLE_CARD_CORES "100"
#define PRIORITY_VARIABLE "CUDA_TASK_PRIORITY"

/* One container while its mutations are made. */
struct mutating {
    const struct nvidia_config *config;
    const struct pod *pod;
    const struct container *container;
    size_t position;
    struct mutations *mutations;
};

static int add_mutation(const struct mutating *mutating, enum mutation_kind kind, const char *name,
                        const char *value)
{
    struct mutations *mutations = mutating->mutations;

    if (mutations->count == MUTATIONS_MAX)
        return -ENOMEM;
    mutations->items[mutations->count++] = (struct mutation){
        .kind = kind,
        .container = mutating->position,
        .name = name,
        .value = value,
    };
    return 0;
}

static int add_number(const struct mutating *mutating, enum mutation_kind kind, const char *name,
                      int64_t value)
{
    char *text = arena_printf(mutating->mutations->arena, "%" PRId64, value);

    return text ? add_mutation(mutating, kind, name, text) : -ENOMEM;
}

/* Checks. */

static int refuse_amount(const struct mutating *mutating, const char *list,
                         const struct resource *resource, const char *why, struct error *err)
{
    return asking_refuse_amount(mutating->pod, mutating->position, list, resource, why, err);
}

static bool is_above_zero(const struct resource *resource)
{
    return resource && resource->quantity.value > 0;
}

/* Beside an amount in MiB, which counts, a percentage of 0 is harmless. Alone it would be a share
 * without memory, in which nothing can start. */
static int check_percentage(const struct mutating *mutating, const char *list,
                            const struct resource_list *resources, struct error *err)
{
    const struct nvidia_config *config = mutating->config;
    const struct resource *percent = resource_find(resources, config->memory_percent_name);

    if (!percent)
        return 0;
    if (percent->quantity.value > 100)
        return refuse_amount(mutating, list, percent, "more than 100", err);
    if (percent->quantity.value == 0 &&
        !is_above_zero(container_resource(mutating->container, config->memory_name)))
        return refuse_amount(
            mutating, list, percent,
            "no share of a card's memory; without this field it is the whole card's", err);
    return 0;
}

static int check_amounts(const struct vendor_instance *instance, const struct mutating *mutating,
                         struct error *err)
{
    int r = asking_check_amounts(mutating->pod, mutating->position, instance->resources,
                                 VENDOR_MAX_RESOURCES, err);

    if (r == 0)
        r = check_percentage(mutating, "limits", &mutating->container->limits, err);
    return r < 0 ? r : check_percentage(mutating, "requests", &mutating->container->requests, err);
}

/* Mutations, in the order in which they stand in the patch. */

static const struct resource *limit_of(const struct mutating *mutating, const char *name)
{
    return resource_find(&mutating->container->limits, name);
}

static const struct resource *asked_for(const struct mutating *mutating, const char *name)
{
    return container_resource(mutating->container, name);
}

static bool names_ours(const struct mutating *mutating)
{
    const struct nvidia_config *config = mutating->config;

    return asked_for(mutating, config->count_name) || asked_for(mutating, config->memory_name) ||
           asked_for(mutating, config->memory_percent_name) ||
           asked_for(mutating, config->cores_name) || asked_for(mutating, config->priority_name);
}

/* A container's priority is what it asks for as a resource, which a quota can count. On the node, a
 * variable that the pod brings itself would be taken for that. */
static int drop_priorities(const struct mutating *mutating)
{
    const struct container *container = mutating->container;
    int r;

    for (size_t i = container->env_count; i > 0; i--) {
        const struct env_name *variable = &container->env[i - 1];

        if (strcmp(variable->name, PRIORITY_VARIABLE) != 0)
            continue;
        r = add_mutation(mutating, MUTATION_DROP_ENV, "", "");
        if (r < 0)
            return r;
        mutating->mutations->items[mutating->mutations->count - 1].position = variable->position;
    }
    return 0;
}

static int pass_priority(const struct mutating *mutating)
{
    const struct resource *priority = limit_of(mutating, mutating->config->priority_name);
    int r = names_ours(mutating) ? drop_priorities(mutating) : 0;

    if (r < 0 || !priority)
        return r;
    return add_number(mutating, MUTATION_ENV, PRIORITY_VARIABLE, priority->quantity.value);
}

static int pass_core_policy(const struct mutating *mutating)
{
    const char *policy = mutating->config->core_policy;

    if (!*policy || strcmp(policy, "default") == 0)
        return 0;
    return add_mutation(mutating, MUTATION_ENV, "GPU_CORE_UTILIZATION_POLICY", policy);
}

/* A container that asks for memory or cores, but for no count, gets the default count. */
static int add_count(const struct mutating *mutating, bool *has)
{
    const struct nvidia_config *config = mutating->config;

    *has = limit_of(mutating, config->count_name) != NULL;
    if (*has || config->default_count <= 0)
        return 0;
    if (!limit_of(mutating, config->cores_name) && !limit_of(mutating, config->memory_name) &&
        !limit_of(mutating, config->memory_percent_name))
        return 0;
    *has = true;
    return add_number(mutating, MUTATION_LIMIT, config->count_name, config->default_count);
}

/* A container that asks for all memory of a card, or for no amount, gets all of its cores. */
static bool wants_whole_card(const struct mutating *mutating)
{
    const struct nvidia_config *config = mutating->config;
    const struct resource *percent = asked_for(mutating, config->memory_percent_name);

    if (percent)
        return percent->quantity.value == 100;
    return !asked_for(mutating, config->memory_name);
}

static int add_cores(const struct mutating *mutating, bool *has)
{
    const struct nvidia_config *config = mutating->config;

    if (!*has && !asked_for(mutating, config->count_name))
        return 0;
    if (!*config->cores_name || asked_for(mutating, config->cores_name) ||
        !wants_whole_card(mutating))
        return 0;
    *has = true;
    return add_mutation(mutating, MUTATION_LIMIT, config->cores_name, WHOLE_CARD_CORES);
}

static bool has_runtime_class(const struct mutating *mutating)
{
    for (size_t i = 0; i < mutating->mutations->count; i++) {
        if (mutating->mutations->items[i].kind == MUTATION_RUNTIME_CLASS)
            return true;
    }
    return *mutating->pod->runtime_class;
}

static int add_runtime_class(const struct mutating *mutating)
{
    if (!*mutating->config->runtime_class || has_runtime_class(mutating))
        return 0;
    return add_mutation(mutating, MUTATION_RUNTIME_CLASS, "", mutating->config->runtime_class);
}

static int hide_devices(const struct mutating *mutating)
{
    if (!mutating->config->overwrite_env)
        return 0;
    return add_mutation(mutating, MUTATION_ENV, "NVIDIA_VISIBLE_DEVICES", "none");
}

int nvidia_mutate(const struct vendor_instance *instance, const struct pod *pod, size_t container,
                  struct mutations *mutations, struct error *err)
{
    const struct mutating mutating = {
        .config = instance->id.config,
        .pod = pod,
        .container = &pod->containers[container],
        .position = container,
        .mutations = mutations,
    };
    bool has;
    int r;

    r = check_amounts(instance, &mutating, err);
    if (r < 0)
        return r;
    r = pass_priority(&mutating);
    if (r < 0)
        return r;
    r = pass_core_policy(&mutating);
    if (r < 0)
        return r;
    r = add_count(&mutating, &has);
    if (r < 0)
        return r;
    r = add_cores(&mutating, &has);
    if (r < 0)
        return r;
    if (has) {
        r = nvidia_check_annotations(pod, err);
        if (r < 0)
            return r;
    }
    r = has ? add_runtime_class(&mutating) : hide_devices(&mutating);
    return r < 0 ? r : has;
}
