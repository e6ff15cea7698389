/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What vendors read alike of a pod that asks for devices. */

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
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

/*
 * Admission's check of a container's limits and requests of these resources, NULL-terminated unless
 * count are there. The first is the counted one, which is read as none at all beyond 32 bits.
 * -EINVAL with the field's name: an amount is negative, a fraction, or more than can be counted.
 */
int asking_check_amounts(const struct pod *pod, size_t container, const char *const *names,
                         size_t count, struct error *err);

/* "spec.containers[0].resources.limits[x/y]: "3" is why"; list is limits or requests. -EINVAL. */
int asking_refuse_amount(const struct pod *pod, size_t container, const char *list,
                         const struct resource *resource, const char *why, struct error *err);
