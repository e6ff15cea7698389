/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "plugin/plugin.h"

enum {
    ARENA_MAX = 1 << 20,
    PATCH_MAX = 1 << 20,
};

#define BEHIND_NS NS_PER_S

static void register_on_patched(void *data, const struct kube_answer *answer)
{
    struct plugin *plugin = data;
    struct registration *registration = &plugin->registration;

    registration->request = NULL;
    if (!kube_answer_ok(answer)) {
        log_warn("cannot write the node's devices: %s", answer->why);
        return; /* tried again at the next check of the cards */
    }
    registration->sent_ns = clock_now_ns();
    log_info("node %s: its %zu cards are registered", plugin->options->node_name,
             plugin->cards.count);
}

static bool is_text(const char *left, const char *right)
{
    return left && right ? strcmp(left, right) == 0 : left == right;
}

static bool is_written(const struct registration *registration)
{
    for (size_t i = 0; i < registration->count; i++) {
        if (!is_text(registration->notes[i].known, registration->notes[i].wanted))
            return false;
    }
    return true;
}

/* Others write to the Node, too: the watch may show it as it was before our own write. */
static bool is_behind(const struct registration *registration)
{
    for (size_t i = 0; i < registration->count; i++) {
        if (!is_text(registration->notes[i].sent, registration->notes[i].wanted))
            return false;
    }
    return registration->sent_ns && clock_now_ns() - registration->sent_ns < BEHIND_NS;
}

static void set_text(char **text, const char *value)
{
    free(*text);
    *text = value ? strdup(value) : NULL;
}

/* Annotations that are not there and not wanted are not written. */
static void write_patch(struct registration *registration, struct strbuf *patch)
{
    const char *separator = "";

    strbuf_add(patch, "{\"metadata\":{\"annotations\":{");
    for (size_t i = 0; i < registration->count; i++) {
        struct registered_note *note = &registration->notes[i];

        set_text(&note->sent, note->wanted);
        if (!note->known && !note->wanted)
            continue;
        strbuf_add(patch, separator);
        strbuf_add_json(patch, note->key);
        strbuf_add(patch, ":");
        if (note->wanted)
            strbuf_add_json(patch, note->wanted);
        else
            strbuf_add(patch, "null");
        separator = ",";
    }
    strbuf_add(patch, "}}}");
}

static int register_patch(struct plugin *plugin)
{
    CLEANUP(strbuf_deinit) struct strbuf patch = STRBUF_INIT(PATCH_MAX);
    struct registration *registration = &plugin->registration;
    char path[1200], name[sizeof(plugin->options->node_name) * 3];
    struct kube_call call = {.method = KUBE_PATCH, .path = path, .content_type = KUBE_MERGE_PATCH};

    write_patch(registration, &patch);
    if (patch.failed || !kube_escape(plugin->options->node_name, name, sizeof(name)))
        return -ENOMEM;
    (void)snprintf(path, sizeof(path), "/api/v1/nodes/%s", name);
    call.body = patch.text;
    call.body_len = patch.len;
    return kube_request(plugin->kube, &call, register_on_patched, plugin, &registration->request);
}

static int update_wanted(struct plugin *plugin)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_MAX);
    struct registration *registration = &plugin->registration;
    struct node_note notes[NODE_NOTES_MAX];
    int count;

    count = arena ? plugin->vendor->annotate(plugin->node, &plugin->cards, arena, notes) : -ENOMEM;
    if (count < 0)
        return count;
    registration->count = (size_t)count;
    for (size_t i = 0; i < registration->count; i++) {
        struct registered_note *note = &registration->notes[i];

        note->key = notes[i].key;
        set_text(&note->wanted, notes[i].value);
        if (notes[i].value && !note->wanted)
            return -ENOMEM;
    }
    return 0;
}

void plugin_register(struct plugin *plugin)
{
    struct registration *registration = &plugin->registration;
    int r;

    r = update_wanted(plugin);
    /* Which way the node goes is a part of what is written. */
    if (r == 0 && (!plugin->has_cards || !registration->seen || registration->request ||
                   plugin->way == WAY_UNKNOWN))
        return;
    /* What was just written is checked again with the cards. */
    if (r == 0 && (is_written(registration) || is_behind(registration)))
        return;
    if (r == 0)
        r = register_patch(plugin);
    if (r < 0)
        log_error("cannot write the node's devices: %s", strerror(-r));
}

void plugin_register_seen(struct plugin *plugin, yyjson_val *annotations)
{
    struct registration *registration = &plugin->registration;

    if (update_wanted(plugin) < 0)
        return; /* the Node is read again when it changes */
    for (size_t i = 0; i < registration->count; i++) {
        struct registered_note *note = &registration->notes[i];

        set_text(&note->known, yyjson_get_str(yyjson_obj_get(annotations, note->key)));
    }
    registration->seen = true;
    plugin_register(plugin);
}

void plugin_register_stop(struct plugin *plugin)
{
    struct registration *registration = &plugin->registration;

    kube_request_cancel(registration->request);
    for (size_t i = 0; i < registration->count; i++) {
        free(registration->notes[i].known);
        free(registration->notes[i].wanted);
        free(registration->notes[i].sent);
    }
    *registration = (struct registration){.count = 0};
}
