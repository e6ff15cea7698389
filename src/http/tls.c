/* SPDX-License-Identifier: Apache-2.0 */

/*
 * TLS connections. The client's first bytes are only peeked at, to see whether it offers HTTP/2. If
 * not, the connection goes untouched to http1.c; else it speaks HTTP/2 over GnuTLS here.
 */

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "base/clock.h"
#include "base/util.h"
#include "http/internal.h"

enum {
    READ_SIZE = 16 << 10, /* a TLS record */
    READS = 16,           /* records taken in a turn */
    OUT_SIZE = 2 * HTTP2_OUT_MIN,
    HANDSHAKE_SECONDS = 30,
};

enum phase {
    PHASE_HELLO, /* nothing is taken yet */
    PHASE_HANDSHAKE,
    PHASE_OPEN,
};

struct tls_connection {
    struct peer peer; /* first */
    struct tls_connection *prev, *next;
    struct http_server *server;
    uv_poll_t poll;
    int events; /* that are polled for */
    enum phase phase;
    struct sockaddr_storage address;
    socklen_t address_len;
    int64_t used_ns; /* when it was accepted; once it is open, when the last bytes or answer came */
    gnutls_session_t tls;
    struct http2 *http2;
    size_t hello_len; /* bytes that we wait for */
    bool working;     /* it is in its turn, at whose end it sends */
    size_t out_start, out_len;
    char *out; /* OUT_SIZE bytes, while there is something to send */
};

static void tls_on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* Removes the connection from its server; the descriptor stays open. */
static void session_leave(struct tls_connection *connection)
{
    DL_DELETE(connection->server->tls, connection);
    (void)uv_poll_stop(&connection->poll);
    uv_close((uv_handle_t *)&connection->poll, tls_on_closed);
    peer_remove(connection->server, &connection->peer);
}

static void session_end(struct tls_connection *connection)
{
    http2_free(connection->http2);
    if (connection->phase == PHASE_OPEN)
        (void)gnutls_bye(connection->tls, GNUTLS_SHUT_WR);
    if (connection->tls)
        gnutls_deinit(connection->tls);
    free(connection->out);
    session_leave(connection);
    (void)close(connection->peer.fd);
}

/* The connection is readable once so many bytes are there. */
static void await_bytes(struct tls_connection *connection, int count)
{
    (void)setsockopt(connection->peer.fd, SOL_SOCKET, SO_RCVLOWAT, &count, sizeof(count));
}

static void give_to_http1(struct tls_connection *connection)
{
    await_bytes(connection, 1);
    session_leave(connection);
    http1_take(connection->server->http1, connection->peer.fd,
               (struct sockaddr *)&connection->address, connection->address_len);
}

static bool is_retry(ssize_t r)
{
    return r == GNUTLS_E_AGAIN || r == GNUTLS_E_INTERRUPTED;
}

/* Fills the buffer with the next output; false: there is none. */
static bool tls_gather(struct tls_connection *connection)
{
    connection->out_start = 0;
    connection->out_len = http2_gather(connection->http2, connection->out, OUT_SIZE);
    return connection->out_len > 0;
}

/* Sends all output; 1: the client does not take more now. Negative: the session is over. */
static int send_all(struct tls_connection *connection)
{
    if (!connection->out)
        connection->out = malloc(OUT_SIZE);
    if (!connection->out)
        return -ENOMEM;
    for (;;) {
        ssize_t n;

        if (connection->out_start == connection->out_len && !tls_gather(connection)) {
            free(TAKE(connection->out));
            return http2_is_over(connection->http2) ? -ECONNRESET : 0;
        }
        n = gnutls_record_send(connection->tls, connection->out + connection->out_start,
                               connection->out_len - connection->out_start);
        if (is_retry(n))
            return 1;
        if (n < 0)
            return -ECONNRESET;
        connection->out_start += (size_t)n;
    }
}

static int session_receive(struct tls_connection *connection)
{
    char bytes[READ_SIZE];

    for (unsigned i = 0; i < READS; i++) {
        ssize_t n = gnutls_record_recv(connection->tls, bytes, sizeof(bytes));

        if (is_retry(n))
            return 0;
        if (n <= 0 || http2_receive(connection->http2, bytes, (size_t)n) < 0)
            return -ECONNRESET;
    }
    return 0;
}

static void on_ready(uv_poll_t *poll, int status, int events);

static void wait_for(struct tls_connection *connection, int events)
{
    if (connection->events != events)
        (void)uv_poll_start(&connection->poll, events, on_ready);
    connection->events = events;
}

/* While a client does not take its output, we read nothing from it. */
static void send_and_wait(struct tls_connection *connection)
{
    int r = send_all(connection);

    if (r < 0)
        session_end(connection);
    else
        wait_for(connection, r ? UV_WRITABLE : UV_READABLE);
}

static void on_wants_to_send(struct peer *peer)
{
    struct tls_connection *connection = (struct tls_connection *)peer;

    connection->used_ns = clock_now_ns();
    if (!connection->working)
        send_and_wait(connection);
}

static int open_session(struct tls_connection *connection)
{
    const struct http2_owner owner = {
        .peer = &connection->peer,
        .wants_to_send = on_wants_to_send,
    };
    gnutls_datum_t protocol;

    /* The client's first bytes offered HTTP/2, so it must be selected. */
    if (gnutls_alpn_get_selected_protocol(connection->tls, &protocol) != 0)
        return -EPROTO;
    connection->phase = PHASE_OPEN;
    return http2_new(connection->server, &owner, &connection->http2);
}

