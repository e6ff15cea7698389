/* SPDX-License-Identifier: Apache-2.0 */
#include "admit/admit.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "admit/patch.h"
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
    vendors = (struct vendor_set){0};
    nvidia_add_instance(&vendors, &config);
    return arena ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static int admit_by(const struct admit_options *by, const char *metadata, const char *spec,
                    struct admit_answer *ret_answer)
{
    const char *text = arena_printf(arena, "{\"metadata\":{%s},\"spec\":{%s}}", metadata, spec);
    yyjson_val *root;
    struct pod pod;

    assert_int_equal(json_parse(text, strlen(text), arena, &root, NULL), 0);
    assert_int_equal(pod_read(root, &vendors.kept, arena, &pod, NULL), 0);
    return admit_pod(by, &vendors, &pod, arena, ret_answer);
}

static int admit_with(const char *metadata, const char *spec, struct admit_answer *ret_answer)
{
    return admit_by(&options, metadata, spec, ret_answer);
}

static int admit(const char *spec, struct admit_answer *ret_answer)
{
    return admit_with("", spec, ret_answer);
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

#define SHARE LIMITS("\"nvidia.com/gpu\":1,\"nvidia.com/gpumem\":3000")
#define DROP(what) "{\"op\":\"remove\",\"path\":\"" what "\"}"

static void a_pod_that_names_us_is_completed_too(void **state)
{
    struct admit_answer answer;

    (void)state;
    assert_int_equal(admit("\"schedulerName\":\"hami-scheduler\",\"containers\":[" LIMITS(
                               "\"nvidia.com/gpumem\":3000") "]",
                           &answer),
                     ADMIT_PATCHED);
    assert_string_equal(answer.patch,
                        "[{\"op\":\"add\",\"path\":\"/spec/containers/0/resources/limits/"
                        "nvidia.com~1gpu\",\"value\":\"1\"}]");
    assert_int_equal(
        admit("\"schedulerName\":\"hami-scheduler\",\"nodeName\":\"n\",\"containers\":[" SHARE "]",
              &answer),
        ADMIT_DENIED);
    assert_string_equal(answer.message, "pod has node assigned");
}

/* As of a copy of a running pod, or one from a backup. */
static const struct {
    const char *metadata, *spec, *patch;
} copies[] = {
    {"\"annotations\":{\"hami.io/vgpu-devices-allocated\":\"GPU-1,NVIDIA,1,1:;\","
     "\"hami.io/vgpu-devices-to-allocate\":\";\",\"hami.io/vgpu-node\":\"n\","
     "\"hami.io/vgpu-time\":\"1\",\"hami.io/bind-time\":\"1\",\"hami.io/bind-phase\":\"success\","
     "\"hami.io/vgpu-pod-priority\":\"9\",\"hami.io/vgpu-init-containers\":\"\","
     "\"hami.io/vgpu-mig-allocations\":\"[]\","
     "\"hami.io/node-scheduler-policy\":\"spread\"},"
     "\"labels\":{\"hami.io/vgpu-node\":\"n\",\"a\":\"b\"}",
     "\"schedulerName\":\"hami-scheduler\",\"containers\":[" SHARE "]",
     /* clang-format off */
     "[" DROP("/metadata/annotations/hami.io~1vgpu-node") ","
      DROP("/metadata/annotations/hami.io~1vgpu-time") ","
      DROP("/metadata/annotations/hami.io~1bind-time") ","
      DROP("/metadata/annotations/hami.io~1bind-phase") ","
      DROP("/metadata/annotations/hami.io~1vgpu-init-containers") ","
      DROP("/metadata/annotations/hami.io~1vgpu-pod-priority") ","
      DROP("/metadata/annotations/hami.io~1vgpu-devices-allocated") ","
      DROP("/metadata/annotations/hami.io~1vgpu-devices-to-allocate") ","
      DROP("/metadata/annotations/hami.io~1vgpu-mig-allocations") ","
     DROP("/metadata/labels/hami.io~1vgpu-node") "]"},
    /* clang-format on */
    {"\"annotations\":{\"hami.io/bind-phase\":\"\"}", "\"containers\":[{\"name\":\"c\"}]",
     "[" DROP("/metadata/annotations/hami.io~1bind-phase") "]"},
    {"\"annotations\":{\"hami.io/bind-phase\":\"\"}",
     "\"schedulerName\":\"volcano\",\"containers\":[{\"name\":\"c\"}]",
     "[" DROP("/metadata/annotations/hami.io~1bind-phase") "]"},
};

static void the_grant_of_a_copied_pod_is_dropped(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(copies); i++) {
        struct admit_answer answer;

        assert_int_equal(admit_with(copies[i].metadata, copies[i].spec, &answer), ADMIT_PATCHED);
        assert_string_equal(answer.patch, copies[i].patch);
    }
}

