/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/binding.h"

#include <errno.h>
#include <string.h>
#include <yyjson.h>

#include "base/util.h"
#include "model/keys.h"

enum {
    LABEL_MAX = 63, /* a label's value; a node's name may be longer, then the label is left out */
};

bool binding_says_no_pod(const struct kube_answer *answer)
{
    yyjson_doc *doc;
    bool says;

    if (answer->error || answer->status != 404)
        return false;
    doc = yyjson_read(answer->body, answer->len, 0);
    says = strcmp(wire_text(wire_get(yyjson_doc_get_root(doc), "details"), "kind"), "pods") == 0;
    yyjson_doc_free(doc);
    return says;
}

/* In kube-apiserver's words (pkg/registry/core/pod/storage, BindingREST), the same since 1.28. */
static const struct {
    const char *words;
    enum binding_end end;
} conflicts[] = {
    {"is already assigned to node", BINDING_ASSIGNED},
    {"UID in precondition", BINDING_NEVER},
    {"is being deleted, cannot be assigned", BINDING_REFUSED},
    {"has non-empty .spec.schedulingGates", BINDING_REFUSED},
};

static enum binding_end read_conflict(const char *why)
{
    for (size_t i = 0; i < ARRAY_SIZE(conflicts); i++) {
        if (strstr(why, conflicts[i].words))
            return conflicts[i].end;
    }
    return BINDING_DOUBTFUL;
}

static bool is_unsent(int error)
{
    return error == -ECONNREFUSED || error == -EKEYREJECTED || error == -ECANCELED;
}

enum binding_end binding_read(const struct kube_answer *answer)
{
    if (kube_answer_ok(answer))
        return BINDING_DONE;
    if (answer->error)
        return is_unsent(answer->error) ? BINDING_REFUSED : BINDING_DOUBTFUL;
    switch (answer->status) {
    case 404:
        return binding_says_no_pod(answer) ? BINDING_NEVER : BINDING_REFUSED;
    case 408:
        return BINDING_DOUBTFUL;
    case 409:
        return read_conflict(answer->why);
    case 429:
        return BINDING_LATER;
    default:
        return answer->status < 500 ? BINDING_REFUSED : BINDING_DOUBTFUL;
    }
}

void binding_write(struct strbuf *body, const struct bind_args *args,
                   const struct text_pairs *annotations)
{
    strbuf_add(body, "{\"apiVersion\":\"v1\",\"kind\":\"Binding\",\"metadata\":{\"name\":");
    strbuf_add_json(body, args->name);
    strbuf_add(body, ",\"namespace\":");
    strbuf_add_json(body, args->namespace);
    strbuf_add(body, ",\"uid\":");
    strbuf_add_json(body, args->uid);
    if (annotations->count && strlen(args->node) <= LABEL_MAX) {
        strbuf_add(body, ",\"labels\":{\"" KEY_NODE "\":");
        strbuf_add_json(body, args->node);
        strbuf_add(body, "}");
    }
    strbuf_add(body, ",\"annotations\":{");
    for (size_t i = 0; i < annotations->count; i++) {
        strbuf_add(body, i ? "," : "");
        strbuf_add_json(body, annotations->items[i].key);
        strbuf_add(body, ":");
        strbuf_add_json(body, annotations->items[i].value);
    }
    strbuf_add(body, "}},\"target\":{\"apiVersion\":\"v1\",\"kind\":\"Node\",\"name\":");
    strbuf_add_json(body, args->node);
    strbuf_add(body, "}}");
}
