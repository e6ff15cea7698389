/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes memory and cores of the node's cards as the Node's capacity, where the option asks for it:
 * autoscalers and quotas count by it. kubelet copies it into allocatable, and from then on refuses
 * pods by it. So the amounts are those of all cards, healthy or not, and are written again whenever
 * kubelet was started anew, which may have set them to 0.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/util.h"
#include "plugin/plugin.h"

enum {
    PATCH_MAX = 4096,
};

static void capacity_on_patched(void *data, const struct kube_answer *answer)
{
    struct plugin *plugin = data;

    plugin->capacity = NULL;
    if (!kube_answer_ok(answer))
        log_warn("cannot write the node's capacity: %s", answer->why);
}

static void add_amount(struct strbuf *patch, const char *name, uint64_t amount)
{
    if (!*name)
        return;
    if (patch->text[patch->len - 1] != '{')
        strbuf_add(patch, ",");
    strbuf_add_json(patch, name);
    strbuf_addf(patch, ":\"%llu\"", (unsigned long long)amount);
}

static int capacity_patch(struct plugin *plugin)
{
    CLEANUP(strbuf_deinit) struct strbuf patch = STRBUF_INIT(PATCH_MAX);
    char path[1200], name[sizeof(plugin->options->node_name) * 3];
    struct kube_call call = {
        .method = KUBE_PATCH, .path = path, .content_type = KUBE_STRATEGIC_PATCH};
    struct node_amount amounts[NODE_AMOUNTS_MAX];
    size_t count = plugin->vendor->amounts(plugin->node, &plugin->cards, amounts);

    strbuf_add(&patch, "{\"status\":{\"capacity\":{");
    for (size_t i = 0; i < count && !patch.failed; i++)
        add_amount(&patch, amounts[i].name, amounts[i].amount);
    strbuf_add(&patch, "}}}");
    if (patch.failed || !kube_escape(plugin->options->node_name, name, sizeof(name)))
        return -ENOMEM;
    (void)snprintf(path, sizeof(path), "/api/v1/nodes/%s/status", name);
    call.body = patch.text;
    call.body_len = patch.len;
    return kube_request(plugin->kube, &call, capacity_on_patched, plugin, &plugin->capacity);
}

void plugin_capacity_write(struct plugin *plugin)
{
    int r;

    if (!plugin->options->node_capacity || !plugin->vendor->amounts || plugin->ending)
        return;
    kube_request_cancel(plugin->capacity);
    plugin->capacity = NULL;
    r = capacity_patch(plugin);
    if (r < 0)
        log_error("cannot write the node's capacity: %s", strerror(-r));
}

void plugin_capacity_stop(struct plugin *plugin)
{
    kube_request_cancel(plugin->capacity);
    plugin->capacity = NULL;
}
