/* SPDX-License-Identifier: Apache-2.0 */

#include "scheduler/binding.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"

#define CONFLICT "Operation cannot be fulfilled on pods/binding \"p\": "
#define NO_POD                                                                                     \
    "{\"kind\":\"Status\",\"reason\":\"NotFound\",\"details\":{\"name\":\"p\",\"kind\":\"pods\"}}"

/* Answers as kube-apiserver 1.35 gives them, and those of whoever stands before it. */
static const struct {
    int error;
    unsigned status;
    const char *body, *why;
    enum binding_end end;
} rows[] = {
    {.status = 201, .end = BINDING_DONE},
    {.error = -ECONNREFUSED, .end = BINDING_REFUSED},
    {.error = -EKEYREJECTED, .end = BINDING_REFUSED},
    {.error = -ECANCELED, .end = BINDING_REFUSED},
    {.error = -EIO, .end = BINDING_DOUBTFUL},
    {.error = -ETIMEDOUT, .end = BINDING_DOUBTFUL},
    {.error = -EFBIG, .end = BINDING_DOUBTFUL},
    {.error = -ENOMEM, .end = BINDING_DOUBTFUL},
    {.status = 302, .end = BINDING_REFUSED},
    {.status = 400, .end = BINDING_REFUSED},
    {.status = 401, .end = BINDING_REFUSED},
    {.status = 403, .end = BINDING_REFUSED},
    {.status = 404, .body = NO_POD, .end = BINDING_NEVER},
    {.status = 404, .body = "404 page not found", .end = BINDING_REFUSED},
    {.status = 404, .body = "{\"details\":{\"kind\":\"namespaces\"}}", .end = BINDING_REFUSED},
    {.status = 408, .end = BINDING_DOUBTFUL},
    {.status = 409,
     .why = CONFLICT "pod p is already assigned to node \"n\"",
     .end = BINDING_ASSIGNED},
    {.status = 409,
     .why =
         "Operation cannot be fulfilled on pods \"p\": StorageError: invalid object, Code: 4, "
         "Key: /registry/pods/ns/p, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
         "UID in precondition: a, UID in object meta: b",
     .end = BINDING_NEVER},
    {.status = 409,
     .why = CONFLICT "pod p is being deleted, cannot be assigned to a host",
     .end = BINDING_REFUSED},
    {.status = 409,
     .why = CONFLICT "pod p has non-empty .spec.schedulingGates",
     .end = BINDING_REFUSED},
    {.status = 409, .why = CONFLICT "etcdserver: request timed out", .end = BINDING_DOUBTFUL},
    {.status = 409, .why = CONFLICT "context deadline exceeded", .end = BINDING_DOUBTFUL},
    {.status = 409, .why = "HTTP status 409", .end = BINDING_DOUBTFUL},
    {.status = 422, .end = BINDING_REFUSED},
    {.status = 429, .end = BINDING_LATER},
    {.status = 500, .end = BINDING_DOUBTFUL},
    {.status = 502, .end = BINDING_DOUBTFUL},
    {.status = 503, .end = BINDING_DOUBTFUL},
    {.status = 504, .end = BINDING_DOUBTFUL},
    {.status = 599, .end = BINDING_DOUBTFUL},
};

static void test_the_meaning_of_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *body = rows[i].body ? rows[i].body : "";
        const struct kube_answer answer = {
            .error = rows[i].error,
            .status = rows[i].status,
            .body = body,
            .len = strlen(body),
            .why = rows[i].why ? rows[i].why : "",
        };

        assert_int_equal(binding_read(&answer), rows[i].end);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_meaning_of_answers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
