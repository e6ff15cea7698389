/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/families.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/util.h"

static const struct device_vendor vendor = {"V", NULL, NULL};

static struct device devices[] = {
    {.vendor = &vendor,
     .uuid = "GPU-a",
     .model = "NVIDIA A100",
     .index = 3,
     .cores = 100,
     .memory_bytes = 40960 * MIB,
     .used = {.tasks = 2, .cores = 30, .memory_bytes = 10240 * MIB}},
    /* Compute units, and no memory. */
    {.vendor = &vendor,
     .uuid = "AMD-b",
     .model = "amd-mi300x",
     .index = 4,
     .cores = 304,
     .used = {.tasks = 1, .cores = 38}},
};
static const struct place_node node = {
    .name = "n", .devices = devices, .device_count = ARRAY_SIZE(devices)};

#define MIG(device, made)                                                                          \
    "{\\\"containerIndex\\\":0,\\\"deviceIndex\\\":" device                                        \
    ",\\\"gpuUUID\\\":\\\"GPU-a\\\",\\\"profile\\\":\\\"2g.10gb\\\",\\\"placement\\\":{"           \
    "\\\"start\\\":4,\\\"size\\\":2}" made "}"

static struct place_share shares[] = {
    {.vendor = &vendor, .uuid = "GPU-a", .usage = {.cores = 30, .memory_bytes = 10240 * MIB}},
    {.vendor = &vendor, .uuid = "AMD-b", .usage = {.cores = 38}},
};
static const struct place_usage usage = {.count = ARRAY_SIZE(shares), .shares = shares};
static const struct cluster_pod_view pod = {
    .namespace = "ns",
    .name = "p",
    .node = "n",
    .usage = &usage,
    .text = "\"hami.io/vgpu-node\":\"n\",\"hami.io/vgpu-mig-allocations\":\"[" MIG(
        "0", ",\\\"migUUID\\\":\\\"MIG-1\\\",\\\"gpuInstanceID\\\":5,\\\"computeInstanceID\\\":"
             "0") "," MIG("1", "") "]\"",
};

/* All that these make, without the lines of help. */
static char *page(bool former, const struct place_node *of_pod)
{
    CLEANUP(strbuf_deinit) struct strbuf buf = STRBUF_INIT(1 << 20);
    CLEANUP(strbuf_deinit) struct strbuf kept = STRBUF_INIT(1 << 20);

    for (size_t i = 0; i < families_of_devices(former); i++) {
        families_begin_devices(&buf, i);
        families_add_devices(&buf, i, &node);
    }
    for (size_t i = 0; i < families_of_pods(former); i++) {
        families_begin_pods(&buf, i);
        families_add_pod(&buf, i, &pod, of_pod);
    }
    for (const char *line = strbuf_text(&buf), *end; (end = strchr(line, '\n')); line = end + 1) {
        if (line[0] != '#')
            strbuf_add_bytes(&kept, line, (size_t)(end + 1 - line));
    }
    assert_false(kept.failed);
    return strdup(strbuf_text(&kept));
}

#define A "zone=\"vGPU\",node=\"n\",device_uuid=\"GPU-a\",device_index=\"3\""
#define B "zone=\"vGPU\",node=\"n\",device_uuid=\"AMD-b\",device_index=\"4\""
#define POD "zone=\"vGPU\",namespace=\"ns\",node=\"n\",pod=\"p\",container_index=\"0\""
#define TYPE_A ",device_type=\"NVIDIA A100\"} "
#define TYPE_B ",device_type=\"amd-mi300x\"} "

