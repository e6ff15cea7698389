/* SPDX-License-Identifier: Apache-2.0 */

/* One request and its answer, as a transfer of libcurl's. */

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/util.h"
#include "kube/transport_state.h"

enum {
    CONNECT_TIMEOUT_MS = 5000,
    KEEPALIVE_IDLE_S = 30,
    RETRY_AFTER_MAX_S = 30, /* a longer wish may be a proxy's mistake */
    KEEPALIVE_INTERVAL_S = 10,
    UNACKNOWLEDGED_MS = 30000, /* until a connection counts as dead */
};

static int add_header(struct transfer *transfer, const char *name, const char *value)
{
    struct curl_slist *longer;
    char *line = NULL;

    if (asprintf(&line, "%s: %s", name, value) < 0)
        return -ENOMEM;
    longer = curl_slist_append(transfer->headers, line);
    secret_free(line);
    if (!longer)
        return -ENOMEM;
    transfer->headers = longer;
    return 0;
}

static int add_token(struct transfer *transfer)
{
    const char *token = transport_token(transfer->transport);
    AUTOFREE char *value = NULL;
    int r;

    if (!token)
        return 0;
    if (asprintf(&value, "Bearer %s", token) < 0) {
        value = NULL;
        return -ENOMEM;
    }
    r = add_header(transfer, "Authorization", value);
    explicit_bzero(value, strlen(value));
    return r;
}

static int add_headers(struct transfer *transfer, const struct transfer_spec *spec)
{
    struct curl_slist *longer;
    int r;

    r = add_header(transfer, "Accept", spec->accept);
    if (r == 0 && spec->body)
        r = add_header(transfer, "Content-Type", spec->content_type);
    if (r == 0)
        r = add_token(transfer);
    if (r < 0)
        return r;
    longer = curl_slist_append(transfer->headers, "Expect:");
    if (!longer)
        return -ENOMEM;
    transfer->headers = longer;
    return 0;
}

static size_t transfer_on_write(char *bytes, size_t size, size_t count, void *data)
{
    struct transfer *transfer = data;

    transport_note_reached(transfer->transport);
    return transfer->write(transfer, bytes, size * count);
}

static int on_connect(void *data, curl_socket_t fd, curlsocktype purpose)
{
    unsigned timeout = UNACKNOWLEDGED_MS;
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};

    (void)data;
    (void)purpose;
    /* Else the kernel goes on sending the remaining bytes for minutes after the connection was
     * closed. */
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
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
    /* Only the cluster's authority counts, not the machine's, which libcurl would read for each
     * connection. */
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

static size_t transfer_on_read(char *to, size_t size, size_t count, void *data)
{
    struct transfer *transfer = data;
    size_t len = MIN(size * count, transfer->body_left);

    if (len && transfer->may_send && !transfer->may_send(transfer->may_send_data))
        return CURL_READFUNC_ABORT;
    memcpy(to, transfer->body, len);
    transfer->body += len;
    transfer->body_left -= len;
    return len;
}

/*
 * When a reused connection dies without an answer, libcurl silently sends the request again. A POST
 * may have been carried out, so it must not be sent again: libcurl gets the body once, with no way
 * back to its beginning.
 */
static void set_body_once(struct transfer *transfer, const struct transfer_spec *spec)
{
    CURL *easy = transfer->easy;

    transfer->body = spec->body;
    transfer->body_left = spec->body_len;
    transfer->may_send = spec->may_send;
    transfer->may_send_data = spec->may_send_data;
    (void)curl_easy_setopt(easy, CURLOPT_POST, 1L);
    (void)curl_easy_setopt(easy, CURLOPT_READFUNCTION, transfer_on_read);
    (void)curl_easy_setopt(easy, CURLOPT_READDATA, transfer);
    (void)curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)spec->body_len);
}

