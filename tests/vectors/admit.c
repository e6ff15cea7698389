/* SPDX-License-Identifier: Apache-2.0 */
#include "admit/admit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "base/util.h"
#include "model/json.h"
#include "model/quantity.h"
#include "vectors.h"

enum {
    REVIEW_MAX = 16 << 20,
};

/* The case's pod as the API server sends it. */
static const char *write_review(struct vector *vector)
{
    yyjson_val *pod = yyjson_obj_get(vector->line, "pod");
    struct strbuf buf = STRBUF_IN(vector->arena, REVIEW_MAX);
    const char *text = vector_text(vector->line, "pod_text");
    yyjson_alc alc = json_alc(vector->arena);

    if (pod)
        text = yyjson_val_write_opts(pod, 0, &alc, NULL, NULL);
    strbuf_addf(&buf,
                "{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"request\":{"
                "\"uid\":\"u1\",\"object\":%s}}",
                text);
    return strbuf_text(&buf);
}

static int letter_value(char c)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = strchr(letters, c);

    return found && c ? (int)(found - letters) : -1;
}

static const char *decode_base64(struct vector *vector, const char *text)
{
    char *out = arena_alloc(vector->arena, strlen(text) + 1);
    unsigned bits = 0;
    size_t len = 0;
    int have = 0;

    for (; letter_value(*text) >= 0; text++) {
        bits = bits << 6 | (unsigned)letter_value(*text);
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[len++] = (char)(bits >> have);
        }
    }
    return out;
}

/* Equal as JSON, where limits and requests are equal by value: "3k" is "3000". */
static bool is_equal(yyjson_val *a, yyjson_val *b, bool quantity);

static bool are_objects_equal(yyjson_val *a, yyjson_val *b, bool quantities)
{
    yyjson_val *key, *value;
    size_t at, max;

    if (yyjson_obj_size(a) != yyjson_obj_size(b))
        return false;
    yyjson_obj_foreach(a, at, max, key, value)
    {
        bool inner = yyjson_equals_str(key, "limits") || yyjson_equals_str(key, "requests");
        yyjson_val *other = yyjson_obj_getn(b, yyjson_get_str(key), yyjson_get_len(key));

        if (!other || !is_equal(value, other, quantities || inner))
            return false;
    }
    return true;
}

static bool are_quantities_equal(yyjson_val *a, yyjson_val *b)
{
    struct quantity x, y;

    if (quantity_parse(yyjson_get_str(a), yyjson_get_len(a), &x) < 0 ||
        quantity_parse(yyjson_get_str(b), yyjson_get_len(b), &y) < 0)
        return false;
    return x.form == y.form && x.value == y.value;
}

static bool is_equal(yyjson_val *a, yyjson_val *b, bool quantity)
{
    if (yyjson_is_obj(a) && yyjson_is_obj(b))
        return are_objects_equal(a, b, quantity);
    if (yyjson_is_arr(a) && yyjson_is_arr(b)) {
        if (yyjson_arr_size(a) != yyjson_arr_size(b))
            return false;
        for (size_t i = 0; i < yyjson_arr_size(a); i++) {
            if (!is_equal(yyjson_arr_get(a, i), yyjson_arr_get(b, i), quantity))
                return false;
        }
        return true;
    }
    if (quantity && yyjson_is_str(a) && yyjson_is_str(b) && !yyjson_equals(a, b))
        return are_quantities_equal(a, b);
    return yyjson_equals(a, b);
}

/* The case's pod with our patch; itself without one. */
static yyjson_val *apply(struct vector *vector, const char *patch)
{
    yyjson_val *pod = yyjson_obj_get(vector->line, "pod"), *steps;
    yyjson_alc alc = json_alc(vector->arena);
    yyjson_patch_err wrong = {0};
    yyjson_mut_doc *doc;
    yyjson_mut_val *mutated;

    if (!*patch)
        return pod;
    if (json_parse(patch, strlen(patch), vector->arena, &steps, NULL) < 0) {
        vector_fail(vector, "the patch is no JSON: %s", patch);
        return NULL;
    }
    doc = yyjson_mut_doc_new(&alc);
    mutated = yyjson_patch(doc, pod, steps, &wrong);
    if (!mutated) {
        vector_fail(vector, "the patch can't be applied: %s: %s", wrong.msg, patch);
        return NULL;
    }
    return yyjson_doc_get_root(yyjson_mut_val_imut_copy(mutated, &alc));
}

