/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The manifests that follow from the device configuration. */

#include "base/strbuf.h"
#include "vendor/vendor.h"

/*
 * Adds, as YAML documents: the webhook's configuration, kube-scheduler's in its ConfigMap, the
 * scheduler's ClusterRole, and the policy that denies shares to other schedulers.
 */
void config_render(struct strbuf *text, const struct vendor_set *vendors);
