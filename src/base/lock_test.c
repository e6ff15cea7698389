/* SPDX-License-Identifier: Apache-2.0 */

/* Which signals reach a thread. */

#include "base/lock.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"

enum {
    CANCEL = 32, /* libc's */
    SETXID = 33,
};

static bool is_blocked(int number)
{
    static const char key[] = "\nSigBlk:\t";
    char text[4096];
    const char *line;

    assert_true(file_read("/proc/thread-self/status", text, sizeof(text)) > 0);
    line = strstr(text, key);
    assert_non_null(line);
    return strtoull(line + sizeof(key) - 1, NULL, 16) >> (number - 1) & 1;
}

static void check_blocked(bool usual, bool faults)
{
    assert_int_equal(is_blocked(SIGUSR1), usual);
    assert_int_equal(is_blocked(SIGRTMAX), usual);
    assert_int_equal(is_blocked(SIGSEGV), faults);
    assert_int_equal(is_blocked(SIGSYS), faults);
    assert_int_equal(is_blocked(CANCEL), faults);
    assert_int_equal(is_blocked(SETXID), faults);
}

static void signals_come_again_once_all_is_released(void **state)
{
    sigset_t own;

    (void)state;
    (void)sigemptyset(&own);
    (void)sigaddset(&own, SIGUSR2);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &own, NULL), 0);
    check_blocked(false, false);
    lock_hold_signals();
    check_blocked(true, false);
    lock_hold_signals();
    lock_hold_faults();
    check_blocked(true, true);
    lock_release_signals();
    check_blocked(true, true);
    lock_release_signals();
    check_blocked(false, false);
    assert_true(is_blocked(SIGUSR2)); /* the program's own doing */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signals_come_again_once_all_is_released),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
