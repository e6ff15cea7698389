/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Within the export: its parts, in the order of the page. */

#include "monitor/export.h"

enum {
    LABELS_MAX = 8,
    TEXT_MAX = 8 << 10, /* of one sample's labels */
};

/* export_cards.c */
void export_cards(const struct exported *what, struct strbuf *buf);
void export_nvml(const struct exported *what, struct strbuf *buf);
void export_pods_age(const struct exported *what, struct strbuf *buf);

/* export_pods.c */
void export_migs(const struct exported *what, struct strbuf *buf);
void export_bypass(const struct exported *what, struct strbuf *buf);
