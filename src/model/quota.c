/* SPDX-License-Identifier: Apache-2.0 */
#include "model/quota.h"

#include <errno.h>

#include "model/object.h"

int quota_read(yyjson_val *object, struct arena *arena, struct quota *ret_quota, struct error *err)
{
    const struct reading reading = reading_of(NULL, arena, err);
    struct metadata metadata;
    struct quota quota;
    yyjson_val *spec;
    bool present;
    int r;

    if (!yyjson_is_obj(object))
        return error_set(err, -EINVAL, "not an object");
    r = reading_metadata(&reading, object, NULL, &metadata);
    if (r < 0)
        return r;
    quota.namespace = metadata.namespace;
    quota.name = metadata.name;
    r = reading_object(&reading, object, "", "spec", &spec);
    if (r == 0)
        r = reading_resources(&reading, spec, "spec", "hard", &present, &quota.hard);
    if (r < 0)
        return r;
    *ret_quota = quota;
    return 0;
}
