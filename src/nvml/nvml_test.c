/* SPDX-License-Identifier: Apache-2.0 */

/* Over a made-up NVML, any call of which can be made to fail. */

#include "nvml/nvml.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "base/util.h"
#include "nvml/nvml_fixture.h"

enum {
    CARDS = NVML_FIXTURE_DEVICES,
};

static const struct nvml_fixture_device cards[CARDS] = {
    {.uuid = "GPU-0", .name = "NVIDIA A", .memory_bytes = 1 * GIB},
    {.uuid = "GPU-1", .name = "NVIDIA A", .memory_bytes = 2 * GIB},
};

static nvmlReturn_t driver_version(char *version, unsigned length)
{
    (void)snprintf(version, length, "580.95.05");
    return nvml_fixture_answer();
}

static nvmlReturn_t cuda_version(int *version)
{
    *version = 13020;
    return nvml_fixture_answer();
}

static nvmlReturn_t device_count(unsigned *count)
{
    *count = CARDS;
    return nvml_fixture_answer();
}

static nvmlReturn_t device_minor(nvmlDevice_t device, unsigned *minor)
{
    *minor = 4 + nvml_fixture_index(device);
    return nvml_fixture_answer();
}

static nvmlReturn_t pci_info(nvmlDevice_t device, nvmlPciInfo_t *info)
{
    static const char *const ids[CARDS] = {"00000000:3B:00.0", "00000001:D8:00.0"};

    (void)snprintf(info->busId, sizeof(info->busId), "%s", ids[nvml_fixture_index(device)]);
    return nvml_fixture_answer();
}

/* Of the card's own memory. */
static nvmlReturn_t numa_node(nvmlDevice_t device, unsigned *node)
{
    *node = 6 + nvml_fixture_index(device);
    return nvml_fixture_answer();
}

static nvmlReturn_t ancestor(nvmlDevice_t one, nvmlDevice_t other, unsigned *level)
{
    *level = one == other ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_NODE;
    return nvml_fixture_answer();
}

/* Links 0, 2 and 17 are up, the last one to a switch. */
static nvmlReturn_t link_state(nvmlDevice_t device, unsigned link, unsigned *is_active)
{
    (void)device;
    *is_active = link == 0 || link == 2 || link == 17;
    return link == 1 ? NVML_ERROR_NOT_SUPPORTED : nvml_fixture_answer();
}

static nvmlReturn_t link_type(nvmlDevice_t device, unsigned link, unsigned *type)
{
    (void)device;
    *type = link == 17 ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;
    return nvml_fixture_answer();
}

static nvmlReturn_t link_pci(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *info)
{
    (void)device;
    (void)snprintf(info->busId, sizeof(info->busId), "0000:0%X:00.0", link % 10);
    return nvml_fixture_answer();
}

static nvmlReturn_t utilization(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    (void)device;
    *rates = (nvmlUtilization_t){.gpu = 70, .memory = 20};
    return nvml_fixture_answer();
}

