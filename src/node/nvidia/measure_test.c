/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/measure.h"

#include "base/check.h"
#include "base/util.h"

enum {
    OWN = 30, /* our pid */
    NAME_OF_OURS = 4711,
    OTHER = 4712,
    LOCAL = 31, /* another process of our namespace */
};

#define SIZE (300 * MIB)
#define UNKNOWN UINT64_MAX

static bool in_our_namespace(pid_t pid)
{
    return pid == OWN || pid == LOCAL;
}

static bool in_the_hosts(pid_t pid)
{
    (void)pid;
    return true;
}

static const struct judge_case {
    const char *name;
    size_t before_count, with_count;
    struct nvml_process before[2], with[3];
    bool has_hosts_pids;
    uint64_t grown_bytes, wanted;
} cases[] = {
    {"our own pid counts", 0, 1, {}, {{.pid = OWN, .memory_bytes = SIZE}}, .wanted = SIZE},
    {"also beside others of our namespace",
     1,
     2,
     {{.pid = LOCAL, .memory_bytes = GIB}},
     {{.pid = LOCAL, .memory_bytes = GIB}, {.pid = OWN, .memory_bytes = SIZE}},
     .wanted = SIZE},
    {"and on the host beside any",
     1,
     2,
     {{.pid = OTHER, .memory_bytes = GIB}},
     {{.pid = OTHER, .memory_bytes = GIB}, {.pid = OWN, .memory_bytes = SIZE}},
     .has_hosts_pids = true,
     .wanted = SIZE},
    {"where one is listed that is not here, our number is another's",
     1,
     3,
     {{.pid = OWN, .memory_bytes = GIB}},
     {{.pid = OWN, .memory_bytes = GIB},
      {.pid = NAME_OF_OURS, .memory_bytes = SIZE},
      {.pid = OTHER, .memory_bytes = GIB}},
     .wanted = 0},
    {"one that was there before is not us",
     1,
     1,
     {{.pid = OWN, .memory_bytes = GIB}},
     {{.pid = OWN, .memory_bytes = GIB}},
     .wanted = 0},
    {"who comes alone where nobody was is us",
     0,
     1,
     {},
     {{.pid = NAME_OF_OURS, .memory_bytes = SIZE}},
     .wanted = SIZE},
    {"of two that came nobody is",
     0,
     2,
     {},
     {{.pid = NAME_OF_OURS, .memory_bytes = SIZE}, {.pid = OTHER, .memory_bytes = KIB}},
     .wanted = 0},
    {"nor one beside another",
     1,
     2,
     {{.pid = OTHER, .memory_bytes = GIB}},
     {{.pid = OTHER, .memory_bytes = GIB}, {.pid = NAME_OF_OURS, .memory_bytes = SIZE}},
     .wanted = 0},
    {"without a figure, what the card has more counts",
     0,
     1,
     {},
     {{.pid = NAME_OF_OURS, .memory_bytes = UNKNOWN}},
     .grown_bytes = SIZE,
     .wanted = SIZE},
    {"on the host as well",
     0,
     1,
     {},
     {{.pid = OWN, .memory_bytes = UNKNOWN}},
     .has_hosts_pids = true,
     .grown_bytes = SIZE,
     .wanted = SIZE},
    {"not where others may be there unseen",
     0,
     1,
     {},
     {{.pid = OWN, .memory_bytes = UNKNOWN}},
     .grown_bytes = SIZE,
     .wanted = 0},
    {"nor beside others",
     1,
     2,
     {{.pid = LOCAL, .memory_bytes = UNKNOWN}},
     {{.pid = LOCAL, .memory_bytes = UNKNOWN}, {.pid = OWN, .memory_bytes = UNKNOWN}},
     .has_hosts_pids = true,
     .grown_bytes = SIZE,
     .wanted = 0},
    {"who is not listed knows nothing", 0, 0, {}, {}, .grown_bytes = SIZE, .wanted = 0},
};

static void a_figure_counts_where_it_is_ours_for_sure(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct judge_case *it = &cases[i];
        const struct measure_lists lists = {
            .before = it->before,
            .before_count = it->before_count,
            .with = it->with,
            .with_count = it->with_count,
            .grown_bytes = it->grown_bytes,
            .has_hosts_pids = it->has_hosts_pids,
            .is_here = it->has_hosts_pids ? in_the_hosts : in_our_namespace,
        };
        uint64_t got = measure_judge(&lists, OWN);

        if (got != it->wanted)
            fail_msg("%s: %llu and not %llu", it->name, (unsigned long long)got,
                     (unsigned long long)it->wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_figure_counts_where_it_is_ours_for_sure),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
