/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * HAMi 2.8.2's answers, tests/data/vectors, against ours. A family is a file of cases, one a line,
 * and a function that checks one of them.
 */

#include <stdbool.h>
#include <stddef.h>
#include <yyjson.h>

#include "base/arena.h"
#include "base/error.h"
#include "config/device_config.h"
#include "vendor/vendor.h"

enum {
    CASE_MEMORY = 256 << 20,
    CONFIGS_MAX = 24,
};

/* One case while it is checked. */
struct vector {
    const char *id;
    yyjson_val *line;
    struct arena *arena;              /* of this case */
    const struct vendor_set *vendors; /* of the case's configuration */
    bool quiet;                       /* what is wrong is not printed */
    bool failed;
};

struct family {
    const char *name;
    void (*check)(struct vector *vector);
    const char *(*left_out)(
        const struct vector *vector); /* why the case doesn't apply, NULL: it does; may be NULL */
};

extern const struct family codec_node_family, codec_pod_family, requests_family, admit_family,
    filter_family, quota_family, score_family;

/* An op of codec-pod: all annotations that a vendor writes for a grant. */
void check_patch_annotations(struct vector *vector);

/* Says what is wrong with the case; the rest of it may go on. */
void vector_fail(struct vector *vector, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The member as text, "" when it is absent. */
const char *vector_text(yyjson_val *object, const char *key);

bool vector_has_tag(const struct vector *vector, const char *tag);

/* Whether HAMi 2.8.2 does not write this annotation, and we do: its agent needs it. */
bool vector_is_ours_alone(const char *key);

/* Compares two texts; false, and said, when they differ. */
bool vector_equal(struct vector *vector, const char *what, const char *ours, const char *theirs);

/* The same for numbers. */
bool vector_equal_number(struct vector *vector, const char *what, int64_t ours, int64_t theirs);
