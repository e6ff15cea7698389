/* SPDX-License-Identifier: Apache-2.0 */

/* What a namespace may have. The fixture's node a has a card of 1000 MiB. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "cluster/cluster_fixture.h"

#define MEMORY "limits.nvidia.com/gpumem"
#define CORES "limits.nvidia.com/gpucores"

static void set_quota(struct fixture *fixture, const char *namespace, const char *name,
                      const char *key, const char *amount)
{
    struct resource hard = {.name = key, .text = amount};
    const struct quota quota = {namespace, name, {&hard, 1}};

    assert_int_equal(quantity_parse(amount, strlen(amount), &hard.quantity), 0);
    assert_true(cluster_set_quota(fixture->cluster, &quota, NULL) >= 0);
}

static int filter_one(struct fixture *fixture, const char *uid, int mib, const char **ret_summary)
{
    struct cluster_answer answer;
    int r = fixture_filter(fixture, uid, mib, 0, &answer);

    *ret_summary = r == CLUSTER_REFUSED ? answer.summary : "";
    return r;
}

static void a_pod_beyond_the_quota_is_refused_with_the_figures(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_answer answer;

    set_quota(fixture, "default", "q", MEMORY, "700");
    assert_int_equal(fixture_filter(fixture, "one", 300, 0, &answer), CLUSTER_PLACED);
    assert_int_equal(fixture_filter(fixture, "two", 401, 0, &answer), CLUSTER_REFUSED);
    assert_string_equal(answer.summary,
                        "no available node, 2 nodes do not meet: ResourceQuotaNotFit: "
                        "nvidia.com/gpumem in namespace default: 401 asked + 300 used > 700");
    assert_int_equal(answer.failed_count, 2);
    assert_true(answer.failed[0].for_good);
    assert_int_equal(fixture_filter(fixture, "two", 400, 0, &answer), CLUSTER_PLACED);
}

/* The bounds of every quota hold, of limits. and of requests.; other namespaces' don't. */
static void each_quota_holds(void **state)
{
    static const struct {
        const char *namespace, *key, *amount;
        bool fits; /* 500 MiB */
    } rows[] = {
        {"default", MEMORY, "500", true},
        {"default", MEMORY, "499", false},
        {"default", MEMORY, "0", false},
        {"default", MEMORY, "1k", true},
        {"default", MEMORY, "0.5", true}, /* no whole number */
        {"default", MEMORY, "500m", true},
        {"default", "requests.nvidia.com/gpumem", "499", false},
        {"default", "nvidia.com/gpumem", "1", true},
        {"default", "limits.nvidia.com/gpu", "0", true},
        {"default", CORES, "0", true},
        {"other", MEMORY, "0", true},
    };
    struct fixture *fixture = *state;
    const char *summary;

    set_quota(fixture, "default", "wide", MEMORY, "900");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        print_message("%s %s %s\n", rows[i].namespace, rows[i].key, rows[i].amount);
        set_quota(fixture, rows[i].namespace, "q", rows[i].key, rows[i].amount);
        assert_int_equal(filter_one(fixture, "p", 500, &summary),
                         rows[i].fits ? CLUSTER_PLACED : CLUSTER_REFUSED);
        cluster_delete_quota(fixture->cluster, rows[i].namespace, "q");
        assert_int_equal(filter_one(fixture, "p", 500, &summary), CLUSTER_PLACED);
    }
    assert_int_equal(filter_one(fixture, "p", 901, &summary), CLUSTER_REFUSED);
}

