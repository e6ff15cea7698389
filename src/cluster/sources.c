/* SPDX-License-Identifier: Apache-2.0 */

/* What of a node its devices are made of, as text. */

#include "cluster/state.h"

enum {
    TEXT_MAX = 8 << 20, /* Kubernetes bounds all annotations of an object to 256 KiB */
    SOURCES_MAX = 256,  /* of a kind, that the node has */
};

enum source_kind {
    SOURCE_ANNOTATION = 0,
    SOURCE_LABEL,
    SOURCE_CAPACITY,
    SOURCE_ALLOCATABLE,
    SOURCE_KINDS,
};

struct source_list {
    size_t count;
    struct text_pair items[SOURCES_MAX];
};

struct sources {
    struct source_list *lists; /* by kind */
    const struct node *node;
    bool full;
};

static bool has_key(const struct source_list *list, const char *key)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i].key, key) == 0)
            return true;
    }
    return false;
}

/* Two vendors may look at the same. */
static void add_source(struct sources *sources, enum source_kind kind, const char *key,
                       const char *value)
{
    struct source_list *list = &sources->lists[kind];

    if (!value || has_key(list, key))
        return;
    if (list->count == SOURCES_MAX)
        sources->full = true;
    else
        list->items[list->count++] = (struct text_pair){key, value};
}

static void add_amount(struct sources *sources, const char *name)
{
    const struct resource *found = resource_find(&sources->node->allocatable, name);
    const struct resource *all = resource_find(&sources->node->capacity, name);

    add_source(sources, SOURCE_ALLOCATABLE, name, found ? found->text : NULL);
    add_source(sources, SOURCE_CAPACITY, name, all ? all->text : NULL);
}

static void add_vendor(struct sources *sources, const struct vendor_instance *instance)
{
    const struct text_pairs *annotations = &sources->node->annotations;
    const struct vendor *vendor = instance->vendor;

    if (instance->register_key)
        add_source(sources, SOURCE_ANNOTATION, instance->register_key,
                   text_pairs_get(annotations, instance->register_key));
    for (size_t i = 0; vendor->node_annotations && vendor->node_annotations[i]; i++)
        add_source(sources, SOURCE_ANNOTATION, vendor->node_annotations[i],
                   text_pairs_get(annotations, vendor->node_annotations[i]));
    for (size_t i = 0; vendor->node_labels && vendor->node_labels[i]; i++)
        add_source(sources, SOURCE_LABEL, vendor->node_labels[i],
                   text_pairs_get(&sources->node->labels, vendor->node_labels[i]));
    for (size_t i = 0; vendor->node_resources && vendor->node_resources[i]; i++)
        add_amount(sources, vendor->node_resources[i]);
    for (size_t i = 0; vendor->counts_resources && i < VENDOR_MAX_RESOURCES; i++) {
        if (instance->resources[i])
            add_amount(sources, instance->resources[i]);
    }
    if (instance->count_resource && *instance->count_resource)
        add_amount(sources, instance->count_resource);
}

static void write_list(struct strbuf *text, const struct source_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        strbuf_add(text, i ? "," : "");
        strbuf_add_json(text, list->items[i].key);
        strbuf_add(text, ":");
        strbuf_add_json(text, list->items[i].value);
    }
}

static void write_sources(struct strbuf *text, const struct sources *sources)
{
    static const char *const before[SOURCE_KINDS] = {
        "\"annotations\":{",
        "},\"labels\":{",
        "}},\"status\":{\"capacity\":{",
        "},\"allocatable\":{",
    };

    for (size_t kind = 0; kind < SOURCE_KINDS; kind++) {
        strbuf_add(text, before[kind]);
        write_list(text, &sources->lists[kind]);
    }
}

static bool start(struct sources *sources, const struct node *node, struct arena *arena)
{
    *sources = (struct sources){.node = node,
                                .lists = ARENA_ARRAY(arena, struct source_list, SOURCE_KINDS)};
    for (size_t kind = 0; sources->lists && kind < SOURCE_KINDS; kind++)
        sources->lists[kind].count = 0;
    return sources->lists != NULL;
}

const char *sources_text(const struct cluster *cluster, const struct cluster_node *known,
                         const struct node *node)
{
    const struct vendor_set *set = cluster->options.vendors;
    struct strbuf text = STRBUF_IN(cluster->scratch, TEXT_MAX);
    struct sources given, hidden;

    if (!start(&given, node, cluster->scratch) || !start(&hidden, node, cluster->scratch))
        return NULL;
    for (size_t i = 0; i < set->count; i++) {
        const struct vendor_instance *instance = &set->instances[i];
        const struct vendor_lock *lock = vendor_prepare_bind(instance, node);
        const bool alive = vendor_is_alive(instance, node) && !handshakes_gone(known, instance);
        const bool waits = lock && lock->key && !cluster->may_lock;

        strbuf_addf(&text, "%d%d%d", alive, waits, lock != NULL);
        add_vendor(alive && !waits ? &given : &hidden, instance);
    }
    write_sources(&text, &hidden);
    strbuf_add(&text, "\n");
    write_sources(&text, &given);
    return text.failed || given.full || hidden.full ? NULL : strbuf_text(&text);
}

/* A member of a JSON object, with the comma behind it or before it. In texts of others quotes are
 * escaped, so that they look like none. */
static void drop_member(char *text, const char *key)
{
    const size_t len = strlen(key);
    char *at = text, *end;

    while ((at = strstr(at, key)) && (at[-1] != '"' || strncmp(at + len, "\":\"", 3) != 0))
        at += len;
    if (!at)
        return;
    at--;
    for (end = at + len + 4; *end != '"'; end++)
        end += *end == '\\';
    end++;
    if (*end == ',')
        end++;
    else if (at[-1] == ',')
        at--;
    memmove(at, end, strlen(end) + 1);
}

void sources_drop(char *text, const char *register_key)
{
    text[0] = '-';
    drop_member(strchr(text, '\n'), register_key);
}

const char *sources_shown(const char *text)
{
    return strchr(text, '\n') + 1;
}