static int shake_hands(struct tls_connection *connection)
{
    int r;

    do {
        r = gnutls_handshake(connection->tls);
    } while (r == GNUTLS_E_INTERRUPTED || r == GNUTLS_E_WARNING_ALERT_RECEIVED);
    if (r == GNUTLS_E_AGAIN) {
        bool writes = gnutls_record_get_direction(connection->tls) == 1;

        wait_for(connection, writes ? UV_WRITABLE : UV_READABLE);
        return 0;
    }
    if (r == 0)
        return open_session(connection);
    (void)gnutls_alert_send_appropriate(connection->tls, r);
    return -EPROTO;
}

static int begin_tls(struct tls_connection *connection)
{
    const gnutls_datum_t h2 = {(unsigned char *)"h2", 2};
    const int on = 1;

    await_bytes(connection, 1);
    (void)setsockopt(connection->peer.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (gnutls_init(&connection->tls, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0)
        return -ENOMEM;
    if (gnutls_priority_set(connection->tls, connection->server->priorities) < 0 ||
        gnutls_credentials_set(connection->tls, GNUTLS_CRD_CERTIFICATE,
                               connection->server->credentials) < 0 ||
        gnutls_alpn_set_protocols(connection->tls, &h2, 1, 0) < 0)
        return -ENOMEM;
    gnutls_transport_set_int(connection->tls, connection->peer.fd);
    connection->phase = PHASE_HANDSHAKE;
    return 0;
}

/* Looks at the first bytes. 1: the connection went to http1.c. */
static int look_at_hello(struct tls_connection *connection)
{
    unsigned char bytes[HELLO_MAX];
    ssize_t len = recv(connection->peer.fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);
    size_t want;

    if (connection->peer.ended)
        return -ECONNRESET;
    if (len < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (len <= 0)
        return -ECONNRESET;
    if (hello_offers_h2(bytes, (size_t)len, &want))
        return begin_tls(connection);
    /* Readable with fewer bytes than were asked for: no more will come. */
    if (want > connection->hello_len) {
        connection->hello_len = want;
        await_bytes(connection, (int)want);
        return 0;
    }
    give_to_http1(connection);
    return 1;
}

/* Takes the connection as far as its bytes go. 1: it went to http1.c. */
static int tls_take_turn(struct tls_connection *connection)
{
    int r = 0;

    if (connection->phase == PHASE_HELLO)
        r = look_at_hello(connection);
    if (r == 0 && connection->phase == PHASE_HANDSHAKE)
        r = shake_hands(connection);
    if (r == 0 && connection->phase == PHASE_OPEN)
        r = session_receive(connection);
    return r;
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct tls_connection *connection = poll->data;
    int r;

    (void)events;
    /* GnuTLS wants the interrupted send to be repeated first; reading goes on after it. */
    if (status >= 0 && connection->phase == PHASE_OPEN && connection->events == UV_WRITABLE) {
        send_and_wait(connection);
        return;
    }
    connection->working = true;
    r = status < 0 ? status : tls_take_turn(connection);
    if (r > 0)
        return;
    connection->working = false;
    if (r < 0) {
        session_end(connection);
    } else if (connection->phase == PHASE_OPEN) {
        connection->used_ns = clock_now_ns();
        send_and_wait(connection);
    }
}

int tls_take(struct http_server *server, int fd, const struct sockaddr *address, socklen_t len)
{
    struct tls_connection *connection = calloc(1, sizeof(*connection));

    if (!connection || uv_poll_init(server->loop, &connection->poll, fd) < 0) {
        free(connection);
        return -ENOMEM;
    }
    connection->server = server;
    connection->poll.data = connection;
    memcpy(&connection->address, address, len);
    connection->address_len = len;
    connection->used_ns = clock_now_ns();
    DL_APPEND(server->tls, connection);
    peer_add(server, &connection->peer, fd, address_is_loopback(address));
    wait_for(connection, UV_READABLE);
    return 0;
}

/* Sends the remaining output and the session's end, as far as the client takes them at once. */
static void say_goodbye(struct tls_connection *connection)
{
    if (connection->phase != PHASE_OPEN || send_all(connection) != 0)
        return;
    http2_end(connection->http2);
    (void)send_all(connection);
}

/* Go's clients send a PING every 30 s, which keeps a connection of this machine open. */
static bool is_idle(const struct tls_connection *connection, int64_t now_ns)
{
    const struct peer *peer = &connection->peer;

    if (connection->phase != PHASE_OPEN)
        return now_ns - connection->used_ns >= HANDSHAKE_SECONDS * NS_PER_S;
    return now_ns - connection->used_ns >= IDLE_SECONDS * NS_PER_S ||
           (!peer->loopback && now_ns - peer->used_ns >= IDLE_SECONDS * NS_PER_S);
}

void tls_tick(struct http_server *server)
{
    int64_t now_ns = clock_now_ns();
    struct tls_connection *connection, *next;

    DL_FOREACH_SAFE(server->tls, connection, next)
    {
        if (connection->peer.awaited || !is_idle(connection, now_ns))
            continue;
        say_goodbye(connection);
        session_end(connection);
    }
}

void tls_free(struct http_server *server)
{
    while (server->tls) {
        struct tls_connection *connection = server->tls;

        say_goodbye(connection);
        session_end(connection);
    }
}
