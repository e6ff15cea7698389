/* SPDX-License-Identifier: Apache-2.0 */
#include "model/pod.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/util.h"
#include "model/object.h"

/* With it a container takes away what the runtime mounted, our library among that. */
static bool is_mighty(const char *capability)
{
    if (strncasecmp(capability, "CAP_", 4) == 0)
        capability += 4;
    return strcasecmp(capability, "SYS_ADMIN") == 0 || strcasecmp(capability, "ALL") == 0;
}

static int read_privilege(const struct reading *reading, yyjson_val *value, const char *where,
                          const char **ret_privilege)
{
    yyjson_val *context, *capability;
    size_t at, max;
    int r;

    r = reading_object(reading, value, where, "securityContext", &context);
    if (r < 0)
        return r;
    if (yyjson_is_true(yyjson_obj_get(context, "privileged")))
        *ret_privilege = "securityContext.privileged";
    yyjson_arr_foreach(yyjson_obj_get(yyjson_obj_get(context, "capabilities"), "add"), at, max,
                       capability)
    {
        const char *name = yyjson_get_str(capability);

        if (name && is_mighty(name) && !*ret_privilege)
            *ret_privilege = "securityContext.capabilities.add";
    }
    return 0;
}

static int read_container_resources(const struct reading *reading, yyjson_val *value,
                                    const char *where, struct container *container)
{
    yyjson_val *resources;
    char inner[96];
    int r;

    r = reading_object(reading, value, where, "resources", &resources);
    if (r < 0)
        return r;
    container->has_resources = resources != NULL;
    (void)snprintf(inner, sizeof(inner), "%s.resources", where);
    r = reading_resources(reading, resources, inner, "limits", &container->has_limits,
                          &container->limits);
    if (r < 0)
        return r;
    return reading_resources(reading, resources, inner, "requests", &container->has_requests,
                             &container->requests);
}

static bool is_ours(const struct reading *reading, yyjson_val *variable)
{
    const char *name = yyjson_get_str(yyjson_obj_get(variable, "name"));

    return name && has_prefix(name, reading->kept->variables, reading->kept->variable_count);
}

static int read_env(const struct reading *reading, yyjson_val *list, struct container *container)
{
    yyjson_val *variable;
    struct env_name *names;
    size_t at, max, count = 0;

    yyjson_arr_foreach(list, at, max, variable)
    {
        count += is_ours(reading, variable);
    }
    if (!count)
        return 0;
    names = ARENA_ARRAY(reading->arena, struct env_name, count);
    if (!names)
        return reading_no_memory(reading);
    yyjson_arr_foreach(list, at, max, variable)
    {
        struct env_name *name = &names[container->env_count];

        if (!is_ours(reading, variable))
            continue;
        name->position = at;
        name->name = arena_strdup(reading->arena, yyjson_get_str(yyjson_obj_get(variable, "name")));
        if (!name->name)
            return reading_no_memory(reading);
        container->env_count++;
    }
    container->env = names;
    return 0;
}

static bool next_step(const char **path, const char **ret_step, size_t *ret_len)
{
    *ret_step = *path + strspn(*path, "/");
    *ret_len = strcspn(*ret_step, "/");
    *path = *ret_step + *ret_len;
    return *ret_len > 0;
}

static bool is_step(const char *step, size_t len, const char *name)
{
    return len == strlen(name) && memcmp(step, name, len) == 0;
}

/* Links there lead to all of a container's files by another path: /proc/self/root, and /dev/fd,
 * which is one into it. Where a path with ".." leads, it does not say. */
static bool leads_through_proc(const char *path)
{
    const char *step;
    size_t depth = 0, len;
    bool in_dev = false;

    while (next_step(&path, &step, &len)) {
        if (is_step(step, len, "."))
            continue;
        if (is_step(step, len, "..") || (depth == 0 && is_step(step, len, "proc")) ||
            (depth == 1 && in_dev && is_step(step, len, "fd")))
            return true;
        in_dev = depth++ == 0 && is_step(step, len, "dev");
    }
    return false;
}

