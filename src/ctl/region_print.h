/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A shared region for people, and as JSON. */

#include "base/error.h"
#include "base/strbuf.h"
#include "ctl/table.h"
#include "region/view.h"

/* Of region_refusal, for people and as JSON's keys. */
extern const char *const region_refusal_names[REGION_REFUSAL_REASONS];

/* A cell for region_view_longest()'s range. */
void region_add_longest(struct table *table, unsigned range);

/* A region as it was read, and what was done to its processes. */
struct region_picture {
    const char *path;
    struct region_view view;
    struct region_explained explained[REGION_SLOTS]; /* by place in the view */
};

/* Negative, with an error that names the file. It keeps the path. */
int region_picture_read(struct region_picture *picture, const char *path, struct error *err);

void region_print_tables(struct strbuf *text, const struct region_picture *picture);

/* A table of regions, which table_finish() ends. picture is NULL where there is none to show: the
 * region is not in use yet, or can't be read, which wrong says. */
void region_list_begin(struct table *table);
void region_list_add(struct table *table, const char *path, const struct region_picture *picture,
                     const char *wrong);

/* One object, without a line's end. */
void region_print_json(struct strbuf *text, const struct region_picture *picture);
