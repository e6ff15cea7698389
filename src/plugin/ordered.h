/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The ordered match: how containers get their devices where CDI does not reach them. kubelet keeps
 * Allocate's answer for as long as the container lives, so all must be known when it asks, and it
 * does not say for whom. The node's registration tells the scheduler so, which then binds one pod
 * at a time, under HAMi's lock. At Allocate the node's pods are read from the API server, and the
 * next container of the one that is being bound gets what it was granted (match.h); else kubelet is
 * refused. Which container it was is checked when it starts (prestart.c), where kubelet knows: a
 * wrong one does not start.
 */

#include "plugin/plugin.h"

/* The ids are of the resource, which is the plugin's. No ids: kubelet asked for several containers
 * at once. */
void ordered_begin(struct plugin *plugin, const struct node_resource *resource,
                   struct grpc_call *call, const char *const *ids, size_t count);
/* kubelet does not wait any more. */
void ordered_gone(struct plugin *plugin, struct grpc_call *call);
/* When the plugin ends: refuses the calls, and kubelet the pods. */
void ordered_stop(struct plugin *plugin);
