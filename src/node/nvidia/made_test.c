/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/made.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/util.h"
#include "node/nvidia/made_state.h"

#define BOOT "11111111-1111-4111-8111-111111111111"
#define RECORD "boot=" BOOT " profile=14 start=2 size=2 uuid=MIG-1\n"

static struct node_host host;
static struct nvidia_config config;
static char procfs[PATH_MAX];

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[PATH_MAX];

    assert_int_equal(file_path(path, NULL, "%s/%s", folder, name), 0);
    assert_int_equal(file_replace(path, text, strlen(text), 0644), 0);
}

static bool is_there(const char *name)
{
    char path[PATH_MAX];

    assert_int_equal(file_path(path, NULL, "%s/instances/%s", host.hook_path, name), 0);
    return access(path, F_OK) == 0;
}

static int make_node(void **state)
{
    char path[PATH_MAX];

    (void)state;
    host = (struct node_host){.hook_path = "/tmp/made-XXXXXX"};
    assert_non_null(mkdtemp(host.hook_path));
    nvidia_config_defaults(&config);
    assert_int_equal(file_path(procfs, NULL, "%s/proc", host.hook_path), 0);
    assert_int_equal(file_path(path, NULL, "%s/sys/kernel/random", procfs), 0);
    assert_int_equal(host_make_folder(path, 0755, NULL), 0);
    write_text(path, "boot_id", BOOT "\n");
    assert_int_equal(file_path(path, NULL, "%s/instances", host.hook_path), 0);
    assert_int_equal(host_make_folder(path, 0755, NULL), 0);
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static int remove_node(void **state)
{
    (void)state;
    return nftw(host.hook_path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static struct made *start(void)
{
    struct made *made;

    assert_int_equal(made_new(&host, &config, procfs, &made, NULL), 0);
    return made;
}

static void a_record_that_cannot_be_read_is_kept(void **state)
{
    static const struct {
        const char *name, *text;
        bool is_known, is_kept, is_aside;
    } cases[] = {
        {"GPU-a_1-1", RECORD, .is_known = true, .is_kept = true},
        {"GPU-a_1-2", "", .is_aside = true},
        {"GPU-a_1-3", "boot=" BOOT " profile=14 sta", .is_aside = true},
        {"GPU-a_1-4", "\x01\x02", .is_aside = true},
        {"nothing", RECORD, .is_aside = true},
        {"GPU-a_", RECORD, .is_aside = true},
        {"_1-1", RECORD, .is_aside = true},
        {"GPU-a_1-5", "boot=22222222-2222-4222-8222-222222222222 profile=14 start=0 size=2 uuid=-",
         .is_aside = false},
        {"GPU-a_1-6", "boot=22222222-2222-4222-8222-222222222222 prof", .is_aside = false},
    };
    char folder[PATH_MAX], aside[64];
    struct made *made;

    (void)state;
    assert_int_equal(file_path(folder, NULL, "%s/instances", host.hook_path), 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        write_text(folder, cases[i].name, cases[i].text);
    for (int times = 0; times < 2; times++) {
        made = start();
        assert_int_equal(made->count, 1);
        assert_non_null(record_find(made, "GPU-a[1-1]"));
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
            (void)snprintf(aside, sizeof(aside), "%s" UNREADABLE_SUFFIX, cases[i].name);
            assert_int_equal(is_there(cases[i].name), cases[i].is_kept);
            assert_int_equal(is_there(aside), cases[i].is_aside);
        }
        made_free(made);
    }
}

static void more_than_there_can_be_are_refused_and_none_is_ended(void **state)
{
    static char texts[RECORDS_MAX + 88][NAME_SIZE];
    static const char *names[ARRAY_SIZE(texts)];
    struct error err = ERROR_INIT;
    struct node_part part;
    struct made *made = start();

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        (void)snprintf(texts[i], sizeof(texts[i]), "GPU-%zu[1-%zu]", i / 7, i % 7);
        names[i] = texts[i];
    }
    assert_int_equal(made_want(made, names, 200, true), NODE_WANT_CHANGED);
    assert_true(made->all);
    assert_int_equal(made->wanted_count, 200);
    assert_int_equal(made_find(made, names[199], &part, &err), 0);

    assert_int_equal(made_want(made, names, ARRAY_SIZE(names), true), NODE_WANT_FULL);
    assert_false(made->all);
    assert_int_equal(made->wanted_count, RECORDS_MAX);
    assert_int_equal(made_find(made, names[RECORDS_MAX - 1], &part, &err), 0);
    assert_int_equal(made_find(made, names[RECORDS_MAX], &part, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "512 instances"));

    assert_int_equal(made_want(made, names, RECORDS_MAX, true), NODE_WANT_CHANGED);
    assert_true(made->all);
    assert_int_equal(made_find(made, names[RECORDS_MAX], &part, &err), 0);
    assert_int_equal(made_want(made, names, RECORDS_MAX, true), NODE_WANT_SAME);
    made_free(made);
}

static void why_one_could_not_be_made_is_forgotten_with_it(void **state)
{
    const char *const names[] = {"GPU-a[1-1]", "GPU-a[1-2]"};
    struct error err = ERROR_INIT, why = {"no room"};
    struct node_part part;
    struct made *made = start();

    (void)state;
    (void)made_want(made, names, 2, true);
    failure_say(made, names[0], &why);
    failure_say(made, names[1], &why);
    assert_int_equal(made_find(made, names[0], &part, &err), -EIO);
    (void)made_want(made, names, 1, true);
    assert_int_equal(made->failure_count, 1);
    assert_int_equal(made_find(made, names[0], &part, &err), -EIO);
    made_free(made);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_record_that_cannot_be_read_is_kept, make_node,
                                        remove_node),
        cmocka_unit_test_setup_teardown(more_than_there_can_be_are_refused_and_none_is_ended,
                                        make_node, remove_node),
        cmocka_unit_test_setup_teardown(why_one_could_not_be_made_is_forgotten_with_it, make_node,
                                        remove_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
