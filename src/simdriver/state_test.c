/* SPDX-License-Identifier: Apache-2.0 */

/* Making, opening and removing machines. */

#include "simdriver/state.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

#include "base/cleanup.h"
#include "base/util.h"

static char path[64];
static struct sim_view view;

/* An ordinary machine, then some bytes of it changed, or its size. */
static void damage(off_t at, uint64_t value, off_t size)
{
    struct sim_spec spec = {.gpu_count = 1};
    AUTOCLOSE int fd = -1;

    assert_int_equal(sim_machine_create(path, &spec, NULL), 0);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (at >= 0)
        assert_int_equal(pwrite(fd, &value, sizeof(value), at), sizeof(value));
    if (size >= 0)
        assert_int_equal(ftruncate(fd, size), 0);
}

static void a_file_that_is_no_machine_is_refused(void **state)
{
    static const struct {
        const char *name;
        off_t at;
        uint64_t value;
        off_t size;
    } cases[] = {
        {"another magic", offsetof(struct sim_header, magic), 1, -1},
        {"another version", offsetof(struct sim_header, version), SIM_VERSION + 1, -1},
        {"another size inside", offsetof(struct sim_header, size), 4096, -1},
        {"too many GPUs", offsetof(struct sim_header, gpu_count), 17, -1},
        {"no multiprocessors", offsetof(struct sim_header, gpus[0].multiprocessors), 0, -1},
        {"no such option", offsetof(struct sim_header, driver.captures), 7, -1},
        {"no resolution", offsetof(struct sim_header, driver.event_resolution_ns), 0, -1},
        {"no slice", offsetof(struct sim_header, gpus[0].slice_ns), 0, -1},
        {"a negative switch", offsetof(struct sim_header, gpus[0].switch_ns), UINT64_MAX, -1},
        {"empty", -1, 0, 0},
        {"cut", -1, 0, 4096},
        {"a byte longer", -1, 0, sizeof(struct sim_state) + 1},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error err = ERROR_INIT;

        print_message("%s\n", cases[i].name);
        damage(cases[i].at, cases[i].value, cases[i].size);
        assert_int_equal(sim_machine_view(path, &view, &err), -EINVAL);
        assert_true(strncmp(err.text, path, strlen(path)) == 0);
        assert_int_equal(unlink(path), 0);
    }
}

static void a_machine_is_made_once(void **state)
{
    struct sim_spec spec = {.gpu_count = 2};
    struct error err = ERROR_INIT;

    (void)state;
    spec.gpus[1].memory_bytes = 7 * GIB;
    assert_int_equal(sim_machine_create(path, &spec, &err), 0);
    assert_int_equal(sim_machine_create(path, &spec, &err), -EEXIST);
    assert_int_equal(sim_machine_view(path, &view, &err), 0);
    assert_int_equal(view.gpu_count, 2);
    assert_int_equal(view.process_count, 0);
    assert_int_equal(view.gpus[0].spec.memory_bytes, 40 * GIB);
    assert_int_equal(view.gpus[1].spec.memory_bytes, 7 * GIB);
    assert_true(strncmp(view.gpus[0].spec.uuid, "GPU-", 4) == 0);
    assert_string_not_equal(view.gpus[0].spec.uuid, view.gpus[1].spec.uuid);
    assert_int_equal(sim_clock_step(path, 1, &err), -EINVAL);
    assert_int_equal(sim_machine_remove(path, 0, &err), 0);
    assert_int_equal(sim_machine_remove(path, 0, &err), -ENOENT);
    assert_int_equal(sim_machine_view(path, &view, &err), -ENOENT);
    assert_int_equal(sim_machine_create("/nonexistent/m", &spec, &err), -ENOENT);
    spec.gpu_count = SIM_MAX_GPUS + 1;
    assert_int_equal(sim_machine_create(path, &spec, &err), -EINVAL);
}

static void busy_time_is_remembered_for_two_seconds(void **state)
{
    struct sim_history history = {0};
    int64_t now_ns = 1000 * NS_PER_S, span_ns;

    (void)state;
    sim_history_add(&history, now_ns - NS_PER_S, now_ns - NS_PER_S / 2);
    assert_int_equal(sim_history_sum(&history, now_ns, NS_PER_S, &span_ns), NS_PER_S / 2);
    assert_int_equal(span_ns, NS_PER_S);
    assert_int_equal(sim_history_sum(&history, now_ns, NS_PER_S / 2, &span_ns), 0);
    now_ns += NS_PER_S;
    assert_int_equal(sim_history_sum(&history, now_ns, NS_PER_S, &span_ns), 0);
    sim_history_add(&history, now_ns - 100 * NS_PER_S, now_ns);
    assert_int_equal(sim_history_sum(&history, now_ns, NS_PER_S, &span_ns), NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_is_no_machine_is_refused),
        cmocka_unit_test(a_machine_is_made_once),
        cmocka_unit_test(busy_time_is_remembered_for_two_seconds),
    };

    (void)snprintf(path, sizeof(path), "/tmp/hami-state-test.%d", (int)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