/* Reserved, bound or in force, it counts; gone it does not. */
static void what_is_used_follows_the_pods(void **state)
{
    struct fixture *fixture = *state;
    struct text_pairs annotations;
    struct cluster_quota_view *rows;
    const char *summary;
    size_t count;

    set_quota(fixture, "default", "q", MEMORY, "900");
    fixture_start_bind(fixture, "one", &annotations);
    assert_int_equal(filter_one(fixture, "two", 301, &summary), CLUSTER_REFUSED);
    cluster_bound(fixture->cluster, "one", CLUSTER_BOUND, 0);
    assert_int_equal(filter_one(fixture, "two", 301, &summary), CLUSTER_REFUSED);
    fixture_show(fixture, "one", &annotations);
    assert_int_equal(filter_one(fixture, "two", 301, &summary), CLUSTER_REFUSED);
    assert_int_equal(cluster_list_quotas(fixture->cluster, fixture->arena, &rows, &count), 0);
    assert_int_equal(count, 1);
    assert_string_equal(rows[0].namespace, "default");
    assert_string_equal(rows[0].resource, "nvidia.com/gpumem");
    assert_int_equal(rows[0].bound, 900);
    assert_int_equal(rows[0].used, 600);
    cluster_delete_pod(fixture->cluster, "one");
    assert_int_equal(filter_one(fixture, "two", 301, &summary), CLUSTER_PLACED);
}

/* A reservation that was over is renewed only within the quota. */
static void a_late_bind_is_within_the_quota(void **state)
{
    struct fixture *fixture = *state;
    struct text_pairs annotations;
    struct cluster_answer answer;
    int64_t late = CLUSTER_RESERVATION_NS + SECOND;

    set_quota(fixture, "default", "q", MEMORY, "900");
    assert_int_equal(fixture_filter(fixture, "one", 300, 0, &answer), CLUSTER_PLACED);
    cluster_expire(fixture->cluster, late);
    assert_int_equal(fixture_filter(fixture, "two", 700, late, &answer), CLUSTER_PLACED);
    assert_int_equal(fixture_bind(fixture, "one", late, &annotations), -ENOSPC);
}

/* A percentage is known only card by card; the reason is the cards' then. */
static void a_percentage_is_counted_on_the_card(void **state)
{
    struct resource limits[2] = {
        {.name = "nvidia.com/gpu", .text = "", .quantity = {QUANTITY_WHOLE, 1}},
        {.name = "nvidia.com/gpumem-percentage", .text = "", .quantity = {QUANTITY_WHOLE, 50}},
    };
    struct container container = {.name = "c", .limits = {limits, 2}};
    const struct pod pod = {
        .namespace = "default",
        .name = "p",
        .uid = "p",
        .has_spec = true,
        .node_name = "",
        .container_count = 1,
        .containers = &container,
    };
    struct fixture *fixture = *state;
    struct cluster_answer answer;

    set_quota(fixture, "default", "q", MEMORY, "499");
    assert_int_equal(
        cluster_filter(fixture->cluster, &pod, fixture_nodes, 2, 0, fixture->arena, &answer, NULL),
        CLUSTER_REFUSED);
    assert_non_null(strstr(answer.summary, "1/1 ResourceQuotaNotFit"));
    set_quota(fixture, "default", "q", MEMORY, "500");
    assert_int_equal(
        cluster_filter(fixture->cluster, &pod, fixture_nodes, 2, 0, fixture->arena, &answer, NULL),
        CLUSTER_PLACED);
}

static int64_t mib_of_bytes(const struct resource *bound)
{
    return bound->quantity.value / (int64_t)MIB;
}

/* A vendor whose pods write memory as bytes has quotas in bytes. */
static void a_bound_is_read_as_the_vendor_reads_memory(void **state)
{
    static const struct place_rules rules;
    static const struct vendor vendor = {.name = "made-up", .bound_mib = mib_of_bytes};
    static const struct vendor_set set = {
        .count = 1,
        .instances = {{.vendor = &vendor,
                       .id = {"A", &rules, NULL},
                       .memory_resource = "a/memory",
                       .memory_unit_mib = 1024}},
    };
    struct fixture *fixture = *state;
    struct cluster *cluster = cluster_new(&(struct cluster_options){.vendors = &set});
    struct fixture other = {.cluster = cluster, .arena = fixture->arena};
    struct cluster_quota_view *rows;
    size_t count;

    assert_non_null(cluster);
    set_quota(&other, "default", "q", "limits.a/memory", "10Gi");
    assert_int_equal(cluster_list_quotas(cluster, other.arena, &rows, &count), 0);
    assert_int_equal(count, 1);
    assert_int_equal(rows[0].bound * rows[0].unit_mib, 10 * 1024);
    cluster_free(cluster);
}

