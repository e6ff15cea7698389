/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* State that transport.c prepares and transfer.c fills into each request. */

#include "kube/transport.h"

/* A PEM text as a file in memory, since libcurl wants a path: nothing secret reaches a disk. */
struct secret_file {
    int fd; /* -1: none */
    char path[32];
};

struct transport {
    uv_loop_t *loop;
    uv_timer_t timer;
    CURLM *multi;
    unsigned sockets; /* poll handles not closed yet */
    bool closed;
    bool unreachable; /* which was said, once; nothing has come from the server since */

    char *server;                  /* what URLs begin with */
    struct curl_slist *connect_to; /* the address, where the certificate has another name */
    char *proxy_url, *agent, *userinfo;
    bool insecure;
    struct secret_file ca_data, cert_data, key_data;
    char *ca_file, *cert_file, *key_file;

    char *token, *token_file;
    int64_t token_read_ns; /* 0: to be read */
};

/* Something came from the server. */
void transport_note_reached(struct transport *transport);

/* The bearer token, read again when its file is due; NULL: none. */
const char *transport_token(struct transport *transport);

/* Overwrites and frees the text; NULL is fine. */
void secret_free(char *secret);