/* HAMi 2.10's cmd/scheduler/metrics.go. */
static const char present[] =
    "hami_gpu_memory_limit_bytes{" A TYPE_A "42949672960\n"
    "hami_gpu_memory_limit_bytes{" B TYPE_B "0\n"
    "hami_gpu_core_limit_ratio{" A TYPE_A "100\n"
    "hami_gpu_core_limit_ratio{" B TYPE_B "100\n"
    "hami_gpu_memory_allocated_bytes{" A ",device_cores=\"100\"" TYPE_A "10737418240\n"
    "hami_gpu_memory_allocated_bytes{" B ",device_cores=\"304\"" TYPE_B "0\n"
    "hami_gpu_shared_count{" A TYPE_A "2\n"
    "hami_gpu_shared_count{" B TYPE_B "1\n"
    "hami_gpu_core_allocated_ratio{" A TYPE_A "30\n"
    "hami_gpu_core_allocated_ratio{" B TYPE_B "13\n"
    "hami_node_gpu_overview{" A ",device_cores=\"100\",device_memory_limit=\"40960\"" TYPE_A
    "10737418240\n"
    "hami_node_gpu_overview{" B ",device_cores=\"304\",device_memory_limit=\"0\"" TYPE_B "0\n"
    "hami_node_gpu_memory_allocated_ratio{" A TYPE_A "0.25\n"
    "hami_vgpu_memory_allocated_bytes{" POD ",device_uuid=\"GPU-a\"} 10737418240\n"
    "hami_vgpu_memory_allocated_bytes{" POD ",device_uuid=\"AMD-b\"} 0\n"
    "hami_vgpu_core_allocated_ratio{" POD ",device_uuid=\"GPU-a\"} 30\n"
    "hami_vgpu_core_allocated_ratio{" POD ",device_uuid=\"AMD-b\"} 13\n"
    "hami_node_gpu_mig_instance_info{" A ",mig_uuid=\"MIG-1\",profile=\"2g.10gb\","
    "gpu_instance_id=\"5\",compute_instance_id=\"0\",placement_start=\"4\",placement_size=\"2\"} "
    "1\n";

static void grants_are_told_as_hami_tells_them(void **state)
{
    AUTOFREE char *got = page(false, &node);

    (void)state;
    assert_string_equal(got, present);
}

#define OLD_A "zone=\"vGPU\",nodeid=\"n\",deviceuuid=\"GPU-a\",deviceidx=\"3\""
#define OLD_B "zone=\"vGPU\",nodeid=\"n\",deviceuuid=\"AMD-b\",deviceidx=\"4\""
#define OLD_POD "zone=\"vGPU\",podnamespace=\"ns\",nodename=\"n\",podname=\"p\",containeridx=\"0\""
#define OLD_TYPE_A ",devicetype=\"NVIDIA A100\"} "
#define OLD_TYPE_B ",devicetype=\"amd-mi300x\"} "

static void former_names_come_beside_the_present_ones(void **state)
{
    static const char *const lines[] = {
        "\nGPUDeviceMemoryLimit{" OLD_A OLD_TYPE_A "42949672960\n",
        "\nGPUDeviceCoreLimit{" OLD_B OLD_TYPE_B "304\n",
        "\nGPUDeviceMemoryAllocated{" OLD_A ",devicecores=\"100\"" OLD_TYPE_A "10737418240\n",
        "\nGPUDeviceSharedNum{" OLD_A OLD_TYPE_A "2\n",
        "\nGPUDeviceCoreAllocated{" OLD_B OLD_TYPE_B "38\n",
        "\nnodeGPUOverview{" OLD_A ",devicecores=\"100\",devicememorylimit=\"40960\"" OLD_TYPE_A
        "10737418240\n",
        "\nnodeGPUMemoryPercentage{" OLD_A "} 0.25\n",
        "\nvGPUMemoryAllocated{" OLD_POD ",deviceuuid=\"GPU-a\"} 10737418240\n",
        "\nvGPUCoreAllocated{" OLD_POD ",deviceuuid=\"AMD-b\"} 38\n",
        "\nnodeGPUMigInstance{" OLD_A ",migname=\"2g.10gb-5\"} 1\n",
        "\nhami_gpu_core_limit_ratio{" B TYPE_B "100\n",
    };
    AUTOFREE char *got = page(true, &node);
    size_t count = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        if (!strstr(got, lines[i]))
            fail_msg("%s is not in\n%s", lines[i], got);
    }
    for (const char *at = got; (at = strchr(at, '\n')); at++)
        count++;
    assert_int_equal(count, 18 + 18);
}

/* Its node may have lost its devices meanwhile. */
static void a_pod_on_an_unknown_node_is_told(void **state)
{
    AUTOFREE char *got = page(false, NULL);

    (void)state;
    assert_non_null(
        strstr(got, "hami_vgpu_core_allocated_ratio{" POD ",device_uuid=\"AMD-b\"} 38\n"));
    assert_null(strstr(got, "mig_instance_info"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grants_are_told_as_hami_tells_them),
        cmocka_unit_test(former_names_come_beside_the_present_ones),
        cmocka_unit_test(a_pod_on_an_unknown_node_is_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
