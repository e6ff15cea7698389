/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Looks at the Lease of the kube-schedulers every second, by a plain GET: a watch would bring
 * hardly fewer messages, and a watch that stands still looks like a leader that does not renew.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "scheduler/scheduler.h"

enum {
    LOOK_MS = 1000,
    LOOKS = 15, /* in a lease's duration, where it is shorter than the usual 15 s */
    LOOK_MIN_MS = 100,
    LOOK_TIMEOUT_MS = 2000,
    LEASE_MAX = 64 << 10, /* bytes */
};

static int64_t wall_ns(void)
{
    return clock_read_ns(CLOCK_REALTIME);
}

bool leader_leads(const struct scheduler *scheduler)
{
    const struct term *term = &scheduler->leader.term;

    return !term->options.host || term->state == TERM_OURS;
}

bool leader_may_decide(const struct scheduler *scheduler)
{
    return !scheduler->leader.handing_back &&
           term_may_send(&scheduler->leader.term, clock_now_ns(), wall_ns());
}

const char *leader_why_not(const struct scheduler *scheduler)
{
    if (scheduler->leader.handing_back)
        return "the scheduler is stopping";
    return term_why_not(&scheduler->leader.term);
}

double leader_lease_age_s(const struct scheduler *scheduler)
{
    const struct term *term = &scheduler->leader.term;

    if (!term->looked || !term->holder[0])
        return -1;
    return (double)(clock_now_ns() - term->renewed_before_ns) / 1e9;
}

static void on_settled(uv_timer_t *timer);

/* Plans the list of the new term: when all requests of other schedulers have settled, and both
 * lists were complete once. */
static void plan_list(struct scheduler *scheduler)
{
    struct leader *leader = &scheduler->leader;
    int64_t pause_ns = MAX(term_settled_ns(&leader->term) - clock_now_ns(), INT64_C(0));

    if (leader->term.state != TERM_WAITING || !cluster_is_ready(scheduler->cluster))
        return;
    uv_update_time(&scheduler->loop);
    (void)uv_timer_start(&leader->settled, on_settled, (uint64_t)(pause_ns / NS_PER_MS) + 1, 0);
}

static void on_settled(uv_timer_t *timer)
{
    struct scheduler *scheduler = timer->data;

    if (!term_should_list(&scheduler->leader.term, clock_now_ns())) {
        plan_list(scheduler);
        return;
    }
    cluster_begin_term(scheduler->cluster);
    kube_watch_list_again(scheduler->pods);
}

void leader_listed_others(struct scheduler *scheduler)
{
    plan_list(scheduler);
}

void leader_listed_pods(struct scheduler *scheduler)
{
    if (term_listed(&scheduler->leader.term))
        log_info("deciding from now on");
    plan_list(scheduler);
}

/* The Lease. */

void leader_ask(struct scheduler *scheduler, struct kube_call *call, kube_answer_fn on_answer)
{
    struct leader *leader = &scheduler->leader;

    call->path = leader->path;
    call->timeout_ms = LOOK_TIMEOUT_MS;
    call->max_answer = LEASE_MAX;
    leader->asked_ns = clock_now_ns();
    if (kube_request(scheduler->kube, call, on_answer, scheduler, NULL) < 0)
        leader->asked_ns = 0;
}

static void say_lost(const struct leader *leader)
{
    const char *holder = leader->term.holder;

    log_warn("no longer the leader: the lease is %s%s", holder[0] ? "now of " : "nobody's", holder);
}

static void set_pace(struct leader *leader)
{
    int64_t ms = leader->term.duration_ns / LOOKS / NS_PER_MS;

    if (leader->term.holder[0])
        uv_timer_set_repeat(&leader->look, (uint64_t)MIN(MAX(ms, LOOK_MIN_MS), LOOK_MS));
}

