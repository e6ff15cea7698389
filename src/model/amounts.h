/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Processors and memory: what a pod requests of its node, and what a node has for pods. Counted as
 * kube-scheduler does it.
 */

#include <stdint.h>
#include <yyjson.h>

struct amounts {
    uint64_t cpu_milli; /* thousandths of a processor */
    uint64_t memory_mib;
};

/*
 * Of a pod's spec: containers and sidecars together, or an init container with the sidecars before
 * it where that is more; the pod's own requests in their place; and its overhead. A limit counts
 * where there is no request. What can't be read is none; rounded up.
 */
struct amounts amounts_of_pod(yyjson_val *spec);

/* Of a node's status: what is allocatable, rounded down. What can't be read is none. */
struct amounts amounts_of_node(yyjson_val *status);
