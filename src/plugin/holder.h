/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whom kubelet's device ids belong to, in kubelet's own words: its pod resources interface, and the
 * checkpoint file that it keeps beside the plugins' sockets. The first does not know plain init
 * containers; the second knows them all, by pod uid, and is kubelet's own business: it is only
 * believed where it can be read. Pure.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    HOLDER_NAME_SIZE = 256,
    HOLDER_UID_SIZE = 64,
};

struct holder {
    char namespace[64], pod[HOLDER_NAME_SIZE]; /* "": not told */
    char uid[HOLDER_UID_SIZE];                 /* "": not told */
    char container[HOLDER_NAME_SIZE]; /* "": one of the pod's that is not told, an init container */
};

enum holder_outcome {
    HOLDER_FOUND = 1,
    HOLDER_NONE,
};

/* Of a packed ListPodResourcesResponse: fills in namespace, pod and container. -EPROTO. */
int holder_of_list(const uint8_t *message, size_t len, const char *resource, const char *const *ids,
                   size_t count, struct holder *holder);

/*
 * Of the checkpoint's text: fills in uid. container is left alone: of several containers that hold
 * the same ids, one after the other, it is not told which is meant. -EPROTO.
 */
int holder_of_checkpoint(const char *text, size_t len, const char *resource, const char *const *ids,
                         size_t count, struct holder *holder);

/* Calls fn with each id of the resource that the checkpoint's text says some container has.
 * -EPROTO.
 */
int holder_each_id(const char *text, size_t len, const char *resource,
                   void (*fn)(void *data, const char *id), void *data);
