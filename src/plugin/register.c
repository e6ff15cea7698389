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

static int register_patch(struct plugin *plugin)
{
    CLEANUP(strbuf_deinit) struct strbuf patch = STRBUF_INIT(PATCH_MAX);
    struct registration *registration = &plugin->registration;
    char path[1200], name[sizeof(plugin->options->node_name) * 3];
    struct kube_call call = {.method = KUBE_PATCH, .path = path, .content_type = KUBE_MERGE_PATCH};

    strbuf_add(&patch, "{\"metadata\":{\"annotations\":{");
    strbuf_add_json(&patch, plugin->vendor->registered_key);
    strbuf_add(&patch, ":");
    strbuf_add_json(&patch, registration->wanted);
    strbuf_add(&patch, "}}}");
    if (patch.failed || !kube_escape(plugin->options->node_name, name, sizeof(name)))
        return -ENOMEM;
    (void)snprintf(path, sizeof(path), "/api/v1/nodes/%s", name);
    call.body = patch.text;
    call.body_len = patch.len;
    free(registration->sent);
    registration->sent = strdup(registration->wanted);
    return kube_request(plugin->kube, &call, register_on_patched, plugin, &registration->request);
}

/* Others write to the Node, too: the watch may show it as it was before our own write. */
static bool is_behind(const struct registration *registration)
{
    return registration->sent && strcmp(registration->sent, registration->wanted) == 0 &&
           clock_now_ns() - registration->sent_ns < BEHIND_NS;
}

static int update_wanted(struct plugin *plugin)
{
    CLEANUP(arena_freep) struct arena *arena = arena_new(ARENA_MAX);
    const char *text = arena ? plugin->vendor->encode(plugin->node, &plugin->cards, arena) : NULL;
    char *wanted = text ? strdup(text) : NULL;

    if (!wanted)
        return -ENOMEM;
    free(plugin->registration.wanted);
    plugin->registration.wanted = wanted;
    return 0;
}

void plugin_register(struct plugin *plugin)
{
    struct registration *registration = &plugin->registration;
    int r;

    if (!plugin->has_cards)
        return;
    r = update_wanted(plugin);
    if (r == 0 && (!registration->seen || registration->request))
        return;
    if (r == 0 && registration->known && strcmp(registration->known, registration->wanted) == 0)
        return;
    if (r == 0 && is_behind(registration))
        return; /* checked again with the cards */
    if (r == 0)
        r = register_patch(plugin);
    if (r < 0)
        log_error("cannot write the node's devices: %s", strerror(-r));
}

void plugin_register_seen(struct plugin *plugin, const char *annotation)
{
    struct registration *registration = &plugin->registration;

    free(registration->known);
    registration->known = annotation ? strdup(annotation) : NULL;
    registration->seen = true;
    plugin_register(plugin);
}

void plugin_register_stop(struct plugin *plugin)
{
    kube_request_cancel(plugin->registration.request);
    free(plugin->registration.known);
    free(plugin->registration.wanted);
    free(plugin->registration.sent);
    plugin->registration = (struct registration){.known = NULL};
}
