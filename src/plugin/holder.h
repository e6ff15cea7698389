/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which container kubelet's device ids belong to, from two sources: kubelet's pod resources API,
 * and the checkpoint file that it keeps beside the plugins' sockets. The API lacks plain init
 * containers; the file has all containers, by pod uid, but its format is kubelet's own and may
 * change, so we do without it where it can't be read. Pure.
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
    char namespace[64], pod[HOLDER_NAME_SIZE]; /* "": not known */
    char uid[HOLDER_UID_SIZE];                 /* "": not known */
    char container[HOLDER_NAME_SIZE]; /* "": an init container of the pod, it is not known which */
};

enum holder_outcome {
    HOLDER_FOUND = 1,
    HOLDER_NONE,
};

/* From a packed ListPodResourcesResponse: fills in namespace, pod and container. -EPROTO. */
int holder_of_list(const uint8_t *message, size_t len, const char *resource, const char *const *ids,
                   size_t count, struct holder *holder);

/*
 * From the checkpoint's text: fills in uid. container is left alone: several containers may hold
 * the same ids, one after the other, and the checkpoint does not say which starts. -EPROTO.
 */
int holder_of_checkpoint(const char *text, size_t len, const char *resource, const char *const *ids,
                         size_t count, struct holder *holder);

/* Calls fn with each id of the resource that a container has by the checkpoint's text. -EPROTO. */
int holder_each_id(const char *text, size_t len, const char *resource,
                   void (*fn)(void *data, const char *id), void *data);