static int read_mounts(const struct reading *reading, yyjson_val *container, const char *where,
                       struct container *ret_container)
{
    yyjson_val *list, *mount;
    size_t at, max;
    int r;

    r = reading_array(reading, container, where, "volumeMounts", &list);
    if (r < 0)
        return r;
    yyjson_arr_foreach(list, at, max, mount)
    {
        const char *path = yyjson_get_str(yyjson_obj_get(mount, "mountPath"));

        if (!path || !leads_through_proc(path))
            continue;
        ret_container->through_proc = arena_strdup(reading->arena, path);
        return ret_container->through_proc ? 0 : reading_no_memory(reading);
    }
    return 0;
}

static int read_container(const struct reading *reading, yyjson_val *value, const char *where,
                          bool init, struct container *ret_container)
{
    struct container container = {.role = init ? CONTAINER_INIT : CONTAINER_APP};
    const char *restart;
    yyjson_val *env;
    int r;

    if (!yyjson_is_obj(value))
        return reading_refuse(reading, where, "not an object");
    r = reading_text(reading, value, where, "name", &container.name);
    if (r < 0)
        return r;
    r = reading_text(reading, value, where, "restartPolicy", &restart);
    if (r < 0)
        return r;
    if (init && strcmp(restart, "Always") == 0)
        container.role = CONTAINER_SIDECAR;
    r = read_privilege(reading, value, where, &container.privilege);
    if (r < 0)
        return r;
    r = read_mounts(reading, value, where, &container);
    if (r < 0)
        return r;
    r = reading_array(reading, value, where, "env", &env);
    if (r < 0)
        return r;
    container.has_env = env != NULL;
    r = read_env(reading, env, &container);
    if (r < 0)
        return r;
    r = read_container_resources(reading, value, where, &container);
    if (r < 0)
        return r;
    *ret_container = container;
    return 0;
}

static int read_list(const struct reading *reading, yyjson_val *list, bool init,
                     struct container *ret_containers)
{
    yyjson_val *value;
    size_t at, max;
    char where[64];
    int r;

    yyjson_arr_foreach(list, at, max, value)
    {
        (void)snprintf(where, sizeof(where), "spec.%s[%zu]", init ? "initContainers" : "containers",
                       at);
        r = read_container(reading, value, where, init, &ret_containers[at]);
        if (r < 0)
            return r;
    }
    return 0;
}

static int read_containers(const struct reading *reading, yyjson_val *spec, struct pod *pod)
{
    yyjson_val *init, *apps;
    struct container *containers;
    int r;

    r = reading_array(reading, spec, "spec", "initContainers", &init);
    if (r < 0)
        return r;
    r = reading_array(reading, spec, "spec", "containers", &apps);
    if (r < 0)
        return r;

    pod->init_count = yyjson_arr_size(init);
    pod->container_count = pod->init_count + yyjson_arr_size(apps);
    if (pod->container_count > POD_MAX_CONTAINERS)
        return reading_refuse(reading, "spec.containers", "too many");
    containers = ARENA_ARRAY(reading->arena, struct container, pod->container_count);
    if (!containers)
        return reading_no_memory(reading);
    pod->containers = containers;

    r = read_list(reading, init, true, containers);
    if (r < 0)
        return r;
    return read_list(reading, apps, false, containers + pod->init_count);
}

static void read_priority(yyjson_val *spec, struct pod *pod)
{
    yyjson_val *value = yyjson_obj_get(spec, "priority");
    int64_t priority = yyjson_get_sint(value);

    pod->has_priority = yyjson_is_int(value) && priority >= INT32_MIN && priority <= INT32_MAX;
    if (pod->has_priority)
        pod->priority = (int32_t)priority;
    pod->never_preempts = yyjson_equals_str(yyjson_obj_get(spec, "preemptionPolicy"), "Never");
}

