/* SPDX-License-Identifier: Apache-2.0 */
#include "admit/admit.h"

#include <errno.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"
#include "model/json.h"
#include "vendor/nvidia/nvidia.h"

static const struct admit_options options = {"hami-scheduler", true};
static struct arena *arena;
static struct nvidia_config config;
static struct vendor_set vendors;

static int set_up(void **state)
{
    (void)state;
    arena = arena_new(4 << 20);
    nvidia_config_defaults(&config);
    vendors.instances[0] = nvidia_instance(&config);
    vendors.count = 1;
    return arena ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static int admit(const char *spec, struct admit_answer *ret_answer)
{
    const char *text = arena_printf(arena, "{\"spec\":{%s}}", spec);
    yyjson_val *root;
    struct pod pod;

    assert_int_equal(json_parse(text, strlen(text), arena, &root, NULL), 0);
    assert_int_equal(pod_read(root, arena, &pod, NULL), 0);
    return admit_pod(&options, &vendors, &pod, arena, ret_answer);
}

#define LIMITS(text) "{\"name\":\"c\",\"resources\":{\"limits\":{" text "}}}"
#define SCHEDULER "{\"op\":\"add\",\"path\":\"/spec/schedulerName\",\"value\":\"hami-scheduler\"}"

static const struct {
    const char *name, *spec, *patch;
} patches[] = {
    {"a pod without devices is not touched", "\"containers\":[" LIMITS("\"cpu\":\"1\"") "]", ""},
    {"a pod with devices gets the scheduler, and nothing else",
     "\"containers\":[" LIMITS("\"nvidia.com/gpu\":1,\"nvidia.com/gpumem\":3000") "]",
     "[" SCHEDULER "]"},
    {"memory alone means a card of its own count",
     "\"containers\":[" LIMITS("\"cpu\":\"1\"") "," LIMITS("\"nvidia.com/gpumem\":3000") "]",
     "[{\"op\":\"add\",\"path\":\"/spec/containers/1/resources/limits/nvidia.com~1gpu\","
     "\"value\":\"1\"}," SCHEDULER "]"},
    {"a whole card is all of its cores, in limits that are made for it",
     "\"containers\":[{\"name\":\"c\",\"resources\":{\"requests\":{\"nvidia.com/gpu\":\"1\"}}}]",
     "[{\"op\":\"add\",\"path\":\"/spec/containers/0/resources/limits\","
     "\"value\":{\"nvidia.com/gpucores\":\"100\"}}," SCHEDULER "]"},
    {"a scheduler that is named is replaced",
     "\"schedulerName\":\"default-scheduler\",\"containers\":[" LIMITS(
         "\"nvidia.com/gpu\":1,\"nvidia.com/gpumem\":3000") "]",
     "[{\"op\":\"replace\",\"path\":\"/spec/schedulerName\",\"value\":\"hami-scheduler\"}]"},
    {"priority goes into the environment, which is made once",
     "\"containers\":[" LIMITS("\"nvidia.com/priority\":1") "]",
     "[{\"op\":\"add\",\"path\":\"/spec/containers/0/env\","
     "\"value\":[{\"name\":\"CUDA_TASK_PRIORITY\",\"value\":\"1\"}]}]"},
    {"an init container with a card is enough",
     "\"initContainers\":[" LIMITS("\"nvidia.com/gpumem\":5") "],\"containers\":[{\"name\":\"c\"}]",
     "[{\"op\":\"add\",\"path\":\"/spec/initContainers/0/resources/limits/nvidia.com~1gpu\","
     "\"value\":\"1\"}," SCHEDULER "]"},
};

static void the_patch_adds_what_is_missing(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(patches); i++) {
        struct admit_answer answer;

        print_message("%s\n", patches[i].name);
        assert_int_equal(admit(patches[i].spec, &answer),
                         *patches[i].patch ? ADMIT_PATCHED : ADMIT_ALLOWED);
        assert_string_equal(answer.patch, patches[i].patch);
        assert_int_equal(answer.code, 200);
    }
}

static void a_second_variable_is_appended(void **state)
{
    struct admit_answer answer;

    (void)state;
    memcpy(config.core_policy, "force", sizeof("force"));
    config.overwrite_env = true;
    assert_int_equal(admit("\"containers\":[{\"name\":\"c\"}]", &answer), ADMIT_PATCHED);
    nvidia_config_defaults(&config);
    assert_string_equal(answer.patch,
                        "[{\"op\":\"add\",\"path\":\"/spec/containers/0/env\",\"value\":"
                        "[{\"name\":\"GPU_CORE_UTILIZATION_POLICY\",\"value\":\"force\"}]},"
                        "{\"op\":\"add\",\"path\":\"/spec/containers/0/env/-\",\"value\":"
                        "{\"name\":\"NVIDIA_VISIBLE_DEVICES\",\"value\":\"none\"}}]");
}

