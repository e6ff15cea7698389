/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * HAMi's families of metrics about what is granted: of devices, of pods' shares, of MIG instances
 * that were made for pods. With --legacy-metrics each is there under HAMi's former name and labels,
 * too.
 */

#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"
#include "cluster/cluster.h"

/* Families are numbered from 0: first those that devices make samples of, one family after the
 * other, then those of pods. */
size_t families_of_devices(bool former);
size_t families_of_pods(bool former);

/* HELP and TYPE; then the samples of a node's devices. */
void families_begin_devices(struct strbuf *buf, size_t family);
void families_add_devices(struct strbuf *buf, size_t family, const struct place_node *node);

/* The same of a pod; node: its node, NULL when it is not known. */
void families_begin_pods(struct strbuf *buf, size_t family);
void families_add_pod(struct strbuf *buf, size_t family, const struct cluster_pod_view *pod,
                      const struct place_node *node);
