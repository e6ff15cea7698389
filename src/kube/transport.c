/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/util.h"
#include "kube/transport_state.h"

enum {
    CONNECTIONS_MAX = 64,
    CONNECTIONS_KEPT = 16,
    TOKEN_MAX = 32768,
    PAUSE_FIRST_MS = 50, /* before a retry */
    PAUSE_MAX_MS = 5000,
};

/* A token file is read again after this. */
#define TOKEN_AGE_NS (10 * NS_PER_S)

struct socket {
    uv_poll_t poll;
    struct transport *transport;
    curl_socket_t fd;
};

void transport_note_reached(struct transport *transport)
{
    if (!transport->unreachable)
        return;
    transport->unreachable = false;
    log_info("the API server is reached now");
}

bool transport_is_unreachable(const struct transport *transport)
{
    return transport->unreachable;
}

/* Whether nothing was sent, since there was no connection to the server. */
static bool is_unconnected(const struct transfer *transfer, CURLcode result)
{
    const int error = transfer_errno(result);
    curl_off_t ready_us = 0;

    if (error != -ETIMEDOUT)
        return error == -ECONNREFUSED || error == -EKEYREJECTED;
    (void)curl_easy_getinfo(transfer->easy, CURLINFO_PRETRANSFER_TIME_T, &ready_us);
    return ready_us == 0;
}

/* Who asks says that a request failed, seconds later, after its retries: this is said at the first
 * failure, and as what it is. */
static void note_reach(struct transport *transport, struct transfer *transfer, CURLcode result)
{
    if (is_unconnected(transfer, result)) {
        if (!transport->unreachable)
            log_warn("the API server %s can't be reached, which is tried again: %s",
                     transport->server, transfer_reason(transfer, result));
        transport->unreachable = true;
    } else if (transfer_status(transfer)) {
        transport_note_reached(transport);
    }
}

static void transport_drain(struct transport *transport)
{
    CURLMsg *message;
    int left;

    while (!transport->closed && (message = curl_multi_info_read(transport->multi, &left))) {
        CURLcode result = message->data.result;
        struct transfer *transfer = NULL;

        if (message->msg != CURLMSG_DONE)
            continue;
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&transfer);
        (void)curl_multi_remove_handle(transport->multi, message->easy_handle);
        note_reach(transport, transfer, result);
        transfer->done(transfer, result);
    }
}

static void on_socket(uv_poll_t *poll, int status, int events)
{
    struct socket *socket = poll->data;
    struct transport *transport = socket->transport;
    int flags = status < 0 ? CURL_CSELECT_ERR : 0, running;

    flags |= events & UV_READABLE ? CURL_CSELECT_IN : 0;
    flags |= events & UV_WRITABLE ? CURL_CSELECT_OUT : 0;
    (void)curl_multi_socket_action(transport->multi, socket->fd, flags, &running);
    transport_drain(transport);
}

