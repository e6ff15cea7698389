/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "base/parse.h"
#include "base/util.h"
#include "http/internal.h"

/* "HOST:PORT", the host perhaps in brackets or missing. */
static int split_address(const char *address, char host[static NI_MAXHOST], const char **ret_port,
                         struct error *err)
{
    const char *colon = strrchr(address, ':');
    size_t len = colon ? (size_t)(colon - address) : 0;

    if (!colon || !colon[1] || len >= NI_MAXHOST)
        return error_set(err, -EINVAL, "%s: not an address as HOST:PORT", address);
    if (len >= 2 && address[0] == '[' && address[len - 1] == ']') {
        address++;
        len -= 2;
    }
    memcpy(host, address, len);
    host[len] = '\0';
    *ret_port = colon + 1;
    return 0;
}

/* A number, or the name of a service, which /etc/services knows. */
static bool is_port(const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    uint64_t number;

    if (parse_u64(port, &number) == 0)
        return number <= UINT16_MAX;
    if (getaddrinfo(NULL, port, &hints, &list) != 0)
        return false;
    freeaddrinfo(list);
    return true;
}

int http_read_address(char *text, void *member, struct error *err)
{
    char host[NI_MAXHOST];
    const char *port = NULL;
    int r = split_address(text, host, &port, err);

    if (r < 0)
        return r;
    if (!is_port(port))
        return error_set(err, -EINVAL, "%s: \"%s\" is not a port", text, port);
    *(const char **)member = text;
    return 0;
}

static int listen_on(const struct addrinfo *info)
{
    const int on = 1, off = 0;
    AUTOCLOSE int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (info->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, info->ai_addr, info->ai_addrlen) < 0 || listen(fd, SOMAXCONN) < 0)
        return -errno;
    return take_fd(&fd);
}

/* Without a host both kinds of addresses are listened on, where the machine has both. */
int http_listen(const char *address, struct error *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    char host[NI_MAXHOST];
    const char *port = NULL;
    int fd = -EADDRNOTAVAIL, r;

    r = split_address(address, host, &port, err);
    if (r < 0)
        return r;
    hints.ai_family = host[0] ? AF_UNSPEC : AF_INET6;
    r = getaddrinfo(host[0] ? host : NULL, port, &hints, &list);
    if (r != 0)
        return error_set(err, -EINVAL, "listening on %s: %s", address, gai_strerror(r));
    for (const struct addrinfo *info = list; info && fd < 0; info = info->ai_next)
        fd = listen_on(info);
    freeaddrinfo(list);
    if (fd < 0 && !host[0] && fd != -EADDRINUSE) {
        struct sockaddr_in four = {.sin_family = AF_INET};
        struct addrinfo any = {
            .ai_family = AF_INET, .ai_addr = (struct sockaddr *)&four, .ai_addrlen = sizeof(four)};

        four.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
        fd = listen_on(&any);
    }
    return fd < 0 ? error_set(err, fd, "listening on %s: %s", address, strerror(-fd)) : fd;
}
