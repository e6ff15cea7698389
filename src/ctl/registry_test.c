/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/registry.h"

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
    struct registry registry;
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    COPY_TEXT(fixture->path, "/tmp/hami-registry-XXXXXX");
    assert_non_null(mkdtemp(fixture->path));
    assert_int_equal(registry_open(&fixture->registry, fixture->path, NULL), 0);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;

    registry_close(&fixture->registry);
    registry_remove(fixture->path);
    assert_int_equal(access(fixture->path, F_OK), -1);
    free(fixture);
    return 0;
}

static struct lease one_gib_of(const char *uuid)
{
    struct lease lease = {.keeper = getpid(), .started = 1700000000, .device_count = 1};

    COPY_TEXT(lease.devices[0].uuid, uuid);
    lease.devices[0].memory_bytes = GIB;
    lease.devices[0].cores = 30;
    lease_set_command(&lease, (char *[]){(char *)"train", (char *)"a\nb", NULL});
    return lease;
}

static int add(struct registry *registry, struct lease *lease)
{
    int fd;

    assert_int_equal(registry_lock(registry, NULL), 0);
    fd = registry_add(registry, lease, NULL);
    registry_unlock(registry);
    assert_true(fd >= 0);
    return fd;
}

static size_t count_leases(struct registry *registry)
{
    struct lease_list list;
    size_t count;

    assert_int_equal(registry_lock(registry, NULL), 0);
    assert_int_equal(registry_list(registry, &list, NULL), 0);
    registry_unlock(registry);
    count = list.count;
    lease_list_deinit(&list);
    return count;
}

