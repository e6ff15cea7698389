/* SPDX-License-Identifier: Apache-2.0 */
#include "admit/patch.h"

#include <stdio.h>

#include "base/strbuf.h"

enum {
    PATCH_MAX = 4 << 20,
};

/* What a container has by now, of its own or by the patch. */
struct present {
    bool resources, limits, requests, env;
};

struct patching {
    const struct pod *pod;
    struct arena *arena;
    struct present *present;
    bool annotations; /* what the pod has by now */
    struct strbuf buf;
    unsigned count;
};

static void begin_step(struct patching *patching, const char *op, const char *path)
{
    strbuf_add(&patching->buf, patching->count++ ? "," : "");
    strbuf_addf(&patching->buf, "{\"op\":\"%s\",\"path\":", op);
    strbuf_add_json(&patching->buf, path);
    strbuf_add(&patching->buf, ",\"value\":");
}

static void end_step(struct patching *patching)
{
    strbuf_add(&patching->buf, "}");
}

static void add_text_step(struct patching *patching, const char *op, const char *path,
                          const char *value)
{
    begin_step(patching, op, path);
    strbuf_add_json(&patching->buf, value);
    end_step(patching);
}

/* A member's name within a JSON pointer. */
static const char *escape_pointer(struct patching *patching, const char *name)
{
    struct strbuf buf = STRBUF_IN(patching->arena, PATCH_MAX);

    for (; *name; name++) {
        if (*name == '~' || *name == '/')
            strbuf_add(&buf, *name == '~' ? "~0" : "~1");
        else
            strbuf_addf(&buf, "%c", *name);
    }
    patching->buf.failed |= buf.failed;
    return strbuf_text(&buf);
}

/* "" when the arena is full, and the patch has failed. */
static const char *container_pointer(struct patching *patching, size_t container, const char *rest,
                                     const char *name)
{
    const struct container_place place = pod_container_place(patching->pod, container);
    const char *pointer;

    pointer =
        arena_printf(patching->arena, "/spec/%s/%zu/%s%s", place.list, place.position, rest, name);
    patching->buf.failed |= !pointer;
    return pointer ? pointer : "";
}

static void add_member(struct patching *patching, const struct mutation *mutation)
{
    strbuf_add(&patching->buf, "{");
    strbuf_add_json(&patching->buf, mutation->name);
    strbuf_add(&patching->buf, ":");
    strbuf_add_json(&patching->buf, mutation->value);
    strbuf_add(&patching->buf, "}");
}

/* list is "limits" or "requests". */
static void add_amount(struct patching *patching, const struct mutation *mutation, const char *list,
                       const struct resource_list *amounts, bool *present_list)
{
    struct present *present = &patching->present[mutation->container];
    const char *path;

    if (*present_list) {
        path = arena_printf(patching->arena, "resources/%s/", list);
        path = container_pointer(patching, mutation->container, path ? path : "",
                                 escape_pointer(patching, mutation->name));
        add_text_step(patching, resource_find(amounts, mutation->name) ? "replace" : "add", path,
                      mutation->value);
        return;
    }
    path = container_pointer(patching, mutation->container, "resources",
                             present->resources ? "/" : "");
    if (present->resources)
        path = arena_printf(patching->arena, "%s%s", path, list);
    begin_step(patching, "add", path ? path : "");
    if (!present->resources)
        strbuf_addf(&patching->buf, "{\"%s\":", list);
    add_member(patching, mutation);
    if (!present->resources)
        strbuf_add(&patching->buf, "}");
    end_step(patching);
    present->resources = *present_list = true;
}

static void add_env(struct patching *patching, const struct mutation *mutation)
{
    struct present *present = &patching->present[mutation->container];

    begin_step(patching, "add",
               container_pointer(patching, mutation->container, "env", present->env ? "/-" : ""));
    strbuf_add(&patching->buf, present->env ? "" : "[");
    strbuf_add(&patching->buf, "{\"name\":");
    strbuf_add_json(&patching->buf, mutation->name);
    strbuf_add(&patching->buf, ",\"value\":");
    strbuf_add_json(&patching->buf, mutation->value);
    strbuf_add(&patching->buf, present->env ? "}" : "}]");
    end_step(patching);
    present->env = true;
}