static void a_list_that_lacks_a_quota_ends_it(void **state)
{
    struct fixture *fixture = *state;
    const char *summary;

    cluster_begin(fixture->cluster, CLUSTER_QUOTAS);
    set_quota(fixture, "default", "q", MEMORY, "1");
    cluster_complete(fixture->cluster, CLUSTER_QUOTAS);
    assert_int_equal(filter_one(fixture, "p", 2, &summary), CLUSTER_REFUSED);
    cluster_begin(fixture->cluster, CLUSTER_QUOTAS);
    cluster_keep(fixture->cluster, CLUSTER_QUOTAS, "default/q");
    cluster_complete(fixture->cluster, CLUSTER_QUOTAS);
    assert_int_equal(filter_one(fixture, "p", 2, &summary), CLUSTER_REFUSED);
    cluster_begin(fixture->cluster, CLUSTER_QUOTAS);
    cluster_complete(fixture->cluster, CLUSTER_QUOTAS);
    assert_int_equal(filter_one(fixture, "p", 2, &summary), CLUSTER_PLACED);
}

/* kube-scheduler does not try a pod again when a quota changes. */
static void a_raised_quota_brings_refused_pods_back(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_pod_name pods[2];
    const char *summary;

    set_quota(fixture, "default", "q", MEMORY, "1");
    assert_int_equal(filter_one(fixture, "p", 2, &summary), CLUSTER_REFUSED);
    assert_int_equal(cluster_requeue(fixture->cluster, SECOND, fixture->arena, pods, 2), 0);
    set_quota(fixture, "default", "q", MEMORY, "2");
    (void)cluster_requeue(fixture->cluster, 2 * SECOND, fixture->arena, pods, 2);
    assert_int_equal(cluster_requeue(fixture->cluster, 3 * SECOND, fixture->arena, pods, 2), 1);
    assert_string_equal(pods[0].uid, "p");
}

static void init_containers_count_as_kubernetes_counts(void **state)
{
    static const struct {
        enum container_role roles[3];
        unsigned mib[3];
        uint64_t most;
    } rows[] = {
        {{CONTAINER_INIT, CONTAINER_APP, CONTAINER_APP}, {500, 100, 200}, 500},
        {{CONTAINER_INIT, CONTAINER_APP, CONTAINER_APP}, {200, 100, 200}, 300},
        {{CONTAINER_SIDECAR, CONTAINER_INIT, CONTAINER_APP}, {100, 500, 300}, 600},
        {{CONTAINER_INIT, CONTAINER_SIDECAR, CONTAINER_APP}, {500, 300, 400}, 700},
    };
    static const struct place_rules rules;
    static const struct device_vendor vendor = {"V", &rules, NULL};

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct request requests[3];
        struct container_demand containers[3];
        struct place_total total;

        for (size_t k = 0; k < 3; k++) {
            requests[k] = (struct request){
                .vendor = &vendor, .count = 2, .memory_bytes = rows[i].mib[k] * MIB, .cores = 10};
            containers[k] = (struct container_demand){rows[i].roles[k], 1, &requests[k]};
        }
        total = place_demand_total(&(struct demand){3, containers}, &vendor);
        assert_int_equal(total.memory_mib, 2 * rows[i].most);
    }
}

static void what_no_card_has_is_counted_as_asked(void **state)
{
    static const struct place_rules rules;
    static const struct device_vendor vendor = {"V", &rules, NULL};
    struct request requests[2] = {
        {.vendor = &vendor, .count = 2, .memory_bytes = 3000000000 * MIB},
        {.vendor = &vendor, .count = 1, .memory_bytes = MIB},
    };
    const struct container_demand containers[] = {{CONTAINER_APP, 2, requests},
                                                  {CONTAINER_APP, 2, requests}};
    const struct demand demand = {2, containers};

    (void)state;
    assert_int_equal(place_demand_total(&demand, &vendor).memory_mib, 2 * 6000000001);
    requests[0].count = INT32_MAX;
    requests[0].memory_bytes = INT64_MAX;
    assert_true(place_demand_total(&demand, &vendor).memory_mib >= (uint64_t)INT32_MAX << 30);
    assert_true(place_demand_total(&demand, &vendor).memory_mib <= INT64_MAX);
}

