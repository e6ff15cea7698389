/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The Node's condition that says whether containers get the driver, and else what a person has to
 * do. Written, and logged, when it changes; written, too, when the Node has another one.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "plugin/plugin.h"

enum {
    PATCH_MAX = 16 << 10,
};

static void condition_set(struct node_condition *condition, bool ready, const char *reason,
                          const char *message)
{
    condition->ready = ready;
    COPY_TEXT(condition->reason, reason);
    COPY_TEXT(condition->message, message);
}

static void find_condition(const struct plugin *plugin, struct node_condition *condition)
{
    const struct gate *gate = &plugin->gate;

    if (plugin->has_cards && gate->outcome == FITNESS_NO_CDI && plugin->way == WAY_CLOSED)
        condition_set(condition, false, "RuntimeWithoutCDI", gate->why.text);
    else if (plugin->has_cards && gate->outcome == FITNESS_OLD_KUBELET && plugin->way == WAY_CLOSED)
        condition_set(condition, false, "KubeletTooOld", gate->why.text);
    else
        plugin->vendor->describe(plugin->node, plugin->has_cards ? NULL : plugin->why_none.text,
                                 gate->fitness.runtime.default_handler, condition);
}

static bool is_same(const struct node_condition *left, const struct node_condition *right)
{
    return left->ready == right->ready && strcmp(left->reason, right->reason) == 0 &&
           strcmp(left->message, right->message) == 0;
}

static void condition_on_patched(void *data, const struct kube_answer *answer)
{
    struct plugin *plugin = data;

    plugin->conditions.request = NULL;
    if (kube_answer_ok(answer))
        plugin->conditions.written = plugin->conditions.sent;
    else
        log_warn("cannot write the node's condition " CONDITION_TYPE ": %s", answer->why);
}

static int condition_patch(struct plugin *plugin)
{
    CLEANUP(strbuf_deinit) struct strbuf patch = STRBUF_INIT(PATCH_MAX);
    const struct node_condition *condition = &plugin->conditions.sent;
    char path[1200], name[sizeof(plugin->options->node_name) * 3], now[CLOCK_UTC_SIZE];
    struct kube_call call = {
        .method = KUBE_PATCH, .path = path, .content_type = KUBE_STRATEGIC_PATCH};

    (void)clock_format_utc(time(NULL), now);
    strbuf_addf(&patch,
                "{\"status\":{\"conditions\":[{\"type\":\"" CONDITION_TYPE
                "\",\"status\":\"%s\",\"reason\":\"%s\",\"message\":",
                condition->ready ? "True" : "False", condition->reason);
    strbuf_add_json(&patch, condition->message);
    strbuf_addf(&patch, ",\"lastHeartbeatTime\":\"%s\"", now);
    if (plugin->conditions.written.ready != condition->ready ||
        !plugin->conditions.written.reason[0])
        strbuf_addf(&patch, ",\"lastTransitionTime\":\"%s\"", now);
    strbuf_add(&patch, "}]}}");
    if (patch.failed || !kube_escape(plugin->options->node_name, name, sizeof(name)))
        return -ENOMEM;
    (void)snprintf(path, sizeof(path), "/api/v1/nodes/%s/status", name);
    call.body = patch.text;
    call.body_len = patch.len;
    return kube_request(plugin->kube, &call, condition_on_patched, plugin,
                        &plugin->conditions.request);
}

void plugin_condition_check(struct plugin *plugin)
{
    struct conditions *conditions = &plugin->conditions;
    struct node_condition now = {.ready = false};
    int r;

    find_condition(plugin, &now);
    if (!is_same(&now, &conditions->said)) {
        if (now.ready)
            log_info("%s", now.message);
        else
            log_warn("%s", now.message);
        conditions->said = now;
    }
    if (!conditions->seen || conditions->request || is_same(&now, &conditions->written))
        return;
    conditions->sent = now;
    r = condition_patch(plugin);
    if (r < 0)
        log_error("cannot write the node's condition: %s", strerror(-r));
}

void plugin_condition_seen(struct plugin *plugin, yyjson_val *status)
{
    struct node_condition *written = &plugin->conditions.written;
    size_t index, max;
    yyjson_val *item;

    plugin->conditions.seen = true;
    *written = (struct node_condition){.ready = false};
    yyjson_arr_foreach(yyjson_obj_get(status, "conditions"), index, max, item)
    {
        const char *type = yyjson_get_str(yyjson_obj_get(item, "type"));
        const char *state = yyjson_get_str(yyjson_obj_get(item, "status"));
        const char *reason = yyjson_get_str(yyjson_obj_get(item, "reason"));
        const char *message = yyjson_get_str(yyjson_obj_get(item, "message"));

        if (type && state && reason && message && strcmp(type, CONDITION_TYPE) == 0)
            condition_set(written, strcmp(state, "True") == 0, reason, message);
    }
}

void plugin_condition_stop(struct plugin *plugin)
{
    kube_request_cancel(plugin->conditions.request);
    plugin->conditions.request = NULL;
}
