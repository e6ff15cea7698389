/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Events for people (kubectl describe): written once, a failure is only logged. */

#include "kube/client.h"

struct notice {
    const char *kind;      /* "Pod", "Node" */
    const char *namespace; /* the object's; "" for one that has none */
    const char *name, *uid;
    bool warns;          /* else it is a Normal one */
    const char *reason;  /* "CardUnhealthy" */
    const char *message; /* cut to Kubernetes' 1,024 bytes */
    const char *component, *host;
};

void notice_write(struct kube_client *kube, const struct notice *notice);
