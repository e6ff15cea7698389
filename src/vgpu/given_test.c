/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/given.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
/* cmocka.h needs some of the above */
#include <cmocka.h>

void given_after_fork(void);

enum {
    DEVICE = 3,
    UNITS = 100,
};

static int begin(void **state)
{
    (void)state;
    given_after_fork();
    return 0;
}

static int make(uint32_t id)
{
    int fd = eventfd(0, EFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_true(given_watch(fd, id, DEVICE));
    return fd;
}

/* The texts of a set, on Linux 6.1 and 3.10. */
static void a_line_tells_an_id(void **state)
{
    static const struct {
        const char *line;
        uint32_t id;
    } cases[] = {
        {"tfd:       14 events:       19 data: abcd123400000011  pos:0 ino:42 sdev:e", 0x11},
        {"tfd:       14 events:       19 data: abcd123400000012", 0x12},
        {"tfd:       14 events:       19 data: abcd123500000011  pos:0 ino:42 sdev:e", 0},
        {"tfd:       14 events:       19 data:               11  pos:0 ino:42 sdev:e", 0},
        {"tfd:", 0},
        {"pos:\t0", 0},
        {"x tfd: 1 data: abcd123400000011", 0},
        {"", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(given_line(cases[i].line, 0xabcd1234), cases[i].id);
}

static void it_keeps_while_one_is_open(void **state)
{
    uint32_t id = given_new(), other = given_new();
    int first = make(id), second = make(id), of_other = make(other);

    (void)state;
    assert_true(given_keep(id, DEVICE, UNITS));
    assert_int_equal(given_units(DEVICE), UNITS);
    assert_int_equal(given_look(DEVICE), 0);
    assert_int_equal(close(first), 0);
    assert_int_equal(given_look(DEVICE), 0);
    assert_int_equal(close(second), 0);
    assert_int_equal(given_look(DEVICE + 1), 0);
    assert_int_equal(given_look(DEVICE), UNITS);
    assert_int_equal(given_units(DEVICE), 0);
    assert_false(given_keep(id, DEVICE, UNITS));
    assert_true(given_keep(other, DEVICE, UNITS));
    assert_int_equal(close(of_other), 0);
    assert_int_equal(given_look(DEVICE), UNITS);
}

/* One descriptor may be of several pieces of memory. */
static void a_file_of_several_ids(void **state)
{
    uint32_t ids[] = {given_new(), given_new(), given_new()};
    int fd = make(ids[0]);

    (void)state;
    assert_true(given_watch(fd, ids[1], DEVICE));
    assert_true(given_watch(fd, ids[2], DEVICE));
    for (unsigned i = 0; i < 3; i++)
        assert_true(given_keep(ids[i], DEVICE, UNITS));
    assert_int_equal(given_look(DEVICE), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(given_look(DEVICE), 3 * UNITS);
}

/* As a dma-buf of what PyTorch's expandable segments map is. */
static void a_file_of_many_ids(void **state)
{
    enum { MANY = 300 };
    const uint32_t first = given_new();
    int fd = make(first);

    (void)state;
    for (unsigned i = 1; i < MANY; i++)
        assert_true(given_watch(fd, given_new(), DEVICE));
    for (unsigned i = 0; i < MANY; i++)
        assert_true(given_keep(first + i, DEVICE, 1));
    assert_int_equal(given_look(DEVICE), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(given_look(DEVICE), MANY);
}

/* As somebody does who is sent tensors of one piece of memory, and has each for a while. */
static void a_file_that_is_imported_again_and_again(void **state)
{
    enum { MANY = 300 };
    int fd = eventfd(0, EFD_CLOEXEC);
    uint32_t id = given_new();
    int of_other = make(id);

    (void)state;
    for (unsigned i = 0; i < MANY; i++) {
        int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);

        assert_true(given_watch(own, given_imported(), 0));
        assert_int_equal(close(own), 0);
    }
    assert_true(given_is_open(given_imported()));
    assert_int_equal(close(fd), 0);
    assert_false(given_is_open(given_imported()));
    assert_true(given_keep(id, DEVICE, UNITS));
    assert_int_equal(close(of_other), 0);
    assert_int_equal(given_look(DEVICE), UNITS);
}

/* The next calls are answered so, before the kernel is asked. */
static struct {
    unsigned calls;
    int error;
} answers;

int epoll_ctl(int set, int op, int fd, struct epoll_event *event)
{
    if (!answers.calls)
        return (int)syscall(SYS_epoll_ctl, set, op, fd, event);
    answers.calls--;
    errno = answers.error;
    return -1;
}

/* A signal's handler left its own number there. */
static void one_strange_error_is_not_believed(void **state)
{
    uint32_t id = given_new();
    int fd;

    (void)state;
    assert_int_equal(close(make(id)), 0);
    answers.calls = 1;
    answers.error = EINTR;
    fd = make(id);
    assert_true(given_keep(id, DEVICE, UNITS));
    assert_int_equal(close(fd), 0);
    assert_int_equal(given_look(DEVICE), UNITS);
}

/* The user's sets have as many files as they may: others may give some back. */
static void a_full_set_is_a_shortage(void **state)
{
    uint32_t id = given_new();
    int fd = eventfd(0, EFD_CLOEXEC);

    (void)state;
    assert_int_equal(close(make(id)), 0);
    answers.calls = 1;
    answers.error = ENOSPC;
    assert_false(given_watch(fd, id, DEVICE));
    assert_true(given_watch(fd, id, DEVICE));
    assert_true(given_keep(id, DEVICE, UNITS));
    assert_int_equal(close(fd), 0);
    assert_int_equal(given_look(DEVICE), UNITS);
}

static void send_fd(int through, int fd)
{
    char text[] = "x";
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr head;
    } control = {.bytes = {0}};
    struct iovec byte = {text, 1};
    struct msghdr message = {
        .msg_iov = &byte,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };

    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_RIGHTS;
    control.head.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
    assert_int_equal(sendmsg(through, &message, 0), 1);
}

/* On its way it is in nobody's table. */
static void one_that_is_sent_is_open(void **state)
{
    uint32_t id = given_new();
    int fd = make(id), pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    send_fd(pair[0], fd);
    assert_int_equal(close(fd), 0);
    assert_true(given_keep(id, DEVICE, UNITS));
    assert_int_equal(given_look(DEVICE), 0);
    assert_int_equal(close(pair[0]), 0);
    assert_int_equal(given_look(DEVICE), 0);
    assert_int_equal(close(pair[1]), 0);
    assert_int_equal(given_look(DEVICE), UNITS);
}

static void one_in_another_process_is_open(void **state)
{
    uint32_t id = given_new();
    int fd = make(id);
    pid_t child = fork();

    (void)state;
    if (!child) {
        (void)pause();
        _exit(0);
    }
    assert_int_equal(close(fd), 0);
    assert_true(given_keep(id, DEVICE, UNITS));
    assert_int_equal(given_look(DEVICE), 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(given_look(DEVICE), UNITS);
}

static void many_are_all_seen(void **state)
{
    enum { MANY = 300 };
    int fds[MANY];
    uint32_t ids[MANY];

    (void)state;
    for (unsigned i = 0; i < MANY; i++) {
        ids[i] = given_new();
        fds[i] = make(ids[i]);
        assert_true(given_keep(ids[i], DEVICE, 1));
    }
    assert_int_equal(given_look(DEVICE), 0);
    for (unsigned i = 0; i < MANY; i += 2)
        assert_int_equal(close(fds[i]), 0);
    assert_int_equal(given_look(DEVICE), MANY / 2);
    for (unsigned i = 1; i < MANY; i += 2)
        assert_int_equal(close(fds[i]), 0);
    assert_int_equal(given_look(DEVICE), MANY / 2);
}

/* Of any number; what is closed before its maker lets go of it takes no room for long. */
static void any_number_may_be_closed_first(void **state)
{
    enum { MANY = 1500 };
    uint32_t id = given_new();
    int fd = make(id), sum = 0;

    (void)state;
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(close(make(given_new())), 0);
    assert_false(given_keep(given_new(), DEVICE, UNITS));
    assert_true(given_keep(id, DEVICE, UNITS));
    assert_int_equal(given_look(DEVICE), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(given_look(DEVICE), UNITS);
    for (unsigned i = 0; i < MANY; i++) {
        id = given_new();
        fd = make(id);
        assert_true(given_keep(id, DEVICE, 1));
        assert_int_equal(close(fd), 0);
    }
    for (unsigned i = 0; i < 2; i++)
        sum += (int)given_look(DEVICE);
    assert_int_equal(sum, MANY);
}

/* More than there is room for at first. */
static void any_number_may_be_open(void **state)
{
    enum { MANY = 1200 };
    struct rlimit all;
    int fds[MANY];

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
    if (all.rlim_max < MANY + 100) {
        print_message("skipped: the system allows no %d descriptors\n", MANY);
        return;
    }
    all.rlim_cur = all.rlim_cur > MANY + 100 ? all.rlim_cur : MANY + 100;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
    for (unsigned i = 0; i < MANY; i++) {
        uint32_t id = given_new();

        fds[i] = make(id);
        assert_true(given_keep(id, DEVICE, 1));
    }
    assert_int_equal(given_look(DEVICE), 0);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(close(fds[i]), 0);
    assert_int_equal(given_look(DEVICE), MANY);
}

static void what_is_being_given_is_kept(void **state)
{
    const uint32_t id = given_any(DEVICE);

    (void)state;
    assert_false(given_keep(id, DEVICE, UNITS));
    given_begin(id, DEVICE);
    assert_true(given_keep(id, DEVICE, UNITS));
    assert_int_equal(given_look(DEVICE), 0);
    given_end(id, DEVICE);
    assert_int_equal(given_look(DEVICE), UNITS);
}

/* Leaves so many descriptors; returns what was before. */
static struct rlimit leave(unsigned descriptors)
{
    struct rlimit all, few;
    int end = 0;

    while (fcntl(end, F_GETFD) >= 0 || descriptors--)
        end++;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
    few = (struct rlimit){.rlim_cur = (rlim_t)end, .rlim_max = all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    return all;
}

static bool watch_with(unsigned descriptors, int fd, uint32_t id)
{
    struct rlimit all = leave(descriptors);
    bool watched = given_watch(fd, id, DEVICE);

    assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
    return watched;
}

static void the_first_one_needs_two_more(void **state)
{
    uint32_t id = given_new();
    int fd = eventfd(0, EFD_CLOEXEC);

    (void)state;
    assert_false(watch_with(0, fd, id));
    assert_false(watch_with(1, fd, id));
    assert_false(given_keep(id, DEVICE, UNITS));
    assert_true(watch_with(2, fd, id));
    assert_true(given_keep(id, DEVICE, UNITS));
    assert_int_equal(given_look(DEVICE), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(given_look(DEVICE), UNITS);
}

static void later_ones_need_no_more(void **state)
{
    uint32_t ids[] = {given_new(), given_new(), given_new()};
    int first = make(ids[0]), fd = eventfd(0, EFD_CLOEXEC);

    (void)state;
    assert_true(watch_with(0, fd, ids[1]));
    assert_false(watch_with(0, fd, ids[2])); /* a second id of one file does */
    assert_true(given_keep(ids[1], DEVICE, UNITS));
    assert_false(given_keep(ids[2], DEVICE, UNITS));
    assert_int_equal(given_look(DEVICE), 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(given_look(DEVICE), UNITS);
    assert_int_equal(close(first), 0);
}

/* Until there is a descriptor to look by. */
static void what_cannot_be_looked_at_is_open(void **state)
{
    uint32_t id = given_new();
    int fd = make(id);
    struct rlimit all;

    (void)state;
    assert_true(given_keep(id, DEVICE, UNITS));
    assert_int_equal(close(fd), 0);
    all = leave(0);
    assert_int_equal(given_look(DEVICE), 0);
    assert_int_equal(given_units(DEVICE), UNITS);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
    assert_int_equal(given_look(DEVICE), UNITS);
    assert_int_equal(given_units(DEVICE), 0);
}

/* A file that can't be in a set, and a set that the program closed: nothing is known any more. */
static void what_is_not_seen_is_open(void **state)
{
    uint32_t id = given_new();
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    (void)state;
    assert_true(given_watch(fd, id, DEVICE));
    assert_int_equal(close(fd), 0);
    assert_true(given_keep(id, DEVICE, UNITS));
    assert_int_equal(given_look(DEVICE), 0);
    assert_int_equal(given_units(DEVICE), UNITS);
}

static bool is_set(int fd)
{
    struct epoll_event event = {0};

    return epoll_ctl(fd, EPOLL_CTL_DEL, 0, &event) == 0 || errno != EINVAL;
}

static void a_set_that_was_replaced_tells_nothing(void **state)
{
    uint32_t id = given_new();
    int fd = make(id), own = epoll_create1(EPOLL_CLOEXEC);

    (void)state;
    assert_true(given_keep(id, DEVICE, UNITS));
    for (int i = 3; i < 4096; i++) {
        if (i != own && fcntl(i, F_GETFD) >= 0 && is_set(i))
            assert_int_equal(dup2(own, i), i);
    }
    assert_int_equal(close(fd), 0);
    assert_int_equal(given_look(DEVICE), 0);
    assert_int_equal(given_units(DEVICE), UNITS);
}

/* By the descriptor that the program has. */
static void none_is_taken_out_of_a_set(void **state)
{
    uint32_t id = given_new();
    int fd = make(id);

    (void)state;
    assert_true(given_keep(id, DEVICE, UNITS));
    for (int i = 3; i < 4096; i++) {
        if (fcntl(i, F_GETFD) >= 0 && is_set(i))
            assert_int_equal(epoll_ctl(i, EPOLL_CTL_DEL, fd, NULL), -1);
    }
    assert_int_equal(given_look(DEVICE), 0);
    assert_int_equal(given_units(DEVICE), UNITS);
    assert_int_equal(close(fd), 0);
    assert_int_equal(given_look(DEVICE), UNITS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_line_tells_an_id, begin),
        cmocka_unit_test_setup(it_keeps_while_one_is_open, begin),
        cmocka_unit_test_setup(a_file_of_several_ids, begin),
        cmocka_unit_test_setup(a_file_of_many_ids, begin),
        cmocka_unit_test_setup(a_file_that_is_imported_again_and_again, begin),
        cmocka_unit_test_setup(one_strange_error_is_not_believed, begin),
        cmocka_unit_test_setup(a_full_set_is_a_shortage, begin),
        cmocka_unit_test_setup(one_that_is_sent_is_open, begin),
        cmocka_unit_test_setup(one_in_another_process_is_open, begin),
        cmocka_unit_test_setup(many_are_all_seen, begin),
        cmocka_unit_test_setup(any_number_may_be_closed_first, begin),
        cmocka_unit_test_setup(any_number_may_be_open, begin),
        cmocka_unit_test_setup(what_is_being_given_is_kept, begin),
        cmocka_unit_test_setup(the_first_one_needs_two_more, begin),
        cmocka_unit_test_setup(later_ones_need_no_more, begin),
        cmocka_unit_test_setup(what_cannot_be_looked_at_is_open, begin),
        cmocka_unit_test_setup(what_is_not_seen_is_open, begin),
        cmocka_unit_test_setup(a_set_that_was_replaced_tells_nothing, begin),
        cmocka_unit_test_setup(none_is_taken_out_of_a_set, begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
