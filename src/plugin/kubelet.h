/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * kubelet's side of the plugin: the socket that it calls, the registration, the list of devices.
 * When kubelet restarts it removes all sockets of its folder and forgets its plugins: then the
 * socket is made again and the plugin registered again. When a newer plugin has taken our place,
 * and we end, it gets the connections that kubelet must not see ending (handover.h).
 */

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "grpc/deviceplugin.pb-c.h"
#include "grpc/grpc.h"
#include "node/node_vendor.h"

struct kubelet;

enum {
    KUBELET_IDS_MAX = 4096, /* in one call */
};

struct kubelet_ops {
    /*
     * A container with these device ids is about to start. The call is answered with
     * kubelet_prestart_end(), unless gone() comes first. ids are good for this call only.
     */
    void (*prestart)(void *data, struct grpc_call *call, const char *const *ids, size_t count);
    /*
     * Devices of these ids, all of which are listed, are allocated. Returns whether the call is the
     * owner's, who answers it with kubelet_allocate_end() as that of prestart(); else its answer is
     * a CDI device's name.
     */
    bool (*allocate)(void *data, struct grpc_call *call, const char *const *ids, size_t count);
    /* Whether that name goes into an annotation of the container. */
    bool (*annotates)(void *data);
    void (*gone)(void *data, struct grpc_call *call);
    /* Called when the plugin is registered and kubelet listens to the list, and when that ends. */
    void (*ready)(void *data, bool is_ready);
};

struct kubelet_config {
    const char *socket;      /* kubelet's: "/var/lib/kubelet/device-plugins/kubelet.sock" */
    const char *endpoint;    /* ours, in the same folder: "nvidia-gpu.sock" */
    const char *resource;    /* "nvidia.com/gpu" */
    unsigned resource_index; /* of the cards that are listed (card.resource) */
    bool is_direct;          /* ids are the cards' own (node_resource.is_direct) */
    const struct node_variable *variables; /* what Allocate answers */
    size_t variable_count;
};

/* The config's texts outlive it. Fails when no socket can be made where kubelet would look. */
int kubelet_new(uv_loop_t *loop, const struct kubelet_config *config, const struct kubelet_ops *ops,
                void *data, struct kubelet **ret_kubelet, struct error *err);
void kubelet_free(struct kubelet *kubelet);
DEFINE_CLEANUP(struct kubelet *, kubelet_free);

/* Sends kubelet the list of the resource's devices: at first, and when something about the cards
 * changed. */
int kubelet_set_cards(struct kubelet *kubelet, const struct cards *cards);

/* The answer for the one container of the call; with another status than GRPC_OK it is NULL, and
 * why says what is wrong. */
void kubelet_allocate_end(struct grpc_call *call, V1beta1__ContainerAllocateResponse *response,
                          enum grpc_status status, const char *why);

/* why: NULL when the container may start. */
void kubelet_prestart_end(struct grpc_call *call, enum grpc_status status, const char *why);
