/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which errors take a card out: HAMi's rule, which is NVIDIA's device plugin's, by the variables
 * DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS. Each is a list with commas, in which "all" or
 * "xids" stands for every XID. An XID that is enabled counts, whatever else is said of it; else one
 * that is disabled does not, nor do those that a program causes by its own mistakes. Pure.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    XIDS_MAX = 128, /* of a list; a driver has fewer */
};

struct xid_list {
    bool all;
    size_t count;
    uint64_t xids[XIDS_MAX];
};

struct xid_rules {
    struct xid_list disabled, enabled;
};

/* text may be NULL, for none. Returns how many pieces of it are no number, or too many: they are
 * left out. */
size_t xid_list_parse(const char *text, struct xid_list *ret_list);

bool xid_counts(const struct xid_rules *rules, uint64_t xid);

/* Whether nothing but what NVML answers counts: everything is disabled, nothing enabled. */
bool xid_rules_are_off(const struct xid_rules *rules);
