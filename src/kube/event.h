/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads one event of a watch, and the envelope of a list. No I/O. */

#include <stdbool.h>
#include <stddef.h>
#include <yyjson.h>

#include "base/error.h"
#include "kube/watch.h"

enum {
    EVENT_VERSION_SIZE = 64,
    EVENT_CONTINUE_SIZE = 4096,
};

enum event_kind {
    EVENT_OBJECT = 1, /* added, modified or deleted */
    EVENT_BOOKMARK,
    EVENT_ERROR,
};

/* Pointers are into the JSON. */
struct event {
    enum event_kind kind;
    enum kube_event type; /* of EVENT_OBJECT */
    yyjson_val *object;   /* of EVENT_OBJECT */
    const char *version;  /* resource version, shorter than EVENT_VERSION_SIZE; "" for errors */
    bool initial_end;     /* a bookmark: the initial events are complete */
    unsigned code;        /* of EVENT_ERROR: HTTP's */
    const char *message;  /* of EVENT_ERROR */
};

/* -EPROTO, with err set, if root is no watch event. */
int event_read(yyjson_val *root, struct event *ret_event, struct error *err);

struct list_end {
    const char *version;
    const char *continue_token; /* "" when the list is complete */
};

/* Reads a list's envelope. -EPROTO, with err set. */
int event_read_envelope(yyjson_val *root, struct list_end *ret_end, struct error *err);
