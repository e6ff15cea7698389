/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/unserved.h"

#include <errno.h>
#include <search.h>
#include <string.h>

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int add_list(struct node_resources *resources, const struct resource_list *list,
                    struct arena *arena)
{
    for (size_t i = 0; i < list->count; i++) {
        const char *name;

        if (tfind(list->items[i].name, &resources->tree, compare_names))
            continue;
        name = arena_strdup(arena, list->items[i].name);
        if (!name || !tsearch(name, &resources->tree, compare_names))
            return -ENOMEM;
    }
    return 0;
}

int node_resources_add(struct node_resources *resources, const struct node *node,
                       struct arena *arena)
{
    int r = add_list(resources, &node->allocatable, arena);

    return r < 0 ? r : add_list(resources, &node->capacity, arena);
}

static void keep(void *name)
{
    (void)name; /* the arena's */
}

void node_resources_deinit(struct node_resources *resources)
{
    tdestroy(resources->tree, keep);
    resources->tree = NULL;
}

static bool is_served(const struct vendor_set *vendors, const char *name)
{
    for (size_t i = 0; i < vendors->count; i++) {
        const struct vendor_instance *instance = &vendors->instances[i];

        for (size_t k = 0; k < VENDOR_MAX_RESOURCES && instance->resources[k]; k++) {
            if (strcmp(instance->resources[k], name) == 0)
                return true;
        }
    }
    return false;
}

/* Kubernetes' own rule of which resources nodes have to have: those of a domain that is not its
 * own. Names without a domain (cpu, hugepages-2Mi) are not read at all. */
static bool is_extended(const char *name)
{
    return !strstr(name, "kubernetes.io/");
}

/* What is looked for, and where it is told. */
struct search {
    const struct node_resources *resources;
    const struct vendor_set *vendors;
    struct strbuf *text;
};

static bool is_unserved(const struct search *search, const struct resource *resource)
{
    return resource->quantity.value > 0 && is_extended(resource->name) &&
           !is_served(search->vendors, resource->name) &&
           !tfind(resource->name, &search->resources->tree, compare_names);
}

static void describe(const struct search *search, struct container_place place, const char *list,
                     const char *name)
{
    strbuf_addf(
        search->text,
        "spec.%s[%zu].resources.%s[%s]: no section of the device configuration serves it, and "
        "no node that was read has it; is the name misspelt?\n",
        place.list, place.position, list, name);
}

static void search_container(const struct search *search, const struct container *container,
                             struct container_place place)
{
    const struct resource_list *limits = &container->limits, *requests = &container->requests;

    for (size_t i = 0; i < limits->count; i++) {
        if (is_unserved(search, &limits->items[i]))
            describe(search, place, "limits", limits->items[i].name);
    }
    for (size_t i = 0; i < requests->count; i++) {
        const char *name = requests->items[i].name;

        if (is_unserved(search, &requests->items[i]) && !resource_find(limits, name))
            describe(search, place, "requests", name);
    }
}

void unserved_describe(const struct node_resources *resources, const struct vendor_set *vendors,
                       const struct pod *pod, struct strbuf *text)
{
    const struct search search = {resources, vendors, text};

    for (size_t i = 0; i < pod->container_count; i++)
        search_container(&search, &pod->containers[i], pod_container_place(pod, i));
}
