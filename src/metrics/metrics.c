/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics/metrics.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

void metrics_family(struct strbuf *buf, const char *name, enum metric_type type, const char *help)
{
    static const char *const types[] = {
        [METRIC_GAUGE] = "gauge",
        [METRIC_COUNTER] = "counter",
        [METRIC_HISTOGRAM] = "histogram",
    };

    strbuf_addf(buf, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, types[type]);
}

/* Bytes at p that stand for themselves. */
static size_t plain_length(const unsigned char *p)
{
    size_t len = 0, next;

    while (p[len] && p[len] != '\n' && p[len] != '"' && p[len] != '\\') {
        next = utf8_length(p + len);
        if (!next)
            break;
        len += next;
    }
    return len;
}

static void add_value(struct strbuf *buf, const char *value)
{
    const unsigned char *p = (const unsigned char *)value;

    for (;;) {
        size_t len = plain_length(p);

        strbuf_add_bytes(buf, (const char *)p, len);
        p += len;
        if (!*p)
            return;
        if (*p == '\n')
            strbuf_add(buf, "\\n");
        else if (*p == '"' || *p == '\\')
            strbuf_addf(buf, "\\%c", *p);
        else
            strbuf_add(buf, "\xef\xbf\xbd"); /* U+FFFD */
        p++;
    }
}

void metrics_labels(struct strbuf *buf, const struct metric_label *labels, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        strbuf_add(buf, i ? "," : "{");
        strbuf_add(buf, labels[i].name);
        strbuf_add(buf, "=\"");
        add_value(buf, labels[i].value);
        strbuf_add(buf, "\"");
    }
    if (count)
        strbuf_add(buf, "}");
}

/* " 123\n", from the end of the buffer; its beginning. */
static const char *write_whole(uint64_t value, char *text, size_t size)
{
    char *p = text + size;

    *--p = '\0';
    *--p = '\n';
    do
        *--p = (char)('0' + value % 10);
    while (value /= 10);
    *--p = ' ';
    return p;
}

void metrics_sample(struct strbuf *buf, const char *name, const char *labels, double value)
{
    char text[40];
    const char *number = text;

    /* Most values are whole numbers, which are written twenty times as fast. */
    if (value >= 0 && value < 1e15 && value == (double)(uint64_t)value)
        number = write_whole((uint64_t)value, text, sizeof(text));
    else
        (void)snprintf(text, sizeof(text), " %.17g\n", value);
    strbuf_add(buf, name);
    strbuf_add(buf, labels);
    strbuf_add(buf, number);
}
