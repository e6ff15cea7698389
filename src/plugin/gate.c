/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The plugin registers with kubelet once it is known by which way devices reach containers (way.h):
 * it asks the runtime over its own socket whether CDI devices do (fitness.h), and the API server
 * for the Node. While they do not, it asks both every half a minute, so that it need not be
 * restarted after the runtime's configuration was mended.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "grpc/runtime.pb-c.h"
#include "plugin/plugin.h"

enum {
    RUNTIME_TIMEOUT_MS = 5000,
    NODE_TIMEOUT_MS = 5000,
    AGAIN_MS = 30000,
    AGAIN_SOON_MS = 1000, /* while the API server is away */
};

/* Sockets of the usual runtimes; in our pod they are below HOST_ROOT. */
static const char *const usual_sockets[] = {
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
};

static enum way choose_way(const struct plugin *plugin, enum fitness_outcome outcome)
{
    const struct fitness *fitness = &plugin->gate.fitness;
    enum way way = way_choose(plugin->options->strategies, outcome);

    if (way == WAY_ORDERED && !plugin->vendor->set_way)
        return WAY_CLOSED;
    /* A runtime that had CDI off and is away now has it off still. */
    if (plugin->way == WAY_ORDERED && way_is_late(way) && !fitness->has_runtime &&
        !fitness->assume_cdi)
        return WAY_ORDERED;
    return way;
}

static void use_way(struct plugin *plugin, enum way way)
{
    const unsigned strategies = plugin->options->strategies;
    const struct node_way node_way = {
        .is_ordered = way == WAY_ORDERED,
        .by_runtime = strategies & WAY_ENVVAR,
        .by_mounts = strategies & WAY_VOLUME_MOUNTS,
        .handler = plugin->gate.fitness.runtime.default_handler,
    };

    if (way != plugin->way && way == WAY_ORDERED)
        log_info("containers get their devices by Allocate's answer, one pod at a time");
    plugin->way = way;
    if (plugin->vendor->set_way && way != WAY_UNKNOWN)
        plugin->vendor->set_way(plugin->node, &node_way);
}

static void gate_decide(struct plugin *plugin)
{
    struct gate *gate = &plugin->gate;
    struct error why = ERROR_INIT;
    enum fitness_outcome outcome;

    /* On a node that was served before, the gate does not wait for the API server, which may be
     * away. */
    if (plugin->ending || gate->asking_runtime ||
        (gate->asking_node && !gate->fitness.served_before))
        return;
    gate->fitness.cdi_folder = plugin->host.cdi_folder;
    outcome = fitness_judge(&gate->fitness, &why);
    use_way(plugin, choose_way(plugin, outcome));
    if (strcmp(gate->why.text, why.text) != 0 && why.text[0])
        log_warn(plugin->way == WAY_UNKNOWN || plugin->way == WAY_CLOSED
                     ? "kubelet is not told of the cards: %s"
                     : "CDI is not used: %s",
                 why.text);
    gate->why = why;
    gate->outcome = outcome;
    plugin_condition_check(plugin);
    plugin_register(plugin);
    plugin_serve(plugin);
    /* A runtime that is there and silent, as one that is just starting, may yet say otherwise. */
    if (outcome == FITNESS_GOOD && gate->fitness.has_node &&
        (!gate->silence_said || gate->fitness.assume_cdi))
        return;
    if (gate->asking_node)
        return;
    (void)uv_timer_start(&gate->timer, plugin_gate_on_timer,
                         gate->fitness.has_node ? AGAIN_MS : AGAIN_SOON_MS, 0);
}

static void gate_on_runtime(void *data, const struct grpc_answer *answer)
{
    struct plugin *plugin = data;
    struct gate *gate = &plugin->gate;

    gate->asking_runtime = NULL;
    gate->fitness.has_runtime =
        !answer->error && answer->status == GRPC_OK &&
        runtime_facts_read(answer->message, answer->len, &gate->fitness.runtime) == 0;
    if (!gate->fitness.has_runtime && !gate->silence_said)
        log_info("the container runtime does not tell of itself: %s", answer->why);
    gate->silence_said = !gate->fitness.has_runtime;
    gate_decide(plugin);
}

