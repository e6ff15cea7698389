/* SPDX-License-Identifier: Apache-2.0 */
#include "vendor/nvidia/admission.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/util.h"
#include "vendor/nvidia/nvidia.h"

#define WHOLE_CARD_CORES "100"

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

static int check_resource(const struct mutation *mutation, const char *list,
                          const struct resource *resource, int64_t max, struct error *err)
{
    size_t init_count = mutation->pod->init_count, position = mutation->position;
    bool init = position < init_count;

    if (resource->quantity.form == QUANTITY_WHOLE && resource->quantity.value >= 0 &&
        resource->quantity.value <= max)
        return 0;
    return error_set(err, -EINVAL, "spec.%s[%zu].resources.%s[%s]: \"%.64s\" is %s",
                     init ? "initContainers" : "containers",
                     init ? position : position - init_count, list, resource->name, resource->text,
                     resource->quantity.value < 0                   ? "negative"
                     : resource->quantity.form == QUANTITY_FRACTION ? "not a whole number"
                                                                    : "more than can be counted");
}

static int check_list(const struct mutation *mutation, const char *list,
                      const struct resource_list *resources, struct error *err)
{
    const struct nvidia_config *config = mutation->config;
    const char *const names[] = {config->count_name, config->memory_name,
                                 config->memory_percent_name, config->cores_name,
                                 config->priority_name};
    int r;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const struct resource *resource = resource_find(resources, names[i]);

        /* A count beyond 32 bits would be read as none at all. Other amounts are only too much. */
        r = resource ? check_resource(mutation, list, resource, i ? INT64_MAX : INT32_MAX, err) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static int check(const struct mutation *mutation, struct error *err)
{
    int r = check_list(mutation, "limits", &mutation->container->limits, err);

    return r < 0 ? r : check_list(mutation, "requests", &mutation->container->requests, err);
}

/* Changes, in the order in which they show. */

static const struct resource *limit(const struct mutation *mutation, const char *name)
{
    return resource_find(&mutation->container->limits, name);
}

static const struct resource *asked(const struct mutation *mutation, const char *name)
{
    return container_resource(mutation->container, name);
}

static int pass_priority(const struct mutation *mutation)
{
    const struct resource *priority = limit(mutation, mutation->config->priority_name);

    if (!priority)
        return 0;
    return add_number_edit(mutation, EDIT_ENV, "CUDA_TASK_PRIORITY", priority->quantity.value);
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

    *has = limit(mutation, config->count_name) != NULL;
    if (*has || config->default_count <= 0)
        return 0;
    if (!limit(mutation, config->cores_name) && !limit(mutation, config->memory_name) &&
        !limit(mutation, config->memory_percent_name))
        return 0;
    *has = true;
    return add_number_edit(mutation, EDIT_LIMIT, config->count_name, config->default_count);
}

/* Whoever asks for all memory of a card, or for none in particular, gets all of its cores. */
static bool wants_whole_card(const struct mutation *mutation)
{
    const struct nvidia_config *config = mutation->config;
    const struct resource *percent = asked(mutation, config->memory_percent_name);

    if (percent)
        return percent->quantity.value == 100;
    return !asked(mutation, config->memory_name);
}

static int add_cores(const struct mutation *mutation, bool *has)
{
    const struct nvidia_config *config = mutation->config;

    if (!*has && !asked(mutation, config->count_name))
        return 0;
    if (!*config->cores_name || asked(mutation, config->cores_name) || !wants_whole_card(mutation))
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

    r = check(&mutation, err);
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
        r = nvidia_check_lists(pod, err);
        if (r < 0)
            return r;
    }
    r = has ? add_runtime_class(&mutation) : hide_devices(&mutation);
    return r < 0 ? r : has;
}
