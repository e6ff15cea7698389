/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/sim_config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h needs the four above */
#include <cmocka.h>

#include "base/util.h"

#define UUID "GPU-12345678-aaaa-bbbb-cccc-0123456789ab"
#define LARGE_UUID "GPU-12345678-AAAA-BBBB-CCCC-0123456789AB"
#define NO_UUID "not a UUID, as GPU-00000000-0000-0000-0000-000000000000"

static int parse(const char *text, struct sim_spec *ret_spec, struct error *err)
{
    return sim_config_parse("m.yaml", text, strlen(text), ret_spec, err);
}

static void every_key_is_read(void **state)
{
    static const char text[] = "driver:\n"
                               "  captures: kind\n"
                               "  lost-captures: stay\n"
                               "  event-resolution: 1us\n"
                               "  pids: host\n"
                               "  stale-handles: crash\n"
                               "  granule: 2Mi\n"
                               "  loading: eager\n"
                               "  load-waits: yes\n"
                               "  heaps: shrink\n"
                               "  events: none\n"
                               "  recovery-action: unknown\n"
                               "  deferred-arrays: no\n"
                               "  host-memory: nodes\n"
                               "  idle-streams: prompt\n"
                               "  multicast: yes\n"
                               "  graph-node: 3328\n"
                               "  stream: 557Ki\n"
                               "  context-time: 80ms\n"
                               "  queues: 32\n"
                               "  clock-drift: -20\n"
                               "gpus:\n"
                               "  - count: 2\n"
                               "    model: NVIDIA H100 80GB HBM3\n"
                               "    memory: 80Gi\n"
                               "    context: 500Mi\n"
                               "    multiprocessors: 132\n"
                               "    numa: 1\n"
                               "    compute: \"9.0\"\n"
                               "    slice: 1ms\n"
                               "    switch: 50us\n"
                               "  - uuid: " LARGE_UUID "\n";
    struct error err = ERROR_INIT;
    struct sim_spec spec;

    (void)state;
    assert_int_equal(parse(text, &spec, &err), 0);
    assert_int_equal(spec.driver.captures, SIM_CAPTURES_KIND);
    assert_int_equal(spec.driver.lost_captures, SIM_LOST_CAPTURES_STAY);
    assert_int_equal(spec.driver.pids, SIM_PIDS_HOST);
    assert_int_equal(spec.driver.queues, 32);
    assert_int_equal(spec.driver.stale_handles, SIM_STALE_HANDLES_CRASH);
    assert_int_equal(spec.driver.granule_bytes, 2 * MIB);
    assert_int_equal(spec.driver.graph_node_bytes, 3328);
    assert_int_equal(spec.driver.stream_bytes, 557 * KIB);
    assert_int_equal(spec.driver.loading, SIM_LOADING_EAGER);
    assert_int_equal(spec.driver.load_waits, SIM_LOAD_WAITS_YES);
    assert_int_equal(spec.driver.heaps, SIM_HEAPS_SHRINK);
    assert_int_equal(spec.driver.events, SIM_EVENTS_NONE);
    assert_int_equal(spec.driver.recovery, SIM_RECOVERY_UNKNOWN);
    assert_int_equal(spec.driver.deferred, SIM_DEFERRED_NO);
    assert_int_equal(spec.driver.host_memory, SIM_HOST_MEMORY_NODES);
    assert_int_equal(spec.driver.idle_streams, SIM_IDLE_STREAMS_PROMPT);
    assert_int_equal(spec.driver.multicast, SIM_MULTICAST_YES);
    assert_int_equal(spec.driver.context_time_ns, 80 * NS_PER_MS);
    assert_int_equal(spec.driver.event_resolution_ns, 1000);
    assert_int_equal(spec.driver.clock_drift_ppm, -20);
    assert_int_equal(spec.gpu_count, 3);
    assert_string_equal(spec.gpus[0].model, "NVIDIA H100 80GB HBM3");
    assert_int_equal(spec.gpus[1].memory_bytes, 80 * GIB);
    assert_int_equal(spec.gpus[1].context_bytes, 500 * MIB);
    assert_int_equal(spec.gpus[1].multiprocessors, 132);
    assert_int_equal(spec.gpus[1].numa_node, 1);
    assert_int_equal(spec.gpus[1].compute_major, 9);
    assert_int_equal(spec.gpus[1].compute_minor, 0);
    assert_int_equal(spec.gpus[1].slice_ns, 1 * NS_PER_MS);
    assert_int_equal(spec.gpus[1].switch_ns, 50 * NS_PER_US);
    assert_string_equal(spec.gpus[2].uuid, UUID);
    assert_string_equal(spec.gpus[2].model, "NVIDIA A100-SXM4-40GB");
    assert_int_equal(spec.gpus[2].numa_node, -1);
    assert_int_equal(spec.gpus[2].slice_ns, 2 * NS_PER_MS);
}

