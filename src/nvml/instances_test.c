/* SPDX-License-Identifier: Apache-2.0 */

/* Over a made-up NVML, any call of which can be made to fail. */

#include "nvml/instances.h"

#include <errno.h>

#include "base/check.h"
#include "base/util.h"
#include "nvml/nvml_fixture.h"

enum {
    INSTANCE = 5, /* the one that there is */
};

static const struct nvml_fixture_device card = {
    .uuid = "MIG-1", .name = "NVIDIA H100 MIG 1g.10gb+me", .memory_bytes = 80 * GIB};

static nvmlReturn_t activation;
static bool has_compute_profiles;
static unsigned made_profile, made_computes, ended_computes, ended_instances;

static nvmlReturn_t set_mode(nvmlDevice_t device, unsigned mode, nvmlReturn_t *ret_activation)
{
    (void)device;
    (void)mode;
    *ret_activation = activation;
    return nvml_fixture_answer();
}

/* One of each: a slice, all slices, and a slice with the media engines. */
static nvmlReturn_t profile_info(nvmlDevice_t device, unsigned profile,
                                 nvmlGpuInstanceProfileInfo_t *info)
{
    (void)device;
    *info = (nvmlGpuInstanceProfileInfo_t){.id = profile + 10, .sliceCount = 1};
    switch (profile) {
    case NVML_GPU_INSTANCE_PROFILE_1_SLICE:
    case NVML_GPU_INSTANCE_PROFILE_1_SLICE_REV1:
        info->memorySizeMB = 9984;
        info->multiprocessorCount = 16;
        return NVML_SUCCESS;
    case NVML_GPU_INSTANCE_PROFILE_7_SLICE:
        info->sliceCount = 7;
        info->memorySizeMB = 81920;
        return NVML_SUCCESS;
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}

static nvmlReturn_t placements(nvmlDevice_t device, unsigned id,
                               nvmlGpuInstancePlacement_t *ret_placements, unsigned *count)
{
    (void)device;
    *count = id == 10 + NVML_GPU_INSTANCE_PROFILE_7_SLICE ? 1 : 7;
    for (unsigned i = 0; i < *count; i++)
        ret_placements[i] = (nvmlGpuInstancePlacement_t){.start = i, .size = *count == 1 ? 8 : 1};
    return nvml_fixture_answer();
}

static nvmlReturn_t create(nvmlDevice_t device, unsigned id,
                           const nvmlGpuInstancePlacement_t *placement, nvmlGpuInstance_t *instance)
{
    static char made;

    (void)device;
    (void)id;
    (void)placement;
    *instance = (nvmlGpuInstance_t)(void *)&made;
    return nvml_fixture_answer();
}

static nvmlReturn_t destroy(nvmlGpuInstance_t instance)
{
    (void)instance;
    ended_instances++;
    return nvml_fixture_answer();
}

static nvmlReturn_t by_id(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance)
{
    if (id != INSTANCE)
        return NVML_ERROR_NOT_FOUND;
    return create(device, id, NULL, instance);
}

static nvmlReturn_t list(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instances,
                         unsigned *count)
{
    *count = id == 10 + NVML_GPU_INSTANCE_PROFILE_1_SLICE ? 1 : 0;
    return create(device, id, NULL, &instances[0]);
}

static nvmlReturn_t instance_info(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
    (void)instance;
    *info = (nvmlGpuInstanceInfo_t){
        .id = INSTANCE, .profileId = 10, .placement = {.start = 3, .size = 1}};
    return nvml_fixture_answer();
}

/* Of one, three and two slices. */
static nvmlReturn_t compute_profile_info(nvmlGpuInstance_t instance, unsigned profile,
                                         unsigned engines, nvmlComputeInstanceProfileInfo_t *info)
{
    static const unsigned slices[] = {1, 3, 2};

    (void)instance;
    (void)engines;
    if (!has_compute_profiles || profile >= ARRAY_SIZE(slices))
        return NVML_ERROR_NOT_SUPPORTED;
    *info = (nvmlComputeInstanceProfileInfo_t){.id = profile + 20, .sliceCount = slices[profile]};
    return NVML_SUCCESS;
}

static nvmlReturn_t create_compute(nvmlGpuInstance_t instance, unsigned id,
                                   nvmlComputeInstance_t *compute)
{
    (void)instance;
    (void)compute;
    made_profile = id;
    made_computes++;
    return nvml_fixture_answer();
}

static nvmlReturn_t destroy_compute(nvmlComputeInstance_t compute)
{
    (void)compute;
    ended_computes++;
    return nvml_fixture_answer();
}

static nvmlReturn_t list_computes(nvmlGpuInstance_t instance, unsigned id,
                                  nvmlComputeInstance_t *computes, unsigned *count)
{
    (void)instance;
    *count = id == 21 ? 3 : 0;
    computes[0] = computes[1] = computes[2] = NULL;
    return nvml_fixture_answer();
}

static nvmlReturn_t max_devices(nvmlDevice_t device, unsigned *count)
{
    (void)device;
    *count = 3;
    return nvml_fixture_answer();
}

/* With a hole. */
static nvmlReturn_t mig_by_index(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig)
{
    *mig = device;
    return index == 1 ? NVML_ERROR_NOT_FOUND : nvml_fixture_answer();
}

static nvmlReturn_t gpu_instance_id(nvmlDevice_t device, unsigned *id)
{
    (void)device;
    *id = INSTANCE;
    return nvml_fixture_answer();
}

static nvmlReturn_t compute_instance_id(nvmlDevice_t device, unsigned *id)
{
    (void)device;
    *id = 2;
    return nvml_fixture_answer();
}

static nvmlReturn_t attributes(nvmlDevice_t device, nvmlDeviceAttributes_t *ret_attributes)
{
    (void)device;
    *ret_attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = 16, .gpuInstanceSliceCount = 1, .memorySizeMB = 9984};
    return nvml_fixture_answer();
}