#define ENV                                                                                        \
    "\"env\":[{\"name\":\"CUDA_TASK_PRIORITY\",\"value\":\"0\"},{\"name\":\"CUDA_X\"},"            \
    "{\"name\":\"CUDA_TASK_PRIORITY\",\"value\":\"0\"}]"
#define WITH_ENV(limits) "{\"name\":\"c\"," ENV ",\"resources\":{\"limits\":{" limits "}}}"

static void a_priority_is_what_the_container_asks_for(void **state)
{
    struct admit_answer answer;

    (void)state;
    assert_int_equal(
        admit("\"schedulerName\":\"hami-scheduler\",\"initContainers\":[" WITH_ENV(
                  "\"nvidia.com/gpu\":1,\"nvidia.com/gpumem\":1,\"nvidia.com/"
                  "priority\":1") "],"
                                  "\"containers\":[" WITH_ENV("\"nvidia.com/"
                                                              "gpu\":1,\"nvidia.com/"
                                                              "gpumem\":1") ",{\"name\":"
                                                                            "\"d\"," ENV "}]",
              &answer),
        ADMIT_PATCHED);
    assert_string_equal(
        answer.patch,
        "[" DROP("/spec/initContainers/0/env/2") "," DROP(
            "/spec/initContainers/0/env/0") ","
                                            "{\"op\":\"add\",\"path\":\"/spec/initContainers/0/env/"
                                            "-\",\"value\":"
                                            "{\"name\":\"CUDA_TASK_PRIORITY\",\"value\":\"1\"}}"
                                            "," DROP("/spec/containers/0/env/2") "," DROP(
                                                "/spec/containers/0/env/0") "]");
}

