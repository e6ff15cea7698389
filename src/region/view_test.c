/* SPDX-License-Identifier: Apache-2.0 */

/* Regions as their readers see them, whatever is in them. */

#include "region/view.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/util.h"
#include "region/region.h"
#include "region/region_fixture.h"

/* To be kept open is not to be believed: each reading is of the file at the path. */
static void a_file_that_is_kept_open_is_read_while_its_path_leads_to_it(void **state)
{
    struct region_kept kept = REGION_KEPT_INIT;
    struct region_view *view = malloc(sizeof(*view));
    struct region region;
    char other[sizeof(fixture_path) + 2];
    int fd;

    (void)state;
    assert_non_null(view);
    (void)snprintf(other, sizeof(other), "%s2", fixture_path);
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    region.base->last_kernel_time = 5;
    assert_int_equal(region_view_read_at(AT_FDCWD, fixture_path, &kept, view, NULL), 0);
    assert_int_equal(view->last_kernel_time, 5);
    fd = kept.fd;
    assert_true(fd >= 0);
    region.base->last_kernel_time = 6;
    assert_int_equal(region_view_read_at(AT_FDCWD, fixture_path, &kept, view, NULL), 0);
    assert_int_equal(view->last_kernel_time, 6);
    assert_int_equal(kept.fd, fd);

    /* Another in its place, while the first is still somewhere. */
    assert_int_equal(rename(fixture_path, other), 0);
    region_close(&region);
    assert_int_equal(region_view_read_at(AT_FDCWD, fixture_path, &kept, view, NULL), -ENOENT);
    assert_int_equal(kept.fd, -1);
    assert_int_equal(region_view_read_at(AT_FDCWD, other, &kept, view, NULL), 0);
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    region.base->last_kernel_time = 7;
    assert_int_equal(region_view_read_at(AT_FDCWD, fixture_path, &kept, view, NULL), 0);
    assert_int_equal(view->last_kernel_time, 7);

    /* A link to it is refused as ever. */
    assert_int_equal(rename(fixture_path, other), 0);
    assert_int_equal(symlink(other, fixture_path), 0);
    assert_true(region_view_read_at(AT_FDCWD, fixture_path, &kept, view, NULL) < 0);
    assert_int_equal(kept.fd, -1);

    /* What was empty becomes a region. */
    assert_int_equal(unlink(fixture_path), 0);
    assert_int_equal(file_replace(fixture_path, "", 0, 0666), 0);
    assert_int_equal(region_view_read_at(AT_FDCWD, fixture_path, &kept, view, NULL), -EPROTO);
    region_close(&region);
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    assert_int_equal(region_view_read_at(AT_FDCWD, fixture_path, &kept, view, NULL), 0);
    region_close(&region);
    region_kept_close(&kept);
    assert_int_equal(kept.fd, -1);
    assert_int_equal(unlink(other), 0);
    free(view);
}

static void pinned_and_imported_memory_is_told_of_the_living(void **state)
{
    struct region region;

    (void)state;
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    assert_int_equal(region_claim(&region, NULL), 0);
    assert_int_equal(fixture_view()->pinned_bytes, 0);
    atomic_store(&region.ext->slots[region.slot].pinned, 4096);
    atomic_store(&region.ext->slots[region.slot + 1].pinned, 512);
    assert_int_equal(fixture_view()->pinned_bytes, 4096);
    assert_int_equal(fixture_view()->imports, 0);
    atomic_store(&region.ext->slots[region.slot].imports, 3);
    atomic_store(&region.ext->slots[region.slot + 1].imports, 5);
    assert_int_equal(fixture_view()->imports, 3);
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

        assert_int_equal(region_open(&region, fixture_path, NULL), 0);
        assert_int_equal(region_view_read(fixture_path, view, NULL), 0);
        region.base->major_version = majors[i];
        assert_true(region_view_read(fixture_path, view, &err) < 0);
        assert_true(err.text[0] != '\0');
        region_close(&region);
        (void)unlink(fixture_path);
    }
    free(view);
}

/* Wild bytes everywhere but in the head that makes it a region: no crash, no hang. */
static void hostile_bytes_crash_nobody(void **state)
{
    struct region region;
    struct region_view *view = calloc(1, sizeof(*view));

    (void)state;
    for (unsigned seed = 0; seed < 20; seed++) {
        assert_int_equal(region_open(&region, fixture_path, NULL), 0);
        for (size_t i = 16; i < sizeof(*region.base); i++)
            ((unsigned char *)region.base)[i] = (unsigned char)rand_r(&seed);
        for (size_t i = 16; i < sizeof(*region.ext); i++)
            ((unsigned char *)region.ext)[i] = (unsigned char)rand_r(&seed);
        (void)region_device(&region, "GPU-a");
        (void)region_claim(&region, NULL);
        (void)region_settle(&region);
        (void)region_view_read(fixture_path, view, NULL);
        region_close(&region);
        assert_int_equal(unlink(fixture_path), 0);
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
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    for (unsigned i = 0; i < REGION_SLOTS; i++) {
        region.ext->slots[i].pid_namespace = self.pid_namespace;
        region.ext->slots[i].pid = child;
        region.base->slots[i].pid = child;
        region.base->slots[i].status = REGION_STATUS_RUNNING;
    }
    region.base->slot_count = REGION_SLOTS;

    begun_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
    assert_int_equal(region_view_read(fixture_path, view, NULL), 0);
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
    int fd = open(fixture_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    (void)state;
    assert_int_equal(ftruncate(fd, 1197896), 0);
    assert_int_equal(region_view_read(fixture_path, &none, NULL), -EPROTO);
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
    view = fixture_view();
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
    assert_int_equal(fixture_view()->process_count, 0);
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

        if (region_open(&region, fixture_path, NULL) < 0 || region_claim(&region, NULL) < 0 ||
            write(ready[1], "x", 1) != 1)
            _exit(1);
        (void)pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    view = fixture_view();
    assert_int_equal(view->process_count, 1);
    assert_true(view->processes[0].is_sure);
    assert_int_equal(view->processes[0].host_pid, child);
    assert_int_equal(view->processes[0].told_pid, 0);
    assert_int_equal(region_tell_host_pid(fixture_path, view->processes[0].slot, child + 1),
                     -ESRCH);
    assert_int_equal(region_tell_host_pid(fixture_path, 5, child), -ESRCH);
    assert_int_equal(region_tell_host_pid(fixture_path, REGION_SLOTS, child), -EPROTO);
    assert_int_equal(fixture_view()->processes[0].told_pid, 0);
    assert_int_equal(region_tell_host_pid(fixture_path, view->processes[0].slot, child), 0);
    assert_int_equal(fixture_view()->processes[0].told_pid, child);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(region_tell_host_pid(fixture_path, 0, child), -ESRCH);
    assert_int_equal(truncate(fixture_path, 100), 0);
    assert_int_equal(region_tell_host_pid(fixture_path, 0, child), -EPROTO);
    assert_int_equal(region_tell_host_pid("/nonexistent", 0, child), -ENOENT);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_file_that_is_kept_open_is_read_while_its_path_leads_to_it),
        FIXTURE_TEST(pinned_and_imported_memory_is_told_of_the_living),
        FIXTURE_TEST(a_later_version_is_not_read),
        FIXTURE_TEST(hostile_bytes_crash_nobody),
        FIXTURE_TEST(a_region_does_not_cost_its_readers_more_than_its_slots),
        FIXTURE_TEST(a_region_of_version_0_is_read),
        FIXTURE_TEST(the_hosts_pid_is_told_to_who_has_the_lock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