static void set_method(struct transfer *transfer, const struct transfer_spec *spec)
{
    CURL *easy = transfer->easy;
    static const char *const names[] = {
        [KUBE_GET] = "GET",     [KUBE_POST] = "POST",     [KUBE_PUT] = "PUT",
        [KUBE_PATCH] = "PATCH", [KUBE_DELETE] = "DELETE",
    };

    if (spec->body && spec->method == KUBE_POST) {
        set_body_once(transfer, spec);
    } else if (spec->body) {
        (void)curl_easy_setopt(easy, CURLOPT_POSTFIELDS, spec->body);
        (void)curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE, (long)spec->body_len);
    }
    if (spec->method != KUBE_GET)
        (void)curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, names[spec->method]);
}

static int set_url(struct transfer *transfer, const char *path)
{
    struct transport *transport = transfer->transport;
    AUTOFREE char *url = NULL;

    if (asprintf(&url, "%s%s", transport->server, path) < 0) {
        url = NULL;
        return -ENOMEM;
    }
    if (curl_easy_setopt(transfer->easy, CURLOPT_URL, url) != CURLE_OK)
        return -ENOMEM;
    if (transport->connect_to)
        (void)curl_easy_setopt(transfer->easy, CURLOPT_CONNECT_TO, transport->connect_to);
    return 0;
}

static int transfer_prepare(struct transfer *transfer, const struct transfer_spec *spec)
{
    CURL *easy = transfer->easy;
    int r;

    r = set_url(transfer, spec->path);
    if (r == 0)
        r = add_headers(transfer, spec);
    if (r < 0)
        return r;
    set_connection(easy, transfer->transport);
    set_security(easy, transfer->transport);
    set_method(transfer, spec);
    (void)curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer->headers);
    (void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)spec->timeout_ms);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, transfer_on_write);
    (void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer);
    (void)curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer);
    (void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->reason);
    return curl_multi_add_handle(transfer->transport->multi, easy) == CURLM_OK ? 0 : -ENOMEM;
}

int transfer_start(struct transfer *transfer, struct transport *transport,
                   const struct transfer_spec *spec)
{
    int r;

    transfer->transport = transport;
    transfer->headers = NULL;
    transfer->reason[0] = '\0';
    transfer->easy = curl_easy_init();
    if (!transfer->easy)
        return -ENOMEM;
    r = transfer_prepare(transfer, spec);
    if (r < 0)
        transfer_stop(transfer);
    return r;
}

void transfer_stop(struct transfer *transfer)
{
    if (!transfer->easy)
        return;
    (void)curl_multi_remove_handle(transfer->transport->multi, transfer->easy);
    curl_easy_cleanup(transfer->easy);
    transfer->easy = NULL;
    for (struct curl_slist *line = transfer->headers; line; line = line->next)
        explicit_bzero(line->data, strlen(line->data));
    curl_slist_free_all(transfer->headers);
    transfer->headers = NULL;
}

unsigned transfer_status(struct transfer *transfer)
{
    long status = 0;

    if (transfer->easy)
        (void)curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
    return (unsigned)status;
}

unsigned transfer_retry_after(struct transfer *transfer)
{
    curl_off_t seconds = 0;

    if (transfer->easy)
        (void)curl_easy_getinfo(transfer->easy, CURLINFO_RETRY_AFTER, &seconds);
    return seconds > 0 ? (unsigned)MIN(seconds, (curl_off_t)RETRY_AFTER_MAX_S) : 0;
}

void transfer_resume(struct transfer *transfer)
{
    if (transfer->easy)
        (void)curl_easy_pause(transfer->easy, CURLPAUSE_CONT);
}

int transfer_errno(CURLcode result)
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
    case CURLE_ABORTED_BY_CALLBACK:
        return -ECANCELED;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
        return -EKEYREJECTED;
    default:
        return -EIO;
    }
}

const char *transfer_reason(const struct transfer *transfer, CURLcode result)
{
    if (result == CURLE_SEND_FAIL_REWIND)
        return "the connection ended before an answer came";
    return transfer->reason[0] ? transfer->reason : curl_easy_strerror(result);
}