static void an_annotation_is_added_to_those_that_are_there(void **state)
{
    struct mutation items[] = {{.kind = MUTATION_ANNOTATION, .name = "a/b", .value = "1"},
                               {.kind = MUTATION_ANNOTATION, .name = "c~d", .value = "\"2\""}};
    const struct mutations mutations = {.arena = arena, .items = items, .count = 2};

    (void)state;
    assert_string_equal(
        patch_format(&(struct pod){.has_annotations = true}, &mutations, arena),
        "[{\"op\":\"add\",\"path\":\"/metadata/annotations/a~1b\",\"value\":\"1\"},"
        "{\"op\":\"add\",\"path\":\"/metadata/annotations/c~0d\",\"value\":\"\\\"2\\\"\"}]");
    assert_string_equal(
        patch_format(&(struct pod){.has_annotations = false}, &mutations, arena),
        "[{\"op\":\"add\",\"path\":\"/metadata/annotations\",\"value\":{\"a/b\":\"1\"}},"
        "{\"op\":\"add\",\"path\":\"/metadata/annotations/c~0d\",\"value\":\"\\\"2\\\"\"}]");
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

#define GPU LIMITS("\"nvidia.com/gpu\":1")
#define MOUNTING(path, resources)                                                                  \
    "\"containers\":[{\"name\":\"c\",\"volumeMounts\":[{\"name\":\"v\",\"mountPath\":\"/ok\"},"    \
    "{\"name\":\"v\",\"mountPath\":\"" path "\"}],\"resources\":{" resources "}}]"
#define DROPS                                                                                      \
    "a privileged container, or one with the capability SYS_ADMIN, gets no share of a device, "    \
    "since it can drop every limit"
#define HIDES(path)                                                                                \
    "spec.containers[0].volumeMounts: \"" path "\" leads through /proc, or back by \"..\"; in a "  \
    "container with a share of a device it could hide what holds it to that"
#define ANNOTATION(key, value) "\"annotations\":{\"" key "\":\"" value "\"}"

static const struct {
    const char *metadata, *spec, *message; /* NULL: not denied */
} more_denials[] = {
    {"", "\"containers\":[" LIMITS("\"nvidia.com/gpu\":1,\"nvidia.com/gpumem-percentage\":0") "]",
     "spec.containers[0].resources.limits[nvidia.com/gpumem-percentage]: \"0\" is no share of a "
     "card's memory; without this field it is the whole card's"},
    {"",
     "\"containers\":[" LIMITS("\"nvidia.com/gpu\":1,\"nvidia.com/gpumem\":0,"
                               "\"nvidia.com/gpumem-percentage\":0") "]",
     "spec.containers[0].resources.limits[nvidia.com/gpumem-percentage]: \"0\" is no share of a "
     "card's memory; without this field it is the whole card's"},
    {"",
     "\"containers\":[" LIMITS("\"nvidia.com/gpu\":1,\"nvidia.com/gpumem\":5,"
                               "\"nvidia.com/gpumem-percentage\":0") "]",
     NULL},
    {"", "\"containers\":[" LIMITS("\"nvidia.com/gpu\":1,\"nvidia.com/gpumem-percentage\":101") "]",
     "spec.containers[0].resources.limits[nvidia.com/gpumem-percentage]: \"101\" is more than 100"},
    {"", "\"containers\":[" LIMITS("\"nvidia.com/gpu\":1,\"nvidia.com/gpumem-percentage\":100") "]",
     NULL},
    {"", "\"containers\":[" LIMITS("\"nvidia.com/gpu\":0") "]", NULL},
    {"",
     "\"initContainers\":[{\"name\":\"i\",\"securityContext\":{\"privileged\":true},\"resources\":"
     "{\"limits\":{\"nvidia.com/gpumem\":5}}}],\"containers\":[{\"name\":\"c\"}]",
     "spec.initContainers[0].securityContext.privileged: " DROPS},
    {"",
     "\"containers\":[{\"name\":\"c\",\"securityContext\":{\"capabilities\":{\"add\":[\"NET_RAW\","
     "\"SYS_ADMIN\"]}},\"resources\":{\"limits\":{\"nvidia.com/gpumem\":5}}}]",
     "spec.containers[0].securityContext.capabilities.add: " DROPS},
    {"",
     "\"containers\":[{\"name\":\"c\",\"securityContext\":{\"capabilities\":{\"add\":[\"cap_all\"]}"
     "},"
     "\"resources\":{\"limits\":{\"nvidia.com/gpu\":1}}}]",
     "spec.containers[0].securityContext.capabilities.add: " DROPS},
    {"",
     "\"containers\":[{\"name\":\"c\",\"securityContext\":{\"capabilities\":{\"add\":[\"NET_"
     "ADMIN\"],"
     "\"drop\":[\"ALL\"]}},\"resources\":{\"limits\":{\"nvidia.com/gpu\":1}}}]",
     NULL},
    {"", "\"containers\":[" GPU ",{\"name\":\"p\",\"securityContext\":{\"privileged\":true}}]",
     NULL},
    {"", MOUNTING("/proc/self/root/etc/ld.so.preload", "\"limits\":{\"nvidia.com/gpu\":1}"),
     HIDES("/proc/self/root/etc/ld.so.preload")},
    {"", MOUNTING("//./proc", "\"limits\":{\"nvidia.com/gpu\":1}"), HIDES("//./proc")},
    {"", MOUNTING("proc/1", "\"limits\":{\"nvidia.com/gpu\":1}"), HIDES("proc/1")},
    {"", MOUNTING("/dev/fd/0", "\"limits\":{\"nvidia.com/gpu\":1}"), HIDES("/dev/fd/0")},
    {"", MOUNTING("/a/../b", "\"limits\":{\"nvidia.com/gpu\":1}"), HIDES("/a/../b")},
    {"", MOUNTING("/host/proc", "\"limits\":{\"nvidia.com/gpu\":1}"), NULL},
    {"", MOUNTING("/dev/shm", "\"limits\":{\"nvidia.com/gpu\":1}"), NULL},
    {"", MOUNTING("/proc", "\"limits\":{\"cpu\":1}"), NULL},
    {ANNOTATION("hami.io/node-scheduler-policy", "bin-pack"), "\"containers\":[" GPU "]",
     "metadata.annotations[hami.io/node-scheduler-policy]: \"bin-pack\" is none of binpack, "
     "spread, scarcity"},
    {ANNOTATION("hami.io/node-scheduler-policy", ""), "\"containers\":[" GPU "]",
     "metadata.annotations[hami.io/node-scheduler-policy]: \"\" is none of binpack, spread, "
     "scarcity"},
    {ANNOTATION("hami.io/node-scheduler-policy", "bin-pack"), "\"containers\":[{\"name\":\"c\"}]",
     NULL},
    {ANNOTATION("hami.io/gpu-scheduler-policy", "Spread"), "\"containers\":[" GPU "]",
     "metadata.annotations[hami.io/gpu-scheduler-policy]: \"Spread\" is not made of binpack, "
     "spread, mutex, numa, topology-aware"},
    {ANNOTATION("hami.io/gpu-scheduler-policy", "topology-aware"), "\"containers\":[" GPU "]",
     NULL},
    {ANNOTATION("hami.io/gpu-scheduler-policy", "numa,binpack"), "\"containers\":[" GPU "]", NULL},
    {ANNOTATION("hami.io/device-scoring-weights", "slot=1,core=0,memory=2"),
     "\"containers\":[" GPU "]", NULL},
    {ANNOTATION("hami.io/device-scoring-weights", "slot=1,core=0"), "\"containers\":[" GPU "]",
     "metadata.annotations[hami.io/device-scoring-weights]: weights of slot, core and memory are "
     "needed"},
    {ANNOTATION("hami.io/gpu-scheduler-policy", "mutex, binpack"), "\"containers\":[" GPU "]",
     NULL},
    {ANNOTATION("nvidia.com/vgpu-mode", "hami"), "\"containers\":[" GPU "]",
     "metadata.annotations[nvidia.com/vgpu-mode]: \"hami\" is not made of hami-core, mig, mps"},
    {ANNOTATION("nvidia.com/vgpu-mode", "hami-core,mig"), "\"containers\":[" GPU "]", NULL},
    {ANNOTATION("nvidia.com/numa-bind", "yes"), "\"containers\":[" GPU "]",
     "metadata.annotations[nvidia.com/numa-bind]: \"yes\" is neither true nor false"},
    {ANNOTATION("nvidia.com/numa-bind", "true"), "\"containers\":[" GPU "]", NULL},
    {ANNOTATION("nvidia.com/numa-bind", "f"), "\"containers\":[" GPU "]", NULL},
};

static void amounts_that_would_be_read_as_something_else_are_denied(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(more_denials); i++) {
        struct admit_answer answer;
        int r = admit_with(more_denials[i].metadata, more_denials[i].spec, &answer);

        print_message("%s %s\n", more_denials[i].metadata, more_denials[i].spec);
        assert_int_equal(r == ADMIT_DENIED, more_denials[i].message != NULL);
        if (r == ADMIT_DENIED)
            assert_string_equal(answer.message, more_denials[i].message);
    }
}