static int read_spec(const struct reading *reading, yyjson_val *object, struct pod *pod)
{
    const struct {
        const char *key;
        const char **text;
    } texts[] = {
        {"nodeName", &pod->node_name},
        {"schedulerName", &pod->scheduler_name},
        {"runtimeClassName", &pod->runtime_class},
    };
    yyjson_val *spec;
    int r;

    r = reading_object(reading, object, "", "spec", &spec);
    if (r < 0 || !spec)
        return r;
    pod->has_spec = true;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        r = reading_text(reading, spec, "spec", texts[i].key, texts[i].text);
        if (r < 0)
            return r;
    }
    read_priority(spec, pod);
    if (reading->kept->amounts)
        pod->amounts = amounts_of_pod(spec);
    return read_containers(reading, spec, pod);
}

static enum pod_phase phase_of(const char *text)
{
    static const struct {
        const char *text;
        enum pod_phase phase;
    } phases[] = {
        {"Pending", POD_PENDING},
        {"Running", POD_RUNNING},
        {"Succeeded", POD_SUCCEEDED},
        {"Failed", POD_FAILED},
    };

    for (size_t i = 0; i < ARRAY_SIZE(phases); i++) {
        if (strcmp(phases[i].text, text) == 0)
            return phases[i].phase;
    }
    return POD_PHASE_UNKNOWN;
}

static int pod_read_status(const struct reading *reading, yyjson_val *object, struct pod *pod)
{
    yyjson_val *status;
    const char *phase;
    int r;

    r = reading_object(reading, object, "", "status", &status);
    if (r < 0)
        return r;
    r = reading_text(reading, status, "status", "phase", &phase);
    if (r < 0)
        return r;
    pod->phase = phase_of(phase);
    pod->nominated = yyjson_get_len(yyjson_obj_get(status, "nominatedNodeName")) > 0;
    pod->started = yyjson_arr_size(yyjson_obj_get(status, "containerStatuses")) > 0 ||
                   yyjson_arr_size(yyjson_obj_get(status, "initContainerStatuses")) > 0;
    return 0;
}

int pod_read(yyjson_val *object, const struct kept_names *kept, struct arena *arena,
             struct pod *ret_pod, struct error *err)
{
    struct pod pod = {.node_name = "", .scheduler_name = "", .runtime_class = ""};
    const struct reading reading = reading_of(kept, arena, err);
    struct metadata metadata;
    int r;

    if (!yyjson_is_obj(object))
        return error_set(err, -EINVAL, "not an object");
    r = reading_metadata(&reading, object, NULL, &metadata);
    if (r < 0)
        return r;
    pod.namespace = metadata.namespace;
    pod.name = metadata.name;
    pod.uid = metadata.uid;
    pod.resource_version = metadata.resource_version;
    pod.annotations = metadata.annotations;
    pod.labels = metadata.labels;
    pod.has_annotations = metadata.has_annotations;
    pod.deleting = metadata.deleting;

    r = read_spec(&reading, object, &pod);
    if (r < 0)
        return r;
    r = pod_read_status(&reading, object, &pod);
    if (r < 0)
        return r;
    *ret_pod = pod;
    return 0;
}

bool pod_is_over(const struct pod *pod)
{
    return pod->phase == POD_SUCCEEDED || pod->phase == POD_FAILED;
}

const struct resource *resource_find(const struct resource_list *list, const char *name)
{
    for (size_t i = 0; *name && i < list->count; i++) {
        if (strcmp(list->items[i].name, name) == 0)
            return &list->items[i];
    }
    return NULL;
}

const struct resource *container_resource(const struct container *container, const char *name)
{
    const struct resource *limit = resource_find(&container->limits, name);

    return limit ? limit : resource_find(&container->requests, name);
}

struct container_place pod_container_place(const struct pod *pod, size_t container)
{
    if (container < pod->init_count)
        return (struct container_place){"initContainers", container};
    return (struct container_place){"containers", container - pod->init_count};
}

const char *pod_init_roles(const struct pod *pod, struct arena *arena)
{
    char *roles = arena_alloc(arena, pod->init_count + 1);

    for (size_t i = 0; roles && i < pod->init_count; i++)
        roles[i] = container_role_letter(pod->containers[i].role);
    return roles;
}