/* An eviction frees cards; the pod for which it was done would still be refused. */
static void nobody_is_evicted_for_what_the_quota_denies(void **state)
{
    static const struct {
        const char *name, *amount, *bound;
        int64_t value;
        size_t nodes;
    } rows[] = {
        {"an amount within", "nvidia.com/gpumem", "600", 600, 1},
        {"an amount beyond", "nvidia.com/gpumem", "599", 600, 0},
        {"a percentage within", "nvidia.com/gpumem-percentage", "600", 60, 1},
        {"a percentage beyond", "nvidia.com/gpumem-percentage", "599", 60, 0},
    };
    struct fixture *fixture = *state;
    struct text_pairs annotations;

    fixture_start_bind(fixture, "one", &annotations);
    cluster_bound(fixture->cluster, "one", CLUSTER_BOUND, 0);
    fixture_show(fixture, "one", &annotations);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct resource limits[2] = {
            {.name = "nvidia.com/gpu", .text = "", .quantity = {QUANTITY_WHOLE, 1}},
            {.name = rows[i].amount, .text = "", .quantity = {QUANTITY_WHOLE, rows[i].value}},
        };
        struct container container = {.name = "c", .limits = {limits, 2}};
        const struct pod pod = {
            .namespace = "urgent",
            .name = "p",
            .uid = "p",
            .has_spec = true,
            .node_name = "",
            .container_count = 1,
            .containers = &container,
        };
        const char *found[] = {"one"};
        struct cluster_victims victims = {"a", found, 1, 0};
        size_t count = 1;

        print_message("%s\n", rows[i].name);
        set_quota(fixture, "urgent", "q", MEMORY, rows[i].bound);
        assert_int_equal(
            cluster_preempt(fixture->cluster, &pod, &victims, &count, fixture->arena, NULL), 0);
        assert_int_equal(count, rows[i].nodes);
    }
}

/* The quota's status changes with each pod of the namespace. */
static void a_quota_that_stays_the_same_brings_nobody_back(void **state)
{
    struct fixture *fixture = *state;
    struct cluster_pod_name pods[2];
    const char *summary;

    set_quota(fixture, "default", "q", MEMORY, "1");
    assert_int_equal(filter_one(fixture, "p", 2, &summary), CLUSTER_REFUSED);
    set_quota(fixture, "default", "q", MEMORY, "1");
    set_quota(fixture, "other", "q", "pods", "10");
    (void)cluster_requeue(fixture->cluster, 2 * SECOND, fixture->arena, pods, 2);
    assert_int_equal(cluster_requeue(fixture->cluster, 3 * SECOND, fixture->arena, pods, 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_pod_beyond_the_quota_is_refused_with_the_figures),
        FIXTURE_TEST(each_quota_holds),
        FIXTURE_TEST(what_is_used_follows_the_pods),
        FIXTURE_TEST(a_late_bind_is_within_the_quota),
        FIXTURE_TEST(a_percentage_is_counted_on_the_card),
        FIXTURE_TEST(a_bound_is_read_as_the_vendor_reads_memory),
        FIXTURE_TEST(a_list_that_lacks_a_quota_ends_it),
        FIXTURE_TEST(a_raised_quota_brings_refused_pods_back),
        FIXTURE_TEST(nobody_is_evicted_for_what_the_quota_denies),
        FIXTURE_TEST(a_quota_that_stays_the_same_brings_nobody_back),
        cmocka_unit_test(init_containers_count_as_kubernetes_counts),
        cmocka_unit_test(what_no_card_has_is_counted_as_asked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
