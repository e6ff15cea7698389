/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/feedback.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/util.h"
#include "monitor/containers.h"
#include "region/view.h"
#include "region/view_v0.h"

struct expected {
    int recent_kernel, utilization_switch;
};

struct round_case {
    const char *name;
    unsigned count;
    struct feedback_container before[4];
    struct expected after[4];
};

#define ON(...)                                                                                    \
    ARRAY_SIZE(((unsigned[]){__VA_ARGS__})),                                                       \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static const struct round_case cases[] = {
    {"nobody: nothing", 0, {{0}}, {{0}}},
    {"alone: not held to its share", 1, {{1, 2, 1, ON(0)}}, {{1, 0}}},
    {"what is idle loses one a round", 1, {{1, 1, 0, ON(0)}}, {{0, 0}}},
    {"and no more than that", 1, {{1, 0, 0, ON(0)}}, {{0, 0}}},
    {"two of the same priority are held to their shares",
     2,
     {{1, 2, 0, ON(0)}, {1, 2, 0, ON(0)}},
     {{1, 1}, {1, 1}}},
    {"so is an idle third, before it launches",
     3,
     {{1, 2, 0, ON(0)}, {1, 2, 0, ON(0)}, {1, 0, 0, ON(0)}},
     {{1, 1}, {1, 1}, {0, 1}}},
    {"but not beside one alone, as HAMi has it",
     2,
     {{1, 2, 0, ON(0)}, {1, 0, 1, ON(0)}},
     {{1, 0}, {0, 0}}},
    {"a higher priority blocks", 2, {{0, 2, 0, ON(0)}, {1, 2, 0, ON(0)}}, {{1, 0}, {-1, 1}}},
    {"an idle one of higher priority does not",
     2,
     {{0, 1, 0, ON(0)}, {1, 2, 0, ON(0)}},
     {{0, 0}, {1, 0}}},
    {"who is blocked is not active", 2, {{1, -1, 1, ON(0)}, {2, 2, 0, ON(0)}}, {{0, 0}, {1, 0}}},
    {"and goes on when the other is idle",
     2,
     {{0, 0, 0, ON(0)}, {1, -1, 1, ON(0)}},
     {{0, 0}, {0, 0}}},
    {"on other cards nobody is in the way",
     2,
     {{0, 2, 1, ON(0)}, {1, 2, 1, ON(1)}},
     {{1, 0}, {1, 0}}},
    {"any of its cards blocks a container, also where the first one is not contended",
     3,
     {{0, 2, 1, ON(1)}, {1, 2, 1, ON(0, 1)}, {1, 2, 1, ON(0)}},
     {{1, 0}, {-1, 1}, {1, 1}}},
    {"priorities beyond 0 and 1 are compared, too",
     3,
     {{5, 2, 0, ON(0)}, {1000, 2, 0, ON(0)}, {3, 0, 0, ON(0)}},
     {{1, 0}, {-1, 1}, {0, 0}}},
    {"one below 0 is nobody's to wait for",
     2,
     {{-1, 2, 0, ON(0)}, {1, 2, 0, ON(0)}},
     {{1, 0}, {1, 0}}},
    {"a container without cards waits for nobody",
     2,
     {{0, 2, 0, ON(0)}, {1, 2, 1, 0, {0}}},
     {{1, 0}, {1, 0}}},
};

static void each_round_is_as_HAMi_has_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct feedback_container containers[4];

        memcpy(containers, cases[i].before, sizeof(containers));
        assert_true(feedback_decide(containers, cases[i].count));
        for (unsigned k = 0; k < cases[i].count; k++) {
            if (containers[k].recent_kernel != cases[i].after[k].recent_kernel ||
                containers[k].utilization_switch != cases[i].after[k].utilization_switch)
                fail_msg("%s: container %u: %d, %d", cases[i].name, k, containers[k].recent_kernel,
                         containers[k].utilization_switch);
        }
    }
}

/* Regions */

static char path[64];

static void make_file(off_t size, int32_t magic)
{
    int fd;

    COPY_TEXT(path, "/tmp/hami-feedback-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, size), 0);
    assert_int_equal(pwrite(fd, &magic, sizeof(magic), 0), sizeof(magic));
    (void)close(fd);
}

static int32_t word_at(off_t offset)
{
    int fd = open(path, O_RDONLY);
    int32_t word;

    assert_int_equal(pread(fd, &word, sizeof(word), offset), sizeof(word));
    (void)close(fd);
    return word;
}

static int tell(int recent_kernel, int utilization_switch)
{
    const struct region_words seen = {0, 0}, words = {recent_kernel, utilization_switch};

    return region_tell_words(path, &seen, &words);
}

static void words_stand_where_both_layouts_have_them(void **state)
{
    static const struct {
        off_t size, recent, utilization;
    } layouts[] = {
        {2008953, 2008904, 2008900}, /* HAMi-core 1.2 */
        {1197897, 1197888, 1197884}, /* of version 0 */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
        make_file(layouts[i].size, REGION_MAGIC);
        assert_int_equal(tell(-1, 1), 0);
        assert_int_equal(word_at(layouts[i].recent), -1);
        assert_int_equal(word_at(layouts[i].utilization), 1);
        assert_int_equal(tell(0, 0), 0); /* as seen: not touched */
        assert_int_equal(word_at(layouts[i].recent), -1);
        assert_int_equal(unlink(path), 0);
    }
}

static void what_is_no_region_is_left_alone(void **state)
{
    (void)state;
    make_file(2008953, 1);
    assert_int_equal(tell(-1, 1), -EPROTO);
    assert_int_equal(word_at(2008904), 0);
    assert_int_equal(unlink(path), 0);
    make_file(5000, REGION_MAGIC);
    assert_int_equal(tell(-1, 1), -EPROTO);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tell(-1, 1), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_round_is_as_HAMi_has_it),
        cmocka_unit_test(words_stand_where_both_layouts_have_them),
        cmocka_unit_test(what_is_no_region_is_left_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
