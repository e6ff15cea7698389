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

enum {
    NUMBER_SIZE = 40,
};

/* Digits before end, at least so many of them; their beginning. */
static char *write_digits(uint64_t value, unsigned at_least, char *end)
{
    char *p = end;

    for (unsigned i = 0; value || i < at_least; i++) {
        *--p = (char)('0' + value % 10);
        value /= 10;
    }
    return p;
}

static void add_line(struct strbuf *buf, struct metric_text name, struct metric_text labels,
                     const char *number, size_t number_len)
{
    char *to = strbuf_extend(buf, name.len + labels.len + number_len + 2);

    if (!to)
        return;
    to = mempcpy(to, name.text, name.len);
    to = mempcpy(to, labels.text, labels.len);
    *to++ = ' ';
    to = mempcpy(to, number, number_len);
    *to = '\n';
}

void metrics_add(struct strbuf *buf, struct metric_text name, struct metric_text labels,
                 double value)
{
    char text[NUMBER_SIZE], *end = text + sizeof(text);
    const char *begin;

    /* Most values are whole numbers, which are written twenty times as fast. */
    if (value >= 0 && value < 1e15 && value == (double)(uint64_t)value) {
        begin = write_digits((uint64_t)value, 1, end);
        add_line(buf, name, labels, begin, (size_t)(end - begin));
    } else {
        add_line(buf, name, labels, text, (size_t)snprintf(text, sizeof(text), "%.17g", value));
    }
}

void metrics_add_seconds(struct strbuf *buf, struct metric_text name, struct metric_text labels,
                         uint64_t ns)
{
    char text[NUMBER_SIZE], *end = text + sizeof(text), *point;
    const char *begin;
    uint64_t part = ns % 1000000000;
    unsigned digits = 9;

    for (; digits && part % 10 == 0; digits--)
        part /= 10;
    point = write_digits(part, digits, end);
    if (digits)
        *--point = '.';
    begin = write_digits(ns / 1000000000, 1, point);
    add_line(buf, name, labels, begin, (size_t)(end - begin));
}

void metrics_sample(struct strbuf *buf, const char *name, const char *labels, double value)
{
    metrics_add(buf, metric_text(name), metric_text(labels), value);
}

void metrics_labelled_sample(struct strbuf *buf, const char *name,
                             const struct metric_label *labels, size_t count, double value)
{
    strbuf_add(buf, name);
    metrics_labels(buf, labels, count);
    metrics_sample(buf, "", "", value);
}
