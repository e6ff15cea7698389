/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The manifests that follow from the device configuration. */

#include "base/strbuf.h"
#include "vendor/vendor.h"

/*
 * Adds, as YAML documents: the webhook's configuration, kube-scheduler's in its ConfigMap, and the
 * scheduler's ClusterRole.
 */
void config_render(struct strbuf *text, const struct vendor_set *vendors);
