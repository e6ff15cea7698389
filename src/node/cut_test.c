/* SPDX-License-Identifier: Apache-2.0 */
#include "node/cut.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/check_lease.h"

static const struct cut_bounds bounds = {4096, 1 << 20};
static char path[32];

static int set_up(void **state)
{
    int fd;

    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/hami-test-cut-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

static off_t size_of_file(void)
{
    struct stat st;

    return stat(path, &st) == 0 ? st.st_size : -1;
}

static void what_is_too_long_is_cut_and_nothing_else(void **state)
{
    (void)state;
    assert_int_equal(truncate(path, 4096), 0);
    assert_int_equal(cut_file(path, &bounds), 0);
    assert_int_equal(size_of_file(), 4096);
    assert_int_equal(truncate(path, 10000), 0);
    assert_int_equal(cut_file(path, &bounds), 10000);
    assert_int_equal(size_of_file(), 4096);
    assert_int_equal(cut_file("/dev/null", &bounds), 0);
    assert_int_equal(cut_file("/tmp/hami-test-cut-none", &bounds), 0);
}

static void a_lease_that_is_taken_again_and_again_keeps_nothing_long(void **state)
{
    pid_t pid;

    (void)state;
    assert_int_equal(truncate(path, 10000), 0);
    pid = lease_start(path);
    if (!pid) {
        (void)puts("skipped: there are no leases of files in /tmp");
        skip();
    }
    for (int i = 0; i < 200 && size_of_file() != 4096; i++) {
        (void)cut_file(path, &bounds);
        (void)usleep(10000);
    }
    lease_end(pid);
    assert_int_equal(size_of_file(), 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_too_long_is_cut_and_nothing_else, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_lease_that_is_taken_again_and_again_keeps_nothing_long,
                                        set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