static struct nvml nvml = {
    .mig =
        {
            .set_mode = set_mode,
            .profile_info = profile_info,
            .placements = placements,
            .create = create,
            .destroy = destroy,
            .list = list,
            .by_id = by_id,
            .info = instance_info,
            .compute_profile_info = compute_profile_info,
            .create_compute = create_compute,
            .destroy_compute = destroy_compute,
            .list_computes = list_computes,
            .max_devices = max_devices,
            .device_by_index = mig_by_index,
            .gpu_instance_id = gpu_instance_id,
            .compute_instance_id = compute_instance_id,
            .attributes = attributes,
        },
};

static int set_up(void **state)
{
    (void)state;
    nvml_fixture_init(&nvml, &card, NVML_SUCCESS);
    made_computes = ended_computes = ended_instances = 0;
    activation = NVML_SUCCESS;
    has_compute_profiles = true;
    return 0;
}

/* What is done with it, and how many it counts. */

static struct nvml_mig_device devices[8];
static struct nvml_profile profiles[8];
static struct nvml_gpu_instance instances[8];

static int list_devices(void)
{
    return nvml_list_mig_devices(&nvml, 0, devices, ARRAY_SIZE(devices), NULL);
}

static int list_profiles(void)
{
    return nvml_list_profiles(&nvml, 0, profiles, ARRAY_SIZE(profiles), NULL);
}

static int list_instances(void)
{
    return nvml_list_gpu_instances(&nvml, 0, instances, ARRAY_SIZE(instances), NULL);
}

static int read_mode(void)
{
    bool on, pending;

    return nvml_read_mig_mode(&nvml, 0, &on, &pending, NULL);
}

static int change_mode(void)
{
    return nvml_set_mig_mode(&nvml, 0, true, NULL);
}

static int make_instance(void)
{
    unsigned id;

    return nvml_make_gpu_instance(&nvml, 0, 10, 3, 1, &id, NULL);
}

static int make_compute(void)
{
    return nvml_make_compute_instance(&nvml, 0, INSTANCE, NULL);
}

static int end_computes(void)
{
    return nvml_end_compute_instances(&nvml, 0, INSTANCE, NULL);
}

static int end_instance(void)
{
    return nvml_end_gpu_instance(&nvml, 0, INSTANCE, NULL);
}

static const struct {
    const char *name;
    int (*run)(void);
    int count;
} actions[] = {
    {"list devices", list_devices, 2},
    {"list profiles", list_profiles, 3},
    {"list instances", list_instances, 1},
    {"read the mode", read_mode, 0},
    {"change the mode", change_mode, 0},
    {"make an instance", make_instance, 0},
    {"make a compute instance", make_compute, 0},
    {"end compute instances", end_computes, 0},
    {"end an instance", end_instance, 0},
};

static void whichever_call_fails_is_told(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(actions); i++) {
        unsigned most;

        nvml_fixture.failing = nvml_fixture.calls = 0;
        assert_int_equal(actions[i].run(), actions[i].count);
        most = nvml_fixture.calls;
        assert_true(most > 0);
        nvml_fixture.failure = NVML_ERROR_UNKNOWN;
        for (unsigned at = 1; at <= most; at++) {
            nvml_fixture.failing = at;
            nvml_fixture.calls = 0;
            if (actions[i].run() != -EIO || nvml_fixture.calls != at)
                fail_msg("%s: call %u failed, and %u were made", actions[i].name, at,
                         nvml_fixture.calls);
        }
    }
}

static void what_a_caller_can_act_on_has_a_number_of_its_own(void **state)
{
    static const struct {
        nvmlReturn_t result;
        int r;
    } cases[] = {
        {NVML_ERROR_NOT_SUPPORTED, -ENOSYS},
        {NVML_ERROR_NO_PERMISSION, -EPERM},
        {NVML_ERROR_NOT_FOUND, -ENOENT},
        {NVML_ERROR_IN_USE, -EBUSY},
        {NVML_ERROR_INSUFFICIENT_RESOURCES, -ENOSPC},
        {NVML_ERROR_GPU_IS_LOST, -EIO},
    };

    (void)state;
    nvml_fixture.failing = 2;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        nvml_fixture.calls = 0;
        nvml_fixture.failure = cases[i].result;
        assert_int_equal(change_mode(), cases[i].r);
    }
    nvml_fixture.failing = 0;
    activation = NVML_ERROR_IN_USE;
    assert_int_equal(change_mode(), -EBUSY);
}