static void transport_on_timer(uv_timer_t *timer)
{
    struct transport *transport = timer->data;
    int running;

    (void)curl_multi_socket_action(transport->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    transport_drain(transport);
}

static int set_timer(CURLM *multi, long timeout_ms, void *data)
{
    struct transport *transport = data;

    (void)multi;
    if (transport->closed)
        return 0;
    if (timeout_ms < 0)
        (void)uv_timer_stop(&transport->timer);
    else
        (void)uv_timer_start(&transport->timer, transport_on_timer, (uint64_t)timeout_ms, 0);
    return 0;
}

static void secret_close(struct secret_file *file)
{
    if (file->fd >= 0)
        (void)close(file->fd);
    file->fd = -1;
}

void secret_free(char *secret)
{
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

static void transport_release(struct transport *transport)
{
    secret_close(&transport->ca_data);
    secret_close(&transport->cert_data);
    secret_close(&transport->key_data);
    secret_free(transport->token);
    secret_free(transport->userinfo);
    free(transport->server);
    curl_slist_free_all(transport->connect_to);
    free(transport->proxy_url);
    free(transport->agent);
    free(transport->ca_file);
    free(transport->cert_file);
    free(transport->key_file);
    free(transport->token_file);
    free(transport);
}

static void on_socket_closed(uv_handle_t *handle)
{
    struct socket *socket = handle->data;
    struct transport *transport = socket->transport;

    free(socket);
    transport->sockets--;
    if (transport->closed && !transport->multi && !transport->sockets)
        transport_release(transport);
}

static struct socket *socket_new(struct transport *transport, curl_socket_t fd)
{
    struct socket *socket = calloc(1, sizeof(*socket));

    if (!socket)
        return NULL;
    if (uv_poll_init_socket(transport->loop, &socket->poll, fd) < 0) {
        free(socket);
        return NULL;
    }
    socket->poll.data = socket;
    socket->transport = transport;
    socket->fd = fd;
    transport->sockets++;
    return socket;
}

static int set_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *known)
{
    struct transport *transport = data;
    struct socket *socket = known;
    int events = 0;

    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        if (socket)
            uv_close((uv_handle_t *)&socket->poll, on_socket_closed);
        (void)curl_multi_assign(transport->multi, fd, NULL);
        return 0;
    }

    if (!socket)
        socket = socket_new(transport, fd);
    if (!socket)
        return -1;
    (void)curl_multi_assign(transport->multi, fd, socket);
    events |= what != CURL_POLL_OUT ? UV_READABLE : 0;
    events |= what != CURL_POLL_IN ? UV_WRITABLE : 0;
    (void)uv_poll_start(&socket->poll, events, on_socket);
    return 0;
}

static int secret_open(struct secret_file *file, const char *text, struct error *err)
{
    size_t len = text ? strlen(text) : 0;

    if (!text)
        return 0;
    file->fd = memfd_create("kube-credentials", MFD_CLOEXEC);
    if (file->fd < 0 || write(file->fd, text, len) != (ssize_t)len)
        return error_set(err, -EIO, "cannot keep the API server's certificates: %s",
                         strerror(errno));
    (void)snprintf(file->path, sizeof(file->path), "/proc/self/fd/%d", file->fd);
    return 0;
}

static char *copy_or_fail(const char *text, bool *failed)
{
    char *copied = text ? strdup(text) : NULL;

    *failed |= text && !copied;
    return copied;
}

/* The certificate is for another name than the address: requests use that name and go to the
 * address. */
static int use_server_name(struct transport *transport, const struct kube_config *config)
{
    const char *host = strstr(config->server, "//") + 2;
    const char *path = host + strcspn(host, "/");
    const char *port = memrchr(host, ':', (size_t)(path - host));
    AUTOFREE char *connect_to = NULL;

    if (!port || memchr(port, ']', (size_t)(path - port)))
        port = path; /* a colon within "[::1]" does not begin a port */
    if (asprintf(&connect_to, "::%.*s:", (int)(port - host), host) < 0) {
        connect_to = NULL;
        return -ENOMEM;
    }
    transport->connect_to = curl_slist_append(NULL, connect_to);

    free(transport->server);
    if (asprintf(&transport->server, "https://%s%s", config->tls_server_name, port) < 0)
        transport->server = NULL;
    return transport->server && transport->connect_to ? 0 : -ENOMEM;
}

static int transport_copy(struct transport *transport, const struct kube_config *config,
                          const char *agent)
{
    bool failed = false;

    transport->server = copy_or_fail(config->server, &failed);
    transport->proxy_url = copy_or_fail(config->proxy_url, &failed);
    transport->agent = copy_or_fail(agent, &failed);
    transport->ca_file = copy_or_fail(config->ca_file, &failed);
    transport->cert_file = copy_or_fail(config->client_cert_file, &failed);
    transport->key_file = copy_or_fail(config->client_key_file, &failed);
    transport->token = copy_or_fail(config->token, &failed);
    transport->token_file = copy_or_fail(config->token_file, &failed);
    transport->insecure = config->insecure;
    if (config->username && asprintf(&transport->userinfo, "%s:%s", config->username,
                                     config->password ? config->password : "") < 0)
        failed = true;
    if (!failed && config->tls_server_name && strncmp(config->server, "https://", 8) == 0)
        failed = use_server_name(transport, config) < 0;
    return failed ? -ENOMEM : 0;
}

