/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/feedback.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/util.h"
#include "monitor/containers.h"
#include "region/region.h"
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

/* Containers of a node, as HAMi's plugin and library leave them: without limits. */
enum {
    MANY = 40,
};

static int remove_one(const char *file, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(file);
}

static void open_container(struct region *region, const char *hook, int number, int priority)
{
    char file[128];

    (void)snprintf(file, sizeof(file), "%s/containers/uid-%d_main", hook, number);
    assert_int_equal(mkdir(file, 0755), 0);
    (void)snprintf(file, sizeof(file), "%s/containers/uid-%d_main/x.cache", hook, number);
    memset(region, 0, sizeof(*region));
    assert_int_equal(region_open(region, file, NULL), 0);
    region_set_device(region, 0, "GPU-a");
    region->base->priority = priority;
    region->base->recent_kernel = 2;
}

static void all_containers_of_a_node_are_told(void **state)
{
    static struct region regions[MANY];
    char hook[] = "/tmp/hami-feedback-XXXXXX", folder[64];
    struct containers *containers;
    struct feedback *feedback = feedback_new();
    struct containers_visitor visitor = feedback_visitor(feedback);
    struct containers_look look = {.now_ns = 1, .visitors = &visitor, .visitor_count = 1};

    (void)state;
    assert_non_null(mkdtemp(hook));
    (void)snprintf(folder, sizeof(folder), "%s/containers", hook);
    assert_int_equal(mkdir(folder, 0755), 0);
    for (int i = 0; i < MANY; i++)
        open_container(&regions[i], hook, i, i == 7 ? 0 : 1);
    containers = containers_new(hook);
    assert_non_null(containers);
    assert_int_equal(containers_look(containers, &look, NULL), 0);
    feedback_tell(feedback);
    feedback_free(feedback);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(regions[i].base->recent_kernel, i == 7 ? 1 : -1);
        assert_int_equal(regions[i].base->utilization_switch, i == 7 ? 0 : 1);
        region_close(&regions[i]);
    }
    containers_free(containers);
    assert_int_equal(nftw(hook, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_round_is_as_HAMi_has_it),
        cmocka_unit_test(words_stand_where_both_layouts_have_them),
        cmocka_unit_test(what_is_no_region_is_left_alone),
        cmocka_unit_test(all_containers_of_a_node_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
