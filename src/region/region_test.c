/* SPDX-License-Identifier: Apache-2.0 */

/* The file: made, opened, found to be another. */

#include "region/region.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/util.h"
#include "region/region_fixture.h"

static void a_new_region_has_hami_cores_first_bytes(void **state)
{
    struct region region;
    struct stat st;
    int fd;

    (void)state;
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    assert_int_equal(stat(fixture_path, &st), 0);
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

static void a_file_that_was_made_for_us_is_not_made_again(void **state)
{
    struct region region, other;
    struct stat st;

    (void)state;
    assert_int_equal(region_open_made(&region, fixture_path, 0, NULL), -ENOENT);
    assert_int_equal(access(fixture_path, F_OK), -1);
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    assert_int_equal(stat(fixture_path, &st), 0);
    assert_int_equal(region_open_made(&other, fixture_path, st.st_ino, NULL), 0);
    region_close(&other);
    assert_int_equal(region_open_made(&other, fixture_path, st.st_ino + 1, NULL), -ESTALE);
    region_close(&region);
}

static void a_file_that_was_removed_or_replaced_is_noticed(void **state)
{
    struct error err = ERROR_INIT;
    struct region region;
    pid_t child;
    int status;

    (void)state;
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    assert_int_equal(region_claim(&region, NULL), 0);
    assert_false(region_is_lost(&region));
    assert_int_equal(unlink(fixture_path), 0);
    assert_true(region_is_lost(&region));
    assert_int_equal(file_replace(fixture_path, "x", 1, 0666), 0);
    assert_true(region_is_lost(&region));

    child = fork();
    if (child == 0) {
        region_after_fork(&region);
        _exit(region_claim(&region, &err) == -ESTALE && strstr(err.text, fixture_path) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    region_close(&region);
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
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    assert_int_equal(region.ext->boot, fnv1a(boot));
    region.ext->devices[1].compute.zero_ns = INT64_MAX / 2;
    region.ext->devices[1].compute.charged_ns = 5;
    region.ext->devices[1].gang.until_ns = INT64_MAX / 2;
    region.ext->turns[7][1].served_ns = INT64_MAX / 2;
    region_close(&region);
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    assert_int_equal(region.ext->devices[1].compute.zero_ns, INT64_MAX / 2);

    /* Who gives the boot another name is not rid of his debts. */
    region.ext->devices[1].compute.zero_ns = clock_now_ns() + 300 * NS_PER_S;
    region.ext->devices[1].gang.until_ns = 1;
    region.ext->turns[7][1].served_ns = 1;
    region.ext->boot++;
    region_close(&region);
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    assert_int_equal(region.ext->boot, fnv1a(boot));
    assert_true(region.ext->devices[1].compute.zero_ns > clock_now_ns());
    assert_int_equal(region.ext->devices[1].gang.until_ns, 1);
    assert_int_equal(region.ext->turns[7][1].served_ns, 1);

    region.ext->devices[1].compute.zero_ns = INT64_MAX / 2;
    region.ext->boot++;
    region_close(&region);
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    assert_int_equal(region.ext->devices[1].compute.zero_ns, 0);
    assert_int_equal(region.ext->devices[1].gang.until_ns, 0);
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
        assert_int_equal(file_replace(fixture_path, cases[i].bytes, cases[i].size, 0666), 0);
        assert_int_equal(region_open(&region, fixture_path, &err), -EPROTO);
        assert_non_null(strstr(err.text, fixture_path));
        region_close(&region);
    }

    (void)unlink(fixture_path);
    assert_int_equal(symlink("/etc/passwd", fixture_path), 0);
    assert_int_equal(region_open(&region, fixture_path, NULL), -ELOOP);
    (void)unlink(fixture_path);
    assert_int_equal(mkfifo(fixture_path, 0600), 0);
    assert_int_equal(region_open(&region, fixture_path, NULL), -EPROTO);
    region_close(&region);
}

static void a_truncated_region_is_made_whole(void **state)
{
    struct region region;

    (void)state;
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    region_close(&region);
    assert_int_equal(truncate(fixture_path, 4096), 0);
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    assert_int_equal(region_claim(&region, NULL), 0);
    region_close(&region);
}

/* Both libraries may live in a container while its node is upgraded. */
static void the_first_version_1_grows_and_stays_what_it_was(void **state)
{
    struct region region;
    struct stat st;

    (void)state;
    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    region.ext->size = REGION_EXT_LEAST;
    region_close(&region);
    assert_int_equal(truncate(fixture_path, REGION_EXT_OFFSET + (off_t)REGION_EXT_LEAST), 0);

    assert_int_equal(region_open(&region, fixture_path, NULL), 0);
    assert_int_equal(stat(fixture_path, &st), 0);
    assert_int_equal(st.st_size, REGION_SIZE);
    assert_int_equal(region.ext->size, REGION_EXT_LEAST);
    assert_int_equal(region.ext->turns[REGION_SLOTS - 1][REGION_DEVICES - 1].served_ns, 0);
    region_close(&region);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_new_region_has_hami_cores_first_bytes),
        FIXTURE_TEST(a_file_that_was_made_for_us_is_not_made_again),
        FIXTURE_TEST(a_file_that_was_removed_or_replaced_is_noticed),
        FIXTURE_TEST(times_of_another_boot_are_forgotten),
        FIXTURE_TEST(files_that_are_not_regions_are_refused_with_a_reason),
        FIXTURE_TEST(a_truncated_region_is_made_whole),
        FIXTURE_TEST(the_first_version_1_grows_and_stays_what_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
