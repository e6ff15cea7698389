/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The Lease is handed back at an orderly end, as when a Deployment is rolled over. Without that it
 * expires after 15 s in which no pod is placed; and where kube-scheduler gives it up by itself, as
 * that of Kubernetes 1.36 does, the next scheduler does not know whether this one still has a
 * Binding on its way, and waits as long.
 *
 * Binds and evictions under way are waited for first; one that does not end leaves the Lease alone,
 * and so does a scheduler that itself still waits for its predecessor's. Then this scheduler
 * decides nothing any more, and writes into the Lease that it has ended, and nobody as its holder,
 * on the condition that the Lease is as it was read. The kube-scheduler beside us ends at the same
 * time; should it renew the Lease once more, it has it again, and that is handed back, too. After a
 * time in which it would have renewed it this program ends. Where the kube-scheduler gave it up,
 * and the next one took it, before we came to it, the word alone is written, which that one's
 * extender waits for.
 */

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "base/util.h"
#include "model/keys.h"
#include "scheduler/scheduler.h"

enum {
    RENEWALS = 6, /* in a lease's duration at least: kube-scheduler's are 2 s of 15 s */
    LOOKS = 10,   /* between two of them */
    LOOK_MIN_MS = 20,
    BODY_MAX = 4096,
};

static void end(struct scheduler *scheduler)
{
    uv_stop(&scheduler->loop);
}

static void on_handed_back(void *data, const struct kube_answer *answer)
{
    struct scheduler *scheduler = data;
    struct leader *leader = &scheduler->leader;

    leader->asked_ns = 0;
    if (kube_answer_ok(answer)) {
        if (!leader->handed_back_ns)
            log_info("the lease is handed back");
        leader->handed_back_ns = clock_now_ns();
    } else if (answer->status != 409) { /* renewed meanwhile: the next look shows it */
        log_warn("the lease can't be handed back, and will expire: %s", answer->why);
        end(scheduler);
    }
}

/* That nothing is on its way after so many transitions. */
static void say_so(struct scheduler *scheduler, uint64_t after, bool take_holder_out,
                   const char *version)
{
    CLEANUP(strbuf_deinit) struct strbuf body = STRBUF_INIT(BODY_MAX);
    struct kube_call call = {.method = KUBE_PATCH, .content_type = KUBE_MERGE_PATCH};

    strbuf_add(&body, "{\"metadata\":{\"resourceVersion\":");
    strbuf_add_json(&body, version);
    strbuf_addf(&body, ",\"annotations\":{\"" KEY_HANDED_BACK "\":\"%" PRIu64 "\"}}", after);
    if (take_holder_out)
        strbuf_add(&body, ",\"spec\":{\"holderIdentity\":\"\",\"leaseDurationSeconds\":1}");
    strbuf_add(&body, "}");
    call.body = body.text;
    call.body_len = body.len;
    if (!body.failed)
        leader_ask(scheduler, &call, on_handed_back);
}

static void take_step(struct scheduler *scheduler, yyjson_val *root)
{
    struct term *term = &scheduler->leader.term;
    const char *version = wire_text(wire_get(root, "metadata"), "resourceVersion");
    struct lease lease;

    wire_read_lease(root, &lease);
    switch (term_last_word(term, &lease)) {
    case TERM_HANDS_BACK:
        say_so(scheduler, lease.transitions, true, version);
        return;
    case TERM_SAYS:
        say_so(scheduler, term->transitions, false, version);
        return;
    case TERM_HAS_SAID:
        return;
    case TERM_LEAVES:
        end(scheduler);
        return;
    }
}

static void on_lease(void *data, const struct kube_answer *answer)
{
    struct scheduler *scheduler = data;
    yyjson_doc *doc = yyjson_read(answer->body, answer->len, 0);
    yyjson_val *root = yyjson_doc_get_root(doc);

    scheduler->leader.asked_ns = 0;
    if (kube_answer_ok(answer) && yyjson_is_obj(root))
        take_step(scheduler, root);
    yyjson_doc_free(doc);
}

static void on_look(uv_timer_t *timer)
{
    struct scheduler *scheduler = timer->data;
    struct leader *leader = &scheduler->leader;
    struct kube_call call = {.method = KUBE_GET};

    if (scheduler->binds || scheduler->evictions || leader->asked_ns)
        return;
    if (!leader->term.options.host || !leader_leads(scheduler)) {
        end(scheduler);
        return;
    }
    leader->handing_back = true;
    if (leader->handed_back_ns &&
        clock_now_ns() - leader->handed_back_ns >= leader->term.duration_ns / RENEWALS)
        end(scheduler);
    else
        leader_ask(scheduler, &call, on_lease);
}

void hand_back(struct scheduler *scheduler)
{
    struct leader *leader = &scheduler->leader;
    const int64_t ms = leader->term.duration_ns / RENEWALS / LOOKS / NS_PER_MS;

    leader->look.data = scheduler;
    (void)uv_timer_start(&leader->look, on_look, 0, (uint64_t)MAX(ms, LOOK_MIN_MS));
}