static const char *find_socket(char path[static PATH_MAX])
{
    static const char *const roots[] = {"", HOST_ROOT};

    for (size_t i = 0; i < ARRAY_SIZE(roots) * ARRAY_SIZE(usual_sockets); i++) {
        (void)snprintf(path, PATH_MAX, "%s%s", roots[i / ARRAY_SIZE(usual_sockets)],
                       usual_sockets[i % ARRAY_SIZE(usual_sockets)]);
        if (access(path, F_OK) == 0)
            return path;
    }
    return NULL;
}

static void ask_runtime(struct plugin *plugin)
{
    Runtime__V1__StatusRequest request = RUNTIME__V1__STATUS_REQUEST__INIT;
    const char *socket = plugin->options->runtime_socket;
    char path[PATH_MAX];

    if (!socket)
        socket = find_socket(path);
    request.verbose = 1;
    if (socket &&
        grpc_request(plugin->loop, socket, "/runtime.v1.RuntimeService/Status", &request.base,
                     RUNTIME_TIMEOUT_MS, gate_on_runtime, plugin, &plugin->gate.asking_runtime) < 0)
        log_error("cannot ask the container runtime");
}

static void copy_member(yyjson_val *object, const char *key, char *to, size_t size)
{
    const char *text = yyjson_get_str(yyjson_obj_get(object, key));

    copy_text(to, size, text ? text : "");
}

static void gate_on_node(void *data, const struct kube_answer *answer)
{
    struct plugin *plugin = data;
    struct gate *gate = &plugin->gate;
    yyjson_doc *doc;

    gate->asking_node = NULL;
    if (kube_answer_ok(answer)) {
        yyjson_val *status, *info;

        doc = yyjson_read(answer->body, answer->len, 0);
        status = yyjson_obj_get(yyjson_doc_get_root(doc), "status");
        info = yyjson_obj_get(status, "nodeInfo");
        gate->fitness.has_node = true;
        copy_member(info, "kubeletVersion", gate->fitness.kubelet_version,
                    sizeof(gate->fitness.kubelet_version));
        copy_member(info, "containerRuntimeVersion", gate->fitness.runtime_version,
                    sizeof(gate->fitness.runtime_version));
        plugin_condition_seen(plugin, status);
        yyjson_doc_free(doc);
    }
    gate_decide(plugin);
}

static void ask_node(struct plugin *plugin)
{
    char path[1200], name[sizeof(plugin->options->node_name) * 3];
    const struct kube_call call = {.method = KUBE_GET, .path = path, .timeout_ms = NODE_TIMEOUT_MS};

    if (!kube_escape(plugin->options->node_name, name, sizeof(name)))
        return;
    (void)snprintf(path, sizeof(path), "/api/v1/nodes/%s", name);
    if (kube_request(plugin->kube, &call, gate_on_node, plugin, &plugin->gate.asking_node) < 0)
        log_error("cannot ask for the node");
}

void plugin_gate_on_timer(uv_timer_t *timer)
{
    struct plugin *plugin = timer->data;

    if (!plugin->gate.asking_runtime)
        ask_runtime(plugin);
    if (!plugin->gate.asking_node)
        ask_node(plugin);
    gate_decide(plugin);
}

void plugin_gate_start(struct plugin *plugin)
{
    plugin->gate.fitness.assume_cdi = plugin->options->assume_cdi;
    plugin_gate_on_timer(&plugin->gate.timer);
}

void plugin_gate_stop(struct plugin *plugin)
{
    grpc_request_cancel(plugin->gate.asking_runtime);
    kube_request_cancel(plugin->gate.asking_node);
    plugin->gate.asking_runtime = NULL;
    plugin->gate.asking_node = NULL;
    uv_close((uv_handle_t *)&plugin->gate.timer, NULL);
}
