/* SPDX-License-Identifier: Apache-2.0 */
#include "nvml/report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/util.h"

static const struct nvml_card busy = {
    .device = {.uuid = "GPU-a",
               .model = "NVIDIA \"A\"",
               .index = 3,
               .numa_node = 1,
               .healthy = true,
               .memory_bytes = UINT64_C(80) << 30},
    .has_status = true,
    .status = {.memory_total_bytes = UINT64_C(79) << 30,
               .memory_used_bytes = UINT64_C(5) << 30,
               .has_utilization = true,
               .utilization_percent = 70,
               .controller_percent = 20},
    .has_health = true,
    .failures = 2,
    .has_errors = true,
    .corrected = 7,
    .uncorrected = 8,
};

static const struct nvml_card lost = {
    .device = {.uuid = "GPU-b", .model = "NVIDIA B", .index = 4, .numa_node = -1},
    .has_health = true,
    .failures = 1,
    .why = "XID 79: it fell off the bus",
};

static void assert_same(const struct nvml_card *card, const struct nvml_card *other)
{
    assert_string_equal(card->device.uuid, other->device.uuid);
    assert_string_equal(card->device.model, other->device.model);
    assert_int_equal(card->device.index, other->device.index);
    assert_int_equal(card->device.numa_node, other->device.numa_node);
    assert_int_equal(card->device.healthy, other->device.healthy);
    assert_int_equal(card->device.memory_bytes, other->device.memory_bytes);
    assert_int_equal(card->has_status, other->has_status);
    assert_int_equal(card->status.memory_total_bytes, other->status.memory_total_bytes);
    assert_int_equal(card->status.memory_used_bytes, other->status.memory_used_bytes);
    assert_int_equal(card->status.has_utilization, other->status.has_utilization);
    assert_int_equal(card->status.utilization_percent, other->status.utilization_percent);
    assert_int_equal(card->status.controller_percent, other->status.controller_percent);
    assert_int_equal(card->has_health, other->has_health);
    assert_string_equal(card->why, other->why);
    assert_int_equal(card->failures, other->failures);
    assert_int_equal(card->has_errors, other->has_errors);
    assert_int_equal(card->corrected, other->corrected);
    assert_int_equal(card->uncorrected, other->uncorrected);
}

static void what_is_written_is_read(void **state)
{
    CLEANUP(strbuf_deinit) struct strbuf text = STRBUF_INIT(NVML_REPORT_MAX);
    const struct nvml_card cards[] = {busy, lost};
    struct nvml_card told[ARRAY_SIZE(cards)];

    (void)state;
    nvml_report_format(cards, ARRAY_SIZE(cards), &text);
    assert_false(text.failed);
    assert_int_equal(nvml_report_parse(text.text, text.len, told, ARRAY_SIZE(told)), 2);
    assert_same(&told[0], &busy);
    assert_same(&told[1], &lost);
    assert_int_equal(told[0].device.cores, DEVICE_CORES);
    assert_int_equal(nvml_report_parse(text.text, text.len, told, 1), -E2BIG);
}

static void what_is_no_report_is_refused(void **state)
{
    static const struct {
        const char *text;
        int r;
    } cases[] = {
        {"{\"cards\":[]}", 0},
        {"{\"cards\":[{\"uuid\":\"GPU-a\",\"model\":\"A\"}]}", 1},
        {"", -EINVAL},
        {"{\"cards\":[", -EINVAL},
        {"{\"cards\":{}}", -EINVAL},
        {"{}", -EINVAL},
        {"{\"cards\":[1]}", -EINVAL},
        {"{\"cards\":[{\"model\":\"A\"}]}", -EINVAL},
        {"{\"cards\":[{\"uuid\":\"GPU-a\"}]}", -EINVAL},
        {"{\"cards\":[{\"uuid\":5,\"model\":\"A\"}]}", -EINVAL},
        {"{\"cards\":[{\"model\":\"A\"},{\"uuid\":\"GPU-a\",\"model\":\"A\"}]}", -EINVAL},
    };
    struct nvml_card told[2];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int r = nvml_report_parse(cases[i].text, strlen(cases[i].text), told, ARRAY_SIZE(told));

        if (r != cases[i].r)
            fail_msg("%s: %d", cases[i].text, r);
    }
}

static void a_uuid_that_would_be_cut_is_refused(void **state)
{
    char uuid[sizeof(((struct device *)NULL)->uuid) + 1], text[2 * sizeof(uuid)];
    struct nvml_card told;
    size_t len;

    (void)state;
    memset(uuid, 'u', sizeof(uuid));
    uuid[sizeof(uuid) - 1] = '\0';
    len = (size_t)snprintf(text, sizeof(text), "{\"cards\":[{\"uuid\":\"%s\",\"model\":\"A\"}]}",
                           uuid);
    assert_int_equal(nvml_report_parse(text, len, &told, 1), -EINVAL);
    uuid[sizeof(uuid) - 2] = '\0';
    len = (size_t)snprintf(text, sizeof(text), "{\"cards\":[{\"uuid\":\"%s\",\"model\":\"A\"}]}",
                           uuid);
    assert_int_equal(nvml_report_parse(text, len, &told, 1), 1);
    assert_string_equal(told.device.uuid, uuid);
}

/* Numbers come from the plugin's word, the use of the card from NVML. */
static void health_alone_is_taken_over(void **state)
{
    struct nvml_card card = busy;

    (void)state;
    nvml_card_take_health(&card, &lost);
    assert_false(card.device.healthy);
    assert_string_equal(card.why, lost.why);
    assert_int_equal(card.failures, 1);
    assert_false(card.has_errors);
    assert_string_equal(card.device.uuid, "GPU-a");
    assert_int_equal(card.status.utilization_percent, 70);
    nvml_card_take_health(&card, &busy);
    assert_same(&card, &busy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(what_is_no_report_is_refused),
        cmocka_unit_test(a_uuid_that_would_be_cut_is_refused),
        cmocka_unit_test(health_alone_is_taken_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
