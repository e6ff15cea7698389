/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The admission webhook: an AdmissionReview in, its answer out.
 *
 * The answer allows, with a JSON patch that adds what is missing and touches nothing else, or
 * denies, with the field's name. Pure: no clock, no log, no state.
 */

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "vendor/vendor.h"

enum {
    ADMIT_MAX_BODY = 4 << 20, /* the API server's own bound on objects is below 4 MiB */
};

struct admit_options {
    const char *scheduler_name;       /* written into pods that ask for devices; "" or NULL: none */
    bool overwrite_default_scheduler; /* pods that name no scheduler, or default-scheduler, too */

    /* What the pods of a namespace may have together, in the arena; -ENOMEM. NULL: no bounds. */
    int (*find_bounds)(const void *data, const char *namespace, struct arena *arena,
                       const struct place_budget **ret_bounds, size_t *ret_count);
    const void *data; /* for find_bounds */
};

enum admit_outcome {
    ADMIT_ALLOWED = 1, /* as it is */
    ADMIT_PATCHED,
    ADMIT_DENIED,
};

struct admit_answer {
    int code;            /* as an HTTP status: 200, 400, 403, 422 */
    const char *message; /* "" or why */
    const char *reason;  /* Kubernetes' reason, "Forbidden"; "" */
    const char *warning; /* for the pod's creator, though the pod is allowed; NULL: none */
    const char *patch;   /* of ADMIT_PATCHED: JSON text */
};

/* One pod alone, whose strings are in the arena. Fills the answer for each outcome; -ENOMEM. */
int admit_pod(const struct admit_options *options, const struct vendor_set *vendors,
              const struct pod *pod, struct arena *arena, struct admit_answer *ret_answer);

/*
 * A whole review. Fills the JSON text of the answering AdmissionReview, which is the arena's, for
 * each outcome of admit_pod(). -EINVAL when the body is no AdmissionReview that could be answered,
 * with why in err; -E2BIG, -ENOMEM.
 */
int admit_review(const struct admit_options *options, const struct vendor_set *vendors,
                 const char *body, size_t len, struct arena *arena, const char **ret_body,
                 size_t *ret_len, struct error *err);
