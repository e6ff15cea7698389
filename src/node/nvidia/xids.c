/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvidia/xids.h"

#include <string.h>
#include <strings.h>

#include "base/parse.h"
#include "base/util.h"

/* Errors of programs, by NVIDIA's list (docs.nvidia.com/deploy/xid-errors): the card is well. */
static const uint64_t of_programs[] = {
    13,  /* graphics engine exception */
    31,  /* memory page fault */
    43,  /* a program's work was stopped */
    45,  /* cleanup after it */
    68,  /* video processor exception */
    109, /* context switch timeout */
};

#define BLANKS " \t\n\v\f\r"

static bool add_piece(const char *text, size_t len, struct xid_list *list)
{
    char piece[24];

    while (len && strchr(BLANKS, text[len - 1]))
        len--;
    if (!len)
        return true;
    if (len >= sizeof(piece) || list->count == XIDS_MAX)
        return false;
    memcpy(piece, text, len);
    piece[len] = '\0';
    if (strcasecmp(piece, "all") == 0 || strcasecmp(piece, "xids") == 0) {
        list->all = true;
        return true;
    }
    if (parse_u64(piece, &list->xids[list->count]) < 0)
        return false;
    list->count++;
    return true;
}

size_t xid_list_parse(const char *text, struct xid_list *ret_list)
{
    struct xid_list list = {.all = false};
    size_t bad = 0;

    for (const char *p = text; p && *p; p += *p == ',') {
        size_t len;

        p += strspn(p, BLANKS);
        len = strcspn(p, ",");
        bad += !add_piece(p, len, &list);
        p += len;
    }
    *ret_list = list;
    return bad;
}

static bool has(const uint64_t *xids, size_t count, uint64_t xid)
{
    for (size_t i = 0; i < count; i++) {
        if (xids[i] == xid)
            return true;
    }
    return false;
}

bool xid_counts(const struct xid_rules *rules, uint64_t xid)
{
    if (rules->enabled.all || has(rules->enabled.xids, rules->enabled.count, xid))
        return true;
    return !rules->disabled.all && !has(rules->disabled.xids, rules->disabled.count, xid) &&
           !has(of_programs, ARRAY_SIZE(of_programs), xid);
}

bool xid_rules_are_off(const struct xid_rules *rules)
{
    return rules->disabled.all && !rules->enabled.all && !rules->enabled.count;
}
