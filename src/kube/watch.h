/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A list of API objects that is kept up to date: first every existing object, then every change.
 *
 * The initial list comes by WatchList where the server has it, else in pages, which grow as long as
 * the server is quick. Then follows a watch with bookmarks, which is resumed where it was cut. When
 * the server no longer knows that place (410), or the initial list was cut, everything is listed
 * again: begin() is called, and once complete() is called, objects that the owner learnt of before
 * that begin() and that were not handed over since do not exist any more.
 *
 * The server takes the list's snapshot at an unknown time after begin(). An owner may learn of an
 * object in other ways, by a write of its own or by reading it. If it did so before begin(), the
 * list must show the object; if after, the list may lack the object, and the owner keeps it.
 *
 * Objects are handed over one at a time, for a fraction of a millisecond in each turn of the loop.
 * The others wait in a buffer, then in the connection, so that a list of any length neither stalls
 * the loop nor fills memory.
 */

#include <stdbool.h>
#include <stdint.h>
#include <yyjson.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "kube/client.h"

struct kube_watch;

enum kube_event {
    KUBE_ADDED = 1, /* also an object that was known before, after begin() */
    KUBE_MODIFIED,
    KUBE_DELETED,
};

/* Called from the loop. Each may free the watch and start requests. */
struct kube_watch_ops {
    /* An initial list is about to be asked for: the first, a later one, or one that failed
     * before. */
    void (*begin)(void *data);
    /* object is at least a JSON object with metadata; good for this call only. */
    void (*object)(void *data, enum kube_event event, yyjson_val *object);
    /* The initial list that the last begin() began is complete. */
    void (*complete)(void *data);
    /* The connection was lost or refused, and will be tried again. May be NULL: it is logged. */
    void (*trouble)(void *data, const char *why);
};

struct kube_watch_spec {
    const char *path;           /* "/api/v1/pods" */
    const char *label_selector; /* unescaped; NULL: none */
    const char *field_selector; /* unescaped, "spec.nodeName=a"; NULL: none */
    bool metadata_only;         /* PartialObjectMetadata: object has apiVersion, kind, metadata */
    bool paged; /* a long list: in pages though the server may have WatchList, which is slower */
};

/* The spec is copied, the ops are not. */
int kube_watch_new(struct kube_client *client, const struct kube_watch_spec *spec,
                   const struct kube_watch_ops *ops, void *data, struct kube_watch **ret_watch,
                   struct error *err);
void kube_watch_free(struct kube_watch *watch);
DEFINE_CLEANUP(struct kube_watch *, kube_watch_free);

/* Lists everything again: begin() is called, from the loop. Not to be called from the callbacks. */
void kube_watch_list_again(struct kube_watch *watch);

/* Whether complete() was called since the last begin(). */
bool kube_watch_is_complete(const struct kube_watch *watch);

/* Seconds for which the server has not been listened to: 0 while its answer is open. */
double kube_watch_age(const struct kube_watch *watch);
