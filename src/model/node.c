/* SPDX-License-Identifier: Apache-2.0 */
#include "model/node.h"

#include <errno.h>
#include <string.h>

#include "model/object.h"

static bool has_text(yyjson_val *object, const char *key, const char *text)
{
    return yyjson_equals_str(yyjson_obj_get(object, key), text);
}

static bool is_ready(yyjson_val *conditions)
{
    yyjson_val *condition;
    size_t at, max;

    yyjson_arr_foreach(conditions, at, max, condition)
    {
        if (has_text(condition, "type", "Ready"))
            return has_text(condition, "status", "True");
    }
    return false;
}

static int node_read_status(const struct reading *reading, yyjson_val *object, struct node *node)
{
    yyjson_val *status, *conditions;
    bool present;
    int r;

    r = reading_object(reading, object, "", "status", &status);
    if (r < 0 || !status)
        return r;
    node->has_status = true;
    r = reading_array(reading, status, "status", "conditions", &conditions);
    if (r < 0)
        return r;
    node->ready = is_ready(conditions);
    if (reading->kept->amounts)
        node->amounts = amounts_of_node(status);
    r = reading_resources(reading, status, "status", "allocatable", &present, &node->allocatable);
    return r < 0 ? r
                 : reading_resources(reading, status, "status", "capacity", &present,
                                     &node->capacity);
}

int node_read(yyjson_val *object, const struct kept_names *kept, struct arena *arena,
              struct node *ret_node, struct error *err)
{
    const struct reading reading = reading_of(kept, arena, err);
    const struct text_list labels = {reading.kept->labels, reading.kept->label_count};
    struct node node = {0};
    struct metadata metadata;
    int r;

    if (!yyjson_is_obj(object))
        return error_set(err, -EINVAL, "not an object");
    r = reading_metadata(&reading, object, &labels, &metadata);
    if (r < 0)
        return r;
    node.name = metadata.name;
    node.uid = metadata.uid;
    node.resource_version = metadata.resource_version;
    node.annotations = metadata.annotations;
    node.labels = metadata.labels;
    node.deleting = metadata.deleting;
    node.unschedulable =
        yyjson_is_true(yyjson_obj_get(yyjson_obj_get(object, "spec"), "unschedulable"));

    r = node_read_status(&reading, object, &node);
    if (r < 0)
        return r;
    *ret_node = node;
    return 0;
}
