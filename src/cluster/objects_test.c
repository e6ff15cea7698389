/* SPDX-License-Identifier: Apache-2.0 */

/* A cluster that is built of the objects that another shows. */

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster_fixture.h"
#include "cluster/rebuild_test.h"
#include "model/keys.h"

static struct cluster *rebuilt(const struct fixture *fixture)
{
    const struct cluster_options options = {.vendors = &fixture->vendors};
    struct cluster *fresh = cluster_new(&options);

    rebuild_from_objects(fixture->cluster, &fixture->vendors, fresh);
    rebuild_check_same(fixture->cluster, fresh);
    return fresh;
}

/* Whether a pod of so much memory has room there. */
static int filter_in(const struct fixture *fixture, struct cluster *cluster, int mib)
{
    struct fixture with = *fixture;
    struct cluster_answer answer;

    with.cluster = cluster;
    return fixture_filter(&with, "asked", mib, 0, &answer);
}

static void test_a_reservation_is_held(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;
    struct cluster *fresh;

    assert_int_equal(fixture_filter(fixture, "one", 600, 0, &answer), CLUSTER_PLACED);
    fresh = rebuilt(fixture);
    assert_int_equal(cluster_count(fresh).pods, 1);
    assert_int_equal(cluster_count(fresh).reserved, 0);
    assert_int_equal(filter_in(fixture, fresh, 500), CLUSTER_REFUSED);
    assert_int_equal(filter_in(fixture, fresh, 400), CLUSTER_PLACED);
    cluster_free(fresh);
}

static void test_what_is_bound_is_held(void **state)
{
    struct fixture *fixture = *state;
    struct text_pairs annotations;
    struct cluster *fresh;

    fixture_start_bind(fixture, "one", &annotations);
    cluster_free(rebuilt(fixture));
    cluster_bound(fixture->cluster, "one", CLUSTER_BOUND, 0);
    cluster_free(rebuilt(fixture));
    fixture_show(fixture, "one", &annotations);
    fresh = rebuilt(fixture);
    assert_int_equal(filter_in(fixture, fresh, 500), CLUSTER_REFUSED);
    cluster_free(fresh);
    cluster_delete_pod(fixture->cluster, "one");
    fresh = rebuilt(fixture);
    assert_int_equal(filter_in(fixture, fresh, 1000), CLUSTER_PLACED);
    cluster_free(fresh);
}

static void test_a_node_that_is_gone_is_not_shown(void **state)
{
    struct fixture *fixture = *state;
    struct cluster *fresh;

    cluster_delete_node(fixture->cluster, "a");
    fresh = rebuilt(fixture);
    assert_false(cluster_knows_node(fresh, "a"));
    cluster_free(fresh);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(test_a_reservation_is_held),
        FIXTURE_TEST(test_what_is_bound_is_held),
        FIXTURE_TEST(test_a_node_that_is_gone_is_not_shown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
