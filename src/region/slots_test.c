/* SPDX-License-Identifier: Apache-2.0 */

/* Slots, and what their processes hold: it is free once they are dead, and not before. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/util.h"
#include "region/ledger.h"
#include "region/region.h"
#include "region/region_fixture.h"
#include "region/view.h"

/* What a holder does with its descriptors and threads, once it has what it holds. */

static void close_all(void)
{
    for (int fd = 3; fd < 1024; fd++)
        (void)close(fd);
}

/* The file stays mapped, and with it the lock that its descriptors had in common. */
static void unlock_and_close_all(void)
{
    struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

    for (int fd = 3; fd < 1024; fd++)
        (void)fcntl(fd, F_OFD_SETLK, &all);
    close_all();
}

static void open_and_close(void)
{
    (void)close(open(fixture_path, O_RDONLY));
}

static void *live_on(void *unused)
{
    (void)unused;
    for (;;)
        (void)pause();
    return NULL;
}

static void end_main_thread(void)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, live_on, NULL) != 0)
        _exit(1);
    (void)syscall(SYS_exit, 0);
}

static void lose_all_and_end_main_thread(void)
{
    close_all();
    end_main_thread();
}

/* With both locks lost nothing but /proc says that it lives: it shows no mappings of a process
 * whose main thread has ended. */
static void lose_locks_and_end_main_thread(void)
{
    unlock_and_close_all();
    end_main_thread();
}

/* As a runtime that makes processes without the C library. Its child lives on after it. */
static void leave_a_child(void)
{
    if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0) {
        (void)sleep(1);
        _exit(0);
    }
}

/* In a child process: claims a slot, charges, tells the parent, and waits to be killed. */
static pid_t start_holder(uint64_t units, void (*habit)(void))
{
    int pipe_fds[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe(pipe_fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct region region;

        if (region_open(&region, fixture_path, NULL) < 0 || region_claim(&region, NULL) < 0 ||
            ledger_charge(region.ext, (unsigned)region.slot, 0, units, 1000) != LEDGER_CHARGED)
            _exit(1);
        (void)!write(pipe_fds[1], "x", 1);
        if (habit)
            habit();
        for (;;)
            (void)pause();
    }
    (void)close(pipe_fds[1]);
    assert_int_equal(read(pipe_fds[0], &byte, 1), 1);
    (void)close(pipe_fds[0]);
    return pid;
}

static void kill_holder(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void what_a_killed_process_held_is_free_again(void **state)
{
    struct region region;
    pid_t a, b;

    (void)state;
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    (void)region_device(&region, "GPU-a");
    a = start_holder(600, NULL);
    b = start_holder(300, NULL);
    assert_int_equal(region_claim(&region, NULL), 0);
    assert_int_equal(ledger_charge(region.ext, (unsigned)region.slot, 0, 200, 1000),
                     LEDGER_REFUSED);
    assert_int_equal(region_settle(&region), 0);
    assert_int_equal(fixture_view()->process_count, 3);

    kill_holder(a);
    /* A reader sees it at once, before anybody has settled it. */
    assert_int_equal(fixture_view()->process_count, 2);
    assert_int_equal(fixture_view()->devices[0].used.total, 300 * 512);
    assert_int_equal(region_settle(&region), 1);
    assert_int_equal(ledger_total(region.ext, 0), 300);
    assert_int_equal(ledger_charge(region.ext, (unsigned)region.slot, 0, 700, 1000),
                     LEDGER_CHARGED);
    kill_holder(b);
    assert_int_equal(region_settle(&region), 1);
    assert_int_equal(ledger_total(region.ext, 0), 700);
    region_close(&region);
}

/* A process of that habit holds 600 units. */
static pid_t begin_holding(struct region *region, void (*habit)(void))
{
    pid_t holder;

    assert_int_equal(region_open(region, fixture_path, NULL), 0);
    (void)region_device(region, "GPU-a");
    holder = start_holder(600, habit);
    (void)usleep(50000);
    return holder;
}

static void end_holding(struct region *region, pid_t holder)
{
    kill_holder(holder);
    assert_int_equal(fixture_view()->process_count, 0);
    assert_int_equal(region_settle(region), 1);
    assert_int_equal(ledger_total(region->ext, 0), 0);
    region_close(region);
}

static void a_process_lives_until_it_is_dead(void **state)
{
    static const struct {
        const char *name;
        void (*habit)(void);
    } cases[] = {
        {"closed our descriptor", close_all},
        {"opened and closed the file", open_and_close},
        {"its main thread ended", end_main_thread},
        {"closed our descriptor, and its main thread ended", lose_all_and_end_main_thread},
        {"left a child without fork handlers", leave_a_child},
    };
    struct region region;
    pid_t holder;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        print_message("%s\n", cases[i].name);
        holder = begin_holding(&region, cases[i].habit);
        assert_int_equal(region_settle(&region), 0);
        assert_int_equal(fixture_view()->process_count, 1);

        /* Of another pid namespace, which sees but the locks. */
        region.self.pid_namespace ^= 1;
        assert_int_equal(region_settle(&region), 0);
        assert_int_equal(ledger_total(region.ext, 0), 600);
        region.self.pid_namespace ^= 1;

        end_holding(&region, holder);
    }
}

static void a_process_without_locks_lives_until_it_is_dead(void **state)
{
    static const struct {
        const char *name;
        void (*habit)(void);
        bool knows_its_namespace;
    } cases[] = {
        {"it lost its locks", unlock_and_close_all, true},
        {"it lost its locks, and its main thread ended", lose_locks_and_end_main_thread, true},
        {"it lost its locks, and had no /proc", unlock_and_close_all, false},
    };
    struct region region;
    uint32_t namespace;
    pid_t holder;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        print_message("%s\n", cases[i].name);
        holder = begin_holding(&region, cases[i].habit);
        if (!cases[i].knows_its_namespace)
            atomic_store(&region.ext->slots[0].pid_namespace, 0);
        assert_int_equal(region_settle(&region), 0);
        assert_int_equal(fixture_view()->process_count, 1);

        /* One that has no /proc itself, and so does not know in which namespace it is. */
        namespace = region.self.pid_namespace;
        region.self.pid_namespace = 0;
        assert_int_equal(region_settle(&region), 0);
        assert_int_equal(ledger_total(region.ext, 0), 600);
        region.self.pid_namespace = namespace;

        end_holding(&region, holder);
    }
}