/* The container's requests of devices: those that are missing, or all, become its limits. */
static void complete_requests(yyjson_mut_doc *doc, yyjson_mut_val *container, bool all)
{
    yyjson_mut_val *resources = yyjson_mut_obj_get(container, "resources");
    yyjson_mut_val *limits = yyjson_mut_obj_get(resources, "limits"), *key, *value;
    yyjson_mut_val *requests = yyjson_mut_obj_get(resources, "requests");
    size_t at, max;

    if (limits && !requests)
        requests = yyjson_mut_obj_add_obj(doc, resources, "requests");
    yyjson_mut_obj_foreach(limits, at, max, key, value)
    {
        const char *name = yyjson_mut_get_str(key);

        if (!strchr(name, '/') || (!all && yyjson_mut_obj_get(requests, name)))
            continue;
        yyjson_mut_obj_put(requests, yyjson_mut_str(doc, name),
                           yyjson_mut_val_mut_copy(doc, value));
    }
}

/*
 * The pod as the API server has it after the webhook: it sets requests that are missing, and
 * refuses a pod whose limits and requests of devices differ. HAMi leaves some so: with all those
 * are equal.
 */
static yyjson_val *complete(struct vector *vector, yyjson_val *pod, bool all)
{
    yyjson_alc alc = json_alc(vector->arena);
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&alc);
    yyjson_mut_val *copy = yyjson_val_mut_copy(doc, pod), *container;
    yyjson_mut_val *containers = yyjson_mut_obj_get(yyjson_mut_obj_get(copy, "spec"), "containers");
    size_t at, max;

    yyjson_mut_arr_foreach(containers, at, max, container)
    {
        complete_requests(doc, container, all);
    }
    return yyjson_doc_get_root(yyjson_mut_val_imut_copy(copy, &alc));
}

static void compare_pod(struct vector *vector, yyjson_val *theirs, const char *patch)
{
    yyjson_val *ours = apply(vector, patch);
    yyjson_alc alc = json_alc(vector->arena);

    if (!theirs)
        theirs = yyjson_obj_get(vector->line, "pod");
    if (ours && !is_equal(complete(vector, ours, false), complete(vector, theirs, true), false))
        vector_fail(vector, "mutated pod: %s", yyjson_val_write_opts(ours, 0, &alc, NULL, NULL));
}

static void compare(struct vector *vector, yyjson_val *response, yyjson_val *theirs)
{
    yyjson_val *status = yyjson_obj_get(response, "status");
    int64_t code = yyjson_get_sint(yyjson_obj_get(theirs, "code"));

    vector_equal_number(vector, "allowed", yyjson_get_bool(yyjson_obj_get(response, "allowed")),
                        yyjson_get_bool(yyjson_obj_get(theirs, "allowed")));
    /* What can't be had is refused in our words, too, and is no failure of the server. */
    if (code == 500)
        return;
    vector_equal_number(vector, "code", yyjson_get_sint(yyjson_obj_get(status, "code")), code);
    /* What can't be read is refused in our words. */
    if (code != 400) {
        vector_equal(vector, "message", vector_text(status, "message"),
                     vector_text(theirs, "message"));
        vector_equal(vector, "reason", vector_text(status, "reason"),
                     vector_text(theirs, "reason"));
        compare_pod(vector, yyjson_obj_get(theirs, "mutated"),
                    decode_base64(vector, vector_text(response, "patch")));
    }
}

/*
 * Where HAMi's answer harms, ours is another on purpose (docs/compatibility.md). What the message
 * of the denial names, or NULL: the pod is completed: it names our scheduler itself, or HAMi
 * doesn't know how many slices a card of Enflame's has.
 */
