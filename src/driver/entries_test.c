/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/entries.h"

#include <string.h>

#include "base/check.h"
#include "base/util.h"

static void the_table_holds_every_export_once_and_sorted(void **state)
{
    (void)state;
    assert_int_equal(driver_entry_count, 699);
    for (size_t i = 0; i < driver_entry_count; i++) {
        char before[DRIVER_NAME_MAX], buffer[DRIVER_NAME_MAX];
        const char *name = driver_entry_name(&driver_entries[i], buffer);

        assert_ptr_equal(driver_entry_find(name), &driver_entries[i]);
        if (i)
            assert_true(strcmp(driver_entry_name(&driver_entries[i - 1], before), name) < 0);
    }
    assert_null(driver_entry_find("cuNoSuchThing"));
    assert_null(driver_entry_find("cuMemAlloc_v"));
    assert_null(driver_entry_find("cuMemAlloc_v2x"));
    assert_null(driver_entry_find("cuMemAll"));
    assert_null(driver_entry_find(""));
}

static void a_name_and_version_mean_one_export(void **state)
{
    static const struct {
        const char *base;
        int version;
        enum driver_stream stream;
        enum driver_lookup lookup;
        const char *name;
    } cases[] = {
        {"cuMemAlloc", 2000, 0, DRIVER_FOUND, "cuMemAlloc"},
        {"cuMemAlloc", 3010, 0, DRIVER_FOUND, "cuMemAlloc"},
        {"cuMemAlloc", 3020, 0, DRIVER_FOUND, "cuMemAlloc_v2"},
        {"cuMemAlloc", 13000, 0, DRIVER_FOUND, "cuMemAlloc_v2"},
        {"cuMemAlloc", 1000, 0, DRIVER_TOO_OLD, NULL},
        {"cuMemAlloc_v2", 13000, 0, DRIVER_NO_SYMBOL, NULL},
        {"cuGetProcAddress", 11030, 0, DRIVER_FOUND, "cuGetProcAddress"},
        {"cuGetProcAddress", 12000, 0, DRIVER_FOUND, "cuGetProcAddress_v2"},
        {"cuLaunchKernel", 13000, 0, DRIVER_FOUND, "cuLaunchKernel"},
        {"cuLaunchKernel", 13000, 1, DRIVER_FOUND, "cuLaunchKernel_ptsz"},
        {"cuLaunchKernel", 6000, 1, DRIVER_FOUND, "cuLaunchKernel"},
        {"cuMemcpy", 13000, 1, DRIVER_FOUND, "cuMemcpy_ptds"},
        {"cuCtxCreate", 3020, 1, DRIVER_FOUND, "cuCtxCreate_v2"},
        {"cuCtxCreate", 12050, 0, DRIVER_FOUND, "cuCtxCreate_v4"},
        {"cuMemAdvise", 8000, 0, DRIVER_FOUND, "cuMemAdvise"},
        {"cuMemAdvise", 12020, 0, DRIVER_FOUND, "cuMemAdvise_v2"},
        {"cuGraphAddNode", 13000, 0, DRIVER_FOUND, "cuGraphAddNode_v2"},
        {"cuGraphAddNode", 13040, 0, DRIVER_FOUND, "cuGraphAddNode_v3"},
        {"cuLaunchHostFunc", 13050, 1, DRIVER_FOUND, "cuLaunchHostFunc_v2_ptsz"},
        {"cuProfilerStart", 13000, 0, DRIVER_NO_SYMBOL, NULL},
        {"", 13000, 0, DRIVER_NO_SYMBOL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct driver_entry *entry = NULL;
        char name[DRIVER_NAME_MAX];

        print_message("%s %d\n", cases[i].base, cases[i].version);
        assert_int_equal(
            driver_entry_resolve(cases[i].base, cases[i].version, cases[i].stream, &entry),
            cases[i].lookup);
        if (cases[i].name)
            assert_string_equal(driver_entry_name(entry, name), cases[i].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_holds_every_export_once_and_sorted),
        cmocka_unit_test(a_name_and_version_mean_one_export),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
