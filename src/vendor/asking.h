/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What vendors read alike of a pod that asks for devices. */

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "model/pod.h"
#include "model/request.h"
#include "model/text.h"
#include "vendor/vendor.h"

enum {
    ASKING_LIST_MAX = 256,           /* pieces of a list on a pod */
    ASKING_LIST_TEXT_MAX = 16 << 10, /* bytes of it */
};

#define ASKING_MAX_MIB (INT64_C(1) << 42) /* more memory counts as so much: bytes do not wrap */

/* An amount that is not negative; INT32_MAX where it is beyond 32 bits. False: there is none that
 * can be read. */
bool asking_amount(const struct container *container, const char *name, int64_t *ret_value);

/* Memory, of so many MiB a unit (0 and 1: one). False: as asking_amount(). */
bool asking_mib(const struct container *container, const char *name, int64_t unit_mib,
                int64_t *ret_mib);

/* How most vendors have a share of their devices asked for. */
struct asking_share {
    const char *count, *memory, *cores; /* resources; "" where there is none */
    int64_t memory_factor;              /* MiB in a unit of memory; 0 and 1: one */
    int64_t missing_cores;              /* percent, when none are asked for */
};

/* Reads count, memory and cores into the request; memory that is not given is the whole device's.
 * False: nothing is asked for. */
bool asking_read_share(const struct container *container, const struct asking_share *share,
                       struct request *request);

/*
 * The request's devices by their uuids, out of two lists on the pod. As in HAMi, devices that are
 * asked for by name are not avoided. Errors as asking_list()'s.
 */
int asking_uuids(const struct pod *pod, const char *use_key, const char *avoid_key,
                 struct arena *arena, struct request *request);

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

/*
 * Sets a limit, and the request where the container has one, too: the API server wants the two of a
 * device's resource to be equal, and sets a request that is missing itself. -ENOMEM.
 */
int asking_set_amount(const struct container *asking, size_t container, const char *name,
                      int64_t value, struct mutations *mutations);

/* Adds a change to the container's own: -ENOMEM when it has too many, or value is NULL. */
int asking_change(struct mutations *mutations, const struct mutation *change);

/* "spec.containers[0].resources.limits[x/y]: "3" is why"; list is limits or requests. -EINVAL. */
int asking_refuse_amount(const struct pod *pod, size_t container, const char *list,
                         const struct resource *resource, const char *why, struct error *err);
