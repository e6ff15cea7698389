/* SPDX-License-Identifier: Apache-2.0 */
#include "node/spec.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include "base/cleanup.h"
#include "base/util.h"

/* CDI 0.5 is what containerd 1.7 reads; additionalGids came with 0.7. */
#define CDI_VERSION "0.5.0"
#define CDI_VERSION_GIDS "0.7.0"

enum {
    VARIABLE_MAX = 16 << 10,
};

void spec_edits_deinit(struct spec_edits *edits)
{
    strbuf_deinit(&edits->env);
    strbuf_deinit(&edits->mounts);
    strbuf_deinit(&edits->nodes);
    strbuf_deinit(&edits->hooks);
    strbuf_deinit(&edits->gids);
}

void spec_add_separator(struct strbuf *list)
{
    char last = list->len ? list->text[list->len - 1] : '[';

    if (last != '[' && last != '{')
        strbuf_add(list, ",");
}

void spec_add_env(struct spec_edits *edits, const char *fmt, ...)
{
    char text[VARIABLE_MAX];
    va_list args;
    int len;

    va_start(args, fmt);
    len = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (len < 0 || (size_t)len >= sizeof(text)) {
        edits->env.failed = true;
        return;
    }
    spec_add_separator(&edits->env);
    strbuf_add_json(&edits->env, text);
}

void spec_add_mount(struct spec_edits *edits, const char *host_path, const char *container_path,
                    bool writable)
{
    struct strbuf *list = &edits->mounts;

    spec_add_separator(list);
    strbuf_add(list, "{\"hostPath\":");
    strbuf_add_json(list, host_path);
    strbuf_add(list, ",\"containerPath\":");
    strbuf_add_json(list, container_path);
    strbuf_addf(list, ",\"options\":[\"%s\",\"nosuid\",\"nodev\",\"bind\"]}",
                writable ? "rw" : "ro");
}

void spec_add_node(struct spec_edits *edits, const char *path, const char *host_path)
{
    struct strbuf *list = &edits->nodes;

    spec_add_separator(list);
    strbuf_add(list, "{\"path\":");
    strbuf_add_json(list, path);
    strbuf_add(list, ",\"hostPath\":");
    strbuf_add_json(list, host_path);
    strbuf_add(list, ",\"permissions\":\"rw\"}");
}

static int compare_ids(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* FNV-1a over the sorted ids: the same whatever their order, from one start to the next. */
void spec_device_name(const char *const *ids, size_t count, char ret_name[SPEC_NAME_SIZE])
{
    const char **sorted = calloc(count + 1, sizeof(*sorted));
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    if (sorted) {
        memcpy(sorted, ids, count * sizeof(*sorted));
        qsort(sorted, count, sizeof(*sorted), compare_ids);
    }
    for (size_t i = 0; sorted && i < count; i++) {
        /* The terminator, too, so that "a","b" is not "ab". */
        for (const char *p = sorted[i];; p++) {
            hash = (hash ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
            if (!*p)
                break;
        }
    }
    free(sorted);
    (void)snprintf(ret_name, SPEC_NAME_SIZE, "a%016llx", (unsigned long long)hash);
}

static void add_owner(const char *pod_uid, const char *container, struct strbuf *spec)
{
    struct spec_edits own = SPEC_EDITS_INIT;

    spec_add_env(&own, SPEC_ENV_POD "%s", pod_uid);
    spec_add_env(&own, SPEC_ENV_CONTAINER "%s", container);
    spec->failed |= own.env.failed;
    strbuf_add(spec, strbuf_text(&own.env));
    spec_edits_deinit(&own);
}

static void add_list(struct strbuf *spec, const char *key, const struct strbuf *list)
{
    spec->failed |= list->failed;
    if (list->len)
        strbuf_addf(spec, ",\"%s\":[%s]", key, list->text);
}

int spec_format(const char *pod_uid, const char *container, const char *name,
                const struct spec_edits *edits, struct strbuf *spec)
{
    strbuf_addf(spec, "{\"cdiVersion\":\"%s\",\"kind\":\"" SPEC_KIND "\",\"devices\":[{\"name\":",
                edits->gids.len ? CDI_VERSION_GIDS : CDI_VERSION);
    strbuf_add_json(spec, name);
    strbuf_add(spec, ",\"containerEdits\":{\"env\":[");
    add_owner(pod_uid, container, spec);
    spec->failed |= edits->env.failed;
    if (edits->env.len)
        strbuf_addf(spec, ",%s", edits->env.text);
    strbuf_add(spec, "]");
    add_list(spec, "mounts", &edits->mounts);
    add_list(spec, "deviceNodes", &edits->nodes);
    add_list(spec, "hooks", &edits->hooks);
    add_list(spec, "additionalGids", &edits->gids);
    strbuf_add(spec, "}}]}\n");
    return spec->failed ? -ENOMEM : 0;
}

static int keep_text(char *to, size_t size, const char *text)
{
    if (!text || !*text || strlen(text) >= size || strchr(text, '/'))
        return -EINVAL;
    copy_text(to, size, text);
    return 0;
}

static const char *find_env(yyjson_val *env, const char *prefix)
{
    size_t index, max;
    yyjson_val *item;

    yyjson_arr_foreach(env, index, max, item)
    {
        const char *text = yyjson_get_str(item);

        if (text && strncmp(text, prefix, strlen(prefix)) == 0)
            return text + strlen(prefix);
    }
    return NULL;
}

int spec_read(const char *text, size_t len, struct spec_owner *ret_owner)
{
    yyjson_doc *doc = yyjson_read(text, len, 0);
    yyjson_val *root = yyjson_doc_get_root(doc);
    const char *kind = yyjson_get_str(yyjson_obj_get(root, "kind"));
    yyjson_val *device = yyjson_arr_get_first(yyjson_obj_get(root, "devices"));
    yyjson_val *env = yyjson_obj_get(yyjson_obj_get(device, "containerEdits"), "env");
    struct spec_owner owner;
    int r = -EINVAL;

    if (kind && strcmp(kind, SPEC_KIND) == 0)
        r = keep_text(owner.name, sizeof(owner.name),
                      yyjson_get_str(yyjson_obj_get(device, "name")));
    if (r == 0)
        r = keep_text(owner.pod_uid, sizeof(owner.pod_uid), find_env(env, SPEC_ENV_POD));
    if (r == 0)
        r = keep_text(owner.container, sizeof(owner.container), find_env(env, SPEC_ENV_CONTAINER));
    if (r == 0)
        *ret_owner = owner;
    yyjson_doc_free(doc);
    return r;
}
