/* SPDX-License-Identifier: Apache-2.0 */

/* RFC 8446, 4.1.2 (ClientHello) and 5.1 (records); RFC 7301, 3.1 (its ALPN extension). */

#include <string.h>

#include "http/internal.h"

enum {
    RECORD_HEADER = 5,
    RECORD_HANDSHAKE = 22,
    HANDSHAKE_CLIENT_HELLO = 1,
    EXTENSION_ALPN = 16,
};

/* Bytes to be read; a read beyond the end empties it. */
struct span {
    const unsigned char *bytes;
    size_t len;
};

static struct span hello_take(struct span *from, size_t len)
{
    struct span taken = {from->bytes, len};

    if (len > from->len) {
        *from = taken = (struct span){from->bytes, 0};
        return taken;
    }
    from->bytes += len;
    from->len -= len;
    return taken;
}

/* A number of so many bytes, big end first. */
static size_t take_number(struct span *from, size_t size)
{
    struct span taken = hello_take(from, size);
    size_t number = 0;

    for (size_t i = 0; i < taken.len; i++)
        number = number << 8 | taken.bytes[i];
    return number;
}

/* A vector: its length, a number of so many bytes, then its bytes. */
static struct span take_vector(struct span *from, size_t size)
{
    return hello_take(from, take_number(from, size));
}

static bool names_h2(struct span extension)
{
    struct span names = take_vector(&extension, 2);

    while (names.len) {
        struct span name = take_vector(&names, 1);

        if (name.len == 2 && memcmp(name.bytes, "h2", 2) == 0)
            return true;
    }
    return false;
}

bool hello_offers_h2(const unsigned char *bytes, size_t len, size_t *ret_want)
{
    struct span record = {bytes, len}, hello, extensions;
    size_t record_len;

    *ret_want = 0;
    if (len < RECORD_HEADER) {
        *ret_want = RECORD_HEADER;
        return false;
    }
    if (take_number(&record, 1) != RECORD_HANDSHAKE)
        return false;
    (void)hello_take(&record, 2);
    record_len = take_number(&record, 2);
    if (record_len > HELLO_MAX - RECORD_HEADER)
        return false;
    if (record_len > record.len) {
        *ret_want = RECORD_HEADER + record_len;
        return false;
    }
    if (take_number(&record, 1) != HANDSHAKE_CLIENT_HELLO)
        return false;
    hello = take_vector(&record, 3);
    (void)hello_take(&hello, 2 + 32); /* version, random */
    (void)take_vector(&hello, 1);     /* session */
    (void)take_vector(&hello, 2);     /* cipher suites */
    (void)take_vector(&hello, 1);     /* compression */
    extensions = take_vector(&hello, 2);
    while (extensions.len) {
        size_t type = take_number(&extensions, 2);
        struct span extension = take_vector(&extensions, 2);

        if (type == EXTENSION_ALPN)
            return names_h2(extension);
    }
    return false;
}
