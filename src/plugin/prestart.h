/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A container is about to start: finds out which one, checks its grant, and writes its files. Takes
 * as long as kubelet and, where the pod is not known yet, the API server need; the call is answered
 * within PRESTART_TIMEOUT_MS.
 */

#include "plugin/plugin.h"

enum {
    PRESTART_TIMEOUT_MS = 15000,
};

/* The ids are of the resource, which is the plugin's. */
void prestart_begin(struct plugin *plugin, const struct node_resource *resource,
                    struct grpc_call *call, const char *const *ids, size_t count);
/* kubelet does not wait any more. */
void prestart_gone(struct plugin *plugin, struct grpc_call *call);
/* When the plugin ends: answers the calls with an error, and kubelet tries again. */
void prestart_stop(struct plugin *plugin);
