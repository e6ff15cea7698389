/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Prometheus' text format, version 0.0.4. A family's HELP and TYPE are written once, and all its
 * samples follow: a caller writes one family after the other.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/strbuf.h"

enum metric_type {
    METRIC_GAUGE,
    METRIC_COUNTER,
    METRIC_HISTOGRAM, /* samples of NAME_bucket, NAME_sum and NAME_count */
};

struct metric_label {
    const char *name, *value;
};

void metrics_family(struct strbuf *buf, const char *name, enum metric_type type, const char *help);

/* Labels as text, {a="b",c="d"}: values are escaped, bytes that are not UTF-8 are replaced. */
void metrics_labels(struct strbuf *buf, const struct metric_label *labels, size_t count);

/* A name, or labels as metrics_labels() writes them: what stands in hundreds of lines is measured
 * once. */
struct metric_text {
    const char *text;
    size_t len;
};

static inline struct metric_text metric_text(const char *text)
{
    return (struct metric_text){text, strlen(text)};
}

void metrics_add(struct strbuf *buf, struct metric_text name, struct metric_text labels,
                 double value);
/* Of a time in nanoseconds, told in seconds and exactly. */
void metrics_add_seconds(struct strbuf *buf, struct metric_text name, struct metric_text labels,
                         uint64_t ns);

/* A sample of the family begun last; labels as metrics_labels() writes them, or "". */
void metrics_sample(struct strbuf *buf, const char *name, const char *labels, double value);

/* One sample with these labels. */
void metrics_labelled_sample(struct strbuf *buf, const char *name,
                             const struct metric_label *labels, size_t count, double value);