static void impossible_requests_are_denied_with_the_field(void **state)
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
    assert_null(answer.warning);
    assert_int_equal(admit("\"schedulerName\":\"volcano\",\"containers\":[" GPU "]", &answer),
                     ADMIT_ALLOWED);
    assert_string_equal(answer.warning,
                        "spec.schedulerName: the pod asks for a share of a device, which only "
                        "hami-scheduler gives; placed by another scheduler it will not start");
    /* The number of devices, which the webhook would add to a pod of ours. */
    assert_int_equal(admit("\"schedulerName\":\"volcano\",\"containers\":[" LIMITS(
                               "\"nvidia.com/gpumem\":10") "]",
                           &answer),
                     ADMIT_ALLOWED);
    assert_string_equal(answer.patch, "");
    assert_string_equal(answer.warning,
                        "spec.schedulerName: the pod asks for a share of a device, which only "
                        "hami-scheduler gives; placed by another scheduler it gets none");
}

/* Vendors as the chart configures them, in the order of vendor_table[]. */
static void add_vendor(const struct vendor *vendor, const char *const keys[][2], size_t count,
                       void *own)
{
    const struct section_reading reading = {.file = "d"};

    vendor->set_missing(own);
    for (size_t i = 0; i < count; i++) {
        const struct section_name name = {keys[i][0], {1, 1}};
        const struct section item = {.kind = SECTION_TEXT, .text = keys[i][1]};
        const struct section section = {
            .kind = SECTION_KEYS, .count = 1, .items = &item, .names = &name};

        assert_int_equal(vendor->read_section(&reading, &section, own), 0);
    }
    assert_int_equal(vendor->add_instances(&vendors, own), 0);
}

