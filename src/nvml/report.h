/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The device plugin's reading of the cards, as a small JSON text, for programs that can't open
 * NVML: only the plugin has the device nodes. No I/O.
 */

#include "base/strbuf.h"
#include "nvml/nvml.h"

enum {
    NVML_REPORT_MAX = 256 << 10, /* bytes */
};

/* The file, in the folder of containers' files; read anew every 5 s, and written as often. */
#define NVML_REPORT_FILE "cards.json"

/* A card of the node and its present use. */
struct nvml_card {
    struct device device;
    bool has_status;
    struct nvml_status status;

    /* What the device plugin made of it: device.healthy is its word then. */
    bool has_health;
    char why[128];     /* it is not healthy */
    uint64_t failures; /* errors that took it out, since the plugin began */
    bool has_errors;
    uint64_t corrected, uncorrected; /* memory errors since the card was reset */
};

/* What the plugin said of a card's health, in place of what is known. */
void nvml_card_take_health(struct nvml_card *card, const struct nvml_card *told);

void nvml_report_format(const struct nvml_card *cards, size_t count, struct strbuf *text);

/* Returns the number of cards, -EINVAL when it is no report, or -E2BIG. */
int nvml_report_parse(const char *text, size_t len, struct nvml_card *ret_cards, size_t max);

/* Asks NVML for all of it, which may block. Returns the number of cards, -E2BIG, -EIO. */
int nvml_read_cards(struct nvml *nvml, struct nvml_card *ret_cards, size_t max, struct error *err);
