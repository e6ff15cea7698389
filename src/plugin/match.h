/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which container an allocation is for where Allocate must know it: kubelet says a number of ids,
 * and no name. The scheduler binds one pod at a time to such a node, so it is the next container of
 * the one pod whose bind-phase is "allocating"; where that is not certain, it is nobody's. Pure.
 */

#include "plugin/pods.h"

enum match_outcome {
    MATCH_FOUND = 1,
    MATCH_NONE,    /* no pod waits for devices */
    MATCH_SEVERAL, /* more than one does */
    MATCH_COUNT,   /* the container was granted another number of devices */
};

struct match {
    struct node_pod *pod;
    size_t index; /* of the container */
    bool again;   /* it has its devices already: kubelet has forgotten its allocation */
};

/*
 * pods are those of the node as the API server just listed them; name is that of the CDI device for
 * the ids (spec_device_name()), of which there are count. err is set with all outcomes but
 * MATCH_FOUND. A pod whose annotation can't be read waits for devices, too. -ENOMEM.
 */
int match_container(struct node_pod *const *pods, size_t pod_count, const char *name, size_t count,
                    struct match *ret_match, struct error *err);