static const struct {
    const char *id, *denied;
} differences[] = {
    {"admit-0010", NULL},
    {"admit-0013", "securityContext.privileged"},
    {"admit-0020", "[nvidia.com/gpumem-percentage]"},
    {"admit-0036", NULL},
    {"admit-0040", "[nvidia.com/gpumem-percentage]"},
    {"admit-0048", "[nvidia.com/gpumem-percentage]"},
    {"admit-0050", "[nvidia.com/gpumem-percentage]"},
    {"admit-0059", "[nvidia.com/gpumem-percentage]"},
    {"admit-0068", "[nvidia.com/gpumem-percentage]"},
    {"admit-0069", "[nvidia.com/gpumem-percentage]"},
    {"admit-0080", "[nvidia.com/gpumem-percentage]"},
    {"admit-0081", "[nvidia.com/gpumem-percentage]"},
    {"admit-0088", "securityContext.privileged"},
    {"admit-0094", NULL},
    {"admit-0104", "pod has node assigned"},
    {"admit-0114", "[nvidia.com/gpumem-percentage]"},
    {"admit-0119", "securityContext.privileged"},
    {"admit-0136", "pod has node assigned"},
    {"admit-0151", "securityContext.privileged"},
    {"admit-0161", "securityContext.privileged"},
    {"admit-0163", NULL},
    {"admit-0164", NULL},
    {"admit-0173", "securityContext.privileged"},
    {"admit-0175", NULL},
    {"admit-0176", "securityContext.privileged"},
    {"admit-0183", "securityContext.privileged"},
    {"admit-0210", "securityContext.privileged"},
    {"admit-0212", "securityContext.privileged"},
    {"admit-0220", NULL},
    {"admit-0224", "securityContext.privileged"},
    {"admit-0241", "pod has node assigned"},
    {"admit-0243", NULL},
    {"admit-0247", "securityContext.privileged"},
    {"admit-0253", "securityContext.privileged"},
    {"admit-0258", "securityContext.privileged"},
    {"admit-0260", "securityContext.privileged"},
    {"admit-0286", "securityContext.privileged"},
    {"admit-0288", "securityContext.privileged"},
    {"admit-0298", "securityContext.privileged"},
    {"admit-0305", NULL},
    {"admit-0320", NULL},
    {"admit-0324", "securityContext.privileged"},
    {"admit-0336", "several"},
    {"admit-0338", "securityContext.privileged"},
    {"admit-0342", "securityContext.privileged"},
    {"admit-0357", "several"},
    {"admit-0358", "securityContext.privileged"},
    {"admit-0359", "securityContext.privileged"},
    {"admit-0369", "securityContext.privileged"},
    {"admit-0376", "securityContext.privileged"},
    {"admit-0384", "securityContext.privileged"},
    {"admit-0385", NULL},
    {"admit-0390", "securityContext.privileged"},
    {"admit-0395", "several"},
    {"admit-0396", "pod has node assigned"},
    {"admit-0407", NULL},
    {"admit-0408", NULL},
    {"admit-0423", "securityContext.privileged"},
    {"admit-0427", "securityContext.privileged"},
    {"admit-0429", NULL},
    {"admit-0446", NULL},
    {"admit-0447", NULL},
    {"admit-0457", "securityContext.privileged"},
    {"admit-0458", "securityContext.privileged"},
    {"admit-quirks-0001", NULL},
    {"admit-quirks-0004", "pod has node assigned"},
    {"admit-quirks-0005", NULL},
    {"admit-quirks-0006", "pod has node assigned"},
};

/* True when the case is one of those, and was checked. */
static bool check_difference(struct vector *vector, yyjson_val *response)
{
    const char *message = vector_text(yyjson_obj_get(response, "status"), "message");
    bool allowed = yyjson_get_bool(yyjson_obj_get(response, "allowed"));
    size_t i = 0;

    while (i < ARRAY_SIZE(differences) && strcmp(differences[i].id, vector->id) != 0)
        i++;
    if (i == ARRAY_SIZE(differences))
        return false;
    if (differences[i].denied && (allowed || !strstr(message, differences[i].denied)))
        vector_fail(vector, "allowed, or denied for another reason: \"%s\"", message);
    if (!differences[i].denied && (!allowed || *message))
        vector_fail(vector, "denied, or left as it is: \"%s\"", message);
    return true;
}

static void check_admit(struct vector *vector)
{
    yyjson_val *flags = yyjson_obj_get(vector->line, "flags"), *root;
    yyjson_val *theirs = yyjson_arr_get(yyjson_obj_get(vector->line, "accept"), 0);
    const struct admit_options options = {
        .scheduler_name = vector_text(flags, "scheduler-name"),
        .overwrite_default_scheduler =
            yyjson_get_bool(yyjson_obj_get(flags, "force-overwrite-default-scheduler")),
    };
    const char *review = write_review(vector), *body;
    struct error err = ERROR_INIT;
    size_t len;
    int r;

    r = admit_review(&options, vector->vendors, review, strlen(review), vector->arena, &body, &len,
                     &err);
    if (r == -EINVAL) {
        /* The whole review is no JSON: the server answers 400. */
        vector_equal_number(vector, "code", 400, yyjson_get_sint(yyjson_obj_get(theirs, "code")));
        return;
    }
    if (r < 0 || json_parse(body, len, vector->arena, &root, &err) < 0) {
        vector_fail(vector, "%s", err.text);
        return;
    }
    if (!check_difference(vector, yyjson_obj_get(root, "response")))
        compare(vector, yyjson_obj_get(root, "response"), theirs);
}

static const char *left_out(const struct vector *vector)
{
    yyjson_val *spec = yyjson_obj_get(yyjson_obj_get(vector->line, "pod"), "spec");

    return yyjson_obj_get(spec, "initContainers") ? "init containers take part" : NULL;
}

const struct family admit_family = {
    .name = "admit",
    .check = check_admit,
    .left_out = left_out,
};
