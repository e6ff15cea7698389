/* SPDX-License-Identifier: Apache-2.0 */
#include "monitor/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/util.h"
#include "nvml/find.h"
#include "nvml/instances.h"

enum {
    START = 4711,
    FIRST_PID = 100,
    PROCESSES = 8,
};

#define POD "0b1c7c1c-7c5c-4d6e-9f3a-0123456789ab"
#define CARD "GPU-a"

/* A driver with one card, on which processes hold memory. A thread asks it: nothing is asserted
 * there. */

static struct {
    int process_count;
    struct nvml_process processes[PROCESSES];
    unsigned asked; /* for the card's instances */
} driver;

const char *const driver_usual_roots[] = {NULL};

int nvml_find(const char *root, const char *const *roots, struct nvml **ret_nvml, struct error *err)
{
    (void)root;
    (void)roots;
    (void)ret_nvml;
    (void)err;
    return 0;
}

void nvml_close(struct nvml *nvml)
{
    (void)nvml;
}

int nvml_list(struct nvml *nvml, struct device *ret_devices, size_t max, struct error *err)
{
    (void)nvml;
    (void)max;
    (void)err;
    *ret_devices = (struct device){.healthy = true};
    COPY_TEXT(ret_devices->uuid, CARD);
    return 1;
}

int nvml_list_all_processes(struct nvml *nvml, unsigned index, struct nvml_process *ret_processes,
                            size_t max, struct error *err)
{
    (void)nvml;
    (void)index;
    (void)err;
    (void)max;
    memcpy(ret_processes, driver.processes, sizeof(driver.processes));
    return driver.process_count;
}

int nvml_read_process_times(struct nvml *nvml, unsigned index, uint64_t since_us,
                            struct nvml_process_time *ret_times, size_t max)
{
    (void)nvml;
    (void)index;
    (void)since_us;
    (void)ret_times;
    (void)max;
    return 0;
}

int nvml_list_mig_devices(struct nvml *nvml, unsigned index, struct nvml_mig_device *ret_devices,
                          size_t max, struct error *err)
{
    (void)nvml;
    (void)index;
    (void)err;
    (void)max;
    driver.asked++;
    ret_devices[0] = (struct nvml_mig_device){.uuid = "MIG-1", .gpu_instance = 1};
    ret_devices[1] = (struct nvml_mig_device){.uuid = "MIG-2", .gpu_instance = 2};
    return 2;
}

struct fixture {
    uv_loop_t loop;
    char folder[32]; /* a made-up /proc */
    struct compare *compare;
    unsigned given; /* cards that the pod was given: others than the one its process is on */
    unsigned looks, done;
    size_t grants; /* at the last look that was well */
    size_t process_count;
    struct bypass_process processes[PROCESSES];
    struct region_view view; /* of its region, if there are slots in it */
};

static struct fixture fixture;

static int look(void *data, const struct containers_visitor *visitor, struct error *err)
{
    struct container_use use = {.pod_uid = POD, .name = "a", .card_count = 1};

    (void)data;
    (void)err;
    fixture.looks++;
    uv_stop(&fixture.loop);
    assert_non_null(visitor);
    assert_true(visitor->wants(visitor->data, POD));
    for (unsigned i = 0; i < fixture.given; i++) {
        (void)snprintf(use.cards[0].uuid, sizeof(use.cards[0].uuid), "GPU-%u", i);
        visitor->visit(visitor->data, &use, "/nowhere",
                       fixture.view.process_count ? &fixture.view : NULL);
    }
    return 0;
}

static void done(void *data, struct bypass *bypass, const struct bypass_look *seen)
{
    (void)data;
    (void)bypass;
    fixture.done++;
    fixture.grants = seen->grant_count;
    fixture.process_count = seen->process_count;
    assert_true(seen->process_count <= PROCESSES);
    memcpy(fixture.processes, seen->processes, seen->process_count * sizeof(*seen->processes));
}

static void process_path(char ret_path[64], int pid, const char *name)
{
    (void)snprintf(ret_path, 64, "%s/%d/%s", fixture.folder, pid, name);
}

static void write_file(int pid, const char *name, const char *text)
{
    char path[64];

    process_path(path, pid, name);
    assert_int_equal(file_replace(path, text, strlen(text), 0600), 0);
}

static void remove_process(int pid)
{
    static const char *const names[] = {"stat", "cgroup", "status", ""};
    char path[64];

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        process_path(path, pid, names[i]);
        assert_int_equal(remove(path), 0);
    }
}

