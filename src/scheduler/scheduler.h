/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * hami-scheduler: I/O and wiring around cluster, which decides, and admit. One thread, one loop.
 */

#include <stdbool.h>
#include <uv.h>
#include <yyjson.h>

#include "admit/admit.h"
#include "base/arena.h"
#include "cluster/cluster.h"
#include "cluster/term.h"
#include "config/device_config.h"
#include "http/server.h"
#include "kube/client.h"
#include "kube/watch.h"
#include "scheduler/events.h"
#include "scheduler/locks.h"
#include "scheduler/options.h"
#include "scheduler/wire.h"

enum {
    REQUEST_ARENA_MAX = 128 << 20, /* for one request: 65,000 nodes and a reason for each */
    WEBHOOK_ARENA_MAX = 12 << 20,  /* for one review, from any client */
    OBJECT_ARENA_MAX = 16 << 20,   /* for one object of a watch */
};

/* The one /filter that waits for the watches. */
struct waiting_filter {
    struct http_request *request; /* NULL: none waits */
    uint64_t last_ns;             /* when the last one began to wait */
    uv_timer_t until;
};

/* Whether this scheduler is the leader. See cluster/term.h. */
struct leader {
    struct term term;
    char host[256];
    char path[KUBE_PATH_SIZE]; /* of the Lease */
    uv_timer_t look;           /* the next look at it; begun at: */
    int64_t asked_ns;          /* 0: none is under way */
    uv_timer_t settled;        /* pods are to be listed */
    bool blind;                /* the last look failed, which was logged */
    bool handing_back;         /* nothing is decided any more */
    int64_t handed_back_ns;    /* 0: not yet */
};

/* What is done between requests for the policy scarcity. */
struct work {
    uv_check_t turn;
    uv_idle_t idle;
    bool said; /* that there is no view for it */
};

/* How often, and how long, something was done. Bounds of the buckets are in metrics.c. */
enum {
    LATENCY_BUCKETS = 12,
};

struct latency {
    uint64_t counts[LATENCY_BUCKETS + 1]; /* the last: longer than all bounds */
    uint64_t sum_ns;
};

struct scheduler {
    struct options options;
    uv_loop_t loop;
    struct device_config config;
    struct vendor_set vendors;
    struct cluster *cluster;
    struct kube_client *kube;
    struct kube_watch *nodes, *pods, *quotas;
    struct http_server *server, *metrics;
    struct events *events;
    struct arena *request_arena; /* of the request being handled; empty between */
    struct arena *webhook_arena; /* the same of a review */
    struct arena *object_arena;  /* of the object being read */
    void *json;                  /* memory for reading one body, used again and again */
    uv_signal_t terminate, interrupt;
    uv_timer_t tick;
    struct waiting_filter waiting;
    struct leader leader;
    struct work work;
    struct bind *binds;         /* under way */
    struct locks *locks;        /* of nodes whose agents wait for one */
    struct question *questions; /* about unseen pods */
    struct eviction_call *evictions;
    struct roll *roll; /* of nodes and pods, for pages of metrics that begin now; NULL: none */
    bool ready;        /* was logged */
    bool stopping;

    struct latency filter, bind, webhook;
    uint64_t filters_placed, filters_refused, filters_failed;
    uint64_t binds_done, binds_failed;
    uint64_t requeues;
    uint64_t evictions_done, evictions_refused, evictions_unknown, rooms_made;
};

/* filter.c, bind.c, preempt.c, webhook.c: handlers whose data is the scheduler. */
http_handler_fn handle_filter, handle_bind, handle_preempt, handle_webhook;
/* Answers the filter that waits, if one does. */
void filter_end_wait(struct scheduler *scheduler);
/* Answers the callers of all binds under way. The watch will show the next scheduler how they
 * ended. */
void binds_abandon(struct scheduler *scheduler);

/*
 * policies.c: whether the cluster has the policies that protect pods' grants (deploy/policy.yaml).
 * Runs the loop until the API server has answered, or the scheduler is stopping.
 */
