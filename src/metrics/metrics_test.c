/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/metrics.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/util.h"

static void families_and_samples_are_written(void **state)
{
    CLEANUP(strbuf_deinit) struct strbuf buf = STRBUF_INIT(1024), text = STRBUF_INIT(1024);
    const struct metric_label labels[] = {{"pod", "a"}, {"why", "\"x\\y\"\n\xff"}};

    (void)state;
    metrics_labels(&text, labels, ARRAY_SIZE(labels));
    metrics_family(&buf, "up", METRIC_GAUGE, "Whether it is up");
    metrics_sample(&buf, "up", "", 1);
    metrics_family(&buf, "seen_total", METRIC_COUNTER, "What was seen");
    metrics_sample(&buf, "seen_total", strbuf_text(&text), 3145728000);
    metrics_sample(&buf, "seen_total", "{pod=\"a\"}", 0.5);
    assert_string_equal(strbuf_text(&buf),
                        "# HELP up Whether it is up\n# TYPE up gauge\nup 1\n"
                        "# HELP seen_total What was seen\n# TYPE seen_total counter\n"
                        "seen_total{pod=\"a\",why=\"\\\"x\\\\y\\\"\\n\xef\xbf\xbd\"} 3145728000\n"
                        "seen_total{pod=\"a\"} 0.5\n");
}

static void times_are_told_in_seconds_to_the_nanosecond(void **state)
{
    static const struct {
        uint64_t ns;
        const char *text;
    } cases[] = {
        {0, "a{b} 0\n"},
        {1, "a{b} 0.000000001\n"},
        {100000001, "a{b} 0.100000001\n"},
        {1500000000, "a{b} 1.5\n"},
        {60000000000, "a{b} 60\n"},
        {UINT64_MAX, "a{b} 18446744073.709551615\n"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CLEANUP(strbuf_deinit) struct strbuf buf = STRBUF_INIT(100);

        metrics_add_seconds(&buf, metric_text("a"), metric_text("{b}"), cases[i].ns);
        assert_string_equal(strbuf_text(&buf), cases[i].text);
    }
}

static void numbers_are_read_back_as_they_were(void **state)
{
    static const double values[] = {0, 7, 10, 999999999999999, 1e15, 1e300, -1, 0.1, 12.5};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        CLEANUP(strbuf_deinit) struct strbuf buf = STRBUF_INIT(100);

        metrics_add(&buf, metric_text("a"), metric_text(""), values[i]);
        assert_memory_equal(strbuf_text(&buf), "a ", 2);
        assert_true(strtod(strbuf_text(&buf) + 2, NULL) == values[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_and_samples_are_written),
        cmocka_unit_test(times_are_told_in_seconds_to_the_nanosecond),
        cmocka_unit_test(numbers_are_read_back_as_they_were),
    };

    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
