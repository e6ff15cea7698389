/* SPDX-License-Identifier: Apache-2.0 */

/* Life of the server, and the accepting of connections. */

#include "http/server.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "http/internal.h"

enum {
    TICK_MS = 1000,
    ACCEPTS = 64,         /* in a turn of the loop */
    HEAP_PAD = 256 << 10, /* that the heap's end keeps for the next requests */
};

/* GnuTLS' callback gets no pointer of ours: there is one TLS server a process. */
static struct certificate *certificate_in_force;

/* Connections */

static void on_acceptable(uv_poll_t *handle, int status, int events);

void server_go_on_accepting(struct http_server *server)
{
    uv_handle_t *accept = (uv_handle_t *)&server->accept;

    if (!uv_is_active(accept) && !uv_is_closing(accept))
        (void)uv_poll_start(&server->accept, UV_READABLE, on_acceptable);
}

bool address_is_loopback(const struct sockaddr *address)
{
    const struct in6_addr *six;

    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    if (address->sa_family != AF_INET6)
        return false;
    six = &((const struct sockaddr_in6 *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
}

static int accept_one(struct http_server *server)
{
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof(address);
    int fd;

    if (server->peer_count >= CONNECTIONS_MAX)
        return -EMFILE;
    fd = accept4(server->listener, (struct sockaddr *)&address, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return errno == EINTR || errno == ECONNABORTED ? 0 : -errno;
    if (!server->certificate)
        http1_take(server->http1, fd, (struct sockaddr *)&address, len);
    else if (tls_take(server, fd, (struct sockaddr *)&address, len) < 0)
        (void)close(fd);
    return 0;
}

/* Without room or descriptors, new connections wait until another one ends, or for a tick. */
static void on_acceptable(uv_poll_t *handle, int status, int events)
{
    struct http_server *server = handle->data;
    int r = 0;

    (void)status;
    (void)events;
    for (unsigned i = 0; i < ACCEPTS && r == 0; i++)
        r = accept_one(server);
    if (r != 0 && r != -EAGAIN)
        (void)uv_poll_stop(&server->accept);
}

/*
 * What connections and their requests took lies scattered over the heap, and what came later lies
 * behind it: free() gives back the heap's end alone, the holes stay resident until they are asked
 * for.
 */
static void give_back_memory(struct http_server *server)
{
    if (server->left)
        (void)malloc_trim(HEAP_PAD);
    server->left = false;
}

static void on_tick(uv_timer_t *handle)
{
    struct http_server *server = handle->data;

    server_go_on_accepting(server);
    peers_tick(server);
    give_back_memory(server);
    if (!server->certificate)
        return;
    certificate_refresh(server->certificate);
    tls_tick(server);
}

/* Life */

int give_certificate(gnutls_session_t session, const gnutls_datum_t *authorities,
                     int authority_count, const gnutls_pk_algorithm_t *algorithms,
                     int algorithm_count, gnutls_pcert_st **ret_chain, unsigned *ret_count,
                     gnutls_privkey_t *ret_key)
{
    struct certificate_pair *pair = certificate_current(certificate_in_force);

    (void)session;
    (void)authorities;
    (void)authority_count;
    (void)algorithms;
    (void)algorithm_count;
    *ret_chain = pair->chain;
    *ret_count = pair->count;
    *ret_key = pair->key;
    return 0;
}

static int make_tls(struct http_server *server, const struct http_options *options,
                    struct error *err)
{
    int r = certificate_new(options->cert_file, options->key_file, &server->certificate, err);

    if (r < 0)
        return r;
    certificate_in_force = server->certificate;
    if (gnutls_certificate_allocate_credentials(&server->credentials) < 0 ||
        gnutls_priority_init(&server->priorities, TLS_PRIORITIES, NULL) < 0)
        return -ENOMEM;
    gnutls_certificate_set_retrieve_function2(server->credentials, give_certificate);
    return 0;
}

static void server_free(struct http_server *server)
{
    if (certificate_in_force == server->certificate)
        certificate_in_force = NULL;
    if (server->credentials)
        gnutls_certificate_free_credentials(server->credentials);
    if (server->priorities)
        gnutls_priority_deinit(server->priorities);
    certificate_free(server->certificate);
    if (server->listener >= 0)
        (void)close(server->listener);
    free(server);
}

static int server_join_loop(struct http_server *server, struct error *err)
{
    int r = uv_poll_init(server->loop, &server->accept, server->listener);

    if (r < 0)
        return error_set(err, r, "the HTTP server can't join the loop");
    (void)uv_timer_init(server->loop, &server->tick);
    server->accept.data = server->tick.data = server;
    server->closing = 2;
    (void)uv_poll_start(&server->accept, UV_READABLE, on_acceptable);
    (void)uv_timer_start(&server->tick, on_tick, TICK_MS, TICK_MS);
    return 0;
}

static int server_start(struct http_server *server, const struct http_options *options,
                        struct error *err)
{
    int r = 0;

    if (options->cert_file)
        r = make_tls(server, options, err);
    if (r < 0)
        return r;
    server->listener = http_listen(options->address, err);
    if (server->listener < 0)
        return server->listener;
    r = http1_new(server, err);
    return r < 0 ? r : server_join_loop(server, err);
}

int http_server_new(uv_loop_t *loop, const struct http_options *options,
                    struct http_server **ret_server, struct error *err)
{
    struct http_server *server = calloc(1, sizeof(*server));
    int r;

    if (!server)
        return -ENOMEM;
    server->loop = loop;
    server->listener = -1;
    server->routes = options->routes;
    server->data = options->data;
    r = server_start(server, options, err);
    if (r < 0) {
        http1_free(server->http1);
        server_free(server);
        return r;
    }
    *ret_server = server;
    return 0;
}

static void server_on_closed(uv_handle_t *handle)
{
    struct http_server *server = handle->data;

    if (--server->closing == 0)
        server_free(server);
}

void http_server_free(struct http_server *server)
{
    if (!server)
        return;
    uv_close((uv_handle_t *)&server->accept, server_on_closed);
    uv_close((uv_handle_t *)&server->tick, server_on_closed);
    tls_free(server);
    http1_free(server->http1);
}

unsigned http_server_port(const struct http_server *server)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof(address);

    if (getsockname(server->listener, (struct sockaddr *)&address, &len) < 0)
        return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}
