/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A ResourceQuota, reduced to what it says of resources with a domain in their name. */

#include <yyjson.h>

#include "base/arena.h"
#include "base/error.h"
#include "model/pod.h"

struct quota {
    const char *namespace, *name;
    struct resource_list hard; /* by their whole keys: "limits.nvidia.com/gpumem" */
};

/* The strings are the arena's. 0, -EINVAL with the field's path in err, -ENOMEM. */
int quota_read(yyjson_val *object, struct arena *arena, struct quota *ret_quota, struct error *err);
