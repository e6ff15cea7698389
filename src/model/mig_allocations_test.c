/* SPDX-License-Identifier: Apache-2.0 */
#include "model/mig_allocations.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/util.h"

#define MADE ",\"migUUID\":\"MIG-1\",\"gpuInstanceID\":7,\"computeInstanceID\":0"
#define CARD "\"gpuUUID\":\"GPU-a\",\"profile\":\"1g.5gb\""
#define ONE CARD ",\"placement\":{\"start\":2,\"size\":1}"
#define SECOND ",\"deviceIndex\":1"

static void a_list_is_read_whole_or_not_at_all(void **state)
{
    static const struct {
        const char *text;
        int count;
    } cases[] = {
        {"[]", 0},
        {"[{" ONE "}]", 1}, /* to be made */
        {"[{" ONE MADE "}]", 1},
        {"[{" ONE MADE "},{" ONE MADE SECOND "}]", 2},
        {"[{" ONE "},{" ONE SECOND "},{" ONE ",\"deviceIndex\":2}]", 2}, /* no room */
        {"[{" ONE MADE "},{" ONE "}]", -EINVAL},                         /* the same device */
        {"[{" ONE ",\"migUUID\":\"MIG-1\"}]", -EINVAL},                  /* half of it */
        {"[{" ONE ",\"gpuInstanceID\":7,\"computeInstanceID\":0}]", -EINVAL},
        {"[{" ONE MADE ",\"containerIndex\":-1}]", -EINVAL},
        {"[{" ONE MADE ",\"deviceIndex\":1.5}]", -EINVAL},
        {"[{\"profile\":\"1g.5gb\",\"placement\":{\"size\":1}}]", -EINVAL},
        {"[{\"gpuUUID\":\"GPU-a\",\"profile\":\"\",\"placement\":{\"size\":1}}]", -EINVAL},
        {"[{" CARD "}]", -EINVAL},
        {"[{" CARD ",\"placement\":{\"start\":1}}]", -EINVAL},
        {"[{" CARD ",\"placement\":{\"start\":0,\"size\":8}}]", 1},
        {"[{" CARD ",\"placement\":{\"start\":1,\"size\":8}}]", -EINVAL}, /* beyond the card */
        {"[{" CARD ",\"placement\":{\"start\":8,\"size\":1}}]", -EINVAL},
        {"[{" CARD ",\"placement\":{\"start\":-1,\"size\":1}}]", -EINVAL},
        {"[{" ONE MADE "},1]", -EINVAL},
        {"{}", -EINVAL},
        {"", -EINVAL},
    };
    struct mig_allocation allocations[2];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (mig_allocations_decode(cases[i].text, strlen(cases[i].text), allocations,
                                   ARRAY_SIZE(allocations)) != cases[i].count)
            fail_msg("%s", cases[i].text);
    }
}

static void an_entry_is_read_whole(void **state)
{
    static const char text[] = "[{\"containerIndex\":1,\"deviceIndex\":2," ONE MADE "}]";
    struct mig_allocation allocation;

    (void)state;
    assert_int_equal(mig_allocations_decode(text, strlen(text), &allocation, 1), 1);
    assert_int_equal(allocation.container, 1);
    assert_int_equal(allocation.device, 2);
    assert_string_equal(allocation.gpu_uuid, "GPU-a");
    assert_string_equal(allocation.profile, "1g.5gb");
    assert_int_equal(allocation.start, 2);
    assert_int_equal(allocation.size, 1);
    assert_true(allocation.made);
    assert_string_equal(allocation.mig_uuid, "MIG-1");
    assert_int_equal(allocation.gpu_instance, 7);
    assert_int_equal(allocation.compute_instance, 0);
}

/* As json.Marshal writes HAMi's struct. */
static void what_is_written_is_what_was_read(void **state)
{
    static const char text[] =
        "[{\"containerIndex\":0,\"deviceIndex\":0," ONE "},"
        "{\"containerIndex\":3,\"deviceIndex\":1,\"gpuUUID\":\"GPU-b\",\"profile\":\"7g.40gb\","
        "\"placement\":{\"start\":0,\"size\":8}" MADE "}]";
    CLEANUP(strbuf_deinit) struct strbuf written = STRBUF_INIT(1024);
    struct mig_allocation allocations[2];

    (void)state;
    assert_int_equal(mig_allocations_decode(text, strlen(text), allocations, 2), 2);
    assert_false(allocations[0].made);
    mig_allocations_add(&written, &allocations[0]);
    mig_allocations_add(&written, &allocations[1]);
    strbuf_add(&written, "]");
    assert_string_equal(strbuf_text(&written), text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_is_read_whole_or_not_at_all),
        cmocka_unit_test(an_entry_is_read_whole),
        cmocka_unit_test(what_is_written_is_what_was_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
