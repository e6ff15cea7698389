/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Devices of a node out of a registration in one of HAMi's forms, as most vendors write it. */

#include "vendor/vendor.h"

/*
 * vendor.read_node, out of the instance's register_key. finish() may complete each device that is
 * filled in, with the instance as its vendor; NULL: they are complete. It returns 0 or -ENOMEM.
 */
int registered_read(const struct vendor_instance *instance, const struct node *node,
                    struct arena *arena, struct device *ret_devices, size_t max, size_t *ret_count,
                    struct error *err,
                    int (*finish)(const struct node *node,
                                  const struct registered_device *registered, struct arena *arena,
                                  struct device *device));
