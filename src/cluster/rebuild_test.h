/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* For tests of cluster_objects(). */

#include "cluster/cluster.h"

/* Sets what another cluster shows as objects, as lists that are complete. */
void rebuild_from_objects(const struct cluster *from, const struct vendor_set *vendors,
                          struct cluster *to);

/* Fails unless both have the same devices, pods and quotas, whatever is reserved or in force. */
void rebuild_check_same(const struct cluster *a, const struct cluster *b);
