/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * libcurl's transfers on a libuv loop, with the server's address and credentials filled in. Inside
 * kube only.
 *
 * write() is called from within libcurl: it must call no function of libcurl. done() is called from
 * outside: it may.
 */

#include <curl/curl.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/error.h"
#include "kube/client.h"

struct transport;
struct transfer;

/* The owner has it as the first member of its own struct. */
struct transfer {
    struct transport *transport;
    CURL *easy; /* NULL: not started */
    struct curl_slist *headers;
    const char *body; /* of a POST: the bytes that are left to be sent */
    size_t body_left;
    bool (*may_send)(void *data); /* called right before the body is sent; NULL: always */
    void *may_send_data;
    char reason[CURL_ERROR_SIZE];
    /* Takes len bytes of the body: returns len, CURL_WRITEFUNC_PAUSE, or 0 to end it. */
    size_t (*write)(struct transfer *transfer, const char *bytes, size_t len);
    /* The transfer ended: its status can be read until transfer_stop(). May free the transfer. */
    void (*done)(struct transfer *transfer, CURLcode result);
};

struct transfer_spec {
    enum kube_method method;
    const char *path;
    const char *body; /* kept by the caller until the transfer is stopped; NULL: none */
    size_t body_len;
    const char *content_type, *accept;
    bool (*may_send)(void *data); /* of a POST; see struct kube_call */
    void *may_send_data;
    unsigned timeout_ms;
};

int transport_new(uv_loop_t *loop, const struct kube_config *config, const char *agent,
                  struct transport **ret_transport, struct error *err);

/* No transfer may be running. The memory goes when the loop has closed the handles. */
void transport_free(struct transport *transport);

uv_loop_t *transport_loop(struct transport *transport);

/* Whether the last transfer that ended did not get as far as the server: it has been logged. */
bool transport_is_unreachable(const struct transport *transport);

/* The server refused the token: it is read again before the next transfer. */
void transport_forget_token(struct transport *transport);

/* write and done are set by the owner before. Returns 0, -ENOMEM or -EINVAL. */
int transfer_start(struct transfer *transfer, struct transport *transport,
                   const struct transfer_spec *spec);

/* Ends the transfer, if it runs, without a call of done(). May be called for a transfer that never
 * started. */
void transfer_stop(struct transfer *transfer);

/* HTTP's status, 0 while there is none. */
unsigned transfer_status(struct transfer *transfer);

/* Seconds that Retry-After asks for, 30 at most; 0: none. */
unsigned transfer_retry_after(struct transfer *transfer);

/* Goes on after write() returned CURL_WRITEFUNC_PAUSE; write() may be called meanwhile. */
void transfer_resume(struct transfer *transfer);

/* libcurl's result as a negative errno. */
int transfer_errno(CURLcode result);

/* Why it failed, for a person. */
const char *transfer_reason(const struct transfer *transfer, CURLcode result);

/* The pause before a retry, after so many retries: backoff_ms() up to 5 s, with jitter. */
unsigned retry_pause_ms(unsigned retries);