static nvmlReturn_t processes(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v2_t *infos)
{
    (void)device;
    *count = 3;
    infos[0] = (nvmlProcessInfo_v2_t){10, 100, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
    infos[1] = (nvmlProcessInfo_v2_t){11, 200, 1, 0};
    infos[2] = (nvmlProcessInfo_v2_t){11, 300, 2, 0};
    return nvml_fixture_answer();
}

static nvmlReturn_t graphics(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v2_t *infos)
{
    (void)device;
    *count = 2;
    infos[0] = (nvmlProcessInfo_v2_t){10, 150, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
    infos[1] = (nvmlProcessInfo_v2_t){12, 50, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
    return nvml_fixture_answer();
}

static nvmlReturn_t process_utilization(nvmlDevice_t device,
                                        nvmlProcessUtilizationSample_t *samples, unsigned *count,
                                        unsigned long long since_us)
{
    (void)device;
    *count = since_us == 5 ? 2 : 0;
    samples[0] = (nvmlProcessUtilizationSample_t){.pid = 10, .smUtil = 30};
    samples[1] = (nvmlProcessUtilizationSample_t){.pid = 11, .smUtil = 40};
    return nvml_fixture_answer();
}

static nvmlReturn_t ecc_errors(nvmlDevice_t device, unsigned error, unsigned counter,
                               unsigned long long *count)
{
    (void)device;
    assert_int_equal(counter, NVML_ECC_VOLATILE);
    *count = error == NVML_ECC_CORRECTED ? 7 : 8;
    return nvml_fixture_answer();
}

static nvmlReturn_t compute_mode(nvmlDevice_t device, unsigned *mode)
{
    (void)device;
    *mode = NVML_COMPUTE_EXCLUSIVE;
    return nvml_fixture_answer();
}

static nvmlReturn_t field_values(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    (void)device;
    assert_int_equal(count, 1);
    assert_int_equal(values->fieldId, NVML_FIELD_RECOVERY_ACTION);
    values->value.uiVal = NVML_RECOVERY_GPU_RESET;
    return nvml_fixture_answer();
}

static struct nvml nvml;

static int set_up(void **state)
{
    (void)state;
    nvml = (struct nvml){
        .sysfs = "/nowhere",
        .driver_version = driver_version,
        .cuda_version = cuda_version,
        .device_count = device_count,
        .device_minor = device_minor,
        .pci_info = pci_info,
        .numa_node = numa_node,
        .ancestor = ancestor,
        .link_state = link_state,
        .link_type = link_type,
        .link_pci = link_pci,
        .utilization = utilization,
        .processes = processes,
        .graphics = graphics,
        .process_utilization = process_utilization,
        .ecc_errors = ecc_errors,
        .compute_mode = compute_mode,
        .field_values = field_values,
    };
    nvml_fixture_init(&nvml, cards, NVML_ERROR_UNKNOWN);
    return unsetenv("HAMI_SIM");
}

static void the_version_is_told(void **state)
{
    char version[NVML_VERSION_SIZE];

    (void)state;
    assert_int_equal(nvml_read_version(&nvml, version, NULL), 0);
    assert_string_equal(version, "580.95.05");
    nvml_fixture.failing = 2;
    assert_int_equal(nvml_read_version(&nvml, version, NULL), -EIO);
    nvml.driver_version = NULL;
    assert_int_equal(nvml_read_version(&nvml, version, NULL), -EIO);
}

static void cuda_s_version_is_told(void **state)
{
    (void)state;
    assert_int_equal(nvml_read_cuda_version(&nvml), 13020);
    nvml_fixture.failing = 2;
    assert_int_equal(nvml_read_cuda_version(&nvml), -EIO);
    nvml.cuda_version = NULL;
    assert_int_equal(nvml_read_cuda_version(&nvml), -EIO);
}

static void devices_are_listed(void **state)
{
    struct device devices[CARDS];

    (void)state;
    assert_int_equal(nvml_list(&nvml, devices, CARDS, NULL), CARDS);
    for (unsigned i = 0; i < CARDS; i++) {
        assert_true(devices[i].healthy);
        assert_int_equal(devices[i].index, i);
        assert_int_equal(devices[i].memory_bytes, (i + 1) * GIB);
        assert_int_equal(devices[i].numa_node, -1);
        assert_string_equal(devices[i].model, "NVIDIA A");
    }
    assert_string_equal(devices[1].uuid, "GPU-1");
    assert_int_equal(nvml_list(&nvml, devices, CARDS - 1, NULL), -E2BIG);
    nvml_fixture.failing = nvml_fixture.calls + 1;
    assert_int_equal(nvml_list(&nvml, devices, CARDS, NULL), -EIO);
}

/* The calls for the first one: its handle, uuid, name and memory. */
static void one_that_does_not_answer_is_listed_as_not_healthy(void **state)
{
    struct device devices[CARDS];

    (void)state;
    for (nvml_fixture.failing = 2; nvml_fixture.failing <= 5; nvml_fixture.failing++) {
        nvml_fixture.calls = 0;
        assert_int_equal(nvml_list(&nvml, devices, CARDS, NULL), CARDS);
        assert_false(devices[0].healthy);
        assert_true(devices[1].healthy);
    }
    nvml_fixture.failure = NVML_ERROR_NOT_SUPPORTED; /* its memory is the system's */
    nvml_fixture.failing = 5;
    nvml_fixture.calls = 0;
    assert_int_equal(nvml_list(&nvml, devices, CARDS, NULL), CARDS);
    assert_true(devices[0].healthy);
    assert_int_equal(devices[0].memory_bytes, 0);
}

static void write_node(const char *sysfs, const char *device, const char *text)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "%s/bus/pci/devices/%s", sysfs, device);
    assert_int_equal(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/numa_node", sysfs, device);
    assert_int_equal(file_replace(path, text, strlen(text), 0600), 0);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static void the_kernel_knows_the_NUMA_node(void **state)
{
    char sysfs[] = "/tmp/hami-nvml-XXXXXX", path[PATH_MAX];
    static const char *const folders[] = {"bus", "bus/pci", "bus/pci/devices"};
    struct device devices[CARDS];

    (void)state;
    assert_non_null(mkdtemp(sysfs));
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", sysfs, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    write_node(sysfs, "0000:3b:00.0", "1\n");
    write_node(sysfs, "0001:d8:00.0", "-1\n");
    nvml_set_sysfs(&nvml, sysfs);
    assert_int_equal(nvml_list(&nvml, devices, CARDS, NULL), CARDS);
    assert_int_equal(devices[0].numa_node, 1);
    assert_int_equal(devices[1].numa_node, -1);
    assert_int_equal(nftw(sysfs, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void of_simulated_cards_NVML_does(void **state)
{
    struct device devices[CARDS];

    (void)state;
    assert_int_equal(setenv("HAMI_SIM", "machine", 1), 0);
    assert_int_equal(nvml_list(&nvml, devices, CARDS, NULL), CARDS);
    assert_int_equal(devices[0].numa_node, 6);
    assert_int_equal(devices[1].numa_node, 7);
    nvml.numa_node = NULL;
    assert_int_equal(nvml_list(&nvml, devices, CARDS, NULL), CARDS);
    assert_int_equal(devices[0].numa_node, -1);
}

static void a_device_has_its_numbers(void **state)
{
    char bus_id[NVML_BUS_ID_SIZE];
    unsigned minor;

    (void)state;
    assert_int_equal(nvml_read_minor(&nvml, 1, &minor, NULL), 0);
    assert_int_equal(minor, 5);
    assert_int_equal(nvml_read_bus_id(&nvml, 0, bus_id), 0);
    assert_string_equal(bus_id, "3b:00.0");
    assert_int_equal(nvml_read_bus_id(&nvml, 1, bus_id), 0);
    assert_string_equal(bus_id, "1:d8:00.0");
    for (nvml_fixture.failing = 1; nvml_fixture.failing <= 2; nvml_fixture.failing++) {
        nvml_fixture.calls = 0;
        assert_int_equal(nvml_read_minor(&nvml, 1, &minor, NULL), -EIO);
        nvml_fixture.calls = 0;
        assert_int_equal(nvml_read_bus_id(&nvml, 1, bus_id), -EIO);
    }
}

static void links_that_are_up_are_listed(void **state)
{
    struct nvml_link links[NVML_LINKS_MAX];

    (void)state;
    assert_int_equal(nvml_read_links(&nvml, 0, links), 3);
    assert_string_equal(links[0].bus_id, "00:00.0");
    assert_string_equal(links[1].bus_id, "02:00.0");
    assert_string_equal(links[2].bus_id, "07:00.0");
    assert_false(links[1].to_switch);
    assert_true(links[2].to_switch);
    nvml.link_pci = NULL;
    nvml.link_type = NULL;
    assert_int_equal(nvml_read_links(&nvml, 0, links), 3);
    assert_string_equal(links[2].bus_id, "");
    assert_false(links[2].to_switch);
    nvml.link_state = NULL;
    assert_int_equal(nvml_read_links(&nvml, 0, links), 0);
}

static void what_two_have_in_common_is_told_or_not_known(void **state)
{
    (void)state;
    assert_int_equal(nvml_read_ancestor(&nvml, 0, 1), NVML_TOPOLOGY_NODE);
    assert_int_equal(nvml_read_ancestor(&nvml, 1, 1), NVML_TOPOLOGY_INTERNAL);
    for (nvml_fixture.failing = 1; nvml_fixture.failing <= 3; nvml_fixture.failing++) {
        nvml_fixture.calls = 0;
        assert_int_equal(nvml_read_ancestor(&nvml, 0, 1), -EIO);
    }
    nvml.ancestor = NULL;
    assert_int_equal(nvml_read_ancestor(&nvml, 0, 1), -EIO);
}

static void the_use_is_told_as_far_as_it_is_known(void **state)
{
    struct nvml_status status;

    (void)state;
    assert_int_equal(nvml_read_status(&nvml, 1, &status, NULL), 0);
    assert_int_equal(status.memory_total_bytes, 2 * GIB);
    assert_int_equal(status.memory_used_bytes, GIB / 2);
    assert_true(status.has_utilization);
    assert_int_equal(status.utilization_percent, 70);
    assert_int_equal(status.controller_percent, 20);
    for (nvml_fixture.failing = 1; nvml_fixture.failing <= 2; nvml_fixture.failing++) {
        nvml_fixture.calls = 0;
        assert_int_equal(nvml_read_status(&nvml, 1, &status, NULL), -EIO);
    }
    nvml_fixture.calls = 0;
    assert_int_equal(nvml_read_status(&nvml, 1, &status, NULL), 0);
    assert_false(status.has_utilization);
}

/* The calls: the handle, memory, two counts of errors, the action, and the two modes. */
static void health_is_told_as_far_as_it_is_known(void **state)
{
    struct nvml_health health;

    (void)state;
    assert_int_equal(nvml_read_health(&nvml, 0, &health, NULL), 0);
    assert_true(health.has_errors);
    assert_int_equal(health.corrected, 7);
    assert_int_equal(health.uncorrected, 8);
    assert_true(health.has_action);
    assert_int_equal(health.action, NVML_RECOVERY_GPU_RESET);
    assert_int_equal(health.compute_mode, NVML_COMPUTE_EXCLUSIVE);
    assert_true(health.is_split);
    for (nvml_fixture.failing = 1; nvml_fixture.failing <= 7; nvml_fixture.failing++) {
        nvml_fixture.calls = 0;
        assert_int_equal(nvml_read_health(&nvml, 0, &health, NULL),
                         nvml_fixture.failing <= 2 ? -EIO : 0);
        if (nvml_fixture.failing <= 2)
            continue;
        /* After the first count that fails the second is not asked for. */
        assert_int_equal(health.has_errors, nvml_fixture.failing > 4);
        assert_int_equal(health.has_action, nvml_fixture.failing != 5);
        assert_int_equal(health.compute_mode,
                         nvml_fixture.failing == 6 ? NVML_COMPUTE_DEFAULT : NVML_COMPUTE_EXCLUSIVE);
        assert_int_equal(health.is_split, nvml_fixture.failing != 7);
    }
}

static void processes_are_listed(void **state)
{
    struct nvml_process listed[8];

    (void)state;
    assert_int_equal(nvml_list_processes(&nvml, 0, listed, 8, NULL), 3);
    assert_int_equal(listed[2].pid, 11);
    assert_int_equal(listed[2].memory_bytes, 300);
    assert_int_equal(nvml_list_processes(&nvml, 0, listed, 2, NULL), 2);
    nvml_fixture.failing = nvml_fixture.calls + 2;
    assert_int_equal(nvml_list_processes(&nvml, 0, listed, 8, NULL), -EIO);
    nvml.processes = NULL;
    assert_int_equal(nvml_list_processes(&nvml, 0, listed, 8, NULL), -ENOSYS);
    assert_int_equal(nvml_list_all_processes(&nvml, 0, listed, 8, NULL), -ENOSYS);
}

static void one_of_several_kinds_is_listed_once_in_each_instance(void **state)
{
    struct nvml_process listed[8];

    (void)state;
    assert_int_equal(nvml_list_all_processes(&nvml, 0, listed, 8, NULL), 4);
    assert_int_equal(listed[0].pid, 10);
    assert_int_equal(listed[0].memory_bytes, 150);
    assert_false(listed[0].in_instance);
    assert_int_equal(listed[1].pid, 11);
    assert_true(listed[1].in_instance);
    assert_int_equal(listed[1].gpu_instance, 1);
    assert_int_equal(listed[2].gpu_instance, 2);
    assert_int_equal(listed[2].memory_bytes, 300);
    assert_int_equal(listed[3].pid, 12);
    assert_int_equal(nvml_list_all_processes(&nvml, 0, listed, 2, NULL), 2);

    nvml_fixture.calls = 0;
    nvml_fixture.failing = 3; /* those that draw are passed over */
    assert_int_equal(nvml_list_all_processes(&nvml, 0, listed, 8, NULL), 3);
    for (nvml_fixture.failing = 1; nvml_fixture.failing <= 2; nvml_fixture.failing++) {
        nvml_fixture.calls = 0;
        assert_int_equal(nvml_list_all_processes(&nvml, 0, listed, 8, NULL), -EIO);
    }
}

static void times_of_processes_are_told_since_a_moment(void **state)
{
    struct nvml_process_time times[4];

    (void)state;
    assert_int_equal(nvml_read_process_times(&nvml, 0, 5, times, 4), 2);
    assert_int_equal(times[1].pid, 11);
    assert_int_equal(times[1].percent, 40);
    assert_int_equal(nvml_read_process_times(&nvml, 0, 5, times, 1), 1);
    assert_int_equal(nvml_read_process_times(&nvml, 0, 6, times, 4), 0);
    for (nvml_fixture.failing = 1; nvml_fixture.failing <= 2; nvml_fixture.failing++) {
        nvml_fixture.calls = 0;
        assert_int_equal(nvml_read_process_times(&nvml, 0, 5, times, 4), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_version_is_told, set_up),
        cmocka_unit_test_setup(cuda_s_version_is_told, set_up),
        cmocka_unit_test_setup(devices_are_listed, set_up),
        cmocka_unit_test_setup(one_that_does_not_answer_is_listed_as_not_healthy, set_up),
        cmocka_unit_test_setup(the_kernel_knows_the_NUMA_node, set_up),
        cmocka_unit_test_setup(of_simulated_cards_NVML_does, set_up),
        cmocka_unit_test_setup(a_device_has_its_numbers, set_up),
        cmocka_unit_test_setup(links_that_are_up_are_listed, set_up),
        cmocka_unit_test_setup(what_two_have_in_common_is_told_or_not_known, set_up),
        cmocka_unit_test_setup(the_use_is_told_as_far_as_it_is_known, set_up),
        cmocka_unit_test_setup(health_is_told_as_far_as_it_is_known, set_up),
        cmocka_unit_test_setup(processes_are_listed, set_up),
        cmocka_unit_test_setup(one_of_several_kinds_is_listed_once_in_each_instance, set_up),
        cmocka_unit_test_setup(times_of_processes_are_told_since_a_moment, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
