/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * This node's configuration: HAMi's device-config.yaml, and over it the entries of its config.json
 * that have the node's name:
 *
 * {"nodeconfig": [{"name": "node-1", "devicesplitcount": 5, "devicememoryscaling": 1.5,
 *     "devicecorescaling": 1, "preconfigureddevicememory": 0, "libcudaloglevel": "1",
 *     "operatingmode": "hami-core", "filterdevices": {"uuid": ["GPU-..."], "index": [3]},
 *     "contextsize": 420}]}
 *
 * contextsize, which HAMi does not have, is what a context of each of the node's cards takes for
 * itself, in MiB; it counts before the device configuration's contextSizes. As in HAMi, the last
 * entry of the name rules, and a value of zero is ignored.
 */

#include "base/error.h"
#include "model/device.h"
#include "node/nvidia/cards.h"
#include "vendor/nvidia/nvidia.h"

/* path NULL or "": HAMi's defaults. */
int nvidia_config_load(const char *path, struct nvidia_config *ret_config, struct error *err);

/* A file that does not exist is ignored. -EINVAL, with the key, for a value that can't be read. */
int node_config_load(const char *path, const char *node, struct nvidia_config *config,
                     struct card_filter *filter, char mode[DEVICE_MODE_SIZE], struct error *err);

int node_config_parse(const char *name, const char *text, size_t len, const char *node,
                      struct nvidia_config *config, struct card_filter *filter,
                      char mode[DEVICE_MODE_SIZE], struct error *err);
