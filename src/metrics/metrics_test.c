/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/metrics.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_and_samples_are_written),
    };

    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
