/* SPDX-License-Identifier: Apache-2.0 */
#include "region/region.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/util.h"
#include "region/ledger.h"
#include "region/view.h"

static char directory[64];
static char path[128];

static int set_up(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/hami-region-XXXXXX");
    assert_non_null(mkdtemp(directory));
    (void)snprintf(path, sizeof(path), "%s/x.cache", directory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(path);
    (void)rmdir(directory);
    return 0;
}

static struct region_view *read_view(void)
{
    static struct region_view view;

    assert_int_equal(region_view_read(path, &view, NULL), 0);
    return &view;
}

static void a_new_region_has_hami_cores_first_bytes(void **state)
{
    struct region region;
    struct stat st;
    int fd;

    (void)state;
    assert_int_equal(region_open(&region, path, NULL), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, REGION_SIZE);
    assert_int_equal(st.st_mode & 0777, 0666);
    assert_int_equal(region.base->magic, 19920718);
    assert_int_equal(region.base->utilization_switch, 1);
    assert_int_equal(region.base->recent_kernel, 2);
    assert_int_equal(region.base->priority, 1);
    assert_int_equal(region_device(&region, "GPU-a"), 0);
    assert_int_equal(region_device(&region, "GPU-b"), 1);
    assert_int_equal(region_device(&region, "GPU-a"), 0);
    assert_true(region.fd >= 512);

    /* Another card in a position, whichever name comes first. */
    region_set_device(&region, 0, "GPU-c");
    assert_int_equal(region_device(&region, "GPU-c"), 0);
    region_set_device(&region, 0, "GPU-a");
    assert_int_equal(region_device(&region, "GPU-a"), 0);
    assert_int_equal(region_device(&region, "GPU-b"), 1);
    fd = region.fd;
    region_close(&region);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
}

/* What a holder does with its descriptors and threads, once it has what it holds. */

static void close_all(void)
{
    for (int fd = 3; fd < 1024; fd++)
        (void)close(fd);
}

static void open_and_close(void)
{
    (void)close(open(path, O_RDONLY));
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

        if (region_open(&region, path, NULL) < 0 || region_claim(&region, NULL) < 0 ||
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
    assert_int_equal(region_open(&region, path, NULL), 0);
    (void)region_device(&region, "GPU-a");
    a = start_holder(600, NULL);
    b = start_holder(300, NULL);
    assert_int_equal(region_claim(&region, NULL), 0);
    assert_int_equal(ledger_charge(region.ext, (unsigned)region.slot, 0, 200, 1000),
                     LEDGER_REFUSED);
    assert_int_equal(region_settle(&region), 0);
    assert_int_equal(read_view()->process_count, 3);

    kill_holder(a);
    /* A reader sees it at once, before anybody has settled it. */
    assert_int_equal(read_view()->process_count, 2);
    assert_int_equal(read_view()->devices[0].used.total, 300 * 512);
    assert_int_equal(region_settle(&region), 1);
    assert_int_equal(ledger_total(region.ext, 0), 300);
    assert_int_equal(ledger_charge(region.ext, (unsigned)region.slot, 0, 700, 1000),
                     LEDGER_CHARGED);
    kill_holder(b);
    assert_int_equal(region_settle(&region), 1);
    assert_int_equal(ledger_total(region.ext, 0), 700);
    region_close(&region);
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
        assert_int_equal(region_open(&region, path, NULL), 0);
        (void)region_device(&region, "GPU-a");
        holder = start_holder(600, cases[i].habit);
        (void)usleep(50000);
        assert_int_equal(region_settle(&region), 0);
        assert_int_equal(read_view()->process_count, 1);

        /* Of another pid namespace, which sees but the locks. */
        region.self.pid_namespace ^= 1;
        assert_int_equal(region_settle(&region), 0);
        assert_int_equal(ledger_total(region.ext, 0), 600);
        region.self.pid_namespace ^= 1;

        kill_holder(holder);
        assert_int_equal(read_view()->process_count, 0);
        assert_int_equal(region_settle(&region), 1);
        assert_int_equal(ledger_total(region.ext, 0), 0);
        region_close(&region);
    }
}

static void a_lock_that_was_lost_is_taken_again(void **state)
{
    struct region region;
    pid_t child;
    int status;

    (void)state;
    assert_int_equal(region_open(&region, path, NULL), 0);
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
    assert_int_equal(region_open(&region, path, NULL), 0);
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

        if (region_open(&mine, path, NULL) < 0)
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
    assert_int_equal(region_open(&region, path, NULL), 0);
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

        if (region_open(&mine, path, NULL) < 0 || region_claim(&mine, NULL) < 0 ||
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
    assert_int_equal(region_open(&region, path, NULL), 0);
    kill_holder(parent);
    region.self.pid_namespace ^= 1; /* even to one that sees but the locks */
    assert_int_equal(region_settle(&region), 1);
    assert_int_equal(ledger_total(region.ext, 0), 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    (void)close(pipe_fds[0]);
    (void)close(pipe_fds[1]);
    region_close(&region);
}

static void a_program_that_became_another_holds_nothing(void **state)
{
    struct region region;
    pid_t child;

    (void)state;
    assert_int_equal(region_open(&region, path, NULL), 0);
    child = fork();
    if (child == 0) {
        struct region mine;

        if (region_open(&mine, path, NULL) < 0 || region_claim(&mine, NULL) < 0 ||
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

static void a_file_that_was_made_for_us_is_not_made_again(void **state)
{
    struct region region, other;
    struct stat st;

    (void)state;
    assert_int_equal(region_open_made(&region, path, 0, NULL), -ENOENT);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(region_open(&region, path, NULL), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(region_open_made(&other, path, st.st_ino, NULL), 0);
    region_close(&other);
    assert_int_equal(region_open_made(&other, path, st.st_ino + 1, NULL), -ESTALE);
    region_close(&region);
}

static void a_file_that_was_removed_or_replaced_is_noticed(void **state)
{
    struct error err = ERROR_INIT;
    struct region region;
    pid_t child;
    int status;

    (void)state;
    assert_int_equal(region_open(&region, path, NULL), 0);
    assert_int_equal(region_claim(&region, NULL), 0);
    assert_false(region_is_lost(&region));
    assert_int_equal(unlink(path), 0);
    assert_true(region_is_lost(&region));
    assert_int_equal(file_replace(path, "x", 1, 0666), 0);
    assert_true(region_is_lost(&region));

    child = fork();
    if (child == 0) {
        region_after_fork(&region);
        _exit(region_claim(&region, &err) == -ESTALE && strstr(err.text, path) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    region_close(&region);
}

/* To be kept open is not to be believed: each reading is of the file at the path. */
static void a_file_that_is_kept_open_is_read_while_its_path_leads_to_it(void **state)
{
    struct region_kept kept = REGION_KEPT_INIT;
    struct region_view *view = malloc(sizeof(*view));
    struct region region;
    char other[sizeof(path) + 2];
    int fd;

    (void)state;
    assert_non_null(view);
    (void)snprintf(other, sizeof(other), "%s2", path);
    assert_int_equal(region_open(&region, path, NULL), 0);
    region.base->last_kernel_time = 5;
    assert_int_equal(region_view_read_at(AT_FDCWD, path, &kept, view, NULL), 0);
    assert_int_equal(view->last_kernel_time, 5);
    fd = kept.fd;
    assert_true(fd >= 0);
    region.base->last_kernel_time = 6;
    assert_int_equal(region_view_read_at(AT_FDCWD, path, &kept, view, NULL), 0);
    assert_int_equal(view->last_kernel_time, 6);
    assert_int_equal(kept.fd, fd);

    /* Another in its place, while the first is still somewhere. */
    assert_int_equal(rename(path, other), 0);
    region_close(&region);
    assert_int_equal(region_view_read_at(AT_FDCWD, path, &kept, view, NULL), -ENOENT);
    assert_int_equal(kept.fd, -1);
    assert_int_equal(region_view_read_at(AT_FDCWD, other, &kept, view, NULL), 0);
    assert_int_equal(region_open(&region, path, NULL), 0);
    region.base->last_kernel_time = 7;
    assert_int_equal(region_view_read_at(AT_FDCWD, path, &kept, view, NULL), 0);
    assert_int_equal(view->last_kernel_time, 7);

    /* A link to it is refused as ever. */
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(symlink(other, path), 0);
    assert_true(region_view_read_at(AT_FDCWD, path, &kept, view, NULL) < 0);
    assert_int_equal(kept.fd, -1);

    /* What was empty becomes a region. */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(file_replace(path, "", 0, 0666), 0);
    assert_int_equal(region_view_read_at(AT_FDCWD, path, &kept, view, NULL), -EPROTO);
    region_close(&region);
    assert_int_equal(region_open(&region, path, NULL), 0);
    assert_int_equal(region_view_read_at(AT_FDCWD, path, &kept, view, NULL), 0);
    region_close(&region);
    region_kept_close(&kept);
    assert_int_equal(kept.fd, -1);
    assert_int_equal(unlink(other), 0);
    free(view);
}

/* FNV-1a, as in its authors' description. */
static uint64_t fnv1a(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (; *text; text++) {
        hash ^= (unsigned char)*text;
        hash *= UINT64_C(1099511628211);
    }
    return hash;
}

static void times_of_another_boot_are_forgotten(void **state)
{
    struct region region;
    char boot[64];

    (void)state;
    assert_true(file_read("/proc/sys/kernel/random/boot_id", boot, sizeof(boot)) > 0);
    assert_int_equal(region_open(&region, path, NULL), 0);
    assert_int_equal(region.ext->boot, fnv1a(boot));
    region.ext->devices[1].compute.zero_ns = INT64_MAX / 2;
    region.ext->devices[1].compute.charged_ns = 5;
    region.ext->turns[7][1].served_ns = INT64_MAX / 2;
    region_close(&region);
    assert_int_equal(region_open(&region, path, NULL), 0);
    assert_int_equal(region.ext->devices[1].compute.zero_ns, INT64_MAX / 2);

    region.ext->boot++;
    region_close(&region);
    assert_int_equal(region_open(&region, path, NULL), 0);
    assert_int_equal(region.ext->devices[1].compute.zero_ns, 0);
    assert_int_equal(region.ext->devices[1].compute.charged_ns, 5);
    assert_int_equal(region.ext->turns[7][1].served_ns, 0);
    region_close(&region);
}

static void files_that_are_not_regions_are_refused_with_a_reason(void **state)
{
    static const struct {
        const char *name;
        const char *bytes;
        size_t size;
    } cases[] = {
        {"text", "hello, world, this is not a region", 34},
        {"another version", "\xce\xf8\x2f\x01\x02\x00\x00\x00\x02\x00\x00\x00", 12},
    };
    struct region region;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error err = ERROR_INIT;

        print_message("%s\n", cases[i].name);
        assert_int_equal(file_replace(path, cases[i].bytes, cases[i].size, 0666), 0);
        assert_int_equal(region_open(&region, path, &err), -EPROTO);
        assert_non_null(strstr(err.text, path));
        region_close(&region);
    }

    (void)unlink(path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(region_open(&region, path, NULL), -ELOOP);
    (void)unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(region_open(&region, path, NULL), -EPROTO);
    region_close(&region);
}

static void pinned_and_imported_memory_is_told_of_the_living(void **state)
{
    struct region region;

    (void)state;
    assert_int_equal(region_open(&region, path, NULL), 0);
    assert_int_equal(region_claim(&region, NULL), 0);
    assert_int_equal(read_view()->pinned_bytes, 0);
    atomic_store(&region.ext->slots[region.slot].pinned, 4096);
    atomic_store(&region.ext->slots[region.slot + 1].pinned, 512);
    assert_int_equal(read_view()->pinned_bytes, 4096);
    assert_int_equal(read_view()->imports, 0);
    atomic_store(&region.ext->slots[region.slot].imports, 3);
    atomic_store(&region.ext->slots[region.slot + 1].imports, 5);
    assert_int_equal(read_view()->imports, 3);
    region_close(&region);
}

/* Of a later version nobody knows what its bytes mean. */
static void a_later_version_is_not_read(void **state)
{
    static const int majors[] = {2, 3, 1000};
    struct region_view *view = malloc(sizeof(*view));
    struct region region;

    (void)state;
    assert_non_null(view);
    for (size_t i = 0; i < ARRAY_SIZE(majors); i++) {
        struct error err = ERROR_INIT;

        assert_int_equal(region_open(&region, path, NULL), 0);
        assert_int_equal(region_view_read(path, view, NULL), 0);
        region.base->major_version = majors[i];
        assert_true(region_view_read(path, view, &err) < 0);
        assert_true(err.text[0] != '\0');
        region_close(&region);
        (void)unlink(path);
    }
    free(view);
}

static void a_truncated_region_is_made_whole(void **state)
{
    struct region region;

    (void)state;
    assert_int_equal(region_open(&region, path, NULL), 0);
    region_close(&region);
    assert_int_equal(truncate(path, 4096), 0);
    assert_int_equal(region_open(&region, path, NULL), 0);
    assert_int_equal(region_claim(&region, NULL), 0);
    region_close(&region);
}

/* Wild bytes everywhere but in the head that makes it a region: no crash, no hang. */
/* Both libraries may live in a container while its node is upgraded. */
static void the_first_version_1_grows_and_stays_what_it_was(void **state)
{
    struct region region;
    struct stat st;

    (void)state;
    assert_int_equal(region_open(&region, path, NULL), 0);
    region.ext->size = REGION_EXT_LEAST;
    region_close(&region);
    assert_int_equal(truncate(path, REGION_EXT_OFFSET + (off_t)REGION_EXT_LEAST), 0);

    assert_int_equal(region_open(&region, path, NULL), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, REGION_SIZE);
    assert_int_equal(region.ext->size, REGION_EXT_LEAST);
    assert_int_equal(region.ext->turns[REGION_SLOTS - 1][REGION_DEVICES - 1].served_ns, 0);
    region_close(&region);
}

static void hostile_bytes_crash_nobody(void **state)
{
    struct region region;
    struct region_view *view = calloc(1, sizeof(*view));

    (void)state;
    for (unsigned seed = 0; seed < 20; seed++) {
        assert_int_equal(region_open(&region, path, NULL), 0);
        for (size_t i = 16; i < sizeof(*region.base); i++)
            ((unsigned char *)region.base)[i] = (unsigned char)rand_r(&seed);
        for (size_t i = 16; i < sizeof(*region.ext); i++)
            ((unsigned char *)region.ext)[i] = (unsigned char)rand_r(&seed);
        (void)region_device(&region, "GPU-a");
        (void)region_claim(&region, NULL);
        (void)region_settle(&region);
        (void)region_view_read(path, view, NULL);
        region_close(&region);
        assert_int_equal(unlink(path), 0);
    }
    free(view);
}

/* Says once that it is ready, and then waits to be killed. */
static void map_very_much(int ready)
{
    const size_t page = 4096, pages = 60000;
    char *pages_at = mmap(NULL, pages * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    for (size_t i = 0; pages_at != MAP_FAILED && i < pages; i += 2)
        (void)mprotect(pages_at + i * page, page, PROT_READ | PROT_WRITE);
    (void)!write(ready, "", 1);
    for (;;)
        (void)pause();
}

/* A tenant's slots that all name a process of ever so many mappings would keep the monitor busy for
 * minutes. */
static void a_region_does_not_cost_its_readers_more_than_its_slots(void **state)
{
    struct region_view *view = calloc(1, sizeof(*view));
    struct proc_identity self;
    struct region region;
    int64_t begun_ns;
    int ready[2];
    char byte;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(ready), 0);
    child = fork();
    if (child == 0)
        map_very_much(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    proc_identity_self(&self);
    assert_int_equal(region_open(&region, path, NULL), 0);
    for (unsigned i = 0; i < REGION_SLOTS; i++) {
        region.ext->slots[i].pid_namespace = self.pid_namespace;
        region.ext->slots[i].pid = child;
        region.base->slots[i].pid = child;
        region.base->slots[i].status = REGION_STATUS_RUNNING;
    }
    region.base->slot_count = REGION_SLOTS;

    begun_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
    assert_int_equal(region_view_read(path, view, NULL), 0);
    assert_true(clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - begun_ns < NS_PER_S);
    /* Of those that could be asked the answer counts. */
    assert_in_range(view->process_count, 1, REGION_SLOTS - 1);

    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    (void)close(ready[0]);
    (void)close(ready[1]);
    region_close(&region);
    free(view);
}

static void put_at(int fd, off_t at, const void *bytes, size_t size)
{
    assert_int_equal(pwrite(fd, bytes, size, at), (ssize_t)size);
}

static void put_word(int fd, off_t at, uint64_t word, size_t size)
{
    put_at(fd, at, &word, size);
}

/* By the offsets that HAMi's monitor reads at. */
static void a_region_of_version_0_is_read(void **state)
{
    static struct region_view none;
    struct region_view *view;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    (void)state;
    assert_int_equal(ftruncate(fd, 1197896), 0);
    assert_int_equal(region_view_read(path, &none, NULL), -EPROTO);
    put_word(fd, 0, REGION_MAGIC, 4);
    put_word(fd, 48, 2, 8);
    put_at(fd, 56 + 96, "GPU-b", 6);
    put_word(fd, 1592 + 8, 5000, 8); /* limit of the second */
    put_word(fd, 1720 + 8, 30, 8);   /* its cores */
    put_word(fd, 1197880, 3, 4);     /* slots */
    put_word(fd, 1197884, 1, 4);     /* utilization switch */
    put_word(fd, 1197888, 2, 4);     /* recent kernel */
    put_word(fd, 1197892, 1, 4);     /* priority */
    for (off_t slot = 0; slot < 3; slot++) {
        off_t at = 1848 + slot * 1168;

        put_word(fd, at, 7 + (uint64_t)slot, 4);
        put_word(fd, at + 4, 70, 4);
        put_word(fd, at + 8 + 40, 10, 8);      /* of the second device: context */
        put_word(fd, at + 8 + 40 + 8, 20, 8);  /* module */
        put_word(fd, at + 8 + 40 + 16, 30, 8); /* buffers */
        put_word(fd, at + 8 + 40 + 32, 60, 8); /* total */
        put_word(fd, at + 776 + 24 + 16, 40, 8);
        put_word(fd, at + 1160, slot != 1, 4); /* one is dead */
    }
    view = read_view();
    assert_int_equal(view->device_count, 2);
    assert_string_equal(view->devices[0].uuid, "");
    assert_string_equal(view->devices[1].uuid, "GPU-b");
    assert_int_equal(view->devices[1].limit_bytes, 5000);
    assert_int_equal(view->devices[1].cores, 30);
    assert_int_equal(view->devices[1].used.total, 120);
    assert_int_equal(view->devices[1].used.context, 20);
    assert_int_equal(view->devices[1].used.module, 40);
    assert_int_equal(view->devices[1].used.data, 60);
    assert_int_equal(view->devices[1].sm_util, 80);
    assert_int_equal(view->process_count, 2);
    assert_int_equal(view->processes[1].pid, 9);
    assert_int_equal(view->processes[1].host_pid, 70);
    assert_int_equal(view->priority, 1);
    assert_int_equal(view->recent_kernel, 2);
    assert_int_equal(view->utilization_switch, 1);
    assert_int_equal(view->last_kernel_time, 0);
    assert_false(view->has_extension);
    put_word(fd, 1197880, UINT32_MAX, 4);
    assert_int_equal(read_view()->process_count, 0);
    (void)close(fd);
}

/* A slot says which process of the host it is, if that has its lock. */
static void the_hosts_pid_is_told_to_who_has_the_lock(void **state)
{
    struct region_view *view;
    int ready[2], status;
    char byte;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(ready), 0);
    child = fork();
    if (child == 0) {
        struct region region = {0};

        if (region_open(&region, path, NULL) < 0 || region_claim(&region, NULL) < 0 ||
            write(ready[1], "x", 1) != 1)
            _exit(1);
        (void)pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    view = read_view();
    assert_int_equal(view->process_count, 1);
    assert_true(view->processes[0].is_sure);
    assert_int_equal(view->processes[0].host_pid, child);
    assert_int_equal(view->processes[0].told_pid, 0);
    assert_int_equal(region_tell_host_pid(path, view->processes[0].slot, child + 1), -ESRCH);
    assert_int_equal(region_tell_host_pid(path, 5, child), -ESRCH);
    assert_int_equal(region_tell_host_pid(path, REGION_SLOTS, child), -EPROTO);
    assert_int_equal(read_view()->processes[0].told_pid, 0);
    assert_int_equal(region_tell_host_pid(path, view->processes[0].slot, child), 0);
    assert_int_equal(read_view()->processes[0].told_pid, child);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(region_tell_host_pid(path, 0, child), -ESRCH);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(region_tell_host_pid(path, 0, child), -EPROTO);
    assert_int_equal(region_tell_host_pid("/nonexistent", 0, child), -ENOENT);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

int main(void)
{
#define REGION_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        REGION_TEST(a_new_region_has_hami_cores_first_bytes),
        REGION_TEST(what_a_killed_process_held_is_free_again),
        REGION_TEST(a_process_lives_until_it_is_dead),
        REGION_TEST(a_child_that_was_forked_unseen_is_alive),
        REGION_TEST(a_parent_that_was_killed_is_dead_though_its_child_lives),
        REGION_TEST(a_lock_that_was_lost_is_taken_again),
        REGION_TEST(a_forked_child_has_a_slot_of_its_own),
        REGION_TEST(a_program_that_became_another_holds_nothing),
        REGION_TEST(a_file_that_was_made_for_us_is_not_made_again),
        REGION_TEST(a_file_that_was_removed_or_replaced_is_noticed),
        REGION_TEST(a_file_that_is_kept_open_is_read_while_its_path_leads_to_it),
        REGION_TEST(times_of_another_boot_are_forgotten),
        REGION_TEST(files_that_are_not_regions_are_refused_with_a_reason),
        REGION_TEST(pinned_and_imported_memory_is_told_of_the_living),
        REGION_TEST(a_later_version_is_not_read),
        REGION_TEST(a_truncated_region_is_made_whole),
        REGION_TEST(the_first_version_1_grows_and_stays_what_it_was),
        REGION_TEST(hostile_bytes_crash_nobody),
        REGION_TEST(a_region_does_not_cost_its_readers_more_than_its_slots),
        REGION_TEST(a_region_of_version_0_is_read),
        REGION_TEST(the_hosts_pid_is_told_to_who_has_the_lock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
