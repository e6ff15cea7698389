/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The annotations and labels that HAMi's parts share, whatever the vendor. */

/* On a pod. The node's name is a label of the same key, too. */
#define KEY_NODE "hami.io/vgpu-node"
#define KEY_TIME "hami.io/vgpu-time"      /* of the decision, seconds since 1970 */
#define KEY_BIND_TIME "hami.io/bind-time" /* seconds since 1970 */
#define KEY_BIND_PHASE "hami.io/bind-phase"
#define KEY_PRIORITY "hami.io/vgpu-pod-priority"        /* spec.priority, when it was bound */
#define KEY_NODE_POLICY "hami.io/node-scheduler-policy" /* the user's: binpack, ... */
#define KEY_DEVICE_POLICY "hami.io/gpu-scheduler-policy"
#define KEY_DEVICE_WEIGHTS "hami.io/device-scoring-weights" /* "slot=1,core=1,memory=1" */

/* Values of KEY_BIND_PHASE. */
#define BIND_PHASE_ALLOCATING "allocating"
#define BIND_PHASE_SUCCESS "success"
#define BIND_PHASE_FAILED "failed"

/* A condition of a pod, DNS name and all as Kubernetes asks for. */
#define CONDITION_DEVICES_FREED "hami.io/DevicesFreed"

/* On a node. */
#define KEY_NODE_LOCK "hami.io/mutex.lock"
#define KEY_CORDON "hami.io/device-cordon" /* the operator's: uuids that take nothing new */

/* On the Lease: after how many transitions the scheduler that decided handed it back. */
#define KEY_HANDED_BACK "hami.io/handed-back"

/* On a pod or a namespace: "ignore" keeps the webhook away. */
#define KEY_WEBHOOK "hami.io/webhook"