/* A process of the pod: the host's number is from FIRST_PID on, its container's from 1 on. */
static void add_process(bool in_instance, unsigned gpu_instance)
{
    const int inner_pid = driver.process_count + 1, pid = FIRST_PID + driver.process_count;
    char text[128];

    driver.processes[driver.process_count++] = (struct nvml_process){
        .pid = pid,
        .memory_bytes = GIB,
        .in_instance = in_instance,
        .gpu_instance = gpu_instance,
    };
    process_path(text, pid, "");
    assert_int_equal(mkdir(text, 0700), 0);
    (void)snprintf(text, sizeof(text), "%d (a) R 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 %d 0\n", pid,
                   START);
    write_file(pid, "stat", text);
    write_file(pid, "cgroup", "0::/kubepods/burstable/pod" POD "/0123\n");
    (void)snprintf(text, sizeof(text), "Name:\ta\nNSpid:\t%d\t%d\n", pid, inner_pid);
    write_file(pid, "status", text);
}

static int begin(void **state)
{
    const struct compare_options options = {
        .procfs = fixture.folder, .look = look, .done = done, .data = &fixture};

    (void)state;
    memset(&driver, 0, sizeof(driver));
    memset(&fixture, 0, sizeof(fixture));
    COPY_TEXT(fixture.folder, "/tmp/hami-compare-XXXXXX");
    assert_non_null(mkdtemp(fixture.folder));
    assert_int_equal(uv_loop_init(&fixture.loop), 0);
    fixture.compare = compare_new(&fixture.loop, &options);
    assert_non_null(fixture.compare);
    return 0;
}

static int end(void **state)
{
    (void)state;
    compare_stop(fixture.compare);
    (void)uv_run(&fixture.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&fixture.loop), 0);
    compare_free(fixture.compare);
    for (int i = 0; i < driver.process_count; i++)
        remove_process(driver.processes[i].pid);
    assert_int_equal(rmdir(fixture.folder), 0);
    return 0;
}

static struct compare_state look_once(unsigned given)
{
    struct compare_state state;

    fixture.given = given;
    (void)uv_run(&fixture.loop, UV_RUN_DEFAULT);
    compare_read_state(fixture.compare, &state);
    return state;
}

static void nobody_is_accused_while_more_was_given_than_is_looked_at(void **state)
{
    struct compare_state told;

    (void)state;
    add_process(false, 0);
    told = look_once(BYPASS_GRANTS_MAX + 1);
    assert_false(told.up);
    assert_int_equal(told.looked_ns, 0);
    assert_non_null(strstr(told.why.text, "more than 4096"));
    assert_int_equal(fixture.done, 0);
    told = look_once(BYPASS_GRANTS_MAX);
    assert_true(told.up);
    assert_int_equal(fixture.looks, 2);
    assert_int_equal(fixture.done, 1);
    assert_int_equal(fixture.grants, BYPASS_GRANTS_MAX);
    assert_int_equal(fixture.process_count, 1);
    assert_int_equal(fixture.processes[0].kind, BYPASS_NOT_GIVEN);
}

static void a_cards_instances_are_asked_for_once_a_look(void **state)
{
    (void)state;
    add_process(true, 2);
    add_process(true, 1);
    add_process(true, 3); /* has gone */
    assert_true(look_once(1).up);
    assert_int_equal(driver.asked, 1);
    assert_int_equal(fixture.process_count, 2);
    assert_string_equal(fixture.processes[0].uuid, "MIG-2");
    assert_string_equal(fixture.processes[1].uuid, "MIG-1");
    assert_true(look_once(1).up);
    assert_int_equal(driver.asked, 2);
}

/* Each row is of the process of its number. */
static void a_slot_is_a_process_by_the_kernels_word_or_by_its_own(void **state)
{
    static const struct {
        struct region_view_process slot;
        bool its_own;
    } rows[] = {
        {{.is_sure = true, .host_pid = FIRST_PID, .start_ticks = 1}, true},
        {{.is_sure = true, .host_pid = 1, .told_pid = FIRST_PID + 1, .start_ticks = START}, false},
        {{.told_pid = FIRST_PID + 2, .start_ticks = START}, true},
        {{.told_pid = FIRST_PID + 3}, true}, /* HAMi-core tells no start */
        {{.told_pid = FIRST_PID + 4, .start_ticks = START + 1}, false},
        {{.pid = 6, .start_ticks = START}, true},
        {{.pid = 7, .start_ticks = START + 1}, false},
        {{.pid = FIRST_PID + 7, .start_ticks = START}, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        add_process(false, 0);
        fixture.view.processes[fixture.view.process_count++] = rows[i].slot;
    }
    assert_true(look_once(1).up);
    assert_int_equal(fixture.process_count, ARRAY_SIZE(rows));
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        assert_int_equal(fixture.processes[i].has_slot, rows[i].its_own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_is_accused_while_more_was_given_than_is_looked_at,
                                        begin, end),
        cmocka_unit_test_setup_teardown(a_cards_instances_are_asked_for_once_a_look, begin, end),
        cmocka_unit_test_setup_teardown(a_slot_is_a_process_by_the_kernels_word_or_by_its_own,
                                        begin, end),
    };

    return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