static void pods_that_no_agent_will_start_get_a_warning(void **state)
{
    extern const struct vendor amd_vendor, cambricon_vendor, hygon_vendor;
    static const char *const amd[][2] = {{"resourceCountName", "amd.com/gpu"}};
    static const char *const cambricon[][2] = {{"resourceCountName", "cambricon.com/vmlu"},
                                               {"resourceCoreName", "cambricon.com/vcore"}};
    static const char *const hygon[][2] = {{"resourceCountName", "hygon.com/dcunum"}};
    static _Alignas(max_align_t) char configs[3][4096];
    struct admit_answer answer;

    (void)state;
    arena_reset(arena);
    add_vendor(&amd_vendor, amd, 1, configs[0]);
    add_vendor(&cambricon_vendor, cambricon, 2, configs[1]);
    add_vendor(&hygon_vendor, hygon, 1, configs[2]);
    assert_int_equal(admit("\"containers\":[" LIMITS("\"amd.com/gpu\":1") "," LIMITS(
                               "\"hygon.com/dcunum\":1") "]",
                           &answer),
                     ADMIT_PATCHED);
    assert_string_equal(answer.warning,
                        "spec.containers: the agents of amd.com/gpu and hygon.com/dcunum share one "
                        "lock, and the second may not start the pod; put them into two pods");
    assert_int_equal(admit("\"containers\":[" LIMITS("\"amd.com/gpu\":1") "," LIMITS(
                               "\"nvidia.com/gpu\":1") "," LIMITS("\"amd.com/gpu\":1") "]",
                           &answer),
                     ADMIT_PATCHED);
    assert_null(answer.warning);
    assert_int_equal(admit("\"containers\":[" LIMITS("\"cambricon.com/vmlu\":1") "]", &answer),
                     ADMIT_PATCHED);
    assert_string_equal(answer.warning,
                        "spec.containers[0].resources.limits[cambricon.com/vcore]: is missing; "
                        "Cambricon's agent will not start the pod");
    assert_int_equal(
        admit("\"initContainers\":[" LIMITS("\"cambricon.com/vcore\":1") "],\"containers\":[{}]",
              &answer),
        ADMIT_ALLOWED);
    assert_string_equal(answer.warning,
                        "spec.initContainers[0].resources.limits[cambricon.com/vcore]: asks for "
                        "nothing without cambricon.com/vmlu in the same container");
    assert_int_equal(admit("\"schedulerName\":\"volcano\",\"containers\":[" LIMITS(
                               "\"cambricon.com/vcore\":1") "]",
                           &answer),
                     ADMIT_ALLOWED);
    assert_string_equal(answer.warning,
                        "spec.containers[0].resources.limits[cambricon.com/vcore]: asks for "
                        "nothing without cambricon.com/vmlu in the same container");
    assert_int_equal(admit("\"containers\":[" LIMITS("\"cambricon.com/vcore\":0") "]", &answer),
                     ADMIT_ALLOWED);
    assert_null(answer.warning);
}

