/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Devices of a node out of a registration in one of HAMi's forms, as most vendors write it. */

#include "vendor/vendor.h"

/* Completes a device that is filled in, with the instance as its vendor. Returns 0 or -ENOMEM. */
typedef int registered_finish_fn(const struct node *node,
                                 const struct registered_device *registered, struct arena *arena,
                                 struct device *device);

/* vendor.read_node, out of devices that were decoded before; outcome is the decoder's. */
int registered_list(const struct vendor_instance *instance, const struct node *node,
                    const struct registered_devices *registered, int outcome, struct arena *arena,
                    struct device *ret_devices, size_t max, size_t *ret_count, struct error *err,
                    registered_finish_fn *finish);

/*
 * vendor.read_node, out of the instance's register_key. finish completes each device; NULL: they
 * are complete.
 */
int registered_read(const struct vendor_instance *instance, const struct node *node,
                    struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                    struct error *err, registered_finish_fn *finish);