/* A process that does as told and then waits to be killed. Returns when it has done so. */
static pid_t start(void (*act)(struct registry *), const char *path)
{
    int done[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe2(done, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        struct registry registry;

        if (registry_open(&registry, path, NULL) < 0)
            _exit(1);
        act(&registry);
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

static void a_lease_is_read_as_it_was_written(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease = one_gib_of("GPU-a");
    struct lease_list list;
    int fd = add(&fixture->registry, &lease);

    registry_set_program(fd, 77);
    assert_int_equal(registry_list(&fixture->registry, &list, NULL), 0);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.leases[0].id, lease.id);
    assert_int_equal(list.leases[0].keeper, getpid());
    assert_int_equal(list.leases[0].program, 77);
    assert_int_equal(list.leases[0].started, 1700000000);
    assert_string_equal(list.leases[0].command, "train a?b");
    assert_int_equal(list.leases[0].device_count, 1);
    assert_string_equal(list.leases[0].devices[0].uuid, "GPU-a");
    assert_int_equal(list.leases[0].devices[0].memory_bytes, GIB);
    assert_int_equal(list.leases[0].devices[0].cores, 30);
    lease_list_deinit(&list);
    registry_release(&fixture->registry, lease.id, fd);
    assert_int_equal(count_leases(&fixture->registry), 0);
}

static void leases_add_up_on_their_devices(void **state)
{
    struct device devices[2] = {{.uuid = "GPU-a"}, {.uuid = "GPU-b"}};
    struct fixture *fixture = *state;
    struct lease_list list;
    struct lease leases[3] = {one_gib_of("GPU-b"), one_gib_of("GPU-b"), one_gib_of("GPU-gone")};
    int fds[3];

    for (int i = 0; i < 3; i++)
        fds[i] = add(&fixture->registry, &leases[i]);
    assert_int_equal(registry_list(&fixture->registry, &list, NULL), 0);
    registry_charge(&list, devices, 2);
    lease_list_deinit(&list);
    assert_int_equal(devices[0].used.tasks, 0);
    assert_int_equal(devices[1].used.tasks, 2);
    assert_int_equal(devices[1].used.cores, 60);
    assert_int_equal(devices[1].used.memory_bytes, 2 * GIB);
    for (int i = 0; i < 3; i++)
        registry_release(&fixture->registry, leases[i].id, fds[i]);
}

static void hold_a_lease(struct registry *registry)
{
    struct lease lease = one_gib_of("GPU-a");
    char path[PATH_MAX];

    (void)add(registry, &lease);
    if (registry_make_run(registry, lease.id, path, NULL) == 0)
        (void)mkdirat(registry->runs_fd, "1/vgpu", 0700);
}

static void a_killed_holder_holds_nothing(void **state)
{
    struct fixture *fixture = *state;
    pid_t pid = start(hold_a_lease, fixture->path);

    assert_int_equal(count_leases(&fixture->registry), 1);
    assert_int_equal(faccessat(fixture->registry.runs_fd, "1/vgpu", F_OK, 0), 0);
    kill_hard(pid);
    assert_int_equal(count_leases(&fixture->registry), 0);
    assert_int_equal(faccessat(fixture->registry.runs_fd, "1", F_OK, 0), -1);
}

static void whoever_inherits_the_descriptor_keeps_the_lease(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease = one_gib_of("GPU-a");
    int fd = add(&fixture->registry, &lease);
    pid_t heir = fork();

    if (heir == 0) {
        for (;;)
            (void)pause();
    }
    registry_release(&fixture->registry, lease.id, fd);
    assert_int_equal(count_leases(&fixture->registry), 1);
    kill_hard(heir);
    assert_int_equal(count_leases(&fixture->registry), 0);
}

static void hold_the_lock(struct registry *registry)
{
    (void)registry_lock(registry, NULL);
}

static void a_killed_hamictl_leaves_no_lock(void **state)
{
    struct fixture *fixture = *state;

    kill_hard(start(hold_the_lock, fixture->path));
    (void)alarm(5);
    assert_int_equal(count_leases(&fixture->registry), 0);
    (void)alarm(0);
}

/* Killed between making the file and writing it. */
static void a_file_that_nobody_holds_is_swept(void **state)
{
    struct fixture *fixture = *state;
    int fd = openat(fixture->registry.leases_fd, "41", O_WRONLY | O_CREAT, 0600);

    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(count_leases(&fixture->registry), 0);
    assert_int_equal(faccessat(fixture->registry.leases_fd, "41", F_OK, 0), -1);
}

static void what_cannot_be_read_but_is_held_stops_granting(void **state)
{
    static const char *const texts[] = {"",       "device=GPU-a much 0\n", "device=GPU-a 1\n",
                                        "what\n", "device=GPU-a 1 101\n",  "command=x\n"};
    struct fixture *fixture = *state;
    struct error err = ERROR_INIT;
    struct lease lease = one_gib_of("GPU-a");
    struct lease_list list;
    int fd = add(&fixture->registry, &lease);

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        assert_int_equal(ftruncate(fd, 0), 0);
        (void)!write(fd, texts[i], strlen(texts[i]));
        assert_int_equal(registry_list(&fixture->registry, &list, &err), -EBADMSG);
        print_message("%s\n", err.text);
    }
    registry_release(&fixture->registry, lease.id, fd);
}

static void numbers_are_not_used_twice_even_without_their_counter(void **state)
{
    struct fixture *fixture = *state;
    struct lease first = one_gib_of("GPU-a"), second = one_gib_of("GPU-a");
    int fd = add(&fixture->registry, &first);
    int other;

    assert_int_equal(ftruncate(fixture->registry.lock_fd, 0), 0);
    other = add(&fixture->registry, &second);
    assert_int_not_equal(first.id, second.id);
    assert_int_equal(count_leases(&fixture->registry), 2);
    registry_release(&fixture->registry, first.id, fd);
    registry_release(&fixture->registry, second.id, other);
}

static void join(struct registry *registry)
{
    uint64_t id;

    (void)registry_join_queue(registry, &id, NULL);
}

static void the_queue_forgets_the_dead(void **state)
{
    struct fixture *fixture = *state;
    uint64_t id;
    pid_t first = start(join, fixture->path);
    pid_t second = start(join, fixture->path);
    int fd = registry_join_queue(&fixture->registry, &id, NULL);
    pid_t behind = start(join, fixture->path);

    assert_true(fd >= 0);
    assert_int_equal(registry_find_predecessor(&fixture->registry, id), 2);
    kill_hard(second);
    assert_int_equal(registry_find_predecessor(&fixture->registry, id), 1);
    kill_hard(first);
    assert_int_equal(registry_find_predecessor(&fixture->registry, id), 0);
    kill_hard(behind);
    registry_leave_queue(&fixture->registry, id, fd);
}

static void a_directory_in_use_is_not_to_be_removed(void **state)
{
    struct fixture *fixture = *state;
    struct error err = ERROR_INIT;
    pid_t pid = start(hold_a_lease, fixture->path);

    assert_int_equal(registry_check_unused(fixture->path, &err), -EBUSY);
    kill_hard(pid);
    assert_int_equal(registry_check_unused(fixture->path, &err), 0);
    assert_int_equal(registry_check_unused("/nonexistent/x", &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_lease_is_read_as_it_was_written, setup, teardown),
        cmocka_unit_test_setup_teardown(leases_add_up_on_their_devices, setup, teardown),
        cmocka_unit_test_setup_teardown(a_killed_holder_holds_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(whoever_inherits_the_descriptor_keeps_the_lease, setup,
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