static void what_gets_no_device_is_warned_of(void **state)
{
    static const struct {
        const char *containers;
        const char *warning;
    } cases[] = {
        {LIMITS("\"nvidia.com/gpu\":0,\"nvidia.com/gpumem\":100"),
         "spec.containers[0].resources.limits[nvidia.com/gpumem]: asks for nothing beside "
         "nvidia.com/gpu: 0 in the same container"},
        {GPU "," LIMITS("\"nvidia.com/gpu\":0,\"nvidia.com/gpumem\":100"),
         "spec.containers[1].resources.limits[nvidia.com/gpumem]: asks for nothing beside "
         "nvidia.com/gpu: 0 in the same container"},
        {LIMITS("\"nvidia.com/priority\":0"),
         "spec.containers[0].resources.limits[nvidia.com/priority]: asks for nothing without "
         "nvidia.com/gpu in the same container"},
        {GPU "," LIMITS("\"nvidia.com/priority\":0"), NULL},
        {LIMITS("\"nvidia.com/gpu\":0"), NULL},
        {LIMITS("\"nvidia.com/gpu\":0,\"nvidia.com/gpumem\":0,\"nvidia.com/priority\":1"), NULL},
        {LIMITS("\"nvidia.com/gpumem\":100,\"nvidia.com/priority\":1"), NULL},
    };
    struct admit_answer answer;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        arena_reset(arena);
        assert_true(
            admit(arena_printf(arena, "\"containers\":[%s]", cases[i].containers), &answer) > 0);
        if (cases[i].warning)
            assert_string_equal(answer.warning, cases[i].warning);
        else
            assert_null(answer.warning);
    }
    assert_int_equal(admit("\"schedulerName\":\"volcano\",\"containers\":[" LIMITS(
                               "\"nvidia.com/gpu\":0,\"nvidia.com/gpumem\":100") "]",
                           &answer),
                     ADMIT_ALLOWED);
    assert_string_equal(answer.warning, cases[0].warning);
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
    {"{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"request\":{\"uid\":"
     "\"u\",\"object\":{\"spec\":{\"schedulerName\":\"other\",\"containers\":[" GPU "]}}}}",
     ADMIT_ALLOWED,
     "{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"response\":{\"uid\":"
     "\"u\",\"allowed\":true,\"status\":{\"code\":200,\"message\":\"pod already has different "
     "scheduler assigned\"},\"warnings\":[\"spec.schedulerName: the pod asks for a share of a "
     "device, which only hami-scheduler gives; placed by another scheduler it will not "
     "start\"]}}\n"},
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

static int find_bounds(const void *data, const char *namespace, struct arena *room,
                       const struct place_budget **ret_bounds, size_t *ret_count)
{
    (void)namespace;
    (void)room;
    *ret_bounds = data;
    *ret_count = 1;
    return 0;
}

static const struct {
    const char *limits;
    const char *message; /* NULL: it is let pass */
} beyond[] = {
    {"\"nvidia.com/gpu\":1,\"nvidia.com/gpumem\":3000", NULL},
    {"\"nvidia.com/gpu\":1,\"nvidia.com/gpumem\":3001",
     "exceeded quota: nvidia.com/gpumem in namespace team: 3001 asked > 3000"},
    {"\"nvidia.com/gpumem\":3000", NULL},
    {"\"nvidia.com/gpumem\":3001",
     "exceeded quota: nvidia.com/gpumem in namespace team: 3001 asked > 3000"},
    {"\"nvidia.com/gpucores\":60",
     "exceeded quota: nvidia.com/gpucores in namespace team: 60 asked > 50"},
    {"\"nvidia.com/gpu\":1",
     "exceeded quota: nvidia.com/gpucores in namespace team: 100 asked > 50"},
};

static void a_quota_bounds_the_completed_pod(void **state)
{
    const struct place_budget bound = {&vendors.instances[0].id, 3000, 50};
    struct admit_options bounded = options;

    (void)state;
    bounded.find_bounds = find_bounds;
    bounded.data = &bound;
    for (size_t i = 0; i < ARRAY_SIZE(beyond); i++) {
        const char *spec =
            arena_printf(arena, "\"containers\":[{\"name\":\"c\",\"resources\":{\"limits\":{%s}}}]",
                         beyond[i].limits);
        struct admit_answer answer;

        assert_int_equal(admit_by(&bounded, "\"namespace\":\"team\"", spec, &answer),
                         beyond[i].message ? ADMIT_DENIED : ADMIT_PATCHED);
        if (beyond[i].message)
            assert_string_equal(answer.message, beyond[i].message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_patch_adds_what_is_missing),
        cmocka_unit_test(an_annotation_is_added_to_those_that_are_there),
        cmocka_unit_test(a_second_variable_is_appended),
        cmocka_unit_test(a_pod_that_names_us_is_completed_too),
        cmocka_unit_test(the_grant_of_a_copied_pod_is_dropped),
        cmocka_unit_test(a_priority_is_what_the_container_asks_for),
        cmocka_unit_test(amounts_that_would_be_read_as_something_else_are_denied),
        cmocka_unit_test(impossible_requests_are_denied_with_the_field),
        cmocka_unit_test(other_schedulers_pods_are_left_alone),
        cmocka_unit_test(pods_that_no_agent_will_start_get_a_warning),
        cmocka_unit_test(what_gets_no_device_is_warned_of),
        cmocka_unit_test(a_quota_bounds_the_completed_pod),
        cmocka_unit_test(a_review_is_answered_in_its_own_version),
        cmocka_unit_test(a_full_arena_is_an_error_and_no_crash),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
