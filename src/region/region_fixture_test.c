/* SPDX-License-Identifier: Apache-2.0 */
#include "region/region_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"

static char directory[64];
char fixture_path[128];

int fixture_set_up(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/hami-region-XXXXXX");
    assert_non_null(mkdtemp(directory));
    (void)snprintf(fixture_path, sizeof(fixture_path), "%s/x.cache", directory);
    return 0;
}

int fixture_tear_down(void **state)
{
    (void)state;
    (void)unlink(fixture_path);
    (void)rmdir(directory);
    return 0;
}

struct region_view *fixture_view(void)
{
    static struct region_view view;

    assert_int_equal(region_view_read(fixture_path, &view, NULL), 0);
    return &view;
}
