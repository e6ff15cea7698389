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
    PID = 7,
};

#define POD "0b1c7c1c-7c5c-4d6e-9f3a-0123456789ab"
#define CARD "GPU-a"
#define STAT "7 (a) R 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 4711 0\n"
#define CGROUP "0::/kubepods/burstable/pod" POD "/0123\n"

/* A driver with one card, on which one process of a pod holds memory. */

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
    (void)max;
    (void)err;
    *ret_processes = (struct nvml_process){.pid = PID, .memory_bytes = GIB};
    return 1;
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
    (void)ret_devices;
    (void)max;
    (void)err;
    return 0;
}

struct fixture {
    uv_loop_t loop;
    struct compare *compare;
    unsigned given; /* cards that the pod was given: others than the one its process is on */
    unsigned looks;
    unsigned done;
    size_t grants;         /* at the last look that was well */
    enum bypass_kind kind; /* of the process, then */
};

/* The containers have no regions: what was given is known from their limits files. */
static int look(void *data, const struct containers_visitor *visitor, struct error *err)
{
    struct container_use use = {.pod_uid = POD, .name = "a", .card_count = 1};
    struct fixture *fixture = data;

    (void)err;
    fixture->looks++;
    uv_stop(&fixture->loop);
    assert_non_null(visitor);
    assert_true(visitor->wants(visitor->data, POD));
    for (unsigned i = 0; i < fixture->given; i++) {
        (void)snprintf(use.cards[0].uuid, sizeof(use.cards[0].uuid), "GPU-%u", i);
        visitor->visit(visitor->data, &use, NULL, NULL);
    }
    return 0;
}

static void done(void *data, struct bypass *bypass, const struct bypass_look *seen)
{
    struct fixture *fixture = data;

    (void)bypass;
    assert_int_equal(seen->process_count, 1);
    fixture->done++;
    fixture->grants = seen->grant_count;
    fixture->kind = seen->processes[0].kind;
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[96];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(file_replace(path, text, strlen(text), 0600), 0);
}

static void remove_file(const char *folder, const char *name)
{
    char path[96];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    assert_int_equal(remove(path), 0);
}

static struct compare_state look_once(struct fixture *fixture, unsigned given)
{
    struct compare_state state;

    fixture->given = given;
    (void)uv_run(&fixture->loop, UV_RUN_DEFAULT);
    compare_read_state(fixture->compare, &state);
    return state;
}

static void nobody_is_accused_while_more_was_given_than_is_looked_at(void **state)
{
    struct fixture fixture = {.given = 0};
    char folder[] = "/tmp/hami-compare-XXXXXX", path[64];
    const struct compare_options options = {
        .procfs = folder, .look = look, .done = done, .data = &fixture};
    struct compare_state told;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/7", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    write_file(path, "stat", STAT);
    write_file(path, "cgroup", CGROUP);
    assert_int_equal(uv_loop_init(&fixture.loop), 0);
    fixture.compare = compare_new(&fixture.loop, &options);
    assert_non_null(fixture.compare);

    told = look_once(&fixture, BYPASS_GRANTS_MAX + 1);
    assert_false(told.up);
    assert_int_equal(told.looked_ns, 0);
    assert_non_null(strstr(told.why.text, "more than 4096"));
    assert_int_equal(fixture.done, 0);
    told = look_once(&fixture, BYPASS_GRANTS_MAX);
    assert_true(told.up);
    assert_int_equal(fixture.looks, 2);
    assert_int_equal(fixture.done, 1);
    assert_int_equal(fixture.grants, BYPASS_GRANTS_MAX);
    assert_int_equal(fixture.kind, BYPASS_NOT_GIVEN);

    compare_stop(fixture.compare);
    (void)uv_run(&fixture.loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&fixture.loop), 0);
    compare_free(fixture.compare);
    remove_file(path, "stat");
    remove_file(path, "cgroup");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_is_accused_while_more_was_given_than_is_looked_at),
    };

    return cmocka_run_group_tests_name("compare", tests, NULL, NULL);
}
