/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/transport.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/util.h"

enum {
    CONNECT_TIMEOUT_MS = 5000,
    KEEPALIVE_IDLE_S = 30,
    KEEPALIVE_INTERVAL_S = 10,
    UNACKNOWLEDGED_MS = 30000, /* until a connection counts as dead */
    CONNECTIONS_MAX = 64,
    CONNECTIONS_KEPT = 16,
    TOKEN_MAX = 32768,
    BACKOFF_FIRST_MS = 50,
    BACKOFF_MAX_MS = 5000,
};

/* A token file is read again after this. */
#define TOKEN_AGE_NS (10 * NS_PER_S)

/* A PEM text as a file that libcurl can be told of: nothing secret reaches a disk. */
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

    char *server;                  /* what URLs begin with */
    struct curl_slist *connect_to; /* the address, where the certificate has another name */
    char *proxy_url, *agent, *userinfo;
    bool insecure;
    struct secret_file ca_data, cert_data, key_data;
    char *ca_file, *cert_file, *key_file;

    char *token, *token_file;
    int64_t token_read_ns; /* 0: to be read */
};

struct socket {
    uv_poll_t poll;
    struct transport *transport;
    curl_socket_t fd;
};

static void drain(struct transport *transport)
{
    CURLMsg *message;
    int left;

    while (!transport->closed && (message = curl_multi_info_read(transport->multi, &left))) {
        CURLcode result = message->data.result;
        struct exchange *exchange = NULL;

        if (message->msg != CURLMSG_DONE)
            continue;
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&exchange);
        (void)curl_multi_remove_handle(transport->multi, message->easy_handle);
        exchange->done(exchange, result);
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
    drain(transport);
}

