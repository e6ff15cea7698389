/* SPDX-License-Identifier: Apache-2.0 */

/* Handshakes of agents (vendor/handshake.h): those that are due are written on their nodes. */

#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "scheduler/lock_rooms.h"
#include "scheduler/scheduler.h"

enum {
    HANDSHAKES_MAX = 64, /* that are written in a second */
};

static void on_greeted(void *data, const struct kube_answer *answer)
{
    struct locks *locks = data;

    if (kube_answer_ok(answer))
        return;
    if (answer->status == 403)
        rights_note(locks, false, answer->why);
    log_warn("a node's handshake could not be written: %s", answer->why);
}

static void write_handshake(struct locks *locks, const struct cluster_handshake *handshake)
{
    CLEANUP(strbuf_deinit) struct strbuf patch = STRBUF_INIT(LOCK_PATCH_MAX);
    char path[KUBE_PATH_SIZE];
    struct kube_call call = {
        .method = KUBE_PATCH,
        .path = lock_node_path(handshake->node, "/api/v1/nodes/", "", path),
        .content_type = KUBE_MERGE_PATCH,
        .accept = KUBE_METADATA_ONLY,
        .timeout_ms = LOCK_REQUEST_MS,
    };

    strbuf_add(&patch, "{\"metadata\":{\"annotations\":{");
    strbuf_add_json(&patch, handshake->key);
    strbuf_add(&patch, ":");
    strbuf_add_json(&patch, handshake->value);
    strbuf_add(&patch, "}}}");
    if (!call.path || patch.failed)
        return;
    call.body = patch.text;
    call.body_len = patch.len;
    log_info("node %s: %s is \"%s\" now", handshake->node, handshake->key, handshake->value);
    (void)kube_request(locks->scheduler->kube, &call, on_greeted, locks, NULL);
}

void handshakes_tick(struct locks *locks)
{
    const bool may_write = locks->allowed && leader_may_decide(locks->scheduler);
    struct cluster_handshake writes[HANDSHAKES_MAX];
    size_t count;

    count = cluster_handshakes(locks->scheduler->cluster, clock_now_ns(), wall_ns(), writes,
                               may_write ? HANDSHAKES_MAX : 0);
    for (size_t i = 0; i < count; i++)
        write_handshake(locks, &writes[i]);
}