bool policies_in_force(struct scheduler *scheduler);

/* No longer the leader: answers the callers; how their binds end stays unknown. */
void binds_lose(struct scheduler *scheduler);

/* leader.c */
/* handback.c: the scheduler is to end. Stops the loop when nothing of it is on its way and, if this
 * scheduler decided, the Lease is handed back, so that another one need not wait until it
 * expires. */
void hand_back(struct scheduler *scheduler);

int leader_start(struct scheduler *scheduler, struct error *err);
void leader_stop(struct scheduler *scheduler);
/* Makes a call about the Lease, of which method, content and body are set; asked_ns says that it is
 * under way. Where it can't be made, on_answer is not called. */
void leader_ask(struct scheduler *scheduler, struct kube_call *call, kube_answer_fn on_answer);
void leader_listed_others(
    struct scheduler *scheduler); /* a watch's list is complete, not that of pods */
void leader_listed_pods(struct scheduler *scheduler);
/* Whether its term goes on, even if the lease is not young enough right now to decide. */
bool leader_leads(const struct scheduler *scheduler);
/* Whether decisions may be made, and sent, right now. */
bool leader_may_decide(const struct scheduler *scheduler);
const char *leader_why_not(const struct scheduler *scheduler);
/* Seconds since a renewal of any holder was seen; -1: the lease has no holder, or there is no
 * election. */
double leader_lease_age_s(const struct scheduler *scheduler);

/* found.c: the API server's answer to a GET of a pod. */
enum found {
    FOUND_UNKNOWN = 1, /* no answer that counts */
    FOUND_NONE,        /* no pod of this uid, or it is over: it holds nothing */
    FOUND_UNBOUND,
    FOUND_BOUND,
};
/* *ret_pod, of the last two, is good until the next object is read. */
enum found read_found_pod(struct scheduler *scheduler, const struct kube_answer *answer,
                          const char *uid, struct pod *ret_pod);

/* unseen.c: reads bound pods that the watch does not show. To be called every second. */
void ask_about_unseen(struct scheduler *scheduler);
void unseen_abandon(struct scheduler *scheduler); /* no answer will come any more */

/* requeue.c: makes kube-scheduler try pods again for which devices came free. To be called every
 * second. */
void requeue_pods(struct scheduler *scheduler);
void requeue_now(struct scheduler *scheduler, const struct cluster_pod_name *pod);

/* evict.c: makes room for important pods where devices alone are short. To be called every second.
 */
void evictions_look(struct scheduler *scheduler);
void evictions_abandon(struct scheduler *scheduler); /* no answer will come any more */

/* work.c: the policy scarcity, whose view of the cluster is there if it is the default policy. */
bool work_has_view(const struct scheduler *scheduler);
void work_start(struct scheduler *scheduler);
void work_stop(struct scheduler *scheduler);
/* Says once that a pod asks for the policy and there is no view. */
void work_note_policy(struct scheduler *scheduler, const struct pod *pod);

/* watches.c: of nodes, quotas and pods. What the scheduler may do is asked before; it may be
 * stopped meanwhile. */
int watches_start(struct scheduler *scheduler, struct error *err);
double watches_age(const struct scheduler *scheduler); /* of the oldest, in seconds */

/* metrics.c */
void metrics_tick(struct scheduler *scheduler); /* each second */
void metrics_free(struct scheduler *scheduler);
http_handler_fn handle_metrics;

void latency_note(struct latency *latency, uint64_t begun_ns);

/*
 * Reads a body with the scheduler's memory, one at a time; NULL, with err set. To be followed by
 * free_body() in either case.
 */
yyjson_doc *read_body(struct scheduler *scheduler, struct http_request *request, struct error *err);
void free_body(struct scheduler *scheduler, yyjson_doc *doc);

/* {"Error": text} and the like, with which the extender's verbs answer. */
void answer_error(struct http_request *request, const char *text);