static void on_timer(uv_timer_t *timer)
{
    struct transport *transport = timer->data;
    int running;

    (void)curl_multi_socket_action(transport->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    drain(transport);
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
        (void)uv_timer_start(&transport->timer, on_timer, (uint64_t)timeout_ms, 0);
    return 0;
}

static void secret_close(struct secret_file *file)
{
    if (file->fd >= 0)
        (void)close(file->fd);
    file->fd = -1;
}

static void wipe(char *secret)
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
    wipe(transport->token);
    wipe(transport->userinfo);
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

static char *copy(const char *text, bool *failed)
{
    char *copied = text ? strdup(text) : NULL;

    *failed |= text && !copied;
    return copied;
}

/* The certificate is for another name than the address': asked for by that name, sent to the
 * address. */
static int use_server_name(struct transport *transport, const struct kube_config *config)
{
    const char *host = strstr(config->server, "//") + 2;
    const char *path = host + strcspn(host, "/");
    const char *port = memrchr(host, ':', (size_t)(path - host));
    AUTOFREE char *connect_to = NULL;

    if (!port || memchr(port, ']', (size_t)(path - port)))
        port = path; /* a colon within "[::1]" is none of the port's */
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

    transport->server = copy(config->server, &failed);
    transport->proxy_url = copy(config->proxy_url, &failed);
    transport->agent = copy(agent, &failed);
    transport->ca_file = copy(config->ca_file, &failed);
    transport->cert_file = copy(config->client_cert_file, &failed);
    transport->key_file = copy(config->client_key_file, &failed);
    transport->token = copy(config->token, &failed);
    transport->token_file = copy(config->token_file, &failed);
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

/* Here nothing of libcurl's is on the stack, whoever called transport_free(). */
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

/* Kept as it was where the file can't be read just now: it is replaced while we look. */
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
    wipe(transport->token);
    transport->token = token;
}

static int add_header(struct exchange *exchange, const char *name, const char *value)
{
    struct curl_slist *longer;
    char *line = NULL;

    if (asprintf(&line, "%s: %s", name, value) < 0)
        return -ENOMEM;
    longer = curl_slist_append(exchange->headers, line);
    wipe(line);
    if (!longer)
        return -ENOMEM;
    exchange->headers = longer;
    return 0;
}

static int add_token(struct exchange *exchange)
{
    struct transport *transport = exchange->transport;
    AUTOFREE char *value = NULL;
    int r;

    refresh_token(transport);
    if (!transport->token)
        return 0;
    if (asprintf(&value, "Bearer %s", transport->token) < 0) {
        value = NULL;
        return -ENOMEM;
    }
    r = add_header(exchange, "Authorization", value);
    explicit_bzero(value, strlen(value));
    return r;
}

static int add_headers(struct exchange *exchange, const struct exchange_spec *spec)
{
    struct curl_slist *longer;
    int r;

    r = add_header(exchange, "Accept", spec->accept);
    if (r == 0 && spec->body)
        r = add_header(exchange, "Content-Type", spec->content_type);
    if (r == 0)
        r = add_token(exchange);
    if (r < 0)
        return r;
    longer = curl_slist_append(exchange->headers, "Expect:");
    if (!longer)
        return -ENOMEM;
    exchange->headers = longer;
    return 0;
}

static size_t on_write(char *bytes, size_t size, size_t count, void *data)
{
    struct exchange *exchange = data;

    return exchange->write(exchange, bytes, size * count);
}

static int on_connect(void *data, curl_socket_t fd, curlsocktype purpose)
{
    unsigned timeout = UNACKNOWLEDGED_MS;

    (void)data;
    (void)purpose;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
    return CURL_SOCKOPT_OK;
}

static void set_security(CURL *easy, struct transport *transport)
{
    const struct {
        CURLoption option;
        const struct secret_file *data;
        const char *file;
    } files[] = {
        {CURLOPT_CAINFO, &transport->ca_data, transport->ca_file},
        {CURLOPT_SSLCERT, &transport->cert_data, transport->cert_file},
        {CURLOPT_SSLKEY, &transport->key_data, transport->key_file},
    };

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        const char *path = files[i].data->fd >= 0 ? files[i].data->path : files[i].file;

        if (path)
            (void)curl_easy_setopt(easy, files[i].option, path);
    }
    /* The cluster's authority alone: not whoever the machine trusts, read anew for each connection.
     */
    if (transport->ca_data.fd >= 0 || transport->ca_file)
        (void)curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    if (transport->insecure) {
        (void)curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
        (void)curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (transport->userinfo)
        (void)curl_easy_setopt(easy, CURLOPT_USERPWD, transport->userinfo);
}

static void set_connection(CURL *easy, struct transport *transport)
{
    (void)curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_TIMEOUT_MS);
    (void)curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, (long)KEEPALIVE_IDLE_S);
    (void)curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, (long)KEEPALIVE_INTERVAL_S);
    (void)curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_connect);
    (void)curl_easy_setopt(easy, CURLOPT_USERAGENT, transport->agent);
    if (transport->proxy_url)
        (void)curl_easy_setopt(easy, CURLOPT_PROXY, transport->proxy_url);
}

static size_t on_read(char *to, size_t size, size_t count, void *data)
{
    struct exchange *exchange = data;
    size_t len = MIN(size * count, exchange->body_left);

    memcpy(to, exchange->body, len);
    exchange->body += len;
    exchange->body_left -= len;
    return len;
}

/*
 * When a connection that was used before dies without an answer, libcurl sends the request again,
 * unseen. Of a POST, which may have been carried out, it must not: the body is given to it once,
 * with no way back to its beginning.
 */
static void set_body_once(struct exchange *exchange, const struct exchange_spec *spec)
{
    CURL *easy = exchange->easy;

    exchange->body = spec->body;
    exchange->body_left = spec->body_len;
    (void)curl_easy_setopt(easy, CURLOPT_POST, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_read);
    (void)curl_easy_setopt(easy, CURLOPT_READDATA, exchange);
    (void)curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)spec->body_len);
}

static void set_method(struct exchange *exchange, const struct exchange_spec *spec)
{
    CURL *easy = exchange->easy;
    static const char *const names[] = {
        [KUBE_GET] = "GET",     [KUBE_POST] = "POST",     [KUBE_PUT] = "PUT",
        [KUBE_PATCH] = "PATCH", [KUBE_DELETE] = "DELETE",
    };

    if (spec->body && spec->method == KUBE_POST) {
        set_body_once(exchange, spec);
    } else if (spec->body) {
        (void)curl_easy_setopt(easy, CURLOPT_POSTFIELDS, spec->body);
        (void)curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)spec->body_len);
    }
    if (spec->method != KUBE_GET)
        (void)curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, names[spec->method]);
}