enum {
    DEPTH = 8,
};

/* One folder in another, each with a name of the length that names may have. */
static void make_deep(int folders[DEPTH + 1], const char *name)
{
    folders[0] = open("/tmp", O_RDONLY | O_DIRECTORY);
    for (unsigned i = 0; i < DEPTH; i++) {
        assert_int_equal(mkdirat(folders[i], name, 0700), 0);
        folders[i + 1] = openat(folders[i], name, O_RDONLY | O_DIRECTORY);
        assert_true(folders[i + 1] >= 0);
    }
}

static void remove_deep(const int folders[DEPTH + 1], const char *name)
{
    for (unsigned i = DEPTH; i-- > 0;) {
        assert_int_equal(unlinkat(folders[i], name, AT_REMOVEDIR), 0);
        (void)close(folders[i + 1]);
    }
    (void)close(folders[0]);
}

static void a_process_lives_however_long_the_name_of_what_it_maps(void **state)
{
    char name[NAME_MAX + 1];
    int folders[DEPTH + 1];
    struct region region;
    pid_t holder;

    (void)state;
    (void)snprintf(name, sizeof(name), "hami-region-%0*d", NAME_MAX - 12, (int)getpid());
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    holder = start_holder(600, unlock_and_close_all);
    (void)usleep(50000);
    make_deep(folders, name);
    assert_int_equal(renameat(AT_FDCWD, fixture_path, folders[DEPTH], "region"), 0);
    assert_int_equal(region_settle(&region), 0);
    assert_int_equal(ledger_total(region.ext, 0), 600);

    assert_int_equal(unlinkat(folders[DEPTH], "region", 0), 0);
    remove_deep(folders, name);
    kill_holder(holder);
    assert_int_equal(region_settle(&region), 1);
    assert_int_equal(ledger_total(region.ext, 0), 0);
    region_close(&region);
}