static void take_lease(struct scheduler *scheduler, const struct lease *lease)
{
    struct leader *leader = &scheduler->leader;

    switch (term_see(&leader->term, lease, leader->asked_ns, clock_now_ns(), wall_ns())) {
    case TERM_UNCHANGED:
        return;
    case TERM_ENDED:
        say_lost(leader);
        binds_lose(scheduler);
        return;
    case TERM_BEGAN:
        log_info("the lease is ours: %s", leader->term.holder);
        binds_lose(scheduler);
        plan_list(scheduler);
        return;
    case TERM_SETTLED:
        log_info("its former holder has handed the lease back");
        plan_list(scheduler);
        return;
    }
}

/* Whether the server itself says that the Lease does not exist: a 404 may be a proxy's. */
static bool is_none(yyjson_val *root, const struct kube_answer *answer)
{
    return answer->error == 0 && answer->status == 404 &&
           strcmp(wire_text(wire_get(root, "details"), "kind"), "leases") == 0;
}

static void note_blindness(struct leader *leader, const char *why)
{
    if (why && !leader->blind)
        log_warn("the lease can't be read: %s", why);
    else if (!why && leader->blind)
        log_info("the lease is read again");
    leader->blind = why;
}

static void on_lease(void *data, const struct kube_answer *answer)
{
    struct scheduler *scheduler = data;
    yyjson_doc *doc = yyjson_read(answer->body, answer->len, 0);
    yyjson_val *root = yyjson_doc_get_root(doc);
    struct lease lease;

    if (scheduler->stopping) {
        /* What became of the lease since is not this look's to say: see handback.c. */
    } else if (kube_answer_ok(answer) && yyjson_is_obj(root)) {
        wire_read_lease(root, &lease);
        take_lease(scheduler, &lease);
        set_pace(&scheduler->leader);
        note_blindness(&scheduler->leader, NULL);
    } else if (is_none(root, answer)) {
        take_lease(scheduler, NULL);
        note_blindness(&scheduler->leader, NULL);
    } else {
        note_blindness(&scheduler->leader, kube_answer_ok(answer) ? "not JSON" : answer->why);
    }
    yyjson_doc_free(doc);
    scheduler->leader.asked_ns = 0;
}

static void on_look(uv_timer_t *timer)
{
    struct scheduler *scheduler = timer->data;
    struct kube_call call = {.method = KUBE_GET};

    if (!scheduler->leader.asked_ns)
        leader_ask(scheduler, &call, on_lease);
}

static int make_path(struct leader *leader, const struct options *options)
{
    char namespace[KUBE_PATH_SIZE / 3], name[KUBE_PATH_SIZE / 3];

    if (!kube_escape(options->lease_namespace, namespace, sizeof(namespace)) ||
        !kube_escape(options->lease_name, name, sizeof(name)))
        return -EINVAL;
    (void)snprintf(leader->path, sizeof(leader->path),
                   "/apis/coordination.k8s.io/v1/namespaces/%s/leases/%s", namespace, name);
    return 0;
}

int leader_start(struct scheduler *scheduler, struct error *err)
{
    const struct options *options = &scheduler->options;
    struct leader *leader = &scheduler->leader;
    struct term_options term = {.bind_ns = options->bind_timeout_ms * (int64_t)NS_PER_MS};

    leader->look.data = leader->settled.data = scheduler;
    if (!options->leader_elect) {
        term_init(&leader->term, &term, clock_now_ns());
        return 0;
    }
    if (gethostname(leader->host, sizeof(leader->host) - 1) < 0 || !leader->host[0])
        return error_set(err, -EINVAL, "the host has no name");
    if (make_path(leader, options) < 0)
        return error_set(err, -EINVAL, "the lease's name is too long");
    term.host = leader->host;
    term_init(&leader->term, &term, clock_now_ns());
    (void)uv_timer_start(&leader->look, on_look, 0, LOOK_MS);
    log_info("deciding while the lease %s/%s is of %s", options->lease_namespace,
             options->lease_name, leader->host);
    return 0;
}

void leader_stop(struct scheduler *scheduler)
{
    uv_close((uv_handle_t *)&scheduler->leader.look, NULL);
    uv_close((uv_handle_t *)&scheduler->leader.settled, NULL);
}
