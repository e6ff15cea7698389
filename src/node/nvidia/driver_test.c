/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/util.h"
#include "node/nvidia/edits.h"

#define SPEC                                                                                       \
    "{\"cdiVersion\":\"0.5.0\",\"kind\":\"nvidia.com/gpu\",\"devices\":[{\"name\":\"GPU-a\","      \
    "\"containerEdits\":{\"deviceNodes\":[{\"path\":\"/dev/nvidia0\"}]}}]}"

static char root[32];

/* Below the root, with the folders before it. */
static void write_below(const char *name, const char *text)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        (void)mkdir(path, 0700);
    }
    assert_int_equal(file_replace(path, text, strlen(text), 0600), 0);
}

static int make_root(void **state)
{
    (void)state;
    COPY_TEXT(root, "/tmp/hami-driver-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[64];

    (void)state;
    (void)snprintf(command, sizeof(command), "rm -r %s", root);
    return system(command);
}

static void a_driver_that_comes_later_is_found(void **state)
{
    const struct driver_config config = {.cdi_folders = "", .root = "/host", .seen_root = root};
    CLEANUP(driver_freep) struct driver *driver = driver_new(&config);
    struct error err = ERROR_INIT;
    const struct cdi_mount *mounts;
    struct cdi_choice choice;

    (void)state;
    assert_int_equal(driver_look(driver, &err), -ENOENT);
    assert_string_equal(err.text, "there is no driver below /host/");
    write_below("usr/lib64/libcuda.so.580.1", "");
    assert_int_equal(driver_look(driver, &err), DRIVER_ROOT);
    assert_int_equal(driver_choose(driver, NULL, 0, false, &choice, &err), DRIVER_ROOT);
    mounts = choice.parts[0]->mounts.items;
    assert_string_equal(mounts[0].host_path, "/host/usr/lib64/libcuda.so.580.1");
}

static void a_specification_that_comes_mended_is_read_again(void **state)
{
    char folders[96];
    const struct driver_config config = {.cdi_folders = folders};
    CLEANUP(driver_freep) struct driver *driver = driver_new(&config);
    struct error err = ERROR_INIT;

    (void)state;
    (void)snprintf(folders, sizeof(folders), "%s/none,%s/cdi", root, root);
    assert_int_equal(driver_look(driver, &err), DRIVER_NONE);
    write_below("cdi/nvidia.json", "{");
    assert_int_equal(driver_look(driver, &err), -EINVAL);
    assert_int_equal(driver_look(driver, &err), -EINVAL);
    assert_non_null(strstr(err.text, "/cdi/nvidia.json"));
    write_below("cdi/nvidia.json", SPEC);
    assert_int_equal(driver_look(driver, &err), DRIVER_TOOLKIT);
    assert_int_equal(driver_look(driver, &err), DRIVER_TOOLKIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_driver_that_comes_later_is_found, make_root, remove_root),
        cmocka_unit_test_setup_teardown(a_specification_that_comes_mended_is_read_again, make_root,
                                        remove_root),
    };

    return cmocka_run_group_tests_name("driver", tests, NULL, NULL);
}
