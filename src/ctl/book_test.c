/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/book.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/util.h"

struct fixture {
    char path[64];
    struct book book;
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    COPY_TEXT(fixture->path, "/tmp/hami-book-XXXXXX");
    assert_non_null(mkdtemp(fixture->path));
    assert_int_equal(book_open(&fixture->book, fixture->path, NULL), 0);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    book_close(&fixture->book);
    book_remove(fixture->path);
    assert_int_equal(access(fixture->path, F_OK), -1);
    free(fixture);
    return 0;
}

static struct grant one_gib_of(const char *uuid)
{
    struct grant grant = {.keeper = getpid(), .started = 1700000000, .device_count = 1};

    COPY_TEXT(grant.devices[0].uuid, uuid);
    grant.devices[0].memory_bytes = GIB;
    grant.devices[0].cores = 30;
    grant_set_command(&grant, (char *[]){(char *)"train", (char *)"a\nb", NULL});
    return grant;
}

static int add(struct book *book, struct grant *grant)
{
    int fd;

    assert_int_equal(book_lock(book, NULL), 0);
    fd = book_add(book, grant, NULL);
    book_unlock(book);
    assert_true(fd >= 0);
    return fd;
}

static size_t count_grants(struct book *book)
{
    struct grant_list list;
    size_t count;

    assert_int_equal(book_lock(book, NULL), 0);
    assert_int_equal(book_list(book, &list, NULL), 0);
    book_unlock(book);
    count = list.count;
    grant_list_deinit(&list);
    return count;
}

/* A process that does as told and then waits to be killed. Returns when it has done so. */
static pid_t start(void (*act)(struct book *), const char *path)
{
    int done[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe2(done, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        struct book book;

        if (book_open(&book, path, NULL) < 0)
            _exit(1);
        act(&book);
        (void)!write(done[1], "", 1);
        for (;;)
            (void)pause();
    }
    (void)close(done[1]);
    assert_int_equal(read(done[0], &byte, 1), 1);
    (void)close(done[0]);
    return pid;
}

static void kill_hard(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void a_grant_is_read_as_it_was_written(void **state)
{
    struct fixture *fixture = *state;
    struct grant grant = one_gib_of("GPU-a");
    struct grant_list list;
    int fd = add(&fixture->book, &grant);

    book_set_program(fd, 77);
    assert_int_equal(book_list(&fixture->book, &list, NULL), 0);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.grants[0].id, grant.id);
    assert_int_equal(list.grants[0].keeper, getpid());
    assert_int_equal(list.grants[0].program, 77);
    assert_int_equal(list.grants[0].started, 1700000000);
    assert_string_equal(list.grants[0].command, "train a?b");
    assert_int_equal(list.grants[0].device_count, 1);
    assert_string_equal(list.grants[0].devices[0].uuid, "GPU-a");
    assert_int_equal(list.grants[0].devices[0].memory_bytes, GIB);
    assert_int_equal(list.grants[0].devices[0].cores, 30);
    grant_list_deinit(&list);
    book_release(&fixture->book, grant.id, fd);
    assert_int_equal(count_grants(&fixture->book), 0);
}

static void grants_add_up_on_their_devices(void **state)
{
    struct device devices[2] = {{.uuid = "GPU-a"}, {.uuid = "GPU-b"}};
    struct fixture *fixture = *state;
    struct grant_list list;
    struct grant grants[3] = {one_gib_of("GPU-b"), one_gib_of("GPU-b"), one_gib_of("GPU-gone")};
    int fds[3];

    for (int i = 0; i < 3; i++)
        fds[i] = add(&fixture->book, &grants[i]);
    assert_int_equal(book_list(&fixture->book, &list, NULL), 0);
    book_charge(&list, devices, 2);
    grant_list_deinit(&list);
    assert_int_equal(devices[0].used.slots, 0);
    assert_int_equal(devices[1].used.slots, 2);
    assert_int_equal(devices[1].used.cores, 60);
    assert_int_equal(devices[1].used.memory_bytes, 2 * GIB);
    for (int i = 0; i < 3; i++)
        book_release(&fixture->book, grants[i].id, fds[i]);
}

static void hold_a_grant(struct book *book)
{
    struct grant grant = one_gib_of("GPU-a");
    char path[PATH_MAX];

    (void)add(book, &grant);
    if (book_make_run(book, grant.id, path, NULL) == 0)
        (void)mkdirat(book->runs_fd, "1/vgpu", 0700);
}

static void a_killed_holder_holds_nothing(void **state)
{
    struct fixture *fixture = *state;
    pid_t pid = start(hold_a_grant, fixture->path);

    assert_int_equal(count_grants(&fixture->book), 1);
    assert_int_equal(faccessat(fixture->book.runs_fd, "1/vgpu", F_OK, 0), 0);
    kill_hard(pid);
    assert_int_equal(count_grants(&fixture->book), 0);
    assert_int_equal(faccessat(fixture->book.runs_fd, "1", F_OK, 0), -1);
}

static void whoever_inherits_the_descriptor_keeps_the_grant(void **state)
{
    struct fixture *fixture = *state;
    struct grant grant = one_gib_of("GPU-a");
    int fd = add(&fixture->book, &grant);
    pid_t heir = fork();

    if (heir == 0) {
        for (;;)
            (void)pause();
    }
    book_release(&fixture->book, grant.id, fd);
    assert_int_equal(count_grants(&fixture->book), 1);
    kill_hard(heir);
    assert_int_equal(count_grants(&fixture->book), 0);
}

static void hold_the_lock(struct book *book)
{
    (void)book_lock(book, NULL);
}

static void a_killed_hamictl_leaves_no_lock(void **state)
{
    struct fixture *fixture = *state;

    kill_hard(start(hold_the_lock, fixture->path));
    (void)alarm(5);
    assert_int_equal(count_grants(&fixture->book), 0);
    (void)alarm(0);
}

/* Killed between making the file and writing it. */
static void a_file_that_nobody_holds_is_swept(void **state)
{
    struct fixture *fixture = *state;
    int fd = openat(fixture->book.grants_fd, "41", O_WRONLY | O_CREAT, 0600);

    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(count_grants(&fixture->book), 0);
    assert_int_equal(faccessat(fixture->book.grants_fd, "41", F_OK, 0), -1);
}

static void what_cannot_be_read_but_is_held_stops_granting(void **state)
{
    static const char *const texts[] = {"",       "device=GPU-a much 0\n", "device=GPU-a 1\n",
                                        "what\n", "device=GPU-a 1 101\n",  "command=x\n"};
    struct fixture *fixture = *state;
    struct error err = ERROR_INIT;
    struct grant grant = one_gib_of("GPU-a");
    struct grant_list list;
    int fd = add(&fixture->book, &grant);

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        assert_int_equal(ftruncate(fd, 0), 0);
        (void)!write(fd, texts[i], strlen(texts[i]));
        assert_int_equal(book_list(&fixture->book, &list, &err), -EBADMSG);
        print_message("%s\n", err.text);
    }
    book_release(&fixture->book, grant.id, fd);
}

