/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/way.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"

static void strategies_have_the_names_that_hami_gives_them(void **state)
{
    unsigned set = 0;

    (void)state;
    assert_int_equal(way_read("envvar", &set, NULL), 0);
    assert_int_equal(set, WAY_ENVVAR);
    assert_int_equal(way_read("cdi-cri,volume-mounts", &set, NULL), 0);
    assert_int_equal(set, WAY_ENVVAR | WAY_CDI_CRI | WAY_VOLUME_MOUNTS);
    set = 0;
    assert_int_equal(way_read("cdi-annotations", &set, NULL), 0);
    assert_int_equal(set, WAY_CDI_ANNOTATIONS);
}

static void an_unknown_strategy_is_refused_by_its_name(void **state)
{
    static const char *const texts[] = {"", "cdi", "envvar,", "envvar,env", "ENVVAR", "envvar "};
    struct error err = ERROR_INIT;
    unsigned set = WAY_CDI_CRI;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        assert_int_equal(way_read(texts[i], &set, &err), -EINVAL);
    assert_int_equal(set, WAY_CDI_CRI);
    err = (struct error)ERROR_INIT;
    assert_int_equal(way_read("envvar,tegra,cdi-cri", &set, &err), -EINVAL);
    assert_non_null(strstr(err.text, "\"tegra\""));
}

static void the_first_strategy_that_the_node_can_do_counts(void **state)
{
    static const struct {
        unsigned strategies;
        enum way good, unknown, no_cdi, old_kubelet;
    } cases[] = {
        {0, WAY_LATE, WAY_UNKNOWN, WAY_ORDERED, WAY_ORDERED},
        {WAY_CDI_CRI, WAY_LATE, WAY_UNKNOWN, WAY_CLOSED, WAY_CLOSED},
        {WAY_CDI_ANNOTATIONS, WAY_ANNOTATED, WAY_UNKNOWN, WAY_CLOSED, WAY_ANNOTATED},
        {WAY_CDI_CRI | WAY_CDI_ANNOTATIONS, WAY_LATE, WAY_UNKNOWN, WAY_CLOSED, WAY_ANNOTATED},
        {WAY_CDI_CRI | WAY_ENVVAR, WAY_LATE, WAY_UNKNOWN, WAY_ORDERED, WAY_ORDERED},
        {WAY_ENVVAR, WAY_ORDERED, WAY_ORDERED, WAY_ORDERED, WAY_ORDERED},
        {WAY_VOLUME_MOUNTS, WAY_ORDERED, WAY_ORDERED, WAY_ORDERED, WAY_ORDERED},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        unsigned set = cases[i].strategies;

        assert_int_equal(way_choose(set, FITNESS_GOOD), cases[i].good);
        assert_int_equal(way_choose(set, FITNESS_UNKNOWN), cases[i].unknown);
        assert_int_equal(way_choose(set, 0), cases[i].unknown);
        assert_int_equal(way_choose(set, FITNESS_NO_CDI), cases[i].no_cdi);
        assert_int_equal(way_choose(set, FITNESS_OLD_KUBELET), cases[i].old_kubelet);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strategies_have_the_names_that_hami_gives_them),
        cmocka_unit_test(an_unknown_strategy_is_refused_by_its_name),
        cmocka_unit_test(the_first_strategy_that_the_node_can_do_counts),
    };

    return cmocka_run_group_tests_name("way", tests, NULL, NULL);
}
