/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A snapshot, or a region file, as tables for people or as JSON for programs. */

#include "base/strbuf.h"
#include "ctl/snapshot.h"
#include "region/view.h"

void top_print_tables(struct strbuf *text, const struct snapshot *snapshot);
void top_print_json(struct strbuf *text, const struct snapshot *snapshot);

void top_print_region_tables(struct strbuf *text, const char *path, const struct region_view *view);

/* One object, without a line's end. */
void top_print_region_json(struct strbuf *text, const char *path, const struct region_view *view);
