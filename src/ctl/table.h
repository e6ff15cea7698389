/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Tables of text, by libsmartcols: columns are rows of a constant array, cells are formatted. */

#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"

struct libscols_table;

struct table_column {
    const char *name;
    bool right; /* aligned */
    bool cut;   /* where the terminal is too narrow */
};

struct table {
    struct libscols_table *scols;
    struct libscols_line *line;
    size_t next;
    bool failed; /* of memory; checked at the end */
};

void table_init(struct table *table, const struct table_column *columns, size_t count);
void table_add_row(struct table *table);
bool table_is_empty(const struct table *table);

/* The row's next cell. */
void table_add_cell(struct table *table, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Appends the table's text, each line ended, and releases the table. A failure fails the buffer. */
void table_finish(struct table *table, struct strbuf *text);