static int set_url(struct exchange *exchange, const char *path)
{
    struct transport *transport = exchange->transport;
    AUTOFREE char *url = NULL;

    if (asprintf(&url, "%s%s", transport->server, path) < 0) {
        url = NULL;
        return -ENOMEM;
    }
    if (curl_easy_setopt(exchange->easy, CURLOPT_URL, url) != CURLE_OK)
        return -ENOMEM;
    if (transport->connect_to)
        (void)curl_easy_setopt(exchange->easy, CURLOPT_CONNECT_TO, transport->connect_to);
    return 0;
}

static int prepare(struct exchange *exchange, const struct exchange_spec *spec)
{
    CURL *easy = exchange->easy;
    int r;

    r = set_url(exchange, spec->path);
    if (r == 0)
        r = add_headers(exchange, spec);
    if (r < 0)
        return r;
    set_connection(easy, exchange->transport);
    set_security(easy, exchange->transport);
    set_method(exchange, spec);
    (void)curl_easy_setopt(easy, CURLOPT_HTTPHEADER, exchange->headers);
    (void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)spec->timeout_ms);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_write);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange);
    (void)curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange);
    (void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->reason);
    return curl_multi_add_handle(exchange->transport->multi, easy) == CURLM_OK ? 0 : -ENOMEM;
}

int exchange_start(struct exchange *exchange, struct transport *transport,
                   const struct exchange_spec *spec)
{
    int r;

    exchange->transport = transport;
    exchange->headers = NULL;
    exchange->reason[0] = '\0';
    exchange->easy = curl_easy_init();
    if (!exchange->easy)
        return -ENOMEM;
    r = prepare(exchange, spec);
    if (r < 0)
        exchange_stop(exchange);
    return r;
}

void exchange_stop(struct exchange *exchange)
{
    if (!exchange->easy)
        return;
    (void)curl_multi_remove_handle(exchange->transport->multi, exchange->easy);
    curl_easy_cleanup(exchange->easy);
    exchange->easy = NULL;
    for (struct curl_slist *line = exchange->headers; line; line = line->next)
        explicit_bzero(line->data, strlen(line->data));
    curl_slist_free_all(exchange->headers);
    exchange->headers = NULL;
}

unsigned exchange_status(struct exchange *exchange)
{
    long status = 0;

    if (exchange->easy)
        (void)curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
    return (unsigned)status;
}

unsigned exchange_retry_after(struct exchange *exchange)
{
    curl_off_t seconds = 0;

    if (exchange->easy)
        (void)curl_easy_getinfo(exchange->easy, CURLINFO_RETRY_AFTER, &seconds);
    return seconds > 0 && seconds < 3600 ? (unsigned)seconds : 0;
}

void exchange_resume(struct exchange *exchange)
{
    if (exchange->easy)
        (void)curl_easy_pause(exchange->easy, CURLPAUSE_CONT);
}

int exchange_errno(CURLcode result)
{
    switch (result) {
    case CURLE_OK:
        return 0;
    case CURLE_OPERATION_TIMEDOUT:
        return -ETIMEDOUT;
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return -ECONNREFUSED;
    case CURLE_OUT_OF_MEMORY:
        return -ENOMEM;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
        return -EKEYREJECTED;
    default:
        return -EIO;
    }
}

const char *exchange_reason(const struct exchange *exchange, CURLcode result)
{
    if (result == CURLE_SEND_FAIL_REWIND)
        return "the connection ended before an answer came";
    return exchange->reason[0] ? exchange->reason : curl_easy_strerror(result);
}

unsigned backoff_ms(unsigned attempt)
{
    unsigned pause = BACKOFF_MAX_MS;
    uint32_t random = 0;

    if (attempt < 7)
        pause = MIN((unsigned)BACKOFF_FIRST_MS << attempt, pause);
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
        random = (uint32_t)clock_now_ns();
    return pause / 2 + random % (pause / 2 + 1);
}
