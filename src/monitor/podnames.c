/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/podnames.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/util.h"

struct entry {
    struct pod_name name; /* first */
    char *uid;
    unsigned list;
    UT_hash_handle hh; /* by uid */
};

enum {
    MIGS_MAX = 64, /* of a pod */
};

struct pod_names {
    struct entry *entries;
    unsigned list;
};

struct pod_names *pod_names_new(void)
{
    return calloc(1, sizeof(struct pod_names));
}

static void entry_free(struct entry *entry)
{
    free((char *)entry->name.namespace);
    free((char *)entry->name.name);
    free((struct pod_mig *)entry->name.migs);
    free(entry->uid);
    free(entry);
}

static void entry_remove(struct pod_names *names, struct entry *entry)
{
    HASH_DEL(names->entries, entry);
    entry_free(entry);
}

void pod_names_free(struct pod_names *names)
{
    struct entry *entry, *next;

    if (!names)
        return;
    HASH_ITER(hh, names->entries, entry, next)
    {
        entry_remove(names, entry);
    }
    free(names);
}

void pod_names_begin(struct pod_names *names)
{
    names->list++;
}

void pod_names_complete(struct pod_names *names)
{
    struct entry *entry, *next;

    HASH_ITER(hh, names->entries, entry, next)
    {
        if (entry->list != names->list)
            entry_remove(names, entry);
    }
}

static struct entry *podname_find(const struct pod_names *names, const char *uid)
{
    struct entry *entry;

    HASH_FIND_STR(names->entries, uid, entry);
    return entry;
}

static const char *text_of(yyjson_val *object, const char *key)
{
    return yyjson_get_str(yyjson_obj_get(yyjson_obj_get(object, "metadata"), key));
}

static struct entry *entry_new(const char *uid, const char *namespace, const char *name)
{
    struct entry *entry = calloc(1, sizeof(*entry));

    if (!entry)
        return NULL;
    entry->uid = strdup(uid);
    entry->name.namespace = strdup(namespace);
    entry->name.name = strdup(name);
    if (entry->uid && entry->name.namespace && entry->name.name)
        return entry;
    entry_free(entry);
    return NULL;
}

static const char *name_in(yyjson_val *list, size_t index)
{
    const char *name = yyjson_get_str(yyjson_obj_get(yyjson_arr_get(list, index), "name"));

    return name ? name : "";
}

/* Init containers come first in annotations of a pod's devices. */
static const char *container_of(yyjson_val *object, size_t index)
{
    yyjson_val *spec = yyjson_obj_get(object, "spec");
    yyjson_val *init = yyjson_obj_get(spec, "initContainers");
    size_t first = yyjson_arr_size(init);

    return index < first ? name_in(init, index)
                         : name_in(yyjson_obj_get(spec, "containers"), index - first);
}

/* The instances that were made; an entry without one is still to be made. An annotation that makes
 * no sense is none, and costs nobody else. */
static void put_migs(struct entry *entry, yyjson_val *object)
{
    yyjson_val *metadata = yyjson_obj_get(object, "metadata");
    const char *text = yyjson_get_str(
        yyjson_obj_get(yyjson_obj_get(metadata, "annotations"), MIG_ALLOCATIONS_KEY));
    struct mig_allocation *migs = text ? calloc(MIGS_MAX, sizeof(*migs)) : NULL;
    int count = migs ? mig_allocations_decode(text, strlen(text), migs, MIGS_MAX) : 0;
    struct pod_mig *made = count > 0 ? calloc((size_t)count, sizeof(*made)) : NULL;

    free((struct pod_mig *)entry->name.migs);
    entry->name.migs = made;
    entry->name.mig_count = 0;
    for (int i = 0; made && i < count; i++) {
        struct pod_mig *mig = &made[entry->name.mig_count];

        if (!migs[i].made)
            continue;
        mig->mig = migs[i];
        COPY_TEXT(mig->container, container_of(object, migs[i].container));
        entry->name.mig_count++;
    }
    free(migs);
}

void pod_names_put(struct pod_names *names, yyjson_val *object)
{
    const char *uid = text_of(object, "uid");
    const char *namespace = text_of(object, "namespace");
    const char *name = text_of(object, "name");
    struct entry *entry = uid ? podname_find(names, uid) : NULL;

    if (!uid || !namespace || !name)
        return;
    if (!entry) {
        entry = entry_new(uid, namespace, name);
        if (!entry) {
            log_error("no memory for the name of pod %s/%s", namespace, name);
            return;
        }
        HASH_ADD_KEYPTR(hh, names->entries, entry->uid, strlen(entry->uid), entry);
    }
    entry->list = names->list;
    put_migs(entry, object);
}

void pod_names_remove(struct pod_names *names, yyjson_val *object)
{
    const char *uid = text_of(object, "uid");
    struct entry *entry = uid ? podname_find(names, uid) : NULL;

    if (entry)
        entry_remove(names, entry);
}

const struct pod_name *pod_names_find(const struct pod_names *names, const char *uid)
{
    const struct entry *entry = podname_find(names, uid);

    return entry ? &entry->name : NULL;
}

void pod_names_each(const struct pod_names *names,
                    void (*fn)(void *data, const struct pod_name *pod), void *data)
{
    for (const struct entry *entry = names->entries; entry; entry = entry->hh.next)
        fn(data, &entry->name);
}
