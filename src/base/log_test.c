/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"

/* The output of the log to stderr between begin() and end(). */
struct capture {
    int saved, pipe[2];
    char text[2 * LOG_LINE_MAX];
};

static void begin(struct capture *capture)
{
    capture->saved = dup(STDERR_FILENO);
    assert_int_equal(pipe(capture->pipe), 0);
    (void)dup2(capture->pipe[1], STDERR_FILENO);
}

static const char *end(struct capture *capture)
{
    ssize_t len;

    (void)dup2(capture->saved, STDERR_FILENO);
    (void)close(capture->saved);
    (void)close(capture->pipe[1]);
    len = read(capture->pipe[0], capture->text, sizeof(capture->text) - 1);
    (void)close(capture->pipe[0]);
    capture->text[len > 0 ? len : 0] = '\0';
    return capture->text;
}

static void a_line_has_time_level_and_message(void **state)
{
    struct capture capture;
    unsigned year, day, ms;
    char level[16], message[64];

    (void)state;
    begin(&capture);
    log_warn("disk %d is %s", 3, "full");
    assert_int_equal(sscanf(end(&capture), "%4u-%*2u-%2uT%*2u:%*2u:%*2u.%3uZ %15s %63[^\n]", &year,
                            &day, &ms, level, message),
                     5);
    assert_true(year >= 2024);
    assert_string_equal(level, "warn");
    assert_string_equal(message, "disk 3 is full");
}

static void a_message_stays_on_its_line(void **state)
{
    struct capture capture;
    const char *text;

    (void)state;
    begin(&capture);
    log_error("a\n2026 error forged\r\033[0m");
    text = end(&capture);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_null(strchr(text, '\033'));
}

static void a_long_message_is_cut_to_one_line(void **state)
{
    struct capture capture;
    char message[2 * LOG_LINE_MAX];
    const char *text;

    (void)state;
    memset(message, 'x', sizeof(message));
    message[sizeof(message) - 1] = '\0';
    begin(&capture);
    log_info("%s", message);
    text = end(&capture);
    assert_int_equal(strlen(text), LOG_LINE_MAX);
    assert_int_equal(text[LOG_LINE_MAX - 1], '\n');
}

static void levels_above_the_chosen_one_are_dropped(void **state)
{
    struct capture capture;

    (void)state;
    begin(&capture);
    log_set_verbosity(4);
    log_debug("not seen");
    log_set_verbosity(LOG_DEBUG_VERBOSITY);
    log_debug("seen");
    log_set_level(LOG_LEVEL_ERROR);
    log_warn("not seen");
    log_set_level(LOG_LEVEL_INFO);
    assert_non_null(strstr(end(&capture), "debug seen\n"));
    assert_null(strstr(capture.text, "not seen"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_has_time_level_and_message),
        cmocka_unit_test(a_message_stays_on_its_line),
        cmocka_unit_test(a_long_message_is_cut_to_one_line),
        cmocka_unit_test(levels_above_the_chosen_one_are_dropped),
    };

    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
