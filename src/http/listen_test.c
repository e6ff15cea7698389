/* SPDX-License-Identifier: Apache-2.0 */

/* What an address in the options means. */

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/util.h"
#include "http/internal.h"

static bool has_ipv6(void)
{
    const struct sockaddr_in6 loopback = {.sin6_family = AF_INET6,
                                          .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool has = fd >= 0 && bind(fd, (const struct sockaddr *)&loopback, sizeof(loopback)) == 0;

    if (fd >= 0)
        (void)close(fd);
    return has;
}

static unsigned port_of(int fd)
{
    struct sockaddr_storage name;
    socklen_t len = sizeof(name);

    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &len), 0);
    return ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
                                            : ((struct sockaddr_in *)&name)->sin_port);
}

/* A connection, or -1. */
static int connect_to(int family, in_addr_t four, unsigned port)
{
    const struct sockaddr_in to4 = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(four)};
    const struct sockaddr_in6 to6 = {.sin6_family = AF_INET6,
                                     .sin6_port = htons((uint16_t)port),
                                     .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(family, SOCK_STREAM, 0);
    int r = family == AF_INET6 ? connect(fd, (const struct sockaddr *)&to6, sizeof(to6))
                               : connect(fd, (const struct sockaddr *)&to4, sizeof(to4));

    if (r == 0)
        return fd;
    (void)close(fd);
    return -1;
}

static bool reached(int family, in_addr_t four, unsigned port)
{
    int fd = connect_to(family, four, port);

    if (fd >= 0)
        (void)close(fd);
    return fd >= 0;
}

#define OTHER 0x7f080908 /* 127.8.9.8 */

static void without_a_host_all_addresses_are_served(void **state)
{
    int fd = http_listen(":0", NULL);

    (void)state;
    assert_true(fd >= 0);
    assert_true(reached(AF_INET, INADDR_LOOPBACK, port_of(fd)));
    assert_true(reached(AF_INET, OTHER, port_of(fd)));
    if (has_ipv6())
        assert_true(reached(AF_INET6, 0, port_of(fd)));
    (void)close(fd);
}

static void a_host_is_the_only_address_that_is_served(void **state)
{
    int fd = http_listen("127.0.0.1:0", NULL);

    (void)state;
    assert_true(fd >= 0);
    assert_true(reached(AF_INET, INADDR_LOOPBACK, port_of(fd)));
    assert_false(reached(AF_INET, OTHER, port_of(fd)));
    (void)close(fd);
    if (!has_ipv6())
        return;
    fd = http_listen("[::1]:0", NULL);
    assert_true(fd >= 0);
    assert_true(reached(AF_INET6, 0, port_of(fd)));
    assert_false(reached(AF_INET, INADDR_LOOPBACK, port_of(fd)));
    (void)close(fd);
}

static void a_port_can_be_chosen_and_is_taken_once(void **state)
{
    struct error err = ERROR_INIT;
    char address[32];
    int fd = http_listen("127.0.0.1:0", NULL), client, accepted;
    unsigned port;

    (void)state;
    assert_true(fd >= 0);
    (void)snprintf(address, sizeof(address), "127.0.0.1:%u", port_of(fd));
    assert_int_equal(http_listen(address, &err), -EADDRINUSE);
    assert_non_null(strstr(err.text, address));

    /* A program that starts again need not wait for its former connections: the side that closes
     * first keeps them for a minute. */
    port = port_of(fd);
    client = connect_to(AF_INET, INADDR_LOOPBACK, port);
    accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(client >= 0 && accepted >= 0);
    (void)close(accepted);
    (void)close(client);
    (void)close(fd);
    fd = http_listen(address, NULL);
    assert_true(fd >= 0);
    assert_int_equal(port_of(fd), port);
    (void)close(fd);
}

static void what_is_no_address_is_refused(void **state)
{
    static const char *const wrong[] = {
        "", "localhost", "127.0.0.1", "127.0.0.1:", ":", "[::1:1", "127.0.0.1:http-of-nobody",
    };
    char endless[2048];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        struct error err = ERROR_INIT;

        assert_int_equal(http_listen(wrong[i], &err), -EINVAL);
        assert_true(err.text[0]);
    }
    memset(endless, 'h', sizeof(endless));
    (void)strcpy(endless + sizeof(endless) - 3, ":1");
    assert_int_equal(http_listen(endless, NULL), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_host_all_addresses_are_served),
        cmocka_unit_test(a_host_is_the_only_address_that_is_served),
        cmocka_unit_test(a_port_can_be_chosen_and_is_taken_once),
        cmocka_unit_test(what_is_no_address_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
