/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Within the region: files of version 0, which view.c reads as well. */

#include "region/view.h"

#define VIEW_V0_SIZE 1197896u

/* Of a file's end. HAMi takes all that is shorter than a region of version 1 for one of version 0,
 * so one of version 1 that was cut, too. */
#define VIEW_V0_SLACK 8u

/* Where HAMi's feedback stands. */
#define VIEW_V0_UTILIZATION_SWITCH (VIEW_V0_SIZE - 12)
#define VIEW_V0_RECENT_KERNEL (VIEW_V0_SIZE - 8)

/* A file is of that version if its size is VIEW_V0_SIZE, or less than VIEW_V0_SLACK more. *view is
 * cleared. -EPROTO: it is none. */
int view_v0_read(int fd, struct region_view *view);
