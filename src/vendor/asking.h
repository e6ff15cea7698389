/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What vendors read alike of a pod that asks for devices. */

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "model/pod.h"
#include "model/text.h"

enum {
    ASKING_LIST_MAX = 256,           /* pieces of a list on a pod */
    ASKING_LIST_TEXT_MAX = 16 << 10, /* bytes of it */
};

/* An amount that is not negative; INT32_MAX where it is beyond 32 bits. False: there is none that
 * can be read. */
bool asking_amount(const struct container *container, const char *name, int64_t *ret_value);

/* Whether the text of a list is short enough to be read. */
bool asking_list_is_bounded(const char *text);

/*
 * The pieces of "a,b"; they are compared as they are, blanks and empty ones included. -E2BIG: more
 * than a decision can go through for each of many thousand cards.
 */
int asking_list(const struct pod *pod, const char *key, struct arena *arena,
                struct text_list *ret_list);
