/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Writes the measurements as metrics: under HAMi's names first, then our own. No I/O. */

#include <stddef.h>

#include "base/strbuf.h"
#include "model/device.h"
#include "monitor/containers.h"
#include "monitor/podnames.h"
#include "monitor/tell.h"
#include "nvml/report.h"

struct exported {
    const char *node, *version;
    bool legacy; /* the names before 2.9, too */
    int64_t now; /* Unix seconds */
    size_t card_count;
    const struct nvml_card *cards;
    bool nvml_answers;
    double cards_age_s; /* below 0: the cards were never read */
    size_t use_count;
    const struct container_use
        *uses;         /* containers of pods without a name are left out, and counted */
    double uses_age_s; /* below 0: the containers were never read */
    const struct pod_names *names;
    double pods_age_s; /* since the API server was heard of them; below 0: no list yet */

    bool compares; /* who uses the cards is compared with what was given: */
    bool compare_up;
    double compare_age_s; /* of the last look; below 0: none yet */
    size_t case_count;
    const struct tell_case *cases;
    struct tell_counts counts;
};

void export_metrics(const struct exported *what, struct strbuf *buf);