static void add_annotation(struct patching *patching, const struct mutation *mutation)
{
    const char *path;

    if (patching->annotations) {
        path = arena_printf(patching->arena, "/metadata/annotations/%s",
                            escape_pointer(patching, mutation->name));
        patching->buf.failed |= !path;
        add_text_step(patching, "add", path ? path : "", mutation->value);
        return;
    }
    begin_step(patching, "add", "/metadata/annotations");
    add_member(patching, mutation);
    end_step(patching);
    patching->annotations = true;
}

static void remove_path(struct patching *patching, const char *path)
{
    strbuf_add(&patching->buf, patching->count++ ? "," : "");
    strbuf_add(&patching->buf, "{\"op\":\"remove\",\"path\":");
    strbuf_add_json(&patching->buf, path);
    strbuf_add(&patching->buf, "}");
}

static void drop_env(struct patching *patching, const struct mutation *mutation)
{
    char position[24];

    (void)snprintf(position, sizeof(position), "%zu", mutation->position);
    remove_path(patching, container_pointer(patching, mutation->container, "env/", position));
}

static void drop_pair(struct patching *patching, const char *where, const char *name)
{
    const char *path =
        arena_printf(patching->arena, "/metadata/%s/%s", where, escape_pointer(patching, name));

    patching->buf.failed |= !path;
    remove_path(patching, path ? path : "");
}

static void patch_add(struct patching *patching, const struct mutation *mutation)
{
    const struct container *container = &patching->pod->containers[mutation->container];

    switch (mutation->kind) {
    case MUTATION_LIMIT:
        add_amount(patching, mutation, "limits", &container->limits,
                   &patching->present[mutation->container].limits);
        return;
    case MUTATION_REQUEST:
        add_amount(patching, mutation, "requests", &container->requests,
                   &patching->present[mutation->container].requests);
        return;
    case MUTATION_ENV:
        add_env(patching, mutation);
        return;
    case MUTATION_DROP_ENV:
        drop_env(patching, mutation);
        return;
    case MUTATION_ANNOTATION:
        add_annotation(patching, mutation);
        return;
    case MUTATION_DROP_ANNOTATION:
        drop_pair(patching, "annotations", mutation->name);
        return;
    case MUTATION_DROP_LABEL:
        drop_pair(patching, "labels", mutation->name);
        return;
    case MUTATION_RUNTIME_CLASS:
        add_text_step(patching, "add", "/spec/runtimeClassName", mutation->value);
        return;
    case MUTATION_SCHEDULER:
        add_text_step(patching, *patching->pod->scheduler_name ? "replace" : "add",
                      "/spec/schedulerName", mutation->value);
        return;
    }
}

const char *patch_format(const struct pod *pod, const struct mutations *mutations,
                         struct arena *arena)
{
    struct patching patching = {
        .pod = pod,
        .arena = arena,
        .annotations = pod->has_annotations,
        .buf = STRBUF_IN(arena, PATCH_MAX),
    };

    patching.present = ARENA_ARRAY(arena, struct present, pod->container_count);
    if (!patching.present)
        return NULL;
    for (size_t i = 0; i < pod->container_count; i++)
        patching.present[i] = (struct present){
            .resources = pod->containers[i].has_resources,
            .limits = pod->containers[i].has_limits,
            .requests = pod->containers[i].has_requests,
            .env = pod->containers[i].has_env,
        };

    strbuf_add(&patching.buf, "[");
    for (size_t i = 0; i < mutations->count; i++)
        patch_add(&patching, &mutations->items[i]);
    strbuf_add(&patching.buf, "]");
    return patching.buf.failed ? NULL : strbuf_text(&patching.buf);
}
