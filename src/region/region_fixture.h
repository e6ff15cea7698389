/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A path where a region may be, in a directory of its own, for the tests of region. */

#include "region/view.h"

extern char fixture_path[128];

/* What is there, read anew; the same memory each time. */
struct region_view *fixture_view(void);

/* cmocka's. */
int fixture_set_up(void **state);
int fixture_tear_down(void **state);

#define FIXTURE_TEST(name) cmocka_unit_test_setup_teardown(name, fixture_set_up, fixture_tear_down)