static int transport_prepare(struct transport *transport, const struct kube_config *config,
                             const char *agent, struct error *err)
{
    int r;

    if (transport_copy(transport, config, agent) < 0)
        return error_set(err, -ENOMEM, "no memory");
    r = secret_open(&transport->ca_data, config->ca_data, err);
    if (r == 0)
        r = secret_open(&transport->cert_data, config->client_cert_data, err);
    if (r == 0)
        r = secret_open(&transport->key_data, config->client_key_data, err);
    if (r < 0)
        return r;

    transport->multi = curl_multi_init();
    if (!transport->multi)
        return error_set(err, -ENOMEM, "cannot start libcurl: no memory");
    (void)curl_multi_setopt(transport->multi, CURLMOPT_SOCKETFUNCTION, set_socket);
    (void)curl_multi_setopt(transport->multi, CURLMOPT_SOCKETDATA, transport);
    (void)curl_multi_setopt(transport->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    (void)curl_multi_setopt(transport->multi, CURLMOPT_TIMERDATA, transport);
    (void)curl_multi_setopt(transport->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS,
                            (long)CONNECTIONS_MAX);
    (void)curl_multi_setopt(transport->multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS_KEPT);
    return 0;
}

int transport_new(uv_loop_t *loop, const struct kube_config *config, const char *agent,
                  struct transport **ret_transport, struct error *err)
{
    struct transport *transport = calloc(1, sizeof(*transport));
    int r;

    if (!transport || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        free(transport);
        return error_set(err, -ENOMEM, "cannot start libcurl: no memory");
    }
    transport->loop = loop;
    transport->ca_data.fd = transport->cert_data.fd = transport->key_data.fd = -1;
    r = transport_prepare(transport, config, agent, err);
    if (r < 0) {
        transport_release(transport);
        return r;
    }
    (void)uv_timer_init(loop, &transport->timer);
    transport->timer.data = transport;
    *ret_transport = transport;
    return 0;
}

/* Called from the loop: no function of libcurl is on the stack, as there may be in
 * transport_free(). */
static void on_timer_closed(uv_handle_t *handle)
{
    struct transport *transport = handle->data;
    CURLM *multi = transport->multi;

    (void)curl_multi_cleanup(multi);
    transport->multi = NULL;
    if (!transport->sockets)
        transport_release(transport);
}

void transport_free(struct transport *transport)
{
    if (!transport)
        return;
    transport->closed = true;
    uv_close((uv_handle_t *)&transport->timer, on_timer_closed);
}

uv_loop_t *transport_loop(struct transport *transport)
{
    return transport->loop;
}

void transport_forget_token(struct transport *transport)
{
    transport->token_read_ns = 0;
}

/* Keeps the former token if the file can't be read just now: it may be being replaced. */
static void refresh_token(struct transport *transport)
{
    int64_t now = clock_now_ns();
    char text[TOKEN_MAX], *token;
    ssize_t len;

    if (!transport->token_file ||
        (transport->token_read_ns && now - transport->token_read_ns < TOKEN_AGE_NS))
        return;
    transport->token_read_ns = now;
    len = file_read(transport->token_file, text, sizeof(text));
    if (len <= 0)
        return;
    text[strcspn(text, "\r\n")] = '\0';
    token = strdup(text);
    explicit_bzero(text, sizeof(text));
    if (!token)
        return;
    secret_free(transport->token);
    transport->token = token;
}

const char *transport_token(struct transport *transport)
{
    refresh_token(transport);
    return transport->token;
}

unsigned retry_pause_ms(unsigned retries)
{
    unsigned pause = backoff_ms(retries, PAUSE_FIRST_MS, PAUSE_MAX_MS);
    uint32_t random = 0;

    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
        random = (uint32_t)clock_now_ns();
    return pause / 2 + random % (pause / 2 + 1);
}
