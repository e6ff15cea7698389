/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/event.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"

#define INITIAL_END "k8s.io/initial-events-end"

static const char *text_of(yyjson_val *object, const char *key)
{
    const char *text = yyjson_get_str(yyjson_obj_get(object, key));

    return text ? text : "";
}

static int read_error(yyjson_val *status, struct event *event)
{
    uint64_t code = yyjson_get_uint(yyjson_obj_get(status, "code"));

    event->kind = EVENT_ERROR;
    event->code = code < 1000 ? (unsigned)code : 0;
    event->message = text_of(status, "message");
    return 0;
}

static int read_metadata(yyjson_val *object, struct event *event, struct error *err)
{
    yyjson_val *metadata = yyjson_obj_get(object, "metadata");
    const char *ended;

    if (!yyjson_is_obj(metadata))
        return error_set(err, -EPROTO, "an object without metadata");
    event->version = text_of(metadata, "resourceVersion");
    if (!event->version[0] || strlen(event->version) >= EVENT_VERSION_SIZE)
        return error_set(err, -EPROTO, "an object without a resource version");
    ended = text_of(yyjson_obj_get(metadata, "annotations"), INITIAL_END);
    event->initial_end = event->kind == EVENT_BOOKMARK && strcmp(ended, "true") == 0;
    return 0;
}

int event_read(yyjson_val *root, struct event *ret_event, struct error *err)
{
    static const struct {
        const char *name;
        enum event_kind kind;
        enum kube_event type;
    } types[] = {
        {"ADDED", EVENT_OBJECT, KUBE_ADDED},
        {"MODIFIED", EVENT_OBJECT, KUBE_MODIFIED},
        {"DELETED", EVENT_OBJECT, KUBE_DELETED},
        {"BOOKMARK", EVENT_BOOKMARK, 0},
        {"ERROR", EVENT_ERROR, 0},
    };
    const char *type = text_of(root, "type");
    yyjson_val *object = yyjson_obj_get(root, "object");
    struct event event = {.version = "", .message = ""};
    size_t row = 0;
    int r;

    while (row < ARRAY_SIZE(types) && strcmp(types[row].name, type) != 0)
        row++;
    if (row == ARRAY_SIZE(types) || !yyjson_is_obj(object))
        return error_set(err, -EPROTO, "an event of type \"%.32s\"", type);
    event.kind = types[row].kind;
    event.type = types[row].type;
    event.object = event.kind == EVENT_OBJECT ? object : NULL;
    r = event.kind == EVENT_ERROR ? read_error(object, &event) : read_metadata(object, &event, err);
    if (r == 0)
        *ret_event = event;
    return r;
}

int event_read_envelope(yyjson_val *root, struct list_end *ret_end, struct error *err)
{
    yyjson_val *metadata = yyjson_obj_get(root, "metadata");
    struct list_end end = {
        .version = text_of(metadata, "resourceVersion"),
        .continue_token = text_of(metadata, "continue"),
    };

    if (!end.version[0] || strlen(end.version) >= EVENT_VERSION_SIZE)
        return error_set(err, -EPROTO, "a list without a resource version");
    if (strlen(end.continue_token) >= EVENT_CONTINUE_SIZE)
        return error_set(err, -EPROTO, "a list with a continue token of %zu bytes",
                         strlen(end.continue_token));
    *ret_end = end;
    return 0;
}
