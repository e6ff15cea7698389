/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/migs.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"

#define MADE ",\"migUUID\":\"MIG-1\",\"gpuInstanceID\":7,\"computeInstanceID\":0"
#define ONE "\"gpuUUID\":\"GPU-a\",\"profile\":\"1g.5gb\""

static void instances_are_those_that_were_made(void **state)
{
    static const struct {
        const char *text;
        int count;
    } cases[] = {
        {"[]", 0},
        {"[{" ONE "}]", 0}, /* to be made */
        {"[{" ONE MADE "}]", 1},
        {"[{" ONE MADE "},{" ONE MADE "},{" ONE "}]", 2},
        {"[{" ONE ",\"migUUID\":\"MIG-1\"}]", -EINVAL}, /* half of it */
        {"[{" ONE ",\"gpuInstanceID\":7,\"computeInstanceID\":0}]", -EINVAL},
        {"[{" ONE MADE ",\"containerIndex\":-1}]", -EINVAL},
        {"[{" ONE MADE ",\"deviceIndex\":1.5}]", -EINVAL},
        {"[{\"profile\":\"1g.5gb\"" MADE "}]", -EINVAL},
        {"[{\"gpuUUID\":\"GPU-a\",\"profile\":\"\"" MADE "}]", -EINVAL},
        {"[{" ONE MADE "},1]", -EINVAL},
        {"{}", -EINVAL},
        {"", -EINVAL},
    };
    struct mig migs[4];

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (migs_parse(cases[i].text, strlen(cases[i].text), migs, 4) != cases[i].count)
            fail_msg("%s", cases[i].text);
    }
}

static void an_instance_is_read_whole(void **state)
{
    static const char text[] = "[{\"containerIndex\":1,\"deviceIndex\":2," ONE MADE "}]";
    struct mig mig;

    (void)state;
    assert_int_equal(migs_parse(text, strlen(text), &mig, 1), 1);
    assert_int_equal(mig.container, 1);
    assert_int_equal(mig.device, 2);
    assert_string_equal(mig.gpu_uuid, "GPU-a");
    assert_string_equal(mig.mig_uuid, "MIG-1");
    assert_string_equal(mig.profile, "1g.5gb");
    assert_int_equal(mig.gpu_instance, 7);
    assert_int_equal(mig.compute_instance, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instances_are_those_that_were_made),
        cmocka_unit_test(an_instance_is_read_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