static void a_lock_that_was_lost_is_taken_again(void **state)
{
    struct region region;
    pid_t child;
    int status;

    (void)state;
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    assert_int_equal(region_claim(&region, NULL), 0);
    (void)close(region.fd);
    region_refresh(&region);
    assert_true(region.fd >= 0);

    child = fork();
    if (child == 0) {
        struct flock range = {
            .l_type = F_WRLCK, .l_start = REGION_LOCK_SLOTS + region.slot, .l_len = 1};

        _exit(fcntl(region.fd, F_GETLK, &range) == 0 && range.l_type == F_WRLCK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    region_close(&region);
}

static void a_forked_child_has_a_slot_of_its_own(void **state)
{
    struct region region;
    pid_t child;
    int status;

    (void)state;
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    (void)region_device(&region, "GPU-a");
    assert_int_equal(region_claim(&region, NULL), 0);
    assert_int_equal(ledger_charge(region.ext, (unsigned)region.slot, 0, 300, 1000),
                     LEDGER_CHARGED);
    child = fork();
    if (child == 0) {
        const int parents = region.slot;

        region_after_fork(&region);
        if (region.slot >= 0)
            _exit(1);
        if (region_claim(&region, NULL) < 0 || region.slot == parents)
            _exit(2);
        _exit(ledger_held(region.ext, (unsigned)region.slot, 0) ? 3 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(ledger_held(region.ext, (unsigned)region.slot, 0), 300);
    region_close(&region);
}

/* As by _Fork(), which runs no handlers; and it closes what it has open, as daemons do. */
static void a_child_that_was_forked_unseen_is_alive(void **state)
{
    struct region region;
    pid_t parent, child;
    int pipe_fds[2];

    (void)state;
    assert_int_equal(pipe(pipe_fds), 0);
    parent = fork();
    if (parent == 0) {
        struct region mine;

        if (region_open(&mine, fixture_path, NULL) < 0)
            _exit(1);
        child = fork();
        if (child)
            for (;;)
                (void)pause();
        if (region_claim(&mine, NULL) < 0 ||
            ledger_charge(mine.ext, (unsigned)mine.slot, 0, 300, 1000) != LEDGER_CHARGED)
            _exit(1);
        (void)close(mine.fd);
        child = getpid();
        (void)!write(pipe_fds[1], &child, sizeof(child));
        for (;;)
            (void)pause();
    }
    assert_int_equal(read(pipe_fds[0], &child, sizeof(child)), sizeof(child));
    kill_holder(parent);
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    region.self.pid_namespace ^= 1; /* even to one that sees but the locks */
    assert_int_equal(region_settle(&region), 0);
    assert_int_equal(ledger_total(region.ext, 0), 300);
    assert_int_equal(kill(child, SIGKILL), 0);
    while (!region_settle(&region)) /* its grandparent can't wait for it */
        (void)usleep(1000);
    assert_int_equal(ledger_total(region.ext, 0), 0);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
    region_close(&region);
}

static void a_parent_that_was_killed_is_dead_though_its_child_lives(void **state)
{
    struct region region;
    pid_t parent, child;
    int pipe_fds[2];

    (void)state;
    assert_int_equal(pipe(pipe_fds), 0);
    parent = fork();
    if (parent == 0) {
        struct region mine;

        if (region_open(&mine, fixture_path, NULL) < 0 || region_claim(&mine, NULL) < 0 ||
            ledger_charge(mine.ext, (unsigned)mine.slot, 0, 300, 1000) != LEDGER_CHARGED)
            _exit(1);
        child = fork();
        if (child == 0) {
            region_after_fork(&mine);
            child = getpid();
            (void)!write(pipe_fds[1], &child, sizeof(child));
        }
        for (;;)
            (void)pause();
    }
    assert_int_equal(read(pipe_fds[0], &child, sizeof(child)), sizeof(child));
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    kill_holder(parent);
    region.self.pid_namespace ^= 1; /* even to one that sees but the locks */
    assert_int_equal(region_settle(&region), 1);
    assert_int_equal(ledger_total(region.ext, 0), 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
    region_close(&region);
}

/* The child's pid. It holds the lock of its parent, which is dead, until it is killed. */
static pid_t leave_child_past_handlers(uint64_t units)
{
    pid_t parent, child;
    int pipe_fds[2];

    assert_int_equal(pipe(pipe_fds), 0);
    parent = fork();
    if (parent == 0) {
        struct region mine;

        if (region_open(&mine, fixture_path, NULL) < 0 || region_claim(&mine, NULL) < 0 ||
            ledger_charge(mine.ext, (unsigned)mine.slot, 0, units, 1000) != LEDGER_CHARGED)
            _exit(1);
        child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (child == 0) {
            (void)sleep(20); /* but no longer, should the test fail */
            _exit(0);
        }
        (void)!write(pipe_fds[1], &child, sizeof(child));
        _exit(0);
    }
    assert_int_equal(read(pipe_fds[0], &child, sizeof(child)), sizeof(child));
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
    return child;
}

/* Which slot a new process gets, of the first ones. */
static int claim_once(void)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        struct region region;

        if (region_open(&region, fixture_path, NULL) < 0 || region_claim(&region, NULL) < 0)
            _exit(255);
        _exit(region.slot);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void wait_for_slot(int slot)
{
    for (int i = 0; i < 2000 && claim_once() != slot; i++)
        (void)usleep(1000);
    assert_int_equal(claim_once(), slot);
}

/* Nobody has waited for it yet. */
static void a_zombie_is_dead_though_its_child_lives(void **state)
{
    struct region region;
    siginfo_t info;
    pid_t holder;

    (void)state;
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    (void)region_device(&region, "GPU-a");
    holder = start_holder(300, leave_a_child);
    (void)usleep(50000);
    assert_int_equal(kill(holder, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)holder, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(fixture_view()->process_count, 0);
    assert_int_equal(region_settle(&region), 1);
    assert_int_equal(ledger_total(region.ext, 0), 0);
    assert_int_equal(waitpid(holder, NULL, 0), holder);
    region_close(&region);
}

static void a_slot_that_a_dead_process_child_holds_is_passed_over(void **state)
{
    struct region region;
    pid_t children[3];

    (void)state;
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    (void)region_device(&region, "GPU-a");
    for (unsigned i = 0; i < ARRAY_SIZE(children); i++) {
        children[i] = leave_child_past_handlers(300);
        assert_int_equal(claim_once(), (int)i + 1);
        assert_int_equal(ledger_total(region.ext, 0), 0);
        assert_int_equal(fixture_view()->process_count, 0);
    }

    /* Its slot is to be had again as the child ends. */
    assert_int_equal(kill(children[1], SIGKILL), 0);
    wait_for_slot(1);
    assert_int_equal(kill(children[0], SIGKILL), 0);
    wait_for_slot(0);
    assert_int_equal(kill(children[2], SIGKILL), 0);
    region_close(&region);
}

/* As by 1,024 such children. */
static void slots_whose_locks_are_held_run_out_and_come_back(void **state)
{
    struct flock all = {.l_type = F_WRLCK, .l_start = REGION_LOCK_HELD, .l_len = REGION_SLOTS};
    struct region region;
    int fd;

    (void)state;
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    fd = open(fixture_path, O_RDWR);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &all), 0);
    assert_int_equal(region_claim(&region, NULL), -EUSERS);
    assert_int_equal(region.slot, -1);
    all = (struct flock){
        .l_type = F_UNLCK, .l_start = REGION_LOCK_HELD + REGION_SLOTS - 1, .l_len = 1};
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &all), 0);
    assert_int_equal(region_claim(&region, NULL), 0);
    assert_int_equal(region.slot, REGION_SLOTS - 1);
    (void)close(fd);
    assert_int_equal(claim_once(), 0);
    region_close(&region);
}

static void a_program_that_became_another_holds_nothing(void **state)
{
    struct region region;
    pid_t child;

    (void)state;
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    child = fork();
    if (child == 0) {
        struct region mine;

        if (region_open(&mine, fixture_path, NULL) < 0 || region_claim(&mine, NULL) < 0 ||
            ledger_charge(mine.ext, (unsigned)mine.slot, 0, 5, 1000) != LEDGER_CHARGED)
            _exit(1);
        (void)execl("/bin/sleep", "sleep", "10", (char *)NULL);
        _exit(1);
    }
    for (int i = 0; i < 2000 && (ledger_total(region.ext, 0) == 0 || region_settle(&region) == 0);
         i++)
        (void)usleep(1000);
    assert_int_equal(ledger_total(region.ext, 0), 0);
    assert_int_equal(kill(child, 0), 0);
    kill_holder(child);
    region_close(&region);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(what_a_killed_process_held_is_free_again),
        FIXTURE_TEST(a_process_lives_until_it_is_dead),
        FIXTURE_TEST(a_process_without_locks_lives_until_it_is_dead),
        FIXTURE_TEST(a_process_lives_however_long_the_name_of_what_it_maps),
        FIXTURE_TEST(a_child_that_was_forked_unseen_is_alive),
        FIXTURE_TEST(a_parent_that_was_killed_is_dead_though_its_child_lives),
        FIXTURE_TEST(a_zombie_is_dead_though_its_child_lives),
        FIXTURE_TEST(a_slot_that_a_dead_process_child_holds_is_passed_over),
        FIXTURE_TEST(slots_whose_locks_are_held_run_out_and_come_back),
        FIXTURE_TEST(a_lock_that_was_lost_is_taken_again),
        FIXTURE_TEST(a_forked_child_has_a_slot_of_its_own),
        FIXTURE_TEST(a_program_that_became_another_holds_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
