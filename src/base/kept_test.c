/* SPDX-License-Identifier: Apache-2.0 */
#include "base/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"

static char path[] = "/tmp/hami-test-kept-XXXXXX";

static int set_up(void **state)
{
    int fd;

    (void)state;
    memcpy(path + sizeof(path) - 7, "XXXXXX", 6);
    fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "ours", 4), 4);
    return close(fd);
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

static void what_is_kept_is_read_and_closed(void **state)
{
    struct kept kept;
    char text[8];
    int fd;

    (void)state;
    assert_int_equal(kept_take(&kept, open(path, O_RDONLY | O_CLOEXEC)), 0);
    assert_true(kept.fd >= 512);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kept_read(&kept, text, sizeof(text)), 4);
    assert_memory_equal(text, "ours", 4);
    fd = kept.fd;
    kept_close(&kept);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(kept_read(&kept, text, sizeof(text)), -ESTALE);
    kept_close(&kept);
    assert_int_equal(kept_take(&kept, open("/nowhere", O_RDONLY | O_CLOEXEC)), -ENOENT);
}

static void what_the_program_has_under_the_number_is_left_alone(void **state)
{
    int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    struct kept kept;
    char text[8];
    int fd;

    (void)state;
    assert_int_equal(kept_take(&kept, open(path, O_RDONLY | O_CLOEXEC)), 0);
    fd = kept.fd;
    assert_int_equal(dup2(zero, fd), fd);
    assert_false(kept_is_open(&kept));
    assert_int_equal(kept_read(&kept, text, sizeof(text)), -ESTALE);
    assert_int_equal(kept_renew(&kept, open("/dev/zero", O_RDONLY | O_CLOEXEC)), -ESTALE);
    assert_int_equal(kept_renew(&kept, open(path, O_RDONLY | O_CLOEXEC)), 0);
    assert_int_not_equal(kept.fd, fd);
    assert_int_equal(kept_read(&kept, text, sizeof(text)), 4);
    assert_int_equal(dup2(zero, kept.fd), kept.fd);
    zero = kept.fd;
    kept_close(&kept);
    assert_int_not_equal(fcntl(fd, F_GETFD), -1);
    assert_int_not_equal(fcntl(zero, F_GETFD), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_kept_is_read_and_closed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_the_program_has_under_the_number_is_left_alone, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
