/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/table.h"

#include <libsmartcols.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void table_init(struct table *table, const struct table_column *columns, size_t count)
{
    *table = (struct table){.scols = scols_new_table()};
    table->failed = !table->scols;
    for (size_t i = 0; !table->failed && i < count; i++) {
        int flags = (columns[i].right ? SCOLS_FL_RIGHT : 0) | (columns[i].cut ? SCOLS_FL_TRUNC : 0);

        table->failed = !scols_table_new_column(table->scols, columns[i].name, 0, flags);
    }
}

void table_add_row(struct table *table)
{
    if (table->failed)
        return;
    table->line = scols_table_new_line(table->scols, NULL);
    table->next = 0;
    table->failed = !table->line;
}

bool table_is_empty(const struct table *table)
{
    return !table->line;
}

void table_add_cell(struct table *table, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    int len;

    if (table->failed)
        return;
    va_start(args, fmt);
    len = vasprintf(&text, fmt, args);
    va_end(args);
    if (len < 0 || scols_line_refer_data(table->line, table->next++, text) != 0) {
        table->failed = true;
        if (len >= 0)
            free(text);
    }
}

void table_finish(struct table *table, struct strbuf *text)
{
    char *printed = NULL;

    if (!table->failed && scols_print_table_to_string(table->scols, &printed) == 0) {
        strbuf_add(text, printed);
        /* The library ends each line but, in some versions, the last. */
        if (text->len && text->text[text->len - 1] != '\n')
            strbuf_add(text, "\n");
    } else {
        text->failed = true;
    }
    free(printed);
    scols_unref_table(table->scols);
    *table = (struct table){0};
}
