/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Requests to the Kubernetes API server, on a libuv loop.
 *
 * Nothing blocks; all callbacks run in the loop's thread, from the loop, never from inside a call
 * of these functions, so a callback may start and cancel requests as it likes. Connections are kept
 * and used again.
 *
 * A request is tried again within its time, with growing pauses, if the server refuses it for now
 * (429, whose Retry-After is kept), if there was no connection, and, for GET, PUT, PATCH and
 * DELETE, if it was cut in the middle or answered with 503. A POST that was cut, or answered with
 * 503, is not sent again: it may have been carried out, and its owner must find out.
 *
 * Bytes that were not sent yet are dropped when a connection is closed: a request whose time is
 * over does not reach the server later, when the network is back.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "kube/config.h"

struct kube_client;
struct kube_request;

enum kube_method {
    KUBE_GET = 1,
    KUBE_POST,
    KUBE_PUT,
    KUBE_PATCH,
    KUBE_DELETE,
};

#define KUBE_JSON "application/json"
#define KUBE_MERGE_PATCH "application/merge-patch+json"
#define KUBE_JSON_PATCH "application/json-patch+json"
#define KUBE_STRATEGIC_PATCH "application/strategic-merge-patch+json"
/* For `accept`, where an object's metadata are enough. */
#define KUBE_METADATA_ONLY "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

enum {
    KUBE_TIMEOUT_MS = 30000,
    KUBE_ANSWER_MAX = 8 << 20, /* bytes */
};

struct kube_call {
    enum kube_method method;
    const char *path; /* "/api/v1/nodes/a?x=y", escaped: kube_escape() */
    const char *body; /* copied; NULL: none */
    size_t body_len;
    const char *content_type; /* NULL: KUBE_JSON */
    const char *accept;       /* NULL: KUBE_JSON */
    unsigned timeout_ms;      /* in all, tries and pauses; 0: KUBE_TIMEOUT_MS */
    size_t max_answer;        /* bytes of the body; 0: KUBE_ANSWER_MAX */
    /* For a POST: called with the callback's data, at each try, right before the body is sent.
     * False ends the request with -ECANCELED, unsent. NULL: always. */
    bool (*may_send)(void *data);
};

/* How a request ended. */
struct kube_answer {
    /* 0: the server answered. Else -ETIMEDOUT, -EFBIG, -EIO...; it was certainly not sent after
     * -ECONNREFUSED, -EKEYREJECTED and -ECANCELED. */
    int error;
    unsigned status;  /* HTTP's; 0 with an error */
    const char *body; /* terminated, "" when empty; the callback's only */
    size_t len;
    const char *why;        /* "" on 2xx; else, for a person, the server's message or our reason */
    unsigned retry_after_s; /* the server's wish; 0: none */
};

/* Whether the server answered with 2xx. */
static inline bool kube_answer_ok(const struct kube_answer *answer)
{
    return answer->error == 0 && answer->status >= 200 && answer->status < 300;
}

typedef void (*kube_answer_fn)(void *data, const struct kube_answer *answer);

/*
 * agent is the User-Agent, "hami-scheduler/0.1.0". The config is copied. Fails when the config's
 * certificates can't be prepared; the server need not be there.
 */
int kube_client_new(uv_loop_t *loop, const struct kube_config *config, const char *agent,
                    struct kube_client **ret_client, struct error *err);

/*
 * Requests still running are dropped, their callbacks not called; watches must have been freed
 * before. The memory goes once the loop has run the closing of its handles.
 */
void kube_client_free(struct kube_client *client);
DEFINE_CLEANUP(struct kube_client *, kube_client_free);

/* Whether there is no way to the server at the moment, which has been logged. */
bool kube_client_is_unreachable(const struct kube_client *client);

/* Requests that were started, without retries; retries; and requests that are running. */
struct kube_counts {
    uint64_t started[KUBE_DELETE + 1]; /* by enum kube_method */
    uint64_t retried;
    unsigned running;
};
void kube_client_counts(const struct kube_client *client, struct kube_counts *ret_counts);

/*
 * Starts a request; fn is called exactly once unless it is cancelled. *ret_request lives until
 * then; ret_request may be NULL. Returns 0, -ENOMEM or -EINVAL.
 */
int kube_request(struct kube_client *client, const struct kube_call *call, kube_answer_fn fn,
                 void *data, struct kube_request **ret_request);
void kube_request_cancel(struct kube_request *request);

/*
 * Puts text into a URL's path or query: letters, digits and "-._~" as they are, the rest as %XX.
 * Returns to, or NULL when size bytes are not enough.
 */
char *kube_escape(const char *text, char *to, size_t size);

enum {
    KUBE_PATH_SIZE = 1024, /* for a pod's, of names as long as Kubernetes allows, and more */
};

/* The path of a pod, or of a part of it: "", "/binding", "/status". Returns to; NULL: too long. */
char *kube_pod_path(const char *namespace, const char *name, const char *part,
                    char to[static KUBE_PATH_SIZE]);
