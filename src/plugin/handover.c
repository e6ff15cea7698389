/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/handover.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"

enum {
    WAIT_MS = 1000,
    BACKLOG = 4,
};

struct handover {
    uv_poll_t poll;
    int listener;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    dev_t dev; /* of our socket, so that another plugin's is not removed */
    ino_t ino;
    bool (*takes)(void *data);
    void *data;
    int fds[HANDOVER_MAX];
    size_t count;
};

/* One byte, and descriptors beside it. */
union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(HANDOVER_MAX * sizeof(int))];
};

static int address_of(const char *path, struct sockaddr_un *ret_address)
{
    *ret_address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(ret_address->sun_path))
        return -ENAMETOOLONG;
    COPY_TEXT(ret_address->sun_path, path);
    return 0;
}

static void set_wait(int fd)
{
    const struct timeval wait = {.tv_sec = WAIT_MS / 1000};

    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
}

/* Taking */

static void close_all(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        (void)close(fds[i]);
}

/* Returns how many descriptors came; they are the caller's. */
static size_t receive_fds(int connection, int ret_fds[static HANDOVER_MAX])
{
    union control control;
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    const struct cmsghdr *header;
    size_t count;

    if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) != 1)
        return 0;
    header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
        return 0;
    count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(ret_fds, CMSG_DATA(header), count * sizeof(int));
    return count;
}

static void take_fds(struct handover *handover, int connection)
{
    int fds[HANDOVER_MAX];
    size_t count = receive_fds(connection, fds);
    bool taken =
        count && handover->count + count <= HANDOVER_MAX && handover->takes(handover->data);
    const char answer = taken ? 'y' : 'n';

    if (!taken || send(connection, &answer, 1, MSG_NOSIGNAL) != 1) {
        close_all(fds, count);
        (void)send(connection, "n", 1, MSG_NOSIGNAL);
        return;
    }
    memcpy(&handover->fds[handover->count], fds, count * sizeof(int));
    handover->count += count;
    log_info("an earlier one of us has handed %zu connection%s of kubelet's over", count,
             count == 1 ? "" : "s");
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct handover *handover = poll->data;
    AUTOCLOSE int connection = -1;

    (void)events;
    if (status < 0)
        return;
    connection = accept4(handover->listener, NULL, NULL, SOCK_CLOEXEC);
    if (connection < 0)
        return;
    set_wait(connection);
    take_fds(handover, connection);
}

/* Renames the socket into place, so that there is one at every moment. */
static int bind_socket(struct handover *handover)
{
    struct sockaddr_un address;
    char beside[sizeof(address.sun_path) + 16];
    struct stat st;
    int r;

    (void)snprintf(beside, sizeof(beside), "%s.%d", handover->path, (int)getpid());
    r = address_of(beside, &address);
    if (r < 0)
        return r;
    (void)unlink(beside);
    if (bind(handover->listener, (struct sockaddr *)&address, sizeof(address)) < 0)
        return -errno;
    if (chmod(beside, 0600) < 0 || lstat(beside, &st) < 0 ||
        listen(handover->listener, BACKLOG) < 0 || rename(beside, handover->path) < 0) {
        r = -errno;
        (void)unlink(beside);
        return r;
    }
    handover->dev = st.st_dev;
    handover->ino = st.st_ino;
    return 0;
}

int handover_new(uv_loop_t *loop, const char *path, bool (*takes)(void *data), void *data,
                 struct handover **ret_handover, struct error *err)
{
    struct handover *handover = calloc(1, sizeof(*handover));
    struct sockaddr_un address;
    int r;

    if (!handover)
        return error_set(err, -ENOMEM, "no memory");
    handover->takes = takes;
    handover->data = data;
    r = address_of(path, &address);
    COPY_TEXT(handover->path, path);
    handover->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (r == 0)
        r = handover->listener < 0 ? -errno : bind_socket(handover);
    if (r == 0)
        r = uv_poll_init(loop, &handover->poll, handover->listener);
    if (r < 0) {
        if (handover->listener >= 0)
            (void)close(handover->listener);
        free(handover);
        return error_set(err, r, "cannot listen on %s: %s", path, strerror(-r));
    }
    handover->poll.data = handover;
    (void)uv_poll_start(&handover->poll, UV_READABLE, on_readable);
    *ret_handover = handover;
    return 0;
}

static void handover_on_closed(uv_handle_t *handle)
{
    struct handover *handover = handle->data;

    (void)close(handover->listener);
    free(handover);
}

void handover_forget(struct handover *handover)
{
    close_all(handover->fds, handover->count);
    handover->count = 0;
}

void handover_free(struct handover *handover)
{
    struct stat st;

    if (!handover)
        return;
    handover_forget(handover);
    if (lstat(handover->path, &st) == 0 && st.st_dev == handover->dev && st.st_ino == handover->ino)
        (void)unlink(handover->path);
    uv_close((uv_handle_t *)&handover->poll, handover_on_closed);
}

size_t handover_held(const struct handover *handover, int ret_fds[static HANDOVER_MAX])
{
    memcpy(ret_fds, handover->fds, handover->count * sizeof(int));
    return handover->count;
}

/* Giving */

static int send_all(int connection, const int *fds, size_t count)
{
    union control control = {.bytes = ""};
    char byte = 'h';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, count * sizeof(int));
    return sendmsg(connection, &message, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

int handover_give(const char *path, const int *fds, size_t count)
{
    AUTOCLOSE int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address;
    char answer = 'n';
    int r;

    if (!count || count > HANDOVER_MAX)
        return -EINVAL;
    r = address_of(path, &address);
    if (r < 0 || connection < 0)
        return r < 0 ? r : -EMFILE;
    set_wait(connection);
    if (connect(connection, (struct sockaddr *)&address, sizeof(address)) < 0)
        return -errno;
    r = send_all(connection, fds, count);
    if (r == 0 && recv(connection, &answer, 1, 0) != 1)
        r = -ETIMEDOUT;
    return r == 0 && answer != 'y' ? -EAGAIN : r;
}