static void numbers_are_not_used_twice_even_without_their_counter(void **state)
{
    struct fixture *fixture = *state;
    struct grant first = one_gib_of("GPU-a"), second = one_gib_of("GPU-a");
    int fd = add(&fixture->book, &first);
    int other;

    assert_int_equal(ftruncate(fixture->book.lock_fd, 0), 0);
    other = add(&fixture->book, &second);
    assert_int_not_equal(first.id, second.id);
    assert_int_equal(count_grants(&fixture->book), 2);
    book_release(&fixture->book, first.id, fd);
    book_release(&fixture->book, second.id, other);
}

static void join(struct book *book)
{
    uint64_t id;

    (void)book_join_queue(book, &id, NULL);
}

static void the_queue_forgets_the_dead(void **state)
{
    struct fixture *fixture = *state;
    uint64_t id;
    pid_t first = start(join, fixture->path);
    pid_t second = start(join, fixture->path);
    int fd = book_join_queue(&fixture->book, &id, NULL);
    pid_t behind = start(join, fixture->path);

    assert_true(fd >= 0);
    assert_int_equal(book_find_predecessor(&fixture->book, id), 2);
    kill_hard(second);
    assert_int_equal(book_find_predecessor(&fixture->book, id), 1);
    kill_hard(first);
    assert_int_equal(book_find_predecessor(&fixture->book, id), 0);
    kill_hard(behind);
    book_leave_queue(&fixture->book, id, fd);
}

static void a_directory_in_use_is_not_to_be_removed(void **state)
{
    struct fixture *fixture = *state;
    struct error err = ERROR_INIT;
    pid_t pid = start(hold_a_grant, fixture->path);

    assert_int_equal(book_check_unused(fixture->path, &err), -EBUSY);
    kill_hard(pid);
    assert_int_equal(book_check_unused(fixture->path, &err), 0);
    assert_int_equal(book_check_unused("/nonexistent/x", &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_grant_is_read_as_it_was_written, setup, teardown),
        cmocka_unit_test_setup_teardown(grants_add_up_on_their_devices, setup, teardown),
        cmocka_unit_test_setup_teardown(a_killed_holder_holds_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(whoever_inherits_the_descriptor_keeps_the_grant, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_killed_hamictl_leaves_no_lock, setup, teardown),
        cmocka_unit_test_setup_teardown(a_file_that_nobody_holds_is_swept, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_but_is_held_stops_granting, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(numbers_are_not_used_twice_even_without_their_counter,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(the_queue_forgets_the_dead, setup, teardown),
        cmocka_unit_test_setup_teardown(a_directory_in_use_is_not_to_be_removed, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