static const struct {
    const char *spec, *message;
} denials[] = {
    {"\"containers\":[" LIMITS("\"nvidia.com/gpu\":\"-1\"") "]",
     "spec.containers[0].resources.limits[nvidia.com/gpu]: \"-1\" is negative"},
    {"\"containers\":[{\"name\":\"a\"}," LIMITS("\"nvidia.com/gpumem\":\"1.5\"") "]",
     "spec.containers[1].resources.limits[nvidia.com/gpumem]: \"1.5\" is not a whole number"},
    {"\"containers\":[" LIMITS("\"nvidia.com/gpucores\":\"1e30\"") "]",
     "spec.containers[0].resources.limits[nvidia.com/gpucores]: \"1e30\" is more than can be "
     "counted"},
    {"\"containers\":[" LIMITS("\"nvidia.com/gpu\":\"4294967297\"") "]",
     "spec.containers[0].resources.limits[nvidia.com/gpu]: \"4294967297\" is more than can be "
     "counted"},
    {"\"containers\":[{\"name\":\"c\",\"resources\":{\"requests\":"
     "{\"nvidia.com/gpumem-percentage\":\"-5\"}}}]",
     "spec.containers[0].resources.requests[nvidia.com/gpumem-percentage]: \"-5\" is negative"},
    {"\"initContainers\":[" LIMITS("\"nvidia.com/gpu\":\"500m\"") "],\"containers\":[{}]",
     "spec.initContainers[0].resources.limits[nvidia.com/gpu]: \"500m\" is not a whole number"},
    {"\"schedulerName\":\"hami-scheduler\",\"containers\":[" LIMITS("\"nvidia.com/gpu\":-1") "]",
     "spec.containers[0].resources.limits[nvidia.com/gpu]: \"-1\" is negative"},
};

static void what_can_never_be_meant_is_denied_with_the_field(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(denials); i++) {
        struct admit_answer answer;

        assert_int_equal(admit(denials[i].spec, &answer), ADMIT_DENIED);
        assert_string_equal(answer.message, denials[i].message);
        assert_int_equal(answer.code, 422);
        assert_string_equal(answer.reason, "Invalid");
        assert_string_equal(answer.patch, "");
    }
}

static void other_schedulers_pods_are_left_alone(void **state)
{
    struct admit_answer answer;

    (void)state;
    assert_int_equal(
        admit("\"schedulerName\":\"volcano\",\"containers\":[" LIMITS("\"nvidia.com/gpu\":-1") "]",
              &answer),
        ADMIT_ALLOWED);
    assert_string_equal(answer.message, "pod already has different scheduler assigned");
}

static const struct {
    const char *body;
    int r;
    const char *answer; /* or the error */
} reviews[] = {
    {"{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"request\":{\"uid\":"
     "\"u\",\"object\":{\"spec\":{\"containers\":[" LIMITS(
         "\"nvidia.com/gpu\":1,\"nvidia.com/gpumem\":1") "]}}}}",
     ADMIT_PATCHED,
     "{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"response\":{\"uid\":"
     "\"u\",\"allowed\":true,\"status\":{\"code\":200},\"patchType\":\"JSONPatch\",\"patch\":"
     "\"W3sib3AiOiJhZGQiLCJwYXRoIjoiL3NwZWMvc2NoZWR1bGVyTmFtZSIsInZhbHVlIjoiaGFtaS1zY2hlZHVsZXIifV0"
     "="
     "\"}}\n"},
    {"{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1beta1\",\"request\":"
     "{\"uid\":\"u\"}}",
     ADMIT_DENIED,
     "{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1beta1\",\"response\":"
     "{\"uid\":\"u\",\"allowed\":false,\"status\":{\"code\":403,\"message\":\"pod has no "
     "containers\",\"reason\":\"Forbidden\"}}}\n"},
    {"{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"request\":{\"uid\":"
     "\"u\",\"object\":[]}}",
     ADMIT_DENIED,
     "{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"response\":{\"uid\":"
     "\"u\",\"allowed\":false,\"status\":{\"code\":400,\"message\":\"not an object\",\"reason\":"
     "\"BadRequest\"}}}\n"},
    {"{", -EINVAL, "not JSON: unexpected end of data, at byte 1"},
    {"{}", -EINVAL, "kind: not AdmissionReview"},
    {"{\"kind\":\"AdmissionReview\",\"apiVersion\":\"v1\"}", -EINVAL,
     "apiVersion: not admission.k8s.io/v1 or v1beta1"},
    {"{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\"}", -EINVAL,
     "request: not an object"},
    {"{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"request\":{}}",
     -EINVAL, "request.uid: not text"},
};

static void a_review_is_answered_in_its_own_version(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(reviews); i++) {
        struct error err = ERROR_INIT;
        const char *body = NULL;
        size_t len;

        assert_int_equal(admit_review(&options, &vendors, reviews[i].body, strlen(reviews[i].body),
                                      arena, &body, &len, &err),
                         reviews[i].r);
        assert_string_equal(body ? body : err.text, reviews[i].answer);
        if (body)
            assert_int_equal(len, strlen(body));
    }
}

static void a_full_arena_is_an_error_and_no_crash(void **state)
{
    (void)state;
    for (size_t size = 0; size < 60000; size += 160) {
        CLEANUP(arena_freep) struct arena *small = arena_new(size);
        struct error err = ERROR_INIT;
        const char *body;
        size_t len;
        int r = admit_review(&options, &vendors, reviews[0].body, strlen(reviews[0].body), small,
                             &body, &len, &err);

        assert_true(r == -ENOMEM || r == ADMIT_PATCHED);
        assert_true(r == ADMIT_PATCHED || err.text[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_patch_adds_what_is_missing),
        cmocka_unit_test(a_second_variable_is_appended),
        cmocka_unit_test(what_can_never_be_meant_is_denied_with_the_field),
        cmocka_unit_test(other_schedulers_pods_are_left_alone),
        cmocka_unit_test(a_review_is_answered_in_its_own_version),
        cmocka_unit_test(a_full_arena_is_an_error_and_no_crash),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