static void devices_are_told_with_their_profile(void **state)
{
    (void)state;
    assert_int_equal(list_devices(), 2);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(devices[i].uuid, "MIG-1");
        assert_string_equal(devices[i].profile, "1g.10gb+me");
        assert_int_equal(devices[i].gpu_instance, INSTANCE);
        assert_int_equal(devices[i].compute_instance, 2);
        assert_int_equal(devices[i].multiprocessors, 16);
        assert_int_equal(devices[i].memory_bytes, 80 * GIB);
    }
    assert_int_equal(nvml_list_mig_devices(&nvml, 0, devices, 1, NULL), 1);
}

/* It was ended between two calls. */
static void a_device_that_has_gone_meanwhile_is_left_out(void **state)
{
    (void)state;
    nvml_fixture.failure = NVML_ERROR_INVALID_ARGUMENT;
    nvml_fixture.failing =
        6; /* the first one's uuid: the card, its mode, memory, how many, and its handle */
    assert_int_equal(list_devices(), 1);
}

static void a_profile_has_its_places(void **state)
{
    (void)state;
    assert_int_equal(list_profiles(), 3);
    assert_string_equal(profiles[0].name, "1g.10gb");
    assert_int_equal(profiles[0].id, 10);
    assert_int_equal(profiles[0].slices, 1);
    assert_int_equal(profiles[0].memory_mib, 9984);
    assert_int_equal(profiles[0].multiprocessors, 16);
    assert_int_equal(profiles[0].size, 1);
    assert_int_equal(profiles[0].start_count, 7);
    assert_int_equal(profiles[0].starts[6], 6);
    assert_string_equal(profiles[1].name, "7g.80gb");
    assert_int_equal(profiles[1].size, 8);
    assert_int_equal(profiles[1].start_count, 1);
    assert_string_equal(profiles[2].name, "1g.10gb+me");
    assert_int_equal(nvml_list_profiles(&nvml, 0, profiles, 2, NULL), 2);
}

static void instances_are_told_with_their_place(void **state)
{
    unsigned id;

    (void)state;
    assert_int_equal(list_instances(), 1);
    assert_int_equal(instances[0].id, INSTANCE);
    assert_int_equal(instances[0].profile_id, 10);
    assert_int_equal(instances[0].start, 3);
    assert_int_equal(instances[0].size, 1);
    assert_int_equal(nvml_make_gpu_instance(&nvml, 0, 10, 3, 1, &id, NULL), 0);
    assert_int_equal(id, INSTANCE);
    assert_int_equal(nvml_end_gpu_instance(&nvml, 0, INSTANCE + 1, NULL), -ENOENT);
    assert_int_equal(ended_instances, 0);
}

static void a_compute_instance_takes_all_of_its_instance(void **state)
{
    (void)state;
    assert_int_equal(make_compute(), 0);
    assert_int_equal(made_profile, 21);
    assert_int_equal(end_computes(), 0);
    assert_int_equal(ended_computes, 3);

    has_compute_profiles = false;
    assert_int_equal(make_compute(), -ENOSYS);
    assert_int_equal(made_computes, 1);
}

static void an_NVML_without_MIG_has_no_devices(void **state)
{
    struct nvml old = nvml;
    bool on, pending;

    (void)state;
    old.mig.attributes = NULL;
    assert_int_equal(nvml_list_mig_devices(&old, 0, devices, ARRAY_SIZE(devices), NULL), 0);
    old.mig.list_computes = NULL;
    assert_int_equal(nvml_read_mig_mode(&old, 0, &on, &pending, NULL), -ENOSYS);
    assert_int_equal(nvml_fixture.calls, 0);
    assert_int_equal(nvml_read_mig_mode(&nvml, 0, &on, &pending, NULL), 0);
    assert_true(on);
    assert_false(pending);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(whichever_call_fails_is_told, set_up),
        cmocka_unit_test_setup(what_a_caller_can_act_on_has_a_number_of_its_own, set_up),
        cmocka_unit_test_setup(devices_are_told_with_their_profile, set_up),
        cmocka_unit_test_setup(a_device_that_has_gone_meanwhile_is_left_out, set_up),
        cmocka_unit_test_setup(a_profile_has_its_places, set_up),
        cmocka_unit_test_setup(instances_are_told_with_their_place, set_up),
        cmocka_unit_test_setup(a_compute_instance_takes_all_of_its_instance, set_up),
        cmocka_unit_test_setup(an_NVML_without_MIG_has_no_devices, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
