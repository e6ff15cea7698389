/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/sizes.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/util.h"

/* As if this had been kept by an earlier run. */
static struct sizes *begin_with(const char *text)
{
    static struct node_host host;
    const struct sizes_options options = {.host = &host, .sysfs = "/none"};
    struct sizes *sizes = NULL;
    char path[FILE_PATH_SIZE];

    COPY_TEXT(host.hook_path, "/tmp/hami-sizes-XXXXXX");
    assert_non_null(mkdtemp(host.hook_path));
    assert_int_equal(file_path(path, NULL, "%s/contexts", host.hook_path), 0);
    assert_int_equal(file_replace(path, text, strlen(text), 0600), 0);
    assert_int_equal(sizes_new(&options, &sizes, NULL), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(host.hook_path), 0);
    return sizes;
}

static void what_was_measured_is_kept_and_nothing_is_made_up(void **state)
{
    struct sizes *sizes = begin_with("driver 580.95.05\n"
                                     "440401920 NVIDIA A100-SXM4-40GB\n"
                                     "0 none\n"
                                     "68719476737 too much\n"
                                     "68719476736 as much as can be\n"
                                     "x no number\n"
                                     "1");

    (void)state;
    assert_int_equal(sizes_find(sizes, "NVIDIA A100-SXM4-40GB"), 420 * MIB);
    assert_int_equal(sizes_find(sizes, "as much as can be"), 64 * GIB);
    assert_int_equal(sizes_find(sizes, "none"), 0);
    assert_int_equal(sizes_find(sizes, "too much"), 0);
    assert_int_equal(sizes_find(sizes, "no number"), 0);
    assert_int_equal(sizes_find(sizes, "another"), 0);
    assert_int_equal(sizes_find(NULL, "another"), 0);
    sizes_free(sizes);

    sizes = begin_with("440401920 NVIDIA A100-SXM4-40GB\n");
    assert_int_equal(sizes_find(sizes, "NVIDIA A100-SXM4-40GB"), 0); /* by which driver? */
    sizes_free(sizes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_measured_is_kept_and_nothing_is_made_up),
    };

    return cmocka_run_group_tests_name("sizes", tests, NULL, NULL);
}