static void what_is_wrong_is_named_with_its_place(void **state)
{
    static const struct {
        const char *text;
        const char *error;
    } cases[] = {
        {"gpus: []\n", "m.yaml:1:7: gpus: none; a machine has 1 to 16"},
        {"x: 1\n", "m.yaml:1:1: Unexpected key: x; hamictl-sim(1) lists them"},
        {"gpus: 3\n", "m.yaml:1:7: gpus: Expecting SEQUENCE, got event: SCALAR"},
        {"gpus:\n  - count: 2\n    foo: 1\n",
         "m.yaml:3:5: gpus[0]: Unexpected key: foo; hamictl-sim(1) lists them"},
        {"gpus:\n  - count: [1]\n",
         "m.yaml:2:12: gpus[0].count: Expecting STRING, got event: SEQUENCE_START"},
        {"gpus:\n  - count: 2\n  bad\n", "m.yaml:4:1: could not find expected ':'"},
        {"gpus:\n  - count: two\n", "m.yaml:2:12: gpus[0].count: not a whole number"},
        {"gpus:\n  - count: -1\n", "m.yaml:2:12: gpus[0].count: out of range, 1 to 16 GPUs in all"},
        {"gpus:\n  - count: 0\n", "m.yaml:2:12: gpus[0].count: out of range, 1 to 16 GPUs in all"},
        {"gpus:\n  - count: 17\n", "m.yaml:2:12: gpus[0].count: out of range, 1 to 16 GPUs in all"},
        {"gpus:\n  - count: 99999999999999999999\n",
         "m.yaml:2:12: gpus[0].count: out of range, 1 to 16 GPUs in all"},
        {"gpus:\n  - count: 9\n  - count: 9\n",
         "m.yaml:3:12: gpus[1].count: out of range, 1 to 16 GPUs in all"},
        {"gpus:\n  - memory: 80Qi\n",
         "m.yaml:2:13: gpus[0].memory: not an amount of memory, as 80Gi"},
        {"gpus:\n  - memory: 2000Ti\n", "m.yaml:2:13: gpus[0].memory: out of range, 1Mi to 1Pi"},
        {"gpus:\n  - memory: 2Pi\n", "m.yaml:2:13: gpus[0].memory: out of range, 1Mi to 1Pi"},
        {"gpus:\n  - memory: 99Ei\n", "m.yaml:2:13: gpus[0].memory: out of range, 1Mi to 1Pi"},
        {"gpus:\n  - memory: 2Ki\n", "m.yaml:2:13: gpus[0].memory: out of range, 1Mi to 1Pi"},
        {"gpus:\n  - memory: 80\n",
         "m.yaml:2:13: gpus[0].memory: less than 1 MiB; is the unit missing, as in 80Gi?"},
        {"gpus:\n  - {context: 41Gi}\n",
         "m.yaml:2:15: gpus[0].context: it would leave nothing of the memory"},
        {"gpus:\n  - {memory: 1Gi, context: 1Gi}\n",
         "m.yaml:2:28: gpus[0].context: it would leave nothing of the memory"},
        {"gpus:\n  - multiprocessors: 0\n",
         "m.yaml:2:22: gpus[0].multiprocessors: out of range, 1 to 1024"},
        {"gpus:\n  - numa: 1024\n", "m.yaml:2:11: gpus[0].numa: out of range, 0 to 1023"},
        {"gpus:\n  - numa: none\n", "m.yaml:2:11: gpus[0].numa: not a whole number"},
        {"gpus:\n  - compute: 9\n",
         "m.yaml:2:14: gpus[0].compute: not a compute capability, as \"9.0\""},
        {"gpus:\n  - slice: 2\n", "m.yaml:2:12: gpus[0].slice: not a duration, as 2ms or 50us"},
        {"gpus:\n  - slice: 0ms\n", "m.yaml:2:12: gpus[0].slice: out of range, at least 10us"},
        {"gpus:\n  - switch: 2s\n", "m.yaml:2:13: gpus[0].switch: out of range, at most 1s"},
        {"gpus:\n  - uuid: 7\n", "m.yaml:2:11: gpus[0].uuid: " NO_UUID},
        {"gpus:\n  - uuid: GPU-abc\n", "m.yaml:2:11: gpus[0].uuid: " NO_UUID},
        {"gpus:\n  - uuid: " UUID "0\n", "m.yaml:2:11: gpus[0].uuid: " NO_UUID},
        {"gpus:\n  - uuid: GPU-123456789-aaa-bbbb-cccc-0123456789ab\n",
         "m.yaml:2:11: gpus[0].uuid: " NO_UUID},
        {"gpus:\n  - {uuid: " UUID ", count: 2}\n",
         "m.yaml:2:12: gpus[0].uuid: each GPU needs one of its own, and count says more than one"},
        {"gpus:\n  - uuid: " UUID "\n  - uuid: " LARGE_UUID "\n",
         "m.yaml:3:11: gpus[1].uuid: another GPU has it already"},
        {"driver:\n  captures: free\n", "m.yaml:2:13: driver.captures: neither strict nor kind"},
        {"driver:\n  clock-drift: 1us\n",
         "m.yaml:2:16: driver.clock-drift: not a number of parts in a million, -1000 to 1000"},
        {"driver:\n  granule: 3Mi\n",
         "m.yaml:2:12: driver.granule: not a power of two from 512 to 64Mi"},
        {"driver:\n  pace: 1\n",
         "m.yaml:2:3: driver: Unexpected key: pace; hamictl-sim(1) lists them"},
        {"gpus:\n  - numa: &a 1\n    count: *a\n",
         "m.yaml:3:5: gpus[0].count: YAML alias unsupported"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct sim_spec spec = {.gpu_count = 99};
        struct error err = ERROR_INIT;

        print_message("%s", cases[i].text);
        assert_int_equal(parse(cases[i].text, &spec, &err), -EINVAL);
        assert_string_equal(err.text, cases[i].error);
        assert_int_equal(spec.gpu_count, 99);
    }
}

static void everything_can_be_left_out(void **state)
{
    static const char *const texts[] = {"",          "# nothing\n", "{}\n",
                                        "driver:\n", "gpus:\n",     "gpus:\n  - {}\n"};
    struct sim_spec wanted = {.gpu_count = 1};

    (void)state;
    sim_driver_init(&wanted.driver);
    sim_gpu_init(&wanted.gpus[0]);
    sim_spec_defaults(&wanted);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct error err = ERROR_INIT;
        struct sim_spec spec;

        print_message("%s", texts[i]);
        assert_int_equal(parse(texts[i], &spec, &err), 0);
        assert_memory_equal(&spec, &wanted, sizeof(wanted));
    }
}

