/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/dma_buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs four of the above */
#include <cmocka.h>

/* The texts of a dma-buf and of another file, on Linux 6.1. */
static void the_kernel_says_how_many_have_it_open(void **state)
{
    static const struct {
        const char *name, *fdinfo;
        long users;
    } cases[] = {
        {"ours alone",
         "pos:\t0\nflags:\t02000002\nmnt_id:\t16\nino:\t7\nsize:\t2097152\ncount:\t1\n"
         "exp_name:\tnv_dmabuf\n",
         1},
        {"three", "ino:\t7\nsize:\t4096\ncount:\t3\nexp_name:\tnv_dmabuf\n", 3},
        {"a file", "pos:\t0\nflags:\t0100002\nmnt_id:\t28\nino:\t1234\n", -1},
        {"a counter's", "pos:\t0\neventfd-count: 1\n", -1},
        {"no number", "ino:\t7\ncount:\t\nexp_name:\tx\n", -1},
        {"nobody", "ino:\t7\ncount:\t0\n", -1},
        {"nothing", "", -1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (dma_buf_users(cases[i].fdinfo) != cases[i].users)
            fail_msg("%s: %ld", cases[i].name, dma_buf_users(cases[i].fdinfo));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernel_says_how_many_have_it_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
