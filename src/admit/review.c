/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "admit/admit.h"
#include "base/strbuf.h"
#include "model/json.h"

enum {
    CODE_BAD_REQUEST = 400,
    ANSWER_MAX = 8 << 20,
};

/* The parts of a review that its answer needs. */
struct review {
    const char *api_version, *uid, *namespace;
    yyjson_val *object; /* NULL: none */
};

static const char *read_text(yyjson_val *object, const char *key)
{
    yyjson_val *value = yyjson_obj_get(object, key);

    if (!yyjson_is_str(value) || strlen(yyjson_get_str(value)) != yyjson_get_len(value))
        return NULL;
    return yyjson_get_str(value);
}

static int read_review(yyjson_val *root, struct review *ret_review, struct error *err)
{
    const char *kind = read_text(root, "kind");
    struct review review = {.api_version = read_text(root, "apiVersion")};
    yyjson_val *request = yyjson_obj_get(root, "request");

    if (!kind || strcmp(kind, "AdmissionReview") != 0)
        return error_set(err, -EINVAL, "kind: not AdmissionReview");
    if (!review.api_version || (strcmp(review.api_version, "admission.k8s.io/v1") != 0 &&
                                strcmp(review.api_version, "admission.k8s.io/v1beta1") != 0))
        return error_set(err, -EINVAL, "apiVersion: not admission.k8s.io/v1 or v1beta1");
    if (!yyjson_is_obj(request))
        return error_set(err, -EINVAL, "request: not an object");
    review.uid = read_text(request, "uid");
    if (!review.uid)
        return error_set(err, -EINVAL, "request.uid: not text");
    review.namespace = read_text(request, "namespace");
    review.object = yyjson_obj_get(request, "object");
    *ret_review = review;
    return 0;
}

/* A review without an object is read as a pod without containers, which is denied. */
static int read_object(const struct vendor_set *vendors, const struct review *review,
                       struct arena *arena, struct pod *ret_pod, struct error *err)
{
    if (!review->object || yyjson_is_null(review->object)) {
        *ret_pod = (struct pod){
            .namespace = "", .node_name = "", .scheduler_name = "", .runtime_class = ""};
        return 0;
    }
    return pod_read(review->object, &vendors->kept, arena, ret_pod, err);
}

static int judge_review(const struct admit_options *options, const struct vendor_set *vendors,
                        const struct review *review, struct arena *arena,
                        struct admit_answer *ret_answer)
{
    struct error err = ERROR_INIT;
    struct pod pod;
    int r;

    r = read_object(vendors, review, arena, &pod, &err);
    if (r == 0 && review->namespace)
        pod.namespace = review->namespace;
    if (r == 0)
        return admit_pod(options, vendors, &pod, arena, ret_answer);
    if (r != -EINVAL)
        return r;
    *ret_answer = (struct admit_answer){
        .code = CODE_BAD_REQUEST,
        .reason = "BadRequest",
        .message = arena_strdup(arena, err.text),
        .patch = "",
    };
    return ret_answer->message ? ADMIT_DENIED : -ENOMEM;
}

static void add_base64(struct strbuf *buf, const char *text)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *p = (const unsigned char *)text;
    size_t len = strlen(text);

    for (; len; p += len < 3 ? len : 3, len -= len < 3 ? len : 3) {
        uint32_t bits = (uint32_t)p[0] << 16;
        char four[5];

        bits |= len > 1 ? (uint32_t)p[1] << 8 : 0;
        bits |= len > 2 ? (uint32_t)p[2] : 0;
        (void)snprintf(four, sizeof(four), "%c%c%c%c", letters[bits >> 18],
                       letters[bits >> 12 & 63], len > 1 ? letters[bits >> 6 & 63] : '=',
                       len > 2 ? letters[bits & 63] : '=');
        strbuf_add(buf, four);
    }
}

static void add_status(struct strbuf *buf, const struct admit_answer *answer)
{
    strbuf_addf(buf, ",\"status\":{\"code\":%d", answer->code);
    if (*answer->message) {
        strbuf_add(buf, ",\"message\":");
        strbuf_add_json(buf, answer->message);
    }
    if (*answer->reason) {
        strbuf_add(buf, ",\"reason\":");
        strbuf_add_json(buf, answer->reason);
    }
    strbuf_add(buf, "}");
}

static void add_answer(struct strbuf *buf, const struct review *review, int outcome,
                       const struct admit_answer *answer)
{
    strbuf_add(buf, "{\"kind\":\"AdmissionReview\",\"apiVersion\":");
    strbuf_add_json(buf, review->api_version);
    strbuf_add(buf, ",\"response\":{\"uid\":");
    strbuf_add_json(buf, review->uid);
    strbuf_addf(buf, ",\"allowed\":%s", outcome == ADMIT_DENIED ? "false" : "true");
    add_status(buf, answer);
    if (answer->warning) {
        strbuf_add(buf, ",\"warnings\":[");
        strbuf_add_json(buf, answer->warning);
        strbuf_add(buf, "]");
    }
    if (outcome == ADMIT_PATCHED) {
        strbuf_add(buf, ",\"patchType\":\"JSONPatch\",\"patch\":\"");
        add_base64(buf, answer->patch);
        strbuf_add(buf, "\"");
    }
    strbuf_add(buf, "}}\n");
}

int admit_review(const struct admit_options *options, const struct vendor_set *vendors,
                 const char *body, size_t len, struct arena *arena, const char **ret_body,
                 size_t *ret_len, struct error *err)
{
    struct strbuf buf = STRBUF_IN(arena, ANSWER_MAX);
    struct admit_answer answer;
    struct review review = {0};
    yyjson_val *root;
    int r, outcome;

    if (len > ADMIT_MAX_BODY)
        return error_set(err, -E2BIG, "larger than %d bytes", ADMIT_MAX_BODY);
    r = json_parse(body, len, arena, &root, err);
    if (r < 0)
        return r;
    r = read_review(root, &review, err);
    if (r < 0)
        return r;
    outcome = judge_review(options, vendors, &review, arena, &answer);
    if (outcome < 0)
        return error_set(err, outcome, "larger than what is set aside for it");

    add_answer(&buf, &review, outcome, &answer);
    if (buf.failed)
        return error_set(err, -ENOMEM, "larger than what is set aside for it");
    *ret_body = strbuf_text(&buf);
    *ret_len = buf.len;
    return outcome;
}