/* YAML, the command line and what shows a machine know the same options. */
static void every_option_of_the_driver_is_a_key(void **state)
{
    struct sim_spec spec = {0};
    char value[32], text[128];
    const char *key;

    (void)state;
    sim_driver_init(&spec.driver);
    sim_spec_defaults(&spec);
    for (unsigned i = 0; sim_driver_option(&spec.driver, i, &key, value, sizeof(value)); i++) {
        struct error err = ERROR_INIT;
        struct sim_spec read;

        (void)snprintf(text, sizeof(text), "driver:\n  %s: %s\n", key, value);
        print_message("%s: %s\n", key, value);
        assert_int_equal(parse(text, &read, &err), 0);
        assert_memory_equal(&read.driver, &spec.driver, sizeof(spec.driver));
    }
}

static void a_file_too_large_or_missing_is_refused(void **state)
{
    struct sim_spec spec;

    (void)state;
    assert_int_equal(sim_config_load("/nonexistent/m.yaml", &spec, NULL), -ENOENT);
    assert_int_equal(sim_config_load("/dev/zero", &spec, NULL), -EFBIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_read),
        cmocka_unit_test(everything_can_be_left_out),
        cmocka_unit_test(what_is_wrong_is_named_with_its_place),
        cmocka_unit_test(every_option_of_the_driver_is_a_key),
        cmocka_unit_test(a_file_too_large_or_missing_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
